/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: a rank's last operations, in memory that others of its node read. */
#ifndef COMM_FLIGHT_H
#define COMM_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "comm/job.h"

#define FLIGHT_OPERATION_WORDS 4u
#define FLIGHT_NAME_WORDS      6u /* longer names are cut */

enum flight_state {
    FLIGHT_ISSUED,  /* something before it is not done yet */
    FLIGHT_STARTED, /* it goes on, or waits for others */
    FLIGHT_DONE,
    FLIGHT_FAILED,
    FLIGHT_N_STATES,
};

/*
 * One writer, the thread inside the job; readers are other threads and other processes, at any
 * time, also after the writer was killed in the middle. Nobody locks anything: `version` is odd
 * while a record is being written, and a reader that sees it change reads again.
 */
struct flight_slot {
    _Alignas(64) _Atomic uint64_t version; /* 8n + how often it changed; odd while it does */
    _Atomic uint64_t state;
    _Atomic uint64_t issue_ns; /* when it was called */
    _Atomic uint64_t start_ns; /* when it was tried with all before it done; 0 = not yet */
    _Atomic uint64_t end_ns;   /* 0 = open */
    _Atomic uint64_t ticket;   /* 0 = the call itself waits */
    _Atomic uint64_t sequence;
    _Atomic uint64_t n_bytes; /* 0 = none, or not known */
    _Atomic uint64_t operation[FLIGHT_OPERATION_WORDS];
    _Atomic uint64_t group[FLIGHT_NAME_WORDS];
    _Atomic uint64_t unit[FLIGHT_NAME_WORDS];
};

struct flight_ring {
    _Alignas(64) _Atomic uint64_t n_begun; /* the number of the last record; they count from 1 */
    struct flight_slot slots[];            /* as many as the setting flight_records */
};

/* A ring of which both sides know the length: nothing in shared memory is trusted with it. */
struct flight {
    struct flight_ring *ring; /* NULL = nothing is recorded yet */
    uint64_t max_records;
};

uint64_t flight_ring_bytes(uint64_t max_records);

/* ------------------------------------------------------------------------------ writing */

/** Records an operation; start_ns 0 = it is only issued. Its number, 0 without a ring. */
uint64_t flight_begin(const struct flight *flight, const struct wait *what, uint64_t ticket,
                      uint64_t issue_ns, uint64_t start_ns);
/* Numbers that have left the ring, and 0, are ignored. */
void flight_start(const struct flight *flight, uint64_t number, uint64_t sequence,
                  uint64_t start_ns);
void flight_end(const struct flight *flight, uint64_t number, enum flight_state state,
                uint64_t end_ns);

/* ------------------------------------------------------------------------------ reading */

struct flight_record {
    uint64_t number;
    uint64_t issue_ns;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t ticket;
    uint64_t sequence;
    uint64_t n_bytes;
    enum flight_state state;
    char operation[FLIGHT_OPERATION_WORDS * 8];
    char group[FLIGHT_NAME_WORDS * 8];
    char unit[FLIGHT_NAME_WORDS * 8];
};

enum flight_read {
    FLIGHT_READ,
    FLIGHT_TORN, /* its writer is at it, or died over it: only the number is known */
    FLIGHT_GONE, /* overwritten, or not begun */
};

enum flight_read flight_read(const struct flight *flight, uint64_t number,
                             struct flight_record *ret);
/** The number of the last record that was begun. */
uint64_t flight_last(const struct flight *flight);
/** Adds "n_operations" and "operations": the last max_records of them, oldest first. */
void flight_write(const struct flight *flight, uint64_t max_records, struct text *text);

#endif /* COMM_FLIGHT_H */
