/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW of the devices, as the double runs it, against that of the CPU: bit for bit. */
#include <check.h>

#include "device/adamw.h"
#include "kernel_arrays.h"
#include "suite.h"

/* ------------------------------------------------------------------------------------ adamw */

static const struct adamw_hyper hyper = {1e-3, 0.1, 0.9, 0.95, 1e-8};

struct adamw_arrays {
    struct array params;
    struct array exp_avg;
    struct array exp_avg_sq;
    struct array copy;
};

static struct adamw_arrays adamw_create(const struct setting *s, int32_t params_dtype,
                                        int32_t copy_dtype)
{
    uint64_t state = s->seed;
    struct adamw_arrays arrays = {
        array_create(params_dtype, s->n_elems, s->shifts[0]),
        array_create(DTYPE_FP32, s->n_elems, s->shifts[1]),
        array_create(DTYPE_FP32, s->n_elems, s->shifts[2]),
        array_create(copy_dtype, s->n_elems, s->shifts[3]),
    };

    array_fill(&arrays.params, params_dtype, &state, VALUES_N_KINDS);
    array_fill(&arrays.exp_avg, DTYPE_FP32, &state, 3);
    array_fill(&arrays.exp_avg_sq, DTYPE_FP32, &state, VALUES_N_KINDS);
    return arrays;
}

static void adamw_destroy(struct adamw_arrays *arrays)
{
    array_check_guards(&arrays->params);
    array_check_guards(&arrays->exp_avg);
    array_check_guards(&arrays->exp_avg_sq);
    array_check_guards(&arrays->copy);
    array_destroy(&arrays->params);
    array_destroy(&arrays->exp_avg);
    array_destroy(&arrays->exp_avg_sq);
    array_destroy(&arrays->copy);
}

static struct gpu_adamw_args adamw_args(const struct adamw_arrays *arrays,
                                        const struct adamw_constants *constants)
{
    return (struct gpu_adamw_args){
        .params = arrays->params.values,
        .exp_avg = arrays->exp_avg.values,
        .exp_avg_sq = arrays->exp_avg_sq.values,
        .copy = arrays->copy.values,
        .n_elems = arrays->exp_avg.n_bytes / sizeof(float),
        .decay = constants->decay,
        .beta1 = constants->beta1,
        .one_minus_beta1 = constants->one_minus_beta1,
        .beta2 = constants->beta2,
        .one_minus_beta2 = constants->one_minus_beta2,
        .step_size = constants->step_size,
        .bias2_sqrt = constants->bias2_sqrt,
        .epsilon = constants->epsilon,
    };
}

static void adamw_check_dtypes(const struct setting *s, int32_t params_dtype, int32_t copy_dtype,
                               float grads_divisor)
{
    const struct adamw_constants constants = adamw_constants_compute(&hyper, 1 + s->seed);
    struct adamw_arrays ours = adamw_create(s, params_dtype, copy_dtype);
    struct adamw_arrays theirs = adamw_create(s, params_dtype, copy_dtype);
    struct array grads = array_create(DTYPE_FP32, s->n_elems, s->shifts[4]);
    struct gpu_adamw_args args = adamw_args(&ours, &constants);
    void *copy = theirs.copy.values;
    struct adamw_shard shard = {
        .params = theirs.params.values,
        .exp_avg = theirs.exp_avg.values,
        .exp_avg_sq = theirs.exp_avg_sq.values,
        .grads = grads.values,
        .n_elems = s->n_elems,
        .copies = &copy,
        .n_copies = s->seed % 3 != 0,
        .copies_dtype = (enum dtype)copy_dtype,
        .params_dtype = (enum dtype)params_dtype,
        .grads_divisor = grads_divisor,
    };
    uint64_t state = s->seed + 99;
    float factor = 0.37f;

    array_fill(&grads, DTYPE_FP32, &state, VALUES_N_KINDS);
    args.params_dtype = params_dtype;
    args.copy_dtype = copy_dtype;
    args.copy = shard.n_copies != 0 ? ours.copy.values : NULL;
    args.grads = grads.values;
    args.grads_divisor = grads_divisor;
    args.factor = &factor;
    adamw_update(&constants, &shard, factor);
    kernel_run(GPU_ADAMW, &args, s->grid);
    arrays_check_equal(&ours.params, &theirs.params, params_dtype);
    arrays_check_equal(&ours.exp_avg, &theirs.exp_avg, DTYPE_FP32);
    arrays_check_equal(&ours.exp_avg_sq, &theirs.exp_avg_sq, DTYPE_FP32);
    arrays_check_equal(&ours.copy, &theirs.copy, copy_dtype);
    array_check_guards(&grads);
    adamw_destroy(&ours);
    adamw_destroy(&theirs);
    array_destroy(&grads);
}

static void adamw_check(const struct setting *s)
{
    static const float divisors[] = {0.0f, 4.0f, 6.0f};

    for (uint32_t k = 0; k < 9; k++) {
        adamw_check_dtypes(s, dtypes[k / 3], dtypes[k % 3], divisors[(k + s->seed) % 3]);
    }
}

START_TEST(adamw_of_any_dtypes_equals_the_cpu)
{
    each_setting(adamw_check);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpu_adamw");
    TCase *tcase = tcase_create("core");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, adamw_of_any_dtypes_equals_the_cpu);
    suite_add_tcase(suite, tcase);
    return suite;
}
