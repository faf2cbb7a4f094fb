/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: the collective, clipping, publishing. */
#include "shard/step.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "device/fpmode.h"
#include "device/space.h"
#include "shard/drift.h"
#include "shard/grads.h"
#include "shard/tensor.h"

/* ------------------------------------------------------------------------------- begin */

static double norm_power(const struct hsdp_step_spec *spec)
{
    return spec->norm_p == 0.0 ? 2.0 : spec->norm_p;
}

static bool is_count(double value, double max)
{
    return isfinite(value) && value >= 0.0 && value <= max;
}

static int32_t spec_check(const struct hsdp_step_spec *spec, struct hsdp_error *reterr)
{
    double p = spec->norm_p;

    if (!is_count(spec->max_norm, INFINITY)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "step.begin: max_norm %g is not a finite number from 0", spec->max_norm);
    }
    if (!is_count(spec->gradient_scale, INFINITY)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "step.begin: gradient_scale %g is not a finite number from 0",
                         spec->gradient_scale);
    }
    if (!is_count(spec->weight, INFINITY)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "step.begin: weight %g is not a finite number from 0", spec->weight);
    }
    if (spec->has_weight > 1 || spec->error_if_nonfinite > 1) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "step.begin: has_weight and error_if_nonfinite are 0 or 1, not %" PRIu32
                         " and %" PRIu32,
                         spec->has_weight, spec->error_if_nonfinite);
    }
    if (spec->weight != 0.0 && spec->has_weight == 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "step.begin: weight is %g, but has_weight is 0, so it would not count",
                         spec->weight);
    }
    if (isnan(p) || p < 0.0 || (p > 0.0 && p < 1.0) || (p > NORM_MAX_P && !isinf(p))) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "step.begin: norm_p %g is none of 0 (2), 1 to 8, infinity", p);
    }
    return HSDP_OK;
}

/* A mean is divided by the ranks already: a weight would divide it again. */
static int32_t weight_check(const struct hsdp_model *model, const struct hsdp_step_spec *spec,
                            struct hsdp_error *reterr)
{
    for (uint32_t c = 0; spec->has_weight != 0 && c < model->plan->n_classes; c++) {
        const struct plan_class *class = &model->plan->classes[c];

        if (class->is_mean && class->divisor != 1 && plan_class_is_trainable(model->plan, c)) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "step.begin: a weight is for gradient_op = sum; class \"%s\" has mean "
                             "and is divided by %" PRIu32 " already",
                             class->name, class->divisor);
        }
    }
    return HSDP_OK;
}

/* Every contribution must have been taken up by a full pass. */
static int32_t leftover_check(const struct hsdp_model *model, struct hsdp_error *reterr)
{
    for (uint32_t unit = 0; unit < model->plan->n_units; unit++) {
        const char *name = model->plan->units[unit].name;

        if (!plan_is_trainable(model->plan, unit)) {
            continue;
        }
        if (model->units[unit].is_unclosed || model->ops->has_leftover(model->store, unit)) {
            error_set(reterr, HSDP_ERR_STATE,
                      "step.begin: unit \"%s\" holds gradients that no pass of scope full has "
                      "taken up; such a pass was expected as the last one of the window",
                      name);
            error_where(reterr, "step.begin", NULL, name);
            return HSDP_ERR_STATE;
        }
    }
    return HSDP_OK;
}

/* What every rank must have passed; 0 and its meaning are the same. */
static void numbers_fill(const struct hsdp_model *model, const struct hsdp_step_spec *spec,
                         double ret_numbers[STEP_N_NUMBERS])
{
    ret_numbers[STEP_N_DISCARDED] = (double)model->n_discarded;
    ret_numbers[STEP_MAX_NORM] = spec->max_norm;
    ret_numbers[STEP_NORM_P] = norm_power(spec);
    ret_numbers[STEP_GRADIENT_SCALE] = spec->gradient_scale == 0.0 ? 1.0 : spec->gradient_scale;
    ret_numbers[STEP_HAS_WEIGHT] = (double)spec->has_weight;
    ret_numbers[STEP_ERROR_IF_NONFINITE] = (double)spec->error_if_nonfinite;
}

/* ------------------------------------------------------------------- the collective, as work */

static int32_t step_compute(struct hsdp_model *model, struct hsdp_error *reterr)
{
    const struct hsdp_step_spec *spec = &model->step.spec;
    struct hsdp_step_info *result = &model->step.result;
    double scale = spec->gradient_scale == 0.0 ? 1.0 : spec->gradient_scale;
    struct step_words words;
    struct norm_step step;
    float largest;
    uint32_t bits;
    struct fp_mode mode;
    int32_t status;

    status = model->ops->step_words(model->store, &words, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    mode = fp_mode_enter();
    if (isinf(spec->norm_p)) {
        bits = (uint32_t)words.max_bits;
        memcpy(&largest, &bits, sizeof(largest));
        result->norm = (double)largest;
    } else {
        result->norm = norm_sum_value(&words.sum, norm_power(spec));
    }
    if (spec->has_weight != 0) {
        result->weight = words.weight;
        scale /= words.weight;
    }
    step = norm_step_scale(result->norm, scale, spec->max_norm);
    result->norm = step.norm;
    result->clip = step.clip;
    result->factor = step.factor;
    result->is_nonfinite = !isfinite(result->norm) || !isfinite(result->weight);
    result->step = model->step.label.sequence; /* it may have been closed meanwhile */
    model->factor[0] = (float)result->norm;
    model->factor[1] = (float)result->factor;
    fp_mode_leave(mode);
    model->step.is_drifted = words.checksum != 0;
    model->step.is_known = true;
    return HSDP_OK;
}

static struct hsdp_model *step_model(struct work *work)
{
    return (struct hsdp_model *)((char *)work - offsetof(struct hsdp_model, step.work));
}

static int32_t step_progress(struct work *work, struct hsdp_error *reterr)
{
    struct hsdp_model *model = step_model(work);

    if (model->ops->step_blocker(model->store) != NULL) {
        return HSDP_PENDING;
    }
    return step_compute(model, reterr);
}

static const struct wait *step_blocker(struct work *work)
{
    struct hsdp_model *model = step_model(work);

    return model->ops->step_blocker(model->store);
}

/* A device does what belongs to a step in order: the stream waits for all so far. */
static int32_t step_order(struct work *work, void *stream, struct hsdp_error *reterr)
{
    return model_order(step_model(work), stream, reterr);
}

static void step_finish(struct work *work, int32_t status)
{
    step_model(work)->step.is_under_way = false; /* is_known tells; a failed job asks no more */
    (void)status;
}

static void step_open(struct hsdp_model *model, const struct hsdp_step_spec *spec)
{
    memset(&model->step, 0, sizeof(model->step));
    model->step.spec = *spec;
    model->step.is_open = true;
    model->step.is_under_way = true;
    model->step.label.operation = "step";
    model->step.label.sequence = model->n_steps + 1;
    model->step.work.label = &model->step.label;
    model->step.work.progress = step_progress;
    model->step.work.blocker = step_blocker;
    model->step.work.order = step_order;
    model->step.work.finish = step_finish;
}

/* The last step may have ended on a device before its result was there. */
static int32_t last_await(struct hsdp_model *model, struct hsdp_error *reterr)
{
    return model->step.is_under_way
               ? job_ticket_wait(model->job, model->step.ticket, UINT64_MAX, reterr)
               : HSDP_OK;
}

/* Whether a step may begin; if so, this rank's reductions are done, or a device does them next. */
static int32_t begin_check(struct hsdp_model *model, const struct hsdp_step_spec *spec,
                           struct hsdp_error *reterr)
{
    int32_t status = spec_check(spec, reterr);

    if (status == HSDP_OK) {
        status = weight_check(model, spec, reterr);
    }
    if (status == HSDP_OK) {
        status = model_idle_check(model, "step.begin", reterr);
    }
    if (status == HSDP_OK) {
        status = model_rest_check(model, "step.begin", reterr);
    }
    if (status == HSDP_OK) {
        status = last_await(model, reterr);
    }
    if (status == HSDP_OK) {
        status = model->ops->drain(model->store, reterr);
    }
    return status == HSDP_OK ? leftover_check(model, reterr) : status;
}

/* What this rank brings to the collective. Gradients become what the step reads. */
static int32_t words_fill(struct hsdp_model *model, const struct hsdp_step_spec *spec,
                          uint64_t checksum, struct step_words *ret, struct hsdp_error *reterr)
{
    memset(ret, 0, sizeof(*ret));
    ret->checksum = checksum;
    ret->step = model->n_steps + 1;
    numbers_fill(model, spec, ret->numbers);
    ret->optimizer = model->optimizer;
    ret->weight = spec->has_weight != 0 ? spec->weight : 0.0;
    return grads_settle(model, norm_power(spec), ret, reterr);
}

int32_t step_begin(struct hsdp_model *model, const struct hsdp_step_spec *spec,
                   uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct step_words words;
    uint64_t checksum = 0;
    int32_t status = begin_check(model, spec, reterr);

    if (status == HSDP_OK) {
        status = drift_measure(model, &checksum, reterr);
    }
    if (status == HSDP_OK) {
        status = model_follow(model, spec->stream, reterr);
    }
    if (status == HSDP_OK) { /* last: nothing can be refused any more */
        status = ties_sum(model, reterr);
    }
    if (status == HSDP_OK) {
        status = words_fill(model, spec, checksum, &words, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    step_open(model, spec);
    status = model->ops->step_start(model->store, &words, reterr);
    if (status == HSDP_OK) {
        status = job_work_start(model->job, &model->step.work, &model->step.ticket, reterr);
    }
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = model->step.ticket;
    }
    return status;
}

/* ----------------------------------------------------------------------- result to discard */

static int32_t open_check(const struct hsdp_model *model, const char *call,
                          struct hsdp_error *reterr)
{
    if (!model->step.is_open) {
        return error_set(reterr, HSDP_ERR_STATE, "%s: no step is open; step.begin was expected",
                         call);
    }
    return HSDP_OK;
}

int32_t step_await(struct hsdp_model *model, const char *call, struct hsdp_error *reterr)
{
    int32_t status = open_check(model, call, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (!model->step.is_known) {
        status = job_ticket_wait(model->job, model->step.ticket, UINT64_MAX, reterr);
    }
    return status == HSDP_OK ? drift_name(model, reterr) : status;
}

int32_t step_proceed(struct hsdp_model *model, const char *call, struct hsdp_error *reterr)
{
    if (model->space->ops->is_host || model->step.spec.error_if_nonfinite != 0 ||
        drift_is_measured(model)) {
        return step_await(model, call, reterr);
    }
    return open_check(model, call, reterr);
}

int32_t step_result_check(const struct hsdp_model *model, const char *call,
                          struct hsdp_error *reterr)
{
    const struct hsdp_step_info *result = &model->step.result;
    int32_t status = drift_check(model, call, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (model->step.spec.error_if_nonfinite == 0 || result->is_nonfinite == 0) {
        return HSDP_OK;
    }
    if (model->step.spec.has_weight != 0) { /* which may be the cause: 0, or more than fp64 holds */
        return error_set(reterr, HSDP_ERR_NONFINITE,
                         "%s: the gradient norm of step %" PRIu64
                         " is %g, the sum of the weights is %g",
                         call, result->step, result->norm, result->weight);
    }
    return error_set(reterr, HSDP_ERR_NONFINITE, "%s: the gradient norm of step %" PRIu64 " is %g",
                     call, result->step, result->norm);
}

int32_t step_result(struct hsdp_model *model, struct hsdp_step_info *ret_result,
                    struct hsdp_error *reterr)
{
    const struct hsdp_step_info *result = &model->step.result;
    size_t struct_size = ret_result->struct_size;
    int32_t status = step_await(model, "step.result", reterr);

    if (status != HSDP_OK) {
        return status;
    }
    status = step_result_check(model, "step.result", reterr);
    if (status != HSDP_OK) {
        return status;
    }
    *ret_result = *result;
    ret_result->struct_size = struct_size;
    return HSDP_OK;
}

const float *step_factor(struct hsdp_model *model)
{
    const float *factor = model->ops->factor(model->store);

    return factor == NULL ? model->factor : factor;
}

int32_t step_factor_view(struct hsdp_model *model, struct hsdp_tensor *ret_view,
                         struct hsdp_error *reterr)
{
    struct tensor_elems elems = {model->space, step_factor(model), DTYPE_FP32};

    (void)reterr;
    tensor_fill(ret_view, &elems, model->factor_shape, model->unit_stride, 1);
    return HSDP_OK;
}

/* Parameters change only behind the step's collective, which is a barrier of the job. */
static int32_t step_close(struct hsdp_model *model, const char *call, enum published values,
                          void *stream, struct hsdp_error *reterr)
{
    _Atomic uint64_t *n_steps;
    int32_t status = step_proceed(model, call, reterr);

    if (status == HSDP_OK) {
        status = model->ops->publish(model->store, values, stream, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    model->ops->step_grads_drop(model->store);
    grads_close(model, norm_power(&model->step.spec));
    model->step.is_open = false;
    model->n_steps++;
    model->n_discarded += values == PUBLISHED_NOTHING;
    n_steps = job_counter_register(model->job, "steps");
    if (n_steps != NULL) {
        atomic_fetch_add_explicit(n_steps, 1, memory_order_relaxed);
    }
    return HSDP_OK;
}

int32_t step_end(struct hsdp_model *model, void *stream, uint64_t *ret_ticket,
                 struct hsdp_error *reterr)
{
    int32_t status = step_proceed(model, "step.end", reterr);

    if (status == HSDP_OK) {
        status = drift_check(model, "step.end", reterr);
    }
    if (status == HSDP_OK && model->step.spec.error_if_nonfinite != 0 &&
        model->step.result.is_nonfinite != 0) {
        status = error_set(reterr, HSDP_ERR_STATE,
                           "step.end: the gradients are not finite and the step has "
                           "error_if_nonfinite; step.discard was expected");
    }
    if (status == HSDP_OK) {
        status = step_close(model, "step.end", PUBLISHED_TRAINABLE, stream, reterr);
    }
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = 0; /* done: the next unshard waits for the peers */
    }
    return status;
}

int32_t step_discard(struct hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    if (model->step.is_open && model->step.is_updated) {
        return error_set(reterr, HSDP_ERR_STATE,
                         "step.discard: adamw.step has updated the parameters; step.end was "
                         "expected");
    }
    return step_close(model, "step.discard", PUBLISHED_NOTHING, stream, reterr);
}
