/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: what it tells of deaths and failures to hosts that compute. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "jobs.h"
#include "listener.h"
#include "ranks.h"
#include "suite.h"

static void message_assert(const struct hsdp_error *err, const char *part)
{
    ck_assert_msg(strstr(err->message, part) != NULL, "no '%s' in: %s", part, err->message);
}

/* -------------------------------------------------------------------------------------- deaths */

/* Rank 1 ends; the others make no call, and hear of it. */
static void mourning_rank(uint32_t rank, void (*end)(void), const char *how)
{
    struct listener host;

    listener_open(&host);
    if (rank == 1) {
        end();
    }
    listener_await(&host);
    ck_assert_int_ne(host.thread, gettid());
    ck_assert_uint_eq(host.reason.n_missing_ranks, 1);
    ck_assert_uint_eq(host.reason.missing_ranks[0], 1);
    listener_expect(&host, HSDP_ERR_PEER_LOST, how);
    job_destroy(host.job);
}

static void end_by_kill(void)
{
    raise(SIGKILL);
}

static void killed_rank(uint32_t rank, void *shared)
{
    (void)shared;
    mourning_rank(rank, end_by_kill, "peer lost: rank 1 died");
}

START_TEST(death_of_a_rank_is_told_to_hosts_that_compute)
{
    struct ranks ranks;

    ranks_start(&ranks, 3, RANKS_LIMIT_MS, killed_rank, NULL);
    ranks.expected_signal[1] = SIGKILL;
    ranks_wait(&ranks);
}
END_TEST

static void end_by_exit(void)
{
    _exit(0);
}

static void exiting_rank(uint32_t rank, void *shared)
{
    (void)shared;
    mourning_rank(rank, end_by_exit, "peer lost: rank 1 died");
}

START_TEST(exit_without_close_or_destroy_is_a_loss)
{
    ranks_run(3, RANKS_LIMIT_MS, exiting_rank, NULL);
}
END_TEST

/* The process lives on, and its number, too; but it is another program. */
static void end_by_exec(void)
{
    execl("/bin/sleep", "sleep", "2", (char *)NULL);
    _exit(1);
}

static void changing_rank(uint32_t rank, void *shared)
{
    (void)shared;
    mourning_rank(rank, end_by_exec, "peer lost: rank 1 closed the connection to rank 0");
}

START_TEST(exec_of_another_program_is_a_loss)
{
    ranks_run(3, RANKS_LIMIT_MS, changing_rank, NULL);
}
END_TEST

/* A child that outlives the rank holds none of its connections. */
static void end_with_a_child(void)
{
    if (fork() == 0) {
        ranks_sleep_ms(2000);
        _exit(0);
    }
    raise(SIGKILL);
}

static void parent_rank(uint32_t rank, void *shared)
{
    (void)shared;
    mourning_rank(rank, end_with_a_child, "peer lost: rank 1 died");
}

START_TEST(death_of_a_rank_whose_child_lives_on_is_told)
{
    struct ranks ranks;

    ranks_start(&ranks, 3, RANKS_LIMIT_MS, parent_rank, NULL);
    ranks.expected_signal[1] = SIGKILL;
    ranks_wait(&ranks);
}
END_TEST

static void parting_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener host;

    (void)shared;
    listener_open(&host);
    status_assert(listener_close(&host, &err), HSDP_OK, &err);
    if (rank == 1) {
        _exit(0);
    }
    ranks_sleep_ms(400);
    ck_assert_int_eq(job_status(host.job, &err), HSDP_OK);
    ck_assert_uint_eq(atomic_load(&host.n_told), 0);
    job_destroy(host.job);
}

START_TEST(exit_after_close_is_no_loss)
{
    ranks_run(3, RANKS_LIMIT_MS, parting_rank, NULL);
}
END_TEST

static void leaving_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_done = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener host;

    listener_open(&host);
    if (rank == 1) {
        job_destroy(host.job);
        return;
    }
    ranks_sleep_ms(400);
    ck_assert_int_eq(job_status(host.job, &err), HSDP_OK);
    ranks_meet(n_done, 2);
    job_destroy(host.job);
}

START_TEST(exit_after_destroy_is_no_loss_while_nobody_waits)
{
    ranks_run(3, RANKS_LIMIT_MS, leaving_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

/* The call that waits knows the operation: it goes first. */
static void waiting_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener host;
    uint64_t all[3];

    (void)shared;
    listener_open(&host);
    if (rank == 1) {
        ranks_sleep_ms(100);
        raise(SIGKILL);
    }
    ck_assert_int_eq(job_enter(host.job, &err), HSDP_OK);
    status_assert(job_exchange(host.job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_PEER_LOST,
                  &err);
    message_assert(&err, "test: peer lost: rank 1 died");
    job_leave(host.job);
    listener_await(&host);
    listener_expect(&host, HSDP_ERR_PEER_LOST, "test: peer lost: rank 1 died");
    job_destroy(host.job);
}

START_TEST(death_of_a_rank_is_judged_by_the_call_that_waits)
{
    struct ranks ranks;

    ranks_start(&ranks, 3, RANKS_LIMIT_MS, waiting_rank, NULL);
    ranks.expected_signal[1] = SIGKILL;
    ranks_wait(&ranks);
}
END_TEST

/* ------------------------------------------------------------------------------------ failures */

static void aborting_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_done = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener host;

    listener_open(&host);
    if (rank == 0) {
        ck_assert_int_eq(job_abort(host.job, "enough", &err), HSDP_OK);
    }
    listener_await(&host); /* by the thread that aborts, or by the watchdog's, whichever is first */
    listener_expect(&host, HSDP_ERR_ABORTED, "enough");
    ranks_meet(n_done, 3);
    job_destroy(host.job);
}

START_TEST(abort_by_one_rank_is_told_to_hosts_that_compute)
{
    ranks_run(3, RANKS_LIMIT_MS, aborting_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

static void closed_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener host;

    (void)rank;
    (void)shared;
    listener_open(&host);
    status_assert(listener_close(&host, &err), HSDP_OK, &err);
    ck_assert_int_eq(job_abort(host.job, "too late", &err), HSDP_OK);
    ck_assert_int_eq(job_status(host.job, &err), HSDP_OK);
    ck_assert_uint_eq(atomic_load(&host.n_told), 0);
    job_destroy(host.job);
}

START_TEST(abort_of_a_closed_job_changes_nothing)
{
    ranks_run(2, RANKS_LIMIT_MS, closed_rank, NULL);
}
END_TEST

static void two_jobs_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct listener hosts[2];

    (void)shared;
    memset(hosts, 0, sizeof(hosts));
    for (int i = 0; i < 2; i++) {
        listener_create(&hosts[i], i == 0 ? "one" : "two");
        status_assert(job_enter(hosts[i].job, &err), HSDP_OK, &err);
        status_assert(job_connect(hosts[i].job, &err), HSDP_OK, &err);
        job_leave(hosts[i].job);
    }
    if (rank == 1) {
        job_abort(hosts[0].job, "the first", &err);
    }
    listener_await(&hosts[0]);
    ranks_sleep_ms(200);
    ck_assert_uint_eq(atomic_load(&hosts[1].n_told), 0);
    status_assert(listener_close(&hosts[1], &err), HSDP_OK, &err);
    job_destroy(hosts[0].job);
    job_destroy(hosts[1].job);
}

START_TEST(failure_of_one_job_leaves_another_alone)
{
    ranks_run(2, RANKS_LIMIT_MS, two_jobs_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("watchdog");
    TCase *tcase = tcase_create("watchdog");

    tcase_set_timeout(tcase, 40);
    tcase_add_test(tcase, death_of_a_rank_is_told_to_hosts_that_compute);
    tcase_add_test(tcase, exit_without_close_or_destroy_is_a_loss);
    tcase_add_test(tcase, exec_of_another_program_is_a_loss);
    tcase_add_test(tcase, death_of_a_rank_whose_child_lives_on_is_told);
    tcase_add_test(tcase, exit_after_close_is_no_loss);
    tcase_add_test(tcase, exit_after_destroy_is_no_loss_while_nobody_waits);
    tcase_add_test(tcase, death_of_a_rank_is_judged_by_the_call_that_waits);
    tcase_add_test(tcase, abort_by_one_rank_is_told_to_hosts_that_compute);
    tcase_add_test(tcase, abort_of_a_closed_job_changes_nothing);
    tcase_add_test(tcase, failure_of_one_job_leaves_another_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
