/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for contenders that have none of their own: the best a program can have. */
#include "buffer.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "contender.h"

#define HUGE_BYTES ((size_t)2 << 20)

static size_t mapped_bytes(size_t n_bytes)
{
    return (n_bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

/* Maps more than is wanted, and gives back what lies before and behind whole huge pages. */
static uint8_t *space_reserve(size_t n_bytes)
{
    uint8_t *base = mmap(NULL, n_bytes + HUGE_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (base == MAP_FAILED) {
        fail("no room for %zu bytes", n_bytes);
    }
    before = (HUGE_BYTES - (uintptr_t)base % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0) {
        munmap(base, before);
    }
    munmap(base + before + n_bytes, HUGE_BYTES - before);
    return base + before;
}

static void *space_map(size_t n_bytes, int flags, int fd)
{
    uint8_t *space = space_reserve(mapped_bytes(n_bytes));
    void *base =
        mmap(space, mapped_bytes(n_bytes), PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);

    if (base == MAP_FAILED) {
        fail("cannot map %zu bytes", n_bytes);
    }
    madvise(base, mapped_bytes(n_bytes), MADV_HUGEPAGE); /* a system may have none */
    return base;
}

void *buffer_create(size_t n_bytes)
{
    void *base = space_map(n_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    memset(base, 0, mapped_bytes(n_bytes));
    return base;
}

void *buffer_map(int fd, size_t n_bytes)
{
    return space_map(n_bytes, MAP_SHARED, fd);
}

void buffer_destroy(void *base, size_t n_bytes)
{
    if (base != NULL) {
        munmap(base, mapped_bytes(n_bytes));
    }
}
