/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that fail, each in turn: the call says so or does without, and the next one works. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "abi_host.h"
#include "comm/job_internal.h"
#include "comm/standstill.h"
#include "faults/inject.h"
#include "jobs.h"
#include "node_ranks.h"
#include "ranks.h"
#include "suite.h"

#define MAX_ALLOCATIONS 10000u

/* One call that makes something, and gives it back at once; no allocation fails afterwards. */
typedef int32_t (*making)(const struct abi_host *host, struct hsdp_error *err);

static int32_t job_make(const struct abi_host *host, struct hsdp_error *err)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    hsdp_job *job = NULL;
    int32_t status;

    spec.world_ranks = 6;
    spec.local_ranks = 6;
    status = host->api->job->create(&spec, &job, err);
    inject_disarm();
    host->api->job->destroy(job);
    return status;
}

static int32_t group_make(const struct abi_host *host, struct hsdp_error *err)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    hsdp_group *group = NULL;
    int32_t status;

    spec.selector = "dp";
    status = host->api->group->create(host->job, host->mesh, &spec, &group, err);
    inject_disarm();
    host->api->group->destroy(group);
    return status;
}

static int32_t model_make(const struct abi_host *host, struct hsdp_error *err)
{
    hsdp_model *model = NULL;
    int32_t status = host->api->model->create(host->job, host->plan, &model, err);

    inject_disarm();
    host->api->model->destroy(model);
    return status;
}

static const making makings[] = {job_make, group_make, model_make};

/* Fails the first allocation, then the second, ..., until none is left that could fail. */
static void each_expect(const struct abi_host *host, making make, enum inject_what what,
                        bool is_lasting)
{
    uint32_t nth = 1;
    uint32_t n_failed = 1;
    uint32_t n_refused = 0;

    while (n_failed > 0) {
        struct hsdp_error err = HSDP_ERROR_INIT;
        int32_t status;

        ck_assert_uint_lt(nth, MAX_ALLOCATIONS);
        inject_arm(what, nth++, is_lasting);
        status = make(host, &err);
        n_failed = inject_n_failed();
        n_refused += status != HSDP_OK;
        ck_assert_msg(status == HSDP_OK || (n_failed > 0 && status == HSDP_ERR_NO_MEMORY),
                      "allocation %u: status %d: %s", nth - 1, (int)status, err.message);
        ck_assert((err.message[0] != '\0') == (status != HSDP_OK));
    }
    ck_assert_uint_gt(n_refused, 0);
}

/* The number of the test says what is made and whether all fail from there on. */
START_TEST(create_with_any_allocation_failing_says_no_memory)
{
    struct abi_host host;

    abi_host_init(&host);
    setenv("HSDP_RUN_ID", "no memory", 1);
    if (inject_is_possible(INJECT_MEMORY)) {
        each_expect(&host, makings[_i / 2], INJECT_MEMORY, _i % 2 == 1);
    }
    abi_host_fini(&host);
}
END_TEST

/* ------------------------------------------------------------------------- nodes that meet */

struct meeting_case {
    struct nodes_case nodes;
    uint32_t nth;             /* the allocation of the root that fails */
    struct hsdp_job *jobs[2]; /* each seen by its own rank */
    _Atomic uint32_t n_failed;
    _Atomic uint32_t is_over;
};

/* Until rank 0 is over with it, rank 1 is to be found; from then on it need not look any more. */
static void *end_abort(void *user)
{
    struct meeting_case *meeting = user;

    while (atomic_load(&meeting->is_over) == 0) {
        ranks_sleep_ms(1);
    }
    job_abort(meeting->jobs[1], NULL, NULL);
    return NULL;
}

static void looking_rank(struct meeting_case *meeting)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, end_abort, meeting), 0);
    job_connect(meeting->jobs[1], &err);
    pthread_join(thread, NULL);
}

static void meeting_rank(uint32_t rank, void *shared)
{
    struct meeting_case *meeting = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    int32_t status;

    node_ranks_environment(&meeting->nodes, rank);
    job = test_job_create("2");
    meeting->jobs[rank] = job;
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    if (rank == 1) {
        looking_rank(meeting);
    } else {
        inject_arm(INJECT_MEMORY, meeting->nth, false);
        status = job_connect(job, &err);
        inject_disarm();
        atomic_store(&meeting->n_failed, inject_n_failed());
        atomic_store(&meeting->is_over, 1u);
        ck_assert_msg(status != HSDP_ERR_TIMEOUT, "allocation %u: %s", meeting->nth, err.message);
    }
    test_job_drop(job);
}

/* Whoever has been let in does not come again: the root may not just forget it. */
START_TEST(connect_of_nodes_with_any_allocation_failing_is_never_a_timeout)
{
    struct meeting_case *meeting = ranks_memory(sizeof(*meeting));

    meeting->n_failed = inject_is_possible(INJECT_MEMORY);
    while (meeting->n_failed > 0) {
        meeting->nth++;
        meeting->nodes = (struct nodes_case){.sizes = "1,1", .port = node_ranks_port()};
        atomic_store(&meeting->is_over, 0u);
        ranks_run(2, RANKS_LIMIT_MS, meeting_rank, meeting);
    }
}
END_TEST

/* ---------------------------------------------------------- connect waits to tell its peers so */

#define LATE_MS 300u

/* What is missing here is what ranks wait for, as after that allocation has failed. */
static void unseeing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job;

    (void)shared;
    job = test_job_open("30");
    if (rank == 0) {
        standstill_fini(job);
    } else {
        ranks_sleep_ms(LATE_MS);
    }
    test_job_end(job);
}

START_TEST(a_rank_without_memory_for_what_ranks_wait_for_waits_for_a_late_peer)
{
    ranks_run(2, RANKS_LIMIT_MS, unseeing_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("no_memory");
    TCase *tcase = tcase_create("create");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, create_with_any_allocation_failing_says_no_memory, 0,
                        2 * N_OF(makings));
    tcase_add_test(tcase, connect_of_nodes_with_any_allocation_failing_is_never_a_timeout);
    tcase_add_test(tcase, a_rank_without_memory_for_what_ranks_wait_for_waits_for_a_late_peer);
    suite_add_tcase(suite, tcase);
    return suite;
}
