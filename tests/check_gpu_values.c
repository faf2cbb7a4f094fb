/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of the host's collectives, as the double runs it, against values_reduce: bit for bit.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/values.h"
#include "device/fpmode.h"
#include "device/kernels.h"
#include "doubles/double.h"
#include "kernel_arrays.h"
#include "suite.h"

#define N_ELEMS_MOST 257u
#define GUARD        0x5a

static const struct element elements[] = {
    {HSDP_DTYPE_FLOAT, 32}, {HSDP_DTYPE_FLOAT, 64}, {HSDP_DTYPE_BFLOAT, 16},
    {HSDP_DTYPE_FLOAT, 16}, {HSDP_DTYPE_UINT, 8},   {HSDP_DTYPE_INT, 8},
    {HSDP_DTYPE_INT, 16},   {HSDP_DTYPE_INT, 32},   {HSDP_DTYPE_INT, 64},
};

static const uint32_t numbers_of_sources[] = {1, 2, 3, 4, 5, 7, 8, 9, 23, 63, 64};

/* What is tried, for the sentence of a failure. */
struct trial {
    struct element element;
    int32_t reduce;
    uint32_t n_sources;
    uint64_t n_elems;
};

/* Any bits: whole numbers, fractions, denormals, infinities, NaNs. */
static void sources_fill(uint8_t *bytes, uint64_t n_bytes, uint64_t *state)
{
    for (uint64_t i = 0; i < n_bytes; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (uint8_t)(*state >> 56);
    }
}

static bool is_nan(const uint8_t *at, struct element element)
{
    uint16_t half;
    float single;
    double wide;

    if (element.code != HSDP_DTYPE_FLOAT && element.code != HSDP_DTYPE_BFLOAT) {
        return false;
    }
    if (element.bits == 64) {
        memcpy(&wide, at, sizeof(wide));
        return isnan(wide);
    }
    if (element.bits == 32) {
        memcpy(&single, at, sizeof(single));
        return isnan(single);
    }
    memcpy(&half, at, sizeof(half));
    return (half & 0x7fffu) > (element.code == HSDP_DTYPE_BFLOAT ? 0x7f80u : 0x7c00u);
}

static void results_compare(const struct trial *trial, const uint8_t *found,
                            const uint8_t *expected)
{
    uint64_t n_bytes = element_bytes(trial->element);
    char name[32];

    element_name(trial->element, name, sizeof(name));
    for (uint64_t i = 0; i < trial->n_elems; i++) {
        const uint8_t *a = found + i * n_bytes;
        const uint8_t *b = expected + i * n_bytes;

        ck_assert_msg(memcmp(a, b, n_bytes) == 0 ||
                          (is_nan(a, trial->element) && is_nan(b, trial->element)),
                      "reduction %d of %u sources of %s: element %u differs", (int)trial->reduce,
                      trial->n_sources, name, (unsigned)i);
    }
}

static void trial_run(const struct trial *trial, uint64_t seed)
{
    const uint64_t elem_bytes = element_bytes(trial->element);
    const uint64_t stride = trial->n_elems * elem_bytes + elem_bytes; /* nothing is aligned */
    uint8_t *sources = malloc(trial->n_sources * stride + 1);
    uint8_t *found = malloc((trial->n_elems + 1) * elem_bytes);
    uint8_t *expected = malloc((trial->n_elems + 1) * elem_bytes);
    const void *pointers[GPU_TREE_MAX_SOURCES];
    struct gpu_values_args args = {found,
                                   sources,
                                   stride,
                                   trial->n_elems,
                                   trial->n_sources,
                                   trial->reduce,
                                   trial->element.code,
                                   trial->element.bits};
    struct values_spec spec = {.dst = expected,
                               .sources = pointers,
                               .n_sources = trial->n_sources,
                               .element = trial->element,
                               .n_elems = trial->n_elems,
                               .reduce = trial->reduce,
                               .kernels = kernels_path(0)};
    struct fp_mode mode;

    sources_fill(sources, trial->n_sources * stride, &seed);
    for (uint32_t i = 0; i < trial->n_sources; i++) {
        pointers[i] = sources + i * stride;
    }
    memset(found, GUARD, (trial->n_elems + 1) * elem_bytes);
    mode = fp_mode_enter();
    values_reduce(&spec);
    fp_mode_leave(mode);
    kernel_run(GPU_VALUES, &args, grids[seed % N_GRIDS]);
    results_compare(trial, found, expected);
    for (uint64_t i = 0; i < elem_bytes; i++) {
        ck_assert_uint_eq(found[trial->n_elems * elem_bytes + i], GUARD);
    }
    free(sources);
    free(found);
    free(expected);
}

START_TEST(values_of_any_type_are_reduced_as_on_the_cpu)
{
    const struct element element = elements[_i];

    for (int32_t reduce = HSDP_REDUCE_SUM; reduce <= HSDP_REDUCE_MIN; reduce++) {
        for (uint32_t k = 0; k < sizeof(numbers_of_sources) / sizeof(numbers_of_sources[0]); k++) {
            struct trial trial = {element, reduce, numbers_of_sources[k], N_ELEMS_MOST};

            if (element_reduces(element, reduce)) {
                trial_run(&trial, 17u * k + (uint64_t)reduce);
                trial.n_elems = 1;
                trial_run(&trial, 5u * k + (uint64_t)reduce);
            }
        }
    }
}
END_TEST

START_TEST(accesses_of_values_are_sources_and_result)
{
    struct double_access accesses[DOUBLE_MAX_ACCESSES];
    struct gpu_values_args args = {(void *)64,      (void *)4096,   256, 8, 3,
                                   HSDP_REDUCE_MAX, HSDP_DTYPE_INT, 16};

    ck_assert_uint_eq(double_kernels[GPU_VALUES].accesses(&args, accesses, DOUBLE_MAX_ACCESSES), 4);
    ck_assert_ptr_eq(accesses[0].address, (void *)64);
    ck_assert_uint_eq(accesses[0].is_write, 1);
    ck_assert_ptr_eq(accesses[3].address, (void *)(4096 + 512));
    ck_assert_uint_eq(accesses[3].n_bytes, 16);
    ck_assert_uint_eq(accesses[3].is_write, 0);
    args.n_elems = 0;
    ck_assert_uint_eq(double_kernels[GPU_VALUES].accesses(&args, accesses, DOUBLE_MAX_ACCESSES), 0);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpu_values");
    TCase *tcase = tcase_create("gpu_values");

    tcase_add_loop_test(tcase, values_of_any_type_are_reduced_as_on_the_cpu, 0, N_OF(elements));
    tcase_add_test(tcase, accesses_of_values_are_sources_and_result);
    suite_add_tcase(suite, tcase);
    return suite;
}
