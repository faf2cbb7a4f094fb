/* SPDX-License-Identifier: Apache-2.0 */
/* Sums on every path, with all that is done on the way: copies, streams, and the norm. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/kernels.h"
#include "kernel_values.h"
#include "suite.h"

enum {
    MAX_ELEMS = 1100,
    MAX_OFFSET = 16, /* elements by which arrays are off a line of the cache */
    MAX_COPIES = 3,
    ROOM = MAX_ELEMS + 2 * MAX_OFFSET,
    N_CASES = 40, /* of a test, in each of its processes */
};

static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
static const float divisors[] = {1.0f,     2.0f,      3.0f,     0.375f,
                                 0x1p126f, 0x1p-126f, 0x1p127f, 0x1p-149f};
static const double powers[] = {1, 2, 3};

/* One sum, and where it goes: all arrays in memory of their own. */
struct scene {
    uint64_t state;
    float sources[REDUCE_MAX_SOURCES][ROOM];
    const void *starts[REDUCE_MAX_SOURCES];
    enum dtype source_dtypes[REDUCE_MAX_SOURCES];
    uint32_t dim_sizes[REDUCE_MAX_DIMS];
    uint32_t n_sources;
    float dst[ROOM] __attribute__((aligned(64)));
    float copies[MAX_COPIES][ROOM] __attribute__((aligned(64)));
    float *copy_starts[MAX_COPIES];
    struct norm_sum sum;
    struct reduce_norm norm;
    struct reduce_spec spec;
};

static struct scene drawn, plain, found; /* every test runs in a process of its own */

static uint32_t below(uint32_t limit)
{
    return values_below(&drawn.state, limit);
}

/* Dimensions of at most 64 sources together. */
static void dims_draw(void)
{
    uint32_t room = 1 + below(REDUCE_MAX_SOURCES);

    drawn.spec.n_dims = below(4);
    drawn.n_sources = 1;
    for (uint32_t dim = 0; dim < drawn.spec.n_dims; dim++) {
        drawn.dim_sizes[dim] = 1 + below(room);
        drawn.n_sources *= drawn.dim_sizes[dim];
        room /= drawn.dim_sizes[dim];
    }
}

static void sources_draw(void)
{
    bool is_alike = below(2) == 0;
    enum dtype dtype = dtypes[below(3)];
    uint32_t kind = below(VALUES_N_KINDS);

    for (uint32_t i = 0; i < drawn.n_sources; i++) {
        drawn.source_dtypes[i] = is_alike ? dtype : dtypes[below(3)];
        for (size_t k = 0; k < ROOM; k++) {
            drawn.sources[i][k] = values_kind(&drawn.state, kind);
        }
    }
    drawn.spec.wire_dtype = below(2) == 0 ? dtype : dtypes[below(3)];
    for (size_t k = 0; k < ROOM; k++) {
        drawn.dst[k] = values_kind(&drawn.state, kind);
    }
}

static void scene_draw(uint64_t seed)
{
    memset(&drawn, 0, sizeof(drawn));
    drawn.state = seed;
    dims_draw();
    sources_draw();
    drawn.spec.n_elems = below(3) == 0 ? below(40) : below(MAX_ELEMS + 1);
    drawn.spec.n_copies = below(MAX_COPIES + 1);
    drawn.spec.is_streamed = below(3) != 0;
    drawn.spec.accumulate = below(3) == 0;
    drawn.norm.p = powers[below(3)];
    drawn.norm.divisor = divisors[below(8)];
}

/* A scene of the arrays that were drawn; offsets come from a state of its own. */
static void scene_place(struct scene *scene, uint64_t seed)
{
    bool is_alike = values_below(&seed, 2) == 0; /* otherwise nothing can be streamed */
    uint32_t offset = values_below(&seed, MAX_OFFSET);
    uint32_t in_place = values_below(&seed, 4 * scene->n_sources); /* of most, none */

    for (uint32_t i = 0; i < scene->n_sources; i++) {
        scene->starts[i] = values_below(&seed, 6) == 0 ? NULL : scene->sources[i] + i % MAX_OFFSET;
    }
    scene->spec.dst = scene->dst + offset;
    for (uint32_t i = 0; i < MAX_COPIES; i++) {
        scene->copy_starts[i] =
            scene->copies[i] + (is_alike ? offset : values_below(&seed, MAX_OFFSET));
    }
    if (in_place < scene->n_sources && scene->source_dtypes[in_place] == DTYPE_FP32) {
        scene->spec.dst = scene->sources[in_place] + in_place % MAX_OFFSET;
        scene->starts[in_place] = scene->spec.dst;
    }
    scene->norm.sum = &scene->sum;
    scene->spec.sources = scene->starts;
    scene->spec.source_dtypes = scene->source_dtypes;
    scene->spec.dim_sizes = scene->dim_sizes;
    scene->spec.copies = scene->copy_starts;
    scene->spec.norm = &scene->norm;
}

static bool same(float left, float right)
{
    return fp32_bits(left) == fp32_bits(right) || (isnan(left) && isnan(right));
}

/* All of dst, behind its end too; and each copy has its bits, between bytes that nobody wrote. */
static void found_expect(const char *path, uint64_t seed)
{
    const struct reduce_spec *spec = &found.spec;

    for (size_t i = 0; i < spec->n_elems + 1; i++) {
        if (!same(spec->dst[i], plain.spec.dst[i])) {
            ck_abort_msg("%s, seed %d: element %zu is %a, not %a", path, (int)seed, i,
                         (double)spec->dst[i], (double)plain.spec.dst[i]);
        }
    }
    for (uint32_t i = 0; i < MAX_COPIES; i++) {
        size_t before = (size_t)(found.copy_starts[i] - found.copies[i]);
        size_t n_elems = i < spec->n_copies ? spec->n_elems : 0;

        ck_assert_mem_eq(found.copy_starts[i], spec->dst, n_elems * sizeof(float));
        ck_assert_mem_eq(found.copies[i], drawn.copies[i], before * sizeof(float));
        ck_assert_mem_eq(found.copy_starts[i] + n_elems, drawn.copies[i] + before + n_elems,
                         (ROOM - before - n_elems) * sizeof(float));
    }
}

/* The norm of what the plain sum left, divided one by one. */
static struct norm_sum norm_expected(void)
{
    struct norm_sum sum = {{0}, 0, 0};
    float quotients[MAX_ELEMS];

    for (size_t i = 0; i < drawn.spec.n_elems; i++) {
        quotients[i] = plain.spec.dst[i] / drawn.norm.divisor;
    }
    norm_sum_add(&sum, quotients, drawn.spec.n_elems, drawn.norm.p);
    return sum;
}

START_TEST(tree_with_copies_streams_and_norm_is_the_plain_sum)
{
    for (uint64_t seed = (uint64_t)_i * N_CASES; seed < (uint64_t)(_i + 1) * N_CASES; seed++) {
        struct norm_sum norm;

        scene_draw(seed);
        plain = drawn;
        scene_place(&plain, seed);
        plain.spec.n_copies = 0;
        plain.spec.is_streamed = false;
        plain.spec.norm = NULL;
        reduce_tree(&plain.spec);
        norm = norm_expected();
        for (uint32_t p = 0; p < kernels_n_paths(); p++) {
            found = drawn;
            scene_place(&found, seed);
            kernels_path(p)->tree(&found.spec);
            found_expect(kernels_path(p)->path, seed);
            ck_assert_mem_eq(&found.sum, &norm, sizeof(norm));
        }
    }
}
END_TEST

/* Lines of the cache that begin anywhere in the arrays, on lengths that end anywhere. */
START_TEST(tree_streams_any_end_and_beginning)
{
    for (uint32_t p = 0; p < kernels_n_paths(); p++) {
        for (uint32_t n_elems = 0; n_elems < 70; n_elems++) {
            scene_draw((uint64_t)_i);
            drawn.spec.n_dims = 0;
            drawn.n_sources = 1;
            drawn.source_dtypes[0] = DTYPE_FP32;
            drawn.spec.wire_dtype = DTYPE_FP32;
            drawn.spec.n_elems = n_elems;
            drawn.spec.n_copies = 1;
            drawn.spec.is_streamed = true;
            drawn.spec.accumulate = false;
            plain = drawn;
            found = drawn;
            scene_place(&found, 0);
            found.starts[0] = found.sources[0];
            found.spec.dst = found.dst + _i;
            found.copy_starts[0] = found.copies[0] + _i;
            plain.spec.dst = plain.dst + _i;
            memcpy(plain.spec.dst, drawn.sources[0], n_elems * sizeof(float));
            kernels_path(p)->tree(&found.spec);
            found_expect(kernels_path(p)->path, (uint64_t)_i);
        }
    }
}
END_TEST

/* A power of two has an exact reciprocal, or one that no fp32 holds; others have none. */
START_TEST(divide_by_any_power_of_two_is_a_true_division)
{
    float values[70];
    uint64_t state = (uint64_t)_i;

    for (int exponent = -149; exponent <= 127; exponent++) {
        float divisor = ldexpf((_i & 1) == 0 ? 1.0f : -1.5f, exponent);

        for (uint32_t p = 0; p < kernels_n_paths(); p++) {
            float quotients[70];

            for (size_t i = 0; i < 70; i++) {
                values[i] = values_kind(&state, (uint32_t)_i / 2);
            }
            memcpy(quotients, values, sizeof(values));
            kernels_path(p)->divide(quotients, divisor, 69);
            for (size_t i = 0; i < 70; i++) {
                float expected = i < 69 ? values[i] / divisor : values[i];

                ck_assert_msg(same(quotients[i], expected), "%s: %a / %a is %a, not %a",
                              kernels_path(p)->path, (double)values[i], (double)divisor,
                              (double)quotients[i], (double)expected);
            }
        }
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("reduce_paths");
    TCase *tcase = tcase_create("paths");

    tcase_add_loop_test(tcase, tree_with_copies_streams_and_norm_is_the_plain_sum, 0, 25);
    tcase_add_loop_test(tcase, tree_streams_any_end_and_beginning, 0, MAX_OFFSET);
    tcase_add_loop_test(tcase, divide_by_any_power_of_two_is_a_true_division, 0,
                        2 * VALUES_N_KINDS);
    suite_add_tcase(suite, tcase);
    return suite;
}
