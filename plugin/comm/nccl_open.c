/* SPDX-License-Identifier: Apache-2.0 */
/* What connect does for a job of CUDA devices: libraries, devices, the communicator of the world.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_internal.h"

/* What ranks compare before NCCL is asked. */
struct device_card {
    struct cu_uuid uuid;
    uint64_t host;
    int32_t ordinal;
    int32_t nccl_version; /* 0 = none is loaded */
};

/* Launches are in order on the device when the host has asked NCCL for that, for all of its own. */
static bool launches_are_ordered(const struct nccl *nccl)
{
    const char *text = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");

    return nccl->version >= 22600 && text != NULL && strcmp(text, "1") == 0;
}

/* An order: the libraries and the device; whatever that may take. */
static int32_t engine_load(struct nccl_engine *engine, struct hsdp_error *reterr)
{
    struct hsdp_job *job = engine->job;
    cu_result result;
    int32_t status = gpu_open(settings_text(&job->settings, "cuda_library"), job->device_id,
                              &job->host.memory, &engine->gpu, reterr);

    if (status == HSDP_OK) {
        status = gpu_visit(&engine->gpu, &engine->capture_mode, reterr);
        engine->is_inside = status == HSDP_OK;
    }
    if (status == HSDP_OK) {
        result = engine->gpu.cuda.device_uuid(&engine->uuid, engine->gpu.device);
        status = cuda_check(&engine->gpu.cuda, result, "cuDeviceGetUuid", "the device", reterr);
    }
    if (status == HSDP_OK && job->launch.world_ranks > 1) {
        status = nccl_load(settings_text(&job->settings, "nccl_library"), &engine->nccl, reterr);
        engine->is_serial = !launches_are_ordered(&engine->nccl);
    }
    return status;
}

static uint64_t host_hash(void)
{
    char text[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file != NULL) {
        if (fgets(text, sizeof(text), file) == NULL) {
            text[0] = '\0';
        }
        fclose(file);
    }
    return text_hash(TEXT_HASH_BASIS, text);
}

static int32_t pair_check(const struct device_card *cards, uint32_t rank, uint32_t other,
                          struct hsdp_error *reterr)
{
    const struct device_card *one = &cards[rank];
    const struct device_card *two = &cards[other];
    char version[NCCL_VERSION_BYTES];
    char other_version[NCCL_VERSION_BYTES];

    if (one->host == two->host && memcmp(&one->uuid, &two->uuid, sizeof(one->uuid)) == 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "connect: rank %" PRIu32 " and rank %" PRIu32
                         " have the same device (number %" PRId32 " of rank %" PRIu32
                         "); NCCL needs one for each",
                         rank, other, two->ordinal, other);
    }
    if (one->nccl_version != two->nccl_version) {
        nccl_version_text(one->nccl_version, version);
        nccl_version_text(two->nccl_version, other_version);
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "connect: rank %" PRIu32 " has NCCL %s, rank %" PRIu32 " has %s", rank,
                         version, other, other_version);
    }
    return HSDP_OK;
}

/* All ranks see the same cards, so all refuse the same. */
static int32_t devices_compare(struct nccl_engine *engine, uint64_t deadline_ns,
                               struct hsdp_error *reterr)
{
    struct hsdp_job *job = engine->job;
    struct device_card cards[LAUNCH_MAX_RANKS];
    struct device_card mine = {.uuid = engine->uuid,
                               .host = host_hash(),
                               .ordinal = job->device_id,
                               .nccl_version = engine->nccl.version};
    const struct exchange what = {
        .operation = "connect", .mine = &mine, .n_bytes = sizeof(mine), .deadline_ns = deadline_ns};
    int32_t status = exchange_all(job, &what, cards, reterr);

    for (uint32_t rank = 1; rank < job->launch.world_ranks && status == HSDP_OK; rank++) {
        for (uint32_t other = 0; other < rank && status == HSDP_OK; other++) {
            status = pair_check(cards, other, rank, reterr);
        }
    }
    return status;
}

static int32_t world_make(struct nccl_engine *engine, uint64_t deadline_ns,
                          struct hsdp_error *reterr)
{
    uint32_t ranks[LAUNCH_MAX_RANKS];
    struct nccl_wanted wanted = {.ranks = ranks, .name = "world"};
    struct groups_call call = {.engine = engine,
                               .operation = "connect",
                               .deadline_ns = deadline_ns,
                               .wanted = &wanted,
                               .n_wanted = 1};
    struct nccl_group *world;

    wanted.n_ranks = engine->job->launch.world_ranks;
    for (uint32_t rank = 0; rank < wanted.n_ranks; rank++) {
        ranks[rank] = rank;
    }
    return groups_make(&call, &world, reterr);
}

int32_t nccl_engine_open(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct wait what = {.operation = "connect", .n_entries = 1, .deadline_ns = deadline_ns};
    struct wait_entry entry;
    struct hsdp_error err;
    int32_t status = job_check_host(job, "connect", &err);

    if (status == HSDP_OK) {
        status = wedged_check(&err);
    }
    if (status == HSDP_OK) {
        status = engine_start(job, &err);
    }
    if (status == HSDP_OK) {
        what.record = job->connecting;
        status = engine_order(job_nccl(job), engine_load, &what, &entry, &err);
    }
    status = exchange_agree_by(job, "connect", status, deadline_ns, &err);
    if (status == HSDP_OK) {
        status = devices_compare(job_nccl(job), deadline_ns, &err);
    }
    if (status == HSDP_OK) {
        status = world_make(job_nccl(job), deadline_ns, &err);
    }
    if (status != HSDP_OK && reterr != NULL) {
        *reterr = err;
    }
    return status;
}
