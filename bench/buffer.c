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
void *buffer_create(size_t n_bytes)
{
    size_t wanted = mapped_bytes(n_bytes);
    uint8_t *base =
        mmap(NULL, wanted + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;

    if (base == MAP_FAILED) {
        fail("cannot map %zu bytes", wanted);
    }
    before = (HUGE_BYTES - (uintptr_t)base % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0) {
        munmap(base, before);
    }
    munmap(base + before + wanted, HUGE_BYTES - before);
    base += before;
    madvise(base, wanted, MADV_HUGEPAGE);
    memset(base, 0, wanted);
    return base;
}

void buffer_destroy(void *base, size_t n_bytes)
{
    if (base != NULL) {
        munmap(base, mapped_bytes(n_bytes));
    }
}
