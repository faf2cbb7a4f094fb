/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces: that of a CPU, which is the host's memory; and what is the same in all. */
#include "device/space.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/pages.h"
#include "device/fpmode.h"

/* Sums that are only read are divided in blocks that stay in the cache. */
#define BLOCK_ELEMS 2048u

/* ---------------------------------------------------------------------------------- memory */

static void cpu_fini(struct space *space)
{
    (void)space;
}

static int32_t cpu_alloc(struct space *space, uint64_t n_bytes, const char *what, void **ret,
                         struct hsdp_error *reterr)
{
    void *base = pages_map(n_bytes == 0 ? 1 : n_bytes);

    (void)space;
    if (base == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model: no memory for %s (%" PRIu64 " bytes)",
                         what, n_bytes);
    }
    *ret = base;
    return HSDP_OK;
}

static void cpu_free(struct space *space, void *base, uint64_t n_bytes)
{
    (void)space;
    if (base != NULL) {
        munmap(base, n_bytes == 0 ? 1 : n_bytes);
    }
}

static int32_t cpu_copy(struct space *space, void *dst, const void *src, uint64_t n_bytes,
                        struct hsdp_error *reterr)
{
    (void)space;
    (void)reterr;
    if (n_bytes != 0) {
        memcpy(dst, src, n_bytes);
    }
    return HSDP_OK;
}

static int32_t cpu_zero(struct space *space, void *dst, uint64_t n_bytes, struct hsdp_error *reterr)
{
    (void)space;
    (void)reterr;
    if (n_bytes != 0) {
        memset(dst, 0, n_bytes);
    }
    return HSDP_OK;
}

/* -------------------------------------------------------------------------------- arithmetic */

static int32_t cpu_convert(struct space *space, const struct space_cast *cast,
                           struct hsdp_error *reterr)
{
    struct fp_mode mode = fp_mode_enter();

    (void)reterr;
    space->kernels->convert(cast->dst, cast->dst_dtype, cast->src, cast->src_dtype, cast->n_elems);
    fp_mode_leave(mode);
    return HSDP_OK;
}

static int32_t cpu_add(struct space *space, float *dst, const void *src, enum dtype src_dtype,
                       uint64_t n_elems, struct hsdp_error *reterr)
{
    struct fp_mode mode = fp_mode_enter();

    (void)reterr;
    space->kernels->add(dst, src, src_dtype, n_elems);
    fp_mode_leave(mode);
    return HSDP_OK;
}

static int32_t cpu_divide(struct space *space, float *values, float divisor, uint64_t n_elems,
                          struct hsdp_error *reterr)
{
    struct fp_mode mode = fp_mode_enter();

    (void)reterr;
    space->kernels->divide(values, divisor, n_elems);
    fp_mode_leave(mode);
    return HSDP_OK;
}

/* The largest quotient is that of the largest sum; NaN is above infinity as a pattern. */
static void largest_take(const struct kernels *kernels, const struct space_norm *norm)
{
    float largest = kernels->max_abs(norm->values, norm->n_elems) / norm->divisor;
    uint32_t bits;

    memcpy(&bits, &largest, sizeof(bits));
    *norm->max_bits = bits > *norm->max_bits ? bits : *norm->max_bits;
}

/* Adds the quotients to the norm, and leaves the sums. */
static void quotients_add(const struct kernels *kernels, const struct space_norm *norm)
{
    float quotients[BLOCK_ELEMS];

    for (uint64_t first = 0; first < norm->n_elems; first += BLOCK_ELEMS) {
        uint64_t n_rest = norm->n_elems - first;
        uint64_t n_block = n_rest < BLOCK_ELEMS ? n_rest : BLOCK_ELEMS;

        memcpy(quotients, norm->values + first, n_block * sizeof(*quotients));
        kernels->norm_divide_add(norm->sum, quotients, norm->divisor, n_block, norm->p);
    }
}

static int32_t cpu_norm(struct space *space, const struct space_norm *norm,
                        struct hsdp_error *reterr)
{
    const struct kernels *kernels = space->kernels;
    struct fp_mode mode = fp_mode_enter();

    (void)reterr;
    if (isinf(norm->p)) {
        largest_take(kernels, norm);
        if (norm->is_divided) {
            kernels->divide(norm->values, norm->divisor, norm->n_elems);
        }
    } else if (norm->is_divided) {
        kernels->norm_divide_add(norm->sum, norm->values, norm->divisor, norm->n_elems, norm->p);
    } else {
        quotients_add(kernels, norm);
    }
    fp_mode_leave(mode);
    return HSDP_OK;
}

static int32_t cpu_adamw(struct space *space, const struct adamw_constants *constants,
                         const struct adamw_shard *shard, const float *factor,
                         struct hsdp_error *reterr)
{
    struct fp_mode mode = fp_mode_enter();

    (void)reterr;
    space->kernels->adamw(constants, shard, *factor);
    fp_mode_leave(mode);
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------------ order */

static int32_t cpu_order(struct space *space, void *stream, struct hsdp_error *reterr)
{
    (void)space;
    (void)stream;
    (void)reterr;
    return HSDP_OK;
}

static int32_t cpu_wait(struct space *space, struct hsdp_error *reterr)
{
    (void)space;
    (void)reterr;
    return HSDP_OK;
}

static const struct space_ops cpu_ops = {
    .is_host = true,
    .fini = cpu_fini,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .read = cpu_copy,
    .write = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .convert = cpu_convert,
    .add = cpu_add,
    .divide = cpu_divide,
    .norm = cpu_norm,
    .adamw = cpu_adamw,
    .follow = cpu_order,
    .precede = cpu_order,
    .wait = cpu_wait,
};

struct space space_cpu(const struct kernels *kernels)
{
    return (struct space){.ops = &cpu_ops, .kernels = kernels};
}

/* -------------------------------------------------------------------------------- any space */

void space_fini(struct space *space)
{
    if (space->ops != NULL) {
        space->ops->fini(space);
    }
    memset(space, 0, sizeof(*space));
}

/* On the way, where bytes cannot be moved as they are. */
#define STAGE_BYTES 16384u

int32_t space_load(struct space *space, float *ret_values, const void *src, enum dtype dtype,
                   uint64_t n_elems, struct hsdp_error *reterr)
{
    struct space_cast cast = {ret_values, src, n_elems, DTYPE_FP32, dtype};
    uint64_t elem_bytes = dtype_bytes(dtype);
    uint8_t stage[STAGE_BYTES];
    int32_t status = HSDP_OK;

    if (space->ops->is_host) {
        return space->ops->convert(space, &cast, reterr);
    }
    if (dtype == DTYPE_FP32) {
        return space->ops->read(space, ret_values, src, n_elems * elem_bytes, reterr);
    }
    for (uint64_t at = 0; status == HSDP_OK && at < n_elems; at += STAGE_BYTES / elem_bytes) {
        uint64_t n_rest = n_elems - at;
        uint64_t n = n_rest < STAGE_BYTES / elem_bytes ? n_rest : STAGE_BYTES / elem_bytes;
        struct fp_mode mode = fp_mode_enter();

        status = space->ops->read(space, stage, (const uint8_t *)src + at * elem_bytes,
                                  n * elem_bytes, reterr);
        if (status == HSDP_OK) {
            space->kernels->to_fp32(ret_values + at, stage, dtype, n);
        }
        fp_mode_leave(mode);
    }
    return status;
}

int32_t space_store(struct space *space, void *dst, enum dtype dtype, const float *values,
                    uint64_t n_elems, struct hsdp_error *reterr)
{
    struct space_cast cast = {dst, values, n_elems, dtype, DTYPE_FP32};
    uint64_t elem_bytes = dtype_bytes(dtype);
    uint8_t stage[STAGE_BYTES];
    int32_t status = HSDP_OK;

    if (space->ops->is_host) {
        return space->ops->convert(space, &cast, reterr);
    }
    if (dtype == DTYPE_FP32) {
        return space->ops->write(space, dst, values, n_elems * elem_bytes, reterr);
    }
    for (uint64_t at = 0; status == HSDP_OK && at < n_elems; at += STAGE_BYTES / elem_bytes) {
        uint64_t n_rest = n_elems - at;
        uint64_t n = n_rest < STAGE_BYTES / elem_bytes ? n_rest : STAGE_BYTES / elem_bytes;
        struct fp_mode mode = fp_mode_enter();

        space->kernels->from_fp32(stage, dtype, values + at, n);
        fp_mode_leave(mode);
        status = space->ops->write(space, (uint8_t *)dst + at * elem_bytes, stage, n * elem_bytes,
                                   reterr);
    }
    return status;
}
