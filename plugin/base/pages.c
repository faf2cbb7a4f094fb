/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: memory of one's own, and touching memory before it is needed. */
#include "base/pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* Those of Linux 5.14, where the headers are older. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Less gains nothing that could be seen, and a touched byte may take up a huge page. */
#define HUGE_MIN_BYTES (UINT64_C(8) << 20)

void *pages_map(uint64_t n_bytes)
{
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED) {
        return NULL;
    }
    if (n_bytes >= HUGE_MIN_BYTES) {
        madvise(base, n_bytes, MADV_HUGEPAGE); /* a wish */
    }
    return base;
}

/* For kernels before 5.14. Peers may be writing there: nothing of theirs is written over. */
static void pages_touch(uint8_t *base, uint64_t n_bytes, uint64_t page_bytes, bool is_written)
{
    for (uint64_t at = 0; at < n_bytes; at += page_bytes) {
        _Atomic uint8_t *byte = (_Atomic uint8_t *)(base + at);

        if (is_written) {
            atomic_fetch_or(byte, 0);
        } else {
            atomic_load(byte);
        }
    }
}

int pages_populate(const void *base, uint64_t n_bytes, bool is_written)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t before = (uintptr_t)base % page_bytes;
    uint8_t *first = (uint8_t *)(uintptr_t)base - before;

    if (n_bytes == 0) {
        return 0;
    }
    n_bytes = (before + n_bytes + page_bytes - 1) / page_bytes * page_bytes;
    if (madvise(first, n_bytes, is_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return errno;
    }
    pages_touch(first, n_bytes, page_bytes, is_written);
    return 0;
}
