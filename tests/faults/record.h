/* SPDX-License-Identifier: Apache-2.0 */
/* Records: what each rank of a trial writes down, in memory that outlives it. */
#ifndef FAULTS_RECORD_H
#define FAULTS_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "faults/trial.h"
#include "hsdp/abi.h"

#define RECORD_MAX_CALLS   400u
#define RECORD_STORE_BYTES 256u
#define RECORD_STORE_KEYS  8u

/* One call of the plugin. All times are of the monotonic clock. */
struct call_record {
    const char *name; /* a literal: every process of a trial has it at the same address */
    uint64_t start_ns;
    uint64_t end_ns;     /* 0 = it has not returned */
    uint64_t timeout_ms; /* of the operation, for this rank */
    enum call_kind kind;
    uint32_t job; /* 0 = the job, 1 = the second one */
    int32_t status;
    int32_t wanted; /* what it is to answer: HSDP_OK, or HSDP_ERR_UNSUPPORTED on several nodes */
    bool is_local;  /* refused on purpose: a wrong argument */
    struct hsdp_error error;
};

/* What a process holds. */
struct holdings {
    uint32_t n_descriptors;
    uint32_t n_threads;
    uint32_t n_mappings; /* shared ones, and those of files that are gone */
};

/* Written by one rank alone. */
struct rank_record {
    _Atomic uint32_t n_calls;
    _Atomic uint64_t fault_ns; /* when it happened; 0 = it has not */
    struct call_record calls[RECORD_MAX_CALLS];
    struct hsdp_error first; /* what job.status tells once a call has failed */
    int32_t first_status;
    uint32_t first_job;         /* which of the two it was */
    _Atomic uint32_t n_told[2]; /* calls of on_abort, for each job */
    bool has_measured;
    struct holdings before;          /* the first job->create */
    struct holdings after;           /* the last destroy */
    char wrong_number[160];          /* the first value that is not right; "" = none */
    _Atomic uint64_t abort_start_ns; /* by a second thread */
    _Atomic uint64_t abort_end_ns;
    int32_t abort_status;
    int32_t busy_status;  /* the first answer to a second thread that is neither OK nor BUSY */
    int32_t child_status; /* what the job answered in a child that was forked */
    bool has_finished;    /* it came to its end */
};

struct stored {
    _Atomic uint32_t is_there;
    char key[128];
    uint64_t n_bytes;
    uint8_t bytes[RECORD_STORE_BYTES];
};

/* Shared by all processes of a trial. */
struct record {
    struct rank_record ranks[TRIAL_MAX_RANKS];
    struct stored store[RECORD_STORE_KEYS];
    _Atomic uint32_t is_over; /* all others have ended: whoever lingers may go */

    uint16_t master_port;       /* of several nodes: a free one */
    uint16_t proxy_port;        /* where the proxy listens; 0 = there is none */
    _Atomic uint32_t root_port; /* where the root does, as it has put into the store */
    _Atomic uint32_t link;      /* enum link_state: what becomes of the proxy's connections */

    /* Written by who starts the ranks. */
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t overshoot_ns; /* the longest that a short sleep took too long */
    int wait_status[TRIAL_MAX_RANKS];
    bool has_hung[TRIAL_MAX_RANKS]; /* it had to be ended */
    uint32_t n_processes_left;
    char left[256]; /* what was left outside of the processes; "" = nothing */
};

enum link_state {
    LINK_PASSES,
    LINK_DROPS, /* all that stand are reset, once */
    LINK_IS_CUT,
};

/** True for a call that has returned what it was not to return. */
bool record_has_failed(const struct call_record *call);

/** When the fault happened, on whatever rank; 0 = it did not. */
uint64_t record_fault_ns(const struct record *record);

/** The calls of a rank that are complete in the record. */
uint32_t record_n_calls(const struct rank_record *rank);

/** What the victim was in when it happened, or came to next; false = neither. */
bool record_moment(const struct record *record, const struct trial *trial, enum call_kind *ret_kind,
                   bool *ret_is_inside);

#endif /* FAULTS_RECORD_H */
