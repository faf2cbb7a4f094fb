/* SPDX-License-Identifier: Apache-2.0 */
/* The first weights: each rank writes the slice that it owns, and nothing more. */
#include <stdlib.h>

#include "convert.h"
#include "init.h"
#include "session.h"
#include "transfer.h"

#define CHUNK_ELEMS 4096u

static const struct model_param *param_find(const struct session_unit *unit, uint32_t param)
{
    for (uint32_t i = 0; i < unit->n_params; i++) {
        if (unit->params[i] == param) {
            return &unit->table[i];
        }
    }
    return NULL;
}

/* Writes one run of elements into the flat view of its buffer, chunk by chunk. */
static int segment_fill(struct session *session, const struct hsdp_tensor *flat,
                        const struct hsdp_segment *segment, const struct model_param *param,
                        struct fault *ret_fault)
{
    float chunk[CHUNK_ELEMS];

    for (uint64_t done = 0; done < segment->n_elems; done += CHUNK_ELEMS) {
        const uint64_t left = segment->n_elems - done;
        const uint64_t n_elems = left < CHUNK_ELEMS ? left : CHUNK_ELEMS;

        int status;

        init_slice(chunk, param, session->config->seed, segment->param_offset_elems + done,
                   n_elems);
        status = transfer_store(session, flat, segment->shard_offset_elems + done, chunk, n_elems,
                                ret_fault);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

/* Lists what this rank owns of a unit; *ret_segments is the caller's to free. */
static int segments_list(const struct session *session, uint32_t unit,
                         struct hsdp_segment **ret_segments, uint64_t *ret_n_segments,
                         struct fault *ret_fault)
{
    const struct hsdp_plan_ops *plan = session->api->plan;
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_segment *segments;
    uint64_t n_segments = 0;
    int32_t status;

    status = plan->segments(session->plan, unit, HSDP_SHARD_STEP, session->rank, NULL,
                            sizeof(*segments), 0, &n_segments, &error);
    if (status != HSDP_OK && status != HSDP_ERR_BUFFER_TOO_SMALL) {
        return session_fault(session, &error, ret_fault);
    }
    segments = calloc(n_segments + 1, sizeof(*segments));
    if (segments == NULL) {
        return fault_set(ret_fault, FAULT_RUN, "no memory for %ju segments", (uintmax_t)n_segments);
    }
    if (plan->segments(session->plan, unit, HSDP_SHARD_STEP, session->rank, segments,
                       sizeof(*segments), n_segments, &n_segments, &error) != HSDP_OK) {
        free(segments);
        return session_fault(session, &error, ret_fault);
    }
    *ret_segments = segments;
    *ret_n_segments = n_segments;
    return 0;
}

static int unit_fill(struct session *session, uint32_t unit, struct fault *ret_fault)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_segment *segments = NULL;
    uint64_t n_segments = 0;
    int status = segments_list(session, unit, &segments, &n_segments, ret_fault);

    for (uint64_t i = 0; i < n_segments && status == 0; i++) {
        const struct hsdp_segment *segment = &segments[i];
        const struct model_param *param = param_find(&session->units[unit], segment->param);
        struct hsdp_tensor flat;

        if (session->api->model->flat_view(session->model, unit, segment->buffer, HSDP_FLAT_MASTER,
                                           &flat, &error) != HSDP_OK) {
            status = session_fault(session, &error, ret_fault);
        } else if (param == NULL || !convert_is_known(&flat)) {
            status = fault_set(ret_fault, FAULT_RUN,
                               "the plugin gave parameter %u and %u-bit weights to unit %u, which "
                               "are not ours",
                               segment->param, flat.dtype_bits, unit);
        } else {
            status = segment_fill(session, &flat, segment, param, ret_fault);
        }
    }
    free(segments);
    return status;
}

int session_fill(struct session *session, struct fault *ret_fault)
{
    const struct hsdp_model_ops *model = session->api->model;
    struct hsdp_error error = HSDP_ERROR_INIT;

    if (model->edit_begin(session->model, session->stream, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    for (uint32_t unit = 0; unit < session->n_units; unit++) {
        const int status = unit_fill(session, unit, ret_fault);

        if (status != 0) {
            return status;
        }
    }
    if (model->edit_end(session->model, session->stream, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    return 0;
}
