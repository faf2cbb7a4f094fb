/* SPDX-License-Identifier: Apache-2.0 */
/* From loading the plugin to a connected model, and back. */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "transfer.h"

/*
 * The plugin has no way to print. Rank 0 takes its news into the log; the others have only their
 * warnings. An error is what the call that fails returns, and is told there.
 */
static void log_print(void *user, int32_t level, const char *text)
{
    const struct session *session = user;
    const struct tm now = report_clock();

    if (session->rank != 0 && level == HSDP_LOG_WARNING) {
        fprintf(stderr, "hsdp-gpt: rank %u: %s\n", session->rank, text);
    } else if (session->rank == 0 && (level == HSDP_LOG_WARNING || level == HSDP_LOG_INFO)) {
        report_note(stdout, &now, level == HSDP_LOG_INFO ? "INFO" : "WARNING", text);
    }
}

int session_fault(const struct session *session, const struct hsdp_error *error,
                  struct fault *ret_fault)
{
    const int is_request =
        error->status == HSDP_ERR_INVALID || error->status == HSDP_ERR_UNSUPPORTED ||
        error->status == HSDP_ERR_VERSION || error->status == HSDP_ERR_UNAVAILABLE;
    const char *origin = config_origin(session->config, error->message);

    if (!is_request || session->is_set_up) {
        return fault_set(ret_fault, FAULT_RUN, "%s", error->message);
    }
    return origin == NULL ? fault_set(ret_fault, FAULT_PLACE, "%s", error->message)
                          : fault_set(ret_fault, FAULT_CONFIG, "%s: %s", origin, error->message);
}

static int plugin_open(struct session *session, struct fault *ret_fault)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    const void *ops = NULL;

    spec.path = session->config->plugin;
    spec.strategy = config_text(session->config, "sharding_strategy");
    if (hsdp_plugin_load(&spec, &session->plugin, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    session->api = hsdp_plugin_api(session->plugin);
    if (session->api->extension(HSDP_ADAMW_EXTENSION, &ops, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    session->adamw = ops;
    return 0;
}

static int job_make(struct session *session, struct fault *ret_fault)
{
    const char *keys[CONFIG_MAX_KEYS], *values[CONFIG_MAX_KEYS];
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;

    spec.settings.n_settings = config_settings(session->config, CONFIG_JOB, keys, values);
    spec.settings.keys = keys;
    spec.settings.values = values;
    if (session->device != NULL) {
        spec.device_type = HSDP_DEVICE_CUDA;
        spec.device_id = device_ordinal(session->device);
    }
    spec.log = log_print;
    spec.user = session;
    if (session->api->job->create(&spec, &session->job, &error) != HSDP_OK ||
        session->api->job->info(session->job, &info, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    session->rank = info.rank;
    session->world_ranks = info.world_ranks;
    return config_microbatches(session->config, info.world_ranks, &session->n_microbatches,
                               ret_fault);
}

static int mesh_make(struct session *session, struct fault *ret_fault)
{
    static const char *const names[] = {"dp"};
    const int64_t sizes[] = {-1};
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 1;
    spec.world_ranks = session->world_ranks;
    spec.rank = session->rank;
    if (session->api->mesh->create(&spec, &session->mesh, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    return 0;
}

static struct model_shape shape_of(const struct config *config)
{
    return (struct model_shape){.n_layers = (uint32_t)config->num_layers,
                                .n_channels = (uint32_t)config->hidden_size,
                                .n_heads = (uint32_t)config->num_attention_heads,
                                .n_positions = (uint32_t)config->sequence_length,
                                .n_batch = (uint32_t)config->micro_batch_size,
                                .is_rotary = (uint32_t)config->is_rotary};
}

int session_check(struct session *session, const struct config *config, struct fault *ret_fault)
{
    int status;

    memset(session, 0, sizeof(*session));
    session->config = config;
    session->shape = shape_of(config);
    session->n_units = model_n_units(&session->shape);
    session->units = calloc(session->n_units, sizeof(*session->units));
    if (session->units == NULL) {
        return fault_set(ret_fault, FAULT_RUN, "no memory for %u units", session->n_units);
    }
    status = plugin_open(session, ret_fault);
    if (status == 0) {
        status = session_device(session, ret_fault);
    }
    if (status == 0) {
        status = job_make(session, ret_fault);
    }
    if (status == 0) {
        status = mesh_make(session, ret_fault);
    }
    if (status == 0) {
        status = session_plan(session, ret_fault);
    }
    return status;
}

/* The addresses of all parameters and gradients, once. */
static int views_read(struct session *session, struct fault *ret_fault)
{
    const struct hsdp_model_ops *model = session->api->model;
    struct hsdp_error error = HSDP_ERROR_INIT;

    for (uint32_t unit = 0; unit < session->n_units; unit++) {
        struct session_unit *own = &session->units[unit];

        for (uint32_t i = 0; i < own->n_params; i++) {
            const uint32_t param = own->params[i];

            if (model->param_view(session->model, param, HSDP_VIEW_PARAM, &own->values[i],
                                  &error) != HSDP_OK ||
                model->param_view(session->model, param, HSDP_VIEW_GRAD, &own->grads[i], &error) !=
                    HSDP_OK) {
                return session_fault(session, &error, ret_fault);
            }
        }
    }
    return 0;
}

int session_connect(struct session *session, struct fault *ret_fault)
{
    const struct hsdp_api *api = session->api;
    struct hsdp_group_spec all = HSDP_GROUP_SPEC_INIT;
    struct hsdp_error error = HSDP_ERROR_INIT;
    int status;

    all.selector = "dp";
    if (api->job->connect(session->job, &error) != HSDP_OK ||
        api->group->create(session->job, session->mesh, &all, &session->group, &error) != HSDP_OK ||
        api->group->connect(session->job, &error) != HSDP_OK ||
        api->model->create(session->job, session->plan, &session->model, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    status = views_read(session, ret_fault);
    return status == 0 ? session_fill(session, ret_fault) : status;
}

/* On the session's stream, from one fp64 tensor to itself. */
static int sum_start(struct session *session, const struct hsdp_tensor *tensor,
                     uint64_t *ret_ticket, struct fault *ret_fault)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.reduce = HSDP_REDUCE_SUM;
    spec.input = tensor;
    spec.output = tensor;
    if (session->api->group->start(session->group, &spec, sizeof(spec), 1, session->stream,
                                   ret_ticket, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    return 0;
}

/* The tensor lies where the job's device is, and so does what is summed. */
static int sum_run(struct session *session, const struct hsdp_tensor *tensor, double *values,
                   struct fault *ret_fault)
{
    const size_t n_bytes = (size_t)tensor->shape[0] * sizeof(*values);
    struct hsdp_error error = HSDP_ERROR_INIT;
    uint64_t ticket;
    int status = 0;

    if (session->device != NULL) {
        memcpy(session->stage, values, n_bytes);
        status = transfer_send(session, session->sums, n_bytes, ret_fault);
    }
    if (status == 0) {
        status = sum_start(session, tensor, &ticket, ret_fault);
    }
    if (status == 0 &&
        session->api->job->ticket_wait(session->job, ticket, UINT64_MAX, &error) != HSDP_OK) {
        status = session_fault(session, &error, ret_fault);
    }
    if (status == 0 && session->device != NULL) {
        status = transfer_fetch(session, session->sums, n_bytes, ret_fault);
        memcpy(values, session->stage, n_bytes);
    }
    return status;
}

int session_sum(struct session *session, double *values, int64_t n_values, struct fault *ret_fault)
{
    const struct hsdp_tensor tensor = {
        .base = session->device == NULL ? values : session->sums,
        .device_type = session->device == NULL ? HSDP_DEVICE_CPU : HSDP_DEVICE_CUDA,
        .device_id = session->device == NULL ? 0 : device_ordinal(session->device),
        .n_dims = 1,
        .dtype_code = HSDP_DTYPE_FLOAT,
        .dtype_bits = 64,
        .dtype_lanes = 1,
        .shape = &n_values};
    int status;

    laps_end(&session->laps, LAPS_COMPUTE);
    status = sum_run(session, &tensor, values, ret_fault);
    laps_end(&session->laps, LAPS_COMMUNICATION);
    return status;
}

int session_farewell(struct session *session, struct fault *ret_fault)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    if (session->api->job->close(session->job, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    return 0;
}

void session_abort(struct session *session, const struct fault *fault)
{
    if (session->job != NULL && session->is_set_up) {
        session->api->job->abort(session->job, fault->text, NULL);
    }
}

void session_close(struct session *session)
{
    if (session->api != NULL) {
        session->api->model->destroy(session->model);
        session->api->group->destroy(session->group);
        session->api->plan->destroy(session->plan);
        session->api->mesh->destroy(session->mesh);
        session->api->job->destroy(session->job);
    }
    device_close(session->device);
    hsdp_plugin_unload(session->plugin);
    free(session->units);
    memset(session, 0, sizeof(*session));
}
