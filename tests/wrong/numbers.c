/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of numbers that can be made outside of a plugin: settings, scopes, roots, dtypes. */
#include <string.h>

#include "wrong.h"

/* Settings without one of them. */
static const char *dropped;

static int32_t plan_without(const hsdp_mesh *mesh, const struct hsdp_settings *settings,
                            hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    const char *keys[32];
    const char *values[32];
    struct hsdp_settings own = {.keys = keys, .values = values};

    for (uint64_t i = 0; settings != NULL && i < settings->n_settings && i < 32; i++) {
        if (strcmp(settings->keys[i], dropped) != 0) {
            keys[own.n_settings] = settings->keys[i];
            values[own.n_settings] = settings->values[i];
            own.n_settings++;
        }
    }
    return wrong.real->plan->create(mesh, &own, ret_plan, reterr);
}

static void setting_drop(const char *key)
{
    dropped = key;
    wrong.plan.create = plan_without;
}

static void sum_is_a_mean(void)
{
    setting_drop("gradient_op");
}

static void divisor_is_ignored(void)
{
    setting_drop("gradient_divisor");
}

static void wire_is_wide(void)
{
    setting_drop("reduce_dtype");
}

static int32_t add_nothing(hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad,
                           void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)param;
    (void)grad;
    (void)stream;
    (void)reterr;
    return HSDP_OK;
}

static void foreign_gradients_are_lost(void)
{
    wrong.unit.grad_add = add_nothing;
}

/* The divisor stands in the factor once more. */
static uint32_t n_ranks;

static int32_t create_counting(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model,
                               struct hsdp_error *reterr)
{
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;

    wrong.real->job->info(job, &info, NULL);
    n_ranks = info.world_ranks;
    return wrong.real->model->create(job, plan, ret_model, reterr);
}

static int32_t result_divided(hsdp_model *model, struct hsdp_step_info *ret_result,
                              struct hsdp_error *reterr)
{
    int32_t status = wrong.real->step->result(model, ret_result, reterr);

    if (status == HSDP_OK && n_ranks > 0) {
        ret_result->factor /= n_ranks;
    }
    return status;
}

static void factor_is_a_mean_again(void)
{
    wrong.model.create = create_counting;
    wrong.step.result = result_divided;
}

static const struct wrong_fault faults[] = {
    {"sum-is-a-mean", "mathematics", "gradient_op=sum divides by nothing", "gradient_op is ignored",
     sum_is_a_mean},
    {"divisor-is-ignored", "mathematics", "gradient_divisor is what the sum is divided by",
     "gradient_divisor is ignored", divisor_is_ignored},
    {"wire-is-wide", "mathematics", "contributions are rounded to the wire once",
     "reduce_dtype is ignored", wire_is_wide},
    {"foreign-gradients-are-lost", "mathematics", "foreign gradients join the next hand-over",
     "grad_add adds nothing", foreign_gradients_are_lost},
    {"factor-is-a-mean-again", "mathematics", "random cases under fsdp",
     "the factor divides by the ranks once more", factor_is_a_mean_again},
};

const struct wrong_faults wrong_numbers = WRONG_FAULTS(faults);
