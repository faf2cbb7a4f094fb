/* SPDX-License-Identifier: Apache-2.0 */
/* One CUDA device as a job uses it: context, streams, events, memory, kernels. */
#ifndef DEVICE_GPU_H
#define DEVICE_GPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/cuda.h"
#include "device/gpu_kernels.h"
#include "hsdp/job.h"

/*
 * Every function pushes the device's primary context for as long as it needs it, and leaves the
 * thread's own as it was. Functions may be called from any thread. None waits for the device but
 * those that say so.
 */
struct gpu {
    struct cuda cuda;
    cu_context context;
    cu_device device;
    int32_t ordinal;
    int32_t capability; /* 90 = sm_90 */
    uint32_t n_multiprocessors;
    cu_module module;
    cu_function kernels[GPU_N_KERNELS];
    cu_stream unshard_stream; /* gathers of parameters */
    cu_stream reduce_stream;  /* reductions, steps, and whatever else changes what a model holds */
    struct gpu_allocator {    /* the host's; NULL functions = the driver's */
        void *(*alloc)(void *user, uint64_t n_bytes, uint64_t align_bytes, int32_t kind,
                       void *stream);
        void (*free)(void *user, void *base, uint64_t n_bytes, int32_t kind, void *stream);
        void *user;
    } allocator;
    /* Work on the streams does not end, or the cleaning up of it: what it may still use is not
     * given back any more. */
    _Atomic bool is_stuck;
};

/* Memory of the device, or of the host where both reach it (kind HSDP_MEMORY_PINNED). */
struct gpu_memory {
    void *base;
    uint64_t n_bytes;
    int32_t kind;
};

/**
 * Opens device `ordinal`: context, both streams, all kernels. `library` as in cuda_load. On failure
 * nothing is left to close.
 *
 * Errors: those of cuda_load; HSDP_ERR_UNAVAILABLE for a device that is not there or that this
 * build has no code for; HSDP_ERR_DEVICE.
 */
int32_t gpu_open(const char *library, int32_t ordinal, const struct gpu_allocator *allocator,
                 struct gpu *ret, struct hsdp_error *reterr);
/**
 * Gives it back; whatever was enqueued has ended, or ends within two seconds: else streams, code
 * and context stay as they are. A zeroed struct is accepted.
 */
void gpu_close(struct gpu *gpu);

/** Around driver calls of one's own. */
int32_t gpu_enter(const struct gpu *gpu, struct hsdp_error *reterr);
void gpu_leave(const struct gpu *gpu);
/**
 * The same where a host that captures a graph, on any thread, would be disturbed: around what
 * allocates, frees, loads or asks how far the device is. A thread of ours stays in one.
 */
int32_t gpu_visit(const struct gpu *gpu, int32_t *ret_mode, struct hsdp_error *reterr);
void gpu_visit_end(const struct gpu *gpu, int32_t mode);

/** False when work on one of the two streams has not ended after two seconds; then at once. */
bool gpu_is_idle_soon(struct gpu *gpu);

/**
 * Allocates n_bytes, aligned to 512 bytes, not zeroed; of 0 bytes the base is NULL.
 *
 * Errors: HSDP_ERR_NO_MEMORY says `what` was wanted, how much, and how much was free;
 * HSDP_ERR_INVALID for memory of the host that is not aligned.
 */
int32_t gpu_alloc(struct gpu *gpu, uint64_t n_bytes, int32_t kind, const char *what,
                  struct gpu_memory *ret, struct hsdp_error *reterr);
/**
 * Gives it back; a zeroed struct is accepted. To give back is to wait for all that is on the
 * device, so this waits by itself first, up to two seconds, and else keeps the memory for good.
 */
void gpu_free(struct gpu *gpu, struct gpu_memory *memory);

/* Events without timing. */
int32_t gpu_event_create(struct gpu *gpu, cu_event *ret, struct hsdp_error *reterr);
void gpu_event_destroy(struct gpu *gpu, cu_event event);
int32_t gpu_event_record(struct gpu *gpu, cu_event event, cu_stream stream,
                         struct hsdp_error *reterr);
/** HSDP_OK when what was recorded has been reached, HSDP_PENDING before. */
int32_t gpu_event_query(struct gpu *gpu, cu_event event, struct hsdp_error *reterr);
int32_t gpu_stream_wait(struct gpu *gpu, cu_stream stream, cu_event event,
                        struct hsdp_error *reterr);

/* Nothing of 0 bytes or elements is enqueued. */

/** Enqueues a copy between any two addresses; pageable host memory may be reused at once. */
int32_t gpu_copy(struct gpu *gpu, void *dst, const void *src, uint64_t n_bytes, cu_stream stream,
                 struct hsdp_error *reterr);
int32_t gpu_fill(struct gpu *gpu, void *dst, uint8_t value, uint64_t n_bytes, cu_stream stream,
                 struct hsdp_error *reterr);

/** Enqueues a kernel over n_elems elements: its struct of arguments is read at once. */
int32_t gpu_launch(struct gpu *gpu, enum gpu_kernel kernel, const void *args, uint64_t n_elems,
                   cu_stream stream, struct hsdp_error *reterr);
/** How many blocks that takes: enough for the elements, at most what the device runs at a time. */
uint32_t gpu_grid(const struct gpu *gpu, uint64_t n_elems);

/**
 * Whether the driver works on a graph of the host's on this stream (CUDA graphs).
 */
int32_t gpu_is_capturing(struct gpu *gpu, cu_stream stream, bool *ret_is,
                         struct hsdp_error *reterr);

#endif /* DEVICE_GPU_H */
