/* SPDX-License-Identifier: Apache-2.0 */
/* Memory at the edge of what may be touched. */
#include "guard.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *guard_memory(struct conform *conform, size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = (n_bytes + 7) / 8 * 8;
    size_t n_pages = (rounded + page - 1) / page;
    unsigned char *memory = mmap(NULL, (n_pages + 1) * page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    conform_expect(conform,
                   memory != MAP_FAILED && mprotect(memory + n_pages * page, page, PROT_NONE) == 0,
                   "the kit has no memory for %zu bytes", n_bytes);
    memset(memory, GUARD_FILLER, n_pages * page);
    return memory + n_pages * page - rounded;
}

void *guard_copy(struct conform *conform, const void *object, size_t full_bytes, size_t n_bytes)
{
    size_t n_room = n_bytes < sizeof(size_t) ? sizeof(size_t) : n_bytes;
    unsigned char *copy = guard_memory(conform, n_room);

    memset(copy, 0, n_room);
    memcpy(copy, object, full_bytes < n_room ? full_bytes : n_room);
    memcpy(copy, &n_bytes, sizeof(n_bytes));
    return copy;
}

void *guard_output(struct conform *conform, size_t n_bytes)
{
    unsigned char *room =
        guard_memory(conform, n_bytes < sizeof(n_bytes) ? sizeof(n_bytes) : n_bytes);

    memcpy(room, &n_bytes, sizeof(n_bytes));
    return room;
}

bool guard_is_filled(const void *memory, size_t n_bytes, int filler)
{
    const unsigned char *bytes = memory;

    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] != (unsigned char)filler) {
            return false;
        }
    }
    return true;
}
