/* SPDX-License-Identifier: Apache-2.0 */
/* The race detector of the CUDA driver's double: what it finds, and where it is silent. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "double_fixture.h"
#include "suite.h"

enum { N_BYTES = 4096 };

static cu_stream first;
static cu_stream second;
static cu_address memory;

static void streams_start(void)
{
    double_start();
    first = stream_make();
    second = stream_make();
    memory = device_memory(N_BYTES);
}

static void order_streams(cu_stream before, cu_stream after)
{
    cu_event event = event_make();

    DRIVER(event_record(event, before));
    DRIVER(stream_wait_event(after, event, 0));
    DRIVER(event_destroy(event));
}

static void check_n_races(uint64_t expected)
{
    ck_assert_uint_eq(doubled.n_races(), expected);
}

/* ------------------------------------------------------------------------------------- found */

static const struct {
    bool is_first_write;
    bool is_second_write;
    uint64_t n_races;
} conflicts[] = {{true, true, 1}, {true, false, 1}, {false, true, 1}, {false, false, 0}};

START_TEST(accesses_without_an_event_race_if_one_writes)
{
    streams_start();
    touch(first, "one", memory, N_BYTES, conflicts[_i].is_first_write);
    touch(second, "other", memory, N_BYTES, conflicts[_i].is_second_write);
    check_n_races(conflicts[_i].n_races);
}
END_TEST

START_TEST(accesses_race_where_they_overlap_by_a_byte)
{
    streams_start();
    touch(first, "one", memory, 100, true);
    touch(second, "behind", memory + 100, 100, true);
    check_n_races(0);
    touch(first, "over", memory + 100, 1, true);
    check_n_races(1);
}
END_TEST

START_TEST(wait_for_the_wrong_event_orders_nothing)
{
    cu_event early;
    cu_event unrelated;

    streams_start();
    early = event_make();
    unrelated = event_make();
    DRIVER(event_record(early, first)); /* before the work that matters */
    touch(first, "one", memory, N_BYTES, true);
    DRIVER(event_record(unrelated, second));
    DRIVER(stream_wait_event(second, early, 0));
    DRIVER(stream_wait_event(second, unrelated, 0));
    touch(second, "other", memory, N_BYTES, false);
    check_n_races(1);
}
END_TEST

START_TEST(wait_before_the_record_orders_nothing)
{
    cu_event event;

    streams_start();
    event = event_make();
    DRIVER(stream_wait_event(second, event, 0)); /* never recorded: as if it were done */
    touch(first, "one", memory, N_BYTES, true);
    DRIVER(event_record(event, first));
    touch(second, "other", memory, N_BYTES, true);
    check_n_races(1);
}
END_TEST

START_TEST(order_one_way_is_none_the_other_way)
{
    streams_start();
    touch(first, "one", memory, N_BYTES, false);
    order_streams(first, second);
    touch(second, "other", memory, N_BYTES, true);
    check_n_races(0);
    touch(first, "again", memory, N_BYTES, false); /* the reader does not wait for the writer */
    check_n_races(1);
}
END_TEST

START_TEST(free_of_memory_in_use_is_a_race)
{
    struct gate gate = {false, 0, 0, 0};
    struct double_access access;

    streams_start();
    access = (struct double_access){(void *)(uintptr_t)memory, N_BYTES, false, 0};
    gate_enqueue(&gate, first, &access, 1);
    order_streams(first, second);
    gate_open(&gate);
    DRIVER(memory_free(memory));
    check_n_races(1);
}
END_TEST

START_TEST(free_of_pinned_memory_in_use_is_a_race)
{
    void *pinned;

    streams_start();
    pinned = pinned_memory(N_BYTES);
    DRIVER(copy(memory, (cu_address)(uintptr_t)pinned, N_BYTES, first));
    DRIVER(host_free(pinned));
    check_n_races(1);
}
END_TEST

START_TEST(hosts_stream_and_engines_race_without_order)
{
    cu_stream hosts;

    streams_start();
    DRIVER(stream_create(&hosts, 0, 0));
    touch(hosts, "backward", memory, N_BYTES, true);
    touch(first, "reduce", memory, N_BYTES, false);
    check_n_races(1);
    order_streams(hosts, first);
    touch(first, "reduce", memory, N_BYTES, false);
    check_n_races(1);
}
END_TEST

START_TEST(legacy_stream_and_non_blocking_streams_race)
{
    streams_start();
    touch(NULL, "backward", memory, N_BYTES, true);
    touch(first, "reduce", memory, N_BYTES, false);
    check_n_races(1);
}
END_TEST

START_TEST(host_that_reads_pinned_memory_too_early_is_found)
{
    void *pinned;

    streams_start();
    pinned = pinned_memory(N_BYTES);
    DRIVER(copy((cu_address)(uintptr_t)pinned, memory, N_BYTES, first));
    doubled.host_access(pinned, 8, false);
    check_n_races(1);
    stream_finish(first);
    doubled.host_access(pinned, 8, false);
    check_n_races(1);
}
END_TEST

START_TEST(host_may_read_and_not_write_what_the_device_reads)
{
    void *pinned;

    streams_start();
    pinned = pinned_memory(N_BYTES);
    DRIVER(copy(memory, (cu_address)(uintptr_t)pinned, N_BYTES, first));
    doubled.host_access(pinned, 8, false);
    check_n_races(0);
    doubled.host_access(pinned, 8, true);
    check_n_races(1);
}
END_TEST

START_TEST(every_reader_is_remembered_until_the_writer_comes)
{
    cu_stream third;

    streams_start();
    third = stream_make();
    touch(first, "one", memory, N_BYTES, false);
    touch(second, "two", memory, N_BYTES, false);
    order_streams(second, third);
    touch(third, "writer", memory, N_BYTES, true);
    check_n_races(1);
}
END_TEST

START_TEST(parts_of_an_access_are_remembered)
{
    streams_start();
    touch(first, "all", memory, N_BYTES, true);
    order_streams(first, second);
    touch(second, "middle", memory + 100, 100, true);
    order_streams(second, first);
    touch(first, "middle again", memory + 100, 100, true);
    check_n_races(0);
    touch(second, "before", memory + 50, 10, true);
    touch(second, "behind", memory + 300, 10, true);
    check_n_races(0);
    touch(second, "in it", memory + 199, 1, false);
    check_n_races(1);
}
END_TEST

/* ------------------------------------------------------------------------------------ silent */

START_TEST(work_of_one_stream_is_in_order)
{
    streams_start();
    for (int i = 0; i < 200; i++) {
        touch(first, "one", memory, N_BYTES, i % 2 == 0);
    }
    check_n_races(0);
}
END_TEST

START_TEST(events_order_streams_one_after_another)
{
    cu_stream third;

    streams_start();
    third = stream_make();
    for (int i = 0; i < 100; i++) {
        touch(first, "one", memory, N_BYTES, true);
        order_streams(first, second);
        touch(second, "two", memory + 64, 64, true);
        order_streams(second, third);
        touch(third, "three", memory, N_BYTES, false);
        order_streams(third, first);
    }
    check_n_races(0);
}
END_TEST

START_TEST(what_the_host_has_seen_is_before_all_it_enqueues)
{
    cu_event event;

    streams_start();
    event = event_make();
    touch(first, "one", memory, N_BYTES, true);
    DRIVER(event_record(event, first));
    event_finish(event);
    touch(second, "two", memory, N_BYTES, true);
    stream_finish(second);
    touch(first, "three", memory, N_BYTES, true);
    stream_finish(first);
    DRIVER(memory_free(memory));
    check_n_races(0);
}
END_TEST

START_TEST(event_that_is_not_done_orders_nothing)
{
    struct gate gate = {false, 0, 0, 0};
    struct double_access access;
    cu_event event;

    streams_start();
    event = event_make();
    access = (struct double_access){(void *)(uintptr_t)memory, N_BYTES, true, 0};
    gate_enqueue(&gate, first, &access, 1);
    DRIVER(event_record(event, first));
    ck_assert_int_eq(cuda.event_query(event), CU_ERROR_NOT_READY);
    touch(second, "two", memory, N_BYTES, true);
    check_n_races(1);
    gate_open(&gate);
    stream_finish(first); /* it looks at the gate until then */
}
END_TEST

static void *event_see(void *arg)
{
    cu_context context;

    DRIVER(primary_context_retain(&context, 0));
    DRIVER(context_push(context));
    event_finish(*(cu_event *)arg);
    return NULL;
}

START_TEST(what_one_thread_has_seen_all_have)
{
    pthread_t thread;
    cu_event event;

    streams_start();
    event = event_make();
    touch(first, "one", memory, N_BYTES, true);
    DRIVER(event_record(event, first));
    pthread_create(&thread, NULL, event_see, &event);
    pthread_join(thread, NULL);
    touch(second, "two", memory, N_BYTES, true);
    check_n_races(0);
}
END_TEST

START_TEST(copy_to_pageable_memory_is_seen_to_be_done)
{
    char host[N_BYTES];

    streams_start();
    touch(first, "one", memory, N_BYTES, true);
    DRIVER(copy((cu_address)(uintptr_t)host, memory, N_BYTES, first));
    touch(second, "two", memory, N_BYTES, true);
    check_n_races(0);
}
END_TEST

START_TEST(legacy_stream_orders_blocking_streams)
{
    cu_stream blocking;

    streams_start();
    DRIVER(stream_create(&blocking, 0, 0));
    touch(blocking, "one", memory, N_BYTES, true);
    touch(NULL, "two", memory, N_BYTES, true);
    touch((cu_stream)2, "three", memory, N_BYTES, true);
    touch((cu_stream)1, "four", memory, N_BYTES, true);
    touch(blocking, "five", memory, N_BYTES, true);
    check_n_races(0);
    touch((cu_stream)2, "six", memory, N_BYTES, true); /* behind four, not behind five */
    check_n_races(1);
}
END_TEST

START_TEST(streams_that_come_and_go_keep_their_order)
{
    streams_start();
    for (int i = 0; i < 300; i++) {
        cu_stream stream = stream_make();

        order_streams(first, stream);
        touch(stream, "short", memory, N_BYTES, true);
        order_streams(stream, first);
        DRIVER(stream_destroy(stream));
    }
    touch(first, "last", memory, N_BYTES, true);
    check_n_races(0);
}
END_TEST

/* Streams that share a slot of the clocks: races may be missed then, and none invented. */
START_TEST(more_streams_than_slots_are_silent_where_ordered)
{
    cu_stream streams[200];

    streams_start();
    for (int i = 0; i < 200; i++) {
        streams[i] = stream_make();
    }
    for (int i = 0; i < 600; i++) {
        touch(streams[i % 200], "one", memory, N_BYTES, true);
        order_streams(streams[i % 200], streams[(i + 1) % 200]);
    }
    check_n_races(0);
}
END_TEST

START_TEST(detector_that_is_off_finds_nothing)
{
    setenv("HSDP_DOUBLE_RACES", "off", 1);
    streams_start();
    touch(first, "one", memory, N_BYTES, true);
    touch(second, "two", memory, N_BYTES, true);
    check_n_races(0);
}
END_TEST

/* ---------------------------------------------------------------------------------- sentences */

static void race_once(void)
{
    setenv("HSDP_DOUBLE_RACES", "fatal", 1);
    streams_start();
    touch(first, "scatter", memory, 1024, true);
    touch(second, "gather", memory + 512, 1024, false);
}

START_TEST(race_has_a_sentence_with_both_sides)
{
    double_check_dies(race_once, "race: gather on stream ");
    double_check_dies(race_once, " reads bytes 512 to 1536 of the 4096 at ");
    double_check_dies(race_once, ", scatter on stream ");
    double_check_dies(race_once, " writes 0 to 1024, and nothing orders the two");
}
END_TEST

static void free_early(void)
{
    setenv("HSDP_DOUBLE_RACES", "fatal", 1);
    streams_start();
    touch(first, "scatter", memory, 1024, true);
    cuda.memory_free(memory);
}

START_TEST(free_too_early_has_a_sentence)
{
    double_check_dies(free_early, "race: the host's freeing it writes bytes 0 to 4096");
}
END_TEST

static void mode_is_unknown(void)
{
    setenv("HSDP_DOUBLE_RACES", "maybe", 1);
    double_start();
}

START_TEST(mode_of_the_detector_is_checked)
{
    double_check_dies(mode_is_unknown, "HSDP_DOUBLE_RACES is 'maybe', none of on, off, fatal");
}
END_TEST

/* -------------------------------------------------------------------------- random programs */

enum { N_STREAMS = 4, N_CELLS = 8, N_STEPS = 400, N_PROGRAMS = 60 };

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* Everything that has happened, and what comes before what: all of it, kept in full. */
struct model {
    uint64_t before[N_STEPS][N_STEPS / 64 + 1]; /* bit sets of steps */
    int32_t last[N_STREAMS];                    /* step, or -1 */
    uint32_t begin[N_STEPS];
    uint32_t end[N_STEPS]; /* of cells; both 0 = no access */
    bool is_write[N_STEPS];
};

static void before_join(struct model *model, uint32_t step, int32_t other)
{
    if (other >= 0) {
        for (uint32_t word = 0; word <= N_STEPS / 64; word++) {
            model->before[step][word] |= model->before[other][word];
        }
        model->before[step][other / 64] |= 1ull << (other % 64);
    }
}

static bool model_races(const struct model *model, uint32_t step)
{
    for (uint32_t other = 0; other < step; other++) {
        bool is_before = (model->before[step][other / 64] >> (other % 64) & 1) != 0;

        if (!is_before && model->end[other] > model->begin[step] &&
            model->end[step] > model->begin[other] &&
            (model->is_write[other] || model->is_write[step])) {
            return true;
        }
    }
    return false;
}

/* Some cells; none, mostly, where that would be a race. */
static bool access_draw(struct model *model, uint32_t step, cu_stream stream)
{
    bool is_race;

    model->begin[step] = random_below(N_CELLS);
    model->end[step] = model->begin[step] + 1 + random_below(N_CELLS - model->begin[step]);
    model->is_write[step] = random_below(3) == 0;
    is_race = model_races(model, step);
    if (is_race && random_below(20) != 0) {
        model->begin[step] = 0;
        model->end[step] = 0;
        return false;
    }
    touch(stream, "cells", memory + 64 * model->begin[step],
          (model->end[step] - model->begin[step]) * 64, model->is_write[step]);
    return is_race;
}

/* One step; whether it makes the first race. */
static bool step_draw(struct model *model, uint32_t step, cu_stream *streams, uint32_t sparsity)
{
    uint32_t s = random_below(N_STREAMS);

    before_join(model, step, model->last[s]);
    for (uint32_t other = 0; other < N_STREAMS; other++) {
        if (other != s && random_below(sparsity) == 0) {
            order_streams(streams[other], streams[s]);
            before_join(model, step, model->last[other]);
        }
    }
    model->last[s] = (int32_t)step;
    return access_draw(model, step, streams[s]);
}

/* The detector says yes at the step at which the model does, and not before. */
START_TEST(random_programs_race_where_a_whole_history_says_so)
{
    struct model *model = calloc(1, sizeof(*model));
    cu_stream streams[N_STREAMS];
    uint32_t sparsity = 1 + (uint32_t)_i % 4; /* of events; 1 = all is in order */
    bool is_race = false;

    random_state = (uint64_t)_i + 1;
    streams_start();
    for (uint32_t s = 0; s < N_STREAMS; s++) {
        streams[s] = stream_make();
        model->last[s] = -1;
    }
    for (uint32_t step = 0; step < N_STEPS && !is_race; step++) {
        is_race = step_draw(model, step, streams, sparsity);
        ck_assert_int_eq(doubled.n_races() > 0, is_race);
    }
    ck_assert(sparsity > 1 || !is_race);
    free(model);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_races");
    TCase *found = tcase_create("found");
    TCase *silent = tcase_create("silent");

    tcase_set_timeout(found, 60);
    tcase_set_timeout(silent, 60);
    tcase_add_loop_test(found, accesses_without_an_event_race_if_one_writes, 0, N_OF(conflicts));
    tcase_add_test(found, accesses_race_where_they_overlap_by_a_byte);
    tcase_add_test(found, wait_for_the_wrong_event_orders_nothing);
    tcase_add_test(found, wait_before_the_record_orders_nothing);
    tcase_add_test(found, order_one_way_is_none_the_other_way);
    tcase_add_test(found, free_of_memory_in_use_is_a_race);
    tcase_add_test(found, free_of_pinned_memory_in_use_is_a_race);
    tcase_add_test(found, hosts_stream_and_engines_race_without_order);
    tcase_add_test(found, legacy_stream_and_non_blocking_streams_race);
    tcase_add_test(found, host_that_reads_pinned_memory_too_early_is_found);
    tcase_add_test(found, host_may_read_and_not_write_what_the_device_reads);
    tcase_add_test(found, every_reader_is_remembered_until_the_writer_comes);
    tcase_add_test(found, parts_of_an_access_are_remembered);
    tcase_add_test(found, race_has_a_sentence_with_both_sides);
    tcase_add_test(found, free_too_early_has_a_sentence);
    tcase_add_test(found, mode_of_the_detector_is_checked);
    tcase_add_loop_test(found, random_programs_race_where_a_whole_history_says_so, 0, N_PROGRAMS);
    tcase_add_test(silent, work_of_one_stream_is_in_order);
    tcase_add_test(silent, events_order_streams_one_after_another);
    tcase_add_test(silent, what_the_host_has_seen_is_before_all_it_enqueues);
    tcase_add_test(silent, event_that_is_not_done_orders_nothing);
    tcase_add_test(silent, what_one_thread_has_seen_all_have);
    tcase_add_test(silent, copy_to_pageable_memory_is_seen_to_be_done);
    tcase_add_test(silent, legacy_stream_orders_blocking_streams);
    tcase_add_test(silent, streams_that_come_and_go_keep_their_order);
    tcase_add_test(silent, more_streams_than_slots_are_silent_where_ordered);
    tcase_add_test(silent, detector_that_is_off_finds_nothing);
    suite_add_tcase(suite, found);
    suite_add_tcase(suite, silent);
    return suite;
}
