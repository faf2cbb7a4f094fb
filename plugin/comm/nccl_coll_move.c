/* SPDX-License-Identifier: Apache-2.0 */
/* The host's collectives on devices: what goes where, and what is reduced; on the NCCL thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_coll.h"

#define LINE_BYTES 16u /* what kernels load at once */

/* One operation that runs. */
struct mover {
    struct nccl_coll *coll;
    struct nccl_group *group;
    struct gpu *gpu;
    cu_stream stream;
    const struct op *op;
    uint64_t elem_bytes;
    uint8_t *scratch; /* sources of a reduction, stride_bytes apart, and behind them its result */
};

/* Members' parts of memory: the k-th has n[k] elements, from `first[k]`. */
struct parts {
    uint64_t first[GROUP_MAX_RANKS];
    uint64_t n[GROUP_MAX_RANKS];
};

static uint64_t line_round(uint64_t n_bytes)
{
    return (n_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool is_half(struct element element)
{
    return element.bits == 16 &&
           (element.code == HSDP_DTYPE_FLOAT || element.code == HSDP_DTYPE_BFLOAT);
}

static bool is_fp32(struct element element)
{
    return element.bits == 32 && element.code == HSDP_DTYPE_FLOAT;
}

/* ------------------------------------------------------------------------------------- exchange */

/* Sends parts of `from` to their members, and receives own parts of all. Empty ones are left out.
 */
static int32_t parts_exchange(const struct mover *m, const uint8_t *from, const struct parts *sent,
                              uint8_t *to, const struct parts *received, struct hsdp_error *reterr)
{
    struct nccl_message messages[2 * GROUP_MAX_RANKS];
    uint32_t n_messages = 0;

    for (uint32_t i = 0; i < m->group->n_ranks; i++) {
        if (i != m->group->index && sent->n[i] > 0) {
            messages[n_messages++] =
                (struct nccl_message){.address = (uint8_t *)from + sent->first[i] * m->elem_bytes,
                                      .n_bytes = sent->n[i] * m->elem_bytes,
                                      .peer = i,
                                      .is_send = true};
        }
        if (i != m->group->index && received->n[i] > 0) {
            messages[n_messages++] =
                (struct nccl_message){.address = to + received->first[i] * m->elem_bytes,
                                      .n_bytes = received->n[i] * m->elem_bytes,
                                      .peer = i};
        }
    }
    return nccl_exchange(&m->coll->task, m->group, messages, n_messages, reterr);
}

static int32_t part_copy(const struct mover *m, void *to, const void *from, uint64_t n_elems,
                         struct hsdp_error *reterr)
{
    return n_elems == 0 || to == from
               ? HSDP_OK
               : gpu_copy(m->gpu, to, from, n_elems * m->elem_bytes, m->stream, reterr);
}

/* ------------------------------------------------------------------------------------ reduction */

/* Elements between sources in scratch. */
static uint64_t stride_elems(const struct mover *m, uint64_t n_elems)
{
    return line_round(n_elems * m->elem_bytes) / m->elem_bytes;
}

/* fp32 and halves, in fp32: by the kernel of gradients. */
static int32_t floats_reduce(const struct mover *m, void *dst, uint64_t n_elems,
                             struct hsdp_error *reterr)
{
    const struct element element = m->op->header.element;
    const uint32_t n = m->group->n_ranks;
    const int32_t dtype = is_fp32(element)                    ? DTYPE_FP32
                          : element.code == HSDP_DTYPE_BFLOAT ? DTYPE_BF16
                                                              : DTYPE_FP16;
    const uint64_t stride_bytes = stride_elems(m, n_elems) * m->elem_bytes;
    struct gpu_tree_args tree = {.sources = m->scratch,
                                 .stride_bytes = stride_bytes,
                                 .n_elems = n_elems,
                                 .n_dims = 1,
                                 .source_dtype = dtype};
    struct gpu_divide_args divide = {.n_elems = n_elems, .divisor = (float)n};
    struct gpu_cast_args cast = {
        .dst = dst, .n_elems = n_elems, .dst_dtype = dtype, .src_dtype = DTYPE_FP32};
    int32_t status;

    tree.dim_sizes[0] = n;
    tree.dst = is_fp32(element) ? dst : (void *)(m->scratch + n * stride_bytes);
    divide.values = tree.dst;
    cast.src = tree.dst;
    status = gpu_launch(m->gpu, GPU_TREE, &tree, n_elems, m->stream, reterr);
    if (status == HSDP_OK && m->op->header.reduce == HSDP_REDUCE_MEAN) {
        status = gpu_launch(m->gpu, GPU_DIVIDE, &divide, n_elems, m->stream, reterr);
    }
    if (status == HSDP_OK && !is_fp32(element)) {
        status = gpu_launch(m->gpu, GPU_CAST, &cast, n_elems, m->stream, reterr);
    }
    return status;
}

/* dst = the reduction of the sources in scratch, in the order of hsdp/group.h. */
static int32_t sources_reduce(const struct mover *m, void *dst, uint64_t n_elems,
                              struct hsdp_error *reterr)
{
    const struct coll_header *header = &m->op->header;
    const bool is_sum = header->reduce == HSDP_REDUCE_SUM || header->reduce == HSDP_REDUCE_MEAN;
    const struct gpu_values_args values = {
        .dst = dst,
        .sources = m->scratch,
        .stride_bytes = stride_elems(m, n_elems) * m->elem_bytes,
        .n_elems = n_elems,
        .n_sources = m->group->n_ranks,
        .reduce = header->reduce,
        .code = header->element.code,
        .bits = header->element.bits,
    };

    if (n_elems == 0) {
        return HSDP_OK;
    }
    if (is_sum && (is_fp32(header->element) || is_half(header->element))) {
        return floats_reduce(m, dst, n_elems, reterr);
    }
    return gpu_launch(m->gpu, GPU_VALUES, &values, n_elems, m->stream, reterr);
}

/*
 * Members get each other's parts of what they have at `from`, and each reduces its own to dst.
 */
static int32_t parts_reduce(const struct mover *m, const uint8_t *from, const struct parts *parts,
                            void *dst, struct hsdp_error *reterr)
{
    const uint32_t own = m->group->index;
    const uint64_t n_own = parts->n[own];
    const uint64_t stride = stride_elems(m, n_own);
    struct parts received;
    int32_t status;

    for (uint32_t i = 0; i < m->group->n_ranks; i++) {
        received.first[i] = i * stride;
        received.n[i] = n_own;
    }
    status = parts_exchange(m, from, parts, m->scratch, &received, reterr);
    if (status == HSDP_OK) {
        status = part_copy(m, m->scratch + own * stride * m->elem_bytes,
                           from + parts->first[own] * m->elem_bytes, n_own, reterr);
    }
    return status == HSDP_OK ? sources_reduce(m, dst, n_own, reterr) : status;
}

/* Of how many elements a member may reduce a part at a time. */
static uint64_t part_limit(uint32_t n_ranks, uint64_t elem_bytes)
{
    return COLL_SCRATCH_BYTES / ((n_ranks + 1) * (elem_bytes < 4 ? 4 : elem_bytes)) / LINE_BYTES *
           LINE_BYTES;
}

static bool is_small(const struct op *op, uint32_t n_ranks)
{
    return op->header.n_elems * element_bytes(op->header.element) * n_ranks <= COLL_SMALL_BYTES;
}

uint64_t nccl_coll_scratch(const struct op *op, uint32_t n_ranks)
{
    const uint64_t elem_bytes = element_bytes(op->header.element);
    const uint64_t wide_bytes = elem_bytes < 4 ? 4 : elem_bytes;
    uint64_t n_part = op->header.n_elems;

    if (n_ranks == 1) {
        return 0;
    }
    if (op->header.kind == HSDP_COLL_BARRIER) {
        return sizeof(float);
    }
    if (op->header.kind == HSDP_COLL_ALL_TO_ALL && op->input == op->output) {
        return n_ranks * n_part * elem_bytes;
    }
    if (!coll_reduces(op->header.kind)) {
        return 0;
    }
    if (op->header.kind == HSDP_COLL_ALL_REDUCE && !is_small(op, n_ranks)) {
        n_part = (n_part + n_ranks - 1) / n_ranks;
    }
    n_part = min_of(n_part, part_limit(n_ranks, elem_bytes));
    return (n_ranks + 1) * line_round(n_part * wide_bytes);
}

/* ------------------------------------------------------------------------------ the operations */

static int32_t all_reduce_small(const struct mover *m, struct hsdp_error *reterr)
{
    struct parts whole;

    for (uint32_t i = 0; i < m->group->n_ranks; i++) {
        whole.first[i] = 0;
        whole.n[i] = m->op->header.n_elems;
    }
    return parts_reduce(m, m->op->input, &whole, m->op->output, reterr);
}

/* Each member's slice of n_elems from `first`. */
static struct parts slices_of(uint32_t n_ranks, uint64_t first, uint64_t n_elems)
{
    const uint64_t n_slice = (n_elems + n_ranks - 1) / n_ranks;
    struct parts slices;

    for (uint32_t i = 0; i < n_ranks; i++) {
        const uint64_t begin = min_of(i * n_slice, n_elems);

        slices.first[i] = first + begin;
        slices.n[i] = min_of(n_slice, n_elems - begin);
    }
    return slices;
}

/* All get all slices of the output; each has its own there. */
static int32_t slices_gather(const struct mover *m, const struct parts *slices,
                             struct hsdp_error *reterr)
{
    const uint32_t own = m->group->index;
    const uint8_t *mine = m->op->output + slices->first[own] * m->elem_bytes;
    struct parts sent;

    if (slices->n[0] == slices->n[m->group->n_ranks - 1]) {
        return nccl_all_gather(&m->coll->task, m->group, mine,
                               m->op->output + slices->first[0] * m->elem_bytes,
                               slices->n[0] * m->elem_bytes, NCCL_INT8, reterr);
    }
    for (uint32_t i = 0; i < m->group->n_ranks; i++) {
        sent.first[i] = 0;
        sent.n[i] = slices->n[own];
    }
    return parts_exchange(m, mine, &sent, m->op->output, slices, reterr);
}

static int32_t all_reduce(const struct mover *m, struct hsdp_error *reterr)
{
    const uint32_t n_ranks = m->group->n_ranks;
    const uint64_t n_elems = m->op->header.n_elems;
    const uint64_t n_chunk = n_ranks * part_limit(n_ranks, m->elem_bytes);
    int32_t status = HSDP_OK;

    if (is_small(m->op, n_ranks)) {
        return all_reduce_small(m, reterr);
    }
    for (uint64_t first = 0; first < n_elems && status == HSDP_OK; first += n_chunk) {
        const struct parts slices = slices_of(n_ranks, first, min_of(n_chunk, n_elems - first));
        const uint64_t own = slices.first[m->group->index];

        status =
            parts_reduce(m, m->op->input, &slices, m->op->output + own * m->elem_bytes, reterr);
        if (status == HSDP_OK) {
            status = slices_gather(m, &slices, reterr);
        }
    }
    return status;
}

/* Where each member's elements begin, one behind the other. */
static struct parts parts_of(uint32_t n_ranks, const uint64_t *n_elems)
{
    struct parts parts = {{0}, {0}};
    uint64_t first = 0;

    for (uint32_t i = 0; i < n_ranks; i++) {
        parts.first[i] = first;
        parts.n[i] = n_elems[i];
        first += n_elems[i];
    }
    return parts;
}

static int32_t reduce_scatter(const struct mover *m, struct hsdp_error *reterr)
{
    const uint32_t n_ranks = m->group->n_ranks;
    const struct parts all = parts_of(n_ranks, m->op->header.send_elems);
    const uint64_t n_chunk = part_limit(n_ranks, m->elem_bytes);
    bool has_more = true;
    int32_t status = HSDP_OK;

    for (uint64_t done = 0; has_more && status == HSDP_OK; done += n_chunk) {
        struct parts chunk = {{0}, {0}};

        has_more = false;
        for (uint32_t i = 0; i < n_ranks; i++) {
            const uint64_t skipped = min_of(done, all.n[i]);

            chunk.first[i] = all.first[i] + skipped;
            chunk.n[i] = min_of(n_chunk, all.n[i] - skipped);
            has_more = has_more || all.n[i] > done + n_chunk;
        }
        status =
            parts_reduce(m, m->op->input, &chunk, m->op->output + done * m->elem_bytes, reterr);
    }
    return status;
}

static int32_t all_gather(const struct mover *m, struct hsdp_error *reterr)
{
    const uint32_t n_ranks = m->group->n_ranks;
    const uint64_t n_own = m->op->header.n_elems;
    const struct parts all = parts_of(n_ranks, m->op->header.recv_elems);
    struct parts sent;
    bool is_even = true;
    int32_t status;

    for (uint32_t i = 0; i < n_ranks; i++) {
        is_even = is_even && all.n[i] == n_own;
        sent.first[i] = 0;
        sent.n[i] = n_own;
    }
    if (is_even) {
        return nccl_all_gather(&m->coll->task, m->group, m->op->input, m->op->output,
                               n_own * m->elem_bytes, NCCL_INT8, reterr);
    }
    status = parts_exchange(m, m->op->input, &sent, m->op->output, &all, reterr);
    return status == HSDP_OK
               ? part_copy(m, m->op->output + all.first[m->group->index] * m->elem_bytes,
                           m->op->input, n_own, reterr)
               : status;
}

static int32_t all_to_all(const struct mover *m, struct hsdp_error *reterr)
{
    const uint32_t own = m->group->index;
    const struct parts sent = parts_of(m->group->n_ranks, m->op->header.send_elems);
    const struct parts received = parts_of(m->group->n_ranks, m->op->header.recv_elems);
    const uint64_t n_sent = sent.first[m->group->n_ranks - 1] + sent.n[m->group->n_ranks - 1];
    const uint8_t *input = m->op->input;
    int32_t status = HSDP_OK;

    if (input == m->op->output && n_sent > 0) {
        status = part_copy(m, m->scratch, input, n_sent, reterr);
        input = m->scratch;
    }
    if (status == HSDP_OK) {
        status = parts_exchange(m, input, &sent, m->op->output, &received, reterr);
    }
    return status == HSDP_OK
               ? part_copy(m, m->op->output + received.first[own] * m->elem_bytes,
                           input + sent.first[own] * m->elem_bytes, sent.n[own], reterr)
               : status;
}

static int32_t broadcast(const struct mover *m, struct hsdp_error *reterr)
{
    const struct op *op = m->op;
    const bool is_root = op->header.root == m->group->index;
    uint8_t *output = op->output == NULL ? (uint8_t *)op->input : op->output;

    return nccl_broadcast(&m->coll->task, m->group, is_root ? op->input : output, output,
                          op->header.n_elems * m->elem_bytes, NCCL_INT8, op->header.root, reterr);
}

/* Who waits for it has waited for all: it moves something. */
static int32_t barrier(const struct mover *m, struct hsdp_error *reterr)
{
    int32_t status = gpu_fill(m->gpu, m->scratch, 0, sizeof(float), m->stream, reterr);

    return status == HSDP_OK ? nccl_all_reduce(&m->coll->task, m->group, m->scratch, m->scratch, 1,
                                               NCCL_FLOAT32, NCCL_SUM, reterr)
                             : status;
}

/* A group of one: what goes in comes out. */
static int32_t alone(const struct mover *m, struct hsdp_error *reterr)
{
    const struct op *op = m->op;

    return op->input == NULL || op->output == NULL
               ? HSDP_OK
               : part_copy(m, op->output, op->input, op->header.n_elems, reterr);
}

static int32_t op_move(const struct mover *m, struct hsdp_error *reterr)
{
    if (m->coll->group->n_ranks == 1) {
        return alone(m, reterr);
    }
    switch (m->op->header.kind) {
    case HSDP_COLL_BARRIER:
        return barrier(m, reterr);
    case HSDP_COLL_ALL_REDUCE:
        return all_reduce(m, reterr);
    case HSDP_COLL_ALL_GATHER:
        return all_gather(m, reterr);
    case HSDP_COLL_REDUCE_SCATTER:
        return reduce_scatter(m, reterr);
    case HSDP_COLL_ALL_TO_ALL:
        return all_to_all(m, reterr);
    default:
        return broadcast(m, reterr);
    }
}

/* ------------------------------------------------------------------------------------ messages */

static bool is_message(const struct op *op)
{
    return coll_is_send(op->header.kind) || coll_is_receive(op->header.kind);
}

/* What this rank sends itself: the i-th send goes into the i-th receive. */
static int32_t own_messages_copy(const struct mover *m, struct hsdp_error *reterr)
{
    const struct nccl_coll *coll = m->coll;
    int32_t status = HSDP_OK;
    uint32_t to = 0;

    for (uint32_t from = 0; from < coll->n_ops && status == HSDP_OK; from++) {
        const struct op *sent = &coll->ops[from];

        if (!coll_is_send(sent->header.kind) || sent->header.root != coll->group->index) {
            continue;
        }
        while (!coll_is_receive(coll->ops[to].header.kind) ||
               coll->ops[to].header.root != coll->group->index) {
            to++;
        }
        status =
            gpu_copy(m->gpu, coll->ops[to].output, sent->input,
                     sent->header.n_elems * element_bytes(sent->header.element), m->stream, reterr);
        to++;
    }
    return status;
}

/* All at once, so that no send waits for a receive that comes behind it. */
static int32_t messages_move(const struct mover *m, struct hsdp_error *reterr)
{
    const struct nccl_coll *coll = m->coll;
    struct nccl_message *messages = calloc(coll->n_ops, sizeof(*messages));
    uint32_t n_messages = 0;
    int32_t status;

    if (messages == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "group \"%s\": no memory for messages",
                         coll->group->name);
    }
    for (uint32_t i = 0; i < coll->n_ops; i++) {
        const struct op *op = &coll->ops[i];
        const bool is_send = coll_is_send(op->header.kind);

        if (!is_message(op) || op->header.root == coll->group->index || op->header.n_elems == 0) {
            continue;
        }
        messages[n_messages++] = (struct nccl_message){
            .address = is_send ? (uint8_t *)op->input : op->output,
            .n_bytes = op->header.n_elems * element_bytes(op->header.element),
            .peer = op->header.root,
            .is_send = is_send,
        };
    }
    status = own_messages_copy(m, reterr);
    if (status == HSDP_OK && n_messages > 0) {
        status = nccl_messages(&m->coll->task, m->group, messages, n_messages, reterr);
    }
    free(messages);
    return status;
}

int32_t nccl_coll_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct nccl_coll *coll = (struct nccl_coll *)task;
    struct gpu *gpu = job_gpu(coll->group->job);
    struct mover mover = {.coll = coll,
                          .group = coll->group->nccl,
                          .gpu = gpu,
                          .stream = task->stream,
                          .scratch = coll->scratch.base};
    char text[NCCL_WHAT_BYTES];
    bool has_messages = false;
    int32_t status = gpu_stream_wait(gpu, task->stream, coll->begin, reterr);

    for (uint32_t i = 0; i < coll->n_ops && status == HSDP_OK; i++) {
        mover.op = &coll->ops[i];
        mover.elem_bytes = element_bytes(mover.op->header.element);
        has_messages = has_messages || is_message(mover.op);
        if (!is_message(mover.op)) {
            header_text(coll->group, &mover.op->header, text, sizeof(text));
            task->what = text;
            status = op_move(&mover, reterr);
        }
    }
    task->what = NULL;
    return status == HSDP_OK && has_messages ? messages_move(&mover, reterr) : status;
}
