/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: unshard, the step's collective, and publishing parameters. */
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "comm/numbers.h"
#include "comm/shm_store.h"
#include "device/fpmode.h"
#include "device/kernels.h"

/* ----------------------------------------------------- waiting for peers, as work with a ticket */

/*
 * A peer is in the epoch of this rank or, once this rank has come to the next step, in the one
 * after it; so what it has said of this one still stands.
 */
int32_t shm_published_compare(struct store *store, const struct shm_ranks *ranks,
                              const char *operation, struct hsdp_error *reterr)
{
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        uint32_t rank = ranks->ranks[i];
        uint64_t n_discards = atomic_load(&shm_header(store, rank)->n_discards[store->epoch % 2]);
        bool is_other = n_discards > store->n_discards;
        struct hsdp_error err;

        if (n_discards == store->n_discards) {
            continue;
        }
        error_set(&err, HSDP_ERR_MISMATCH,
                  "%s: rank %" PRIu32 " has discarded the step that rank %" PRIu32
                  " has ended (%" PRIu64 " discarded so far, and %" PRIu64 ")",
                  operation, is_other ? rank : store->rank, is_other ? store->rank : rank,
                  is_other ? n_discards : store->n_discards,
                  is_other ? store->n_discards : n_discards);
        error_where(&err, operation, ranks->name, NULL);
        err.sequence = store->epoch - store->first_epoch;
        if (reterr != NULL) {
            *reterr = err;
        }
        return job_fail(store->job, &err);
    }
    return HSDP_OK;
}

static int32_t awaiting_progress(struct work *work, struct hsdp_error *reterr)
{
    struct shm_awaiting *awaiting = (struct shm_awaiting *)work;
    struct store *store = awaiting->store;

    if (!wait_is_met(&awaiting->wait)) {
        return HSDP_PENDING;
    }
    probe_met(store->probe, &awaiting->wait);
    if (awaiting->epoch != store->epoch) {
        return HSDP_OK; /* nobody has waited for it, and peers may be further by now */
    }
    return shm_published_compare(store, awaiting->writers, awaiting->wait.operation, reterr);
}

static const struct wait *awaiting_blocker(struct work *work)
{
    return &((struct shm_awaiting *)work)->wait;
}

static void awaiting_finish(struct work *work, int32_t status)
{
    (void)status;
    ((struct shm_awaiting *)work)->is_active = false;
}

static int32_t awaiting_start(struct store *store, struct shm_awaiting *awaiting,
                              uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    awaiting->work.progress = awaiting_progress;
    awaiting->work.blocker = awaiting_blocker;
    awaiting->work.finish = awaiting_finish;
    awaiting->work.label = &awaiting->wait;
    awaiting->is_active = true;
    return job_work_start(store->job, &awaiting->work, ret_ticket, reterr);
}

/* -------------------------------------------------------------------------------- unshard */

static void access_set(struct store *store, uint32_t unit, int protection)
{
    struct shm_unit *u = &store->units[unit];

    for (uint32_t b = 0; store->is_access_checked && b < PLAN_MAX_BUFFERS; b++) {
        if (u->view_bytes[b] != 0) {
            mprotect(u->view[b], u->view_bytes[b], protection);
        }
    }
}

static uint64_t unshard_count(struct store *store, uint32_t unit)
{
    const struct plan_unit *plan_unit = &store->plan->units[unit];
    struct shm_ranks *gather = &shm_class_of(store, unit)->gather;
    uint64_t n_elems = 0;
    uint64_t n_bytes;

    for (uint32_t b = 0; b < plan_unit->n_buffers; b++) {
        n_elems += plan_unit->buffers[b].shard_elems[HSDP_SHARD_PARAM];
    }
    n_bytes = n_elems * dtype_bytes(shm_plan_class(store, unit)->param_dtype);
    shm_count(gather, n_bytes);
    if (store->n_unshards != NULL) {
        atomic_fetch_add_explicit(store->n_unshards, 1, memory_order_relaxed);
    }
    return n_bytes;
}

/* A view is its peers' shards: it is whole as soon as everyone who writes them has published. */
int32_t shm_unshard(struct store *store, uint32_t unit, void *stream, uint64_t *ret_ticket,
                    struct hsdp_error *reterr)
{
    struct shm_awaiting *unshard = &store->units[unit].unshard;
    struct shm_ranks *writers = &shm_class_of(store, unit)->steps;

    (void)stream; /* on a CPU the host's thread is the stream: here and below */
    access_set(store, unit, PROT_READ);
    unshard->wait.n_bytes = unshard_count(store, unit);
    shm_journal_unshard(store, unit);
    for (uint32_t i = 0; i < writers->n_ranks; i++) {
        unshard->entries[i].counter = &shm_header(store, writers->ranks[i])->epoch;
        unshard->entries[i].target = store->epoch;
        unshard->entries[i].rank = writers->ranks[i];
        unshard->entries[i].wait = PROBE_WAIT_PUBLISHED;
    }
    probe_expect(store->probe, unshard->entries, writers->n_ranks);
    unshard->wait.entries = unshard->entries;
    unshard->wait.n_entries = writers->n_ranks;
    unshard->wait.operation = "unshard";
    unshard->wait.group = writers->name;
    unshard->wait.unit = store->plan->units[unit].name;
    unshard->wait.sequence = store->epoch - store->first_epoch;
    unshard->wait.check = shm_journals_check;
    unshard->wait.user = store;
    unshard->writers = writers;
    unshard->epoch = store->epoch;
    if (unshard->is_active) { /* an earlier ticket nobody waited for: now it means this epoch */
        *ret_ticket = unshard->work.ticket;
        return HSDP_OK;
    }
    if (wait_is_met(&unshard->wait)) {
        probe_met(store->probe, &unshard->wait);
        job_record_done(store->job, &unshard->wait);
        *ret_ticket = 0;
        return shm_published_compare(store, writers, unshard->wait.operation, reterr);
    }
    return awaiting_start(store, unshard, ret_ticket, reterr);
}

void shm_reshard(struct store *store, uint32_t unit, void *stream)
{
    (void)stream;
    access_set(store, unit, PROT_NONE);
}

/* ----------------------------------------------------------------------------------- step */

int32_t shm_step_start(struct store *store, const struct step_words *mine,
                       struct hsdp_error *reterr)
{
    struct shm_header *header = shm_header(store, store->rank);
    struct wait_entry *entries = store->step_entries;

    (void)reterr;
    store->step++;
    probe_write(store->probe, PROBE_STEP_WORDS, PROBE_NO_UNIT, &header->words[store->step % 2],
                sizeof(*mine));
    header->words[store->step % 2] = *mine;
    shm_journals_mark(store);
    job_signal(store->job, &header->step_arrived, store->step, store->world, store->n_world);
    for (uint32_t rank = 0; rank < store->n_world; rank++) {
        entries[rank].counter = &shm_header(store, rank)->step_arrived;
        entries[rank].target = store->step;
        entries[rank].rank = rank;
        entries[rank].wait = PROBE_WAIT_STEP;
    }
    probe_expect(store->probe, entries, store->n_world);
    store->step_wait.entries = entries;
    store->step_wait.n_entries = store->n_world;
    store->step_wait.check = shm_journals_check;
    store->step_wait.user = store;
    store->step_wait.operation = "step";
    store->step_wait.sequence = store->step - store->first_step;
    return HSDP_OK;
}

const struct wait *shm_step_blocker(const struct store *store)
{
    return wait_is_met(&store->step_wait) ? NULL : &store->step_wait;
}

static const struct step_words *words_read(void *user, uint32_t rank)
{
    const struct store *store = user;
    const struct step_words *words = &shm_header(store, rank)->words[store->step % 2];

    probe_read(store->probe, PROBE_STEP_WORDS, PROBE_NO_UNIT, words, sizeof(*words));
    return words;
}

int32_t shm_step_words(struct store *store, struct step_words *ret_all, struct hsdp_error *reterr)
{
    const struct numbers_source source = {store->plan, words_read, store};
    int32_t status;

    probe_met(store->probe, &store->step_wait);
    status = numbers_merge(&source, ret_all, reterr);
    return status != HSDP_OK ? status : shm_journals_settle(store, reterr);
}

/* -------------------------------------------------------------------------------- publish */

/* This rank's step slice goes into each copy of the parameter shard that contains it. */
uint32_t shm_publish_targets(struct store *store, uint32_t unit, uint32_t buffer,
                             void *ret_addresses[STORE_MAX_TARGETS])
{
    const struct shm_unit *u = &store->units[unit];
    const struct shm_ranks *copies = &shm_class_of(store, unit)->copies;
    uint64_t offset_bytes =
        u->params_offset[buffer] +
        u->step_offset[buffer] * dtype_bytes(shm_plan_class(store, unit)->param_dtype);
    uint32_t n_targets = 0;

    for (uint32_t i = 0; i < copies->n_ranks; i++) {
        void *copy = store->regions[copies->ranks[i]] + offset_bytes;

        if (copy != u->master[buffer]) {
            ret_addresses[n_targets++] = copy;
        }
    }
    return n_targets;
}

void shm_publish_skip(struct store *store, uint32_t unit, bool is_written)
{
    store->units[unit].is_written = is_written;
}

static uint64_t published_elems(const struct store *store, uint32_t unit, uint32_t buffer)
{
    return store->plan->units[unit].buffers[buffer].shard_elems[HSDP_SHARD_STEP];
}

static void buffer_copy(struct store *store, uint32_t unit, uint32_t buffer)
{
    const void *master = store->units[unit].master[buffer];
    enum dtype dtype = shm_plan_class(store, unit)->param_dtype;
    enum dtype master_dtype = shm_plan_class(store, unit)->master_dtype;
    uint64_t n_elems = published_elems(store, unit, buffer);
    void *targets[STORE_MAX_TARGETS];
    uint32_t n_targets = shm_publish_targets(store, unit, buffer, targets);

    for (uint32_t i = 0; i < n_targets; i++) {
        probe_read(store->probe, PROBE_MASTER, unit, master, n_elems * dtype_bytes(master_dtype));
        probe_write(store->probe, PROBE_PARAMS, unit, targets[i], n_elems * dtype_bytes(dtype));
        job_kernels(store->job)->convert(targets[i], dtype, master, master_dtype, n_elems);
    }
}

static void unit_publish(struct store *store, uint32_t unit, enum published values)
{
    const struct plan_unit *plan_unit = &store->plan->units[unit];
    uint64_t elem_bytes = dtype_bytes(shm_plan_class(store, unit)->param_dtype);
    struct shm_unit *u = &store->units[unit];

    for (uint32_t b = 0; values != PUBLISHED_NOTHING && b < plan_unit->n_buffers; b++) {
        if (values == PUBLISHED_TRAINABLE && plan_unit->buffers[b].is_frozen) {
            continue;
        }
        if (values != PUBLISHED_TRAINABLE || !u->is_written) {
            buffer_copy(store, unit, b);
        }
        /* As much comes from each peer as goes to it. */
        shm_count(&shm_class_of(store, unit)->copies, published_elems(store, unit, b) * elem_bytes);
    }
    u->is_written = false;
}

void shm_step_grads_drop(struct store *store)
{
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        store->units[unit].has_step = false;
    }
}

int32_t shm_publish(struct store *store, enum published values, void *stream,
                    struct hsdp_error *reterr)
{
    struct wait what = {.operation = "publish", .sequence = store->epoch + 1 - store->first_epoch};
    uint64_t record = job_record_begin(store->job, &what);
    struct fp_mode mode = fp_mode_enter();

    (void)stream;
    (void)reterr;
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        unit_publish(store, unit, values);
    }
    fp_mode_leave(mode);
    job_record_end(store->job, record, HSDP_OK);
    store->epoch++;
    store->n_discards += values == PUBLISHED_NOTHING;
    atomic_store(&shm_header(store, store->rank)->n_discards[store->epoch % 2], store->n_discards);
    job_signal(store->job, &shm_header(store, store->rank)->epoch, store->epoch, store->world,
               store->n_world);
    return HSDP_OK;
}
