/* SPDX-License-Identifier: Apache-2.0 */
/* One model in two stores of one job: on the device, and over shared memory, which is right. */
#ifndef TESTS_STORE_PAIR_H
#define TESTS_STORE_PAIR_H

#include "comm/nccl_engine.h"
#include "comm/transport.h"

/* What a pair is made of; all of it is the same on all ranks. */
struct pair_case {
    const char *dims;     /* as of fixture_mesh */
    const char *settings; /* of the plan */
    const char *expert;   /* "" = none: over which dimensions units of a second class are one;
                             or "tie": a parameter of all stages, or "large": one of 4 MiB */
    int32_t scopes[3];    /* of the microbatches of a window, the last one full */
    bool is_exact;        /* sums are equal bit for bit; else nearly */
};

struct pair {
    const struct pair_case *row;
    struct hsdp_job *job;
    struct hsdp_plan *plan;
    struct gpu *gpu;
    cu_stream stream; /* the host's */
    cu_event event;
    struct store *shm;
    struct store *nccl;
    uint64_t turn;
    uint32_t rank;
};

/** Jobs of this process are of backend nccl, on the doubles of device and library. */
void doubles_use(void);
/** Of the device's double: races that it has found in this process. */
uint64_t doubles_n_races(void);

void pair_open(struct pair *pair, const struct pair_case *row);
/** Expects that there was no race. */
void pair_close(struct pair *pair);

/* The device's memory, behind and before what is on the host's stream. */
void pair_write(struct pair *pair, void *dst, const void *host, uint64_t n_bytes);
void pair_read(struct pair *pair, void *host, const void *src, uint64_t n_bytes);
void pair_wait(struct pair *pair); /* for the stream */

/* Random masters into both, or changed ones; and their publishing. */
void pair_fill(struct pair *pair, uint64_t seed);
void pair_publish(struct pair *pair, enum published values);
/** Unshards all units, and compares them bit for bit. */
void pair_forward(struct pair *pair);
/** One pass over all units; gradients are a function of the seed and the rank. */
void pair_backward(struct pair *pair, int32_t scope, uint64_t seed);
/** Waits for the reductions of both, and compares what they have summed up. */
void pair_compare(struct pair *pair);
/** A step of both. The norm is taken of what each has summed up. */
void pair_step(struct pair *pair, double max_norm);

#endif /* TESTS_STORE_PAIR_H */
