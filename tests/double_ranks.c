/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on the doubles of CUDA and NCCL: starting, meeting, polling, moving bytes. */
#include "double_ranks.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nccl nccl;
struct nccl_extra nccl_extra;

static void symbol_find(void *library, const char *symbol, void *ret_function)
{
    void *found = dlsym(library, symbol);

    ck_assert_msg(found != NULL, "libnccl.so.2 lacks %s", symbol);
    memcpy(ret_function, &found, sizeof(found));
}

void double_nccl_load(void)
{
    const char *folder = getenv("HSDP_TEST_DOUBLES");
    char path[4096];
    void *library;

    ck_assert_msg(folder != NULL, "HSDP_TEST_DOUBLES is not set: run make check");
    snprintf(path, sizeof(path), "%s/libnccl.so.2", folder);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    ck_assert_msg(library != NULL, "%s", dlerror());
#define FIND(field, symbol, result, parameters) symbol_find(library, #symbol, &nccl.field);
    NCCL_FUNCTIONS(FIND)
    NCCL_NEWER_FUNCTIONS(FIND)
#undef FIND
    symbol_find(library, "ncclCommSplit", &nccl_extra.split);
    symbol_find(library, "ncclReduce", &nccl_extra.reduce);
    symbol_find(library, "ncclRedOpCreatePreMulSum", &nccl_extra.op_create);
    symbol_find(library, "ncclRedOpDestroy", &nccl_extra.op_destroy);
    symbol_find(library, "ncclMemAlloc", &nccl_extra.memory_alloc);
    symbol_find(library, "ncclMemFree", &nccl_extra.memory_free);
}

void double_rank_start(uint32_t device)
{
    cu_context context;

    double_nccl_load();
    double_load();
    DRIVER(init(0));
    DRIVER(primary_context_retain(&context, (cu_device)device));
    DRIVER(context_push(context));
}

void double_ranks_run(uint32_t n_ranks, int32_t number,
                      void (*function)(uint32_t rank, void *shared))
{
    struct double_shared *shared = ranks_memory(sizeof(*shared));

    shared->n_ranks = n_ranks;
    shared->number = number;
    ranks_run(n_ranks, RANKS_LIMIT_MS, function, shared);
}

struct nccl_unique_id double_id(struct double_shared *shared, uint32_t rank, uint32_t index)
{
    while (rank == 0 && atomic_load(&shared->n_ids) <= index) {
        NCCL(unique_id(&shared->ids[atomic_load(&shared->n_ids)]));
        atomic_fetch_add(&shared->n_ids, 1);
    }
    while (atomic_load(&shared->n_ids) <= index) {
        usleep(200);
    }
    return shared->ids[index];
}

bool double_comm_wait_ms(nccl_comm comm, uint32_t ms, nccl_result *ret_result)
{
    uint64_t end_ms = ranks_now_ms() + ms;

    do {
        NCCL(async_error(comm, ret_result));
        if (*ret_result != NCCL_IN_PROGRESS) {
            return true;
        }
        usleep(100);
    } while (ranks_now_ms() < end_ms);
    return false;
}

nccl_result double_comm_wait(nccl_comm comm)
{
    nccl_result result;

    while (!double_comm_wait_ms(comm, 1000, &result)) {
    }
    return result;
}

void double_comm_done(nccl_comm comm, nccl_result result)
{
    if (result == NCCL_IN_PROGRESS) {
        result = double_comm_wait(comm);
    }
    ck_assert_msg(result == NCCL_OK, "%s: %s", nccl.error_string(result), nccl.last_error(comm));
}

nccl_result double_comm_ask(struct double_shared *shared, uint32_t rank, nccl_comm *ret_comm)
{
    struct nccl_config config = nccl_config_make();

    *ret_comm = NULL;
    return nccl.comm_init(ret_comm, (int32_t)shared->n_ranks, double_id(shared, rank, 0),
                          (int32_t)rank, &config);
}

nccl_comm double_comm(struct double_shared *shared, uint32_t rank, uint32_t index)
{
    struct nccl_config config = nccl_config_make();
    nccl_comm comm = NULL;

    ck_assert_int_eq(nccl.comm_init(&comm, (int32_t)shared->n_ranks, double_id(shared, rank, index),
                                    (int32_t)rank, &config),
                     NCCL_IN_PROGRESS);
    double_comm_done(comm, NCCL_IN_PROGRESS);
    return comm;
}

void double_comm_end(nccl_comm comm)
{
    double_comm_done(comm, nccl.comm_finalize(comm));
    NCCL(comm_destroy(comm));
}

bool double_stream_ends(cu_stream stream, uint32_t ms)
{
    uint64_t end_ms = ranks_now_ms() + ms;

    while (cuda.stream_query(stream) == CU_ERROR_NOT_READY) {
        if (ranks_now_ms() >= end_ms) {
            return false;
        }
        usleep(200);
    }
    return true;
}

void *double_put(const void *bytes, uint64_t n_bytes)
{
    cu_address address = device_memory(n_bytes);
    cu_stream stream = stream_make();

    DRIVER(copy(address, (cu_address)(uintptr_t)bytes, n_bytes, stream));
    stream_finish(stream);
    DRIVER(stream_destroy(stream));
    return (void *)(uintptr_t)address;
}

void double_get(void *ret, const void *address, uint64_t n_bytes)
{
    cu_stream stream = stream_make();

    DRIVER(copy((cu_address)(uintptr_t)ret, (cu_address)(uintptr_t)address, n_bytes, stream));
    stream_finish(stream);
    DRIVER(stream_destroy(stream));
}
