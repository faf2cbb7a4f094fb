/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA double's streams do: copies, fills, kernels found by name in modules. */
#include <stdlib.h>
#include <string.h>

#include "doubles/cuda_double.h"

/* --------------------------------------------------------------------------- copies and fills */

struct copy {
    unsigned char *dst; /* as the host can touch them */
    const unsigned char *src;
    size_t n_bytes;
    uint8_t value;          /* where src is NULL */
    unsigned char staged[]; /* of a source that the driver does not know */
};

static void copy_run(void *arg)
{
    struct copy *copy = arg;

    if (copy->src != NULL) {
        memmove(copy->dst, copy->src, copy->n_bytes);
    } else {
        memset(copy->dst, copy->value, copy->n_bytes);
    }
    free(copy);
}

static struct copy *copy_create(size_t n_bytes, size_t staged_bytes)
{
    struct copy *copy = malloc(sizeof(*copy) + staged_bytes);

    if (copy == NULL) {
        driver_die("no memory to stage %zu bytes", staged_bytes);
    }
    *copy = (struct copy){NULL, NULL, n_bytes, 0};
    return copy;
}

/* Where the host finds one side of a copy; NULL = in memory that the driver does not know. */
static unsigned char *side_find(const char *name, const struct double_access *access)
{
    struct allocation *allocation;

    if (memory_find((uintptr_t)access->address) == NULL) {
        return NULL;
    }
    allocation = memory_hold(name, access);
    return allocation->shadow + ((uintptr_t)access->address - allocation->base);
}

/*
 * A source that the driver does not know is read before the call returns, and a destination that it
 * does not know is written before.
 */
static cu_result copy_enqueue(struct stream *stream, const struct double_access sides[2])
{
    unsigned char *dst = side_find("a copy", &sides[0]);
    unsigned char *src = side_find("a copy", &sides[1]);
    struct copy *copy = copy_create(sides[0].n_bytes, src == NULL ? sides[1].n_bytes : 0);
    struct order order = {"a copy", copy_run, copy, free, NULL, 0, NULL, false, true};
    struct double_access known[2];
    struct clock clock;
    struct place place;
    cu_result result;

    if (src == NULL) {
        src = memcpy(copy->staged, sides[1].address, sides[1].n_bytes);
    } else {
        known[order.n_accesses++] = sides[1];
    }
    if (dst != NULL) {
        known[order.n_accesses++] = sides[0];
    }
    copy->dst = dst != NULL ? dst : (unsigned char *)sides[0].address;
    copy->src = src;
    order.accesses = known;
    result = stream_enqueue(stream, &order);
    if (result != CU_OK) {
        free(copy);
        return result;
    }
    if (dst == NULL) {
        place = (struct place){stream, stream->n_enqueued};
        clock = stream->clock;
        place_wait(&place);
        clock_join(&host_clock, &clock);
    }
    return stream->context->has_failed ? CU_ERROR_LAUNCH_FAILED : CU_OK;
}

cu_result cuMemcpyAsync(cu_address dst, cu_address src, size_t n_bytes, cu_stream handle)
{
    struct double_access sides[2] = {{(void *)(uintptr_t)dst, n_bytes, true, 0},
                                     {(void *)(uintptr_t)src, n_bytes, false, 0}};
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, handle);
    if (stream == NULL) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    if (n_bytes == 0) {
        return driver_leave(CU_OK);
    }
    return driver_leave(dst == 0 || src == 0 ? CU_ERROR_INVALID_VALUE
                                             : copy_enqueue(stream, sides));
}

cu_result cuMemsetD8Async(cu_address dst, uint8_t value, size_t n_bytes, cu_stream handle)
{
    struct double_access access = {(void *)(uintptr_t)dst, n_bytes, true, 0};
    struct order order = {"a fill", copy_run, NULL, free, &access, 1, NULL, false, false};
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;
    struct copy *fill;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, handle);
    if (stream == NULL || n_bytes == 0) {
        return driver_leave(stream == NULL ? CU_ERROR_INVALID_HANDLE : CU_OK);
    }
    fill = copy_create(n_bytes, 0);
    fill->dst = side_find("a fill", &access);
    fill->value = value;
    if (fill->dst == NULL) {
        free(fill);
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    order.arg = fill;
    result = stream_enqueue(stream, &order);
    if (result != CU_OK) {
        free(fill);
    }
    return driver_leave(result);
}

/* --------------------------------------------------------------------- modules and kernels */

struct module {
    cu_context context;
    uint64_t generation;
    void **functions; /* handles, one for each of double_kernels; NULL = nobody has asked */
};

struct function {
    cu_module module;
    const struct double_kernel *kernel;
};

struct launch {
    const struct double_kernel *kernel;
    uint32_t n_blocks;
    uint32_t n_threads;
    unsigned char args[];
};

enum { MAX_BLOCK_THREADS = 1024, MAX_SHARED_BYTES = 48 * 1024 };

static uint64_t n_launches;

static struct module *module_find(cu_context context, cu_module handle)
{
    struct module *module = handle_find(HANDLE_MODULE, handle);

    return module != NULL && module->context == context && module->generation == context->generation
               ? module
               : NULL;
}

cu_result cuModuleLoadData(cu_module *ret_module, const void *image)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct module *module;

    if (result != CU_OK) {
        return result;
    }
    if (ret_module == NULL || image == NULL) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    module = calloc(1, sizeof(*module));
    if (module != NULL) {
        module->functions = calloc(double_n_kernels, sizeof(*module->functions));
    }
    if (module == NULL || module->functions == NULL) {
        free(module);
        return driver_leave(CU_ERROR_OUT_OF_MEMORY);
    }
    module->context = context;
    module->generation = context->generation;
    *ret_module = handle_create(HANDLE_MODULE, module);
    return driver_leave(CU_OK);
}

cu_result cuModuleUnload(cu_module handle)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct module *module;

    if (result != CU_OK) {
        return result;
    }
    module = module_find(context, handle);
    if (module == NULL) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    for (uint32_t i = 0; i < double_n_kernels; i++) {
        free(handle_find(HANDLE_FUNCTION, module->functions[i]));
        handle_destroy(module->functions[i]);
    }
    handle_destroy(handle);
    free(module->functions);
    free(module);
    return driver_leave(CU_OK);
}

static cu_function function_handle(cu_module handle, struct module *module, uint32_t index)
{
    if (module->functions[index] == NULL) {
        struct function *function = malloc(sizeof(*function));

        if (function == NULL) {
            driver_die("no memory for a function");
        }
        *function = (struct function){handle, &double_kernels[index]};
        module->functions[index] = handle_create(HANDLE_FUNCTION, function);
    }
    return module->functions[index];
}

cu_result cuModuleGetFunction(cu_function *ret_function, cu_module handle, const char *name)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct module *module;

    if (result != CU_OK) {
        return result;
    }
    module = module_find(context, handle);
    if (module == NULL || ret_function == NULL || name == NULL) {
        return driver_leave(module == NULL ? CU_ERROR_INVALID_HANDLE : CU_ERROR_INVALID_VALUE);
    }
    for (uint32_t i = 0; i < double_n_kernels; i++) {
        if (strcmp(double_kernels[i].symbol, name) == 0) {
            *ret_function = function_handle(handle, module, i);
            return driver_leave(CU_OK);
        }
    }
    return driver_leave(CU_ERROR_NOT_FOUND);
}

static void launch_run(void *arg)
{
    struct launch *launch = arg;

    launch->kernel->run(launch->args, launch->n_blocks, launch->n_threads);
    free(launch);
}

static cu_result launch_enqueue(struct stream *stream, const struct double_kernel *kernel,
                                const uint32_t size[2], const void *args)
{
    struct double_access accesses[DOUBLE_MAX_ACCESSES];
    struct launch *launch = malloc(sizeof(*launch) + kernel->args_bytes);
    struct order order = {kernel->symbol, launch_run, launch, free, accesses, 0,
                          NULL,           false,      false};
    cu_result result;

    if (launch == NULL) {
        driver_die("no memory for a launch");
    }
    *launch = (struct launch){kernel, size[0], size[1]};
    memcpy(launch->args, args, kernel->args_bytes);
    order.n_accesses = kernel->accesses(launch->args, accesses, DOUBLE_MAX_ACCESSES);
    n_launches++;
    order.fails = driver_fault_from("launch_fails", n_launches);
    result = stream_enqueue(stream, &order);
    if (result != CU_OK) {
        free(launch);
    }
    return result;
}

/* The kernels that there are have one dimension, and one struct of arguments. */
cu_result cuLaunchKernel(cu_function handle, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z,
                         uint32_t block_x, uint32_t block_y, uint32_t block_z,
                         uint32_t shared_bytes, cu_stream stream_handle, void **params,
                         void **extra)
{
    const uint32_t size[2] = {grid_x, block_x};
    cu_context context;
    cu_result result = driver_enter(&context);
    struct function *function;
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    function = handle_find(HANDLE_FUNCTION, handle);
    stream = stream_find(context, stream_handle);
    if (function == NULL || module_find(context, function->module) == NULL || stream == NULL) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    if (grid_x < 1 || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1 || block_x < 1 ||
        block_x > MAX_BLOCK_THREADS || block_y != 1 || block_z != 1 ||
        shared_bytes > MAX_SHARED_BYTES || params == NULL || params[0] == NULL || extra != NULL) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    return driver_leave(launch_enqueue(stream, function->kernel, size, params[0]));
}
