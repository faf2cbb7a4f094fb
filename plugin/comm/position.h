/* SPDX-License-Identifier: Apache-2.0 */
/* Positions: where each rank is, for the sentences of the others. */
#ifndef COMM_POSITION_H
#define COMM_POSITION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/job.h"

#define POSITION_CALL_WORDS      4u
#define POSITION_OPERATION_WORDS 4u
#define POSITION_NAME_WORDS      8u

/*
 * In shared memory; written by the thread inside the job, read by anybody. The first line is for
 * every call, so it takes no clock and no lock. The rest changes when a call is about to sleep, and
 * with phases.
 */
struct position {
    _Alignas(64) _Atomic uint64_t n_moves; /* odd = a call is inside */
    _Atomic uint64_t call_moves;           /* what n_moves was when `call` was written */
    _Atomic uint64_t left_ns;              /* when the host left, where it is known; else 0 */
    _Atomic uint64_t call[POSITION_CALL_WORDS];
    _Alignas(64) _Atomic uint64_t version; /* odd while the following is being written */
    _Atomic uint64_t since_ns;             /* it waits since then; 0 = it does not */
    _Atomic uint64_t asked_ns;             /* 0 = it sleeps until then; else it last asked */
    _Atomic uint64_t missing; /* those it waits for; itself = its device; 0 = earlier work */
    _Atomic uint64_t sequence;
    _Atomic uint64_t operation[POSITION_OPERATION_WORDS];
    _Atomic uint64_t group[POSITION_NAME_WORDS];
    _Atomic uint64_t unit[POSITION_NAME_WORDS];
    _Atomic uint64_t phase[POSITION_NAME_WORDS]; /* the innermost; "" = none */
};

/* ------------------------------------------------------------------------------ writing */

void position_enter(struct position *position);
/** The name of the call that is inside. */
void position_call(struct position *position, const char *name);
void position_leave(struct position *position, uint64_t left_ns);

/** It waits since since_ns; asked_ns != 0: it does not sleep, but asks from time to time. */
void position_wait(struct position *position, const struct wait *wait, uint64_t missing,
                   uint64_t since_ns, uint64_t asked_ns);
/** It has asked again, and goes on with something else. */
void position_asked(struct position *position, uint64_t asked_ns);
void position_go(struct position *position);
void position_phase(struct position *position, const char *phase);

/** What a rank has written before it had shared memory. */
void position_copy(struct position *to, const struct position *from);

/* ------------------------------------------------------------------------------ reading */

struct position_view {
    bool is_inside;
    bool is_waiting;
    uint64_t left_ns;
    uint64_t since_ns;
    uint64_t missing;
    uint64_t sequence;
    char call[POSITION_CALL_WORDS * 8]; /* "" = outside, or not known */
    char operation[POSITION_OPERATION_WORDS * 8];
    char group[POSITION_NAME_WORDS * 8];
    char unit[POSITION_NAME_WORDS * 8];
    char phase[POSITION_NAME_WORDS * 8];
};

/** What is half written is left out of the view. */
void position_read(const struct position *position, uint64_t now_ns, struct position_view *ret);

#endif /* COMM_POSITION_H */
