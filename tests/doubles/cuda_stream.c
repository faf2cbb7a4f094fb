/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA double's streams: bounded queues of work, each with a thread that does it in order. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "doubles/cuda_double.h"

struct piece {
    struct piece *next;
    char name[MAX_NAME];
    void (*work)(void *arg);
    void *arg;
    void (*discard)(void *arg);
    bool fails;
    int64_t delay_us;
    uint32_t n_after;
    struct place after[]; /* what it waits for, beside the pieces before it */
};

static struct stream *streams; /* all that ever were */
static uint32_t n_streams;
static _Thread_local struct stream *own_streams[MAX_DEVICES]; /* of handle 2 */
static _Thread_local const char *work_name;

const char *stream_work_name(void)
{
    return work_name != NULL ? work_name : "the host";
}

/* ---------------------------------------------------------------------------- the thread */

bool place_is_done(const struct place *place)
{
    return place->stream == NULL || place->stream->n_done >= place->n_pieces;
}

void place_wait(const struct place *place)
{
    while (!place_is_done(place)) {
        pthread_cond_wait(&place->stream->has_progress, &driver_lock);
    }
}

static void pause_us(int64_t us)
{
    struct timespec left = {us / 1000000, us % 1000000 * 1000};

    while (us > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Without the lock. */
static void piece_run(const struct piece *piece, bool is_dropped)
{
    work_name = piece->name;
    if (!is_dropped) {
        pause_us(piece->delay_us);
        if (piece->work != NULL) {
            piece->work(piece->arg);
        }
    } else if (piece->discard != NULL) {
        piece->discard(piece->arg);
    }
    work_name = NULL;
}

/* The piece stays in the queue until it is done: it is among those that are counted. */
static void stream_step(struct stream *stream)
{
    struct piece *piece = stream->first;
    bool is_dropped;

    for (uint32_t i = 0; i < piece->n_after; i++) {
        place_wait(&piece->after[i]);
    }
    if (piece->fails) {
        stream->context->has_failed = true;
    }
    is_dropped = stream->context->has_failed;
    pthread_mutex_unlock(&driver_lock);
    piece_run(piece, is_dropped);
    pthread_mutex_lock(&driver_lock);
    stream->first = piece->next;
    if (stream->first == NULL) {
        stream->last = NULL;
    }
    stream->n_done++;
    pthread_cond_broadcast(&stream->has_progress);
    free(piece);
}

static void *stream_thread(void *arg)
{
    struct stream *stream = arg;

    pthread_mutex_lock(&driver_lock);
    for (;;) {
        while (stream->first == NULL) {
            pthread_cond_wait(&stream->has_work, &driver_lock);
        }
        stream_step(stream);
    }
    return NULL;
}

/* The process's signals are not for it. */
static void thread_start(struct stream *stream)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigset_t former;
    int error;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    error = pthread_create(&thread, &attributes, stream_thread, stream);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    pthread_attr_destroy(&attributes);
    if (error != 0) {
        driver_die("no thread for a stream: %s", strerror(error));
    }
}

/* ------------------------------------------------------------------------- making streams */

/* Where there are more streams than slots some share one, and races between them go unseen. */
static struct stream *stream_new(void)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL) {
        driver_die("no memory for a stream");
    }
    stream->slot = n_streams++ % CLOCK_SLOTS;
    pthread_cond_init(&stream->has_work, NULL);
    pthread_cond_init(&stream->has_progress, NULL);
    stream->next = streams;
    streams = stream;
    thread_start(stream);
    return stream;
}

static struct stream *stream_open(cu_context context, bool is_blocking)
{
    struct stream *stream = streams;

    while (stream != NULL && (stream->handle != NULL || stream->n_done < stream->n_enqueued)) {
        stream = stream->next;
    }
    if (stream == NULL) {
        stream = stream_new();
    }
    stream->context = context;
    stream->generation = context->generation;
    stream->is_blocking = is_blocking;
    stream->is_captured = false;
    stream->handle = handle_create(HANDLE_STREAM, stream);
    return stream;
}

static void stream_close(struct stream *stream)
{
    handle_destroy(stream->handle);
    stream->handle = NULL;
}

static bool stream_is_of(const struct stream *stream, cu_context context)
{
    return stream != NULL && stream->handle != NULL && stream->context == context &&
           stream->generation == context->generation;
}

struct stream *stream_find(cu_context context, cu_stream handle)
{
    struct stream **own = &own_streams[context->ordinal];
    struct stream *stream;

    if (handle == NULL || handle == STREAM_LEGACY) {
        if (context->legacy == NULL) {
            context->legacy = stream_open(context, true);
        }
        return context->legacy;
    }
    if (handle == STREAM_THREAD) {
        if (!stream_is_of(*own, context)) {
            *own = stream_open(context, true);
        }
        return *own;
    }
    stream = handle_find(HANDLE_STREAM, handle);
    return stream_is_of(stream, context) ? stream : NULL;
}

void stream_reset(cu_context context)
{
    for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
        if (stream_is_of(stream, context)) {
            stream_close(stream);
        }
    }
    context->legacy = NULL;
}

/* ----------------------------------------------------------------------------- enqueuing */

/* Whether the legacy rule puts what is on `other` before what comes to `stream`. */
static bool stream_follows(const struct stream *stream, const struct stream *other)
{
    const struct stream *legacy = stream->context->legacy;

    return stream != other && stream->is_blocking && stream_is_of(other, stream->context) &&
           other->is_blocking && (stream == legacy || other == legacy);
}

static struct piece *piece_create(const struct stream *stream, const struct order *order)
{
    struct piece *piece = calloc(1, sizeof(*piece) + (n_streams + 1) * sizeof(piece->after[0]));

    if (piece == NULL) {
        driver_die("no memory for work");
    }
    strncpy(piece->name, order->name, MAX_NAME - 1);
    piece->work = order->work;
    piece->arg = order->arg;
    piece->discard = order->discard;
    piece->fails = order->fails;
    if (!double_fault("slow_stream", &piece->delay_us)) {
        piece->delay_us = 0;
    }
    if (order->after != NULL) {
        piece->after[piece->n_after++] = order->after->place;
    }
    for (struct stream *other = streams; other != NULL; other = other->next) {
        if (stream_follows(stream, other) && other->n_done < other->n_enqueued) {
            piece->after[piece->n_after++] = (struct place){other, other->n_enqueued};
        }
    }
    return piece;
}

/* The clock of the piece that comes now. */
static void clock_advance(struct stream *stream, const struct order *order)
{
    clock_join(&stream->clock, &host_clock);
    if (order->after != NULL) {
        clock_join(&stream->clock, &order->after->clock);
    }
    for (const struct stream *other = streams; other != NULL; other = other->next) {
        if (stream_follows(stream, other)) {
            clock_join(&stream->clock, &other->clock);
        }
    }
    stream->clock.times[stream->slot]++;
}

static void accesses_note(const struct stream *stream, const struct order *order)
{
    struct actor actor = {order->name, stream->handle, stream->slot,
                          stream->clock.times[stream->slot], &stream->clock};

    for (uint32_t i = 0; i < order->n_accesses; i++) {
        const struct double_access *access = &order->accesses[i];
        struct allocation *allocation;

        if (access->n_bytes == 0) {
            continue;
        }
        allocation = memory_hold(order->name, access);
        if (allocation->context != stream->context && !allocation->is_host && !order->is_copy) {
            driver_die("%s on device %d touches memory of device %d", order->name,
                       stream->context->ordinal, allocation->context->ordinal);
        }
        races_access(allocation, access, &actor);
    }
}

cu_result stream_enqueue(struct stream *stream, const struct order *order)
{
    struct piece *piece;

    if (stream->is_captured) {
        return CU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    while (stream->n_enqueued - stream->n_done >= DOUBLE_QUEUE_PIECES) {
        pthread_cond_wait(&stream->has_progress, &driver_lock);
    }
    if (stream->context->has_failed) {
        return CU_ERROR_LAUNCH_FAILED;
    }
    clock_advance(stream, order);
    accesses_note(stream, order);
    piece = piece_create(stream, order);
    if (stream->last != NULL) {
        stream->last->next = piece;
    } else {
        stream->first = piece;
    }
    stream->last = piece;
    stream->n_enqueued++;
    pthread_cond_signal(&stream->has_work);
    return CU_OK;
}

cu_result double_enqueue(cu_stream handle, const char *name, void (*work)(void *arg), void *arg,
                         void (*discard)(void *arg), const struct double_access *accesses,
                         uint32_t n_accesses)
{
    struct order order = {name, work, arg, discard, accesses, n_accesses, NULL, false, false};
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, handle);
    return driver_leave(stream != NULL ? stream_enqueue(stream, &order) : CU_ERROR_INVALID_HANDLE);
}

void context_wait(cu_context context)
{
    for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
        if (stream->context == context) {
            place_wait(&(struct place){stream, stream->n_enqueued});
        }
    }
}

/* ------------------------------------------------------------------------ the driver's calls */

cu_result cuStreamCreateWithPriority(cu_stream *ret_stream, uint32_t flags, int32_t priority)
{
    cu_context context;
    cu_result result = driver_enter(&context);

    (void)priority; /* a hint; any number is legal */
    if (result != CU_OK) {
        return result;
    }
    if (ret_stream == NULL || (flags & ~CU_STREAM_NON_BLOCKING) != 0) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    *ret_stream = stream_open(context, (flags & CU_STREAM_NON_BLOCKING) == 0)->handle;
    return driver_leave(CU_OK);
}

/* Returns at once; what is on the stream is still done. */
cu_result cuStreamDestroy_v2(cu_stream handle)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = handle_find(HANDLE_STREAM, handle);
    if (!stream_is_of(stream, context) || stream == context->legacy) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    stream_close(stream);
    return driver_leave(CU_OK);
}

cu_result cuStreamGetCtx(cu_stream handle, cu_context *ret_context)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = (uintptr_t)handle > (uintptr_t)STREAM_THREAD ? handle_find(HANDLE_STREAM, handle)
                                                          : stream_find(context, handle);
    if (ret_context == NULL) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    if (stream == NULL || !stream_is_of(stream, stream->context)) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    *ret_context = stream->context;
    return driver_leave(CU_OK);
}

/* The legacy stream is done when all that it would wait for is. */
cu_result cuStreamQuery(cu_stream handle)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, handle);
    if (stream == NULL || stream->is_captured) {
        return driver_leave(stream == NULL ? CU_ERROR_INVALID_HANDLE
                                           : CU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    for (const struct stream *other = streams; other != NULL; other = other->next) {
        bool is_meant =
            other == stream || (stream == context->legacy && stream_follows(stream, other));

        if (is_meant && other->n_done < other->n_enqueued) {
            return driver_leave(CU_ERROR_NOT_READY);
        }
    }
    for (const struct stream *other = streams; other != NULL; other = other->next) {
        if (other == stream || (stream == context->legacy && stream_follows(stream, other))) {
            clock_join(&host_clock, &other->clock);
        }
    }
    return driver_leave(CU_OK);
}

cu_result cuStreamIsCapturing(cu_stream handle, int32_t *ret_status)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, handle);
    if (stream == NULL || ret_status == NULL) {
        return driver_leave(stream == NULL ? CU_ERROR_INVALID_HANDLE : CU_ERROR_INVALID_VALUE);
    }
    *ret_status = stream->is_captured ? CU_CAPTURE_ACTIVE : CU_CAPTURE_NONE;
    return driver_leave(CU_OK);
}

cu_result double_capture(cu_stream handle, bool is_captured)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, handle);
    if (stream == NULL) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    stream->is_captured = is_captured;
    return driver_leave(CU_OK);
}
