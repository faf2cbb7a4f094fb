/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: the calls that move data, and what they refuse. */
#include <string.h>

#include "doubles/nccl_double.h"

const char *operation_name(enum operation_kind kind)
{
    static const char *const names[] = {
        "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast",
        "ncclReduce",    "ncclSend",      "ncclRecv",
    };

    return (uint32_t)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "nothing known";
}

/* ------------------------------------------------------------------------------ what is refused */

static bool operation_reduces(const struct operation *operation)
{
    return operation->kind == OPERATION_ALL_REDUCE || operation->kind == OPERATION_REDUCE_SCATTER ||
           operation->kind == OPERATION_REDUCE;
}

/* Puts what `op` means in the place of the number. */
static nccl_result reduction_find(struct operation *operation, int32_t op)
{
    struct reduction *reduction = &operation->reduction;
    bool is_float = reduction->dtype >= NCCL_FLOAT16;
    uint32_t created = (uint32_t)(op - NCCL_N_OPS);

    if (op >= NCCL_SUM && op <= NCCL_MIN) {
        reduction->op = op;
    } else if (op == NCCL_AVG) {
        reduction->op = NCCL_SUM;
        reduction->is_scaled = is_float;
        reduction->is_mean = !is_float;
        reduction->factor = 1.0 / operation->comm->n_ranks;
    } else if (op > NCCL_AVG && created < MAX_RED_OPS &&
               operation->comm->red_ops[created].op != NCCL_N_OPS) {
        if (operation->comm->red_ops[created].dtype != reduction->dtype) {
            return nccl_fail(NCCL_BAD_ARGUMENT, "%s: op %d is of dtype %d, not of %d",
                             operation_name(operation->kind), op,
                             operation->comm->red_ops[created].dtype, reduction->dtype);
        }
        *reduction = operation->comm->red_ops[created];
    } else {
        return nccl_fail(NCCL_BAD_ARGUMENT, "%s: op %d", operation_name(operation->kind), op);
    }
    return NCCL_OK;
}

/* Of the device, or pinned, and all of it: else the process ends, by double_shadow. */
static nccl_result buffer_check(const struct operation *operation, const void *address,
                                uint64_t n_elems)
{
    uint32_t type = 0;
    cu_result result = address != NULL ? cuPointerGetAttribute(&type, CU_POINTER_MEMORY_TYPE,
                                                               (cu_address)(uintptr_t)address)
                                       : CU_ERROR_INVALID_VALUE;

    if (result != CU_OK || (type != CU_MEMORY_DEVICE && type != CU_MEMORY_HOST)) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "%s: %p is no memory that a device can see (%d)",
                         operation_name(operation->kind), address, result);
    }
    double_shadow(address, n_elems * dtype_size(operation->reduction.dtype));
    return NCCL_OK;
}

/* What overlaps otherwise than in place gives results that depend on who is faster. */
static void overlap_check(const struct operation *operation, uint64_t n_send, uint64_t n_recv)
{
    uint64_t elem_bytes = dtype_size(operation->reduction.dtype);
    uintptr_t send = (uintptr_t)operation->send;
    uintptr_t recv = (uintptr_t)operation->recv;
    uint64_t own = operation->comm->rank * operation->n_elems * elem_bytes;
    bool is_in_place = send == recv;

    if (operation->kind == OPERATION_ALL_GATHER) {
        is_in_place = send == recv + own;
    } else if (operation->kind == OPERATION_REDUCE_SCATTER) {
        is_in_place = recv == send + own;
    }
    if (!is_in_place && send < recv + n_recv * elem_bytes && recv < send + n_send * elem_bytes) {
        nccl_die("%s: the buffers overlap, and are not in place", operation_name(operation->kind));
    }
}

static nccl_result buffers_check(const struct operation *operation)
{
    bool is_root = operation->comm->rank == operation->root;
    bool sends =
        operation->kind != OPERATION_RECV && (operation->kind != OPERATION_BROADCAST || is_root);
    bool receives =
        operation->kind != OPERATION_SEND && (operation->kind != OPERATION_REDUCE || is_root);
    uint64_t n_send = operation->n_elems;
    uint64_t n_recv = operation->n_elems;
    nccl_result result = NCCL_OK;

    if (operation->kind == OPERATION_REDUCE_SCATTER) {
        n_send *= operation->comm->n_ranks;
    } else if (operation->kind == OPERATION_ALL_GATHER) {
        n_recv *= operation->comm->n_ranks;
    }
    if (sends) {
        result = buffer_check(operation, operation->send, n_send);
    }
    if (result == NCCL_OK && receives) {
        result = buffer_check(operation, operation->recv, n_recv);
    }
    if (result == NCCL_OK && sends && receives) {
        overlap_check(operation, n_send, n_recv);
    }
    return result;
}

static nccl_result operation_check(struct operation *operation, int32_t op, int32_t root)
{
    const char *name = operation_name(operation->kind);
    const struct ncclComm *comm = operation->comm;
    cu_context context;
    nccl_result result;

    if (comm->is_revoked || comm->is_finalized) {
        return nccl_fail(NCCL_BAD_USAGE, "%s: the communicator was %s", name,
                         comm->is_revoked ? "revoked" : "finalized");
    }
    if (dtype_size(operation->reduction.dtype) == 0) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "%s: dtype %d", name, operation->reduction.dtype);
    }
    if (root < 0 || (uint32_t)root >= comm->n_ranks) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "%s: rank %d of %u", name, root, comm->n_ranks);
    }
    operation->root = (uint32_t)root;
    if (operation_reduces(operation)) {
        result = reduction_find(operation, op);
        if (result != NCCL_OK) {
            return result;
        }
    }
    if (operation->n_elems == 0) {
        return NCCL_OK;
    }
    if (cuCtxGetCurrent(&context) != CU_OK || context != comm->context) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "%s: another device is current", name);
    }
    return buffers_check(operation);
}

/* --------------------------------------------------------------------------------- the calls */

/* A count of zero is nothing at all, and no barrier. */
static nccl_result operation_call(struct operation *operation, int32_t op, int32_t root)
{
    struct ncclComm *comm = operation->comm;
    nccl_result result;
    nccl_result left;

    call_enter(operation_name(operation->kind));
    group_enter();
    result = comm_check_ready(comm, operation_name(operation->kind));
    if (result == NCCL_OK) {
        result = operation_check(operation, op, root);
    }
    if (result == NCCL_OK && operation->n_elems > 0) {
        group_add_operation(operation);
    }
    if (result != NCCL_OK) {
        group_fail(result);
        if (comm != NULL && comm->magic == COMM_LIVE && comm->config.blocking == 0) {
            atomic_store(&comm->state, result);
        }
    }
    left = group_leave();
    return call_leave(result != NCCL_OK ? result : left);
}

nccl_result ncclAllReduce(const void *send, void *recv, size_t n_elems, int32_t dtype, int32_t op,
                          nccl_comm comm, cu_stream stream)
{
    struct operation operation = {.kind = OPERATION_ALL_REDUCE,
                                  .comm = comm,
                                  .stream = stream,
                                  .send = send,
                                  .recv = recv,
                                  .n_elems = n_elems,
                                  .reduction = {.dtype = dtype}};

    return operation_call(&operation, op, 0);
}

nccl_result ncclAllGather(const void *send, void *recv, size_t n_send_elems, int32_t dtype,
                          nccl_comm comm, cu_stream stream)
{
    struct operation operation = {.kind = OPERATION_ALL_GATHER,
                                  .comm = comm,
                                  .stream = stream,
                                  .send = send,
                                  .recv = recv,
                                  .n_elems = n_send_elems,
                                  .reduction = {.dtype = dtype}};

    return operation_call(&operation, NCCL_SUM, 0);
}

nccl_result ncclReduceScatter(const void *send, void *recv, size_t n_recv_elems, int32_t dtype,
                              int32_t op, nccl_comm comm, cu_stream stream)
{
    struct operation operation = {.kind = OPERATION_REDUCE_SCATTER,
                                  .comm = comm,
                                  .stream = stream,
                                  .send = send,
                                  .recv = recv,
                                  .n_elems = n_recv_elems,
                                  .reduction = {.dtype = dtype}};

    return operation_call(&operation, op, 0);
}

nccl_result ncclBroadcast(const void *send, void *recv, size_t n_elems, int32_t dtype, int32_t root,
                          nccl_comm comm, cu_stream stream)
{
    struct operation operation = {.kind = OPERATION_BROADCAST,
                                  .comm = comm,
                                  .stream = stream,
                                  .send = send,
                                  .recv = recv,
                                  .n_elems = n_elems,
                                  .reduction = {.dtype = dtype}};

    return operation_call(&operation, NCCL_SUM, root);
}

nccl_result ncclReduce(const void *send, void *recv, size_t n_elems, int32_t dtype, int32_t op,
                       int32_t root, nccl_comm comm, cu_stream stream)
{
    struct operation operation = {.kind = OPERATION_REDUCE,
                                  .comm = comm,
                                  .stream = stream,
                                  .send = send,
                                  .recv = recv,
                                  .n_elems = n_elems,
                                  .reduction = {.dtype = dtype}};

    return operation_call(&operation, op, root);
}

nccl_result ncclSend(const void *send, size_t n_elems, int32_t dtype, int32_t peer, nccl_comm comm,
                     cu_stream stream)
{
    struct operation operation = {.kind = OPERATION_SEND,
                                  .comm = comm,
                                  .stream = stream,
                                  .send = send,
                                  .n_elems = n_elems,
                                  .reduction = {.dtype = dtype}};

    return operation_call(&operation, NCCL_SUM, peer);
}

nccl_result ncclRecv(void *recv, size_t n_elems, int32_t dtype, int32_t peer, nccl_comm comm,
                     cu_stream stream)
{
    struct operation operation = {.kind = OPERATION_RECV,
                                  .comm = comm,
                                  .stream = stream,
                                  .recv = recv,
                                  .n_elems = n_elems,
                                  .reduction = {.dtype = dtype}};

    return operation_call(&operation, NCCL_SUM, peer);
}

/* ------------------------------------------------------------------------- ops of one's own */

nccl_result ncclRedOpCreatePreMulSum(int32_t *ret_op, void *scalar, int32_t dtype,
                                     int32_t residence, nccl_comm comm)
{
    struct reduction reduction = {.dtype = dtype, .op = NCCL_SUM, .is_scaled = true};
    nccl_result result;
    uint32_t i = 0;

    call_enter("ncclRedOpCreatePreMulSum");
    result = comm_check_ready(comm, "ncclRedOpCreatePreMulSum");
    if (result != NCCL_OK) {
        return call_leave(result);
    }
    if (ret_op == NULL || scalar == NULL || dtype_size(dtype) == 0 ||
        (residence != NCCL_SCALAR_DEVICE && residence != NCCL_SCALAR_HOST_IMMEDIATE)) {
        return call_leave(nccl_fail(NCCL_BAD_ARGUMENT,
                                    "ncclRedOpCreatePreMulSum: dtype %d, residence %d", dtype,
                                    residence));
    }
    while (i < MAX_RED_OPS && comm->red_ops[i].op != NCCL_N_OPS) {
        i++;
    }
    if (i == MAX_RED_OPS) {
        return call_leave(nccl_fail(NCCL_INTERNAL_ERROR, "ncclRedOpCreatePreMulSum: too many"));
    }
    if (residence == NCCL_SCALAR_DEVICE) {
        reduction.at_device = scalar;
    } else {
        reduction.factor = dtype_number(dtype, scalar);
    }
    comm->red_ops[i] = reduction;
    *ret_op = NCCL_N_OPS + (int32_t)i;
    return call_leave(NCCL_OK);
}

nccl_result ncclRedOpDestroy(int32_t op, nccl_comm comm)
{
    uint32_t i = (uint32_t)(op - NCCL_N_OPS);
    nccl_result result;

    call_enter("ncclRedOpDestroy");
    result = comm_check(comm, "ncclRedOpDestroy");
    if (result == NCCL_OK &&
        (op < NCCL_N_OPS || i >= MAX_RED_OPS || comm->red_ops[i].op == NCCL_N_OPS)) {
        result = nccl_fail(NCCL_BAD_ARGUMENT, "ncclRedOpDestroy: op %d", op);
    }
    if (result == NCCL_OK) {
        comm->red_ops[i].op = NCCL_N_OPS;
    }
    return call_leave(result);
}
