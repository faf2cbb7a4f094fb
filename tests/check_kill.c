/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed at some moment, whichever it is: every survivor names it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS  4u
#define N_TRIALS 30

/* Runs collectives of all sizes until the job fails. */
static int32_t collectives_run(struct hsdp_job *job, struct hsdp_group *group,
                               struct hsdp_error *err)
{
    static float values[50000];
    struct hsdp_tensor tensor = {.base = values, .device_type = HSDP_DEVICE_CPU, .n_dims = 1};
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    int64_t shape = 1;
    uint64_t ticket;
    int32_t status = HSDP_OK;

    tensor.dtype_code = HSDP_DTYPE_FLOAT;
    tensor.dtype_bits = 32;
    tensor.dtype_lanes = 1;
    tensor.shape = &shape;
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = &tensor;
    spec.output = &tensor;
    while (status == HSDP_OK) {
        status = group_start(group, &spec, 1, NULL, &ticket, err);
        if (status == HSDP_OK) {
            status = job_ticket_wait(job, ticket, UINT64_MAX, err);
        }
        shape = shape * 7 % 49999;
    }
    return status;
}

struct trial {
    uint32_t victim;
    uint32_t reserved;
};

static void survivor_rank(uint32_t rank, void *shared)
{
    struct trial *trial = shared;
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_create("1");
    struct hsdp_group *group = NULL;
    struct hsdp_mesh *mesh;
    int32_t status;

    (void)rank;
    spec.selector = "dp";
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status = job_connect(job, &err);
    if (status == HSDP_OK) {
        mesh = test_mesh(job);
        status_assert(group_create(job, mesh, &spec, &group, &err), HSDP_OK, &err);
        mesh_destroy(mesh);
        status = group_connect(job, &err);
    }
    if (status == HSDP_OK) {
        status = collectives_run(job, group, &err);
    }
    ck_assert_msg(err.n_missing_ranks == 1, "%s", err.message);
    if (status == HSDP_ERR_TIMEOUT) { /* killed, or this rank came, when nobody met any more */
        ck_assert_str_eq(err.operation, "connect");
        ck_assert(err.missing_ranks[0] == trial->victim || err.missing_ranks[0] == 0);
    } else {
        status_assert(status, HSDP_ERR_PEER_LOST, &err);
        ck_assert_uint_eq(err.missing_ranks[0], trial->victim);
    }
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(survivors_of_a_kill_at_any_moment_name_it)
{
    struct trial *trial = ranks_memory(sizeof(*trial));
    struct ranks ranks;

    srand(1000u + (unsigned)_i);
    trial->victim = (uint32_t)rand() % N_RANKS;
    ranks_start(&ranks, N_RANKS, 10000, survivor_rank, trial);
    ranks_sleep_ms((uint32_t)rand() % 25u);
    ranks_kill(&ranks, trial->victim);
    ranks_wait(&ranks);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("kill");
    TCase *tcase = tcase_create("kill");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, survivors_of_a_kill_at_any_moment_name_it, 0, N_TRIALS);
    suite_add_tcase(suite, tcase);
    return suite;
}
