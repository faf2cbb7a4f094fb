/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of the CUDA driver's double: what its files share. */
#ifndef DOUBLES_CUDA_DOUBLE_H
#define DOUBLES_CUDA_DOUBLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda.h"
#include "doubles/double.h"

/*
 * One lock is held by whoever looks at anything below. Works run without it, each on its stream's
 * thread. Nothing is ever given back at the end of the process: threads may be at work until then.
 */

#define CUDA_PROTOTYPE(field, symbol, parameters) cu_result symbol parameters;
CUDA_FUNCTIONS(CUDA_PROTOTYPE)

/* Answers that the plugin does not ask for by name. */
#define CU_ERROR_CONTEXT_IS_DESTROYED       709
#define CU_ERROR_STREAM_CAPTURE_UNSUPPORTED 900

#define CU_CAPTURE_ACTIVE 1

#define MAX_DEVICES   64
#define MAX_NAME      48
#define STREAM_LEGACY ((cu_stream)1)
#define STREAM_THREAD ((cu_stream)2)

/* ------------------------------------------------------------------------------- contexts */

/* That of a device; there is one for as long as it is retained, and then another. */
struct CUctx_st {
    int32_t ordinal;
    uint32_t n_retained;
    uint64_t generation; /* of what was made in it */
    bool has_failed;     /* a kernel has: every call says so from then on */
    uint64_t allocated_bytes;
    struct stream *legacy; /* NULL = never used */
};

extern pthread_mutex_t driver_lock;

/** Takes the lock for a call that needs a context; returns CU_OK, or else without the lock. */
cu_result driver_enter(cu_context *ret_context);
/** Gives it back, and hands on `result`. */
cu_result driver_leave(cu_result result);
/** The same for calls that need none. */
cu_result driver_enter_bare(void);

/** Ends the process with a sentence. */
_Noreturn void driver_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** The number of a variable of the environment, or what it is without one. */
int64_t driver_number(const char *variable, int64_t otherwise);

/** Whether fault `name` is switched on, as N, and this is the N-th call that counts, or a later. */
bool driver_fault_from(const char *name, uint64_t n_calls);

/* ------------------------------------------------------------------------------- handles */

enum handle_kind { HANDLE_STREAM = 1, HANDLE_EVENT, HANDLE_MODULE, HANDLE_FUNCTION };

/* A handle is a number, no address: one that is given back is never valid again. */
void *handle_create(enum handle_kind kind, void *object);
/** NULL for what is no live handle of this kind. */
void *handle_find(enum handle_kind kind, const void *handle);
void handle_destroy(const void *handle);

/* ---------------------------------------------------------------------- order, and races */

/* What happens before something: of each slot's works, the first so many. Streams have slots. */
#define CLOCK_SLOTS 128u
struct clock {
    uint64_t times[CLOCK_SLOTS];
};

void clock_join(struct clock *clock, const struct clock *other);

/* What the host has seen to be done: before all that it enqueues from then on. */
extern struct clock host_clock;

/* Who did something to memory. */
struct actor {
    const char *name;
    cu_stream stream;
    uint32_t slot;
    uint64_t time;             /* of its slot */
    const struct clock *clock; /* what comes before it, itself included */
};

struct allocation;

/** Reads HSDP_DOUBLE_RACES. */
void races_init(void);
/** Holds an access against all earlier ones, and keeps it. */
void races_access(struct allocation *allocation, const struct double_access *access,
                  const struct actor *actor);
/** Holds one of the host against all that it has not seen to be done; `name` says what it is. */
void races_host_access(struct allocation *allocation, const struct double_access *access,
                       const char *name);
void races_forget(struct allocation *allocation);

/* -------------------------------------------------------------------------------- memory */

/* An access that was made, or part of it. */
struct past_access {
    uintptr_t begin;
    uintptr_t end;
    uint64_t time;
    uint32_t slot;
    bool is_write;
    cu_stream stream;
    char name[MAX_NAME];
};

struct allocation {
    uintptr_t base;
    size_t n_bytes;
    uintptr_t range; /* around it; nobody else's for as long as the process lives */
    size_t range_bytes;
    unsigned char *shadow; /* NULL = freed */
    cu_context context;
    bool is_host;
    bool is_leaving; /* who frees it waits for the device */
    struct past_access *accesses;
    uint32_t n_accesses;
    uint32_t max_accesses;
};

/** Whose range this is in; NULL = none's, so memory of the host that the driver does not know. */
struct allocation *memory_find(uintptr_t address);
/** The live allocation that holds all of it; ends the process if there is none. */
struct allocation *memory_hold(const char *name, const struct double_access *access);
/** Of a context that goes. */
void memory_reset(cu_context context);

/* ------------------------------------------------------------------------- streams, events */

struct piece;

/*
 * One that was destroyed is used again once it is empty, with its thread, its numbers and its slot:
 * events may still speak of it.
 */
struct stream {
    struct stream *next;
    cu_stream handle; /* NULL = destroyed; the legacy stream has one, too */
    cu_context context;
    uint64_t generation;
    bool is_blocking; /* it and the legacy stream wait for each other */
    bool is_captured;
    uint32_t slot;
    struct clock clock; /* of the last piece */
    pthread_cond_t has_work;
    pthread_cond_t has_progress;
    struct piece *first; /* the one that is at work */
    struct piece *last;
    uint64_t n_enqueued;
    uint64_t n_done;
};

/* A place in a stream: behind its first `n_pieces` pieces. */
struct place {
    struct stream *stream; /* NULL = before everything */
    uint64_t n_pieces;
};

/* What an event has recorded; the piece that takes the time keeps it, too. */
struct stamp {
    uint32_t n_users;
    struct place place;
    uint64_t ns;
    struct clock clock;
};

/* Work to be enqueued. */
struct order {
    const char *name;
    void (*work)(void *arg); /* NULL = nothing */
    void *arg;
    void (*discard)(void *arg); /* instead of work that never runs */
    const struct double_access *accesses;
    uint32_t n_accesses;
    const struct stamp *after; /* NULL = nothing but the stream */
    bool fails;
    bool is_copy; /* which may reach into other devices */
};

/** A handle's stream, in the current context; NULL if it is no such. */
struct stream *stream_find(cu_context context, cu_stream handle);
/** Enqueues at the end of a stream; waits while that is full, with the lock given back. */
cu_result stream_enqueue(struct stream *stream, const struct order *order);
bool place_is_done(const struct place *place);
/** Waits, with the lock given back meanwhile. */
void place_wait(const struct place *place);
/** What this thread is doing, for sentences. */
const char *stream_work_name(void);
/** Waits for all that a context has been given so far. */
void context_wait(cu_context context);
/** Of a context that goes. */
void stream_reset(cu_context context);

void stamp_release(struct stamp *stamp);

#endif /* DOUBLES_CUDA_DOUBLE_H */
