/* SPDX-License-Identifier: Apache-2.0 */
/* Between the host, which computes, and the device, where the model lies. */
#include "transfer.h"

#include <time.h>

#include "convert.h"

#define POLL_NS 20000

/* Until the device has come to the end of the stream, or the job has failed. */
static int stream_await(struct session *session, struct fault *ret_fault)
{
    const struct timespec pause = {0, POLL_NS};
    struct hsdp_error error = HSDP_ERROR_INIT;
    int is_done = 0;
    int status = device_mark(session->device, ret_fault);

    while (status == 0) {
        status = device_is_done(session->device, &is_done, ret_fault);
        if (status != 0 || is_done) {
            return status;
        }
        if (session->api->job->status(session->job, &error) != HSDP_OK) {
            return session_fault(session, &error, ret_fault);
        }
        nanosleep(&pause, NULL);
    }
    return status;
}

int transfer_fetch(struct session *session, const void *from, size_t n_bytes,
                   struct fault *ret_fault)
{
    const int status = device_copy(session->device, session->stage, from, n_bytes, ret_fault);

    return status == 0 ? stream_await(session, ret_fault) : status;
}

int transfer_send(struct session *session, void *to, size_t n_bytes, struct fault *ret_fault)
{
    const int status = device_copy(session->device, to, session->stage, n_bytes, ret_fault);

    return status == 0 ? stream_await(session, ret_fault) : status; /* the stage is used again */
}

/* What goes through the stage at a time, as the host sees it. */
static struct hsdp_tensor stage_view(const struct session *session, const struct hsdp_tensor *view)
{
    struct hsdp_tensor own = *view;

    own.base = session->stage;
    own.byte_offset = 0;
    return own;
}

/* How many of the elements that are left go at once. */
static size_t chunk_elems(const struct hsdp_tensor *view, size_t n_left)
{
    const size_t most = SESSION_STAGE_BYTES / (view->dtype_bits / 8u);

    return n_left < most ? n_left : most;
}

static void *element_at(const struct hsdp_tensor *view, size_t index)
{
    return (char *)convert_base(view) + index * (view->dtype_bits / 8u);
}

int transfer_load(struct session *session, float *out, const struct hsdp_tensor *view,
                  size_t n_elems, struct fault *ret_fault)
{
    const struct hsdp_tensor stage = stage_view(session, view);
    size_t n_chunk;

    if (session->device == NULL) {
        convert_load(out, view, n_elems);
        return 0;
    }
    for (size_t done = 0; done < n_elems; done += n_chunk) {
        int status;

        n_chunk = chunk_elems(view, n_elems - done);
        status = transfer_fetch(session, element_at(view, done), n_chunk * (view->dtype_bits / 8u),
                                ret_fault);
        if (status != 0) {
            return status;
        }
        convert_load(out + done, &stage, n_chunk);
    }
    return 0;
}

int transfer_store(struct session *session, const struct hsdp_tensor *view, size_t offset,
                   const float *inp, size_t n_elems, struct fault *ret_fault)
{
    const struct hsdp_tensor stage = stage_view(session, view);
    size_t n_chunk;

    if (session->device == NULL) {
        convert_store(view, offset, inp, n_elems);
        return 0;
    }
    for (size_t done = 0; done < n_elems; done += n_chunk) {
        int status;

        n_chunk = chunk_elems(view, n_elems - done);
        convert_store(&stage, 0, inp + done, n_chunk);
        status = transfer_send(session, element_at(view, offset + done),
                               n_chunk * (view->dtype_bits / 8u), ret_fault);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}
