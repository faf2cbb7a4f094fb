/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs inside: what groups and models ask of them. */
#ifndef REFERENCE_JOB_H
#define REFERENCE_JOB_H

#include <stdatomic.h>
#include <sys/types.h>

#include "channel.h"
#include "error.h"
#include "launch.h"
#include "request.h"
#include "server.h"
#include "settings.h"
#include "thread.h"

#define MOST_PHASES 16

/* What becomes of an answer, on the host's thread, inside of a call. NULL = nothing. */
struct follow_up {
    void (*finish)(void *context, struct packet *answer);
    void *context;
    const void *owner; /* the group or model; when it is destroyed, nothing is called any more */
};

/* A request that this rank has made. */
struct operation {
    struct operation *next;
    uint64_t number; /* of the request; 0 = it is not made yet */
    uint64_t ticket; /* several may share one */
    uint64_t also;   /* a second one, of which it is a part; 0 = none */
    uint64_t start_ms;
    uint64_t deadline_ms;
    struct follow_up follow_up;
    bool is_answered;
    bool is_refused;
    bool is_farewell;
    bool has_own_timeout;
    struct packet answer;
    char name[32];
    char group[64];
    char unit[64];
    uint64_t sequence;
};

struct phase {
    char name[64];
    uint64_t timeout_ms;
};

/* How much went through the groups of one name: diag's counters. */
struct traffic {
    struct traffic *next;
    char group[64];
    char names[2][96]; /* of the counters */
    uint64_t n_operations;
    uint64_t n_bytes;
};

enum job_count {
    COUNT_STEPS,
    COUNT_UNSHARDS,
    COUNT_REDUCTIONS,
    COUNT_WAITS,
    COUNT_WAIT_NS,
    N_COUNTS
};

struct hsdp_job {
    atomic_uint n_references; /* the host's, and one of each group and model */
    atomic_bool is_busy;
    atomic_ullong last_call_ms; /* when the host was last inside */
    pid_t pid;
    char name[64];
    struct launch launch;
    struct settings settings;  /* after create, and phases, written under the mutex: others read */
    struct hsdp_job_spec spec; /* callbacks only: its texts are the host's */
    struct server *server;     /* on rank 0 of several */
    bool has_tried;            /* connect was called */
    atomic_bool is_connected;
    bool is_closed;
    struct phase phases[MOST_PHASES];
    uint32_t n_phases;
    _Atomic uint64_t counts[N_COUNTS];
    struct hsdp_model *models; /* for diag */
    struct hsdp_group *groups;
    struct group_count *group_counts;
    uint64_t n_models;   /* made so far: every rank makes the same */
    uint64_t n_meetings; /* of the whole job so far */

    int fd; /* to the server; -1 = none */
    int watch_fd;
    int wake_fd;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_thread_done;
    atomic_bool is_stopping;
    bool is_torn; /* a frame was begun and not ended; under send_mutex */
    pthread_mutex_t send_mutex;

    pthread_mutex_t mutex;        /* of all that follows */
    pthread_cond_t changed;       /* an answer, or the failure */
    struct operation *operations; /* not taken yet, in order */
    uint64_t n_requests;
    uint64_t n_tickets;
    uint64_t *orphans; /* tickets whose owner was destroyed first */
    uint64_t n_orphans;
    struct traffic *traffic;
    atomic_bool is_failed;
    bool is_farewell;    /* all ranks have said it: the server may go */
    bool had_operations; /* when it failed */
    bool was_told;       /* the failure, to the host */
    struct hsdp_error failure;
};

/* ------------------------------------------------------------------------------------- job.c */

/**
 * Begins a call of the host: HSDP_ERR_INVALID for NULL, FORKED, BUSY, ABORTED. Takes what has been
 * answered meanwhile. job_leave ends it.
 */
int32_t job_enter(const struct call *call, hsdp_job *job);
/** Likewise, and HSDP_ERR_STATE before connect and after close. */
int32_t job_enter_connected(const struct call *call, hsdp_job *job);
/** For what only tells: also when the job has failed. job_leave ends it too. */
int32_t job_enter_to_ask(const struct call *call, const hsdp_job *job);
/** For what any thread may ask at any time. */
int32_t job_look(const struct call *call, const hsdp_job *job);
int32_t job_leave(const hsdp_job *job, int32_t status);

void job_hold(hsdp_job *job);
void job_drop(hsdp_job *job);

/** Of an operation that begins now: the innermost phase's, or the setting. */
uint64_t job_timeout_ms(const hsdp_job *job);

/* job_connect.c: function of the table. */
int32_t job_table_connect(hsdp_job *job, struct hsdp_error *reterr);

/* ---------------------------------------------------------------------------- job_settings.c */

/** Gives keys that are not set the values that follow from others. */
int32_t job_settings_derive(const struct call *call, struct settings *settings);
/** HSDP_ERR_INVALID for values that do not go together, and what this plugin does not have. */
int32_t job_settings_check(const struct call *call, const struct settings *settings);
/* Functions of the table. */
int32_t job_table_setting(const hsdp_job *job, const char *key, const char **ret_value,
                          const char **ret_source, struct hsdp_error *reterr);
int32_t job_table_setting_set(hsdp_job *job, const char *key, const char *value,
                              struct hsdp_error *reterr);

/* ------------------------------------------------------------------------------- operation.c */

/**
 * Makes a request. *ticket is what it belongs to; 0 asks for a new one, which is written there.
 * Alone in a meeting, a rank is answered at once.
 */
int32_t job_request(const struct call *call, hsdp_job *job, const struct request *request,
                    struct follow_up follow_up, uint64_t *ticket);
/** Waits for all operations of a ticket; HSDP_PENDING after wait_ms; UINT64_MAX = their deadlines.
 */
int32_t job_wait(const struct call *call, hsdp_job *job, uint64_t ticket, uint64_t wait_ms);
/** A request and its answer, or how another rank has refused. The caller frees *ret_answer. */
int32_t job_meet(const struct call *call, hsdp_job *job, const struct request *request,
                 struct packet *ret_answer);
/** The next meeting of all ranks; fills members, key, group and operation of a request. */
struct meeting_text {
    char key[96];
    uint32_t members[MOST_RANKS];
};
void request_of_job(const struct call *call, hsdp_job *job, struct meeting_text *text,
                    struct request *ret);
/** A ticket for a request that is made later, with job_request; or never, with job_settle. */
int32_t job_reserve(const struct call *call, hsdp_job *job, const void *owner, const char *unit,
                    uint64_t *ret_ticket);
void job_settle(hsdp_job *job, uint64_t ticket);
/** One ticket for all operations of some. */
uint64_t job_join(hsdp_job *job, const uint64_t *tickets, uint64_t n);
/** Waits for all operations of an owner. */
int32_t job_wait_all(const struct call *call, hsdp_job *job, const void *owner);
/** The job's timeout has changed: so do the deadlines of what is under way. */
void job_retime(hsdp_job *job);
/** Takes what has been answered. */
void job_progress(hsdp_job *job);
/** Its owner is about to go. */
void job_forget(hsdp_job *job, const void *owner);
/** Operations not finished. */
uint64_t job_open_tickets(hsdp_job *job);
void operations_free(hsdp_job *job);

/* ------------------------------------------------------------------------------- connection.c */

/** Connects to the server until `deadline_ms`, and starts the thread that reads from it. */
int32_t connection_open(const struct call *call, hsdp_job *job, const char *place,
                        uint64_t deadline_ms);
/** Sends a frame; a failure is noticed by the thread. */
void connection_send(hsdp_job *job, struct frame frame, const struct packet *packet);
/** Ends the thread; false if it is stuck in a callback of the host and goes on. */
bool connection_close(hsdp_job *job);

/* ---------------------------------------------------------------------------------- failure.c */

/** Notes the first reason, and tells the host's on_abort. */
void job_fail_here(hsdp_job *job, const struct hsdp_error *error);
/** The same on all ranks. */
void job_fail(hsdp_job *job, const struct hsdp_error *error);
/** Returns the failure to the host: its own status to who has waited, else HSDP_ERR_ABORTED. */
int32_t job_failure(const struct call *call, hsdp_job *job, const struct operation *waited);

#endif /* REFERENCE_JOB_H */
