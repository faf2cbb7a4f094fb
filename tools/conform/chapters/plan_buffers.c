/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: buffers, writers, names and totals of random plans. */
#include "plan_place.h"

static void aligned_run(const struct place *place)
{
    for (uint32_t param = 0; param < place->host->n_params; param++) {
        struct hsdp_param_info info;
        struct hsdp_buffer_info buffer;

        if (!place_stores(place, param, &info)) {
            continue;
        }
        buffer = place_buffer(place, place->unit, info.buffer);
        numbers_expect(info.offset_elems * place_elem_bytes(place) % 64 == 0,
                       "%s begins at byte %u, which 64 does not divide", info.name,
                       (unsigned)(info.offset_elems * place_elem_bytes(place)));
        numbers_expect(info.offset_elems + info.n_elems <= buffer.n_elems,
                       "%s ends behind its buffer", info.name);
        numbers_expect((buffer.is_frozen != 0) == ((info.flags & HSDP_PARAM_FROZEN) != 0),
                       "%s is in the other buffer of its unit", info.name);
        for (uint32_t other = 0; other < param; other++) {
            struct hsdp_param_info second;

            numbers_expect(!place_stores(place, other, &second) || second.buffer != info.buffer ||
                               info.n_elems == 0 || second.n_elems == 0 ||
                               info.offset_elems + info.n_elems <= second.offset_elems ||
                               second.offset_elems + second.n_elems <= info.offset_elems,
                           "%s and %s overlap", info.name, second.name);
        }
    }
}

void plan_aligned(struct conform *conform)
{
    place_each(conform, aligned_run);
}

static void buffers_run(const struct place *place)
{
    for (uint32_t b = 0; b < place->info.n_buffers; b++) {
        struct hsdp_buffer_info buffer = place_buffer(place, place->unit, b);
        uint64_t n_stored = 0;

        for (uint32_t param = 0; param < place->host->n_params; param++) {
            struct hsdp_param_info info;

            n_stored += place_stores(place, param, &info) && info.buffer == b ? info.n_elems : 0;
        }
        numbers_expect(place->info.n_buffers == 1 || (buffer.is_frozen != 0) == (b == 1),
                       "buffer %u of two is %s", b, buffer.is_frozen != 0 ? "frozen" : "trainable");
        numbers_expect(buffer.n_padding_elems == buffer.n_elems - n_stored,
                       "buffer %u of %u elements holds %u, and says that %u are padding", b,
                       (unsigned)buffer.n_elems, (unsigned)n_stored,
                       (unsigned)buffer.n_padding_elems);
        numbers_expect(buffer.param_shard_elems * place_elem_bytes(place) % 64 == 0,
                       "buffer %u is cut into parts of %u bytes, no multiple of 64", b,
                       (unsigned)(buffer.param_shard_elems * place_elem_bytes(place)));
        for (int32_t cut = 0; cut < PLACE_N_CUTS; cut++) {
            struct shard shard;

            place_slice(place, cut, place->host->rank, &shard);
            numbers_expect(place_shard_elems(&buffer, cut) * shard.n_slices == buffer.n_elems,
                           "buffer %u of %u elements is cut into %u parts of %u", b,
                           (unsigned)buffer.n_elems, (unsigned)shard.n_slices,
                           (unsigned)place_shard_elems(&buffer, cut));
        }
    }
}

void plan_buffers(struct conform *conform)
{
    place_each(conform, buffers_run);
}

static uint32_t writer_of(const struct place *place, int32_t cut, uint32_t rank)
{
    struct host *host = place->host;
    uint32_t writer = UINT32_MAX;

    host_must(host,
              host->api->plan->writer(host->plan, place->unit, cut, rank, &writer, &host->err));
    return writer;
}

/* All that have a slice name the same one of them. */
static void writers_run(const struct place *place)
{
    for (int32_t cut = 0; cut < PLACE_N_CUTS; cut++) {
        uint32_t writers[PLACE_MAX_RANKS];

        memset(writers, 0xff, sizeof(writers));
        for (uint32_t i = 0; i < place->n_holders; i++) {
            uint32_t writer = writer_of(place, cut, place->holders[i]);
            struct shard own, of_writer;
            bool is_holder = false;

            for (uint32_t j = 0; j < place->n_holders; j++) {
                is_holder = is_holder || place->holders[j] == writer;
            }
            numbers_expect(is_holder, "cut %d: rank %u writes for rank %u, and holds nothing",
                           (int)cut, writer, place->holders[i]);
            place_slice(place, cut, place->holders[i], &own);
            place_slice(place, cut, writer, &of_writer);
            numbers_expect(own.slice == of_writer.slice,
                           "cut %d: rank %u writes for rank %u, which has another slice", (int)cut,
                           writer, place->holders[i]);
            if (writers[own.slice] == UINT32_MAX) {
                writers[own.slice] = writer;
            }
            numbers_expect(writers[own.slice] == writer, "cut %d: ranks %u and %u write slice %u",
                           (int)cut, writers[own.slice], writer, (unsigned)own.slice);
        }
    }
}

void plan_writers(struct conform *conform)
{
    place_each(conform, writers_run);
}

/* ------------------------------------------------------------------------------ what was added */

static void ties_run(const struct place *place)
{
    uint32_t n_stored = 0;

    for (uint32_t param = 0; param < place->host->n_params; param++) {
        const struct host_param *given = &place->host->params[param];
        struct hsdp_param_info info = place_param(place, param);
        struct hsdp_param_info storage = place_param(place, given->storage);
        bool is_copy = /* of another stage's: what is saved is the storage */
            place_case.is_tied[given->storage] &&
            random_first_holder(&place_case, given->storage, place->host->rank) !=
                place->host->rank;

        if (given->unit != place->unit) {
            continue;
        }
        numbers_expect(info.storage == given->storage, "%s is stored as parameter %u, not %u",
                       info.name, info.storage, given->storage);
        numbers_expect(info.buffer == storage.buffer && info.offset_elems == storage.offset_elems,
                       "%s lies elsewhere than its storage %s", info.name, storage.name);
        numbers_expect(((info.flags & HSDP_PARAM_COPY) != 0) == is_copy,
                       "%s is %s copy of another stage's", info.name,
                       is_copy ? "not told as a" : "told as a");
        n_stored += given->storage == param;
    }
    numbers_expect((n_stored == 0) == (place->info.n_buffers == 0),
                   "unit %u stores %u parameters, and has %u buffers", place->unit, n_stored,
                   place->info.n_buffers);
}

void plan_names(struct conform *conform)
{
    place_each(conform, ties_run);
}

/* What another plugin's model would need; of a tied name its storage's. */
static void given_expect(const struct hsdp_param_info *info, const struct host_param *given)
{
    numbers_expect(strcmp(info->tied_over, given->tied_over) == 0,
                   "%s is tied over \"%s\", not \"%s\"", info->name, info->tied_over,
                   given->tied_over);
    numbers_expect(info->block_elems == given->block_elems, "block_elems of %s is %u, not %u",
                   info->name, (unsigned)info->block_elems, (unsigned)given->block_elems);
}

static void infos_run(const struct place *place)
{
    struct host *host = place->host;
    uint32_t n_params = 0, first = UINT32_MAX;

    for (uint32_t param = 0; param < host->n_params; param++) {
        const struct host_param *given = &host->params[param];
        struct hsdp_param_info info = place_param(place, param);
        uint32_t found = UINT32_MAX;

        host_must(host, host->api->plan->param_find(host->plan, given->name, &found, &host->err));
        given_expect(&info, &host->params[given->storage]);
        numbers_expect(found == param && strcmp(info.name, given->name) == 0 &&
                           info.n_dims == given->n_dims && info.unit == given->unit &&
                           info.n_elems == given->n_elems &&
                           info.hyper_group == given->hyper_group &&
                           ((info.flags & HSDP_PARAM_FROZEN) != 0) == given->is_frozen,
                       "parameter %u, \"%s\", is not what was added", param, info.name);
        for (uint32_t d = 0; d < given->n_dims; d++) {
            numbers_expect(info.shape[d] == given->shape[d], "the shape of %s is another one",
                           info.name);
        }
        n_params += given->unit == place->unit;
        first = given->unit == place->unit && first == UINT32_MAX ? param : first;
    }
    numbers_expect(strcmp(place->info.name, host->units[place->unit]) == 0 &&
                       place->info.class_index == host->unit_classes[place->unit] &&
                       place->info.n_params == n_params && place->info.first_param == first &&
                       place->info.n_buffers <= 2 && place->info.reserved == 0,
                   "unit %u, \"%s\", is not what was added", place->unit, place->info.name);
}

void plan_infos(struct conform *conform)
{
    place_each(conform, infos_run);
}

void plan_given(struct conform *conform)
{
    struct host host;

    numbers_begin(conform);
    host_arrange(&host, 0, "pp=2,dp=2");
    host_plan(&host, "",
              "unit a: w[50]/4 plain[50] emb[50]~pp[0,-1]; unit b: tied[50]=w head[50]=emb");
    for (uint32_t param = 0; param < host.n_params; param++) {
        struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;

        host_must(&host, host.api->plan->param_info(host.plan, param, &info, &host.err));
        given_expect(&info, &host.params[host.params[param].storage]);
    }
    host_leave(&host);
}

/* The sums over all buffers of a plan. */
static void totals_expect(struct host *host)
{
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;
    uint64_t n_state_elems = 0, param_bytes = 0;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct place place;

        place_set(&place, host, unit);
        for (uint32_t b = 0; b < place.info.n_buffers; b++) {
            struct hsdp_buffer_info buffer = place_buffer(&place, unit, b);

            n_state_elems += buffer.is_frozen != 0 ? 0 : buffer.step_shard_elems;
            param_bytes += buffer.param_shard_elems * place_elem_bytes(&place);
        }
    }
    host_must(host, host->api->plan->info(host->plan, &info, &host->err));
    numbers_expect(info.n_classes == host->n_classes && info.n_units == host->n_units &&
                       info.n_params == host->n_params,
                   "it counts %u classes, %u units, %u parameters", info.n_classes, info.n_units,
                   info.n_params);
    numbers_expect(info.n_state_elems == n_state_elems, "n_state_elems is %u, not %u",
                   (unsigned)info.n_state_elems, (unsigned)n_state_elems);
    numbers_expect(info.param_bytes == param_bytes, "param_bytes is %u, not %u",
                   (unsigned)info.param_bytes, (unsigned)param_bytes);
    numbers_expect(info.padding_bytes <= info.param_bytes, "there is more padding than parameters");
    numbers_expect(info.peak_bytes == info.param_bytes + info.master_bytes + info.grad_bytes +
                                          info.unsharded_bytes + info.grad_slot_bytes +
                                          8 * info.n_state_elems,
                   "peak_bytes, %u, is not the sum", (unsigned)info.peak_bytes);
}

void plan_totals(struct conform *conform)
{
    numbers_begin(conform);
    for (uint64_t i = 0; i < PLACE_N_CASES; i++) {
        struct host host;

        place_plan(conform->seed + i, &host);
        totals_expect(&host);
        host_leave(&host);
    }
}

/* What this rank's plan says of a holder, and what the holder's own says. */
static void same_run(const struct place *place)
{
    for (uint32_t i = 0; i < place->n_holders; i++) {
        char units[RANDOM_TEXT_BYTES];
        struct place other;
        struct host host;

        random_case_units(&place_case, 0, place->holders[i], units);
        host_arrange(&host, place->holders[i], place_case.dims);
        host_plan(&host, place_case.settings[0], units);
        place_set(&other, &host, place->unit);
        for (int32_t cut = 0; cut < PLACE_N_CUTS; cut++) {
            struct shard told, own;

            place_shard(place, cut, place->holders[i], &told);
            place_shard(&other, cut, place->holders[i], &own);
            numbers_expect(told.n_segments == own.n_segments &&
                               memcmp(told.segments, own.segments,
                                      own.n_segments * sizeof(own.segments[0])) == 0,
                           "cut %d: rank %u says something else of itself", (int)cut,
                           place->holders[i]);
            numbers_expect(writer_of(place, cut, place->holders[i]) ==
                               writer_of(&other, cut, place->holders[i]),
                           "cut %d: rank %u has another writer", (int)cut, place->holders[i]);
        }
        host_leave(&host);
    }
}

void plan_same_on_all(struct conform *conform)
{
    place_each(conform, same_run);
}
