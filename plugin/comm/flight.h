/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: a ring of the last operations. */
#ifndef COMM_FLIGHT_H
#define COMM_FLIGHT_H

#include <stdint.h>

#include "base/text.h"
#include "comm/job.h"

enum flight_state {
    FLIGHT_OPEN,
    FLIGHT_DONE,
    FLIGHT_FAILED,
};

struct flight_record {
    uint64_t ticket; /* 0 = a call that waited by itself */
    uint64_t sequence;
    uint64_t begin_ns;
    uint64_t end_ns; /* 0 = open */
    char operation[24];
    char group[32];
    char unit[32];
    enum flight_state state;
    uint32_t reserved;
};

struct flight {
    struct flight_record *records; /* NULL until the first one */
    uint64_t max_records;
    uint64_t n_begun; /* since the job was made */
};

/* Calls are made under the job's lock. */

/** Records what `wait` waits for, as open; returns its number, from 1. Without memory: 0. */
uint64_t flight_begin(struct flight *flight, const struct wait *wait, uint64_t ticket);
/** A number that has left the ring, and 0, are ignored. */
void flight_end(struct flight *flight, uint64_t number, enum flight_state state);
/** Adds "n_operations" and "operations", oldest first. */
void flight_write(const struct flight *flight, struct text *text);
void flight_fini(struct flight *flight);

#endif /* COMM_FLIGHT_H */
