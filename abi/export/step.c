/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_step_ops. */
#include "shard/step.h"

#include "call.h"
#include "tables.h"

static int32_t entry_begin(hsdp_model *model, const struct hsdp_step_spec *spec,
                           uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_step_spec own;
    uint64_t ticket = 0;

    call_begin(&call, "step.begin", reterr);
    call_needs(&call, "model", model);
    call_takes(&call, "spec", &intake_step_spec, spec, &own);
    call_enters_model(&call, model);
    call_needs_stream(&call, call_is_ok(&call) ? own.stream : NULL);
    if (call_is_ok(&call)) {
        call.status = step_begin(model, &own, &ticket, &call.err);
    }
    call_gives_ticket(&call, ticket, ret_ticket);
    return call_end(&call);
}

static int32_t entry_result(hsdp_model *model, struct hsdp_step_info *ret_result,
                            struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;

    call_begin(&call, "step.result", reterr);
    call_needs(&call, "model", model);
    call_needs_struct(&call, "ret_result", &intake_step_info, ret_result);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) {
        call.status = step_result(model, &result, &call.err);
    }
    call_gives(&call, &intake_step_info, &result, ret_result);
    return call_end(&call);
}

static int32_t entry_factor_view(hsdp_model *model, struct hsdp_tensor *ret_view,
                                 struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_tensor tensor;

    call_begin(&call, "step.factor_view", reterr);
    call_needs(&call, "model", model);
    call_needs(&call, "ret_view", ret_view);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) {
        call.status = step_factor_view(model, &tensor, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_view = tensor;
    }
    return call_end(&call);
}

static int32_t entry_end(hsdp_model *model, void *stream, uint64_t *ret_ticket,
                         struct hsdp_error *reterr)
{
    struct call call;
    uint64_t ticket = 0;

    call_begin(&call, "step.end", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = step_end(model, stream, &ticket, &call.err);
    }
    call_gives_ticket(&call, ticket, ret_ticket);
    return call_end(&call);
}

static int32_t entry_discard(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "step.discard", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = step_discard(model, stream, &call.err);
    }
    return call_end(&call);
}

const struct hsdp_step_ops export_step = {
    .struct_size = sizeof(struct hsdp_step_ops),
    .begin = entry_begin,
    .result = entry_result,
    .factor_view = entry_factor_view,
    .end = entry_end,
    .discard = entry_discard,
};
