/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: a queue of bytes. */
#include "net/bytes.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_BYTES 4096u /* by an empty queue */

uint8_t *bytes_reserve(struct bytes *bytes, uint64_t n_bytes)
{
    uint64_t n_left = bytes_left(bytes);
    uint64_t capacity_bytes = bytes->capacity_bytes == 0 ? 64 : bytes->capacity_bytes;
    uint8_t *memory;

    if (bytes->memory != NULL && n_bytes <= bytes->capacity_bytes - bytes->end) {
        return bytes->memory + bytes->end;
    }
    if (bytes->begin > 0 && n_left > 0) {
        memmove(bytes->memory, bytes->memory + bytes->begin, n_left);
    }
    bytes->begin = 0;
    bytes->end = n_left;
    while (capacity_bytes - n_left < n_bytes) {
        capacity_bytes *= 2;
    }
    if (capacity_bytes != bytes->capacity_bytes) {
        memory = realloc(bytes->memory, capacity_bytes);
        if (memory == NULL) {
            return NULL;
        }
        bytes->memory = memory;
        bytes->capacity_bytes = capacity_bytes;
    }
    return bytes->memory + bytes->end;
}

void bytes_take(struct bytes *bytes, uint64_t n_bytes)
{
    bytes->begin += n_bytes;
    if (bytes->begin == bytes->end) {
        bytes->begin = 0;
        bytes->end = 0;
        if (bytes->capacity_bytes > KEPT_BYTES) {
            bytes_fini(bytes);
        }
    }
}

void bytes_fini(struct bytes *bytes)
{
    free(bytes->memory);
    memset(bytes, 0, sizeof(*bytes));
}
