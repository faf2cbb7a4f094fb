/* SPDX-License-Identifier: Apache-2.0 */
/* However slow any operation of any rank is, the bits are the same; without a wait they are not. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>

#include "order_delay.h"
#include "order_train.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS    4u
#define MAX_TRIALS (2u + ORDER_N_POINTS * N_RANKS)
#define DELAY_MS   2u

struct trial {
    uint32_t point;
    uint32_t delayed_rank;
    uint64_t hashes[N_RANKS];
};

/* What the ranks of a test and the test share. */
struct delays {
    uint32_t counts[N_RANKS][ORDER_N_POINTS]; /* of an undelayed trial */
    uint32_t n_trials;
    struct trial trials[MAX_TRIALS];
    _Atomic uint32_t n_ended[3]; /* trials without a wait */
};

static struct order_run current_run;

/* --------------------------------------------------------------------- every operation, delayed */

static void trial_run(struct order_trainer *trainer, struct trial *trial)
{
    trainer->hash = 0;
    order_train_load(trainer, 1);
    for (uint32_t window = 0; window < 3; window++) {
        order_train_window(trainer, window);
    }
    order_train_read(trainer);
    trial->hashes[trainer->host.rank] = trainer->hash;
}

/* All ranks make the same trials: they know each other's counts once all have begun a second one.
 */
static uint32_t points_run(struct order_trainer *trainer, struct order_delay *delay,
                           struct delays *delays)
{
    uint32_t rank = trainer->host.rank;
    uint32_t n = 2;

    for (uint32_t i = 0; i < ORDER_N_POINTS * N_RANKS; i++) {
        uint32_t point = i / N_RANKS;
        uint32_t delayed_rank = i % N_RANKS;
        uint32_t count = delays->counts[delayed_rank][point];
        struct trial *trial = &delays->trials[n];

        if (count == 0) {
            continue;
        }
        trial->point = point;
        trial->delayed_rank = delayed_rank;
        order_delay_set(delay, delayed_rank == rank ? point : ORDER_N_POINTS, 7 * i % count, 1,
                        DELAY_MS);
        trial_run(trainer, trial);
        n++;
    }
    return n;
}

static void delays_rank(uint32_t rank, void *shared)
{
    struct delays *delays = shared;
    struct order_trainer trainer;
    struct order_delay delay;
    uint32_t n_trials;

    order_delay_init(&delay);
    order_train_join(&trainer, rank, &current_run, &delay.probe, &delay.map);
    order_train_model(&trainer, &current_run, &delay.map);
    order_delay_set(&delay, ORDER_N_POINTS, 0, 0, 0);
    trial_run(&trainer, &delays->trials[0]);
    memcpy(delays->counts[rank], delay.counts, sizeof(delay.counts));
    trial_run(&trainer, &delays->trials[1]);
    n_trials = points_run(&trainer, &delay, delays);
    if (rank == 0) {
        delays->n_trials = n_trials;
    }
    host_close(&trainer.host);
}

static void trial_expect(const struct delays *delays, uint32_t number)
{
    const struct trial *trial = &delays->trials[number];
    char text[64];

    order_point_text(trial->point, text, sizeof(text));
    for (uint32_t rank = 0; rank < N_RANKS; rank++) {
        ck_assert_msg(trial->hashes[rank] == delays->trials[0].hashes[rank],
                      "%s: rank %" PRIu32 " has seen other bits when rank %" PRIu32
                      " was delayed %s",
                      current_run.settings, rank, trial->delayed_rank, text);
    }
}

static void delays_run(int number)
{
    struct delays *delays = ranks_memory(sizeof(*delays));

    current_run.is_varied = true;
    current_run.is_set = number % 2 == 1;
    ranks_run(N_RANKS, 2 * RANKS_LIMIT_MS, delays_rank, delays);
    ck_assert_uint_gt(delays->n_trials, 100);
    for (uint32_t trial = 1; trial < delays->n_trials; trial++) {
        trial_expect(delays, trial);
    }
}

START_TEST(training_with_any_operation_delayed_gives_the_same_bits)
{
    current_run = order_run_named(host_strategies[_i % HOST_N_STRATEGIES], _i / HOST_N_STRATEGIES,
                                  1 + (uint32_t)_i % 3);
    delays_run(_i);
}
END_TEST

START_TEST(training_with_ties_and_any_operation_delayed_gives_the_same_bits)
{
    current_run = order_run_tied(host_strategies[_i], _i % 3, 1 + (uint32_t)_i / 3 % 3, 2);
    delays_run(_i);
}
END_TEST

/* --------------------------------------------------------------------------- waits taken away */

/* A wait, and an operation that it lets others wait for. */
static const struct {
    enum probe_wait wait;
    const char *strategy;
    int32_t scope;
    uint32_t point;
    uint32_t delayed_rank;
} waits[] = {
    {PROBE_WAIT_STEP, "fsdp", 0, ORDER_POINT_WRITE(PROBE_STEP_WORDS), 1},
    {PROBE_WAIT_PUBLISHED, "fsdp", 0, ORDER_POINT_WRITE(PROBE_MASTER), 1},
    {PROBE_WAIT_PUBLISHED, "zero2", 0, ORDER_POINT_WRITE(PROBE_PARAMS), 3},
    {PROBE_WAIT_SLOT, "fsdp", 2, ORDER_POINT_READ(PROBE_CONTRIBUTION), 1},
    {PROBE_WAIT_SOURCE, "fsdp", 0, ORDER_POINT_READ(PROBE_CONTRIBUTION), 2},
    {PROBE_WAIT_INNER, "fsdp", 2, ORDER_POINT_WRITE(PROBE_SLOT), 3},
    {PROBE_WAIT_RESTING, "hfsdp", 1, ORDER_POINT_READ(PROBE_INNER), 0},
    {PROBE_WAIT_OUTER, "hsdp", 1, ORDER_POINT_WRITE(PROBE_INNER), 0},
    {PROBE_WAIT_SHARED, "ddp", 0, ORDER_POINT_READ(PROBE_SOURCE), 1},
    {PROBE_WAIT_SHARED, "hsdp", 2, ORDER_POINT_READ(PROBE_INNER), 2},
    {PROBE_WAIT_OFFER, "fsdp", 0, ORDER_POINT_WRITE(PROBE_STAGE), 1},
    {PROBE_WAIT_OFFER_READ, "fsdp", 0, ORDER_POINT_READ(PROBE_STAGE), 1},
    {PROBE_WAIT_EXCHANGE, "fsdp", 0, ORDER_POINT_READ(PROBE_PARAMS), 1},
    {PROBE_WAIT_TIES, "fsdp", 0, ORDER_POINT_WRITE(PROBE_TIED), 1},
    {PROBE_WAIT_TIES_READ, "fsdp", 0, ORDER_POINT_READ(PROBE_TIED), 2},
};

/* One unit and no zeroed slots: nothing else makes ranks wait. An import comes in two chunks. */
static const char alone[] = "unit z: z[1031]";
static const char in_chunks[] = "unit z: z[100000]";

static int current_wait;
static uint32_t current_ms;

/*
 * Three times the same: undelayed, delayed, and delayed without the wait. Words, mailboxes and
 * stages hold what the last but one call has left: of the same kind of call, with other values.
 */
static void calls_run(struct order_trainer *trainer, struct trial *trial)
{
    trainer->hash = 0;
    order_train_load(trainer, 1);
    order_train_export(trainer, 0);
    for (uint32_t window = 0; window < 3; window++) {
        order_train_window(trainer, window);
    }
    order_train_export(trainer, 0);
    order_train_read(trainer);
    order_train_load(trainer, 2);
    order_train_read(trainer);
    if (waits[current_wait].wait == PROBE_WAIT_OFFER_READ) {
        order_train_edit(trainer);
        order_train_read(trainer);
    }
    trial->hashes[trainer->host.rank] = trainer->hash;
}

static void removal_rank(uint32_t rank, void *shared)
{
    bool is_delayed = rank == waits[current_wait].delayed_rank;
    struct delays *delays = shared;
    struct order_trainer trainer;
    struct order_delay delay;

    order_delay_init(&delay);
    order_train_join(&trainer, rank, &current_run, &delay.probe, &delay.map);
    order_train_model(&trainer, &current_run, &delay.map);
    if (waits[current_wait].wait == PROBE_WAIT_TIES_READ) { /* a sync moves it behind the masters */
        const struct hsdp_model_ops *ops = trainer.host.api->model;
        uint32_t state;

        host_must(&trainer.host,
                  ops->state_create(trainer.host.model, "s", "fp32", &state, &trainer.host.err));
    }
    for (uint32_t number = 0; number < 3; number++) {
        order_delay_set(&delay,
                        is_delayed && number > 0 ? waits[current_wait].point : ORDER_N_POINTS, 0,
                        64, current_ms);
        delay.removed = number == 2 ? waits[current_wait].wait : PROBE_WAIT_NONE;
        calls_run(&trainer, &delays->trials[number]);
        ranks_meet(&delays->n_ended[number], N_RANKS); /* the next trial may be without a wait */
    }
    delay.removed = PROBE_WAIT_NONE;
    host_close(&trainer.host);
}

static bool is_same(const struct trial *a, const struct trial *b)
{
    return memcmp(a->hashes, b->hashes, sizeof(a->hashes)) == 0;
}

/* Ties are between stages; nothing else makes these wait between two values of a sync. */
static struct order_run wait_run(int number)
{
    struct order_run run = order_run_named(waits[number].strategy, waits[number].scope, 1);

    if (waits[number].wait >= PROBE_WAIT_TIES) {
        run = order_run_tied(waits[number].strategy, waits[number].scope, 1, 2);
        run.units = "unit z: z[31] t[100]~pp";
        run.last_units = "unit z: z[1031] t[100]~pp";
        *strstr(run.settings, " verify=") = '\0'; /* it would tell of other bits in its own way */
    } else {
        run.units = waits[number].wait == PROBE_WAIT_OFFER_READ ? in_chunks : alone;
    }
    run.is_set = true;
    return run;
}

/* So the comparison above can fail. A busy machine may need a longer delay. */
START_TEST(training_without_a_wait_gives_other_bits)
{
    struct delays *delays = ranks_memory(sizeof(*delays));
    bool has_differed = false;

    current_wait = _i;
    current_run = wait_run(_i);
    for (current_ms = 2; current_ms <= 512 && !has_differed; current_ms *= 4) {
        memset(delays, 0, sizeof(*delays));
        ranks_run(N_RANKS, 2 * RANKS_LIMIT_MS, removal_rank, delays);
        ck_assert(is_same(&delays->trials[0], &delays->trials[1]));
        has_differed = !is_same(&delays->trials[0], &delays->trials[2]);
    }
    ck_assert_msg(has_differed, "without the wait \"%s\" the bits are the same",
                  order_wait_names[waits[_i].wait]);
}
END_TEST

START_TEST(waits_taken_away_are_all_that_there_are)
{
    bool has_wait[PROBE_N_WAITS] = {[PROBE_WAIT_NONE] = true};

    for (int i = 0; i < N_OF(waits); i++) {
        has_wait[waits[i].wait] = true;
    }
    for (int wait = 0; wait < PROBE_N_WAITS; wait++) {
        ck_assert_msg(has_wait[wait], "\"%s\" is never taken away", order_wait_names[wait]);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("delay");
    TCase *tcase = tcase_create("delay");

    tcase_set_timeout(tcase, 180);
    tcase_add_loop_test(tcase, training_with_any_operation_delayed_gives_the_same_bits, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, training_with_ties_and_any_operation_delayed_gives_the_same_bits, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, training_without_a_wait_gives_other_bits, 0, N_OF(waits));
    tcase_add_test(tcase, waits_taken_away_are_all_that_there_are);
    suite_add_tcase(suite, tcase);
    return suite;
}
