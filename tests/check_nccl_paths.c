/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store, on doubles of device and library: offers, ties, slots, memory, numbers. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hsdp/unit.h"
#include "jobs.h"
#include "ranks.h"
#include "store_pair.h"
#include "suite.h"

static const struct pair_case plain = {
    .dims = "dp=2,cp=2", .settings = "sharding_strategy=hsdp reduce_dtype=bf16", .expert = ""};

static struct hsdp_error err;

/* --------------------------------------------------------------------------------- offers */

#define LONG_BYTES 600001u /* three chunks, the last one short */

/* What the ranks of a test do with an offer. */
struct offering {
    uint32_t n_read;
    uint32_t read_bytes[4];
    bool is_right;
};

static uint8_t offered(uint32_t rank, uint64_t i)
{
    return (uint8_t)(rank * 77u + i * 13u + (i >> 8));
}

static uint64_t offered_bytes(uint32_t rank)
{
    return rank == 3 ? 0 : LONG_BYTES / (rank + 1);
}

static int32_t offer_prepared(void *user, uint32_t i, uint64_t n_bytes, struct hsdp_error *reterr)
{
    (void)user;
    (void)i;
    return n_bytes == 1 ? error_set(reterr, HSDP_ERR_INVALID, "one byte is too few") : HSDP_OK;
}

static void offer_read(void *user, uint32_t i, const void *bytes, uint64_t n_bytes)
{
    struct offering *offering = user;
    const uint8_t *found = bytes;

    offering->read_bytes[i] = (uint32_t)n_bytes;
    for (uint64_t at = 0; at < n_bytes; at++) {
        offering->is_right &= found[at] == offered(i, at);
    }
    offering->n_read++;
}

static struct store_offer offer_make(struct offering *offering, const uint8_t *bytes,
                                     uint64_t n_bytes)
{
    static const uint32_t everyone[] = {0, 1, 2, 3};
    struct store_offer offer = {.operation = "model.sync", .unit = "u0", .what = "unit \"u0\""};

    *offering = (struct offering){.is_right = true};
    offer.tag = 7;
    offer.bytes = bytes;
    offer.n_bytes = n_bytes;
    offer.readable = everyone;
    offer.n_readable = 4;
    offer.prepare = offer_prepared;
    offer.read = offer_read;
    offer.user = offering;
    return offer;
}

static void offers_rank(uint32_t rank, void *shared)
{
    uint8_t *bytes = malloc(LONG_BYTES);
    struct offering offering;
    struct store_offer offer = offer_make(&offering, bytes, offered_bytes(rank));
    struct pair pair;

    (void)shared;
    for (uint64_t i = 0; i < LONG_BYTES; i++) {
        bytes[i] = offered(rank, i);
    }
    pair_open(&pair, &plain);
    status_assert(nccl_transport.offer(pair.nccl, &offer, &err), HSDP_OK, &err);
    ck_assert_uint_eq(offering.n_read, 4);
    ck_assert(offering.is_right);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(offering.read_bytes[i], offered_bytes(i));
    }
    offer.n_readable = rank == 2 ? 1 : 0; /* from the first to one */
    offering = (struct offering){.is_right = true};
    status_assert(nccl_transport.offer(pair.nccl, &offer, &err), HSDP_OK, &err);
    ck_assert_uint_eq(offering.n_read, rank == 2 ? 1 : 0);
    ck_assert(offering.is_right);
    pair_close(&pair);
    free(bytes);
}

START_TEST(offer_of_long_bytes_is_read_by_whom_it_may)
{
    ranks_run(4, RANKS_LIMIT_MS, offers_rank, NULL);
}
END_TEST

static void refusals_rank(uint32_t rank, void *shared)
{
    uint8_t bytes[8] = {0};
    struct offering offering;
    struct store_offer offer = offer_make(&offering, bytes, sizeof(bytes));
    struct pair pair;

    (void)shared;
    pair_open(&pair, &plain);
    offer.status = rank == 1 ? HSDP_ERR_INVALID : HSDP_OK;
    offer.message = "a wrong shape";
    status_assert(nccl_transport.offer(pair.nccl, &offer, &err), HSDP_ERR_INVALID, &err);
    ck_assert_str_eq(err.message,
                     rank == 1 ? "a wrong shape" : "model.sync: rank 1: a wrong shape");
    offer.status = HSDP_OK;
    offer.n_bytes = rank == 2 ? 1 : 8; /* which all who read it refuse, last of all */
    offer.n_readable = rank == 0 ? 4 : 0;
    status_assert(nccl_transport.offer(pair.nccl, &offer, &err), HSDP_ERR_INVALID, &err);
    ck_assert_str_eq(err.message,
                     rank == 0 ? "one byte is too few" : "model.sync: rank 0: one byte is too few");
    ck_assert_uint_eq(offering.n_read, 0);
    pair_close(&pair);
}

START_TEST(offer_that_one_rank_refuses_moves_nothing)
{
    ranks_run(4, RANKS_LIMIT_MS, refusals_rank, NULL);
}
END_TEST

static void tags_rank(uint32_t rank, void *shared)
{
    uint8_t bytes[8] = {0};
    struct offering offering;
    struct store_offer offer = offer_make(&offering, bytes, sizeof(bytes));
    struct pair pair;

    (void)shared;
    pair_open(&pair, &plain);
    offer.tag = rank == 3 ? 8 : 7;
    status_assert(nccl_transport.offer(pair.nccl, &offer, &err), HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "rank 3 in model.sync of unit \"u0\""));
    nccl_transport.close(pair.nccl);
    shm_transport.close(pair.shm);
    plan_destroy(pair.plan);
    test_job_drop(pair.job);
}

START_TEST(offer_of_other_things_fails_the_job)
{
    ranks_run(4, RANKS_LIMIT_MS, tags_rank, NULL);
}
END_TEST

static void alone_rank(uint32_t rank, void *shared)
{
    static const struct pair_case alone = {
        .dims = "dp=1", .settings = "sharding_strategy=fsdp", .expert = ""};
    uint8_t bytes[3] = {offered(0, 0), offered(0, 1), offered(0, 2)};
    struct offering offering;
    struct store_offer offer = offer_make(&offering, bytes, sizeof(bytes));
    struct pair pair;

    (void)rank;
    (void)shared;
    pair_open(&pair, &alone);
    offer.n_readable = 1;
    status_assert(nccl_transport.offer(pair.nccl, &offer, &err), HSDP_OK, &err);
    ck_assert(offering.is_right && offering.read_bytes[0] == 3);
    pair_close(&pair);
}

START_TEST(offer_of_one_rank_is_read_by_itself)
{
    ranks_run(1, RANKS_LIMIT_MS, alone_rank, NULL);
}
END_TEST

/* --------------------------------------------------------------------------------- ties */

#define TIED_ELEMS 1001u /* so that no run is aligned to more than an element */

static float tied_value(uint32_t rank, uint32_t i)
{
    return (float)(rank + 1) * 0.3f + (float)i;
}

/* Three stages hold two runs, which the first of them has in another order. */
static void ties_rank(uint32_t rank, void *shared)
{
    static const struct pair_case stages = {
        .dims = "PP=3,dp=1", .settings = "sharding_strategy=fsdp", .expert = "tie"};
    static const uint32_t ranks[] = {0, 1, 2};
    static const uint64_t places[2][3] = {{0, 40, 7}, {512, 600, 519}};
    static const uint32_t dim_sizes[] = {3};
    struct store_tied_run runs[2];
    struct store_ties ties = {.operation = "step", .group = "pp", .unit = "t", .runs = runs};
    float values[TIED_ELEMS];
    struct gpu_memory memory;
    struct pair pair;

    (void)shared;
    pair_open(&pair, &stages);
    status_assert(gpu_alloc(pair.gpu, sizeof(values), HSDP_MEMORY_DEVICE, "a tie", &memory, &err),
                  HSDP_OK, &err);
    for (uint32_t i = 0; i < TIED_ELEMS; i++) {
        values[i] = tied_value(rank, i);
    }
    pair_write(&pair, memory.base, values, sizeof(values));
    pair_wait(&pair);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t which = rank == 0 ? 1 - i : i;

        runs[i] = (struct store_tied_run){.ranks = ranks, .places = places[which]};
        runs[i].values = (float *)memory.base + (which == 0 ? 1 : 501);
        runs[i].n_elems = 500;
        runs[i].dim_sizes = dim_sizes;
        runs[i].n_dims = 1;
        runs[i].n_holders = 3;
        runs[i].own = rank;
    }
    ties.n_runs = 2;
    ties.is_sum = true;
    status_assert(nccl_transport.ties_run(pair.nccl, &ties, &err), HSDP_OK, &err);
    pair_read(&pair, values, memory.base, sizeof(values));
    ck_assert_float_eq(values[0], tied_value(rank, 0)); /* in no run */
    for (uint32_t i = 1; i < TIED_ELEMS; i++) {
        float sum = (tied_value(0, i) + tied_value(1, i)) + tied_value(2, i);

        ck_assert_float_eq(values[i], sum);
    }
    for (uint32_t i = 1; i < TIED_ELEMS; i++) {
        values[i] = tied_value(rank, i);
    }
    pair_write(&pair, memory.base, values, sizeof(values));
    pair_wait(&pair);
    runs[rank == 0 ? 0 : 1].values = NULL; /* the second one, which takes no part */
    ties.is_sum = false;
    status_assert(nccl_transport.ties_run(pair.nccl, &ties, &err), HSDP_OK, &err);
    pair_read(&pair, values, memory.base, sizeof(values));
    for (uint32_t i = 1; i < TIED_ELEMS; i++) {
        ck_assert_float_eq(values[i], tied_value(i <= 500 ? 0 : rank, i));
    }
    gpu_free(pair.gpu, &memory);
    pair_close(&pair);
}

START_TEST(ties_are_summed_in_their_order_or_copied)
{
    ranks_run(3, RANKS_LIMIT_MS, ties_rank, NULL);
}
END_TEST

/* --------------------------------------------------------------------------------- slots */

static void occupied_rank(uint32_t rank, void *shared)
{
    struct store_gradient gradient = {.unit = 2, .scope = HSDP_SCOPE_FULL, .position = 2};
    static const uint32_t order[] = {3, 2, 1, 0};
    struct pair pair;
    uint64_t ticket;

    (void)rank;
    (void)shared;
    pair_open(&pair, &plain);
    gradient.turn = &pair.turn;
    gradient.stream = pair.stream;
    status_assert(nccl_transport.pass_begin(pair.nccl, order, 4, HSDP_SCOPE_FULL, &err), HSDP_OK,
                  &err);
    status_assert(nccl_transport.grads_acquire(pair.nccl, 2, true, pair.stream, &err), HSDP_OK,
                  &err);
    status_assert(nccl_transport.reduce(pair.nccl, &gradient, &ticket, &err), HSDP_OK, &err);
    ck_assert_ptr_nonnull(nccl_transport.reduce_blocker(pair.nccl, 2));
    status_assert(job_ticket_wait(pair.job, ticket, 0, &err), HSDP_PENDING, &err);
    status_assert(nccl_transport.grads_acquire(pair.nccl, 0, true, pair.stream, &err),
                  HSDP_ERR_STATE, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "is occupied by unit \"u2\""));
    status_assert(nccl_transport.pass_reach(pair.nccl, 0, &err), HSDP_ERR_STATE, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "\"u0\" is 3 units ahead of \"u3\""));
    gradient = (struct store_gradient){.unit = 3, .is_absent = true, .turn = &pair.turn};
    gradient.scope = HSDP_SCOPE_FULL;
    gradient.position = 1;
    pair.turn = 2;
    status_assert(nccl_transport.reduce(pair.nccl, &gradient, &ticket, &err), HSDP_OK, &err);
    status_assert(nccl_transport.pass_reach(pair.nccl, 0, &err), HSDP_OK, &err);
    status_assert(nccl_transport.grads_acquire(pair.nccl, 0, true, pair.stream, &err), HSDP_OK,
                  &err);
    status_assert(nccl_transport.drain(pair.nccl, &err), HSDP_OK, &err);
    pair_close(&pair);
}

START_TEST(slot_of_a_unit_that_waits_for_its_turn_is_refused)
{
    ranks_run(4, RANKS_LIMIT_MS, occupied_rank, NULL);
}
END_TEST

/* --------------------------------------------------------------------------------- memory */

static uint64_t free_bytes(const struct pair *pair)
{
    size_t n_free_bytes;
    size_t n_total_bytes;

    status_assert(gpu_enter(pair->gpu, &err), HSDP_OK, &err);
    ck_assert_int_eq(pair->gpu->cuda.memory_info(&n_free_bytes, &n_total_bytes), CU_OK);
    gpu_leave(pair->gpu);
    return n_free_bytes;
}

#define SMALL_BYTES (4u << 20) /* stages of offers, records of steps */

static void memory_rank(uint32_t rank, void *shared)
{
    static const struct pair_case large = {.dims = "dp=2",
                                           .settings =
                                               "sharding_strategy=fsdp param_dtype=bf16 slots=1",
                                           .expert = "large"};
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct store *second;
    struct pair pair;
    uint64_t before;
    uint64_t counted;
    uint64_t taken;

    (void)rank;
    (void)shared;
    pair_open(&pair, &large);
    before = free_bytes(&pair);
    status_assert(nccl_transport.open(pair.job, pair.plan, &second, &err), HSDP_OK, &err);
    taken = before - free_bytes(&pair);
    nccl_transport.memory(second, &info);
    ck_assert_uint_eq(info.param_bytes, pair.plan->totals.param_bytes);
    ck_assert_uint_eq(info.master_bytes, pair.plan->totals.master_bytes);
    ck_assert_uint_eq(info.grad_slot_bytes, pair.plan->totals.grad_slot_bytes);
    ck_assert_uint_ge(info.grad_bytes, pair.plan->totals.grad_bytes);
    ck_assert_uint_ge(info.unsharded_bytes, 1024 * 1024 * 2); /* one unit of it */
    counted = info.param_bytes + info.master_bytes + info.grad_bytes + info.grad_slot_bytes +
              info.unsharded_bytes;
    ck_assert_uint_ge(taken, counted);
    ck_assert_uint_le(taken, counted + SMALL_BYTES);
    nccl_transport.close(second);
    ck_assert_uint_eq(free_bytes(&pair), before);
    pair_close(&pair);
}

START_TEST(memory_is_what_the_device_gave)
{
    ranks_run(2, RANKS_LIMIT_MS, memory_rank, NULL);
}
END_TEST

/* The allocations before it succeed; all ranks are told that one has none. */
static void exhausted_rank(uint32_t rank, void *shared)
{
    static const struct pair_case row = {
        .dims = "dp=2", .settings = "sharding_strategy=fsdp", .expert = ""};
    struct store *second = NULL;
    struct pair pair;
    int32_t status;

    (void)shared;
    pair_open(&pair, &row);
    setenv("HSDP_DOUBLE_FAULTS", "alloc_fails@1=1", 1);
    job_collective_begin(pair.job, "model.create");
    status = nccl_transport.open(pair.job, pair.plan, &second, &err);
    status = job_collective_end(pair.job, status, &err);
    unsetenv("HSDP_DOUBLE_FAULTS");
    status_assert(status, HSDP_ERR_NO_MEMORY, &err);
    ck_assert_ptr_nonnull(strstr(err.message, rank == 1 ? "parameter shards" : "rank 1"));
    pair_close(&pair);
}

START_TEST(memory_that_one_rank_lacks_is_refused_on_all)
{
    ranks_run(2, RANKS_LIMIT_MS, exhausted_rank, NULL);
}
END_TEST

/* --------------------------------------------------------------------------------- numbers */

static void numbers_rank(uint32_t rank, void *shared)
{
    struct step_words words = {.step = 1};
    struct pair pair;

    (void)shared;
    pair_open(&pair, &plain);
    words.numbers[STEP_NORM_P] = 2.0;
    words.numbers[STEP_GRADIENT_SCALE] = 1.0;
    words.numbers[STEP_MAX_NORM] = rank == 2 ? 3.0 : 1.0;
    status_assert(nccl_transport.step_start(pair.nccl, &words, &err), HSDP_OK, &err);
    while (nccl_transport.step_blocker(pair.nccl) != NULL) {
        status_assert(job_progress(pair.job, &err), HSDP_OK, &err);
    }
    status_assert(nccl_transport.step_words(pair.nccl, &words, &err), HSDP_ERR_MISMATCH, &err);
    ck_assert_str_eq(err.message, "step.begin: step 1: max_norm is 1 on rank 0, 3 on rank 2");
    pair_close(&pair);
}

START_TEST(numbers_that_differ_are_told_on_all_ranks)
{
    ranks_run(4, RANKS_LIMIT_MS, numbers_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nccl_paths");
    TCase *paths = tcase_create("paths");

    tcase_set_timeout(paths, 60);
    tcase_add_test(paths, offer_of_long_bytes_is_read_by_whom_it_may);
    tcase_add_test(paths, offer_that_one_rank_refuses_moves_nothing);
    tcase_add_test(paths, offer_of_other_things_fails_the_job);
    tcase_add_test(paths, offer_of_one_rank_is_read_by_itself);
    tcase_add_test(paths, ties_are_summed_in_their_order_or_copied);
    tcase_add_test(paths, slot_of_a_unit_that_waits_for_its_turn_is_refused);
    tcase_add_test(paths, memory_is_what_the_device_gave);
    tcase_add_test(paths, memory_that_one_rank_lacks_is_refused_on_all);
    tcase_add_test(paths, numbers_that_differ_are_told_on_all_ranks);
    suite_add_tcase(suite, paths);
    return suite;
}
