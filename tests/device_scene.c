/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with devices, of the doubles, and a group of all of them. */
#include "device_scene.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the environment names no doubles, the libraries of the system are meant. */
uint32_t devices_need(uint32_t n_least)
{
    const char *folder = getenv("HSDP_TEST_DOUBLES");
    const char *number = getenv("HSDP_TEST_DEVICES");
    uint32_t n_devices = number == NULL ? 8u : (uint32_t)strtoul(number, NULL, 10);
    char library[4096];

    if (folder != NULL) {
        snprintf(library, sizeof(library), "%s/libnccl.so.2", folder);
        if (access(library, R_OK) != 0) {
            printf("%s is not there\n", library);
            exit(77);
        }
        n_devices = 8;
    }
    if (n_devices < n_least) {
        printf("%u devices, where %u are needed\n", n_devices, n_least);
        exit(77);
    }
    return n_devices;
}

static void device_fail(void *user, const char *sentence)
{
    (void)user;
    ck_abort_msg("%s", sentence);
}

static char driver[4096];

/* The double of the driver, and with it that of NCCL. */
void devices_use(uint32_t rank)
{
    const char *folder = getenv("HSDP_TEST_DOUBLES");
    const char *own = getenv("HSDP_CUDA_LIBRARY");
    struct device_use use = {.library = driver, .ordinal = (int32_t)rank, .fail = device_fail};
    char library[4096];
    char reason[256] = "";

    if (folder != NULL) {
        snprintf(driver, sizeof(driver), "%s/libcuda.so.1", folder);
        snprintf(library, sizeof(library), "%s/libnccl.so.2", folder);
        setenv("HSDP_CUDA_LIBRARY", driver, 1);
        setenv("HSDP_NCCL_LIBRARY", library, 1);
    } else {
        snprintf(driver, sizeof(driver), "%s", own == NULL ? "libcuda.so.1" : own);
    }
    device_use(&use);
    ck_assert_msg(device_open(reason, sizeof(reason)), "%s", reason);
}

hsdp_group *scene_group(struct scene *scene, const char *selector)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct host *host = &scene->host;
    hsdp_group *group = NULL;

    spec.selector = selector;
    host_must(host, host->api->group->create(host->job, host->mesh, &spec, &group, &host->err));
    host_must(host, host->api->group->connect(host->job, &host->err));
    return group;
}

void scene_open(struct scene *scene, uint32_t rank, uint32_t n_ranks)
{
    char dims[32];

    devices_use(rank);
    snprintf(dims, sizeof(dims), "dp=%u", (unsigned)n_ranks);
    host_join(&scene->host, rank, dims, "nccl_timeout_seconds=40");
    scene->group = scene_group(scene, "dp");
    scene->n_ranks = n_ranks;
    scene->rank = rank;
}

void scene_close(struct scene *scene)
{
    scene->host.api->group->destroy(scene->group);
    host_close(&scene->host);
}

uint64_t scene_start(struct scene *scene, const struct hsdp_coll_spec *specs, uint64_t n)
{
    struct host *host = &scene->host;
    uint64_t ticket = 0;

    specs = device_specs(specs, sizeof(*specs), n);
    host_must(host, host->api->group->start(scene->group, specs, sizeof(*specs), n, NULL, &ticket,
                                            &host->err));
    return ticket;
}

void scene_run(struct scene *scene, const struct hsdp_coll_spec *specs, uint64_t n)
{
    struct host *host = &scene->host;
    uint64_t ticket = scene_start(scene, specs, n);

    host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
    device_land();
}

struct hsdp_tensor *vector_init(struct vector *vector, struct element element, uint64_t n_elems)
{
    memset(vector, 0, sizeof(*vector));
    vector->bytes = calloc((n_elems + 1) * element_bytes(element), 1);
    vector->element = element;
    vector->n_elems = (int64_t)n_elems;
    vector->tensor.base = vector->bytes;
    vector->tensor.device_type = HSDP_DEVICE_CPU;
    vector->tensor.n_dims = 1;
    vector->tensor.shape = &vector->n_elems;
    vector->tensor.dtype_code = element.code;
    vector->tensor.dtype_bits = element.bits;
    vector->tensor.dtype_lanes = 1;
    return &vector->tensor;
}

void scene_expect_sum(struct scene *scene, uint64_t n_elems)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct vector vector;
    float *values;

    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = spec.output =
        vector_init(&vector, (struct element){HSDP_DTYPE_FLOAT, 32}, n_elems);
    values = (float *)(void *)vector.bytes;
    for (uint64_t i = 0; i < n_elems; i++) {
        values[i] = 1.0f;
    }
    scene_run(scene, &spec, 1);
    for (uint64_t i = 0; i < n_elems; i++) {
        ck_assert(values[i] == (float)scene->n_ranks);
    }
    free(vector.bytes);
}
