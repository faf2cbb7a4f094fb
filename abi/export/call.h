/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: what every function of the tables does before and after the engine's own. */
#ifndef EXPORT_CALL_H
#define EXPORT_CALL_H

#include <stdbool.h>

#include "comm/job.h"
#include "intake.h"

/**
 * One call of a host, on the stack. Each step below does nothing once a step has failed, so that a
 * function reads as a list of what it asks for.
 */
struct call {
    const char *name;          /* "mesh.create" */
    struct hsdp_error *reterr; /* the host's, of any size, or NULL */
    struct hsdp_job *job;      /* entered, to be left at the end; NULL = none */
    bool is_collective;        /* over the job */
    int32_t status;            /* of the call so far */
    struct hsdp_error err;     /* ours; but for its status it is written only on failure */
};

void call_begin(struct call *call, const char *name, struct hsdp_error *reterr);

static inline bool call_is_ok(const struct call *call)
{
    return call->status == HSDP_OK;
}

/** Asks for an argument that is not NULL. */
void call_needs(struct call *call, const char *argument, const void *pointer);

/** Asks for an array of n elements: NULL only when there are none. */
void call_needs_array(struct call *call, const char *argument, const void *array, uint64_t n);

/** Takes a struct of the host in, into *ret_ours of the engine's size. */
void call_takes(struct call *call, const char *argument, const struct intake_kind *kind,
                const void *theirs, void *ret_ours);

/** Asks for a struct of the host that can hold a result; call_gives fills it. */
void call_needs_struct(struct call *call, const char *argument, const struct intake_kind *kind,
                       const void *theirs);
void call_gives(struct call *call, const struct intake_kind *kind, const void *ours,
                void *ret_theirs);

/** Writes a count or size that the host needs on success and on HSDP_ERR_BUFFER_TOO_SMALL. */
void call_gives_size(struct call *call, uint64_t size, uint64_t *ret_size);

/** Writes a ticket, unless the host passed NULL because it will not ask for it. */
void call_gives_ticket(struct call *call, uint64_t ticket, uint64_t *ret_ticket);

/** Enters the job, see comm/job.h; call_end leaves it. */
void call_enters(struct call *call, struct hsdp_job *job);
/** Likewise, but also a job that has failed: for questions, and for last words. */
void call_enters_failed(struct call *call, struct hsdp_job *job);

/** Enters the job of a model that call_needs has asked for. */
void call_enters_model(struct call *call, const struct hsdp_model *model);

/**
 * The call is collective over the job that it has entered: what it asks for from here on, and
 * cannot get, call_end tells the other ranks, which would wait for this one.
 */
void call_is_collective(struct call *call);

/** Asks for a stream of the job's device: on a CPU there is only NULL. */
void call_needs_stream(struct call *call, const void *stream);

/** Leaves the job, writes the host's error if the call has failed, and returns its status. */
int32_t call_end(struct call *call);

#endif /* EXPORT_CALL_H */
