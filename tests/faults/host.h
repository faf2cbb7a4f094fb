/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts: one rank of a trial, whose every call is written down, and in which the fault happens. */
#ifndef FAULTS_HOST_H
#define FAULTS_HOST_H

#include <pthread.h>
#include <stdbool.h>

#include "faults/record.h"
#include "faults/trial.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

#define SCENARIO_PHASE_MS   3000u
#define SCENARIO_LONGEST_MS 3000u /* of all timeouts of operations */

struct host {
    const struct trial *trial;
    struct record *record;
    struct rank_record *own;
    uint32_t rank;
    bool is_victim; /* and this run has a fault */

    const struct hsdp_api *api;
    hsdp_plugin *plugin;
    hsdp_mesh *mesh;
    hsdp_job *_Atomic jobs[2]; /* the job, and the second one */
    uint32_t job;              /* which of them calls are about */
    hsdp_job *job_now;         /* that one */
    hsdp_group *groups[2];
    hsdp_plan *plan;
    hsdp_model *model;
    struct hsdp_error err;
    uint64_t timeout_ms; /* of an operation, now */

    uint32_t at_occurrence; /* the fault happens at so many-th call of its kind */
    uint32_t n_of_kind[CALL_N_KINDS];
    uint64_t run_ns;     /* how long a run takes without a fault */
    uint32_t n_failures; /* calls that failed */
    bool is_local;       /* the next call is wrong on purpose, and refused locally */
    int32_t wanted;      /* what the next call is to answer */
    bool is_leaving;
    bool has_fired;
    _Atomic bool is_threaded; /* `thread` runs */
    pthread_t thread;
    _Atomic uint32_t n_inside;  /* for the second thread: calls that have begun, */
    _Atomic uint32_t n_visited; /* and those that it has been into */
};

uint64_t host_now_ns(void);
void host_sleep_us(uint64_t us);

/** Notes that the fault happens now. Safe in a signal handler. */
void host_note_fault(struct host *host);

/* call.c: around each call. False = the scenario ends here. */
bool call_begin(struct host *host, enum call_kind kind, const char *name);
bool call_end(struct host *host, int32_t status);
/** True when a second thread was in the way, and the call is to be made again. */
bool call_is_again(const struct host *host);

/** Makes one call, written down; false when the scenario ends. */
#define call_of(host, kind, name, call)                                                            \
    (call_begin((host), (kind), (name)) &&                                                         \
     (call_end((host), (call)) || (call_is_again(host) && call_end((host), (call)))))

/** Starts what happens at a time rather than at a call. */
void fault_start(struct host *host);
/** Lets the fault happen, before or in the call that is about to be made. */
void fault_fire(struct host *host);
/** Ends the second thread. */
void fault_end(struct host *host);
/** True for the one rank that makes this wrong call. */
bool fault_is_wrong(const struct host *host, enum wrong_call wrong);

/** Everything a host does, up to the first failure; false when it failed. */
bool scenario_run(struct host *host);
/** Of a job of several nodes, from connect to close. */
bool scenario_nodes(struct host *host);
/** The calls of a host that goes on after a failure. */
void scenario_later(struct host *host);
/** Gives everything back. */
void scenario_destroy(struct host *host);

/** The life of a rank; does not return. run_ns and at_occurrence are of a run without the fault. */
void host_main(const struct trial *trial, struct record *record, uint32_t rank, bool has_fault,
               uint64_t run_ns, uint32_t at_occurrence) __attribute__((noreturn));

#endif /* FAULTS_HOST_H */
