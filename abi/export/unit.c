/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_unit_ops. */
#include "shard/unit.h"

#include "call.h"
#include "tables.h"

static int32_t entry_unshard(hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                             uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct call call;
    uint64_t ticket = 0;

    call_begin(&call, "unit.unshard", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = unit_unshard(model, unit, use, stream, &ticket, &call.err);
    }
    if (call_is_ok(&call) && ret_ticket == NULL) { /* see Tickets in hsdp/abi.h */
        call.status = job_ticket_order(call.job, ticket, stream, &call.err);
    }
    call_gives_ticket(&call, ticket, ret_ticket);
    return call_end(&call);
}

static int32_t entry_release(hsdp_model *model, uint32_t unit, void *stream,
                             struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "unit.release", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = unit_release(model, unit, stream, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_grad_add(hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad,
                              void *stream, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "unit.grad_add", reterr);
    call_needs(&call, "model", model);
    call_needs(&call, "grad", grad);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = unit_grad_add(model, param, grad, stream, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_backward_begin(hsdp_model *model, const uint32_t *units, uint64_t n_units,
                                    int32_t scope, uint64_t *ret_pass, struct hsdp_error *reterr)
{
    struct call call;
    uint64_t pass = 0;

    call_begin(&call, "unit.backward_begin", reterr);
    call_needs(&call, "model", model);
    call_needs_array(&call, "units", units, n_units);
    call_needs(&call, "ret_pass", ret_pass);
    call_enters_model(&call, model);
    if (call_is_ok(&call)) {
        call.status = unit_backward_begin(model, units, n_units, scope, &pass, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_pass = pass;
    }
    return call_end(&call);
}

static int32_t entry_reduce(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                            uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct call call;
    uint64_t ticket = 0;

    call_begin(&call, "unit.reduce", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = unit_reduce(model, pass, unit, stream, &ticket, &call.err);
    }
    call_gives_ticket(&call, ticket, ret_ticket);
    return call_end(&call);
}

static int32_t entry_skip(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                          uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct call call;
    uint64_t ticket = 0;

    call_begin(&call, "unit.skip", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = unit_skip(model, pass, unit, stream, &ticket, &call.err);
    }
    call_gives_ticket(&call, ticket, ret_ticket);
    return call_end(&call);
}

static int32_t entry_backward_end(hsdp_model *model, uint64_t pass, void *stream,
                                  uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct call call;
    uint64_t ticket = 0;

    call_begin(&call, "unit.backward_end", reterr);
    call_needs(&call, "model", model);
    call_enters_model(&call, model);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status =
            unit_backward_end(model, pass, stream, ret_ticket == NULL ? NULL : &ticket, &call.err);
    }
    call_gives_ticket(&call, ticket, ret_ticket);
    return call_end(&call);
}

const struct hsdp_unit_ops export_unit = {
    .struct_size = sizeof(struct hsdp_unit_ops),
    .unshard = entry_unshard,
    .release = entry_release,
    .grad_add = entry_grad_add,
    .backward_begin = entry_backward_begin,
    .reduce = entry_reduce,
    .skip = entry_skip,
    .backward_end = entry_backward_end,
};
