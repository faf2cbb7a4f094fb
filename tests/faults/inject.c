/* SPDX-License-Identifier: Apache-2.0 */
/* Injection: this program's own malloc and mmap, which all that it loads calls too. */
#include "faults/inject.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

static _Thread_local struct {
    uint32_t left; /* calls until one fails; 0 = none will */
    uint32_t n_failed;
    uint64_t failed_ns; /* when the first one did; 0 = none has */
    enum inject_what what;
    bool is_lasting;
} plan;

bool inject_is_possible(enum inject_what what)
{
#if defined(__GLIBC__) && !IS_SANITIZED
    (void)what;
    return true;
#else
    (void)what;
    return false;
#endif
}

void inject_arm(enum inject_what what, uint32_t nth, bool is_lasting)
{
    plan.what = what;
    plan.is_lasting = is_lasting;
    plan.n_failed = 0;
    plan.failed_ns = 0;
    plan.left = nth;
}

void inject_disarm(void)
{
    plan.left = 0;
}

uint32_t inject_n_failed(void)
{
    return plan.n_failed;
}

uint64_t inject_failed_ns(void)
{
    return plan.failed_ns;
}

#if defined(__GLIBC__) && !IS_SANITIZED

/* True when this call is to fail. */
static bool call_fails(enum inject_what what)
{
    struct timespec now;

    if (plan.left == 0 || plan.what != what) {
        return false;
    }
    if (plan.left > 1) {
        plan.left--;
        return false;
    }
    plan.left = plan.is_lasting ? 1 : 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (plan.n_failed++ == 0) {
        plan.failed_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    }
    errno = ENOMEM;
    return true;
}

/* Seen by all that this program loads, however it was compiled. */
#pragma GCC visibility push(default)

/* What the C library's own are called, for those who come before them. */
extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t n_bytes);
extern void *__libc_realloc(void *memory, size_t n_bytes);
extern void *__libc_memalign(size_t align_bytes, size_t n_bytes);

void *malloc(size_t n_bytes)
{
    return call_fails(INJECT_MEMORY) ? NULL : __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t n_bytes)
{
    return call_fails(INJECT_MEMORY) ? NULL : __libc_calloc(n, n_bytes);
}

void *realloc(void *memory, size_t n_bytes)
{
    return call_fails(INJECT_MEMORY) ? NULL : __libc_realloc(memory, n_bytes);
}

void *aligned_alloc(size_t align_bytes, size_t n_bytes)
{
    return call_fails(INJECT_MEMORY) ? NULL : __libc_memalign(align_bytes, n_bytes);
}

int posix_memalign(void **ret_memory, size_t align_bytes, size_t n_bytes)
{
    void *memory = call_fails(INJECT_MEMORY) ? NULL : __libc_memalign(align_bytes, n_bytes);

    if (memory == NULL) {
        return ENOMEM;
    }
    *ret_memory = memory;
    return 0;
}

void *mmap(void *base, size_t n_bytes, int protection, int flags, int fd, off_t offset)
{
    if (call_fails(INJECT_MAPPING)) {
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, base, n_bytes, protection, flags, fd, offset);
}

int memfd_create(const char *name, unsigned int flags)
{
    return call_fails(INJECT_MAPPING) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int ftruncate(int fd, off_t n_bytes)
{
    return call_fails(INJECT_MAPPING) ? -1 : (int)syscall(SYS_ftruncate, fd, n_bytes);
}

#pragma GCC visibility pop

#endif
