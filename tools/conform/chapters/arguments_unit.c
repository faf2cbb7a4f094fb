/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: functions on units. */

#include "arguments.h"

static const uint32_t both_units[] = {1, 0};

static uint64_t pass_open(struct arguments *arguments, uint64_t n_units)
{
    uint64_t pass = 0;

    arguments_accept(arguments,
                     arguments->api->unit->backward_begin(arguments->model, both_units, n_units,
                                                          HSDP_SCOPE_FULL, &pass, arguments->err));
    return pass;
}

void unit_nulls(struct conform *conform)
{
    const struct hsdp_unit_ops *ops = conform->api->unit;
    struct arguments a;
    struct outputs *out = &a.out;
    struct arguments_tensor gradient;

    arguments_open(&a, conform);
    arguments_tensor_init(&gradient);
    arguments_refuse(&a, ops->unshard(NULL, 0, HSDP_USE_FORWARD, NULL, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->release(NULL, 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->grad_add(NULL, 0, &gradient.tensor, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->grad_add(a.model, 0, NULL, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a,
                     ops->backward_begin(NULL, both_units, 1, HSDP_SCOPE_FULL, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->backward_begin(a.model, NULL, 1, HSDP_SCOPE_FULL, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->backward_begin(a.model, both_units, 1, HSDP_SCOPE_FULL, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->reduce(NULL, 1, 0, NULL, out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->skip(NULL, 1, 0, NULL, out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->backward_end(NULL, 1, NULL, out->longs, a.err), HSDP_ERR_INVALID);
    arguments_close(&a);
}

static void gradients_refuse(struct arguments *arguments)
{
    const struct hsdp_unit_ops *ops = arguments->api->unit;
    struct arguments *a = arguments;
    struct arguments_tensor gradient;

    arguments_tensor_init(&gradient);
    arguments_refuse(a, ops->grad_add(a->model, 3, device_tensor(&gradient.tensor), NULL, a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse_as(a, "unit.grad_add to a frozen parameter",
                        ops->grad_add(a->model, 1, device_tensor(&gradient.tensor), NULL, a->err),
                        HSDP_ERR_INVALID);
    arguments_refuse_stream(a, "unit.grad_add on a stream of a CPU",
                            ops->grad_add(a->model, 0, &gradient.tensor, a, a->err));
    gradient.shape[1] = 2;
    arguments_refuse_as(a, "unit.grad_add of another shape",
                        ops->grad_add(a->model, 0, device_tensor(&gradient.tensor), NULL, a->err),
                        HSDP_ERR_INVALID);
    arguments_tensor_init(&gradient);
    gradient.tensor.dtype_bits = 64;
    arguments_refuse_as(a, "unit.grad_add of fp64",
                        ops->grad_add(a->model, 0, device_tensor(&gradient.tensor), NULL, a->err),
                        ARGUMENTS_ANY_REFUSAL);
    arguments_tensor_init(&gradient);
    arguments_accept(a, ops->grad_add(a->model, 0, device_tensor(&gradient.tensor), NULL, a->err));
    device_land();
}

void unit_indices(struct conform *conform)
{
    static const uint32_t twice[] = {0, 0};
    static const uint32_t unknown[] = {0, 2};
    const struct hsdp_unit_ops *ops = conform->api->unit;
    struct arguments a;
    uint64_t *longs = a.out.longs;

    arguments_open(&a, conform);
    arguments_refuse(&a, ops->unshard(a.model, 2, HSDP_USE_FORWARD, NULL, longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->unshard(a.model, 0, 3, NULL, longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->unshard(a.model, 0, -1, NULL, longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse_stream(&a, "unit.unshard for a stream of a CPU",
                            ops->unshard(a.model, 0, HSDP_USE_FORWARD, &a, longs, a.err));
    arguments_refuse(&a, ops->release(a.model, 2, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->backward_begin(a.model, twice, 2, HSDP_SCOPE_FULL, longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->backward_begin(a.model, unknown, 2, HSDP_SCOPE_FULL, longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->backward_begin(a.model, both_units, 2, 3, longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->backward_begin(a.model, both_units, 2, -1, longs, a.err),
                     HSDP_ERR_INVALID);
    gradients_refuse(&a);
    arguments_close(&a);
}

void unit_moments(struct conform *conform)
{
    const struct hsdp_unit_ops *ops = conform->api->unit;
    struct arguments_tensor gradient;
    struct arguments a;
    uint64_t *longs = a.out.longs;

    arguments_open(&a, conform);
    arguments_tensor_init(&gradient);
    arguments_refuse_as(&a, "unit.release without a use", ops->release(a.model, 0, NULL, a.err),
                        HSDP_ERR_STATE);
    arguments_refuse_as(&a, "unit.unshard for backward without a pass",
                        ops->unshard(a.model, 0, HSDP_USE_BACKWARD, NULL, longs, a.err),
                        HSDP_ERR_STATE);
    arguments_refuse_as(&a, "unit.unshard for backward (set) without a pass",
                        ops->unshard(a.model, 0, HSDP_USE_BACKWARD_SET, NULL, longs, a.err),
                        HSDP_ERR_STATE);
    arguments_accept(&a, ops->unshard(a.model, 0, HSDP_USE_FORWARD, NULL, NULL, a.err));
    arguments_accept(&a, ops->unshard(a.model, 0, HSDP_USE_FORWARD, NULL, NULL, a.err));
    arguments_accept(&a, ops->release(a.model, 0, NULL, a.err));
    arguments_accept(&a, ops->release(a.model, 0, NULL, a.err));
    arguments_refuse_as(&a, "unit.release, once more than unit.unshard",
                        ops->release(a.model, 0, NULL, a.err), HSDP_ERR_STATE);
    arguments_step(&a);
    arguments_refuse_as(&a, "unit.unshard in a step",
                        ops->unshard(a.model, 0, HSDP_USE_FORWARD, NULL, longs, a.err),
                        HSDP_ERR_STATE);
    arguments_refuse_as(&a, "unit.backward_begin in a step",
                        ops->backward_begin(a.model, both_units, 2, HSDP_SCOPE_FULL, longs, a.err),
                        HSDP_ERR_STATE);
    arguments_refuse_as(&a, "unit.grad_add in a step",
                        ops->grad_add(a.model, 0, &gradient.tensor, NULL, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, a.api->step->discard(a.model, NULL, a.err));
    arguments_accept(&a, a.api->model->edit_begin(a.model, NULL, a.err));
    arguments_refuse_as(&a, "unit.unshard in an edit",
                        ops->unshard(a.model, 0, HSDP_USE_FORWARD, NULL, longs, a.err),
                        HSDP_ERR_STATE);
    arguments_accept(&a, a.api->model->edit_end(a.model, NULL, a.err));
    arguments_close(&a);
}

/* What a pass refuses while it is open: unit 1 is in it, and comes first; unit 0 is not. */
static void pass_refuse(struct arguments *arguments, uint64_t pass)
{
    const struct hsdp_unit_ops *ops = arguments->api->unit;
    struct arguments *a = arguments;
    uint64_t *longs = a->out.longs;

    arguments_refuse_as(
        a, "unit.backward_begin with a unit of an open pass",
        ops->backward_begin(a->model, both_units, 2, HSDP_SCOPE_FULL, longs, a->err),
        HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.reduce without a gradient buffer",
                        ops->reduce(a->model, pass, 1, NULL, longs, a->err), HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.reduce of a unit that is not in the pass",
                        ops->reduce(a->model, pass, 0, NULL, longs, a->err), HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.skip of a unit that is not in the pass",
                        ops->skip(a->model, pass, 0, NULL, longs, a->err), HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.unshard for backward of a unit that is not in the pass",
                        ops->unshard(a->model, 0, HSDP_USE_BACKWARD, NULL, longs, a->err),
                        HSDP_ERR_STATE);
    arguments_accept(a, ops->unshard(a->model, 1, HSDP_USE_BACKWARD, NULL, NULL, a->err));
    arguments_refuse_as(a, "unit.unshard for backward, twice in a pass",
                        ops->unshard(a->model, 1, HSDP_USE_BACKWARD, NULL, longs, a->err),
                        HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.skip of a unit that has its gradient buffer",
                        ops->skip(a->model, pass, 1, NULL, longs, a->err), HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.release with a gradient that was not handed over",
                        ops->release(a->model, 1, NULL, a->err), HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.backward_end with a gradient that was not handed over",
                        ops->backward_end(a->model, pass, NULL, longs, a->err), HSDP_ERR_STATE);
    arguments_accept(a, ops->reduce(a->model, pass, 1, NULL, NULL, a->err));
    arguments_refuse_as(a, "unit.reduce of a unit that was handed over",
                        ops->reduce(a->model, pass, 1, NULL, longs, a->err), HSDP_ERR_STATE);
    arguments_refuse_as(a, "unit.skip of a unit that was handed over",
                        ops->skip(a->model, pass, 1, NULL, longs, a->err), HSDP_ERR_STATE);
    arguments_accept(a, ops->release(a->model, 1, NULL, a->err));
}

void unit_passes(struct conform *conform)
{
    const struct hsdp_unit_ops *ops = conform->api->unit;
    struct arguments a;
    struct hsdp_step_spec step = HSDP_STEP_SPEC_INIT;
    uint64_t *longs = a.out.longs;
    uint64_t pass;

    arguments_open(&a, conform);
    arguments_refuse_as(&a, "unit.backward_end of a pass that never was",
                        ops->backward_end(a.model, 77, NULL, longs, a.err), ARGUMENTS_ANY_REFUSAL);
    arguments_refuse_as(&a, "unit.reduce in a pass that never was",
                        ops->reduce(a.model, 77, 1, NULL, longs, a.err), ARGUMENTS_ANY_REFUSAL);
    pass = pass_open(&a, 1);
    pass_refuse(&a, pass);
    arguments_refuse_as(&a, "step.begin with a pass open",
                        a.api->step->begin(a.model, &step, longs, a.err), HSDP_ERR_STATE);
    arguments_refuse_as(&a, "model.edit_begin with a pass open",
                        a.api->model->edit_begin(a.model, NULL, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, ops->backward_end(a.model, pass, NULL, NULL, a.err));
    arguments_refuse_as(&a, "unit.backward_end of a pass that has ended",
                        ops->backward_end(a.model, pass, NULL, longs, a.err),
                        ARGUMENTS_ANY_REFUSAL);
    arguments_refuse_as(&a, "unit.skip in a pass that has ended",
                        ops->skip(a.model, pass, 1, NULL, longs, a.err), ARGUMENTS_ANY_REFUSAL);
    arguments_step(&a);
    arguments_accept(&a, a.api->step->end(a.model, NULL, NULL, a.err));
    arguments_close(&a);
}
