/* SPDX-License-Identifier: Apache-2.0 */
/* Not made yet: models, units and steps. Every function is there, and says so. */
#include "skeleton.h"

/* ---------------------------------------------------------------------------------------- model */

static int32_t model_create(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model,
                            struct hsdp_error *reterr)
{
    (void)job;
    (void)plan;
    (void)ret_model;
    return skeleton_absent(reterr, "model.create");
}

static int32_t model_info(const hsdp_model *model, struct hsdp_model_info *ret_info,
                          struct hsdp_error *reterr)
{
    (void)model;
    (void)ret_info;
    return skeleton_absent(reterr, "model.info");
}

static int32_t model_param_view(hsdp_model *model, uint32_t param, int32_t view,
                                struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    (void)model;
    (void)param;
    (void)view;
    (void)ret_view;
    return skeleton_absent(reterr, "model.param_view");
}

static int32_t model_flat_view(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                               struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    (void)model;
    (void)unit;
    (void)buffer;
    (void)flat;
    (void)ret_view;
    return skeleton_absent(reterr, "model.flat_view");
}

static int32_t model_state_create(hsdp_model *model, const char *name, const char *dtype,
                                  uint32_t *ret_state, struct hsdp_error *reterr)
{
    (void)model;
    (void)name;
    (void)dtype;
    (void)ret_state;
    return skeleton_absent(reterr, "model.state_create");
}

static int32_t model_state_info(const hsdp_model *model, uint32_t state, const char **ret_name,
                                const char **ret_dtype, struct hsdp_error *reterr)
{
    (void)model;
    (void)state;
    (void)ret_name;
    (void)ret_dtype;
    return skeleton_absent(reterr, "model.state_info");
}

static int32_t model_edit_begin(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)stream;
    return skeleton_absent(reterr, "model.edit_begin");
}

static int32_t model_edit_end(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)stream;
    return skeleton_absent(reterr, "model.edit_end");
}

static int32_t model_import_param(hsdp_model *model, uint32_t param, int32_t flat,
                                  const struct hsdp_tensor *full, uint32_t source_rank,
                                  void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)param;
    (void)flat;
    (void)full;
    (void)source_rank;
    (void)stream;
    return skeleton_absent(reterr, "model.import_param");
}

static int32_t model_export_param(hsdp_model *model, uint32_t param, int32_t flat,
                                  const struct hsdp_tensor *full, uint32_t target_rank,
                                  void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)param;
    (void)flat;
    (void)full;
    (void)target_rank;
    (void)stream;
    return skeleton_absent(reterr, "model.export_param");
}

static int32_t model_sync(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)stream;
    return skeleton_absent(reterr, "model.sync");
}

static void model_destroy(hsdp_model *model)
{
    (void)model;
}

const struct hsdp_model_ops skeleton_model = {
    .struct_size = sizeof(struct hsdp_model_ops),
    .create = model_create,
    .info = model_info,
    .param_view = model_param_view,
    .flat_view = model_flat_view,
    .state_create = model_state_create,
    .state_info = model_state_info,
    .edit_begin = model_edit_begin,
    .edit_end = model_edit_end,
    .import_param = model_import_param,
    .export_param = model_export_param,
    .sync = model_sync,
    .destroy = model_destroy,
};

/* ----------------------------------------------------------------------------------------- unit */

static int32_t unit_unshard(hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                            uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    (void)model;
    (void)unit;
    (void)use;
    (void)stream;
    (void)ret_ticket;
    return skeleton_absent(reterr, "unit.unshard");
}

static int32_t unit_release(hsdp_model *model, uint32_t unit, void *stream,
                            struct hsdp_error *reterr)
{
    (void)model;
    (void)unit;
    (void)stream;
    return skeleton_absent(reterr, "unit.release");
}

static int32_t unit_grad_add(hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad,
                             void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)param;
    (void)grad;
    (void)stream;
    return skeleton_absent(reterr, "unit.grad_add");
}

static int32_t unit_backward_begin(hsdp_model *model, const uint32_t *units, uint64_t n_units,
                                   int32_t scope, uint64_t *ret_pass, struct hsdp_error *reterr)
{
    (void)model;
    (void)units;
    (void)n_units;
    (void)scope;
    (void)ret_pass;
    return skeleton_absent(reterr, "unit.backward_begin");
}

static int32_t unit_reduce(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                           uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    (void)model;
    (void)pass;
    (void)unit;
    (void)stream;
    (void)ret_ticket;
    return skeleton_absent(reterr, "unit.reduce");
}

static int32_t unit_skip(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                         uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    (void)model;
    (void)pass;
    (void)unit;
    (void)stream;
    (void)ret_ticket;
    return skeleton_absent(reterr, "unit.skip");
}

static int32_t unit_backward_end(hsdp_model *model, uint64_t pass, void *stream,
                                 uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    (void)model;
    (void)pass;
    (void)stream;
    (void)ret_ticket;
    return skeleton_absent(reterr, "unit.backward_end");
}

const struct hsdp_unit_ops skeleton_unit = {
    .struct_size = sizeof(struct hsdp_unit_ops),
    .unshard = unit_unshard,
    .release = unit_release,
    .grad_add = unit_grad_add,
    .backward_begin = unit_backward_begin,
    .reduce = unit_reduce,
    .skip = unit_skip,
    .backward_end = unit_backward_end,
};

/* ----------------------------------------------------------------------------------------- step */

static int32_t step_begin(hsdp_model *model, const struct hsdp_step_spec *spec,
                          uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    (void)model;
    (void)spec;
    (void)ret_ticket;
    return skeleton_absent(reterr, "step.begin");
}

static int32_t step_result(hsdp_model *model, struct hsdp_step_info *ret_result,
                           struct hsdp_error *reterr)
{
    (void)model;
    (void)ret_result;
    return skeleton_absent(reterr, "step.result");
}

static int32_t step_factor_view(hsdp_model *model, struct hsdp_tensor *ret_view,
                                struct hsdp_error *reterr)
{
    (void)model;
    (void)ret_view;
    return skeleton_absent(reterr, "step.factor_view");
}

static int32_t step_end(hsdp_model *model, void *stream, uint64_t *ret_ticket,
                        struct hsdp_error *reterr)
{
    (void)model;
    (void)stream;
    (void)ret_ticket;
    return skeleton_absent(reterr, "step.end");
}

static int32_t step_discard(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)stream;
    return skeleton_absent(reterr, "step.discard");
}

const struct hsdp_step_ops skeleton_step = {
    .struct_size = sizeof(struct hsdp_step_ops),
    .begin = step_begin,
    .result = step_result,
    .factor_view = step_factor_view,
    .end = step_end,
    .discard = step_discard,
};
