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
 * In the space of a CPU everything is done when a call returns, in the arithmetic that
 * fp_mode_enter sets. In that of a CUDA device calls enqueue on one stream, gpu->reduce_stream, and
 * return; what is done there is done in order. A caller sees to it that no task of the NCCL thread
 * that uses this stream is waiting to be issued.
 */
struct space {
    const struct space_ops *ops;
    const struct kernels *kernels; /* of the CPU */
    struct gpu *gpu;               /* NULL of a CPU */
    /* The rest of a device only. What norms are added to, for the step that is about to begin: */
    struct gpu_norm *norm;
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

/* dst = src, rounded once if dst is narrower. */
struct space_cast {
    void *dst;
    const void *src;
    uint64_t n_elems;
    enum dtype dst_dtype;
    enum dtype src_dtype;
};

/* What a norm is taken of. */
struct space_norm {
    float *values; /* in the space */
    uint64_t n_elems;
    double p;             /* infinity: the largest */
    float divisor;        /* of the values; 1 = none */
    bool is_divided;      /* they become the quotients; else they stay */
    struct norm_sum *sum; /* of a CPU: what is added to, or of which the maximum is taken; these */
    uint64_t *max_bits;   /* are bits of an fp32. A device adds to space->norm */
};

struct space_ops {
    bool is_host; /* the host's thread may touch what lies there */

    void (*fini)(struct space *space);

    /* Zero-filled when it returns; free accepts NULL. An error says what it was for. */
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
    int32_t (*convert)(struct space *space, const struct space_cast *cast,
                       struct hsdp_error *reterr);
    int32_t (*add)(struct space *space, float *dst, const void *src, enum dtype src_dtype,
                   uint64_t n_elems, struct hsdp_error *reterr);
    int32_t (*divide)(struct space *space, float *values, float divisor, uint64_t n_elems,
                      struct hsdp_error *reterr);

    /* Adds |value / divisor|^p of all values to a sum, exactly. */
    int32_t (*norm)(struct space *space, const struct space_norm *norm, struct hsdp_error *reterr);

    /* One update. All addresses are of the space: also that of the factor, and of the copies, of
     * which a device makes at most one. */
    int32_t (*adamw)(struct space *space, const struct adamw_constants *constants,
                     const struct adamw_shard *shard, const float *factor,
                     struct hsdp_error *reterr);

    /* What the host has put on a stream of its own happens before what follows here; and what is
     * here so far before what the host will put there. On a CPU neither does anything. */
    int32_t (*follow)(struct space *space, void *stream, struct hsdp_error *reterr);
    int32_t (*precede)(struct space *space, void *stream, struct hsdp_error *reterr);

    /* Waits on the host until all that is here so far is done. */
    int32_t (*wait)(struct space *space, struct hsdp_error *reterr);
};

/** The space of a CPU. */
struct space space_cpu(const struct kernels *kernels);
/** That of a device; owned by the job, for which it allocates little. */
int32_t space_cuda(struct gpu *gpu, const struct kernels *kernels,
                   const struct space_patience *patience, struct space *ret,
                   struct hsdp_error *reterr);
/** Accepts a zeroed struct. */
void space_fini(struct space *space);

/** To fp32 in the host's memory, and from there, rounded; as read and write. */
int32_t space_load(struct space *space, float *ret_values, const void *src, enum dtype dtype,
                   uint64_t n_elems, struct hsdp_error *reterr);
int32_t space_store(struct space *space, void *dst, enum dtype dtype, const float *values,
                    uint64_t n_elems, struct hsdp_error *reterr);

#endif /* DEVICE_SPACE_H */
