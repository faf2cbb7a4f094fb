/* SPDX-License-Identifier: Apache-2.0 */
/* The space of a CUDA device: everything is enqueued on the reduce stream, in order. */
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "device/space.h"

/* Between the host and the device go chunks, of which one is copied while another is on its way. */
#define CHUNK_BYTES (UINT64_C(1) << 21)
#define N_CHUNKS    2u

#define SPIN_LOOKS   64u /* before a wait sleeps between its looks */
#define LOOK_WAIT_NS 20000

struct chunk {
    unsigned char *base; /* pinned */
    cu_event done;       /* when the device is through with it */
    bool is_under_way;
};

struct space_bounce {
    struct space_patience patience;
    struct gpu_memory pinned;
    struct gpu_memory norm; /* of the space */
    struct chunk chunks[N_CHUNKS];
    cu_event order; /* between the reduce stream and the host's */
};

/* ------------------------------------------------------------------------------------- waiting */

static int32_t event_await(struct space *space, cu_event event, struct hsdp_error *reterr)
{
    const struct space_patience *patience = &space->bounce->patience;
    const struct timespec pause = {.tv_nsec = LOOK_WAIT_NS};
    uint64_t start_ns = clock_now_ns();
    int32_t status = HSDP_PENDING;

    for (uint32_t n_looks = 0; status == HSDP_PENDING; n_looks++) {
        status = gpu_event_query(space->gpu, event, reterr);
        if (status != HSDP_PENDING) {
            return status;
        }
        if (n_looks < SPIN_LOOKS) {
            sched_yield();
        } else {
            nanosleep(&pause, NULL);
        }
        status = patience->look(patience->user, clock_now_ns() - start_ns, reterr);
        status = status == HSDP_OK ? HSDP_PENDING : status;
    }
    return status;
}

static int32_t chunk_await(struct space *space, struct chunk *chunk, struct hsdp_error *reterr)
{
    int32_t status = chunk->is_under_way ? event_await(space, chunk->done, reterr) : HSDP_OK;

    chunk->is_under_way = chunk->is_under_way && status != HSDP_OK;
    return status;
}

static int32_t cuda_wait(struct space *space, struct hsdp_error *reterr)
{
    int32_t status =
        gpu_event_record(space->gpu, space->bounce->order, space->gpu->reduce_stream, reterr);

    return status == HSDP_OK ? event_await(space, space->bounce->order, reterr) : status;
}

static int32_t chunk_send(struct space *space, struct chunk *chunk, void *dst, const void *src,
                          uint64_t n_bytes, struct hsdp_error *reterr)
{
    cu_stream stream = space->gpu->reduce_stream;
    int32_t status = gpu_copy(space->gpu, dst, src, n_bytes, stream, reterr);

    if (status == HSDP_OK) {
        status = gpu_event_record(space->gpu, chunk->done, stream, reterr);
    }
    chunk->is_under_way = status == HSDP_OK;
    return status;
}

static uint64_t chunk_bytes(uint64_t n_bytes, uint64_t at)
{
    return n_bytes - at < CHUNK_BYTES ? n_bytes - at : CHUNK_BYTES;
}

/* ------------------------------------------------------------------------------------- the calls
 */

static int32_t cuda_alloc(struct space *space, uint64_t n_bytes, const char *what, void **ret,
                          struct hsdp_error *reterr)
{
    struct gpu *gpu = space->gpu;
    struct gpu_memory memory;
    int32_t status = gpu_alloc(gpu, n_bytes, HSDP_MEMORY_DEVICE, what, &memory, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    status = gpu_fill(gpu, memory.base, 0, n_bytes, gpu->reduce_stream, reterr);
    if (status == HSDP_OK) {
        status = cuda_wait(space, reterr); /* other streams may be the first to use it */
    }
    if (status == HSDP_OK) {
        *ret = memory.base;
    } else {
        gpu_free(gpu, &memory);
    }
    return status;
}

static void cuda_free(struct space *space, void *base, uint64_t n_bytes)
{
    struct gpu_memory memory = {.base = base, .n_bytes = n_bytes, .kind = HSDP_MEMORY_DEVICE};

    gpu_free(space->gpu, &memory);
}

/* The n-th chunk is sent off before the one before it is taken out. */
static int32_t cuda_read(struct space *space, void *host, const void *src, uint64_t n_bytes,
                         struct hsdp_error *reterr)
{
    uint64_t n_chunks = (n_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    int32_t status = HSDP_OK;

    for (uint64_t i = 0; i <= n_chunks && n_chunks > 0 && status == HSDP_OK; i++) {
        struct chunk *next = &space->bounce->chunks[i % N_CHUNKS];
        struct chunk *last = &space->bounce->chunks[(i + 1) % N_CHUNKS];
        uint64_t at = i * CHUNK_BYTES;

        if (i < n_chunks) {
            status = chunk_await(space, next, reterr); /* a call before may have failed */
        }
        if (i < n_chunks && status == HSDP_OK) {
            status = chunk_send(space, next, next->base, (const unsigned char *)src + at,
                                chunk_bytes(n_bytes, at), reterr);
        }
        if (i > 0 && status == HSDP_OK) {
            status = chunk_await(space, last, reterr);
        }
        if (i > 0 && status == HSDP_OK) {
            at -= CHUNK_BYTES;
            memcpy((unsigned char *)host + at, last->base, chunk_bytes(n_bytes, at));
        }
    }
    return status;
}

static int32_t cuda_write(struct space *space, void *dst, const void *host, uint64_t n_bytes,
                          struct hsdp_error *reterr)
{
    struct chunk *chunks = space->bounce->chunks;
    int32_t status = HSDP_OK;

    for (uint64_t at = 0; at < n_bytes && status == HSDP_OK; at += CHUNK_BYTES) {
        struct chunk *chunk = &chunks[at / CHUNK_BYTES % N_CHUNKS];

        status = chunk_await(space, chunk, reterr);
        if (status == HSDP_OK) {
            memcpy(chunk->base, (const unsigned char *)host + at, chunk_bytes(n_bytes, at));
            status = chunk_send(space, chunk, (unsigned char *)dst + at, chunk->base,
                                chunk_bytes(n_bytes, at), reterr);
        }
    }
    for (uint32_t i = 0; i < N_CHUNKS && status == HSDP_OK; i++) {
        status = chunk_await(space, &chunks[i], reterr);
    }
    return status;
}

static int32_t cuda_copy(struct space *space, void *dst, const void *src, uint64_t n_bytes,
                         struct hsdp_error *reterr)
{
    return gpu_copy(space->gpu, dst, src, n_bytes, space->gpu->reduce_stream, reterr);
}

static int32_t cuda_zero(struct space *space, void *dst, uint64_t n_bytes,
                         struct hsdp_error *reterr)
{
    return gpu_fill(space->gpu, dst, 0, n_bytes, space->gpu->reduce_stream, reterr);
}

static int32_t cuda_convert(struct space *space, const struct space_cast *cast,
                            struct hsdp_error *reterr)
{
    const struct gpu_cast_args args = {cast->dst, cast->src, cast->n_elems,
                                       (int32_t)cast->dst_dtype, (int32_t)cast->src_dtype};

    return gpu_launch(space->gpu, GPU_CAST, &args, cast->n_elems, space->gpu->reduce_stream,
                      reterr);
}

static int32_t cuda_add(struct space *space, float *dst, const void *src, enum dtype src_dtype,
                        uint64_t n_elems, struct hsdp_error *reterr)
{
    const struct gpu_add_args args = {dst, src, n_elems, (int32_t)src_dtype, 0};

    return gpu_launch(space->gpu, GPU_ADD, &args, n_elems, space->gpu->reduce_stream, reterr);
}

static int32_t cuda_divide(struct space *space, float *values, float divisor, uint64_t n_elems,
                           struct hsdp_error *reterr)
{
    const struct gpu_divide_args args = {values, n_elems, divisor, 0};

    return gpu_launch(space->gpu, GPU_DIVIDE, &args, n_elems, space->gpu->reduce_stream, reterr);
}

static int32_t cuda_norm(struct space *space, const struct space_norm *norm,
                         struct hsdp_error *reterr)
{
    const struct gpu_norm_args args = {.norm = space->norm,
                                       .values = norm->values,
                                       .n_elems = norm->n_elems,
                                       .p = norm->p,
                                       .divisor = norm->divisor,
                                       .is_divided = norm->is_divided};

    return gpu_launch(space->gpu, GPU_NORM, &args, norm->n_elems, space->gpu->reduce_stream,
                      reterr);
}

static int32_t cuda_adamw(struct space *space, const struct adamw_constants *constants,
                          const struct adamw_shard *shard, const float *factor,
                          struct hsdp_error *reterr)
{
    struct gpu_adamw_args args = {.params = shard->params,
                                  .exp_avg = shard->exp_avg,
                                  .exp_avg_sq = shard->exp_avg_sq,
                                  .grads = shard->grads,
                                  .copy = shard->n_copies == 0 ? NULL : shard->copies[0],
                                  .factor = factor,
                                  .n_elems = shard->n_elems};

    assert(shard->n_copies <= 1);
    args.grads_divisor = shard->grads_divisor;
    args.decay = constants->decay;
    args.beta1 = constants->beta1;
    args.one_minus_beta1 = constants->one_minus_beta1;
    args.beta2 = constants->beta2;
    args.one_minus_beta2 = constants->one_minus_beta2;
    args.step_size = constants->step_size;
    args.bias2_sqrt = constants->bias2_sqrt;
    args.epsilon = constants->epsilon;
    args.params_dtype = (int32_t)shard->params_dtype;
    args.copy_dtype = (int32_t)shard->copies_dtype;
    return gpu_launch(space->gpu, GPU_ADAMW, &args, shard->n_elems, space->gpu->reduce_stream,
                      reterr);
}

/* One event serves again and again: a stream waits for what it stood for when it was told to. */
static int32_t streams_order(struct space *space, cu_stream first, cu_stream second,
                             struct hsdp_error *reterr)
{
    cu_event order = space->bounce->order;
    int32_t status = gpu_event_record(space->gpu, order, first, reterr);

    return status == HSDP_OK ? gpu_stream_wait(space->gpu, second, order, reterr) : status;
}

static int32_t cuda_follow(struct space *space, void *stream, struct hsdp_error *reterr)
{
    return streams_order(space, stream, space->gpu->reduce_stream, reterr);
}

static int32_t cuda_precede(struct space *space, void *stream, struct hsdp_error *reterr)
{
    return streams_order(space, space->gpu->reduce_stream, stream, reterr);
}

static void cuda_fini(struct space *space)
{
    struct space_bounce *bounce = space->bounce;

    if (bounce == NULL) {
        return;
    }
    gpu_event_destroy(space->gpu, bounce->order);
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        gpu_event_destroy(space->gpu, bounce->chunks[i].done);
    }
    gpu_free(space->gpu, &bounce->norm);
    gpu_free(space->gpu, &bounce->pinned);
    free(bounce);
    space->bounce = NULL;
}

static const struct space_ops cuda_ops = {
    .is_host = false,
    .fini = cuda_fini,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .read = cuda_read,
    .write = cuda_write,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .convert = cuda_convert,
    .add = cuda_add,
    .divide = cuda_divide,
    .norm = cuda_norm,
    .adamw = cuda_adamw,
    .follow = cuda_follow,
    .precede = cuda_precede,
    .wait = cuda_wait,
};

/* --------------------------------------------------------------------------------------- making */

static int32_t bounce_fill(struct gpu *gpu, struct space_bounce *bounce, struct hsdp_error *reterr)
{
    int32_t status;

    status = gpu_alloc(gpu, CHUNK_BYTES * N_CHUNKS, HSDP_MEMORY_PINNED,
                       "copies between host and device", &bounce->pinned, reterr);
    if (status == HSDP_OK) {
        status = gpu_alloc(gpu, sizeof(struct gpu_norm), HSDP_MEMORY_DEVICE, "the norm of a step",
                           &bounce->norm, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_fill(gpu, bounce->norm.base, 0, sizeof(struct gpu_norm), gpu->reduce_stream,
                          reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_event_create(gpu, &bounce->order, reterr);
    }
    for (uint32_t i = 0; i < N_CHUNKS && status == HSDP_OK; i++) {
        bounce->chunks[i].base = (unsigned char *)bounce->pinned.base + CHUNK_BYTES * i;
        status = gpu_event_create(gpu, &bounce->chunks[i].done, reterr);
    }
    return status;
}

int32_t space_cuda(struct gpu *gpu, const struct kernels *kernels,
                   const struct space_patience *patience, struct space *ret,
                   struct hsdp_error *reterr)
{
    struct space space = {.ops = &cuda_ops, .kernels = kernels, .gpu = gpu};
    int32_t status;

    space.bounce = calloc(1, sizeof(*space.bounce));
    if (space.bounce == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "gpu: no memory for the space of a job");
    }
    space.bounce->patience = *patience;
    status = bounce_fill(gpu, space.bounce, reterr);
    if (status != HSDP_OK) {
        cuda_fini(&space);
        return status;
    }
    space.norm = space.bounce->norm.base; /* an address of the device */
    *ret = space;
    return HSDP_OK;
}
