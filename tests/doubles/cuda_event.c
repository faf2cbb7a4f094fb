/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA double's events: places in streams, with the order and the time that they stand for. */
#include <stdlib.h>
#include <time.h>

#include "doubles/cuda_double.h"

struct event {
    cu_context context;
    uint64_t generation;
    bool has_timing;
    struct stamp *stamp; /* of the last record; NULL = there was none */
};

enum { EVENT_FLAGS = 7, EVENT_INTERPROCESS = 4 };

void stamp_release(struct stamp *stamp)
{
    if (stamp != NULL && --stamp->n_users == 0) {
        free(stamp);
    }
}

static struct event *event_find(cu_event handle)
{
    struct event *event = handle_find(HANDLE_EVENT, handle);

    return event != NULL && event->generation == event->context->generation ? event : NULL;
}

static struct event *event_find_of(cu_context context, cu_event handle)
{
    struct event *event = event_find(handle);

    return event != NULL && event->context == context ? event : NULL;
}

cu_result cuEventCreate(cu_event *ret_event, uint32_t flags)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct event *event;

    if (result != CU_OK) {
        return result;
    }
    if (ret_event == NULL || (flags & ~(uint32_t)EVENT_FLAGS) != 0 ||
        ((flags & EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    event = calloc(1, sizeof(*event));
    if (event == NULL) {
        return driver_leave(CU_ERROR_OUT_OF_MEMORY);
    }
    event->context = context;
    event->generation = context->generation;
    event->has_timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *ret_event = handle_create(HANDLE_EVENT, event);
    return driver_leave(CU_OK);
}

/* Streams that wait for it still do. */
cu_result cuEventDestroy_v2(cu_event handle)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct event *event;

    if (result != CU_OK) {
        return result;
    }
    event = event_find(handle);
    if (event == NULL) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    handle_destroy(handle);
    stamp_release(event->stamp);
    free(event);
    return driver_leave(CU_OK);
}

/* On the stream's thread. */
static void stamp_drop(void *arg)
{
    pthread_mutex_lock(&driver_lock);
    stamp_release(arg);
    pthread_mutex_unlock(&driver_lock);
}

static void stamp_take(void *arg)
{
    struct stamp *stamp = arg;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    stamp->ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    stamp_drop(stamp);
}

/* The lock is given back while the stream is full, so the event is looked for again. */
static cu_result event_record(cu_context context, cu_event handle, struct stream *stream)
{
    struct stamp *stamp = calloc(1, sizeof(*stamp));
    struct order order = {
        "an event's record", stamp_take, stamp, stamp_drop, NULL, 0, NULL, false, false};
    struct event *event;
    cu_result result;

    if (stamp == NULL) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    stamp->n_users = 2;
    result = stream_enqueue(stream, &order);
    if (result != CU_OK) {
        free(stamp);
        return result;
    }
    stamp->place = (struct place){stream, stream->n_enqueued};
    stamp->clock = stream->clock;
    event = event_find_of(context, handle);
    if (event == NULL) {
        stamp_release(stamp);
        return CU_ERROR_INVALID_HANDLE;
    }
    stamp_release(event->stamp);
    event->stamp = stamp;
    return CU_OK;
}

cu_result cuEventRecord(cu_event handle, cu_stream stream_handle)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, stream_handle);
    if (stream == NULL || event_find_of(context, handle) == NULL) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    return driver_leave(event_record(context, handle, stream));
}

cu_result cuEventQuery(cu_event handle)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct event *event;

    if (result != CU_OK) {
        return result;
    }
    event = event_find_of(context, handle);
    if (event == NULL) {
        return driver_leave(CU_ERROR_INVALID_HANDLE);
    }
    if (event->stamp == NULL) {
        return driver_leave(CU_OK);
    }
    if (!place_is_done(&event->stamp->place)) {
        return driver_leave(CU_ERROR_NOT_READY);
    }
    clock_join(&host_clock, &event->stamp->clock);
    return driver_leave(CU_OK);
}

/* For what was recorded last before this call; what is recorded later does not matter. */
cu_result cuStreamWaitEvent(cu_stream stream_handle, cu_event handle, uint32_t flags)
{
    struct order order = {"a wait for an event", NULL, NULL, NULL, NULL, 0, NULL, false, false};
    cu_context context;
    cu_result result = driver_enter(&context);
    struct stream *stream;
    struct event *event;
    struct stamp *stamp;

    if (result != CU_OK) {
        return result;
    }
    stream = stream_find(context, stream_handle);
    event = event_find(handle);
    if (stream == NULL || event == NULL || flags != 0) {
        return driver_leave(flags != 0 ? CU_ERROR_INVALID_VALUE : CU_ERROR_INVALID_HANDLE);
    }
    stamp = event->stamp;
    if (stamp == NULL) {
        return driver_leave(CU_OK);
    }
    stamp->n_users++;
    order.after = stamp;
    result = stream_enqueue(stream, &order);
    stamp_release(stamp);
    return driver_leave(result);
}

static cu_result elapsed_of(const struct event *start, const struct event *end, float *ret_ms)
{
    if (!start->has_timing || !end->has_timing || start->stamp == NULL || end->stamp == NULL) {
        return CU_ERROR_INVALID_HANDLE;
    }
    if (!place_is_done(&start->stamp->place) || !place_is_done(&end->stamp->place)) {
        return CU_ERROR_NOT_READY;
    }
    *ret_ms = (float)((double)(int64_t)(end->stamp->ns - start->stamp->ns) / 1e6);
    return CU_OK;
}

cu_result cuEventElapsedTime(float *ret_ms, cu_event start_handle, cu_event end_handle)
{
    cu_context context;
    cu_result result = driver_enter(&context);
    struct event *start;
    struct event *end;

    if (result != CU_OK) {
        return result;
    }
    start = event_find_of(context, start_handle);
    end = event_find_of(context, end_handle);
    if (start == NULL || end == NULL || ret_ms == NULL) {
        return driver_leave(ret_ms == NULL ? CU_ERROR_INVALID_VALUE : CU_ERROR_INVALID_HANDLE);
    }
    return driver_leave(elapsed_of(start, end, ret_ms));
}
