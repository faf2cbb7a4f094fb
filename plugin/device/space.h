/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces: where a model's buffers lie, and what is done to them there. */
#ifndef DEVICE_SPACE_H
#define DEVICE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/adamw.h"
#include "device/gpu.h"
#include "device/kernels.h"

/*
 * In the space of a CPU everything is done when a call returns. In that of a CUDA device calls
 * enqueue on one stream, gpu->reduce_stream, and return; what is done there is done in order. A
 * caller sees to it that no task of the NCCL thread that uses this stream is waiting to be issued.
 */
struct space {
    const struct space_ops *ops;
    const struct kernels *kernels; /* of the CPU */
    struct gpu *gpu;               /* NULL of a CPU */
    /* Of a device only, and there: what space_norm adds to; where a step's norm and factor are. */
    struct gpu_norm *norm;
    float *view;
    struct space_bounce *bounce; /* private to the space of a device */
};

/*
 * How long a host's thread waits for a device: look is called again and again meanwhile, and what
 * it returns but HSDP_OK ends the wait. It has to come to an end.
 */
struct space_patience {
    int32_t (*look)(void *user, uint64_t waited_ns, struct hsdp_error *reterr);
    void *user;
};

struct space_ops {
    bool is_host; /* the host's thread may touch what lies there */

    /* Zero-filled; free accepts NULL. `what` is for errors. */
    int32_t (*alloc)(struct space *space, uint64_t n_bytes, const char *what, void **ret,
                     struct hsdp_error *reterr);
    void (*free)(struct space *space, void *base, uint64_t n_bytes);

    /* Between the host's memory and the space: both sides may be used when they return. */
    int32_t (*read)(struct space *space, void *host, const void *src, uint64_t n_bytes,
                    struct hsdp_error *reterr);
    int32_t (*write)(struct space *space, void *dst, const void *host, uint64_t n_bytes,
                     struct hsdp_error *reterr);

    int32_t (*copy)(struct space *space, void *dst, const void *src, uint64_t n_bytes,
                    struct hsdp_error *reterr);
    int32_t (*zero)(struct space *space, void *dst, uint64_t n_bytes, struct hsdp_error *reterr);
    int32_t (*convert)(struct space *space, void *dst, enum dtype dst_dtype, const void *src,
                       enum dtype src_dtype, uint64_t n_elems, struct hsdp_error *reterr);
    int32_t (*add)(struct space *space, float *dst, const void *src, enum dtype src_dtype,
                   uint64_t n_elems, struct hsdp_error *reterr);
    int32_t (*divide)(struct space *space, float *values, float divisor, uint64_t n_elems,
                      struct hsdp_error *reterr);

    /* What the host has put on a stream of its own happens before what follows here; and the other
     * way round. On a CPU neither does anything. */
    int32_t (*follow)(struct space *space, void *stream, struct hsdp_error *reterr);
    int32_t (*precede)(struct space *space, void *stream, struct hsdp_error *reterr);
};

/** The space of a CPU. */
struct space space_cpu(const struct kernels *kernels);
/**
 * That of a device; owned by the job, for which it allocates little. Of the calls, read and write
 * wait for the device, on the host.
 */
int32_t space_cuda(struct gpu *gpu, const struct kernels *kernels,
                   const struct space_patience *patience, struct space *ret,
                   struct hsdp_error *reterr);
void space_fini(struct space *space);
void space_cuda_fini(struct space *space); /* its part of that; accepts one of a CPU */

#endif /* DEVICE_SPACE_H */
