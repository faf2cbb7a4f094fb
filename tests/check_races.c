/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory is used in an order that waits make, and no wait can be done without. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>

#include "order_races.h"
#include "order_train.h"
#include "ranks.h"
#include "suite.h"

#define MAX_RACES 64

/* ------------------------------------------------------------- the checker itself: small logs */

static struct order_logs *logs_create(uint32_t n_ranks)
{
    struct order_logs *logs = ranks_memory(sizeof(*logs));

    logs->n_ranks = n_ranks;
    logs->n_units = 2;
    return logs;
}

static void event_add(struct order_logs *logs, uint32_t rank, struct order_event event)
{
    logs->ranks[rank].events[logs->ranks[rank].n_events++] = event;
}

/* An access to rank 0's slot. */
static void access_add(struct order_logs *logs, uint32_t rank, enum order_kind kind, uint64_t begin,
                       uint64_t end)
{
    event_add(logs, rank,
              (struct order_event){.begin = begin, .end = end, .kind = kind, .what = PROBE_SLOT});
}

/* A counter of its own for each rank. */
static void raise_add(struct order_logs *logs, uint32_t rank, uint64_t value)
{
    event_add(logs, rank,
              (struct order_event){.end = value, .kind = ORDER_RAISE, .rank = (uint8_t)rank});
}

static void met_add(struct order_logs *logs, uint32_t rank, uint32_t of, uint64_t target)
{
    event_add(logs, rank,
              (struct order_event){
                  .end = target, .kind = ORDER_MET, .rank = (uint8_t)of, .what = PROBE_WAIT_INNER});
}

static void reduction_add(struct order_logs *logs, enum probe_reduction what)
{
    event_add(logs, 0,
              (struct order_event){.unit = 1, .kind = ORDER_REDUCTION, .what = (uint8_t)what});
}

static uint32_t races_count(const struct order_logs *logs)
{
    struct order_race races[MAX_RACES];

    return order_races(logs, NULL, races, MAX_RACES);
}

START_TEST(races_of_two_writes_without_a_wait_are_found)
{
    struct order_logs *logs = logs_create(2);
    struct order_race race;

    access_add(logs, 0, ORDER_WRITE, 64, 128);
    raise_add(logs, 0, 1);
    access_add(logs, 1, ORDER_WRITE, 64, 128);
    ck_assert_uint_eq(order_races(logs, NULL, &race, 1), 1);
    ck_assert_uint_eq(race.ranks[0] + race.ranks[1], 1);
    ck_assert_uint_eq(race.events[0].begin, 64);
}
END_TEST

START_TEST(races_of_a_write_and_a_read_are_found)
{
    struct order_logs *logs = logs_create(2);

    access_add(logs, 0, ORDER_READ, 64, 128);
    access_add(logs, 1, ORDER_WRITE, 64, 128);
    ck_assert_uint_eq(races_count(logs), 1);
}
END_TEST

START_TEST(races_of_two_reads_are_none)
{
    struct order_logs *logs = logs_create(2);

    access_add(logs, 0, ORDER_READ, 64, 128);
    access_add(logs, 1, ORDER_READ, 64, 128);
    ck_assert_uint_eq(races_count(logs), 0);
}
END_TEST

START_TEST(races_behind_a_met_wait_are_none)
{
    struct order_logs *logs = logs_create(2);

    access_add(logs, 0, ORDER_WRITE, 64, 128);
    raise_add(logs, 0, 1);
    met_add(logs, 1, 0, 1);
    access_add(logs, 1, ORDER_WRITE, 64, 128);
    ck_assert_uint_eq(races_count(logs), 0);
}
END_TEST

/* What the counter was by the time does not count, but what was waited for. */
START_TEST(races_behind_a_wait_for_an_earlier_raise_are_found)
{
    struct order_logs *logs = logs_create(2);

    raise_add(logs, 0, 1);
    access_add(logs, 0, ORDER_WRITE, 64, 128);
    raise_add(logs, 0, 2);
    met_add(logs, 1, 0, 1);
    access_add(logs, 1, ORDER_READ, 64, 128);
    ck_assert_uint_eq(races_count(logs), 1);
}
END_TEST

START_TEST(races_with_what_follows_a_raise_are_found)
{
    struct order_logs *logs = logs_create(2);

    raise_add(logs, 0, 1);
    access_add(logs, 0, ORDER_WRITE, 64, 128);
    met_add(logs, 1, 0, 1);
    access_add(logs, 1, ORDER_READ, 64, 128);
    ck_assert_uint_eq(races_count(logs), 1);
}
END_TEST

/* Order goes on from rank to rank. */
START_TEST(races_behind_two_waits_in_a_row_are_none)
{
    struct order_logs *logs = logs_create(3);

    access_add(logs, 0, ORDER_WRITE, 64, 128);
    raise_add(logs, 0, 1);
    met_add(logs, 1, 0, 1);
    raise_add(logs, 1, 1);
    met_add(logs, 2, 1, 1);
    access_add(logs, 2, ORDER_WRITE, 64, 128);
    ck_assert_uint_eq(races_count(logs), 0);
}
END_TEST

START_TEST(races_of_one_common_byte_are_found)
{
    struct order_logs *logs = logs_create(2);

    access_add(logs, 0, ORDER_WRITE, 64, 129);
    access_add(logs, 1, ORDER_WRITE, 128, 256);
    ck_assert_uint_eq(races_count(logs), 1);
}
END_TEST

START_TEST(races_of_neighbouring_bytes_are_none)
{
    struct order_logs *logs = logs_create(2);

    access_add(logs, 0, ORDER_WRITE, 64, 128);
    access_add(logs, 1, ORDER_WRITE, 128, 256);
    ck_assert_uint_eq(races_count(logs), 0);
}
END_TEST

START_TEST(races_in_different_memories_are_none)
{
    struct order_logs *logs = logs_create(2);

    access_add(logs, 0, ORDER_WRITE, 64, 128);
    access_add(logs, 1, ORDER_WRITE, 64, 128);
    logs->ranks[1].events[0].rank = 1;
    ck_assert_uint_eq(races_count(logs), 0);
}
END_TEST

START_TEST(races_of_a_removed_wait_are_found)
{
    static const struct order_removal other = {.wait = PROBE_WAIT_OUTER};
    static const struct order_removal inner = {.wait = PROBE_WAIT_INNER};
    static const struct order_removal beyond = {.wait = PROBE_WAIT_INNER, .n_kept = 2};
    struct order_logs *logs = logs_create(2);
    struct order_race races[MAX_RACES];

    access_add(logs, 0, ORDER_WRITE, 64, 128);
    raise_add(logs, 0, 1);
    met_add(logs, 1, 0, 1);
    access_add(logs, 1, ORDER_WRITE, 64, 128);
    ck_assert_uint_eq(order_races(logs, &other, races, MAX_RACES), 0);
    ck_assert_uint_eq(order_races(logs, &inner, races, MAX_RACES), 1);
    ck_assert_uint_eq(order_races(logs, &beyond, races, MAX_RACES), 0);
}
END_TEST

/* A reduction may go on until it is awaited, wherever this run has happened to do it. */
START_TEST(races_of_a_reduction_not_awaited_are_found)
{
    struct order_logs *logs = logs_create(1);

    access_add(logs, 0, ORDER_WRITE, 64, 128);
    reduction_add(logs, PROBE_HANDED_OVER);
    reduction_add(logs, PROBE_ENTERED);
    access_add(logs, 0, ORDER_READ, 64, 128);
    reduction_add(logs, PROBE_DONE);
    if (_i == 1) {
        reduction_add(logs, PROBE_AWAITED_SLOT);
    }
    access_add(logs, 0, ORDER_WRITE, 64, 128);
    ck_assert_uint_eq(races_count(logs), _i == 0);
}
END_TEST

/* ------------------------------------------------------------------------------ the protocol */

static struct order_run current_runs[ORDER_N_MODELS];
static uint32_t n_current_runs;

static void model_run(struct order_trainer *trainer)
{
    order_train_load(trainer, 1);
    for (uint32_t window = 0; window < 4; window++) {
        order_train_window(trainer, window);
    }
    order_train_read(trainer);
    order_train_load(trainer, 2);
    order_train_read(trainer);
}

/* Shared are the logs of each model in turn. */
static void runs_rank(uint32_t rank, void *shared)
{
    struct order_logs *logs = shared;
    struct order_recorder recorder;
    struct order_trainer trainer;

    order_recorder_init(&recorder, &logs[0].ranks[rank]);
    order_train_join(&trainer, rank, &current_runs[0], &recorder.probe, &recorder.map);
    for (uint32_t i = 0; i < n_current_runs; i++) {
        recorder.log = &logs[i].ranks[rank];
        order_train_model(&trainer, &current_runs[i], &recorder.map);
        model_run(&trainer);
        if (rank == 0) {
            logs[i].n_units = trainer.host.n_units;
        }
        order_train_drop(&trainer, &recorder.map);
    }
    host_close(&trainer.host);
}

static struct order_logs *runs_record(void)
{
    struct order_logs *logs = ranks_memory(n_current_runs * sizeof(*logs));

    for (uint32_t i = 0; i < n_current_runs; i++) {
        logs[i].n_ranks = current_runs[i].n_ranks;
    }
    ranks_run(current_runs[0].n_ranks, 2 * RANKS_LIMIT_MS, runs_rank, logs);
    return logs;
}

static void no_race_expect(const struct order_run *run, const struct order_logs *logs)
{
    struct order_race race;
    char text[256];

    if (order_races(logs, NULL, &race, 1) != 0) {
        order_race_text(&race, text, sizeof(text));
        ck_abort_msg("%s, %s: %s", run->dims, run->settings, text);
    }
}

START_TEST(training_of_every_kind_has_no_race)
{
    struct order_logs *logs;

    n_current_runs = ORDER_N_MODELS;
    for (uint32_t i = 0; i < n_current_runs; i++) {
        current_runs[i] = order_run_of((uint32_t)_i, i);
    }
    logs = runs_record();
    for (uint32_t i = 0; i < n_current_runs; i++) {
        no_race_expect(&current_runs[i], &logs[i]);
    }
}
END_TEST

/* Slots, and stages of two ranks or of four, take turns. */
START_TEST(training_with_ties_has_no_race)
{
    struct order_logs *logs;

    n_current_runs = 3;
    for (uint32_t i = 0; i < n_current_runs; i++) {
        current_runs[i] = order_run_tied(host_strategies[_i % HOST_N_STRATEGIES],
                                         _i / HOST_N_STRATEGIES, 1 + i, _i % 2 == 0 ? 2 : 4);
        current_runs[i].is_varied = true;
        current_runs[i].is_set = i == 1;
        current_runs[i].has_adamw = true;
    }
    logs = runs_record();
    for (uint32_t i = 0; i < n_current_runs; i++) {
        no_race_expect(&current_runs[i], &logs[i]);
    }
}
END_TEST

/* ------------------------------------------------------------------ what each wait is there for */

/* A wait, how a run does without it, and the race that is then there. */
static const struct {
    struct order_removal removal;
    const char *strategy;
    int32_t scope;
    enum probe_area written;
    enum probe_area other;
} removals[] = {
    {{.wait = PROBE_WAIT_STEP}, "fsdp", 0, PROBE_MASTER, PROBE_PARAMS},
    {{.wait = PROBE_WAIT_STEP}, "zero2", 0, PROBE_PARAMS, PROBE_PARAMS},
    {{.wait = PROBE_WAIT_STEP}, "ddp", 0, PROBE_STEP_WORDS, PROBE_STEP_WORDS},
    {{.wait = PROBE_WAIT_PUBLISHED}, "fsdp", 1, PROBE_MASTER, PROBE_PARAMS},
    /* Waiting for the ranks that share a parameter is too little where others write it. */
    {{.wait = PROBE_WAIT_PUBLISHED, .n_kept = 1}, "zero1", 0, PROBE_PARAMS, PROBE_PARAMS},
    {{.wait = PROBE_WAIT_PUBLISHED, .n_kept = 1}, "zero2", 1, PROBE_PARAMS, PROBE_PARAMS},
    {{.wait = PROBE_WAIT_PUBLISHED, .n_kept = 2}, "hfsdp", 2, PROBE_PARAMS, PROBE_PARAMS},
    {{.wait = PROBE_WAIT_SLOT}, "fsdp", 2, PROBE_SLOT, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_SLOT}, "hsdp", 1, PROBE_SLOT, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_SOURCE}, "fsdp", 0, PROBE_LOCAL, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_SOURCE}, "fsdp", 2, PROBE_LATE, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_SOURCE}, "hsdp", 1, PROBE_SOURCE, PROBE_SOURCE},
    /* In ddp sharing is enough: it waits for all who read. */
    {{.wait = PROBE_WAIT_SOURCE}, "zero1", 0, PROBE_LOCAL, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_INNER}, "fsdp", 2, PROBE_SLOT, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_INNER}, "hsdp", 0, PROBE_LOCAL, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_INNER}, "ddp", 2, PROBE_SLOT, PROBE_CONTRIBUTION},
    {{.wait = PROBE_WAIT_INNER}, "ddp", 0, PROBE_GRADS, PROBE_GRADS},
    {{.wait = PROBE_WAIT_RESTING}, "hfsdp", 1, PROBE_INNER, PROBE_INNER},
    {{.wait = PROBE_WAIT_RESTING}, "hfsdp", 2, PROBE_INNER, PROBE_INNER},
    {{.wait = PROBE_WAIT_OUTER}, "hsdp", 0, PROBE_INNER, PROBE_INNER},
    {{.wait = PROBE_WAIT_OUTER}, "hsdp", 2, PROBE_GRADS, PROBE_GRADS},
    {{.wait = PROBE_WAIT_OUTER}, "zero1", 1, PROBE_INNER, PROBE_INNER},
    {{.wait = PROBE_WAIT_SHARED}, "ddp", 0, PROBE_GRADS, PROBE_GRADS},
    {{.wait = PROBE_WAIT_SHARED}, "ddp", 1, PROBE_GRADS, PROBE_GRADS},
    {{.wait = PROBE_WAIT_SHARED}, "hsdp", 2, PROBE_GRADS, PROBE_GRADS},
    {{.wait = PROBE_WAIT_OFFER}, "fsdp", 0, PROBE_STAGE, PROBE_STAGE},
    {{.wait = PROBE_WAIT_OFFER}, "fsdp", 0, PROBE_OFFER_WORDS, PROBE_OFFER_WORDS},
    {{.wait = PROBE_WAIT_OFFER_READ}, "fsdp", 0, PROBE_STAGE, PROBE_STAGE},
    {{.wait = PROBE_WAIT_OFFER_READ}, "fsdp", 0, PROBE_OFFER_WORDS, PROBE_OFFER_WORDS},
    {{.wait = PROBE_WAIT_EXCHANGE}, "fsdp", 0, PROBE_FLAT, PROBE_PARAMS},
    {{.wait = PROBE_WAIT_EXCHANGE}, "hfsdp", 0, PROBE_PARAMS, PROBE_PARAMS},
    {{.wait = PROBE_WAIT_TIES}, "fsdp", 2, PROBE_TIED, PROBE_TIED},
    {{.wait = PROBE_WAIT_TIES}, "ddp", 0, PROBE_TIED, PROBE_TIED},
    {{.wait = PROBE_WAIT_TIES_READ}, "hsdp", 1, PROBE_TIED, PROBE_TIED},
    {{.wait = PROBE_WAIT_TIES_READ}, "zero1", 0, PROBE_TIED, PROBE_TIED},
    {{.reduction = PROBE_AWAITED_SLOT}, "ddp", 1, PROBE_SLOT, PROBE_CONTRIBUTION},
    {{.reduction = PROBE_AWAITED_SLOT}, "fsdp", 0, PROBE_SLOT, PROBE_CONTRIBUTION},
    {{.reduction = PROBE_AWAITED_LAST}, "fsdp", 2, PROBE_LATE_VALUES, PROBE_LATE_VALUES},
    {{.reduction = PROBE_AWAITED_STEP}, "hsdp", 0, PROBE_GRADS, PROBE_GRADS},
    {{.reduction = PROBE_AWAITED_TURN}, "fsdp", 2, PROBE_LATE_VALUES, PROBE_LATE_VALUES},
    {{.reduction = PROBE_AWAITED_TURN}, "ddp", 0, PROBE_LATE_VALUES, PROBE_CONTRIBUTION},
};

/* An import of z passes through the stage in two chunks. */
static const char in_chunks[] =
    "unit a: w[5,3] e[0,4]; unit b: x[3]; unit c: y[]; unit d: z[70000]";

static const char *removal_name(const struct order_removal *removal)
{
    return removal->wait != PROBE_WAIT_NONE ? order_wait_names[removal->wait]
                                            : order_reduction_names[removal->reduction];
}

static bool is_of_ties(const struct order_removal *removal)
{
    return removal->wait == PROBE_WAIT_TIES || removal->wait == PROBE_WAIT_TIES_READ ||
           removal->reduction == PROBE_AWAITED_TURN;
}

static bool is_expected(const struct order_race *race, enum probe_area written,
                        enum probe_area other)
{
    for (int i = 0; i < 2; i++) {
        const struct order_event *event = &race->events[i];

        if (event->kind == ORDER_WRITE && event->what == written &&
            race->events[1 - i].what == other) {
            return true;
        }
    }
    return false;
}

START_TEST(training_without_a_wait_has_a_race)
{
    struct order_run *run = &current_runs[0];
    const struct order_removal *removal = &removals[_i].removal;
    struct order_race races[MAX_RACES];
    struct order_logs *logs;
    uint32_t n_races;

    n_current_runs = 1;
    *run = is_of_ties(removal) ? order_run_tied(removals[_i].strategy, removals[_i].scope, 2, 2)
                               : order_run_named(removals[_i].strategy, removals[_i].scope, 2);
    run->is_varied = true;
    run->has_adamw = true;
    run->units = removal->wait == PROBE_WAIT_OFFER_READ ? in_chunks : run->units;
    logs = runs_record();
    no_race_expect(run, logs);
    ck_assert_msg(order_n_met(logs, removal) > 0, "\"%s\" is never met", removal_name(removal));
    n_races = order_races(logs, removal, races, MAX_RACES);
    for (uint32_t i = 0; i < n_races; i++) {
        if (is_expected(&races[i], removals[_i].written, removals[_i].other)) {
            return;
        }
    }
    ck_abort_msg("%s without \"%s\" has %" PRIu32 " races, none of them writes %s behind %s",
                 run->settings, removal_name(removal), n_races,
                 order_area_names[removals[_i].written], order_area_names[removals[_i].other]);
}
END_TEST

START_TEST(removals_name_every_wait)
{
    bool has_wait[PROBE_N_WAITS] = {[PROBE_WAIT_NONE] = true};
    bool has_reduction[PROBE_N_REDUCTIONS] = {false};

    for (int i = 0; i < N_OF(removals); i++) {
        has_wait[removals[i].removal.wait] = true;
        has_reduction[removals[i].removal.reduction] = true;
    }
    for (int wait = 0; wait < PROBE_N_WAITS; wait++) {
        ck_assert_msg(has_wait[wait], "nothing is said of \"%s\"", order_wait_names[wait]);
    }
    for (int what = PROBE_AWAITED_SLOT; what < PROBE_N_REDUCTIONS; what++) {
        ck_assert_msg(has_reduction[what], "nothing of \"%s\"", order_reduction_names[what]);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("races");
    TCase *checker = tcase_create("checker");
    TCase *protocol = tcase_create("protocol");

    tcase_add_test(checker, races_of_two_writes_without_a_wait_are_found);
    tcase_add_test(checker, races_of_a_write_and_a_read_are_found);
    tcase_add_test(checker, races_of_two_reads_are_none);
    tcase_add_test(checker, races_behind_a_met_wait_are_none);
    tcase_add_test(checker, races_behind_a_wait_for_an_earlier_raise_are_found);
    tcase_add_test(checker, races_with_what_follows_a_raise_are_found);
    tcase_add_test(checker, races_behind_two_waits_in_a_row_are_none);
    tcase_add_test(checker, races_of_one_common_byte_are_found);
    tcase_add_test(checker, races_of_neighbouring_bytes_are_none);
    tcase_add_test(checker, races_in_different_memories_are_none);
    tcase_add_test(checker, races_of_a_removed_wait_are_found);
    tcase_add_loop_test(checker, races_of_a_reduction_not_awaited_are_found, 0, 2);
    suite_add_tcase(suite, checker);
    tcase_set_timeout(protocol, 60);
    tcase_add_loop_test(protocol, training_of_every_kind_has_no_race, 0, ORDER_N_JOBS);
    tcase_add_loop_test(protocol, training_with_ties_has_no_race, 0, 3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(protocol, training_without_a_wait_has_a_race, 0, N_OF(removals));
    tcase_add_test(protocol, removals_name_every_wait);
    suite_add_tcase(suite, protocol);
    return suite;
}
