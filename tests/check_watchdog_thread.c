/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog's thread: how it begins and ends, forks, and whom else it serves. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/watchdog.h"
#include "jobs.h"
#include "listener.h"
#include "ranks.h"
#include "suite.h"

/* ---------------------------------------------------------------------------------- the thread */

static void cycle_run(struct listener *host, uint32_t cycle)
{
    listener_open(host);
    if (cycle % 2 == 0) {
        job_abort(host->job, "again", NULL);
    }
    listener_await(host);
    job_destroy(host->job);
}

/* Of two ranks, one aborts, and both begin anew in the same processes. */
static void cycling_rank(uint32_t rank, void *shared)
{
    struct listener host;
    uint32_t n_descriptors = ranks_n_descriptors();
    uint32_t n_threads;

    (void)shared;
    cycle_run(&host, rank);
    n_threads = ranks_n_threads(); /* a sanitizer may have one of its own by now */
    for (uint32_t cycle = 1; cycle < 6; cycle++) {
        cycle_run(&host, cycle + rank);
        ck_assert_uint_eq(ranks_n_threads(), n_threads);
        ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
    }
}

START_TEST(job_after_an_abort_works_in_the_same_process)
{
    ranks_run(2, RANKS_LIMIT_MS, cycling_rank, NULL);
}
END_TEST

/* What the kernel says of a thread by this name: the mask of signals that it blocks. */
static uint64_t thread_mask(const char *name)
{
    char path[64];
    char line[128];
    uint64_t mask = 0;

    for (pid_t id = getpid(); id < getpid() + 1000; id++) {
        FILE *file;
        bool is_it = false;

        snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)id);
        file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            is_it |= strncmp(line, "Name:\t", 6) == 0 && strncmp(line + 6, name, strlen(name)) == 0;
            if (is_it && strncmp(line, "SigBlk:\t", 8) == 0) {
                mask = strtoull(line + 8, NULL, 16);
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    return mask;
}

static void looking_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener host;
    sigset_t before;
    uint64_t mask;

    (void)rank;
    (void)shared;
    listener_open(&host);
    mask = thread_mask("hsdp-watchdog");
    ck_assert_uint_ne(mask >> (SIGINT - 1) & 1u, 0);
    ck_assert_uint_ne(mask >> (SIGUSR1 - 1) & 1u, 0);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ck_assert_int_eq(sigismember(&before, SIGUSR1), 0); /* the host's own are as they were */
    status_assert(listener_close(&host, &err), HSDP_OK, &err);
    job_destroy(host.job);
    ck_assert_uint_eq(thread_mask("hsdp-watchdog"), 0);
}

START_TEST(thread_has_a_name_and_takes_no_signals)
{
    ranks_run(2, RANKS_LIMIT_MS, looking_rank, NULL);
}
END_TEST

static void forking_rank(uint32_t rank, void *shared)
{
    uint32_t n_descriptors = ranks_n_descriptors();
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener host;
    int child;
    int status;

    (void)rank;
    (void)shared;
    listener_open(&host);
    child = fork();
    if (child == 0) {
        int is_wrong = job_status(host.job, NULL) != HSDP_ERR_FORKED;

        is_wrong |= ranks_n_descriptors() != n_descriptors;
        job_destroy(host.job);
        _exit(is_wrong);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    status_assert(listener_close(&host, &err), HSDP_OK, &err);
    job_destroy(host.job);
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
}

START_TEST(fork_leaves_the_child_no_descriptor)
{
    ranks_run(2, RANKS_LIMIT_MS, forking_rank, NULL);
}
END_TEST

/* A callback that keeps the thread: destroy waits a second for it, not for ever. */
static void keeping_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_done = shared;
    struct listener host;
    uint64_t start_ms;

    listener_open(&host);
    host.sleep_ms = rank == 1 ? 3000 : 0;
    ranks_meet(&n_done[0], 2);
    if (rank == 0) {
        job_abort(host.job, NULL, NULL);
    }
    listener_await(&host);
    start_ms = ranks_now_ms();
    job_destroy(host.job);
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 2500);
    ranks_meet(&n_done[1], 2);
    ranks_sleep_ms(rank == 1 ? 3000 : 0); /* the thread ends by itself */
}

START_TEST(destroy_while_a_callback_keeps_the_thread_returns)
{
    ranks_run(2, RANKS_LIMIT_MS, keeping_rank, ranks_memory(2 * sizeof(uint32_t)));
}
END_TEST

/* Not allowed; but no reason to hang. */
static void destroying_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_done = shared;
    struct listener host;

    listener_open(&host);
    host.destroys = rank == 1;
    ranks_meet(n_done, 2);
    if (rank == 0) {
        job_abort(host.job, NULL, NULL);
    }
    listener_await(&host);
    ranks_sleep_ms(300);
    if (rank == 0) {
        job_destroy(host.job);
    }
}

START_TEST(destroy_in_the_callback_ends_the_thread)
{
    ranks_run(2, RANKS_LIMIT_MS, destroying_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

/* ---------------------------------------------------------------------------------- the service */

struct service {
    int fds[2];
    _Atomic uint32_t n_bytes;  /* read of the first */
    _Atomic uint32_t n_served; /* altogether */
    _Atomic uint64_t wake_ns;  /* what it answers */
};

static uint64_t service_serve(void *user)
{
    struct service *service = user;
    char bytes[8];
    ssize_t n_read = read(service->fds[0], bytes, sizeof(bytes));

    atomic_fetch_add(&service->n_bytes, n_read > 0 ? (uint32_t)n_read : 0);
    atomic_fetch_add(&service->n_served, 1u);
    return atomic_exchange(&service->wake_ns, UINT64_MAX);
}

static void service_open(struct service *service, struct hsdp_job *job)
{
    struct watchdog_service own = {.serve = service_serve, .user = service};
    struct hsdp_error err = HSDP_ERROR_INIT;

    memset(service, 0, sizeof(*service));
    atomic_store(&service->wake_ns, UINT64_MAX);
    ck_assert_int_eq(pipe2(service->fds, O_NONBLOCK | O_CLOEXEC), 0);
    own.fd = service->fds[0];
    status_assert(watchdog_attach(job, &own, &err), HSDP_OK, &err);
    ck_assert_int_eq(watchdog_attach(job, &own, &err), HSDP_ERR_STATE);
}

static void service_await(const _Atomic uint32_t *count, uint32_t n)
{
    while (atomic_load(count) < n) {
        ranks_sleep_ms(1);
    }
}

static void serving_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct service service;
    struct listener host;
    uint32_t n_served;

    (void)rank;
    (void)shared;
    listener_open(&host);
    service_open(&service, host.job);
    service_await(&service.n_served, 1); /* at the beginning */
    ck_assert_int_eq(write(service.fds[1], "ab", 2), 2);
    service_await(&service.n_bytes, 2);
    atomic_store(&service.wake_ns, 1); /* "at once", again and again */
    n_served = atomic_load(&service.n_served);
    watchdog_wake(host.job);
    service_await(&service.n_served, n_served + 2); /* by the bell, then by its time */
    watchdog_detach(host.job);
    n_served = atomic_load(&service.n_served);
    ck_assert_int_eq(write(service.fds[1], "cd", 2), 2);
    watchdog_wake(host.job);
    ranks_sleep_ms(150);
    ck_assert_uint_eq(atomic_load(&service.n_served), n_served);
    status_assert(listener_close(&host, &err), HSDP_OK, &err);
    job_destroy(host.job);
}

START_TEST(service_is_served_until_it_is_detached)
{
    ranks_run(2, RANKS_LIMIT_MS, serving_rank, NULL);
}
END_TEST

/* It is how a failure gets to other hosts. */
static void relaying_rank(uint32_t rank, void *shared)
{
    struct service service;
    struct listener host;
    uint32_t n_served;

    (void)shared;
    listener_open(&host);
    service_open(&service, host.job);
    service_await(&service.n_served, 1);
    n_served = atomic_load(&service.n_served);
    if (rank == 0) {
        job_abort(host.job, NULL, NULL);
        service_await(&service.n_served, n_served + 1);
    }
    listener_await(&host);
    job_destroy(host.job);
    close(service.fds[0]);
    close(service.fds[1]);
}

START_TEST(service_is_served_when_the_job_has_failed)
{
    ranks_run(2, RANKS_LIMIT_MS, relaying_rank, NULL);
}
END_TEST

START_TEST(service_of_a_job_without_watchdog_is_refused)
{
    struct watchdog_service service = {.fd = -1, .serve = service_serve};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    ranks_environment_clear();
    job = test_job_open("5"); /* of one rank: nobody to watch, and no thread */
    ck_assert_int_eq(watchdog_attach(job, &service, &err), HSDP_ERR_STATE);
    watchdog_detach(job);
    ck_assert_uint_eq(thread_mask("hsdp-watchdog"), 0);
    test_job_end(job);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("watchdog_thread");
    TCase *tcase = tcase_create("watchdog_thread");

    tcase_set_timeout(tcase, 40);
    tcase_add_test(tcase, job_after_an_abort_works_in_the_same_process);
    tcase_add_test(tcase, thread_has_a_name_and_takes_no_signals);
    tcase_add_test(tcase, fork_leaves_the_child_no_descriptor);
    tcase_add_test(tcase, destroy_while_a_callback_keeps_the_thread_returns);
    tcase_add_test(tcase, destroy_in_the_callback_ends_the_thread);
    tcase_add_test(tcase, service_is_served_until_it_is_detached);
    tcase_add_test(tcase, service_is_served_when_the_job_has_failed);
    tcase_add_test(tcase, service_of_a_job_without_watchdog_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
