/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: identity, deadlines, failure, tickets; what the rest of the engine knows of a run. */
#ifndef COMM_JOB_H
#define COMM_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"
#include "base/text.h"
#include "hsdp/job.h"

struct hsdp_job; /* job_internal.h, for plugin/comm only */
struct kernels;  /* device/kernels.h */
struct probe;    /* comm/probe.h */
struct space;    /* device/space.h */

/* ------------------------------------------------------- the public tables: hsdp/job.h, diag.h */

/*
 * None of them enters by itself: the border does, around all but create, abort, status, destroy,
 * report and the counters. Close, setting, info and ticket_wait are let in on a failed job.
 */

int32_t job_create(const struct hsdp_job_spec *spec, struct hsdp_job **ret_job,
                   struct hsdp_error *reterr);
int32_t job_connect(struct hsdp_job *job, struct hsdp_error *reterr);
int32_t job_close(struct hsdp_job *job, struct hsdp_error *reterr);
void job_destroy(struct hsdp_job *job);
int32_t job_abort(struct hsdp_job *job, const char *reason, struct hsdp_error *reterr);
int32_t job_status(const struct hsdp_job *job, struct hsdp_error *reterr);
int32_t job_info(const struct hsdp_job *job, struct hsdp_job_info *ret_info,
                 struct hsdp_error *reterr);
int32_t job_setting(const struct hsdp_job *job, const char *key, const char **ret_value,
                    const char **ret_source, struct hsdp_error *reterr);
int32_t job_setting_set(struct hsdp_job *job, const char *key, const char *value,
                        struct hsdp_error *reterr);
int32_t job_phase_push(struct hsdp_job *job, const char *phase, uint64_t timeout_ms,
                       struct hsdp_error *reterr);
int32_t job_phase_pop(struct hsdp_job *job, struct hsdp_error *reterr);
int32_t job_ticket_wait(struct hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                        struct hsdp_error *reterr);
int32_t job_ticket_order(struct hsdp_job *job, uint64_t ticket, void *stream,
                         struct hsdp_error *reterr);
int32_t job_report(const struct hsdp_job *job, const char *what, char *ret_text, uint64_t max_bytes,
                   uint64_t *ret_bytes, struct hsdp_error *reterr);
int32_t job_counter(const struct hsdp_job *job, const char *name, uint64_t *ret_value,
                    struct hsdp_error *reterr);
int32_t job_counter_name(const struct hsdp_job *job, uint64_t index, const char **ret_name,
                         struct hsdp_error *reterr);

/* --------------------------------------------------------------------- entering, for the border */

/**
 * Claims the job for this thread's call: HSDP_ERR_FORKED in a child, HSDP_ERR_BUSY while another
 * thread is inside, HSDP_ERR_ABORTED with the first reason once the job has failed. Every
 * successful enter is followed by a leave. The cost is tens of nanoseconds: no system call.
 */
int32_t job_enter(struct hsdp_job *job, struct hsdp_error *reterr);
void job_leave(struct hsdp_job *job);
/** How the call that has entered is called, for the sentences of other ranks. */
void job_call(struct hsdp_job *job, const char *name);
/** Like job_enter, but lets a failed job in: for ticket_wait's last word, close, info, setting. */
int32_t job_enter_failed(struct hsdp_job *job, struct hsdp_error *reterr);

/* References: groups and models keep a job's memory alive. job_destroy gives back the host's. */
void job_ref(struct hsdp_job *job);
void job_unref(struct hsdp_job *job);

/* --------------------------------------------------------------------------- asking, for shard/ */

/** Backend nccl: models lie on a CUDA device. */
bool job_has_device(const struct hsdp_job *job);
uint32_t job_rank(const struct hsdp_job *job);
uint32_t job_world_ranks(const struct hsdp_job *job);
bool job_is_connected(const struct hsdp_job *job);
bool job_is_closed(const struct hsdp_job *job);
struct probe *job_probe(const struct hsdp_job *job); /* comm/probe.h; NULL outside of tests */
uint64_t job_timeout_ms(const struct hsdp_job *job); /* of an operation, now */
/** HSDP_ERR_UNSUPPORTED, on all ranks alike, where what moves data would have to leave this host.
 */
int32_t job_check_host(const struct hsdp_job *job, const char *operation,
                       struct hsdp_error *reterr);
/** Where that comes from: "derived from nccl_timeout_seconds", "phase compile". Only for reporters,
 * which are called under the job's lock. */
void job_timeout_source(const struct hsdp_job *job, char *ret_text, uint64_t max_bytes);
/**
 * How it goes, for a call that waits for the device since waited_ns: fails the job once that is
 * longer than its timeout, and tells its failure. A look of struct space_patience; user is the job.
 */
int32_t job_device_look(void *user, uint64_t waited_ns, struct hsdp_error *reterr);
/** From 1, in order of creation, which is collective: so ranks mean the same model by a number. */
uint64_t job_model_number(struct hsdp_job *job);
const struct kernels *job_kernels(const struct hsdp_job *job);
/** Where models lie: the host's memory or, once a job of such a backend is connected, a device's.
 */
struct space *job_space(const struct hsdp_job *job);
void job_log(struct hsdp_job *job, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ----------------------------------------------------------------------- waiting and signalling */

/*
 * Everything that ranks wait for is a 64-bit counter in shared memory that one rank raises and
 * others watch. A waiter sleeps on its own doorbell; whoever raises a counter rings the bells of
 * those who may be asleep.
 */

/* In place of a rank: */
#define WAIT_OTHER_NODES UINT32_MAX /* raised by the relay between nodes */
#define WAIT_DEVICE                                                                                \
    (UINT32_MAX - 1) /* by this rank's NCCL thread, once its device has come so far */

/** One condition: *counter >= target, raised by the rank with node index `rank`. */
struct wait_entry {
    const _Atomic uint64_t *counter;
    uint64_t target;
    uint32_t rank;
    uint32_t wait; /* enum probe_wait, for probes */
};

/** What is waited for, and how it is called in an error. Texts are borrowed. */
struct wait {
    const struct wait_entry *entries;
    uint32_t n_entries;
    const char *operation; /* "reduce" */
    const char *group;     /* "dp_shard"; NULL = none */
    const char *unit;      /* NULL = none */
    uint64_t sequence;     /* 0 = none */
    uint64_t ticket;       /* 0 = none */
    uint64_t deadline_ns;  /* of the operation; 0 = job_timeout_ms from the start of this wait */
    uint64_t n_bytes;      /* what it moves, for the record; 0 = nothing, or not known */
    uint64_t record;       /* of the operation that it is part of; 0 = its own, if it blocks */
    uint64_t peers;        /* ranks of this node whose end ends it, also when they have come */
    /* NULL, or looks from time to time whether the wait is in vain: an error fails the job. */
    int32_t (*check)(void *user, struct hsdp_error *reterr);
    void *user;
};

bool wait_is_met(const struct wait *wait); /* sequentially consistent: see wait.c */

/**
 * Waits until all entries are met, doing open work meanwhile. On expiry, loss of a missing peer or
 * a failure elsewhere the job has failed, and the error names operation, group, unit, sequence,
 * the missing ranks and the time waited.
 */
int32_t job_wait(struct hsdp_job *job, const struct wait *wait, struct hsdp_error *reterr);

/** Raises a counter (sequentially consistent: see wait.c) and rings those of the ranks that sleep.
 * Own rank is skipped.
 */
void job_signal(struct hsdp_job *job, _Atomic uint64_t *counter, uint64_t value,
                const uint32_t *ranks, uint32_t n_ranks);

/**
 * Fails the job with *err (its status and message filled): the first failure of any rank is kept
 * and shown to all. Returns err->status.
 */
int32_t job_fail(struct hsdp_job *job, const struct hsdp_error *err);

/* -------------------------------------------------------------------------- the flight recorder */

/*
 * For the thread inside. Of `what` the names, sequence, ticket and n_bytes are recorded. Numbers
 * of records count from 1; 0 stands for none, and is accepted.
 */

/** Records an operation that is called, and starts, now. */
uint64_t job_record_begin(struct hsdp_job *job, const struct wait *what);
/** One that waits for others before it; job_record_start follows. */
uint64_t job_record_issue(struct hsdp_job *job, const struct wait *what, uint64_t ticket);
void job_record_start(struct hsdp_job *job, uint64_t record, uint64_t sequence);
void job_record_end(struct hsdp_job *job, uint64_t record, int32_t status);
/** One that was over at once. */
void job_record_done(struct hsdp_job *job, const struct wait *what);

/* ------------------------------------------------------------------------------------ open work */

/**
 * Work that goes on inside of later calls: a reduction, a collective of the host. Embedded in its
 * owner's struct, which the owner frees after `is_done`, or in `cancel` when the job goes first.
 */
struct work {
    struct work *next; /* private to the job, like the next two */
    uint64_t clock_ns; /* since when it has been blocked; 0 = it never was */
    uint64_t away_ns;  /* how long the host had been away by then */
    uint64_t record;   /* its record */
    uint64_t ticket;   /* set by job_work_start */
    /* How it is recorded; NULL = its owner does that by itself. */
    const struct wait *label;
    bool is_queued;         /* it is only issued at first: job_record_start tells when it starts */
    bool has_more_blockers; /* it can go on before the wait that its blocker tells is met */
    /* Goes on without waiting: HSDP_OK when done, HSDP_PENDING, or an error, which fails the job.
     */
    int32_t (*progress)(struct work *work, struct hsdp_error *reterr);
    /* What it waits for now, for the sleeping and for the error; valid until the next progress. */
    const struct wait *(*blocker)(struct work *work);
    /* NULL, or: the host waits for it, or asks: so what has been put off is not any longer. */
    void (*hurry)(struct work *work);
    /* Makes a stream of the host wait for it, which is on its way; NULL: the host waits. */
    int32_t (*order)(struct work *work, void *stream, struct hsdp_error *reterr);
    /* Called once, when it is done or the job has failed; may free the work. */
    void (*finish)(struct work *work, int32_t status);
};

/**
 * Enqueues work, gives it the next ticket, and tries it once: on HSDP_OK it may be finished
 * already. Work is progressed in order of issue, but a blocked one does not block the next.
 */
int32_t job_work_start(struct hsdp_job *job, struct work *work, uint64_t *ret_ticket,
                       struct hsdp_error *reterr);

/** Tries all open work once; HSDP_OK, or the failure of the job. */
int32_t job_progress(struct hsdp_job *job, struct hsdp_error *reterr);

/** Tries one open work, maybe from inside of another: HSDP_OK, it is finished, or HSDP_PENDING. */
int32_t job_work_settle(struct hsdp_job *job, struct work *work, struct hsdp_error *reterr);

/** Takes work off the queue without finishing it (its owner goes away). */
void job_work_cancel(struct hsdp_job *job, struct work *work);

/* ---------------------------------------------------------------------- collective over the job */

#define JOB_EXCHANGE_MAX_BYTES 1024u

/**
 * All-gathers n_bytes (at most JOB_EXCHANGE_MAX_BYTES, equal on all ranks) of every rank into
 * ret_all (world_ranks * n_bytes), in order of rank. It is a barrier of the job.
 */
int32_t job_exchange(struct hsdp_job *job, const char *operation, const void *mine,
                     uint64_t n_bytes, void *ret_all, struct hsdp_error *reterr);

/*
 * A call of the host that is collective over the job. Ranks wait for each other in its exchanges,
 * which all have its name from begin to end. A rank that cannot go on, for an argument or memory,
 * just returns: the end says so in the place of its next exchange, and that one fails on all ranks
 * with this one's status and sentence. So the last thing that may fail is followed by an exchange.
 */
void job_collective_begin(struct hsdp_job *job, const char *call);
/** The refusal that comes is the same on all ranks, or this one should not be here: not told. */
void job_collective_alone(struct hsdp_job *job);
/** Returns status, or that of the job if it has failed meanwhile. */
int32_t job_collective_end(struct hsdp_job *job, int32_t status, struct hsdp_error *reterr);

/** Memory of all ranks in one file that exists only while it is open or mapped. */
struct shared_memory {
    int fd;
    uint32_t n_ranks;
    uint64_t *offsets; /* where each rank's part begins in the file; page-aligned */
    uint64_t *sizes;   /* bytes of each part; rounded up to pages */
};

/**
 * Allocates n_bytes for this rank (each rank its own number), zero-filled, in a file that all
 * ranks share; the caller maps the parts that it needs. Collective over the job.
 */
int32_t job_share_memory(struct hsdp_job *job, uint64_t n_bytes, struct shared_memory *ret,
                         struct hsdp_error *reterr);
void shared_memory_fini(struct shared_memory *memory); /* closes; mappings stay */

/* ------------------------------------------------------------------------- counters and reports */

/** A counter for diag->counter; the same name again gives the same one. NULL without memory. */
_Atomic uint64_t *job_counter_register(struct hsdp_job *job, const char *name);

/*
 * Models add themselves to reports: write() puts JSON values without keys into the array "models"
 * of "memory" and "plan", and into the array "groups" of "ledger"; it ignores names that it does
 * not know. Called from any thread, under the job's lock: it may call nothing that takes a job.
 */
struct reporter {
    struct reporter *next; /* private to the job */
    void (*write)(struct reporter *reporter, const char *what, struct text *text);
};
void job_reporter_add(struct hsdp_job *job, struct reporter *reporter);
void job_reporter_remove(struct hsdp_job *job, struct reporter *reporter);

#endif /* COMM_JOB_H */
