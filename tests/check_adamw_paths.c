/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on every path against its formula, one element after another, with all that it writes. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/kernels.h"
#include "kernel_values.h"
#include "suite.h"

enum {
    MAX_ELEMS = 1100,
    MAX_OFFSET = 32, /* elements by which arrays are off a line of the cache */
    MAX_COPIES = 3,
    ROOM = MAX_ELEMS + 2 * MAX_OFFSET,
    N_CASES = 20, /* of a test, in each of its processes */
};

static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
static const float divisors[] = {0.0f, 1.0f, 4.0f, 3.0f, 0.1f};
static const struct adamw_hyper hyper = {1e-3, 0.1, 0.9, 0.95, 1e-8};

/* All that an update reads and writes. */
struct scene {
    uint64_t state;
    float params[ROOM] __attribute__((aligned(64))); /* of the dtype of the shard */
    float exp_avg[ROOM] __attribute__((aligned(64)));
    float exp_avg_sq[ROOM] __attribute__((aligned(64)));
    float grads[ROOM] __attribute__((aligned(64)));
    float copies[MAX_COPIES][ROOM] __attribute__((aligned(64)));
    void *copy_starts[MAX_COPIES];
    struct adamw_shard shard;
    float factor;
};

static struct scene drawn, expected, found; /* every test runs in a process of its own */

static uint32_t below(uint32_t limit)
{
    return values_below(&drawn.state, limit);
}

static void scene_draw(uint64_t seed)
{
    float wide[ROOM];
    uint32_t kind;

    memset(&drawn, 0, sizeof(drawn));
    drawn.state = seed;
    kind = below(VALUES_N_KINDS);
    drawn.shard.params_dtype = dtypes[below(3)];
    drawn.shard.copies_dtype = dtypes[below(3)];
    drawn.shard.n_copies = below(MAX_COPIES + 1);
    drawn.shard.are_copies_streamed = below(3) != 0;
    drawn.shard.grads_divisor = divisors[below(5)];
    drawn.shard.n_elems = below(3) == 0 ? below(70) : below(MAX_ELEMS + 1);
    drawn.factor = below(2) == 0 ? 1.0f : 0.3f;
    for (size_t i = 0; i < ROOM; i++) {
        wide[i] = values_kind(&drawn.state, kind);
        drawn.exp_avg[i] = values_kind(&drawn.state, kind);
        drawn.exp_avg_sq[i] = fabsf(values_kind(&drawn.state, kind));
        drawn.grads[i] = values_kind(&drawn.state, kind);
    }
    cast_from_fp32(drawn.params, drawn.shard.params_dtype, wide, ROOM);
}

/* A scene of the arrays that were drawn, which begin anywhere. */
static void scene_place(struct scene *scene, uint64_t seed)
{
    bool is_alike = values_below(&seed, 2) == 0; /* otherwise nothing can be streamed */
    uint32_t offset = values_below(&seed, MAX_OFFSET);

    scene->shard.params = (char *)scene->params +
                          values_below(&seed, MAX_OFFSET) * dtype_bytes(scene->shard.params_dtype);
    scene->shard.exp_avg = scene->exp_avg + values_below(&seed, MAX_OFFSET);
    scene->shard.exp_avg_sq = scene->exp_avg_sq + values_below(&seed, MAX_OFFSET);
    scene->shard.grads = scene->grads + values_below(&seed, MAX_OFFSET);
    for (uint32_t i = 0; i < MAX_COPIES; i++) {
        offset = is_alike ? offset : values_below(&seed, MAX_OFFSET);
        scene->copy_starts[i] =
            (char *)scene->copies[i] + offset * dtype_bytes(scene->shard.copies_dtype);
    }
    scene->shard.copies = scene->copy_starts;
}

/* The formula of adamw.h. */
static void literal_update(const struct adamw_constants *c, const struct adamw_shard *shard,
                           size_t i, float factor)
{
    char *param = (char *)shard->params + i * dtype_bytes(shard->params_dtype);
    float divisor = shard->grads_divisor;
    float g = (divisor == 0.0f ? shard->grads[i] : shard->grads[i] / divisor) * factor;
    float m = (c->beta1 * shard->exp_avg[i]) + (c->one_minus_beta1 * g);
    float v = (c->beta2 * shard->exp_avg_sq[i]) + ((c->one_minus_beta2 * g) * g);
    float p;

    cast_to_fp32(&p, param, shard->params_dtype, 1);
    p = p * c->decay;
    p = p - ((c->step_size * m) / ((sqrtf(v) / c->bias2_sqrt) + c->epsilon));
    shard->exp_avg[i] = m;
    shard->exp_avg_sq[i] = v;
    cast_from_fp32(param, shard->params_dtype, &p, 1);
    cast_to_fp32(&p, param, shard->params_dtype, 1);
    for (uint32_t k = 0; k < shard->n_copies; k++) {
        cast_from_fp32((char *)shard->copies[k] + i * dtype_bytes(shard->copies_dtype),
                       shard->copies_dtype, &p, 1);
    }
}

/* Whole arrays, what lies before and behind the elements too; NaNs alone may be others. */
static void arrays_expect(const void *array, const void *other, enum dtype dtype, const char *what)
{
    float wide[2][ROOM];

    cast_to_fp32(wide[0], array, dtype, ROOM);
    cast_to_fp32(wide[1], other, dtype, ROOM);
    for (size_t i = 0; i < ROOM; i++) {
        if (fp32_bits(wide[0][i]) != fp32_bits(wide[1][i]) &&
            !(isnan(wide[0][i]) && isnan(wide[1][i]))) {
            ck_abort_msg("%s: element %zu is %a, not %a", what, i, (double)wide[0][i],
                         (double)wide[1][i]);
        }
    }
}

static void found_expect(const char *path)
{
    arrays_expect(found.params, expected.params, drawn.shard.params_dtype, path);
    arrays_expect(found.exp_avg, expected.exp_avg, DTYPE_FP32, path);
    arrays_expect(found.exp_avg_sq, expected.exp_avg_sq, DTYPE_FP32, path);
    arrays_expect(found.grads, drawn.grads, DTYPE_FP32, path);
    for (uint32_t i = 0; i < MAX_COPIES; i++) {
        arrays_expect(found.copies[i], expected.copies[i], drawn.shard.copies_dtype, path);
    }
}

START_TEST(adamw_on_every_path_is_its_formula)
{
    for (uint64_t seed = (uint64_t)_i * N_CASES; seed < (uint64_t)(_i + 1) * N_CASES; seed++) {
        struct adamw_constants constants = adamw_constants_compute(&hyper, seed % 2 ? 3 : 100000);

        scene_draw(seed);
        expected = drawn;
        scene_place(&expected, seed);
        for (size_t i = 0; i < drawn.shard.n_elems; i++) {
            literal_update(&constants, &expected.shard, i, drawn.factor);
        }
        for (uint32_t p = 0; p < kernels_n_paths(); p++) {
            found = drawn;
            scene_place(&found, seed);
            kernels_path(p)->adamw(&constants, &found.shard, drawn.factor);
            found_expect(kernels_path(p)->path);
        }
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("adamw_paths");
    TCase *tcase = tcase_create("paths");

    tcase_add_loop_test(tcase, adamw_on_every_path_is_its_formula, 0, 25);
    suite_add_tcase(suite, tcase);
    return suite;
}
