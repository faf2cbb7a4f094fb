/* SPDX-License-Identifier: Apache-2.0 */
/* Models: creation, what ranks agree on, and questions. */
#include "model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intake.h"
#include "text.h"

static const struct intake info_intake = {"ret_info", 80, sizeof(struct hsdp_model_info)};

/* -------------------------------------------------------------------------------------- checks */

int32_t model_enter(const struct call *call, hsdp_model *model)
{
    return call_has(call, "model", model) ? job_enter_connected(call, model->job)
                                          : HSDP_ERR_INVALID;
}

int32_t unit_refuse(const struct call *call, const hsdp_model *model, uint32_t unit, int32_t status,
                    const char *format, ...)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    va_list args;
    int n;

    error.status = status;
    snprintf(error.unit, sizeof(error.unit), "%s", model->units[unit].name);
    n = snprintf(error.message, sizeof(error.message), "%s: unit \"%s\" ", call->name, error.unit);
    va_start(args, format);
    vsnprintf(error.message + n, sizeof(error.message) - (size_t)n, format, args);
    va_end(args);
    return error_pass(call, &error);
}

int32_t unit_check(const struct call *call, const hsdp_model *model, uint32_t unit)
{
    return unit < model->n_units
               ? HSDP_OK
               : error_raise(call, HSDP_ERR_INVALID, "%s: unit %" PRIu32 " of %" PRIu32, call->name,
                             unit, model->n_units);
}

int32_t param_check(const struct call *call, const hsdp_model *model, uint32_t param)
{
    return param < model->n_params
               ? HSDP_OK
               : error_raise(call, HSDP_ERR_INVALID, "%s: parameter %" PRIu32 " of %" PRIu32,
                             call->name, param, model->n_params);
}

int32_t tensor_check(const struct call *call, const hsdp_model *model, uint32_t param,
                     const struct hsdp_tensor *tensor, enum dtype *ret_dtype)
{
    const struct hsdp_param_info *info = &model->params[param].info;

    if (tensor->device_type != HSDP_DEVICE_CPU) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED,
                           "%s: \"%s\": a tensor on device type %" PRId32 ", only 1 is built",
                           call->name, info->name, tensor->device_type);
    }
    if (!dtype_of(tensor, ret_dtype)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: \"%s\": a tensor of dtype code %u and %u bits; fp32, fp16 and bf16 "
                           "are allowed",
                           call->name, info->name, tensor->dtype_code, tensor->dtype_bits);
    }
    if (tensor->n_dims != (int32_t)info->n_dims || (info->n_dims > 0 && tensor->shape == NULL)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: \"%s\": a tensor of %" PRId32 " dimensions, not %" PRIu32,
                           call->name, info->name, tensor->n_dims, info->n_dims);
    }
    for (uint32_t d = 0; d < info->n_dims; d++) {
        if (tensor->shape[d] != info->shape[d]) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "%s: \"%s\": a tensor of size %" PRId64 " in dimension %" PRIu32
                               ", not %" PRId64,
                               call->name, info->name, tensor->shape[d], d, info->shape[d]);
        }
    }
    if (!tensor_is_contiguous(tensor)) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED, "%s: \"%s\": a tensor not contiguous",
                           call->name, info->name);
    }
    if (tensor->base == NULL && info->n_elems > 0) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: \"%s\": a tensor without memory",
                           call->name, info->name);
    }
    return HSDP_OK;
}

const void *tensor_at(const struct hsdp_tensor *tensor)
{
    return tensor->base == NULL ? NULL : (const char *)tensor->base + tensor->byte_offset;
}

void request_of_model(const struct call *call, hsdp_model *model, struct meeting_text *text,
                      struct request *ret)
{
    *ret = (struct request){.alike = call->name, .operation = call->name, .group = "", .unit = ""};
    ret->sentence = "";
    ret->members = model->shared.ranks;
    ret->n_members = model->shared.n;
    ret->timeout_ms = job_timeout_ms(model->job);
    ret->sequence = ++model->n_shared_meetings;
    ret->key = text->key;
    ret->payload = "";
    snprintf(text->key, sizeof(text->key), "model.%" PRIu64 ".shared.%" PRIu64, model->number,
             ret->sequence);
}

/* -------------------------------------------------------------------------------------- filling */

static void ranks_read(const hsdp_model *model, const char *selector, struct ranks *ret)
{
    uint64_t n = 0;

    reference_mesh.members(model->mesh, selector, model->job->launch.rank, ret->ranks, MOST_RANKS,
                           &n, NULL);
    ret->n = (uint32_t)n;
}

static enum dtype class_dtype(const hsdp_model *model, uint32_t class_index, const char *key)
{
    const char *value = "", *source;
    enum dtype dtype = DTYPE_FP32;

    reference_plan.class_setting(model->plan, class_index, key, &value, &source, NULL);
    dtype_find(value, &dtype);
    return dtype;
}

static void unit_fill(hsdp_model *model, uint32_t unit)
{
    struct unit *u = &model->units[unit];
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
    struct hsdp_class_info klass = HSDP_CLASS_INFO_INIT;

    reference_plan.unit_info(model->plan, unit, &info, NULL);
    reference_plan.class_info(model->plan, info.class_index, &klass, NULL);
    u->name = info.name;
    u->class_index = info.class_index;
    u->n_buffers = info.n_buffers;
    u->divisor = klass.divisor;
    u->group = klass.reduce_dims[0] != '\0' ? klass.reduce_dims : "self";
    u->publication = (struct publication){model, unit};
    u->param_dtype = class_dtype(model, info.class_index, "param_dtype");
    u->master_dtype = class_dtype(model, info.class_index, "master_dtype");
    u->reduce_dtype = class_dtype(model, info.class_index, "reduce_dtype");
    u->gradient_dtype = class_dtype(model, info.class_index, "gradient_dtype");
    ranks_read(model, klass.reduce_dims, &u->reduced);
    ranks_read(model, klass.grad_dims, &u->resting);
    ranks_read(model, klass.step_dims, &u->stepped);
    for (uint32_t b = 0; b < info.n_buffers; b++) {
        struct buffer *buffer = &u->buffers[b];

        buffer->info = (struct hsdp_buffer_info)HSDP_BUFFER_INFO_INIT;
        reference_plan.buffer_info(model->plan, unit, b, &buffer->info, NULL);
        buffer->step_shape[0] = (int64_t)buffer->info.step_shard_elems;
    }
}

static void param_fill(hsdp_model *model, uint32_t param)
{
    struct param *p = &model->params[param];
    struct ranks holders;
    int64_t stride = 1;

    p->info = (struct hsdp_param_info)HSDP_PARAM_INFO_INIT;
    reference_plan.param_info(model->plan, param, &p->info, NULL);
    ranks_read(model, p->info.tied_over, &holders);
    p->tied_over = holders.n > 1 ? p->info.tied_over : NULL;
    p->is_storage = p->info.storage == param;
    p->is_frozen = (p->info.flags & HSDP_PARAM_FROZEN) != 0;
    model->units[p->info.unit].is_trainable |= !p->is_frozen;
    p->is_alias = !p->is_storage && model->params[p->info.storage].info.unit != p->info.unit;
    for (uint32_t d = p->info.n_dims; d > 0; d--) {
        p->strides[d - 1] = stride;
        stride *= p->info.shape[d - 1] > 0 ? p->info.shape[d - 1] : 1;
    }
    if (p->is_storage && !p->is_frozen) {
        p->packed = model->units[p->info.unit].n_packed;
        model->units[p->info.unit].n_packed += p->info.n_elems;
    }
}

static void settings_take(hsdp_model *model)
{
    const char *verify = "", *scope = "", *slots = "2", *source;

    reference_plan.setting(model->plan, "verify", &verify, &source, NULL);
    reference_plan.setting(model->plan, "accumulation_scope", &scope, &source, NULL);
    reference_plan.setting(model->plan, "slots", &slots, &source, NULL);
    model->verifies_access = strstr(verify, "access") != NULL;
    model->verifies_wrap = strstr(verify, "wrap") != NULL;
    model->verifies_steps =
        strstr(verify, "step:") != NULL ? strtoul(strstr(verify, "step:") + 5, NULL, 10) : 0;
    model->n_slots = strtoul(slots, NULL, 10);
    model->scope = strcmp(scope, "none") == 0    ? HSDP_SCOPE_NONE
                   : strcmp(scope, "inner") == 0 ? HSDP_SCOPE_INNER
                                                 : HSDP_SCOPE_FULL;
}

/* True if a class is replicated over a dimension. */
static bool class_is_over(const hsdp_model *model, uint32_t class_index, const char *dim)
{
    struct hsdp_class_info klass = HSDP_CLASS_INFO_INIT;
    size_t n = strlen(dim);

    reference_plan.class_info(model->plan, class_index, &klass, NULL);
    for (const char *name = klass.replicated_dims; *name != '\0';) {
        size_t n_name = strcspn(name, ",");

        if (n_name == n && memcmp(name, dim, n) == 0) {
            return true;
        }
        name += n_name;
        name += strspn(name, ",");
    }
    return false;
}

/* The ranks that differ only in dimensions over which some class is replicated: others have other
 * plans. */
static void shared_read(hsdp_model *model)
{
    char text[DIMS_TEXT_BYTES] = "";
    const char *dim;
    uint32_t n_ranks;

    for (uint32_t d = 0; reference_mesh.dim(model->mesh, d, &dim, &n_ranks, NULL) == HSDP_OK; d++) {
        bool is_shared = false;
        size_t n = strlen(text);

        for (uint32_t c = 0; c < model->n_classes; c++) {
            is_shared = is_shared || class_is_over(model, c, dim);
        }
        if (is_shared) {
            snprintf(text + n, sizeof(text) - n, "%s%s", n == 0 ? "" : ",", dim);
        }
    }
    ranks_read(model, text, &model->shared);
}

static int32_t model_fill(const struct call *call, hsdp_model *model)
{
    int32_t status = HSDP_OK;

    reference_plan.mesh(model->plan, &model->mesh, NULL);
    shared_read(model);
    settings_take(model);
    for (uint32_t c = 0; c < model->n_classes; c++) {
        struct hsdp_class_info klass = HSDP_CLASS_INFO_INIT;

        reference_plan.class_info(model->plan, c, &klass, NULL);
        ranks_read(model, klass.param_dims, &model->logs[c].resting);
    }
    for (uint32_t u = 0; u < model->n_units; u++) {
        unit_fill(model, u);
    }
    for (uint32_t p = 0; p < model->n_params; p++) {
        param_fill(model, p);
    }
    for (uint32_t u = 0; u < model->n_units && status == HSDP_OK; u++) {
        status = unit_allocate(call, model, u);
    }
    for (uint32_t p = 0; p < model->n_params && status == HSDP_OK; p++) {
        status = param_allocate(call, model, p);
    }
    for (uint32_t u = 0; u < model->n_units && status == HSDP_OK; u++) {
        grads_show(model, u, false);
    }
    return status;
}

static void model_free(hsdp_model *model)
{
    if (model == NULL) {
        return;
    }
    while (model->passes != NULL) {
        pass_free(model, model->passes);
    }
    for (uint32_t p = 0; p < model->n_params; p++) {
        param_free(model, &model->params[p]);
    }
    for (uint32_t u = 0; u < model->n_units; u++) {
        unit_free(model, &model->units[u]);
    }
    free(model->units);
    free(model->params);
    for (uint32_t c = 0; c < model->n_classes; c++) {
        packet_free(&model->logs[c].made_whole);
    }
    free(model->logs);
    free(model->adamw_text);
    reference_plan.destroy(model->plan);
    free(model);
}

/* -------------------------------------------------------------------------------------- create */

static int32_t plan_check(const struct call *call, const hsdp_job *job, const hsdp_plan *plan)
{
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    const hsdp_mesh *mesh = NULL;
    int32_t status;

    if (!call_has(call, "plan", plan)) {
        return HSDP_ERR_INVALID;
    }
    status = reference_plan.mesh(plan, &mesh, NULL);
    if (status != HSDP_OK) {
        return error_raise(call, status, "%s: the plan is not finished", call->name);
    }
    reference_mesh.info(mesh, &info, NULL);
    if (info.world_ranks != job->launch.world_ranks || info.rank != job->launch.rank) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: the plan is for rank %" PRIu32 " of %" PRIu32
                           ", the job is rank %" PRIu32 " of %" PRIu32,
                           call->name, info.rank, info.world_ranks, job->launch.rank,
                           job->launch.world_ranks);
    }
    return HSDP_OK;
}

/* Makes it, without a word to the other ranks. */
static int32_t model_make(const struct call *call, hsdp_job *job, const hsdp_plan *plan,
                          hsdp_model **ret)
{
    struct hsdp_plan_info totals = HSDP_PLAN_INFO_INIT;
    hsdp_model *model;
    int32_t status = plan_check(call, job, plan);

    if (status != HSDP_OK) {
        return status;
    }
    reference_plan.info(plan, &totals, NULL);
    model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    model->job = job;
    model->plan = plan_hold(plan);
    model->factors_shape[0] = 2;
    model->flat_strides[0] = 1;
    model->units = calloc(totals.n_units + 1, sizeof(*model->units));
    model->params = calloc(totals.n_params + 1, sizeof(*model->params));
    model->logs = calloc(totals.n_classes + 1, sizeof(*model->logs));
    if (model->units == NULL || model->params == NULL || model->logs == NULL) {
        status = error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    } else {
        model->n_units = totals.n_units;
        model->n_params = totals.n_params;
        model->n_classes = totals.n_classes;
        status = model_fill(call, model);
    }
    if (status != HSDP_OK) {
        model_free(model);
        return status;
    }
    *ret = model;
    return HSDP_OK;
}

static char *plan_lines(const hsdp_model *model)
{
    struct text lines;

    if (text_open(&lines)) {
        plan_lines_write(model->plan, lines.file);
    }
    return text_take(&lines);
}

/* What all ranks of the job have to have alike: the mesh, and what is verified together. */
static void job_lines(const hsdp_model *model, const char *lines, char *text, size_t n_bytes)
{
    int n = (int)strcspn(lines, "\n");

    snprintf(text, n_bytes, "%.*s\nverify=%s%s%" PRIu64, n, lines,
             model->verifies_wrap ? "wrap," : "", "step:", model->verifies_steps);
}

/* All ranks have one, or none has. */
static int32_t model_agree(const struct call *call, hsdp_model *model, hsdp_job *job,
                           const struct hsdp_error *own)
{
    char *lines = model != NULL ? plan_lines(model) : NULL;
    struct packet payload = {0}, answer = {0};
    struct meeting_text text;
    struct request request;
    char alike[1024] = "";
    int32_t status;

    request_of_job(call, job, &text, &request);
    if (lines != NULL) {
        job_lines(model, lines, alike, sizeof(alike));
        ties_write(model, &payload);
    }
    request.alike = alike;
    request.refusal = model == NULL ? own->status : lines == NULL ? HSDP_ERR_NO_MEMORY : HSDP_OK;
    request.sentence = model == NULL ? own->message : "model.create: no memory";
    request_carry(&request, &payload);
    status = job_meet(call, job, &request, &answer);
    if (status == HSDP_OK) {
        status = ties_compare(call, model, answer);
    }
    packet_free(&answer);
    packet_free(&payload);
    if (status == HSDP_OK) { /* those of one plan compare it line by line */
        model->number = ++job->n_models;
        request_of_model(call, model, &text, &request);
        request.alike = lines;
        status = job_meet(call, job, &request, &answer);
        packet_free(&answer);
    }
    free(lines);
    return status;
}

/* Diagnostics look at the list from any thread. */
static void model_list(hsdp_job *job, hsdp_model *model, bool is_new)
{
    hsdp_model **at = &job->models;

    pthread_mutex_lock(&job->mutex);
    if (is_new) {
        model->next = job->models;
        job->models = model;
    } else {
        while (*at != model) {
            at = &(*at)->next;
        }
        *at = model->next;
    }
    pthread_mutex_unlock(&job->mutex);
}

static void table_destroy(hsdp_model *model)
{
    hsdp_job *job;

    if (model == NULL) {
        return;
    }
    job = model->job;
    model_list(job, model, false);
    job_forget(job, model);
    model_free(model);
    job_drop(job);
}

static int32_t table_create(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model,
                            struct hsdp_error *reterr)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call call = {"model.create", reterr};
    const struct call quiet = {"model.create", &error};
    int32_t status = job_enter_connected(&call, job);
    hsdp_model *model = NULL;

    if (status != HSDP_OK) {
        return status;
    }
    if (call_has(&quiet, "ret_model", ret_model)) {
        model_make(&quiet, job, plan, &model);
    }
    status = model_agree(&call, model, job, &error);
    if (status != HSDP_OK) {
        model_free(model);
        return job_leave(job, status);
    }
    job_hold(job);
    model_list(job, model, true);
    if (model->verifies_wrap) {
        status = model_prove(&call, model);
    }
    if (status == HSDP_OK) {
        *ret_model = model;
    }
    job_leave(job, status);
    if (status != HSDP_OK) {
        table_destroy(model);
    }
    return status;
}

/* ----------------------------------------------------------------------------------- questions */

void model_describe(const hsdp_model *model, struct hsdp_model_info *ret)
{
    struct hsdp_plan_info totals = HSDP_PLAN_INFO_INIT;

    *ret = (struct hsdp_model_info)HSDP_MODEL_INFO_INIT;
    /* The shares that the plan promises. The whole copies that this plugin keeps beside them, to be
     * plain, are in no field. */
    reference_plan.info(model->plan, &totals, NULL);
    ret->param_bytes = totals.param_bytes;
    ret->master_bytes = totals.master_bytes;
    ret->grad_bytes = totals.grad_bytes;
    ret->grad_slot_bytes = totals.grad_slot_bytes;
    ret->unsharded_bytes = totals.unsharded_bytes;
    for (uint32_t s = 0; s < model->n_states; s++) {
        ret->state_bytes += totals.n_state_elems * dtype_bytes(model->states[s].dtype);
    }
    ret->step = model->n_steps;
    ret->n_states = model->n_states;
    ret->is_stepping = model->step.is_open;
    ret->is_editing = model->is_editing;
}

static int32_t table_info(const hsdp_model *model, struct hsdp_model_info *ret_info,
                          struct hsdp_error *reterr)
{
    const struct call call = {"model.info", reterr};
    struct hsdp_model_info info;
    int32_t status;

    if (!call_has(&call, "model", model)) {
        return HSDP_ERR_INVALID;
    }
    status = job_enter_to_ask(&call, model->job);
    if (status != HSDP_OK) {
        return status;
    }
    status = intake_check(&call, &info_intake, ret_info);
    if (status == HSDP_OK) {
        model_describe(model, &info);
        intake_give(&info_intake, &info, ret_info);
    }
    return job_leave(model->job, status);
}

const struct hsdp_model_ops reference_model = {
    .struct_size = sizeof(struct hsdp_model_ops),
    .create = table_create,
    .info = table_info,
    .param_view = model_param_view,
    .flat_view = model_flat_view,
    .state_create = model_state_create,
    .state_info = model_state_info,
    .edit_begin = edit_begin,
    .edit_end = edit_end,
    .import_param = edit_import,
    .export_param = edit_export,
    .sync = edit_sync,
    .destroy = table_destroy,
};
