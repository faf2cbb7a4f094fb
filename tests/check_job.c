/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of several ranks: exchanging, sharing memory, settings, phases, who may enter. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs.h"
#include "ranks.h"
#include "suite.h"

/* ------------------------------------------------------------------------ exchange, memory */

static void exchanging_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t all[RANKS_MAX];

    (void)shared;
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t mine = 1000 * round + rank;

        status_assert(job_exchange(job, "test", &mine, sizeof(mine), all, &err), HSDP_OK, &err);
        for (uint32_t i = 0; i < job_world_ranks(job); i++) {
            ck_assert_uint_eq(all[i], 1000 * round + i);
        }
    }
    test_job_end(job);
}

START_TEST(job_exchange_of_many_rounds_is_exact)
{
    ranks_run((uint32_t)_i, RANKS_LIMIT_MS, exchanging_rank, NULL);
}
END_TEST

static void diverging_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[3];
    uint64_t mine = 0;

    (void)shared;
    status_assert(job_exchange(job, rank == 2 ? "this" : "that", &mine, sizeof(mine), all, &err),
                  HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "rank 0 is in that"));
    ck_assert_ptr_nonnull(strstr(err.message, "rank 2 in this"));
    test_job_drop(job);
}

START_TEST(job_exchange_of_two_operations_mismatches_on_all)
{
    ranks_run(3, RANKS_LIMIT_MS, diverging_rank, NULL);
}
END_TEST

/* Each rank writes the first word of its part, and reads those of all. */
static void memory_check(struct hsdp_job *job, uint32_t rank, uint32_t round)
{
    struct shared_memory memory;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t n = job_world_ranks(job);
    uint32_t all[RANKS_MAX];
    uint32_t *base;
    uint64_t n_bytes;

    status_assert(job_share_memory(job, 5000 * rank, &memory, &err), HSDP_OK, &err);
    ck_assert_uint_eq(memory.n_ranks, n);
    ck_assert_uint_ge(memory.sizes[rank], 5000 * rank);
    n_bytes = memory.offsets[n - 1] + memory.sizes[n - 1] + 4096;
    base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    if (rank > 0) {
        ck_assert_uint_eq(base[memory.offsets[rank] / 4], 0);
        base[memory.offsets[rank] / 4] = rank + 7 * round;
    }
    status_assert(job_exchange(job, "wrote", &rank, sizeof(rank), all, &err), HSDP_OK, &err);
    for (uint32_t i = 1; i < n; i++) {
        ck_assert_uint_eq(base[memory.offsets[i] / 4], i + 7 * round);
    }
    munmap(base, n_bytes);
    shared_memory_fini(&memory);
}

static void sharing_rank(uint32_t rank, void *shared)
{
    uint32_t n_descriptors = ranks_n_descriptors();
    struct hsdp_job *job = test_job_open("10");

    (void)shared;
    for (uint32_t round = 0; round < 3; round++) {
        memory_check(job, rank, round);
    }
    test_job_end(job);
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
}

START_TEST(job_share_memory_is_seen_by_all)
{
    ranks_run((uint32_t)_i, RANKS_LIMIT_MS, sharing_rank, NULL);
}
END_TEST

static void greedy_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct shared_memory memory;
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)shared;
    status_assert(job_share_memory(job, rank == 1 ? UINT64_MAX / 2 : 1, &memory, &err),
                  HSDP_ERR_NO_MEMORY, &err);
    ck_assert_msg(strstr(err.message, "rank 1") != NULL, "%s", err.message);
    ck_assert_int_eq(job_status(job, NULL), HSDP_OK); /* it goes on */
    memory_check(job, rank, 0);
    test_job_end(job);
}

START_TEST(job_share_memory_of_too_much_is_refused_on_all)
{
    ranks_run(3, RANKS_LIMIT_MS, greedy_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- settings */

/* ------------------------------------------------------------------------- waiting for a device */

static void looking_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("3");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t mine = 0;
    uint64_t all[RANKS_MAX];
    const uint64_t second_ns = UINT64_C(1000000000);

    (void)shared;
    status_assert(job_device_look(job, second_ns, &err), HSDP_OK, &err);
    status_assert(job_exchange(job, "test", &mine, sizeof(mine), all, &err), HSDP_OK, &err);
    if (rank == 1) {
        status_assert(job_device_look(job, 3 * second_ns, &err), HSDP_ERR_TIMEOUT, &err);
    } else {
        status_assert(job_exchange(job, "test", &mine, sizeof(mine), all, &err), HSDP_ERR_TIMEOUT,
                      &err);
    }
    ck_assert_str_eq(err.message, "device: timeout after 3.0 s on rank 1: its device has not come "
                                  "to what was enqueued");
    ck_assert_str_eq(err.operation, "device");
    ck_assert_uint_eq(err.waited_ms, 3000);
    status_assert(job_device_look(job, 0, &err), HSDP_ERR_TIMEOUT, &err);
    test_job_drop(job);
}

/* Whoever waits for its own device too long fails the job on all ranks. */
START_TEST(job_device_look_too_late_is_a_timeout_on_all)
{
    ranks_run(2, RANKS_LIMIT_MS, looking_rank, NULL);
}
END_TEST

static void changing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_error err = HSDP_ERROR_INIT;
    const char *value;
    const char *source;

    (void)rank;
    (void)shared;
    status_assert(job_setting_set(job, "nccl_timeout_seconds", "3", &err), HSDP_OK, &err);
    ck_assert_uint_eq(job_timeout_ms(job), 3000);
    ck_assert_int_eq(job_setting(job, "init_timeout_seconds", &value, &source, &err), HSDP_OK);
    ck_assert_str_eq(value, "3");
    status_assert(job_setting_set(job, "nccl_timeout_seconds", "3s", &err), HSDP_ERR_INVALID, &err);
    status_assert(job_setting_set(job, "peer_silence_seconds", "4", &err), HSDP_ERR_INVALID, &err);
    status_assert(job_setting_set(job, "backend", "shm", &err), HSDP_ERR_STATE, &err);
    status_assert(job_setting_set(job, "timeout", "3", &err), HSDP_ERR_INVALID, &err);
    ck_assert_uint_eq(job_timeout_ms(job), 3000);
    test_job_end(job);
}

START_TEST(job_setting_set_changes_a_timeout_on_all)
{
    ranks_run(2, RANKS_LIMIT_MS, changing_rank, NULL);
}
END_TEST

static void disagreeing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)shared;
    status_assert(job_setting_set(job, "nccl_timeout_seconds", rank == 1 ? "4" : "3", &err),
                  HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "\"3\" on rank 0"));
    ck_assert_ptr_nonnull(strstr(err.message, "\"4\" on rank 1"));
    test_job_drop(job);
}

START_TEST(job_setting_set_of_two_values_mismatches_on_all)
{
    ranks_run(3, RANKS_LIMIT_MS, disagreeing_rank, NULL);
}
END_TEST

START_TEST(job_phases_nest_and_the_innermost_counts)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    char name[65] = "";

    ranks_environment_clear();
    job = test_job_open("10");
    status_assert(job_phase_pop(job, &err), HSDP_ERR_STATE, &err);
    status_assert(job_phase_push(job, "compile", 0, &err), HSDP_ERR_INVALID, &err);
    memset(name, 'n', 64);
    status_assert(job_phase_push(job, name, 1, &err), HSDP_ERR_INVALID, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "a name of 64 bytes; at most 63"));
    for (uint64_t i = 1; i <= 16; i++) {
        status_assert(job_phase_push(job, "compile", i, &err), HSDP_OK, &err);
        ck_assert_uint_eq(job_timeout_ms(job), i);
    }
    status_assert(job_phase_push(job, "one more", 1, &err), HSDP_ERR_STATE, &err);
    for (uint64_t i = 16; i >= 1; i--) {
        ck_assert_uint_eq(job_timeout_ms(job), i);
        status_assert(job_phase_pop(job, &err), HSDP_OK, &err);
    }
    ck_assert_uint_eq(job_timeout_ms(job), 10000);
    test_job_end(job);
}
END_TEST

/* ----------------------------------------------------------------------------------- entering */

static void *entering_thread(void *job)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(job_enter(job, &err), HSDP_ERR_BUSY);
    ck_assert_int_eq(job_status(job, &err), HSDP_OK);
    return NULL;
}

START_TEST(job_enter_by_a_second_thread_is_busy)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    pthread_t thread;

    ranks_environment_clear();
    job = test_job_open("10");
    ck_assert_int_eq(pthread_create(&thread, NULL, entering_thread, job), 0);
    pthread_join(thread, NULL);
    status_assert(job_enter(job, &err), HSDP_ERR_BUSY, &err); /* nor the same one twice */
    test_job_end(job);
}
END_TEST

static void child_check(struct hsdp_job *job)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (job_enter(job, &err) != HSDP_ERR_FORKED || job_enter_failed(job, &err) != HSDP_ERR_FORKED ||
        job_abort(job, NULL, &err) != HSDP_ERR_FORKED || job_status(job, &err) != HSDP_ERR_FORKED) {
        _exit(1);
    }
    job_destroy(job);
    _exit(0);
}

static void forking_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t all[2];
    int wait_status;
    pid_t pid = fork();

    (void)shared;
    if (pid == 0) {
        child_check(job);
    }
    ck_assert_int_eq(waitpid(pid, &wait_status, 0), pid);
    ck_assert_int_eq(wait_status, 0);
    /* What the child did to its copy is nothing to the ranks. */
    status_assert(job_exchange(job, "test", &rank, sizeof(rank), all, &err), HSDP_OK, &err);
    test_job_end(job);
}

START_TEST(job_enter_in_a_child_is_forked)
{
    ranks_run(2, RANKS_LIMIT_MS, forking_rank, NULL);
}
END_TEST

START_TEST(job_calls_at_the_wrong_moment_say_so)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    ranks_environment_clear();
    job = test_job_create("10");
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_close(job, &err), HSDP_ERR_STATE, &err);
    status_assert(job_setting_set(job, "nccl_timeout_seconds", "3", &err), HSDP_ERR_STATE, &err);
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    status_assert(job_connect(job, &err), HSDP_ERR_STATE, &err);
    status_assert(job_ticket_wait(job, 0, 0, &err), HSDP_OK, &err);
    status_assert(job_ticket_wait(job, 1, 0, &err), HSDP_ERR_INVALID, &err);
    status_assert(job_ticket_order(job, 0, &err, &err), HSDP_ERR_INVALID, &err);
    status_assert(job_close(job, &err), HSDP_OK, &err);
    status_assert(job_close(job, &err), HSDP_ERR_STATE, &err);
    test_job_drop(job);
    job_destroy(NULL);
    ck_assert_int_eq(job_abort(NULL, NULL, &err), HSDP_ERR_INVALID);
}
END_TEST

/* ---------------------------------------------------------------------- counters, reports */

static void reporter_write(struct reporter *reporter, const char *what, struct text *text)
{
    (void)reporter;
    json_string(text, NULL, what);
}

static void report_assert(struct hsdp_job *job, const char *what, const char *part)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes = 0;
    char *text;

    ck_assert_int_eq(job_report(job, what, NULL, 0, &n_bytes, &err), HSDP_ERR_BUFFER_TOO_SMALL);
    text = malloc(n_bytes);
    status_assert(job_report(job, what, text, n_bytes, &n_bytes, &err), HSDP_OK, &err);
    ck_assert_uint_eq(strlen(text) + 1, n_bytes);
    ck_assert_msg(strstr(text, part) != NULL, "no %s in %s", part, text);
    free(text);
}

START_TEST(job_report_of_each_name_is_json)
{
    struct reporter reporter = {.write = reporter_write};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    uint64_t n_bytes;

    ranks_environment_clear();
    job = test_job_open("10");
    job_reporter_add(job, &reporter);
    report_assert(job, "settings",
                  "\"nccl_timeout_seconds\":{\"value\":\"10\",\"source\":\"host\"}");
    report_assert(job, "ledger", "\"groups\":[\"ledger\"]");
    report_assert(job, "memory", "\"models\":[\"memory\"]");
    report_assert(job, "plan", "\"models\":[\"plan\"]");
    report_assert(job, "traffic", "{\"groups\":[]}");
    report_assert(job, "flight", "\"n_operations\":1,\"operations\":[{\"number\":1,");
    report_assert(job, "error", "{\"has_failed\":false}");
    job_reporter_remove(job, &reporter);
    report_assert(job, "plan", "\"models\":[]");
    status_assert(job_report(job, "all", NULL, 0, &n_bytes, &err), HSDP_ERR_INVALID, &err);
    test_job_end(job);
}
END_TEST

START_TEST(job_counter_is_found_by_name_and_by_index)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    _Atomic uint64_t *apples;
    const char *name = "";
    uint64_t n_found = 0;
    uint64_t value = 0;
    uint64_t index = 0;

    ranks_environment_clear();
    job = test_job_create("10");
    apples = job_counter_register(job, "apples");
    ck_assert_ptr_ne((void *)job_counter_register(job, "pears"), (void *)apples);
    ck_assert_ptr_eq((void *)job_counter_register(job, "apples"), (void *)apples);
    atomic_fetch_add(apples, 7u);
    status_assert(job_counter(job, "apples", &value, &err), HSDP_OK, &err);
    ck_assert_uint_eq(value, 7);
    while (job_counter_name(job, index++, &name, &err) == HSDP_OK) {
        n_found += strcmp(name, "apples") == 0 || strcmp(name, "pears") == 0;
    }
    ck_assert_uint_eq(n_found, 2);
    status_assert(job_counter_name(job, index, &name, &err), HSDP_ERR_INVALID, &err);
    status_assert(job_counter(job, "apple", &value, &err), HSDP_ERR_INVALID, &err);
    job_destroy(job);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("job");
    TCase *tcase = tcase_create("job");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, job_exchange_of_many_rounds_is_exact, 1, 6);
    tcase_add_test(tcase, job_exchange_of_two_operations_mismatches_on_all);
    tcase_add_loop_test(tcase, job_share_memory_is_seen_by_all, 1, 4);
    tcase_add_test(tcase, job_share_memory_of_too_much_is_refused_on_all);
    tcase_add_test(tcase, job_device_look_too_late_is_a_timeout_on_all);
    tcase_add_test(tcase, job_setting_set_changes_a_timeout_on_all);
    tcase_add_test(tcase, job_setting_set_of_two_values_mismatches_on_all);
    tcase_add_test(tcase, job_phases_nest_and_the_innermost_counts);
    tcase_add_test(tcase, job_enter_by_a_second_thread_is_busy);
    tcase_add_test(tcase, job_enter_in_a_child_is_forked);
    tcase_add_test(tcase, job_calls_at_the_wrong_moment_say_so);
    tcase_add_test(tcase, job_report_of_each_name_is_json);
    tcase_add_test(tcase, job_counter_is_found_by_name_and_by_index);
    suite_add_tcase(suite, tcase);
    return suite;
}
