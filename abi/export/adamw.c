/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_adamw_ops. */
#include "shard/adamw.h"

#include "call.h"
#include "tables.h"

static int32_t entry_step(hsdp_model *model, const struct hsdp_adamw_spec *spec,
                          struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_adamw_spec own;

    call_begin(&call, "adamw.step", reterr);
    call_needs(&call, "model", model);
    call_takes(&call, "spec", &intake_adamw_spec, spec, &own);
    call_enters_model(&call, model);
    call_needs_stream(&call, call_is_ok(&call) ? own.stream : NULL);
    if (call_is_ok(&call)) {
        call.status = adamw_step(model, &own, &call.err);
    }
    return call_end(&call);
}

const struct hsdp_adamw_ops export_adamw = {
    .struct_size = sizeof(struct hsdp_adamw_ops),
    .step = entry_step,
};
