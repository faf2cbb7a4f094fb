/* SPDX-License-Identifier: Apache-2.0 */
/* The host's collectives on devices: messages, several at once, what is refused, what differs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "device_scene.h"
#include "ranks.h"
#include "suite.h"

static const struct element fp32 = {HSDP_DTYPE_FLOAT, 32};
static const struct element int32 = {HSDP_DTYPE_INT, 32};

static uint32_t n_ranks_all; /* of the case; the ranks inherit it */

/* ------------------------------------------------------------------------------------- messages */

static struct hsdp_coll_spec message(int32_t kind, uint32_t peer, const struct hsdp_tensor *tensor)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    spec.kind = kind;
    spec.peer = peer;
    spec.input = kind == HSDP_COLL_SEND ? tensor : NULL;
    spec.output = kind == HSDP_COLL_SEND ? NULL : tensor;
    return spec;
}

/* Around a ring, with oneself, and a sum among them; then between two of the ranks alone. */
static void messages_rank(uint32_t rank, void *shared)
{
    struct scene scene;
    struct vector given, taken, own, copy, sum;
    struct hsdp_coll_spec specs[5];
    uint32_t next, last;

    (void)shared;
    scene_open(&scene, rank, n_ranks_all);
    next = (rank + 1) % scene.n_ranks;
    last = (rank + scene.n_ranks - 1) % scene.n_ranks;
    specs[0] = message(HSDP_COLL_SEND, next, vector_init(&given, int32, 33));
    specs[1] = message(HSDP_COLL_RECV, last, vector_init(&taken, int32, 33));
    specs[2] = message(HSDP_COLL_RECV, rank, vector_init(&copy, fp32, 5));
    specs[3] = message(HSDP_COLL_SEND, rank, vector_init(&own, fp32, 5));
    specs[4] = (struct hsdp_coll_spec)HSDP_COLL_SPEC_INIT;
    specs[4].kind = HSDP_COLL_ALL_REDUCE;
    specs[4].input = specs[4].output = vector_init(&sum, int32, 1);
    ((int32_t *)(void *)given.bytes)[32] = (int32_t)rank;
    ((float *)(void *)own.bytes)[4] = 2.5f;
    ((int32_t *)(void *)sum.bytes)[0] = 1;
    scene_run(&scene, specs, 5);
    ck_assert_int_eq(((int32_t *)(void *)taken.bytes)[32], (int32_t)last);
    ck_assert(((float *)(void *)copy.bytes)[4] == 2.5f);
    ck_assert_int_eq(((int32_t *)(void *)sum.bytes)[0], (int32_t)scene.n_ranks);
    if (rank < 2) {
        specs[0] = message(rank == 0 ? HSDP_COLL_SEND : HSDP_COLL_RECV, 1 - rank, &given.tensor);
        for (int i = 0; i < 6; i++) { /* more than are queued */
            scene_run(&scene, specs, 1);
        }
        ck_assert_int_eq(((int32_t *)(void *)given.bytes)[32], 0);
    }
    specs[4].kind = HSDP_COLL_BARRIER;
    specs[4].input = specs[4].output = NULL;
    scene_run(&scene, &specs[4], 1);
    free(given.bytes);
    free(taken.bytes);
    free(own.bytes);
    free(copy.bytes);
    free(sum.bytes);
    scene_close(&scene);
}

START_TEST(messages_reach_whom_they_are_for)
{
    n_ranks_all = 3;
    ranks_run(n_ranks_all, SCENE_LIMIT_MS, messages_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- refusals */

static void refuse(struct scene *scene, const struct hsdp_coll_spec *specs, uint64_t n,
                   int32_t status, const char *text)
{
    struct host *host = &scene->host;

    host_must_refuse(
        host,
        host->api->group->start(scene->group, specs, sizeof(*specs), n, NULL, NULL, &host->err),
        status, text);
}

static void refusals_rank(uint32_t rank, void *shared)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct vector vector;
    struct scene scene;

    (void)shared;
    scene_open(&scene, rank, n_ranks_all);
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = spec.output = vector_init(&vector, fp32, 4);
    refuse(&scene, &spec, 1, HSDP_ERR_INVALID, "move memory of its CUDA device");
    refuse(&scene, &spec, 0, HSDP_ERR_INVALID, "n_specs");
    vector.tensor.device_type = HSDP_DEVICE_CUDA; /* it is not touched */
    vector.tensor.dtype_code = HSDP_DTYPE_INT;
    spec.reduce = HSDP_REDUCE_MEAN;
    refuse(&scene, &spec, 1, HSDP_ERR_UNSUPPORTED, "the mean of int32 is not built");
    spec = message(HSDP_COLL_SEND, rank, &vector.tensor);
    refuse(&scene, &spec, 1, HSDP_ERR_UNSUPPORTED, "its receive");
    spec = message(HSDP_COLL_RECV, rank, &vector.tensor);
    refuse(&scene, &spec, 1, HSDP_ERR_UNSUPPORTED, "its receive");
    scene_expect_sum(&scene, 3); /* the group works on */
    free(vector.bytes);
    scene_close(&scene);
}

START_TEST(start_refuses_what_devices_cannot_do)
{
    n_ranks_all = 2;
    ranks_run(n_ranks_all, SCENE_LIMIT_MS, refusals_rank, NULL);
}
END_TEST

static void mismatch_rank(uint32_t rank, void *shared)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct scene scene;
    struct host *host = &scene.host;
    struct vector vector;
    uint64_t ticket = 0;
    int32_t status;

    (void)shared;
    scene_open(&scene, rank, n_ranks_all);
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = spec.output = vector_init(&vector, fp32, rank == 1 ? 7 : 13);
    ticket = scene_start(&scene, &spec, 1);
    status = host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err);
    if (status == HSDP_ERR_ABORTED) { /* the other one was faster */
        status = host->api->job->status(host->job, &host->err);
    }
    ck_assert_int_eq(status, HSDP_ERR_MISMATCH);
    ck_assert_msg(strstr(host->err.message, "of 7 fp32") != NULL &&
                      strstr(host->err.message, "of 13 fp32") != NULL,
                  "%s", host->err.message);
    free(vector.bytes);
    scene.host.api->group->destroy(scene.group);
    host_leave(host);
}

START_TEST(counts_that_differ_are_told_to_both)
{
    n_ranks_all = 2;
    ranks_run(n_ranks_all, SCENE_LIMIT_MS, mismatch_rank, NULL);
}
END_TEST

/* --------------------------------------------------------------------------------- many at once */

/* Groups of rows and columns, several under way in each, waited for in another order. */
static void groups_rank(uint32_t rank, void *shared)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t tickets[8];
    struct vector vectors[8];
    hsdp_group *groups[2];
    struct scene scene;
    struct host *host = &scene.host;

    (void)shared;
    devices_use(rank);
    host_join(host, rank, "dp=2,cp=2", "nccl_timeout_seconds=15");
    groups[0] = scene_group(&scene, "dp");
    groups[1] = scene_group(&scene, "cp");
    spec.kind = HSDP_COLL_ALL_REDUCE;
    for (int i = 0; i < 8; i++) {
        spec.input = spec.output = vector_init(&vectors[i], int32, 100);
        ((int32_t *)(void *)vectors[i].bytes)[99] = (int32_t)rank + i;
        scene.group = groups[i % 2];
        tickets[i] = scene_start(&scene, &spec, 1);
    }
    for (int i = 8; i-- > 0;) {
        host_must(host, host->api->job->ticket_wait(host->job, tickets[i], UINT64_MAX, &host->err));
    }
    device_land();
    for (int i = 0; i < 8; i++) {
        int32_t other = (int32_t)(i % 2 == 0 ? rank ^ 2u : rank ^ 1u);

        ck_assert_int_eq(((int32_t *)(void *)vectors[i].bytes)[99], (int32_t)rank + other + 2 * i);
        free(vectors[i].bytes);
    }
    host->api->group->destroy(groups[0]);
    host->api->group->destroy(groups[1]);
    host_close(host);
}

START_TEST(several_groups_have_collectives_under_way)
{
    n_ranks_all = 4;
    ranks_run(n_ranks_all, SCENE_LIMIT_MS, groups_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nccl_calls");
    TCase *tcase = tcase_create("nccl_calls");

    devices_need(4);
    tcase_set_timeout(tcase, 0); /* ranks have a limit of their own */
    tcase_add_test(tcase, messages_reach_whom_they_are_for);
    tcase_add_test(tcase, start_refuses_what_devices_cannot_do);
    tcase_add_test(tcase, counts_that_differ_are_told_to_both);
    tcase_add_test(tcase, several_groups_have_collectives_under_way);
    suite_add_tcase(suite, tcase);
    return suite;
}
