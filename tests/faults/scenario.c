/* SPDX-License-Identifier: Apache-2.0 */
/* The scenario: what a training host does, from connect to close, with values that are checked. */
#include "faults/scenario.h"

#include <stdio.h>
#include <string.h>

#define RATE     0.25f
#define N_SUMMED 64

/* ------------------------------------------------------------------------- what is right */

static bool unit_is_expert(const struct host *host, uint32_t unit)
{
    return unit >= host->trial->n_dense;
}

static uint32_t units_count(const struct host *host)
{
    return host->trial->n_dense + host->trial->n_experts;
}

/* Whether two ranks' gradients of a unit are summed. */
static bool ranks_share(const struct host *host, uint32_t unit, uint32_t a, uint32_t b)
{
    return !unit_is_expert(host, unit) || a % host->trial->ep == b % host->trial->ep;
}

static float gradient_of(uint32_t unit, uint32_t step, uint32_t rank)
{
    return (float)((rank + 1) * (unit + 1) * (step + 1));
}

/* All of a unit's elements, once n_steps have ended; exact in fp32. */
static float weight_of(const struct host *host, uint32_t unit, uint32_t n_steps)
{
    float weight = (float)(unit + 1);

    for (uint32_t step = 0; step < n_steps; step++) {
        for (uint32_t rank = 0; rank < host->trial->n_ranks; rank++) {
            if (ranks_share(host, unit, rank, host->rank)) {
                weight -= RATE * gradient_of(unit, step, rank);
            }
        }
    }
    return weight;
}

static float *floats(const struct hsdp_tensor *view)
{
    return (float *)((char *)view->base + view->byte_offset);
}

static void unit_shape(const struct host *host, uint32_t unit, int64_t *ret_shape)
{
    ret_shape[0] = 5 + unit + (unit == 0 && fault_is_wrong(host, WRONG_SHAPE));
    ret_shape[1] = 3;
}

static void number_check(struct host *host, const char *what, uint32_t unit, float found,
                         float expected)
{
    if (found != expected && host->own->wrong_number[0] == '\0') {
        snprintf(host->own->wrong_number, sizeof(host->own->wrong_number),
                 "%s of unit %u is %.9g, not %.9g", what, unit, (double)found, (double)expected);
    }
}

/* ------------------------------------------------------------------------- plan and model */

static bool class_make(struct host *host, bool is_expert)
{
    const struct trial *t = host->trial;
    uint32_t row = is_expert ? t->expert_strategy : t->dense_strategy;
    const char *keys[] = {"sharding_strategy"};
    const char *values[1];
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    uint32_t index;

    row += !is_expert && fault_is_wrong(host, WRONG_STRATEGY);
    values[0] = scenario_strategies[row % 7];
    spec.name = is_expert ? "expert" : "dense";
    spec.replicated_over = is_expert ? "dp" : NULL;
    spec.settings = (struct hsdp_settings){keys, values, 1};
    return call_of(host, CALL_MODEL, "plan.add_class",
                   host->api->plan->add_class(host->plan, &spec, &index, &host->err));
}

static bool unit_make(struct host *host, uint32_t unit)
{
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    int64_t shape[2];
    char name[16];
    uint32_t index;

    snprintf(name, sizeof(name), "unit%u", unit);
    unit_shape(host, unit, shape);
    param.name = name;
    param.shape = shape;
    param.n_dims = 2;
    return call_of(host, CALL_MODEL, "plan.add_unit",
                   host->api->plan->add_unit(host->plan, name, unit_is_expert(host, unit),
                                             &param.unit, &host->err)) &&
           call_of(host, CALL_MODEL, "plan.add_param",
                   host->api->plan->add_param(host->plan, &param, &index, &host->err));
}

static bool plan_make(struct host *host)
{
    const char *keys[] = {"gradient_op"};
    const char *values[] = {"sum"};
    struct hsdp_settings settings = {keys, values, 1};
    bool is_good =
        call_of(host, CALL_MODEL, "plan.create",
                host->api->plan->create(host->mesh, &settings, &host->plan, &host->err)) &&
        class_make(host, false) && (host->trial->n_experts == 0 || class_make(host, true));

    for (uint32_t unit = 0; is_good && unit < units_count(host); unit++) {
        is_good = unit_make(host, unit);
    }
    return is_good && call_of(host, CALL_MODEL, "plan.finish",
                              host->api->plan->finish(host->plan, &host->err));
}

static struct hsdp_tensor tensor_of(float *values, int64_t *shape, int32_t n_dims)
{
    struct hsdp_tensor tensor = {.base = values, .device_type = HSDP_DEVICE_CPU};

    tensor.n_dims = n_dims;
    tensor.dtype_code = HSDP_DTYPE_FLOAT;
    tensor.dtype_bits = 32;
    tensor.dtype_lanes = 1;
    tensor.shape = shape;
    return tensor;
}

static bool model_fill(struct host *host)
{
    float values[64];
    int64_t shape[2];
    bool is_good = call_of(host, CALL_MODEL, "model.edit_begin",
                           host->api->model->edit_begin(host->model, NULL, &host->err));

    for (uint32_t unit = 0; is_good && unit < units_count(host); unit++) {
        struct hsdp_tensor full = tensor_of(values, shape, 2);

        unit_shape(host, unit, shape);
        for (int64_t e = 0; e < shape[0] * shape[1]; e++) {
            values[e] = weight_of(host, unit, 0);
        }
        is_good = call_of(host, CALL_MODEL, "model.import_param",
                          host->api->model->import_param(host->model, unit, HSDP_FLAT_MASTER, &full,
                                                         HSDP_ALL_RANKS, NULL, &host->err));
    }
    return is_good && call_of(host, CALL_MODEL, "model.edit_end",
                              host->api->model->edit_end(host->model, NULL, &host->err));
}

bool scenario_model(struct host *host)
{
    if (fault_is_wrong(host, WRONG_SHAPE) || fault_is_wrong(host, WRONG_STRATEGY)) {
        host_note_fault(host);
    }
    if (!plan_make(host)) {
        return false;
    }
    host->wanted = host->trial->n_nodes > 1 ? HSDP_ERR_UNSUPPORTED : HSDP_OK;
    return call_of(host, CALL_MODEL, "model.create",
                   host->api->model->create(host->job_now, host->plan, &host->model, &host->err));
}

/* ------------------------------------------------------------------------- microbatches */

static bool unit_use(struct host *host, uint32_t unit, uint32_t n_steps)
{
    struct hsdp_tensor view;
    int64_t shape[2];

    if (!call_of(host, CALL_UNSHARD, "unit.unshard",
                 host->api->unit->unshard(host->model, unit, HSDP_USE_FORWARD, NULL, NULL,
                                          &host->err)) ||
        !call_of(
            host, CALL_UNSHARD, "model.param_view",
            host->api->model->param_view(host->model, unit, HSDP_VIEW_PARAM, &view, &host->err))) {
        return false;
    }
    unit_shape(host, unit, shape);
    for (int64_t e = 0; e < shape[0] * shape[1]; e++) {
        number_check(host, "the weight", unit, floats(&view)[e], weight_of(host, unit, n_steps));
    }
    return call_of(host, CALL_UNSHARD, "unit.release",
                   host->api->unit->release(host->model, unit, NULL, &host->err));
}

static bool forward_run(struct host *host, uint32_t n_steps)
{
    bool is_good = true;

    if (fault_is_wrong(host, WRONG_ARGUMENT) && n_steps == 0) {
        host_note_fault(host);
        host->is_local = true;
        is_good = call_of(
            host, CALL_UNSHARD, "unit.unshard",
            host->api->unit->unshard(host->model, 99, HSDP_USE_FORWARD, NULL, NULL, &host->err));
    }
    for (uint32_t unit = 0; is_good && unit < units_count(host); unit++) {
        is_good = unit_use(host, unit, n_steps);
    }
    return is_good;
}

static bool gradient_give(struct host *host, uint64_t pass, uint32_t unit, uint32_t step)
{
    struct hsdp_tensor view;
    int64_t shape[2];

    if (!call_of(host, CALL_REDUCE, "unit.unshard",
                 host->api->unit->unshard(host->model, unit, HSDP_USE_BACKWARD_SET, NULL, NULL,
                                          &host->err)) ||
        !call_of(
            host, CALL_REDUCE, "model.param_view",
            host->api->model->param_view(host->model, unit, HSDP_VIEW_GRAD, &view, &host->err))) {
        return false;
    }
    unit_shape(host, unit, shape);
    for (int64_t e = 0; e < shape[0] * shape[1]; e++) {
        floats(&view)[e] = gradient_of(unit, step, host->rank);
    }
    return call_of(host, CALL_REDUCE, "unit.reduce",
                   host->api->unit->reduce(host->model, pass, unit, NULL, NULL, &host->err)) &&
           call_of(host, CALL_REDUCE, "unit.release",
                   host->api->unit->release(host->model, unit, NULL, &host->err));
}

static bool backward_run(struct host *host, uint32_t step)
{
    uint32_t units[TRIAL_MAX_UNITS];
    uint32_t n_units = units_count(host);
    uint64_t pass;
    bool is_good;

    for (uint32_t i = 0; i < n_units; i++) {
        units[i] = n_units - 1 - i;
    }
    if (fault_is_wrong(host, WRONG_ORDER) && step == 0) {
        host_note_fault(host);
        for (uint32_t i = 0; i < n_units; i++) {
            units[i] = i;
        }
    }
    is_good = call_of(host, CALL_REDUCE, "unit.backward_begin",
                      host->api->unit->backward_begin(host->model, units, n_units, HSDP_SCOPE_FULL,
                                                      &pass, &host->err));
    for (uint32_t i = 0; is_good && i < n_units; i++) {
        is_good = gradient_give(host, pass, units[i], step);
    }
    return is_good &&
           call_of(host, CALL_REDUCE, "unit.backward_end",
                   host->api->unit->backward_end(host->model, pass, NULL, NULL, &host->err));
}

/* ------------------------------------------------------------------------- steps */

static bool step_open(struct host *host, double max_norm)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    bool is_good;

    spec.max_norm = max_norm;
    is_good = call_of(host, CALL_STEP, "step.begin",
                      host->api->step->begin(host->model, &spec, NULL, &host->err));
    if (is_good && fault_is_wrong(host, WRONG_STATE) && !host->has_fired) {
        host->has_fired = true;
        host_note_fault(host);
        host->is_local = true;
        is_good = call_of(host, CALL_STEP, "step.begin",
                          host->api->step->begin(host->model, &spec, NULL, &host->err));
    }
    return is_good && call_of(host, CALL_STEP, "step.result",
                              host->api->step->result(host->model, &info, &host->err));
}

static bool unit_descend(struct host *host, uint32_t unit)
{
    struct hsdp_tensor master;
    struct hsdp_tensor gradient;

    if (!call_of(host, CALL_STEP, "model.flat_view",
                 host->api->model->flat_view(host->model, unit, 0, HSDP_FLAT_MASTER, &master,
                                             &host->err)) ||
        !call_of(host, CALL_STEP, "model.flat_view",
                 host->api->model->flat_view(host->model, unit, 0, HSDP_FLAT_GRAD, &gradient,
                                             &host->err))) {
        return false;
    }
    for (int64_t e = 0; e < master.shape[0]; e++) {
        floats(&master)[e] -= RATE * floats(&gradient)[e];
    }
    return true;
}

static bool step_end(struct host *host)
{
    return call_of(host, CALL_STEP, "step.end",
                   host->api->step->end(host->model, NULL, NULL, &host->err));
}

static bool step_run(struct host *host, uint32_t step)
{
    bool is_wrong = fault_is_wrong(host, WRONG_MAX_NORM) && step == 0;
    bool is_good;

    if (is_wrong) {
        host_note_fault(host);
    }
    is_good = step_open(host, is_wrong ? 5.0 : 0.0);
    if (is_good && fault_is_wrong(host, WRONG_DISCARD) && step == 0) {
        host_note_fault(host);
        return call_of(host, CALL_STEP, "step.discard",
                       host->api->step->discard(host->model, NULL, &host->err));
    }
    for (uint32_t unit = 0; is_good && unit < units_count(host); unit++) {
        is_good = unit_descend(host, unit);
    }
    return is_good && step_end(host);
}

/* ------------------------------------------------------------------------- beside training */

/* The sum over the group of every member's number. */
static float summed_of(const struct host *host)
{
    float sum = 0;

    for (uint32_t rank = 0; rank < host->trial->n_ranks; rank++) {
        if (host->job == 1 || rank % host->trial->ep == host->rank % host->trial->ep) {
            sum += (float)(rank + 1);
        }
    }
    return sum;
}

static void collective_spoil(struct host *host, struct hsdp_coll_spec *spec,
                             struct hsdp_tensor *tensor)
{
    if (host->job != 0 || host->trial->wrong > WRONG_COLLECTIVE || host->has_fired ||
        !fault_is_wrong(host, host->trial->wrong)) {
        return;
    }
    host->has_fired = true;
    host_note_fault(host);
    if (host->trial->wrong == WRONG_COUNT) {
        tensor->shape[0] = N_SUMMED / 2;
    } else if (host->trial->wrong == WRONG_DTYPE) {
        tensor->dtype_code = HSDP_DTYPE_INT;
    } else if (host->trial->wrong == WRONG_REDUCTION) {
        spec->reduce = HSDP_REDUCE_MAX;
    } else {
        spec->kind = HSDP_COLL_BARRIER;
        spec->input = NULL;
        spec->output = NULL;
    }
}

bool scenario_sum(struct host *host)
{
    float values[N_SUMMED];
    int64_t shape[1] = {N_SUMMED};
    struct hsdp_tensor tensor = tensor_of(values, shape, 1);
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t ticket = 0;

    if (host->job == 0 && fault_is_wrong(host, WRONG_MISSING) && !host->has_fired) {
        host->has_fired = true;
        host_note_fault(host);
        return true;
    }
    for (int i = 0; i < N_SUMMED; i++) {
        values[i] = (float)(host->rank + 1);
    }
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = &tensor;
    spec.output = &tensor;
    collective_spoil(host, &spec, &tensor);
    if (!call_of(host, CALL_COLLECTIVE, "group.start",
                 host->api->group->start(host->groups[host->job], &spec, sizeof(spec), 1, NULL,
                                         &ticket, &host->err)) ||
        !call_of(host, CALL_COLLECTIVE, "job.ticket_wait",
                 host->api->job->ticket_wait(host->job_now, ticket, UINT64_MAX, &host->err))) {
        return false;
    }
    for (int i = 0; i < N_SUMMED; i++) {
        number_check(host, "the sum", 0, values[i], summed_of(host));
    }
    return true;
}

bool scenario_set(struct host *host, uint32_t timeout_ms)
{
    uint32_t seconds = timeout_ms / 1000;
    char value[16];

    if (fault_is_wrong(host, WRONG_SETTING_SET)) {
        host_note_fault(host);
        seconds = 7;
    }
    snprintf(value, sizeof(value), "%u", seconds);
    if (!call_of(host, CALL_SETTING, "job.setting_set",
                 host->api->job->setting_set(host->job_now, "nccl_timeout_seconds", value,
                                             &host->err))) {
        return false;
    }
    host->timeout_ms = timeout_ms;
    return true;
}

static bool setting_change(struct host *host)
{
    return host->trial->set_ms == 0 || scenario_set(host, host->trial->set_ms);
}

bool scenario_phase_open(struct host *host)
{
    if (!host->trial->has_phase) {
        return true;
    }
    if (!call_of(
            host, CALL_SETTING, "job.phase_push",
            host->api->job->phase_push(host->job_now, "warming", SCENARIO_PHASE_MS, &host->err))) {
        return false;
    }
    host->timeout_ms = SCENARIO_PHASE_MS;
    return true;
}

bool scenario_phase_close(struct host *host)
{
    if (!host->trial->has_phase) {
        return true;
    }
    if (!call_of(host, CALL_SETTING, "job.phase_pop",
                 host->api->job->phase_pop(host->job_now, &host->err))) {
        return false;
    }
    host->timeout_ms = host->trial->timeout_ms;
    return true;
}

static bool param_export(struct host *host)
{
    uint32_t unit = fault_is_wrong(host, WRONG_EXPORT);
    float values[64];
    int64_t shape[2];
    struct hsdp_tensor full = tensor_of(values, shape, 2);

    if (!host->trial->has_export) {
        return true;
    }
    if (unit == 1) {
        host_note_fault(host);
    }
    unit_shape(host, unit, shape);
    if (!call_of(host, CALL_EXPORT, "model.export_param",
                 host->api->model->export_param(host->model, unit, HSDP_FLAT_MASTER, &full,
                                                HSDP_ALL_RANKS, NULL, &host->err))) {
        return false;
    }
    for (int64_t e = 0; e < shape[0] * shape[1]; e++) {
        number_check(host, "the exported weight", unit, values[e],
                     weight_of(host, unit, host->trial->n_steps));
    }
    return true;
}

bool scenario_train(struct host *host)
{
    bool is_good = scenario_phase_open(host) && scenario_model(host) && model_fill(host);

    if (is_good && fault_is_wrong(host, WRONG_EXTRA_STEP)) {
        host_note_fault(host);
        is_good = step_open(host, 0.0) && step_end(host);
    }
    for (uint32_t step = 0; is_good && step < host->trial->n_steps; step++) {
        is_good = forward_run(host, step) && backward_run(host, step) && step_run(host, step) &&
                  scenario_sum(host);
        if (is_good && step == 0) {
            is_good = scenario_phase_close(host) && setting_change(host);
        }
    }
    return is_good && param_export(host) && forward_run(host, host->trial->n_steps);
}
