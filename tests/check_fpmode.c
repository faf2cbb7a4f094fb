/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels inside a host that flushes denormals, rounds upward or traps. */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "device/adamw.h"
#include "device/cast.h"
#include "device/fpmode.h"
#include "device/norm.h"
#include "device/reduce.h"
#include "kernel_values.h"
#include "suite.h"

/* Numbers are compared as bits: under a flushing host, comparing may flush as well. */

#if defined(__x86_64__)

enum { HOST_FLUSH = 0x8040, HOST_UPWARD = 0x4000 }; /* FTZ and DAZ; rounding control */

static uint32_t host_get(void)
{
    uint32_t control;

    __asm__ volatile("stmxcsr %0" : "=m"(control) : : "memory");
    return control;
}

static void host_set(uint32_t control)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(control) : "memory");
}

#elif defined(__aarch64__)

enum { HOST_FLUSH = 0x01000000, HOST_UPWARD = 0x00400000 }; /* FZ; RMode */

static uint32_t host_get(void)
{
    uint64_t control;

    __asm__ volatile("mrs %0, fpcr" : "=r"(control) : : "memory");
    return (uint32_t)control;
}

static void host_set(uint32_t control)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)control) : "memory");
}

#endif

/* The bits of left + right in the mode of the moment. */
static uint32_t added_bits(float left, float right)
{
    reduce_add(&left, &right, DTYPE_FP32, 1);
    return fp32_bits(left);
}

START_TEST(fp_mode_of_a_flushing_host_loses_denormals)
{
    uint32_t host = host_get();
    uint32_t bits;

    host_set(host | HOST_FLUSH);
    bits = (host_get() & HOST_FLUSH) == HOST_FLUSH ? added_bits(0x1p-149f, 0x1p-149f) : 0;
    host_set(host); /* valgrind has no such mode and does not take the bits */
    ck_assert_uint_eq(bits, 0);
}
END_TEST

START_TEST(fp_mode_enter_keeps_denormals_in_sums)
{
    float values[9];
    const void *sources[] = {values, values};
    struct reduce_spec spec = {.dst = values, .sources = sources, .n_elems = 9, .n_dims = 1};
    struct fp_mode mode;

    spec.dim_sizes = (const uint32_t[]){2};
    spec.wire_dtype = DTYPE_BF16;
    for (size_t i = 0; i < 9; i++) {
        values[i] = 0x1p-133f; /* the least bf16 */
    }
    host_set(host_get() | HOST_FLUSH);
    mode = fp_mode_enter();
    reduce_tree(&spec);
    reduce_divide(values, 4.0f, 9);
    fp_mode_leave(mode);
    for (size_t i = 0; i < 9; i++) {
        ck_assert_uint_eq(fp32_bits(values[i]), 1u << 15);
    }
}
END_TEST

START_TEST(fp_mode_enter_keeps_denormals_in_casts)
{
    const float value = 0x1.8p-24f;
    const uint16_t least = 0x0001;
    uint16_t half;
    float widened;
    struct fp_mode mode;

    host_set(host_get() | HOST_FLUSH | HOST_UPWARD);
    mode = fp_mode_enter();
    cast_from_fp32(&half, DTYPE_FP16, &value, 1);
    cast_to_fp32(&widened, &least, DTYPE_BF16, 1);
    fp_mode_leave(mode);
    ck_assert_uint_eq(half, 0x0002);
    ck_assert_uint_eq(fp32_bits(widened), 0x00010000);
}
END_TEST

START_TEST(fp_mode_enter_keeps_denormals_in_norms)
{
    const float values[] = {0x1p-149f, 0x1p-149f, 0x1p-149f, 0x1p-149f};
    struct norm_sum sum = {{0}, 0, 0};
    struct fp_mode mode;
    double norm;

    host_set(host_get() | HOST_FLUSH);
    mode = fp_mode_enter();
    norm_sum_add(&sum, values, 4, 2);
    norm = norm_sum_value(&sum, 2);
    fp_mode_leave(mode);
    ck_assert_double_eq(norm, 0x1p-148);
}
END_TEST

START_TEST(fp_mode_enter_keeps_denormals_in_steps)
{
    const struct adamw_hyper hyper = {1e-3, 0.0, 0.5, 0.5, 1e-8};
    const float grad = 0x1p-147f;
    float arrays[3] = {0x1p-140f, 0.0f, 0.0f};
    struct adamw_shard shard = {.params = &arrays[0],
                                .exp_avg = &arrays[1],
                                .exp_avg_sq = &arrays[2],
                                .grads = &grad,
                                .n_elems = 1};
    struct adamw_constants c;
    struct fp_mode mode;

    host_set(host_get() | HOST_FLUSH);
    mode = fp_mode_enter();
    c = adamw_constants_compute(&hyper, 1);
    adamw_update(&c, &shard, 1.0f);
    fp_mode_leave(mode);
    ck_assert_uint_eq(fp32_bits(arrays[1]), 2); /* half the gradient */
    ck_assert_uint_ne(fp32_bits(arrays[0]) & 0x7fffffff, 0);
}
END_TEST

START_TEST(fp_mode_enter_rounds_to_nearest)
{
    uint32_t host = host_get();
    struct fp_mode mode;
    uint32_t bits;

    host_set(host | HOST_UPWARD);
    mode = fp_mode_enter();
    bits = added_bits(0x1p24f, 1.0f);
    fp_mode_leave(mode);
    host_set(host);
    ck_assert_uint_eq(bits, fp32_bits(0x1p24f));
}
END_TEST

START_TEST(fp_mode_leave_puts_back_what_was_found)
{
    uint32_t host;
    struct fp_mode outer;
    struct fp_mode inner;

    host_set(host_get() | HOST_FLUSH | HOST_UPWARD);
    host = host_get(); /* what of it this machine has */
    outer = fp_mode_enter();
    inner = fp_mode_enter();
    fp_mode_leave(inner);
    ck_assert_uint_eq(added_bits(0x1p-149f, 0x1p-149f), 2);
    ck_assert_uint_ne(host_get(), host);
    fp_mode_leave(outer);
    ck_assert_uint_eq(host_get(), host);
}
END_TEST

START_TEST(fp_mode_leave_leaves_sticky_flags_as_they_were)
{
    float value = 1.0f;
    struct fp_mode mode;
    int flags;

    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(FE_OVERFLOW);
    flags = fetestexcept(FE_ALL_EXCEPT); /* what of it this machine has */
    mode = fp_mode_enter();
    reduce_divide(&value, 3.0f, 1);
    reduce_divide(&value, 0.0f, 1);
    fp_mode_leave(mode);
    ck_assert_int_eq(fetestexcept(FE_ALL_EXCEPT), flags);
}
END_TEST

START_TEST(fp_mode_enter_lets_no_trap_through)
{
    float value = 1.0f;
    struct fp_mode mode;

    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_DIVBYZERO); /* where the processor has no traps this does nothing */
    mode = fp_mode_enter();
    reduce_divide(&value, 0.0f, 1);
    fp_mode_leave(mode);
    fedisableexcept(FE_ALL_EXCEPT);
    ck_assert_float_eq(value, INFINITY);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("fpmode");
    TCase *tcase = tcase_create("fpmode");

    tcase_add_test(tcase, fp_mode_of_a_flushing_host_loses_denormals);
    tcase_add_test(tcase, fp_mode_enter_keeps_denormals_in_sums);
    tcase_add_test(tcase, fp_mode_enter_keeps_denormals_in_casts);
    tcase_add_test(tcase, fp_mode_enter_keeps_denormals_in_norms);
    tcase_add_test(tcase, fp_mode_enter_keeps_denormals_in_steps);
    tcase_add_test(tcase, fp_mode_enter_rounds_to_nearest);
    tcase_add_test(tcase, fp_mode_leave_puts_back_what_was_found);
    tcase_add_test(tcase, fp_mode_leave_leaves_sticky_flags_as_they_were);
    tcase_add_test(tcase, fp_mode_enter_lets_no_trap_through);
    suite_add_tcase(suite, tcase);
    return suite;
}
