/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a CUDA device, from the driver or the host's allocator; giving it back in time. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "device/gpu.h"

#define ALIGN_BYTES 512u

/* How long giving back waits for work that is still going on; then it is left as it is. */
#define IDLE_WAIT_MS 2000u
#define IDLE_LOOK_NS 50000

/* ------------------------------------------------------------------------------- is it through? */

/* An error counts as the end of work: nothing comes after it. */
static bool stream_is_idle(struct gpu *gpu, cu_stream stream)
{
    return stream == NULL || gpu->cuda.stream_query(stream) != CU_ERROR_NOT_READY;
}

static bool streams_are_idle(struct gpu *gpu)
{
    bool is_idle;
    int32_t mode;

    if (gpu_visit(gpu, &mode, NULL) != HSDP_OK) {
        return true;
    }
    is_idle = stream_is_idle(gpu, gpu->unshard_stream) && stream_is_idle(gpu, gpu->reduce_stream);
    gpu_visit_end(gpu, mode);
    return is_idle;
}

bool gpu_is_idle_soon(struct gpu *gpu)
{
    const struct timespec pause = {.tv_nsec = IDLE_LOOK_NS};
    uint64_t deadline_ns = clock_deadline_ns(IDLE_WAIT_MS);

    while (!atomic_load(&gpu->is_stuck) && !streams_are_idle(gpu)) {
        if (clock_now_ns() >= deadline_ns) {
            atomic_store(&gpu->is_stuck, true); /* who comes next does not wait again */
        }
        nanosleep(&pause, NULL);
    }
    return !atomic_load(&gpu->is_stuck);
}

/* -------------------------------------------------------------------------------------- memory */

static int32_t memory_refuse(struct gpu *gpu, cu_result result, const struct gpu_memory *wanted,
                             const char *what, struct hsdp_error *reterr)
{
    const char *where = wanted->kind == HSDP_MEMORY_PINNED ? "pinned memory for" : "memory on";
    const char *call = wanted->kind == HSDP_MEMORY_PINNED ? "cuMemHostAlloc" : "cuMemAlloc";
    size_t n_free_bytes = 0;
    size_t n_total_bytes = 0;
    int32_t mode;

    if (result != CU_ERROR_OUT_OF_MEMORY) {
        return cuda_check(&gpu->cuda, result, call, what, reterr);
    }
    if (gpu_visit(gpu, &mode, NULL) == HSDP_OK) {
        gpu->cuda.memory_info(&n_free_bytes, &n_total_bytes);
        gpu_visit_end(gpu, mode);
    }
    return error_set(reterr, HSDP_ERR_NO_MEMORY,
                     "gpu: no %s device %" PRId32 " for %s: %" PRIu64 " bytes are wanted, %zu of "
                     "%zu on the device are free",
                     where, gpu->ordinal, what, wanted->n_bytes, n_free_bytes, n_total_bytes);
}

static int32_t driver_alloc(struct gpu *gpu, struct gpu_memory *memory, const char *what,
                            struct hsdp_error *reterr)
{
    cu_address address = 0;
    cu_result result;
    int32_t mode;
    int32_t status = gpu_visit(gpu, &mode, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (memory->kind == HSDP_MEMORY_PINNED) {
        result = gpu->cuda.host_alloc(&memory->base, memory->n_bytes, 0);
    } else {
        result = gpu->cuda.memory_alloc(&address, memory->n_bytes);
        memory->base = (void *)(uintptr_t)address;
    }
    gpu_visit_end(gpu, mode);
    return result == CU_OK ? HSDP_OK : memory_refuse(gpu, result, memory, what, reterr);
}

static int32_t host_alloc(struct gpu *gpu, struct gpu_memory *memory, const char *what,
                          struct hsdp_error *reterr)
{
    memory->base = gpu->allocator.alloc(gpu->allocator.user, memory->n_bytes, ALIGN_BYTES,
                                        memory->kind, gpu->reduce_stream);
    if (memory->base == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "gpu: memory_alloc of the host has no %" PRIu64 " bytes for %s (%s)",
                         memory->n_bytes, what,
                         memory->kind == HSDP_MEMORY_PINNED ? "pinned" : "device");
    }
    if ((uintptr_t)memory->base % ALIGN_BYTES != 0) {
        error_set(reterr, HSDP_ERR_INVALID,
                  "gpu: memory_alloc of the host gave %p for %s, which is not aligned to %u bytes",
                  memory->base, what, ALIGN_BYTES);
        gpu_free(gpu, memory);
        return HSDP_ERR_INVALID;
    }
    return HSDP_OK;
}

int32_t gpu_alloc(struct gpu *gpu, uint64_t n_bytes, int32_t kind, const char *what,
                  struct gpu_memory *ret, struct hsdp_error *reterr)
{
    struct gpu_memory memory = {.n_bytes = n_bytes, .kind = kind};
    int32_t status = HSDP_OK;

    if (n_bytes > 0) {
        status = gpu->allocator.alloc == NULL ? driver_alloc(gpu, &memory, what, reterr)
                                              : host_alloc(gpu, &memory, what, reterr);
    }
    if (status == HSDP_OK) {
        *ret = memory;
    }
    return status;
}

void gpu_free(struct gpu *gpu, struct gpu_memory *memory)
{
    int32_t mode;

    if (memory->base == NULL || !gpu_is_idle_soon(gpu)) {
        *memory = (struct gpu_memory){NULL, 0, 0};
        return;
    }
    if (gpu->allocator.alloc != NULL) {
        gpu->allocator.free(gpu->allocator.user, memory->base, memory->n_bytes, memory->kind,
                            gpu->reduce_stream);
    } else if (gpu_visit(gpu, &mode, NULL) == HSDP_OK) {
        if (memory->kind == HSDP_MEMORY_PINNED) {
            gpu->cuda.host_free(memory->base);
        } else {
            gpu->cuda.memory_free((cu_address)(uintptr_t)memory->base);
        }
        gpu_visit_end(gpu, mode);
    }
    *memory = (struct gpu_memory){NULL, 0, 0};
}
