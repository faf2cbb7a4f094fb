/* SPDX-License-Identifier: Apache-2.0 */
/* The proof at wrap with ties: it gives gradients through every name and on every stage. */
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static const char *const scopes[] = {"none", "inner", "full"};

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

static void proof_run(int i, const char *more, uint32_t n_ranks,
                      void (*function)(uint32_t rank, void *shared))
{
    char settings[200];

    snprintf(settings, sizeof(settings), "verify=wrap accumulation_scope=%s %s",
             scopes[i / HOST_N_STRATEGIES % 3], more);
    host_settings_set(i % HOST_N_STRATEGIES, settings);
    ranks_run(n_ranks, RANKS_LIMIT_MS, function, NULL);
}

static void names_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings,
              "unit c: z[40]; unit d: v[5] k[3]!; unit a: y[40]=z x[70] k2[3]!=k; "
              "unit b: x2[70]=x z2[40]=z; unit e: w[7]; unit f: x3[70]=x");
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_step(&host, 0.0);
    host_expect_grad(&host, "z", 3.0);
    host_expect_grad(&host, "x", 3.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(verify_wrap_proves_names_in_several_units)
{
    proof_run(_i, "gradient_dtype=bf16", 2, names_rank);
}
END_TEST

static void param_add(struct host *host, const char *name, uint32_t unit, const char *tied_to)
{
    const int64_t shape[] = {70};
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
    uint32_t param;

    spec.name = name;
    spec.unit = unit;
    spec.shape = shape;
    spec.n_dims = 1;
    spec.tied_to = tied_to;
    host_must(host, host->api->plan->add_param(host->plan, &spec, &param, &host->err));
}

/* Parameters may be added in any order over units: storages in the last one, names before. */
static void last_rank(uint32_t rank, void *shared)
{
    static const char *const values[] = {"wrap"};
    static const char *const keys[] = {"verify"};
    const struct hsdp_settings settings = {keys, values, 1};
    struct hsdp_class_spec class = HSDP_CLASS_SPEC_INIT;
    struct host host;
    uint32_t index;

    (void)shared;
    host_join(&host, rank, "dp=2", "");
    host_must(&host, host.api->plan->create(host.mesh, &settings, &host.plan, &host.err));
    class.name = "dense";
    host_must(&host, host.api->plan->add_class(host.plan, &class, &index, &host.err));
    host_must(&host, host.api->plan->add_unit(host.plan, "first", 0, &index, &host.err));
    host_must(&host, host.api->plan->add_unit(host.plan, "middle", 0, &index, &host.err));
    host_must(&host, host.api->plan->add_unit(host.plan, "last", 0, &index, &host.err));
    param_add(&host, "w", 2, NULL);
    param_add(&host, "x", 1, "w");
    param_add(&host, "y", 1, NULL);
    param_add(&host, "z", 0, "y");
    host_must(&host, host.api->plan->finish(host.plan, &host.err));
    host_model(&host);
    host_close(&host);
}

START_TEST(verify_wrap_takes_names_before_their_storage)
{
    ranks_run(2, RANKS_LIMIT_MS, last_rank, NULL);
}
END_TEST

static void stages_rank(uint32_t rank, void *shared)
{
    static const char *const units[] = {
        "unit a: x[9]~pp y[1031]~pp f[3]!~pp; unit b: x2[9]=x",
        "unit c: f[3]!~pp; unit d: w[2050] y[1031]~pp; unit e: x[9]~pp; unit g: x3[9]=x x4[9]=x",
        "unit f: y[1031]~pp k[31]!; unit g: x[9]~pp f[3]!~pp"};
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=3,dp=2", host_settings, units[rank / 2]);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 6.0);
    host_expect_grad(&host, "y", 3.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(verify_wrap_proves_copies_on_stages)
{
    proof_run(_i, _i % 2 == 0 ? "" : "reduce_dtype=bf16", 6, stages_rank);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("ties_proof");
    TCase *tcase = tcase_create("ties_proof");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, verify_wrap_proves_names_in_several_units, 0, 3 * HOST_N_STRATEGIES);
    tcase_add_test(tcase, verify_wrap_takes_names_before_their_storage);
    tcase_add_loop_test(tcase, verify_wrap_proves_copies_on_stages, 0, 2 * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
