/* SPDX-License-Identifier: Apache-2.0 */
/* The host's collectives on devices, by the doubles: every kind, dtype and form, bit for bit. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl_coll.h"
#include "device/fpmode.h"
#include "device/kernels.h"
#include "device_scene.h"
#include "ranks.h"
#include "suite.h"

#define MAX_RANKS 8u

static const struct element elements[] = {
    {HSDP_DTYPE_FLOAT, 32}, {HSDP_DTYPE_FLOAT, 64}, {HSDP_DTYPE_BFLOAT, 16},
    {HSDP_DTYPE_FLOAT, 16}, {HSDP_DTYPE_UINT, 8},   {HSDP_DTYPE_INT, 8},
    {HSDP_DTYPE_INT, 16},   {HSDP_DTYPE_INT, 32},   {HSDP_DTYPE_INT, 64},
};

static const struct element fp32 = {HSDP_DTYPE_FLOAT, 32};

/* Empty, one, fewer than ranks, what each reduces as a whole, what all share, and its remainder. */
static const uint64_t sizes[] = {0, 1, 3, 1000, 40000, 40003};

static uint32_t n_ranks_all; /* of the case; the ranks inherit it */

/* --------------------------------------------------------------------------------------- values */

/* What a rank gives: any bits, the same whoever asks. */
static void bytes_fill(uint8_t *bytes, uint64_t n_bytes, uint64_t seed, uint32_t rank)
{
    uint64_t state = seed * 977u + rank + 1u;

    for (uint64_t i = 0; i < n_bytes; i += sizeof(state)) {
        const uint64_t n = n_bytes - i < sizeof(state) ? n_bytes - i : sizeof(state);

        state = (state ^ state >> 29) * UINT64_C(6364136223846793005) + 1442695040888963407u;
        memcpy(bytes + i, &state, n);
    }
}

static void vector_fill(struct vector *vector, uint64_t seed, uint32_t rank)
{
    bytes_fill(vector->bytes, (uint64_t)vector->n_elems * element_bytes(vector->element), seed,
               rank);
}

static bool is_nan(const uint8_t *at, struct element element)
{
    uint16_t half;
    float single;
    double wide;

    if (element.code != HSDP_DTYPE_FLOAT && element.code != HSDP_DTYPE_BFLOAT) {
        return false;
    }
    if (element.bits == 64) {
        memcpy(&wide, at, sizeof(wide));
        return isnan(wide);
    }
    if (element.bits == 32) {
        memcpy(&single, at, sizeof(single));
        return isnan(single);
    }
    memcpy(&half, at, sizeof(half));
    return (half & 0x7fffu) > (element.code == HSDP_DTYPE_BFLOAT ? 0x7f80u : 0x7c00u);
}

static void bytes_expect(const char *what, struct element element, const uint8_t *found,
                         const uint8_t *expected, uint64_t n_elems)
{
    uint64_t n_bytes = element_bytes(element);
    char name[32];

    element_name(element, name, sizeof(name));
    for (uint64_t i = 0; i < n_elems; i++) {
        ck_assert_msg(
            memcmp(found + i * n_bytes, expected + i * n_bytes, n_bytes) == 0 ||
                (is_nan(found + i * n_bytes, element) && is_nan(expected + i * n_bytes, element)),
            "%s of %u %s: element %u is another one", what, (unsigned)n_elems, name, (unsigned)i);
    }
}

/* What n_elems of all ranks' n_all, from `first`, are reduced to. */
static uint8_t *reduced(struct scene *scene, struct element element, int32_t reduce, uint64_t seed,
                        const uint64_t range[3])
{
    const uint64_t elem_bytes = element_bytes(element);
    uint8_t *result = calloc((range[2] + 1) * elem_bytes, 1);
    const void *sources[MAX_RANKS];
    uint8_t *all[MAX_RANKS];
    struct values_spec spec = {.dst = result,
                               .sources = sources,
                               .n_sources = scene->n_ranks,
                               .element = element,
                               .n_elems = range[2],
                               .reduce = reduce,
                               .kernels = kernels_path(0)};
    struct fp_mode mode;

    for (uint32_t rank = 0; rank < scene->n_ranks; rank++) {
        all[rank] = malloc((range[0] + 1) * elem_bytes);
        bytes_fill(all[rank], range[0] * elem_bytes, seed, rank);
        sources[rank] = all[rank] + range[1] * elem_bytes;
    }
    mode = fp_mode_enter();
    values_reduce(&spec);
    fp_mode_leave(mode);
    for (uint32_t rank = 0; rank < scene->n_ranks; rank++) {
        free(all[rank]);
    }
    return result;
}

/* ----------------------------------------------------------------------------------- all_reduce */

static void all_reduce_expect(struct scene *scene, struct element element, int32_t reduce,
                              uint64_t n_elems, bool is_in_place)
{
    const uint64_t range[3] = {n_elems, 0, n_elems};
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct vector from, to;
    uint8_t *expected = reduced(scene, element, reduce, n_elems, range);

    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.reduce = reduce;
    spec.input = vector_init(&from, element, n_elems);
    spec.output = is_in_place ? &from.tensor : vector_init(&to, element, n_elems);
    vector_fill(&from, n_elems, scene->rank);
    scene_run(scene, &spec, 1);
    bytes_expect("all_reduce", element, is_in_place ? from.bytes : to.bytes, expected, n_elems);
    free(from.bytes);
    free(is_in_place ? NULL : to.bytes);
    free(expected);
}

static void all_reduce_rank(uint32_t rank, void *shared)
{
    struct scene scene;

    (void)shared;
    scene_open(&scene, rank, n_ranks_all);
    for (int i = 0; i < N_OF(elements); i++) {
        for (int32_t reduce = HSDP_REDUCE_SUM; reduce <= HSDP_REDUCE_MIN; reduce++) {
            if (element_reduces(elements[i], reduce)) {
                all_reduce_expect(&scene, elements[i], reduce, sizes[(i + reduce) % N_OF(sizes)],
                                  i % 2 == 0);
            }
        }
    }
    for (int i = 0; i < N_OF(sizes); i++) {
        all_reduce_expect(&scene, fp32, HSDP_REDUCE_SUM, sizes[i], true);
        all_reduce_expect(&scene, elements[2], HSDP_REDUCE_MEAN, sizes[i], false);
    }
    scene_close(&scene);
}

static const uint32_t worlds[] = {1, 2, 3, 4, 8};

START_TEST(all_reduce_has_the_bits_of_shared_memory)
{
    n_ranks_all = worlds[_i];
    ranks_run(n_ranks_all, SCENE_LIMIT_MS, all_reduce_rank, NULL);
}
END_TEST

static void large_rank(uint32_t rank, void *shared)
{
    const uint64_t n_elems = COLL_SCRATCH_BYTES / 4 + 1001; /* more than goes at once */
    struct scene scene;

    (void)shared;
    scene_open(&scene, rank, n_ranks_all);
    all_reduce_expect(&scene, fp32, HSDP_REDUCE_SUM, n_elems, true);
    scene_close(&scene);
}

START_TEST(all_reduce_of_more_than_its_scratch_goes_in_chunks)
{
    n_ranks_all = 2;
    ranks_run(n_ranks_all, SCENE_LIMIT_MS, large_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------ the other kinds */

/* Members' numbers of elements: all alike, or none. */
static uint64_t counts_fill(struct scene *scene, uint64_t n_elems, bool is_even,
                            uint64_t counts[MAX_RANKS])
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < scene->n_ranks; i++) {
        counts[i] = is_even ? n_elems : n_elems + 3u * i - (i == 1 ? n_elems + 3u : 0);
        sum += counts[i];
    }
    return sum;
}

static uint64_t counts_before(const uint64_t counts[MAX_RANKS], uint32_t member)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < member; i++) {
        sum += counts[i];
    }
    return sum;
}

static void scatter_expect(struct scene *scene, struct element element, uint64_t n_elems,
                           bool is_even)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t counts[MAX_RANKS];
    const uint64_t n_all = counts_fill(scene, n_elems, is_even, counts);
    const uint64_t range[3] = {n_all, counts_before(counts, scene->rank), counts[scene->rank]};
    uint8_t *expected = reduced(scene, element, HSDP_REDUCE_SUM, n_elems, range);
    struct vector from, to;

    spec.kind = HSDP_COLL_REDUCE_SCATTER;
    spec.input = vector_init(&from, element, n_all);
    spec.output = vector_init(&to, element, range[2]);
    spec.send_elems = is_even ? NULL : counts;
    vector_fill(&from, n_elems, scene->rank);
    scene_run(scene, &spec, 1);
    bytes_expect("reduce_scatter", element, to.bytes, expected, range[2]);
    free(from.bytes);
    free(to.bytes);
    free(expected);
}

static void gather_expect(struct scene *scene, struct element element, uint64_t n_elems,
                          bool is_even)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t counts[MAX_RANKS];
    const uint64_t n_all = counts_fill(scene, n_elems, is_even, counts);
    const uint64_t elem_bytes = element_bytes(element);
    struct vector from, to;
    uint8_t *expected = calloc((n_all + 1) * elem_bytes, 1);

    spec.kind = HSDP_COLL_ALL_GATHER;
    spec.input = vector_init(&from, element, counts[scene->rank]);
    spec.output = vector_init(&to, element, n_all);
    spec.recv_elems = is_even ? NULL : counts;
    vector_fill(&from, n_elems, scene->rank);
    for (uint32_t rank = 0; rank < scene->n_ranks; rank++) {
        bytes_fill(expected + counts_before(counts, rank) * elem_bytes, counts[rank] * elem_bytes,
                   n_elems, rank);
    }
    scene_run(scene, &spec, 1);
    bytes_expect("all_gather", element, to.bytes, expected, n_all);
    free(from.bytes);
    free(to.bytes);
    free(expected);
}

/* From rank a to rank b go n + a + 2 b elements, which a numbers by b. */
static void exchange_expect(struct scene *scene, uint64_t n, bool is_in_place)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t sent[MAX_RANKS], received[MAX_RANKS];
    uint64_t n_sent = 0, n_received = 0;
    struct vector from, to;

    for (uint32_t i = 0; i < scene->n_ranks; i++) {
        sent[i] = is_in_place ? n : n + scene->rank + 2u * i;
        received[i] = is_in_place ? n : n + i + 2u * scene->rank;
        n_sent += sent[i];
        n_received += received[i];
    }
    spec.kind = HSDP_COLL_ALL_TO_ALL;
    spec.input = vector_init(&from, elements[7], n_sent);
    vector_init(&to, elements[7], n_received);
    spec.output = is_in_place ? &from.tensor : &to.tensor;
    spec.send_elems = is_in_place ? NULL : sent;
    spec.recv_elems = is_in_place ? NULL : received;
    for (uint32_t i = 0; i < scene->n_ranks; i++) {
        for (uint64_t k = 0; k < sent[i]; k++) {
            ((int32_t *)(void *)from.bytes)[counts_before(sent, i) + k] =
                (int32_t)(scene->rank * 1000u + i);
        }
    }
    scene_run(scene, &spec, 1);
    for (uint32_t i = 0; i < scene->n_ranks; i++) {
        const int32_t *own = (int32_t *)(void *)(is_in_place ? from.bytes : to.bytes);

        for (uint64_t k = 0; k < received[i]; k++) {
            ck_assert_int_eq(own[counts_before(received, i) + k],
                             (int32_t)(i * 1000u + scene->rank));
        }
    }
    free(from.bytes);
    free(to.bytes);
}

static void broadcast_expect(struct scene *scene, uint32_t root, uint64_t n_elems)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint8_t *expected = malloc(n_elems * 2 + 1);
    struct vector vector;

    vector_init(&vector, elements[2], n_elems);
    vector_fill(&vector, n_elems, scene->rank);
    bytes_fill(expected, n_elems * 2, n_elems, root);
    spec.kind = HSDP_COLL_BROADCAST;
    spec.peer = root;
    spec.input = scene->rank == root ? &vector.tensor : NULL;
    spec.output = scene->rank == root && n_elems % 2 == 0 ? NULL : &vector.tensor;
    scene_run(scene, &spec, 1);
    bytes_expect("broadcast", elements[2], vector.bytes, expected, n_elems);
    free(vector.bytes);
    free(expected);
}

static void kinds_rank(uint32_t rank, void *shared)
{
    struct scene scene;

    (void)shared;
    scene_open(&scene, rank, n_ranks_all);
    for (int i = 0; i < N_OF(elements); i++) {
        scatter_expect(&scene, elements[i], 100 + (uint64_t)i, i % 2 == 0);
        scatter_expect(&scene, elements[i], 5000, i % 2 != 0);
        gather_expect(&scene, elements[i], 100 + (uint64_t)i, i % 2 == 0);
        gather_expect(&scene, elements[i], 3, i % 2 != 0);
    }
    for (uint64_t n = 0; n < 300; n += 99) {
        exchange_expect(&scene, n, false);
        exchange_expect(&scene, n, true);
        broadcast_expect(&scene, (uint32_t)n % scene.n_ranks, n);
    }
    scene_close(&scene);
}

START_TEST(collectives_of_every_kind_move_what_they_say)
{
    n_ranks_all = worlds[_i];
    ranks_run(n_ranks_all, SCENE_LIMIT_MS, kinds_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nccl_coll");
    TCase *tcase = tcase_create("nccl_coll");

    const uint32_t n_devices = devices_need(1);
    int n_worlds = 0;

    while (n_worlds < N_OF(worlds) && worlds[n_worlds] <= n_devices) {
        n_worlds++;
    }
    tcase_set_timeout(tcase, 0); /* ranks have a limit of their own */
    tcase_add_loop_test(tcase, all_reduce_has_the_bits_of_shared_memory, 0, n_worlds);
    if (n_devices > 1) {
        tcase_add_test(tcase, all_reduce_of_more_than_its_scratch_goes_in_chunks);
    }
    tcase_add_loop_test(tcase, collectives_of_every_kind_move_what_they_say, 0, n_worlds);
    suite_add_tcase(suite, tcase);
    return suite;
}
