/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of the fault campaign: what is run and what goes wrong in it, drawn from a seed. */
#ifndef FAULTS_TRIAL_H
#define FAULTS_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#define TRIAL_MAX_RANKS 8u
#define TRIAL_MAX_UNITS 4u
#define TRIAL_MAX_NODES 4u

/* What goes wrong. docs/faults.md says of each what the survivors are promised. */
enum fault_kind {
    FAULT_NONE,
    FAULT_KILL,     /* SIGKILL */
    FAULT_STOP,     /* SIGSTOP; it goes on once the others have ended */
    FAULT_STALL,    /* the host's thread stands still for longer than every timeout */
    FAULT_CALLBACK, /* the same inside of a callback of the host */
    FAULT_DELAY,    /* it stands still for a moment: no fault */
    FAULT_EXIT,     /* exits with 0 as it is */
    FAULT_LEAVE,    /* destroys everything early and lives on */
    FAULT_FORK,     /* SIGKILL, while a child lives on and holds everything open */
    FAULT_MEMORY,   /* malloc and its kin fail once, or from some call on */
    FAULT_MAPPING,  /* mmap, memfd_create or ftruncate fails once */
    FAULT_WRONG,    /* makes a wrong call: enum wrong_call */
    FAULT_NEVER,    /* never starts */
    FAULT_ABORT,    /* a second thread aborts the job */
    FAULT_BUSY,     /* a second thread enters calls: no fault of the job */
    FAULT_DROP,     /* the connection between a leader and the root is reset */
    FAULT_CUT,      /* nothing passes through it any more, in either direction */
    FAULT_N_KINDS,
};

/* One rank's call that differs from what all others do. */
enum wrong_call {
    WRONG_COUNT,       /* all-reduce of fewer elements */
    WRONG_DTYPE,       /* of another dtype */
    WRONG_REDUCTION,   /* maximum instead of sum */
    WRONG_COLLECTIVE,  /* a barrier instead */
    WRONG_SETTING_SET, /* sets another value */
    WRONG_MISSING,     /* leaves the all-reduce out */
    WRONG_SHAPE,       /* a parameter of another shape */
    WRONG_STRATEGY,    /* another row of the table */
    WRONG_ORDER,       /* a backward pass in another order of units */
    WRONG_MAX_NORM,    /* a step that clips at another norm */
    WRONG_DISCARD,     /* discards the step that others end */
    WRONG_EXPORT,      /* exports another parameter */
    WRONG_EXTRA_STEP,  /* a step with no pass before it */
    WRONG_WORLD,       /* another WORLD_SIZE */
    WRONG_RANK,        /* the RANK of another */
    WRONG_TIMEOUT,     /* another nccl_timeout_seconds */
    WRONG_STATE,       /* begins a step twice: refused locally, nothing else happens */
    WRONG_ARGUMENT,    /* a unit that does not exist: likewise */
    WRONG_ATTEMPT,     /* another attempt of the same run */
    WRONG_N_CALLS,
};

/* When it goes wrong. */
enum fault_moment {
    MOMENT_BEFORE, /* between calls, just before one */
    MOMENT_INSIDE, /* delta_us after a call began */
    MOMENT_TIME,   /* at a fraction of the run's length */
    MOMENT_N,
};

/* What calls are counted as. */
enum call_kind {
    CALL_CONNECT,
    CALL_GROUP, /* create and connect */
    CALL_MODEL, /* create, and the first edit */
    CALL_UNSHARD,
    CALL_REDUCE,
    CALL_STEP,
    CALL_COLLECTIVE,
    CALL_EXPORT,
    CALL_SETTING, /* setting_set and phases */
    CALL_CLOSE,
    CALL_N_KINDS,
    CALL_LATER = CALL_N_KINDS, /* after a failure */
    CALL_DESTROY,
};

struct trial {
    uint64_t seed;
    uint32_t number; /* with the seed all that it is */
    uint32_t n_ranks;
    uint32_t n_nodes;                     /* 1 = one host: all that follows is possible */
    uint32_t node_ranks[TRIAL_MAX_NODES]; /* of several nodes: how many ranks each has */

    uint32_t ep; /* ranks of the dimension ep; 1 = none */
    uint32_t n_dense;
    uint32_t n_experts; /* units */
    uint32_t dense_strategy;
    uint32_t expert_strategy;
    uint32_t n_steps;
    uint32_t timeout_ms; /* nccl_timeout_seconds */
    uint32_t init_ms;
    uint32_t group_ms;   /* 0 = the job's */
    uint32_t set_ms;     /* what setting_set makes of timeout_ms; 0 = no such call */
    uint32_t silence_ms; /* peer_silence_seconds; 0 = not set */
    bool has_store;      /* the ranks meet by a key/value store of the host */
    bool has_second_job;
    bool has_phase;
    bool has_export;
    bool destroys_job_first;

    enum fault_kind kind;
    enum wrong_call wrong;
    enum fault_moment moment;
    enum call_kind at_call;
    double at_fraction; /* which of those calls, or when */
    uint32_t victim;
    uint32_t delta_us;
    uint32_t delay_ms;
    uint32_t nth;    /* the call of malloc that fails */
    bool is_lasting; /* and all after it */
    bool aborts;     /* a host whose call failed aborts the job; else it leaves */
    bool takes_node; /* whoever never starts: all of the victim's node with it */
    bool has_proxy;  /* the victim, a leader, reaches the root through a process between them */
};

/** Draws trial `number` of a campaign. */
void trial_draw(struct trial *ret, uint64_t seed, uint32_t number);

/** One line that says what it is. */
void trial_describe(const struct trial *trial, char *ret_text, uint64_t max_bytes);

extern const char *const fault_names[FAULT_N_KINDS];
extern const char *const call_kind_names[CALL_N_KINDS + 2];

/** True for faults that change nothing for the job. */
bool trial_is_harmless(const struct trial *trial);

/** Which node a rank is on, and which rank leads a node. */
uint32_t trial_node_of(const struct trial *trial, uint32_t rank);
uint32_t trial_leader_of(const struct trial *trial, uint32_t node);

/** True for a rank that never starts. */
bool trial_is_absent(const struct trial *trial, uint32_t rank);

#endif /* FAULTS_TRIAL_H */
