/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: which elements lie in which shard, on random meshes with random parameters. */
#include "plan_place.h"

/* How many ranks hold each element of each parameter. */
static uint32_t counts[HOST_MAX_PARAMS][4096];

static void counts_add(const struct shard *shard)
{
    for (uint64_t s = 0; s < shard->n_segments; s++) {
        const struct hsdp_segment *segment = &shard->segments[s];

        numbers_expect(segment->n_elems > 0, "a segment is empty");
        for (uint64_t e = 0; e < segment->n_elems; e++) {
            counts[segment->param][segment->param_offset_elems + e]++;
        }
    }
}

/* In each cut, each element is there as often as there are copies of a slice; with the slices in
 * order that is once over each shard group. */
static void covers_run(const struct place *place)
{
    for (int32_t cut = 0; cut < PLACE_N_CUTS; cut++) {
        struct shard shard = {.n_slices = 1};

        memset(counts, 0, sizeof(counts));
        for (uint32_t i = 0; i < place->n_holders; i++) {
            place_shard(place, cut, place->holders[i], &shard);
            counts_add(&shard);
        }
        for (uint32_t param = 0; param < place->host->n_params; param++) {
            struct hsdp_param_info info;
            uint64_t n_elems = place_stores(place, param, &info) ? info.n_elems : 0;
            uint64_t n_copies = place->n_holders / shard.n_slices;

            for (uint64_t e = 0; e < 4096; e++) {
                numbers_expect(counts[param][e] == (e < n_elems ? n_copies : 0),
                               "cut %d: %u ranks hold element %u of %s, of %u copies", (int)cut,
                               counts[param][e], (unsigned)e, info.name, (unsigned)n_copies);
            }
        }
    }
}

void plan_covers(struct conform *conform)
{
    place_each(conform, covers_run);
}

/* One parameter's part of a slice, or nothing. */
static bool part_of(const struct hsdp_param_info *info, const struct shard *shard, uint64_t n_elems,
                    struct hsdp_segment *ret)
{
    uint64_t begin = shard->slice * n_elems;
    uint64_t end = begin + n_elems;
    uint64_t first = info->offset_elems > begin ? info->offset_elems : begin;
    uint64_t last =
        info->offset_elems + info->n_elems < end ? info->offset_elems + info->n_elems : end;

    ret->buffer = info->buffer;
    ret->param_offset_elems = first - info->offset_elems;
    ret->shard_offset_elems = first - begin;
    ret->n_elems = last > first ? last - first : 0;
    return ret->n_elems > 0;
}

/* The parameters' parts of a rank's slice, each found among its segments. */
static void slice_expect(const struct place *place, int32_t cut, const struct shard *shard)
{
    uint64_t n_expected = 0;

    for (uint32_t param = 0; param < place->host->n_params; param++) {
        struct hsdp_param_info info;
        struct hsdp_segment part = {.param = param};
        struct hsdp_buffer_info buffer;
        bool is_found = false;

        if (!place_stores(place, param, &info) || info.n_elems == 0) {
            continue;
        }
        buffer = place_buffer(place, place->unit, info.buffer);
        if (!part_of(&info, shard, place_shard_elems(&buffer, cut), &part)) {
            continue;
        }
        n_expected++;
        for (uint64_t s = 0; s < shard->n_segments; s++) {
            is_found = is_found || memcmp(&shard->segments[s], &part, sizeof(part)) == 0;
        }
        numbers_expect(is_found, "cut %d: slice %u has no segment of %s from %u, %u elements",
                       (int)cut, (unsigned)shard->slice, info.name,
                       (unsigned)part.param_offset_elems, (unsigned)part.n_elems);
    }
    numbers_expect(shard->n_segments == n_expected, "cut %d: slice %u has %u segments, not %u",
                   (int)cut, (unsigned)shard->slice, (unsigned)shard->n_segments,
                   (unsigned)n_expected);
}

static void slices_run(const struct place *place)
{
    for (int32_t cut = 0; cut < PLACE_N_CUTS; cut++) {
        for (uint32_t i = 0; i < place->n_holders; i++) {
            struct shard shard;

            place_shard(place, cut, place->holders[i], &shard);
            slice_expect(place, cut, &shard);
            for (uint64_t s = 1; s < shard.n_segments; s++) {
                const struct hsdp_segment *last = &shard.segments[s - 1];

                numbers_expect(last->buffer < shard.segments[s].buffer ||
                                   (last->buffer == shard.segments[s].buffer &&
                                    last->shard_offset_elems + last->n_elems <=
                                        shard.segments[s].shard_offset_elems),
                               "cut %d: segments %u and %u are out of order", (int)cut,
                               (unsigned)s - 1, (unsigned)s);
            }
        }
    }
}

void plan_slices(struct conform *conform)
{
    place_each(conform, slices_run);
}

/* A rank's slice of each cut lies in that of the cut before. */
static void nests_run(const struct place *place)
{
    for (uint32_t b = 0; b < place->info.n_buffers; b++) {
        struct hsdp_buffer_info buffer = place_buffer(place, place->unit, b);

        for (uint32_t i = 0; i < place->n_holders; i++) {
            uint64_t begin = 0, end = buffer.n_elems;

            for (int32_t cut = 0; cut < PLACE_N_CUTS; cut++) {
                struct shard shard;
                uint64_t n_elems = place_shard_elems(&buffer, cut);

                place_slice(place, cut, place->holders[i], &shard);
                numbers_expect(shard.slice * n_elems >= begin && (shard.slice + 1) * n_elems <= end,
                               "buffer %u: slice %u of cut %d on rank %u is not within that of the "
                               "cut before",
                               b, (unsigned)shard.slice, (int)cut, place->holders[i]);
                begin = shard.slice * n_elems;
                end = begin + n_elems;
            }
        }
    }
}

void plan_nests(struct conform *conform)
{
    place_each(conform, nests_run);
}

static void blocks_run(const struct place *place)
{
    for (int32_t cut = 0; cut < PLACE_N_CUTS; cut++) {
        for (uint32_t i = 0; i < place->n_holders; i++) {
            struct shard shard;

            place_shard(place, cut, place->holders[i], &shard);
            for (uint64_t s = 0; s < shard.n_segments; s++) {
                const struct hsdp_segment *segment = &shard.segments[s];
                const struct host_param *param = &place->host->params[segment->param];
                uint64_t block = param->block_elems == 0 ? 1 : param->block_elems;
                uint64_t end = segment->param_offset_elems + segment->n_elems;

                numbers_expect(segment->param_offset_elems % block == 0 &&
                                   (end % block == 0 || end == param->n_elems),
                               "cut %d: elements %u to %u of %s are in blocks of %u", (int)cut,
                               (unsigned)segment->param_offset_elems, (unsigned)end, param->name,
                               (unsigned)block);
            }
        }
    }
}

void plan_blocks(struct conform *conform)
{
    place_each(conform, blocks_run);
}
