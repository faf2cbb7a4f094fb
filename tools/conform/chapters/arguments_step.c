/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: functions on steps, and the extension hsdp.adamw. */
#include <math.h>

#include "arguments.h"

void step_nulls(struct conform *conform)
{
    const struct hsdp_step_ops *ops = conform->api->step;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_open(&a, conform);
    arguments_refuse(&a, ops->begin(NULL, &spec, out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->begin(a.model, NULL, out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->factor_view(NULL, &out->view, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->factor_view(a.model, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->result(NULL, &out->step_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->end(NULL, NULL, out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->discard(NULL, NULL, a.err), HSDP_ERR_INVALID);
    arguments_step(&a);
    arguments_refuse(&a, ops->result(a.model, NULL, a.err), HSDP_ERR_INVALID);
    arguments_accept(&a, ops->discard(a.model, NULL, a.err));
    arguments_accept(&a, ops->factor_view(a.model, &out->view, a.err));
    conform_expect(conform,
                   out->view.n_dims == 1 && out->view.shape[0] == 2 && out->view.strides != NULL &&
                       out->view.dtype_code == HSDP_DTYPE_FLOAT && out->view.dtype_bits == 32,
                   "step.factor_view: is no view of two fp32");
    arguments_close(&a);
}

static const struct {
    const char *what;
    double max_norm;
    double norm_p;
    double gradient_scale;
    double weight;
    uint32_t has_weight;
} wrong_steps[] = {
    {"step.begin: max_norm -1", -1, 0, 0, 0, 0},
    {"step.begin: max_norm NaN", (double)NAN, 0, 0, 0, 0},
    {"step.begin: max_norm inf", (double)INFINITY, 0, 0, 0, 0},
    {"step.begin: norm_p 0.5", 1, 0.5, 0, 0, 0},
    {"step.begin: norm_p 8.001", 1, 8.001, 0, 0, 0},
    {"step.begin: norm_p -2", 1, -2, 0, 0, 0},
    {"step.begin: norm_p NaN", 1, (double)NAN, 0, 0, 0},
    {"step.begin: norm_p -inf", 1, -(double)INFINITY, 0, 0, 0},
    {"step.begin: gradient_scale -1", 1, 0, -1, 0, 0},
    {"step.begin: gradient_scale NaN", 1, 0, (double)NAN, 0, 0},
    {"step.begin: gradient_scale inf", 1, 0, (double)INFINITY, 0, 0},
    {"step.begin: a weight that has_weight leaves out", 1, 0, 0, 3, 0},
};

void step_numbers(struct conform *conform)
{
    const struct hsdp_step_ops *ops = conform->api->step;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct arguments a;

    arguments_open(&a, conform);
    for (size_t i = 0; i < sizeof(wrong_steps) / sizeof(wrong_steps[0]); i++) {
        spec.max_norm = wrong_steps[i].max_norm;
        spec.norm_p = wrong_steps[i].norm_p;
        spec.gradient_scale = wrong_steps[i].gradient_scale;
        spec.weight = wrong_steps[i].weight;
        spec.has_weight = wrong_steps[i].has_weight;
        arguments_refuse_as(&a, wrong_steps[i].what,
                            ops->begin(a.model, &spec, &a.out.longs[0], a.err), HSDP_ERR_INVALID);
    }
    spec = (struct hsdp_step_spec)HSDP_STEP_SPEC_INIT;
    spec.stream = &a;
    arguments_refuse_stream(&a, "step.begin on a stream of a CPU",
                            ops->begin(a.model, &spec, &a.out.longs[0], a.err));
    spec.stream = NULL;
    spec.norm_p = HUGE_VAL;
    spec.max_norm = 1;
    arguments_accept(&a, ops->begin(a.model, &spec, NULL, a.err));
    arguments_accept(&a, ops->result(a.model, &a.out.step_info, a.err));
    conform_expect(conform,
                   a.out.step_info.norm == 0.0 && a.out.step_info.clip == 1.0 &&
                       a.out.step_info.factor == 1.0 && a.out.step_info.step == 1 &&
                       a.out.step_info.is_nonfinite == 0 && a.out.step_info.reserved == 0,
                   "step.result: without gradients the norm is 0, clip and factor 1, the step 1; "
                   "found %g, %g, %g, %llu",
                   a.out.step_info.norm, a.out.step_info.clip, a.out.step_info.factor,
                   (unsigned long long)a.out.step_info.step);
    arguments_refuse_stream(&a, "step.end on a stream of a CPU",
                            ops->end(a.model, &a, &a.out.longs[0], a.err));
    arguments_refuse_stream(&a, "step.discard on a stream of a CPU",
                            ops->discard(a.model, &a, a.err));
    arguments_accept(&a, ops->end(a.model, NULL, NULL, a.err));
    arguments_close(&a);
}

void step_moments(struct conform *conform)
{
    const struct hsdp_step_ops *ops = conform->api->step;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct arguments a;

    arguments_open(&a, conform);
    arguments_refuse_as(&a, "step.result without a step",
                        ops->result(a.model, &a.out.step_info, a.err), HSDP_ERR_STATE);
    arguments_refuse_as(&a, "step.end without a step",
                        ops->end(a.model, NULL, &a.out.longs[0], a.err), HSDP_ERR_STATE);
    arguments_refuse_as(&a, "step.discard without a step", ops->discard(a.model, NULL, a.err),
                        HSDP_ERR_STATE);
    arguments_step(&a);
    arguments_refuse_as(&a, "step.begin in a step",
                        ops->begin(a.model, &spec, &a.out.longs[0], a.err), HSDP_ERR_STATE);
    arguments_accept(&a, ops->result(a.model, &a.out.step_info, a.err));
    arguments_accept(&a, ops->result(a.model, &a.out.step_info, a.err)); /* may be asked again */
    arguments_accept(&a, ops->end(a.model, NULL, NULL, a.err));
    arguments_refuse_as(&a, "step.end, twice", ops->end(a.model, NULL, &a.out.longs[0], a.err),
                        HSDP_ERR_STATE);
    arguments_accept(&a, a.api->unit->unshard(a.model, 0, HSDP_USE_FORWARD, NULL, NULL, a.err));
    arguments_refuse_as(&a, "step.begin with a unit unsharded",
                        ops->begin(a.model, &spec, &a.out.longs[0], a.err), HSDP_ERR_STATE);
    arguments_accept(&a, a.api->unit->release(a.model, 0, NULL, a.err));
    arguments_accept(&a, a.api->model->edit_begin(a.model, NULL, a.err));
    arguments_refuse_as(&a, "step.begin in an edit",
                        ops->begin(a.model, &spec, &a.out.longs[0], a.err), HSDP_ERR_STATE);
    arguments_accept(&a, a.api->model->edit_end(a.model, NULL, a.err));
    arguments_accept(&a, a.api->model->info(a.model, &a.out.model_info, a.err));
    conform_expect(conform, a.out.model_info.step == 1, "model.info: tells of %llu steps; 1 ended",
                   (unsigned long long)a.out.model_info.step);
    arguments_close(&a);
}

/* -------------------------------------------------------------------------------------- adamw */

static const double one_rate[] = {0.5};
static const double no_rate[] = {(double)NAN};
static const double below_zero[] = {-1.0};

static const struct {
    const char *what;
    const double *learning_rate;
    const double *weight_decay;
    double beta1;
    double beta2;
    double epsilon;
    uint32_t n_hyper_groups;
} wrong_adamw[] = {
    {"adamw.step: beta1 1", one_rate, one_rate, 1, 0.9, 1e-8, 1},
    {"adamw.step: beta1 -0.1", one_rate, one_rate, -0.1, 0.9, 1e-8, 1},
    {"adamw.step: beta1 NaN", one_rate, one_rate, (double)NAN, 0.9, 1e-8, 1},
    {"adamw.step: beta2 1", one_rate, one_rate, 0.9, 1, 1e-8, 1},
    {"adamw.step: beta2 -0.1", one_rate, one_rate, 0.9, -0.1, 1e-8, 1},
    {"adamw.step: epsilon 0", one_rate, one_rate, 0.9, 0.9, 0, 1},
    {"adamw.step: epsilon -1", one_rate, one_rate, 0.9, 0.9, -1, 1},
    {"adamw.step: epsilon NaN", one_rate, one_rate, 0.9, 0.9, (double)NAN, 1},
    {"adamw.step: n_hyper_groups 0", one_rate, one_rate, 0.9, 0.9, 1e-8, 0},
    {"adamw.step: learning_rate NULL", NULL, one_rate, 0.9, 0.9, 1e-8, 1},
    {"adamw.step: weight_decay NULL", one_rate, NULL, 0.9, 0.9, 1e-8, 1},
    {"adamw.step: a learning rate of NaN", no_rate, one_rate, 0.9, 0.9, 1e-8, 1},
    {"adamw.step: a weight decay of NaN", one_rate, no_rate, 0.9, 0.9, 1e-8, 1},
    {"adamw.step: a learning rate of -1", below_zero, one_rate, 0.9, 0.9, 1e-8, 1},
    {"adamw.step: a weight decay of -1", one_rate, below_zero, 0.9, 0.9, 1e-8, 1},
};

static void adamw_spec_init(struct hsdp_adamw_spec *ret)
{
    *ret = (struct hsdp_adamw_spec)HSDP_ADAMW_SPEC_INIT;
    ret->learning_rate = one_rate;
    ret->weight_decay = one_rate;
    ret->beta1 = 0.9;
    ret->beta2 = 0.99;
    ret->epsilon = 1e-8;
    ret->n_hyper_groups = 1;
}

static void adamw_numbers_refuse(struct arguments *arguments)
{
    struct hsdp_adamw_spec spec;

    for (size_t i = 0; i < sizeof(wrong_adamw) / sizeof(wrong_adamw[0]); i++) {
        adamw_spec_init(&spec);
        spec.learning_rate = wrong_adamw[i].learning_rate;
        spec.weight_decay = wrong_adamw[i].weight_decay;
        spec.beta1 = wrong_adamw[i].beta1;
        spec.beta2 = wrong_adamw[i].beta2;
        spec.epsilon = wrong_adamw[i].epsilon;
        spec.n_hyper_groups = wrong_adamw[i].n_hyper_groups;
        arguments_refuse_as(arguments, wrong_adamw[i].what,
                            arguments->adamw->step(arguments->model, &spec, arguments->err),
                            HSDP_ERR_INVALID);
    }
}

void adamw_arguments(struct conform *conform)
{
    struct hsdp_adamw_spec spec;
    struct arguments a;

    arguments_open(&a, conform);
    conform_needs_extension(conform, HSDP_ADAMW_EXTENSION);
    conform_expect(conform, a.adamw != NULL,
                   "describe() lists " HSDP_ADAMW_EXTENSION ", but extension() does not give it");
    adamw_spec_init(&spec);
    arguments_refuse(&a, a.adamw->step(NULL, &spec, a.err), HSDP_ERR_INVALID);
    arguments_refuse_as(&a, "adamw.step outside of a step", a.adamw->step(a.model, &spec, a.err),
                        HSDP_ERR_STATE);
    arguments_step(&a);
    arguments_refuse(&a, a.adamw->step(a.model, NULL, a.err), HSDP_ERR_INVALID);
    adamw_numbers_refuse(&a);
    spec.stream = &a;
    arguments_refuse_stream(&a, "adamw.step on a stream of a CPU",
                            a.adamw->step(a.model, &spec, a.err));
    spec.stream = NULL;
    arguments_accept(&a, a.adamw->step(a.model, &spec, a.err));
    arguments_refuse_as(&a, "adamw.step, twice in a step", a.adamw->step(a.model, &spec, a.err),
                        HSDP_ERR_STATE);
    arguments_refuse_as(&a, "step.discard after adamw.step",
                        a.api->step->discard(a.model, NULL, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, a.api->step->end(a.model, NULL, NULL, a.err));
    arguments_close(&a);
}
