/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: in which order sums are computed, what they are rounded to, and means. */
#include <math.h>

#include "collectives.h"

#define MAX_ELEMS 64u

static const struct coll_dtype *const fp32 = &coll_dtypes[0];

static double sum_of(struct coll *coll, const struct coll_dtype *dtype, double own, int32_t reduce)
{
    double memory[1] = {0};
    struct coll_vector vector;
    struct hsdp_tensor *tensor = coll_vector(&vector, memory, 1, dtype);
    struct hsdp_coll_spec spec = coll_spec(HSDP_COLL_ALL_REDUCE, reduce, tensor, tensor);

    coll_write(memory, 0, dtype, own);
    return coll_run(coll, &spec, 1) ? coll_read(memory, 0, dtype) : NAN;
}

/* (2^24 + 1) + (1 + -2^24): the ones are lost where they stand, and not together. */
void coll_pairs(struct conform *conform)
{
    static const double fp32_values[] = {0x1p24, 1.0, 1.0, -0x1p24};
    static const double fp64_values[] = {0x1p53, 1.0, 1.0, -0x1p53};
    static const double bf16_values[] = {256.0, 1.0, 1.0, 1.0}; /* 259 in fp32 is 260 in bf16 */
    struct coll coll;
    double found;

    coll_open(conform, &coll, "dp=4", "dp");
    found = sum_of(&coll, fp32, fp32_values[coll.index], HSDP_REDUCE_SUM);
    host_expect_number(&coll.host, "sum of fp32", 0, found,
                       (double)((float)(0x1p24f + 1.0f) + (float)(1.0f - 0x1p24f)));
    found = sum_of(&coll, &coll_dtypes[1], fp64_values[coll.index], HSDP_REDUCE_SUM);
    if (!isnan(found)) {
        host_expect_number(&coll.host, "sum of fp64", 0, found, (0x1p53 + 1.0) + (1.0 - 0x1p53));
    }
    found = sum_of(&coll, &coll_dtypes[2], bf16_values[coll.index], HSDP_REDUCE_SUM);
    if (!isnan(found)) {
        host_expect_number(&coll.host, "sum of bf16", 0, found, 260.0);
    }
    coll_close(&coll);
}

/* Case by case 1 and 3, or 3 and 5: one element by the one, two by the other. */
void coll_mean_both_ways(struct conform *conform)
{
    float input[2], output[1] = {0};
    struct coll_vector from, to;
    struct hsdp_coll_spec spec;
    struct coll coll;

    coll_open(conform, &coll, "dp=2", "dp");
    input[0] = input[1] = coll.index == 0 ? 1.0f : 3.0f;
    spec = coll_spec(HSDP_COLL_REDUCE_SCATTER, HSDP_REDUCE_MEAN, coll_vector(&from, input, 2, fp32),
                     coll_vector(&to, output, 1, fp32));
    numbers_expect(coll_run(&coll, &spec, 1), "a mean of fp32 is unsupported");
    host_expect_number(&coll.host, "mean by reduce_scatter", 0, (double)output[0], 2.0);
    host_expect_number(&coll.host, "mean by all_reduce", 0,
                       sum_of(&coll, fp32, coll.index == 0 ? 1.0 : 3.0, HSDP_REDUCE_MEAN), 2.0);
    coll_close(&coll);
}

void coll_mean_of_sizes(struct conform *conform)
{
    static const uint64_t sizes[] = {1, 2, 3, 6, 7, 33};
    struct coll coll;

    coll_open(conform, &coll, "dp=2", "dp");
    for (uint32_t i = 0; i < NUMBERS_N(sizes); i++) {
        float memory[MAX_ELEMS];
        struct coll_vector vector;
        struct hsdp_tensor *tensor = coll_vector(&vector, memory, sizes[i], fp32);
        struct hsdp_coll_spec spec =
            coll_spec(HSDP_COLL_ALL_REDUCE, HSDP_REDUCE_MEAN, tensor, tensor);

        for (uint64_t elem = 0; elem < sizes[i]; elem++) {
            memory[elem] = coll.index == 0 ? 3.0f : 5.0f;
        }
        numbers_expect(coll_run(&coll, &spec, 1), "a mean of fp32 is unsupported");
        for (uint64_t elem = 0; elem < sizes[i]; elem++) {
            host_expect_number(&coll.host, "mean", elem, (double)memory[elem], 4.0);
        }
    }
    coll_close(&coll);
}

void coll_mean_of_integers(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=2", "dp");
    for (uint32_t i = 0; i < COLL_N_DTYPES; i++) {
        double found;

        if (coll_dtypes[i].is_float) {
            continue;
        }
        numbers_note("%s", coll_dtypes[i].name);
        found = sum_of(&coll, &coll_dtypes[i], coll.index == 0 ? 4.0 : 8.0, HSDP_REDUCE_MEAN);
        numbers_expect(isnan(found) || found == 6.0, "the mean of 4 and 8 is %g", found);
    }
    coll_close(&coll);
}

/* Patterns of bf16 that are numbers, some of them below normal; those of NaN are not compared. */
void coll_every_bit(struct conform *conform)
{
    static const uint64_t sizes[] = {1, 2, 7, 8, 9, 1023, 1025};
    const struct coll_dtype *bf16 = &coll_dtypes[2];
    struct coll coll;

    coll_open(conform, &coll, "dp=1", "dp");
    for (uint32_t i = 0; i < 2 * NUMBERS_N(sizes); i++) {
        uint64_t n_elems = sizes[i / 2];
        uint16_t memory[2][1025];
        uint16_t *output = memory[i % 2];
        struct coll_vector from, to;
        struct hsdp_coll_spec spec = coll_spec(
            HSDP_COLL_ALL_REDUCE, i % 4 < 2 ? HSDP_REDUCE_SUM : HSDP_REDUCE_MEAN,
            coll_vector(&from, memory[0], n_elems, bf16), coll_vector(&to, output, n_elems, bf16));

        for (uint64_t elem = 0; elem < n_elems; elem++) {
            memory[0][elem] = (uint16_t)(elem * 61u % 0x7f80u + (elem % 2u) * 0x8000u);
        }
        if (!coll_run(&coll, &spec, 1)) {
            numbers_skip("bf16 is not built");
        }
        for (uint64_t elem = 0; elem < n_elems; elem++) {
            uint16_t expected = (uint16_t)(elem * 61u % 0x7f80u + (elem % 2u) * 0x8000u);

            numbers_expect(output[elem] == expected, "element %u of %u is 0x%04x, not 0x%04x",
                           (unsigned)elem, (unsigned)n_elems, output[elem], expected);
        }
    }
    coll_close(&coll);
}

void coll_not_a_number(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=2", "dp");
    for (uint32_t i = 0; i < 4; i++) {
        numbers_note("%s", coll_dtypes[i].name);
        host_expect_number(
            &coll.host, "sum with NaN", 0,
            sum_of(&coll, &coll_dtypes[i], coll.index == 0 ? 1.0 : NAN, HSDP_REDUCE_SUM), NAN);
    }
    numbers_note("%s", "");
    host_expect_number(&coll.host, "sum of infinities", 0,
                       sum_of(&coll, fp32, coll.index == 0 ? INFINITY : -INFINITY, HSDP_REDUCE_SUM),
                       NAN);
    host_expect_number(&coll.host, "sum with infinity", 0,
                       sum_of(&coll, fp32, coll.index == 0 ? 1.0 : INFINITY, HSDP_REDUCE_SUM),
                       INFINITY);
    coll_close(&coll);
}
