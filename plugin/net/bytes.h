/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: a queue of bytes that grows at its end and is taken from at its beginning. */
#ifndef NET_BYTES_H
#define NET_BYTES_H

#include <stdint.h>

struct bytes {
    uint8_t *memory; /* owned */
    uint64_t begin;
    uint64_t end;
    uint64_t capacity_bytes;
};

static inline uint64_t bytes_left(const struct bytes *bytes)
{
    return bytes->end - bytes->begin;
}

/** Room for n_bytes more at the end, which the caller fills and adds to `end`; NULL: no memory. */
uint8_t *bytes_reserve(struct bytes *bytes, uint64_t n_bytes);

/** Takes n_bytes from the beginning; an empty queue keeps only a little memory. */
void bytes_take(struct bytes *bytes, uint64_t n_bytes);

void bytes_fini(struct bytes *bytes);

#endif /* NET_BYTES_H */
