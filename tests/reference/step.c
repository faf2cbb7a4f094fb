/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: division, norm, clipping, and publishing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "intake.h"
#include "model.h"

static const struct intake spec_intake = {"spec", 56, sizeof(struct hsdp_step_spec)};
static const struct intake info_intake = {"ret_result", 56, sizeof(struct hsdp_step_info)};

/* -------------------------------------------------------------------------------------- checks */

static bool is_count(double value)
{
    return value >= 0.0 && isfinite(value);
}

static int32_t spec_check(const struct call *call, const struct hsdp_step_spec *spec)
{
    double p = spec->norm_p;

    if (!is_count(spec->max_norm) || !is_count(spec->gradient_scale) || !is_count(spec->weight)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: max_norm %g, gradient_scale %g, weight %g; finite numbers from 0 "
                           "are allowed",
                           call->name, spec->max_norm, spec->gradient_scale, spec->weight);
    }
    if (spec->has_weight > 1 || spec->error_if_nonfinite > 1) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: has_weight %" PRIu32 ", error_if_nonfinite %" PRIu32
                           "; 0 and 1 are allowed",
                           call->name, spec->has_weight, spec->error_if_nonfinite);
    }
    if (spec->has_weight == 0 && spec->weight != 0.0) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: weight is %g, but has_weight is 0, so it would not count",
                           call->name, spec->weight);
    }
    if (!(p == 0.0 || (p >= 1.0 && (p <= 8.0 || isinf(p))))) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: norm_p %g; 0 (2), 1 to 8 and infinity are allowed", call->name, p);
    }
    return stream_check(call, spec->stream);
}

static int32_t weight_check(const struct call *call, const hsdp_model *model,
                            const struct hsdp_step_spec *spec)
{
    for (uint32_t c = 0; c < model->n_classes && spec->has_weight != 0; c++) {
        const char *op = "", *source;

        reference_plan.class_setting(model->plan, c, "gradient_op", &op, &source, NULL);
        if (strcmp(op, "mean") == 0) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "%s: a weight is for gradient_op = sum; class %" PRIu32 " has mean",
                               call->name, c);
        }
    }
    return HSDP_OK;
}

static int32_t begin_check(const struct call *call, const hsdp_model *model,
                           const struct hsdp_step_spec *theirs, struct hsdp_step_spec *ret)
{
    int32_t status = intake_take(call, &spec_intake, theirs, ret);

    if (status == HSDP_OK) {
        status = spec_check(call, ret);
    }
    if (status == HSDP_OK) {
        status = weight_check(call, model, ret);
    }
    if (status == HSDP_OK && (model->step.is_open || model->is_editing)) {
        status = error_raise(call, HSDP_ERR_STATE, "%s: %s is open; %s was expected", call->name,
                             model->step.is_open ? "a step" : "an edit",
                             model->step.is_open ? "step.end" : "model.edit_end");
    }
    if (status == HSDP_OK) {
        status = units_rest_check(call, model);
    }
    return status == HSDP_OK ? window_check(call, model) : status;
}

/* ------------------------------------------------------------------------------------- division */

static void unit_divide(const hsdp_model *model, uint32_t unit)
{
    const struct unit *u = &model->units[unit];
    const struct hsdp_segment *segment;
    struct walk walk;

    walk_begin(model, unit, HSDP_SHARD_STEP, model->job->launch.rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        uint64_t at = segment_packed(model, segment);
        float *grad = u->buffers[segment->buffer].step_grad;

        for (uint64_t i = 0; !model->params[segment->param].is_frozen && i < segment->n_elems;
             i++) {
            grad[segment->shard_offset_elems + i] = (float)(u->sum[at + i] / u->divisor);
        }
    }
}

/* ----------------------------------------------------------------------------------------- norm */

/*
 * Powers of other p than 1 and 2 leave the range of a double at both ends. So numbers from 1 on are
 * scaled down before, those below up, and each kind has a sum of its own: a power depends on its
 * number alone, and the bits of the norm on no cut.
 */
#define SCALE_BITS 64

static void part_add(struct step_part *part, double value, double p)
{
    double size = fabs(value);

    part->n_inf += isinf(value) ? 1 : 0;
    part->n_nan += isnan(value) ? 1 : 0;
    if (!isfinite(value)) {
        return;
    }
    part->largest = size > part->largest ? size : part->largest;
    if (p == 2.0) {
        exact_add(&part->sums[0], size * size); /* of a float: nothing is lost */
    } else if (p == 1.0) {
        exact_add(&part->sums[0], size);
    } else if (!isinf(p) && size > 0.0) {
        int is_large = size >= 1.0;

        exact_add(&part->sums[is_large], pow(ldexp(size, is_large ? -SCALE_BITS : SCALE_BITS), p));
    }
}

/* Looks at what this rank counts: its shards, where it is the one of the replicas that saves them,
 * and not what another stage counts. */
static void unit_measure(const hsdp_model *model, uint32_t unit, struct step_part *part, double p)
{
    const struct unit *u = &model->units[unit];
    uint32_t rank = model->job->launch.rank, writer = rank;
    const struct hsdp_segment *segment;
    struct walk walk;

    reference_plan.writer(model->plan, unit, HSDP_SHARD_STEP, rank, &writer, NULL);
    walk_begin(model, unit, HSDP_SHARD_STEP, rank, &walk);
    while ((segment = walk_next(&walk)) != NULL && writer == rank) {
        const struct param *param = &model->params[segment->param];
        const float *grad = u->buffers[segment->buffer].step_grad;

        for (uint64_t i = 0; i < segment->n_elems && !param->is_frozen &&
                             (param->info.flags & HSDP_PARAM_COPY) == 0;
             i++) {
            part_add(part, (double)grad[segment->shard_offset_elems + i], p);
        }
    }
}

static void exact_join(struct exact *exact, const struct exact *other)
{
    for (uint64_t i = 0; i < other->n; i++) {
        exact_add(exact, other->parts[i]);
    }
}

static void part_join(struct step_part *part, const struct step_part *other)
{
    part->n_inf += other->n_inf;
    part->n_nan += other->n_nan;
    part->largest = other->largest > part->largest ? other->largest : part->largest;
    part->weight += other->weight;
    exact_join(&part->sums[0], &other->sums[0]);
    exact_join(&part->sums[1], &other->sums[1]);
}

static double part_norm(const struct step_part *all, double p)
{
    double small = exact_sum(&all->sums[0]), large = exact_sum(&all->sums[1]);

    if (all->n_inf + all->n_nan > 0) {
        return all->n_nan > 0 ? (double)NAN : (double)INFINITY;
    }
    if (isinf(p)) {
        return all->largest;
    }
    if (p == 1.0 || p == 2.0) {
        return p == 1.0 ? small : sqrt(small);
    }
    if (large > 0.0) {
        return ldexp(pow(large + small * pow(2.0, -2.0 * SCALE_BITS * p), 1.0 / p), SCALE_BITS);
    }
    return ldexp(pow(small, 1.0 / p), -SCALE_BITS);
}

static bool step_verifies(const hsdp_model *model)
{
    return model->verifies_steps != 0 && (model->n_steps + 1) % model->verifies_steps == 0;
}

static double step_scale(const struct step *step)
{
    return step->spec.gradient_scale != 0.0 ? step->spec.gradient_scale : 1.0;
}

/* What all ranks have found makes the same result on each. */
static void step_summed(void *context, struct packet *answer)
{
    hsdp_model *model = context;
    struct step *step = &model->step;
    uint32_t n = model->job->launch.world_ranks;
    struct hsdp_mesh_info mesh = HSDP_MESH_INFO_INIT;
    struct step_part all = {0};
    double scale = step_scale(step), weight, divisor;

    reference_mesh.info(model->mesh, &mesh, NULL);
    step->has_drifted = step_verifies(model) && drift_find(model, *answer, &step->drift);
    for (uint32_t r = 0; r < n; r++) {
        struct packet part = packet_get_part(answer);
        size_t n_bytes;

        part_join(&all, packet_get_blob(&part, &n_bytes));
    }
    weight = all.weight / (n / mesh.n_data_ranks); /* peers in other dimensions have equal ones */
    divisor = step->spec.has_weight != 0 ? weight : 1.0;
    step->info.norm =
        divisor != 0.0 ? part_norm(&all, step->norm_p) * scale / divisor : (double)NAN;
    step->info.is_nonfinite =
        all.n_inf + all.n_nan > 0 || !isfinite(step->info.norm) || !isfinite(weight);
    step->info.clip = 1.0;
    if (step->spec.max_norm > 0.0 && step->info.is_nonfinite == 0 &&
        step->spec.max_norm / (step->info.norm + 1e-6) < 1.0) {
        step->info.clip = step->spec.max_norm / (step->info.norm + 1e-6);
    }
    step->info.factor = scale / divisor * step->info.clip;
    step->info.weight = step->spec.has_weight != 0 ? weight : 0.0;
    step->info.step = model->n_steps + 1;
    model->factors[0] = (float)step->info.norm;
    model->factors[1] = (float)step->info.factor;
    step->is_known = true;
}

/* ---------------------------------------------------------------------------------------- begin */

static int32_t step_ask(const struct call *call, hsdp_model *model, const struct step_part *part,
                        uint64_t *ticket)
{
    const struct hsdp_step_spec *spec = &model->step.spec;
    struct meeting_text text;
    struct packet payload = {0};
    struct request request;
    char alike[1024];
    int32_t status;

    snprintf(alike, sizeof(alike),
             "step.begin of model %" PRIu64
             "\nmax_norm=%.17g\nnorm_p=%.17g\ngradient_scale=%.17g\nhas_weight=%" PRIu32
             "\nerror_if_nonfinite=%" PRIu32,
             model->number, spec->max_norm, model->step.norm_p, step_scale(&model->step),
             spec->has_weight, spec->error_if_nonfinite);
    request_of_job(call, model->job, &text, &request);
    packet_put_blob(&payload, part, sizeof(*part));
    if (payload.is_bad || (step_verifies(model) && !drift_write(model, &payload))) {
        packet_free(&payload);
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    request.alike = alike;
    request.payload = payload.bytes;
    request.payload_bytes = payload.n_bytes;
    status = job_request(call, model->job, &request, (struct follow_up){step_summed, model, model},
                         ticket);
    packet_free(&payload);
    return status;
}

/* What hsdp.adamw has updated with in the last step, compared by those that share units. */
static int32_t updates_compare(const struct call *call, hsdp_model *model)
{
    const struct call adamw = {"adamw.step", call->reterr};
    struct meeting_text text;
    struct request request;
    uint64_t ticket = 0;

    request_of_model(&adamw, model, &text, &request);
    request.alike = model->adamw_text != NULL ? model->adamw_text : "";
    return job_request(&adamw, model->job, &request, (struct follow_up){NULL, NULL, model},
                       &ticket);
}

static int32_t step_open(const struct call *call, hsdp_model *model,
                         const struct hsdp_step_spec *spec)
{
    struct step_part part = {.weight = spec->weight};
    int32_t status = job_wait_all(call, model->job, model);
    uint64_t ticket = 0;

    if (status == HSDP_OK) {
        status = ties_reduce(call, model);
    }
    if (status == HSDP_OK) {
        status = uses_compare(call, model);
    }
    if (status == HSDP_OK) {
        status = updates_compare(call, model);
    }
    if (status != HSDP_OK) {
        return status;
    }
    model->step = (struct step){.is_open = true, .spec = *spec};
    model->step.norm_p = spec->norm_p != 0.0 ? spec->norm_p : 2.0;
    for (uint32_t u = 0; u < model->n_units; u++) {
        unit_divide(model, u);
        unit_measure(model, u, &part, model->step.norm_p);
    }
    status = step_ask(call, model, &part, &ticket);
    model->step.ticket = ticket;
    return status;
}

static int32_t table_begin(hsdp_model *model, const struct hsdp_step_spec *theirs,
                           uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    const struct call call = {"step.begin", reterr};
    int32_t status = model_enter(&call, model);
    struct hsdp_step_spec spec;

    if (status != HSDP_OK) {
        return status;
    }
    status = begin_check(&call, model, theirs, &spec);
    if (status == HSDP_OK) {
        status = step_open(&call, model, &spec);
    }
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = model->step.ticket;
    }
    return job_leave(model->job, status);
}

/* --------------------------------------------------------------------------------------- result */

static int32_t step_enter(const struct call *call, hsdp_model *model)
{
    int32_t status = model_enter(call, model);

    if (status == HSDP_OK && !model->step.is_open) {
        return job_leave(model->job,
                         error_raise(call, HSDP_ERR_STATE,
                                     "%s: no step is open; step.begin was expected", call->name));
    }
    return status;
}

int32_t step_await(const struct call *call, hsdp_model *model)
{
    int32_t status =
        model->step.is_known ? HSDP_OK : job_wait(call, model->job, model->step.ticket, UINT64_MAX);

    if (status == HSDP_OK && model->step.has_drifted) {
        return error_pass(call, &model->step.drift);
    }
    if (status == HSDP_OK && model->step.spec.error_if_nonfinite != 0 &&
        model->step.info.is_nonfinite != 0) {
        status = error_raise(call, HSDP_ERR_NONFINITE,
                             "%s: the norm of step %" PRIu64
                             " is %g, the sum of the weights is %g; step.discard was expected",
                             call->name, model->step.info.step, model->step.info.norm,
                             model->step.info.weight);
    }
    return status;
}

static int32_t table_result(hsdp_model *model, struct hsdp_step_info *ret_result,
                            struct hsdp_error *reterr)
{
    const struct call call = {"step.result", reterr};
    int32_t status = step_enter(&call, model);

    if (status != HSDP_OK) {
        return status;
    }
    status = intake_check(&call, &info_intake, ret_result);
    if (status == HSDP_OK) {
        status = step_await(&call, model);
    }
    if (status == HSDP_OK) {
        intake_give(&info_intake, &model->step.info, ret_result);
    }
    return job_leave(model->job, status);
}

static int32_t table_factor_view(hsdp_model *model, struct hsdp_tensor *ret_view,
                                 struct hsdp_error *reterr)
{
    const struct call call = {"step.factor_view", reterr};
    int32_t status = model_enter(&call, model);

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "ret_view", ret_view)) {
        return job_leave(model->job, HSDP_ERR_INVALID);
    }
    *ret_view = (struct hsdp_tensor){.base = model->factors, .device_type = HSDP_DEVICE_CPU};
    ret_view->n_dims = 1;
    ret_view->dtype_code = HSDP_DTYPE_FLOAT;
    ret_view->dtype_bits = 32;
    ret_view->dtype_lanes = 1;
    ret_view->shape = model->factors_shape;
    ret_view->strides = model->flat_strides;
    return job_leave(model->job, HSDP_OK);
}

/* ------------------------------------------------------------------------------------------ end */

/* All ranks close the step in the same way, which nobody waits for here. */
static int32_t step_close(const struct call *call, hsdp_model *model, bool is_published,
                          uint64_t *ticket)
{
    struct meeting_text text;
    struct request request;
    int32_t status;

    request_of_job(call, model->job, &text, &request);
    status = job_request(call, model->job, &request, (struct follow_up){NULL, NULL, model}, ticket);
    if (status == HSDP_OK && is_published) {
        status = model_publish(call, model, ticket);
    }
    if (status == HSDP_OK) {
        window_clear(model);
        model->step.is_open = false;
        model->n_steps++;
        model->job->counts[COUNT_STEPS]++;
    }
    return status;
}

static int32_t end_check(const struct call *call, hsdp_model *model, const void *stream)
{
    int32_t status = stream_check(call, stream);

    if (status == HSDP_OK) {
        status = step_await(call, model);
    }
    if (status == HSDP_ERR_NONFINITE) {
        status = error_raise(call, HSDP_ERR_STATE,
                             "%s: the norm is not finite, and the step has error_if_nonfinite; "
                             "step.discard was expected",
                             call->name);
    }
    return status;
}

static int32_t table_end(hsdp_model *model, void *stream, uint64_t *ret_ticket,
                         struct hsdp_error *reterr)
{
    const struct call call = {"step.end", reterr};
    int32_t status = step_enter(&call, model);
    uint64_t ticket = 0;

    if (status != HSDP_OK) {
        return status;
    }
    status = end_check(&call, model, stream);
    if (status == HSDP_OK) {
        status = step_close(&call, model, true, &ticket);
    }
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
    return job_leave(model->job, status);
}

static int32_t table_discard(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    const struct call call = {"step.discard", reterr};
    int32_t status = step_enter(&call, model);
    uint64_t ticket = 0;

    if (status != HSDP_OK) {
        return status;
    }
    status = stream_check(&call, stream);
    if (status == HSDP_OK && model->step.has_updated) {
        status = error_raise(&call, HSDP_ERR_STATE,
                             "step.discard: hsdp.adamw has updated the parameters; step.end was "
                             "expected");
    }
    if (status == HSDP_OK) {
        status = step_close(&call, model, false, &ticket);
    }
    return job_leave(model->job, status);
}

const struct hsdp_step_ops reference_step = {
    .struct_size = sizeof(struct hsdp_step_ops),
    .begin = table_begin,
    .result = table_result,
    .factor_view = table_factor_view,
    .end = table_end,
    .discard = table_discard,
};
