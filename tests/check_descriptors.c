/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors run out on the leader of a host while ranks come: it is named, and why, at once. */
#include <check.h>
#include <string.h>
#include <sys/resource.h>

#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS 8u
#define N_SPARE 7u /* enough for the leader itself, not for one of each other rank as well */

static void descriptors_leave(uint32_t n_spare)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = ranks_n_descriptors() + n_spare;
    limit.rlim_max = limit.rlim_cur;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void poor_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_create("15");

    (void)shared;
    if (rank == 0) {
        descriptors_leave(N_SPARE);
    }
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_connect(job, &err), HSDP_ERR_UNAVAILABLE, &err);
    ck_assert_msg(strstr(err.message, "rank 0 has no descriptor left for the 7 other") != NULL,
                  "%s", err.message);
    test_job_drop(job);
}

START_TEST(job_connect_without_descriptors_on_the_leader_is_refused_on_all)
{
    ranks_run(N_RANKS, 10000, poor_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *tcase = tcase_create("descriptors");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, job_connect_without_descriptors_on_the_leader_is_refused_on_all);
    suite_add_tcase(suite, tcase);
    return suite;
}
