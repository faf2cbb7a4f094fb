/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA double's memory: ranges that a host cannot touch, and what lies behind them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "doubles/cuda_double.h"

/*
 * An address of the device lies in a range of its own, without access, and with room around it that
 * belongs to no allocation. The range stays when the memory is freed: no address comes twice, and
 * whoever uses an old one is found. POISON is a NaN in every floating-point format.
 */
enum { PAGE = 4096, ALIGNMENT = 512, POISON = 0xff };

/* An access of which nobody says what it is. */
enum { IS_ANY = 2 };

static struct allocation **allocations; /* by range, ascending; freed ones, too */
static size_t n_allocations;
static size_t max_allocations;
static uint64_t n_alloc_calls; /* of the device's and the host's memory */

static size_t round_up(size_t n_bytes, size_t unit)
{
    return (n_bytes + unit - 1) / unit * unit;
}

/* ------------------------------------------------------------------------------- the list */

/* How many ranges begin at or below an address. */
static size_t range_rank(uintptr_t address)
{
    size_t low = 0;
    size_t high = n_allocations;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (allocations[middle]->range <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct allocation *memory_find(uintptr_t address)
{
    size_t rank = range_rank(address);
    struct allocation *allocation = rank > 0 ? allocations[rank - 1] : NULL;

    if (allocation == NULL || address - allocation->range >= allocation->range_bytes) {
        return NULL;
    }
    return allocation;
}

static void allocation_insert(struct allocation *allocation)
{
    size_t rank = range_rank(allocation->range);

    if (n_allocations == max_allocations) {
        max_allocations = 2 * max_allocations + 64;
        allocations = realloc(allocations, max_allocations * sizeof(*allocations));
        if (allocations == NULL) {
            driver_die("no memory for a list of allocations");
        }
    }
    memmove(&allocations[rank + 1], &allocations[rank],
            (n_allocations - rank) * sizeof(*allocations));
    allocations[rank] = allocation;
    n_allocations++;
}

static bool allocation_holds(const struct allocation *allocation, uintptr_t begin, uint64_t n_bytes)
{
    return begin >= allocation->base && begin - allocation->base <= allocation->n_bytes &&
           n_bytes <= allocation->n_bytes - (begin - allocation->base);
}

static _Noreturn void access_refuse(const char *name, const struct double_access *access,
                                    const struct allocation *allocation)
{
    uintptr_t begin = (uintptr_t)access->address;
    const char *verb = access->is_write ? "writes" : "reads";

    if (access->is_write == IS_ANY) {
        verb = "touches";
    }

    if (allocation == NULL) {
        driver_die("%s %s %" PRIu64 " bytes at 0x%" PRIxPTR
                   ", which is no memory that the driver has given out",
                   name, verb, access->n_bytes, begin);
    }
    if (allocation->shadow == NULL || allocation->is_leaving) {
        driver_die("%s %s %" PRIu64 " bytes at 0x%" PRIxPTR ", in the %zu bytes at 0x%" PRIxPTR
                   " that have been freed",
                   name, verb, access->n_bytes, begin, allocation->n_bytes, allocation->base);
    }
    driver_die("%s %s %" PRIu64 " bytes at 0x%" PRIxPTR ", outside of the %zu bytes at 0x%" PRIxPTR,
               name, verb, access->n_bytes, begin, allocation->n_bytes, allocation->base);
}

struct allocation *memory_hold(const char *name, const struct double_access *access)
{
    uintptr_t begin = (uintptr_t)access->address;
    struct allocation *allocation = memory_find(begin);

    if (allocation == NULL || allocation->shadow == NULL || allocation->is_leaving ||
        !allocation_holds(allocation, begin, access->n_bytes)) {
        access_refuse(name, access, allocation);
    }
    return allocation;
}

void *double_shadow(const void *address, uint64_t n_bytes)
{
    struct double_access access = {address, n_bytes, IS_ANY, 0};
    struct allocation *allocation;
    unsigned char *shadow;

    pthread_mutex_lock(&driver_lock);
    allocation = memory_find((uintptr_t)address);
    /* Work that was there before the memory is freed may still use it: that waits. */
    if (allocation == NULL || allocation->shadow == NULL ||
        !allocation_holds(allocation, (uintptr_t)address, n_bytes)) {
        access_refuse(stream_work_name(), &access, allocation);
    }
    shadow = allocation->shadow + ((uintptr_t)address - allocation->base);
    pthread_mutex_unlock(&driver_lock);
    return shadow;
}

void double_host_access(const void *address, uint64_t n_bytes, bool is_write)
{
    struct double_access access = {address, n_bytes, is_write, 0};

    pthread_mutex_lock(&driver_lock);
    races_host_access(memory_hold("the host", &access), &access, "the host");
    pthread_mutex_unlock(&driver_lock);
}

/* ------------------------------------------------------------------- allocation and freeing */

static void *pages_map(size_t n_bytes, int protection)
{
    void *base =
        mmap(NULL, n_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return base != MAP_FAILED ? base : NULL;
}

/* Between pages of no access; a device's is as aligned as the driver promises, and no better. */
static struct allocation *allocation_create(cu_context context, size_t n_bytes, bool is_host)
{
    struct allocation *allocation = calloc(1, sizeof(*allocation));
    size_t data_bytes = round_up(n_bytes + ALIGNMENT, PAGE);
    void *range = pages_map(data_bytes + (is_host ? 2 : 1) * (size_t)PAGE, PROT_NONE);
    void *behind = is_host ? range : pages_map(data_bytes, PROT_READ | PROT_WRITE);

    if (allocation == NULL || range == NULL || behind == NULL) {
        driver_die("no memory for %zu bytes", n_bytes);
    }
    *allocation = (struct allocation){
        .base = (uintptr_t)range + (is_host ? PAGE : ALIGNMENT),
        .n_bytes = n_bytes,
        .range = (uintptr_t)range,
        .range_bytes = data_bytes + (is_host ? 2 : 1) * (size_t)PAGE,
        .shadow = (unsigned char *)behind + (is_host ? PAGE : ALIGNMENT),
        .context = context,
        .is_host = is_host,
    };
    if (is_host && mprotect(allocation->shadow, data_bytes, PROT_READ | PROT_WRITE) != 0) {
        driver_die("no access to %zu bytes of pinned memory", n_bytes);
    }
    memset(allocation->shadow, POISON, n_bytes);
    allocation_insert(allocation);
    return allocation;
}

/* The range stays: of pinned memory it is the shadow, too, which loses its access. */
static void allocation_end(struct allocation *allocation)
{
    size_t data_bytes = round_up(allocation->n_bytes + ALIGNMENT, PAGE);

    races_forget(allocation);
    if (allocation->is_host) {
        mmap((void *)allocation->base, data_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    } else {
        munmap(allocation->shadow - ALIGNMENT, data_bytes);
        allocation->context->allocated_bytes -= round_up(allocation->n_bytes, ALIGNMENT);
    }
    allocation->shadow = NULL;
}

static uint64_t device_bytes(void)
{
    return (uint64_t)driver_number("HSDP_DOUBLE_MEMORY_MIB", 1024) << 20;
}

cu_result cuMemGetInfo_v2(size_t *ret_free_bytes, size_t *ret_total_bytes)
{
    cu_context context;
    cu_result result = driver_enter(&context);

    if (result != CU_OK) {
        return result;
    }
    if (ret_free_bytes == NULL || ret_total_bytes == NULL) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    *ret_total_bytes = device_bytes();
    *ret_free_bytes = 0;
    if (*ret_total_bytes > context->allocated_bytes) {
        *ret_free_bytes = *ret_total_bytes - context->allocated_bytes;
    }
    return driver_leave(CU_OK);
}

cu_result cuMemAlloc_v2(cu_address *ret_address, size_t n_bytes)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    uint64_t total_bytes = device_bytes();

    if (result != CU_OK) {
        return result;
    }
    if (ret_address == NULL || n_bytes == 0) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    n_alloc_calls++;
    if (n_bytes > total_bytes ||
        context->allocated_bytes + round_up(n_bytes, ALIGNMENT) > total_bytes ||
        driver_fault_from("alloc_fails", n_alloc_calls)) {
        return driver_leave(CU_ERROR_OUT_OF_MEMORY);
    }
    context->allocated_bytes += round_up(n_bytes, ALIGNMENT);
    *ret_address = allocation_create(context, n_bytes, false)->base;
    return driver_leave(CU_OK);
}

cu_result cuMemHostAlloc(void **ret_address, size_t n_bytes, uint32_t flags)
{
    cu_context context;
    cu_result result = driver_enter(&context);

    if (result != CU_OK) {
        return result;
    }
    if (ret_address == NULL || n_bytes == 0 || flags > 7) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    n_alloc_calls++;
    if (n_bytes > SIZE_MAX / 4 || driver_fault_from("alloc_fails", n_alloc_calls)) {
        return driver_leave(CU_ERROR_OUT_OF_MEMORY);
    }
    *ret_address = (void *)allocation_create(context, n_bytes, true)->base;
    return driver_leave(CU_OK);
}

/*
 * As the driver does, waits for all that the device has been given, related or not. Who relies on
 * that has a race all the same: the wait is nothing that the driver promises.
 */
static cu_result allocation_free(uintptr_t address, bool is_host)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct allocation *allocation;

    if (result != CU_OK) {
        return result;
    }
    allocation = memory_find(address);
    if (allocation == NULL || allocation->base != address || allocation->shadow == NULL ||
        allocation->is_leaving || allocation->is_host != is_host) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    races_host_access(allocation,
                      &(struct double_access){(void *)address, allocation->n_bytes, true, 0},
                      "the host's freeing it");
    allocation->is_leaving = true;
    context_wait(allocation->context);
    allocation_end(allocation);
    return driver_leave(context->has_failed ? CU_ERROR_LAUNCH_FAILED : CU_OK);
}

cu_result cuMemFree_v2(cu_address address)
{
    return allocation_free((uintptr_t)address, false);
}

cu_result cuMemFreeHost(void *address)
{
    return allocation_free((uintptr_t)address, true);
}

void memory_reset(cu_context context)
{
    for (size_t i = 0; i < n_allocations; i++) {
        if (allocations[i]->context == context && allocations[i]->shadow != NULL) {
            allocation_end(allocations[i]);
        }
    }
}

cu_result cuPointerGetAttribute(void *ret_value, int32_t attribute, cu_address address)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct allocation *allocation;

    if (result != CU_OK) {
        return result;
    }
    allocation = memory_find((uintptr_t)address);
    if (ret_value == NULL || allocation == NULL || allocation->shadow == NULL ||
        !allocation_holds(allocation, (uintptr_t)address, 1)) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    switch (attribute) {
    case CU_POINTER_MEMORY_TYPE:
        *(uint32_t *)ret_value = allocation->is_host ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
        return driver_leave(CU_OK);
    case CU_POINTER_ORDINAL:
        *(int32_t *)ret_value = allocation->context->ordinal;
        return driver_leave(CU_OK);
    default:
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
}
