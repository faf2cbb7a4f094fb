/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_model_ops. */
#include "shard/model.h"

#include "call.h"
#include "tables.h"

static int32_t entry_create(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model,
                            struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_model *model = NULL;

    call_begin(&call, "model.create", reterr);
    call_needs(&call, "job", job);
    call_enters(&call, job);
    call_is_collective(&call);
    call_needs(&call, "plan", plan);
    call_needs(&call, "ret_model", ret_model);
    if (call_is_ok(&call)) {
        call.status = model_create(job, plan, &model, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_model = model;
    }
    return call_end(&call);
}

static int32_t entry_info(const hsdp_model *model, struct hsdp_model_info *ret_info,
                          struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;

    call_begin(&call, "model.info", reterr);
    call_needs(&call, "model", model);
    call_needs_struct(&call, "ret_info", &intake_model_info, ret_info);
    if (call_is_ok(&call)) {
        call_enters_failed(&call, model_job(model));
    }
    if (call_is_ok(&call)) {
        call.status = model_info(model, &info, &call.err);
    }
    call_gives(&call, &intake_model_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_param_view(hsdp_model *model, uint32_t param, int32_t view,
                                struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_tensor tensor;

    call_begin(&call, "model.param_view", reterr);
    call_needs(&call, "model", model);
    call_needs(&call, "ret_view", ret_view);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) {
        call.status = model_param_view(model, param, view, &tensor, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_view = tensor;
    }
    return call_end(&call);
}

static int32_t entry_flat_view(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                               struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_tensor tensor;

    call_begin(&call, "model.flat_view", reterr);
    call_needs(&call, "model", model);
    call_needs(&call, "ret_view", ret_view);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) {
        call.status = model_flat_view(model, unit, buffer, flat, &tensor, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_view = tensor;
    }
    return call_end(&call);
}

static int32_t entry_state_create(hsdp_model *model, const char *name, const char *dtype,
                                  uint32_t *ret_state, struct hsdp_error *reterr)
{
    struct call call;
    uint32_t state = 0;

    call_begin(&call, "model.state_create", reterr);
    call_needs(&call, "model", model);
    call_needs(&call, "name", name);
    call_needs(&call, "dtype", dtype);
    call_needs(&call, "ret_state", ret_state);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) {
        call.status = model_state_create(model, name, dtype, &state, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_state = state;
    }
    return call_end(&call);
}

static int32_t entry_state_info(const hsdp_model *model, uint32_t state, const char **ret_name,
                                const char **ret_dtype, struct hsdp_error *reterr)
{
    struct call call;
    const char *name = NULL;
    const char *dtype = NULL;

    call_begin(&call, "model.state_info", reterr);
    call_needs(&call, "model", model);
    call_needs(&call, "ret_name", ret_name);
    call_needs(&call, "ret_dtype", ret_dtype);
    if (call_is_ok(&call)) {
        call_enters_failed(&call, model_job(model));
    }
    if (call_is_ok(&call)) {
        call.status = model_state_info(model, state, &name, &dtype, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_name = name;
        *ret_dtype = dtype;
    }
    return call_end(&call);
}

static int32_t entry_edit_begin(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "model.edit_begin", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_is_collective(&call);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = model_edit_begin(model, stream, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_edit_end(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "model.edit_end", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = model_edit_end(model, stream, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_import_param(hsdp_model *model, uint32_t param, int32_t flat,
                                  const struct hsdp_tensor *full, uint32_t source_rank,
                                  void *stream, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "model.import_param", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) { /* the engine looks at stream and full: peers hear what is wrong */
        call.status = model_import_param(model, param, flat, full, source_rank, stream, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_export_param(hsdp_model *model, uint32_t param, int32_t flat,
                                  const struct hsdp_tensor *full, uint32_t target_rank,
                                  void *stream, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "model.export_param", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) {
        call.status = model_export_param(model, param, flat, full, target_rank, stream, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_sync(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "model.sync", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_is_collective(&call);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = model_sync(model, stream, &call.err);
    }
    return call_end(&call);
}

const struct hsdp_model_ops export_model = {
    .struct_size = sizeof(struct hsdp_model_ops),
    .create = entry_create,
    .info = entry_info,
    .param_view = entry_param_view,
    .flat_view = entry_flat_view,
    .state_create = entry_state_create,
    .state_info = entry_state_info,
    .edit_begin = entry_edit_begin,
    .edit_end = entry_edit_end,
    .import_param = entry_import_param,
    .export_param = entry_export_param,
    .sync = entry_sync,
    .destroy = model_destroy,
};
