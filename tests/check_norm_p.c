/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with norms of p between 1 and 8: right, and the same bits with every strategy. */
#include <check.h>
#include <math.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS 4u
#define DIMS    "dp=2,ep=2"
#define UNITS   "unit a: w[1031] s[]; class expert(dp); unit e: x[37,5] y[3]; unit f: z[2,129]!"

static const double powers[] = {1.25, 2.5, 3.0, 8.0};

/* A step of one strategy: sums of |g|^p as the host finds them, and what the step says. */
struct stepping {
    double p;
    double dense;      /* the same on all ranks: rank 0's */
    double experts[2]; /* each ep rank has its own: those of dp 0 */
    struct hsdp_step_info infos[N_RANKS];
};

static double gradient(struct host_at at)
{
    uint64_t x = (at.rank + 1) * UINT64_C(0x9e3779b97f4a7c15) + at.elem + 7919u * at.param;

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return ldexp((double)(x >> 11) * 0x1p-52 - 1.0, (int)(x % 31u) - 20);
}

static float bad_value; /* of the test that runs: the ranks inherit it */

static double gradient_bad(struct host_at at)
{
    bool is_it = at.rank == 2 && at.param == 0 && at.elem == 1030;

    return is_it && bad_value != 0.0f ? (double)bad_value : gradient(at);
}

/* |g|^p of one parameter, summed in long double. */
static long double param_powers(struct host *host, uint32_t param, double p)
{
    const float *grads = host_export(host, param, HSDP_FLAT_GRAD);
    long double sum = 0.0L;

    for (uint64_t i = 0; i < host->params[param].n_elems; i++) {
        sum += powl(fabsl((long double)grads[i]), p);
    }
    return sum;
}

static void reference_take(struct host *host, struct stepping *stepping)
{
    double p = stepping->p;
    double dense = (double)(param_powers(host, host_param(host, "w"), p) +
                            param_powers(host, host_param(host, "s"), p));
    double experts = (double)(param_powers(host, host_param(host, "x"), p) +
                              param_powers(host, host_param(host, "y"), p));

    if (host->rank == 0) {
        stepping->dense = dense;
    }
    if (host->rank < 2) {
        stepping->experts[host->rank] = experts;
    }
}

static void step_rank(uint32_t rank, void *memory)
{
    struct stepping *stepping = memory;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    struct host host;

    host_open(&host, rank, DIMS, host_settings, UNITS);
    host_backward(&host, HSDP_SCOPE_FULL, 0, gradient_bad);
    spec.norm_p = stepping->p;
    spec.max_norm = 0.5;
    spec.gradient_scale = 0.25;
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must(&host, host.api->step->result(host.model, &info, &host.err));
    stepping->infos[rank] = info;
    reference_take(&host, stepping);
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_close(&host);
}

static double reference_of(const struct stepping *stepping)
{
    long double sum = (long double)stepping->dense + stepping->experts[0] + stepping->experts[1];

    return 0.25 * (double)powl(sum, 1.0L / stepping->p);
}

static struct stepping *step_run(int strategy, double p)
{
    struct stepping *stepping = ranks_memory(sizeof(*stepping));

    stepping->p = p;
    host_settings_set(strategy, "");
    ranks_run(N_RANKS, RANKS_LIMIT_MS, step_rank, stepping);
    return stepping;
}

START_TEST(norm_of_any_p_is_that_of_the_gradients)
{
    struct stepping *stepping = step_run(_i % HOST_N_STRATEGIES, powers[_i / HOST_N_STRATEGIES]);
    double norm = stepping->infos[0].norm;

    ck_assert_double_eq_tol(norm / reference_of(stepping), 1.0, 1e-14);
    ck_assert_double_eq(stepping->infos[0].clip, 0.5 / (norm + 1e-6));
    ck_assert_uint_eq(stepping->infos[0].is_nonfinite, 0);
}
END_TEST

START_TEST(norm_of_any_p_has_the_same_bits_with_every_strategy)
{
    double norm = step_run(0, powers[_i])->infos[0].norm;

    ck_assert_double_gt(norm, 0.5);
    for (int strategy = 0; strategy < HOST_N_STRATEGIES; strategy++) {
        struct stepping *stepping = step_run(strategy, powers[_i]);

        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
            ck_assert_double_eq(stepping->infos[rank].norm, norm);
        }
    }
}
END_TEST

START_TEST(norm_of_any_p_with_a_bad_element_is_flagged_on_every_rank)
{
    struct stepping *stepping;

    bad_value = _i % 2 == 0 ? -INFINITY : NAN;
    stepping = step_run(_i / 2, 2.5);
    for (uint32_t rank = 0; rank < N_RANKS; rank++) {
        const struct hsdp_step_info *info = &stepping->infos[rank];

        ck_assert_uint_eq(info->is_nonfinite, 1);
        ck_assert(_i % 2 == 0 ? isinf(info->norm) : isnan(info->norm));
        ck_assert_double_eq(info->factor, 0.25);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("norm_p");
    TCase *tcase = tcase_create("norm_p");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, norm_of_any_p_is_that_of_the_gradients, 0,
                        N_OF(powers) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, norm_of_any_p_has_the_same_bits_with_every_strategy, 0,
                        N_OF(powers));
    tcase_add_loop_test(tcase, norm_of_any_p_with_a_bad_element_is_flagged_on_every_rank, 0,
                        2 * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
