/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of one dtype, in the host's memory or in a space, copied from one to the other. */
#include "shard/elems.h"

#include "device/cast.h"
#include "device/fpmode.h"
#include "device/space.h"

#define BLOCK_ELEMS 4096u

static void *elems_at(struct elems run, uint64_t elem)
{
    return (uint8_t *)run.base + elem * dtype_bytes(run.dtype);
}

/* All of it in fp32 from or to the host's memory. */
static int32_t elems_load(float *values, struct elems src, uint64_t at, uint64_t n_elems,
                          struct hsdp_error *reterr)
{
    if (src.space != NULL) {
        return space_load(src.space, values, elems_at(src, at), src.dtype, n_elems, reterr);
    }
    cast_to_fp32(values, elems_at(src, at), src.dtype, n_elems);
    return HSDP_OK;
}

static int32_t elems_store(struct elems dst, uint64_t at, const float *values, uint64_t n_elems,
                           struct hsdp_error *reterr)
{
    if (dst.space != NULL) {
        return space_store(dst.space, elems_at(dst, at), dst.dtype, values, n_elems, reterr);
    }
    cast_from_fp32(elems_at(dst, at), dst.dtype, values, n_elems);
    return HSDP_OK;
}

/* Through blocks of fp32: any dtype and place on either side. */
static int32_t blocks_copy(struct elems dst, uint64_t dst_at, struct elems src, uint64_t src_at,
                           uint64_t n_elems, struct hsdp_error *reterr)
{
    struct fp_mode mode = fp_mode_enter();
    float block[BLOCK_ELEMS];
    int32_t status = HSDP_OK;

    for (uint64_t at = 0; status == HSDP_OK && at < n_elems; at += BLOCK_ELEMS) {
        uint64_t n = n_elems - at < BLOCK_ELEMS ? n_elems - at : BLOCK_ELEMS;

        status = elems_load(block, src, src_at + at, n, reterr);
        if (status == HSDP_OK) {
            status = elems_store(dst, dst_at + at, block, n, reterr);
        }
    }
    fp_mode_leave(mode);
    return status;
}

int32_t elems_copy(struct elems dst, uint64_t dst_at, struct elems src, uint64_t src_at,
                   uint64_t n_elems, struct hsdp_error *reterr)
{
    void *to = elems_at(dst, dst_at);
    const void *from = elems_at(src, src_at);
    struct space_cast cast = {to, from, n_elems, dst.dtype, src.dtype};

    if (dst.space != NULL && src.space != NULL) {
        return dst.space->ops->convert(dst.space, &cast, reterr);
    }
    if (dst.space != NULL && dst.dtype == src.dtype) {
        return dst.space->ops->write(dst.space, to, from, n_elems * dtype_bytes(dst.dtype), reterr);
    }
    if (src.space != NULL && dst.dtype == src.dtype) {
        return src.space->ops->read(src.space, to, from, n_elems * dtype_bytes(src.dtype), reterr);
    }
    if (dst.space != NULL && src.dtype == DTYPE_FP32) {
        return space_store(dst.space, to, dst.dtype, from, n_elems, reterr);
    }
    if (src.space != NULL && dst.dtype == DTYPE_FP32) {
        return space_load(src.space, to, from, src.dtype, n_elems, reterr);
    }
    return blocks_copy(dst, dst_at, src, src_at, n_elems, reterr);
}
