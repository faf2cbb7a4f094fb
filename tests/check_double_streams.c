/* SPDX-License-Identifier: Apache-2.0 */
/* The double of the CUDA driver: streams and events. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "double_fixture.h"
#include "suite.h"

static void wait_until(atomic_uint *number, uint32_t target)
{
    while (atomic_load(number) < target) {
        usleep(100);
    }
}

/* ----------------------------------------------------------------------------------- streams */

static void next_number(void *arg)
{
    atomic_uint *number = arg;

    atomic_fetch_add(number, 1);
}

/* Twice the number, plus one: only in order do they make what they should. */
static void number_fold(void *arg)
{
    uint64_t *number = arg;

    *number = 3 * *number + 1;
}

static void number_shift(void *arg)
{
    uint64_t *number = arg;

    *number = *number << 1;
}

static void fold_enqueue(cu_stream stream, void (*work)(void *arg), uint64_t *number)
{
    ck_assert_int_eq(doubled.enqueue(stream, "a number", work, number, NULL, NULL, 0), CU_OK);
}

START_TEST(work_of_a_stream_is_done_in_order)
{
    uint64_t number = 1;
    uint64_t expected = 1;
    cu_stream stream;

    double_start();
    stream = stream_make();
    for (int i = 0; i < 40; i++) {
        fold_enqueue(stream, i % 3 == 0 ? number_shift : number_fold, &number);
        (i % 3 == 0 ? number_shift : number_fold)(&expected);
    }
    stream_finish(stream);
    ck_assert_uint_eq(number, expected);
}
END_TEST

START_TEST(stream_is_not_ready_while_it_works)
{
    struct gate gate = {false, 0, 0, 0};
    cu_stream stream;
    cu_stream other;

    double_start();
    stream = stream_make();
    other = stream_make();
    gate_enqueue(&gate, stream, NULL, 0);
    ck_assert_int_eq(cuda.stream_query(stream), CU_ERROR_NOT_READY);
    DRIVER(stream_query(other));
    gate_open(&gate);
    stream_finish(stream);
    ck_assert_uint_eq(gate.n_passed, 1);
}
END_TEST

struct filler {
    cu_context context;
    cu_stream stream;
    atomic_uint n_enqueued;
    uint32_t n_works;
    atomic_uint n_done;
};

static void *filler_run(void *arg)
{
    struct filler *filler = arg;

    DRIVER(context_push(filler->context));
    for (uint32_t i = 0; i < filler->n_works; i++) {
        ck_assert_int_eq(doubled.enqueue(filler->stream, "a number", next_number, &filler->n_done,
                                         NULL, NULL, 0),
                         CU_OK);
        atomic_fetch_add(&filler->n_enqueued, 1);
    }
    return NULL;
}

START_TEST(launch_into_a_full_queue_blocks)
{
    struct gate gate = {false, 0, 0, 0};
    struct filler filler = {.context = double_start(), .n_works = DOUBLE_QUEUE_PIECES + 9};
    pthread_t thread;

    filler.stream = stream_make();
    gate_enqueue(&gate, filler.stream, NULL, 0);
    pthread_create(&thread, NULL, filler_run, &filler);
    wait_until(&filler.n_enqueued, DOUBLE_QUEUE_PIECES - 1);
    usleep(50000); /* one more would come in this time, if anything let it */
    ck_assert_uint_eq(filler.n_enqueued, DOUBLE_QUEUE_PIECES - 1);
    stream_make(); /* other calls do not wait for it */
    gate_open(&gate);
    pthread_join(thread, NULL);
    stream_finish(filler.stream);
    ck_assert_uint_eq(filler.n_done, filler.n_works);
}
END_TEST

START_TEST(stream_that_is_destroyed_ends_its_work)
{
    struct gate gate = {false, 0, 0, 0};
    cu_stream stream;

    double_start();
    stream = stream_make();
    gate_enqueue(&gate, stream, NULL, 0);
    DRIVER(stream_destroy(stream));
    ck_assert_int_eq(cuda.stream_query(stream), CU_ERROR_INVALID_HANDLE);
    ck_assert_ptr_ne(stream_make(), stream);
    gate_open(&gate);
    wait_until(&gate.n_passed, 1);
}
END_TEST

START_TEST(legacy_stream_and_blocking_streams_wait_for_each_other)
{
    struct gate gate = {false, 0, 0, 0};
    struct gate late = {true, 0, 0, 0};
    cu_stream blocking;
    cu_stream free_one;

    double_start();
    DRIVER(stream_create(&blocking, 0, 0));
    free_one = stream_make();
    gate_enqueue(&gate, blocking, NULL, 0);
    gate_enqueue(&late, NULL, NULL, 0);
    gate_enqueue(&late, (cu_stream)2, NULL, 0);
    gate_enqueue(&late, free_one, NULL, 0);
    stream_finish(free_one);
    usleep(20000); /* the others would come in this time, if anything let them */
    ck_assert_uint_eq(late.n_passed, 1);
    ck_assert_int_eq(cuda.stream_query(NULL), CU_ERROR_NOT_READY);
    ck_assert_int_eq(cuda.stream_query((cu_stream)1), CU_ERROR_NOT_READY);
    ck_assert_int_eq(cuda.stream_query((cu_stream)2), CU_ERROR_NOT_READY);
    gate_open(&gate);
    stream_finish((cu_stream)1);
    stream_finish((cu_stream)2);
    ck_assert_uint_eq(late.n_passed, 3);
}
END_TEST

START_TEST(legacy_stream_is_not_done_before_blocking_streams_are)
{
    struct gate gate = {false, 0, 0, 0};
    cu_stream blocking;

    double_start();
    DRIVER(stream_create(&blocking, 0, 0));
    gate_enqueue(&gate, blocking, NULL, 0);
    ck_assert_int_eq(cuda.stream_query(NULL), CU_ERROR_NOT_READY);
    gate_open(&gate);
    stream_finish(NULL);
    DRIVER(stream_query(blocking));
}
END_TEST

static void *own_stream_use(void *arg)
{
    struct gate *gate = arg;
    cu_context context;

    DRIVER(primary_context_retain(&context, 0));
    DRIVER(context_push(context));
    gate_enqueue(gate, (cu_stream)2, NULL, 0);
    return NULL;
}

START_TEST(per_thread_streams_are_of_their_threads)
{
    struct gate gate = {false, 0, 0, 0};
    pthread_t thread;

    double_start();
    pthread_create(&thread, NULL, own_stream_use, &gate);
    pthread_join(thread, NULL);
    DRIVER(stream_query((cu_stream)2)); /* this thread's has nothing to do */
    gate_open(&gate);
    wait_until(&gate.n_passed, 1);
}
END_TEST

START_TEST(captured_stream_says_so_and_refuses_work)
{
    cu_address memory;
    cu_stream stream;
    int32_t status;

    double_start();
    stream = stream_make();
    memory = device_memory(64);
    DRIVER(stream_is_capturing(stream, &status));
    ck_assert_int_eq(status, CU_CAPTURE_NONE);
    ck_assert_int_eq(doubled.capture(stream, true), CU_OK);
    DRIVER(stream_is_capturing(stream, &status));
    ck_assert_int_ne(status, CU_CAPTURE_NONE);
    ck_assert_int_eq(cuda.fill(memory, 0, 64, stream), 900);
    ck_assert_int_eq(cuda.event_record(event_make(), stream), 900);
    ck_assert_int_eq(cuda.stream_query(stream), 900);
    ck_assert_int_eq(doubled.capture(stream, false), CU_OK);
    DRIVER(fill(memory, 0, 64, stream));
    ck_assert_int_eq(doubled.capture((cu_stream)77, true), CU_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(process_ends_with_work_on_its_streams)
{
    struct gate gate = {false, 0, 0, 0};
    int status;
    pid_t child = fork();

    if (child == 0) {
        double_start();
        for (int i = 0; i < 5; i++) {
            cu_stream stream = stream_make();

            gate_enqueue(&gate, stream, NULL, 0);
            gate_enqueue(&gate, stream, NULL, 0);
        }
        exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* ------------------------------------------------------------------------------------ events */

START_TEST(event_that_was_never_recorded_is_done)
{
    struct gate gate = {true, 0, 0, 0};
    cu_stream stream;
    cu_event event;

    double_start();
    stream = stream_make();
    event = event_make();
    DRIVER(event_query(event));
    DRIVER(stream_wait_event(stream, event, 0));
    gate_enqueue(&gate, stream, NULL, 0);
    stream_finish(stream);
}
END_TEST

START_TEST(event_is_done_when_what_was_before_it_is)
{
    struct gate before = {false, 0, 0, 0};
    struct gate behind = {false, 0, 0, 0};
    cu_stream stream;
    cu_event event;

    double_start();
    stream = stream_make();
    event = event_make();
    gate_enqueue(&before, stream, NULL, 0);
    DRIVER(event_record(event, stream));
    gate_enqueue(&behind, stream, NULL, 0);
    ck_assert_int_eq(cuda.event_query(event), CU_ERROR_NOT_READY);
    gate_open(&before);
    event_finish(event);
    ck_assert_int_eq(cuda.stream_query(stream), CU_ERROR_NOT_READY);
    gate_open(&behind);
    stream_finish(stream);
}
END_TEST

START_TEST(stream_waits_for_the_record_before_the_wait)
{
    struct gate gates[3] = {{false, 0, 0, 0}, {false, 0, 0, 0}, {true, 0, 0, 0}};
    cu_stream first;
    cu_stream second;
    cu_event event;

    double_start();
    first = stream_make();
    second = stream_make();
    event = event_make();
    gate_enqueue(&gates[0], first, NULL, 0);
    DRIVER(event_record(event, first));
    DRIVER(stream_wait_event(second, event, 0));
    gate_enqueue(&gates[1], first, NULL, 0);
    DRIVER(event_record(event, first)); /* later: none of the second stream's business */
    gate_enqueue(&gates[2], second, NULL, 0);
    usleep(20000); /* it would come in this time, if anything let it */
    ck_assert_uint_eq(gates[2].n_waiting, 0);
    gate_open(&gates[0]);
    stream_finish(second);
    ck_assert_int_eq(cuda.event_query(event), CU_ERROR_NOT_READY);
    gate_open(&gates[1]);
    event_finish(event);
}
END_TEST

START_TEST(event_that_is_destroyed_is_waited_for)
{
    struct gate gate = {false, 0, 0, 0};
    struct gate late = {true, 0, 0, 0};
    cu_stream first;
    cu_stream second;
    cu_event event;

    double_start();
    first = stream_make();
    second = stream_make();
    event = event_make();
    gate_enqueue(&gate, first, NULL, 0);
    DRIVER(event_record(event, first));
    DRIVER(stream_wait_event(second, event, 0));
    DRIVER(event_destroy(event));
    DRIVER(stream_destroy(first));
    gate_enqueue(&late, second, NULL, 0);
    usleep(20000); /* it would come in this time, if anything let it */
    ck_assert_uint_eq(late.n_waiting, 0);
    gate_open(&gate);
    stream_finish(second);
}
END_TEST

START_TEST(elapsed_time_is_that_between_two_events)
{
    cu_event events[2];
    cu_event untimed;
    cu_stream stream;
    float ms = -1;

    setenv("HSDP_DOUBLE_FAULTS", "slow_stream=5000", 1);
    double_start();
    stream = stream_make();
    untimed = event_make();
    for (int i = 0; i < 2; i++) {
        DRIVER(event_create(&events[i], 0));
    }
    ck_assert_int_eq(cuda.event_elapsed(&ms, events[0], events[1]), CU_ERROR_INVALID_HANDLE);
    for (int i = 0; i < 2; i++) {
        DRIVER(event_record(events[i], stream));
    }
    DRIVER(event_record(untimed, stream));
    ck_assert_int_eq(cuda.event_elapsed(&ms, events[0], events[1]), CU_ERROR_NOT_READY);
    stream_finish(stream);
    ck_assert_int_eq(cuda.event_elapsed(&ms, events[0], untimed), CU_ERROR_INVALID_HANDLE);
    DRIVER(event_elapsed(&ms, events[0], events[1]));
    ck_assert(ms >= 5);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_streams");
    TCase *streams = tcase_create("streams");
    TCase *events = tcase_create("events");

    tcase_set_timeout(streams, 60);
    tcase_add_test(streams, work_of_a_stream_is_done_in_order);
    tcase_add_test(streams, stream_is_not_ready_while_it_works);
    tcase_add_test(streams, launch_into_a_full_queue_blocks);
    tcase_add_test(streams, stream_that_is_destroyed_ends_its_work);
    tcase_add_test(streams, legacy_stream_and_blocking_streams_wait_for_each_other);
    tcase_add_test(streams, legacy_stream_is_not_done_before_blocking_streams_are);
    tcase_add_test(streams, per_thread_streams_are_of_their_threads);
    tcase_add_test(streams, captured_stream_says_so_and_refuses_work);
    tcase_add_test(streams, process_ends_with_work_on_its_streams);
    suite_add_tcase(suite, streams);
    tcase_set_timeout(events, 60);
    tcase_add_test(events, event_that_was_never_recorded_is_done);
    tcase_add_test(events, event_is_done_when_what_was_before_it_is);
    tcase_add_test(events, stream_waits_for_the_record_before_the_wait);
    tcase_add_test(events, event_that_is_destroyed_is_waited_for);
    tcase_add_test(events, elapsed_time_is_that_between_two_events);
    suite_add_tcase(suite, events);
    return suite;
}
