/* SPDX-License-Identifier: Apache-2.0 */
/* What this program takes of the heap: its own malloc, which counts. */
#include "heap.h"

#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>

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

static struct heap_use use;

void heap_begin(void)
{
    use = (struct heap_use){0};
}

struct heap_use heap_use(void)
{
    return use;
}

#if defined(__GLIBC__) && !IS_SANITIZED

/* Seen by the C library as well, which takes memory for strdup. */
#pragma GCC visibility push(default)

/* What the C library's own are called, for those who come before them. */
extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t n_bytes);
extern void *__libc_realloc(void *memory, size_t n_bytes);
extern void *__libc_memalign(size_t align_bytes, size_t n_bytes);
extern void __libc_free(void *memory);

bool heap_is_counted(void)
{
    return true;
}

static int64_t bytes_of(void *memory)
{
    return memory == NULL ? 0 : (int64_t)malloc_usable_size(memory);
}

static void *bytes_taken(void *memory, size_t n_bytes)
{
    if (memory != NULL) {
        use.n_calls++;
        use.n_bytes += n_bytes;
        use.held_bytes += bytes_of(memory);
        use.peak_bytes = use.held_bytes > use.peak_bytes ? use.held_bytes : use.peak_bytes;
    }
    return memory;
}

void *malloc(size_t n_bytes)
{
    return bytes_taken(__libc_malloc(n_bytes), n_bytes);
}

void *calloc(size_t n, size_t n_bytes)
{
    return bytes_taken(__libc_calloc(n, n_bytes), n * n_bytes);
}

/* As if memory moved each time, with both places in use; whether it does is chance. */
void *realloc(void *memory, size_t n_bytes)
{
    const int64_t before = bytes_of(memory);
    void *grown = bytes_taken(__libc_realloc(memory, n_bytes), n_bytes);

    use.held_bytes -= grown != NULL || n_bytes == 0 ? before : 0;
    return grown;
}

void *aligned_alloc(size_t align_bytes, size_t n_bytes)
{
    return bytes_taken(__libc_memalign(align_bytes, n_bytes), n_bytes);
}

void free(void *memory)
{
    use.held_bytes -= bytes_of(memory);
    __libc_free(memory);
}

#pragma GCC visibility pop

#else

bool heap_is_counted(void)
{
    return false;
}

#endif
