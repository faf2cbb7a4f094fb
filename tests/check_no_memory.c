/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that fail, each in turn: the call says so or does without, and the next one works. */
#include <check.h>
#include <stdlib.h>

#include "abi_host.h"
#include "faults/inject.h"
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

Suite *module_suite(void)
{
    Suite *suite = suite_create("no_memory");
    TCase *tcase = tcase_create("create");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, create_with_any_allocation_failing_says_no_memory, 0,
                        2 * N_OF(makings));
    suite_add_tcase(suite, tcase);
    return suite;
}
