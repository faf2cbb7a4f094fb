/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of one dtype, in the host's memory or in a space, copied from one to the other. */
#ifndef SHARD_ELEMS_H
#define SHARD_ELEMS_H

#include <stdint.h>

#include "base/dtype.h"
#include "hsdp/abi.h"

struct space;

struct elems {
    void *base;
    enum dtype dtype;
    struct space *space; /* NULL: the host's memory */
};

/** Copies n_elems elements, rounded once if dst is narrower. Both begin anywhere. */
int32_t elems_copy(struct elems dst, uint64_t dst_at, struct elems src, uint64_t src_at,
                   uint64_t n_elems, struct hsdp_error *reterr);

#endif /* SHARD_ELEMS_H */
