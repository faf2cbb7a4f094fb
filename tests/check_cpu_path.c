/* SPDX-License-Identifier: Apache-2.0 */
/* The job setting cpu_path: which kernels a job uses, and that training does not depend on it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/kernels.h"
#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS   4
#define N_STEPS   3
#define MAX_ELEMS 4096
#define DIMS      "dp=4"
#define UNITS     "unit a: w[1031] s[]; unit b: x[37,5]@1 y[3]; unit c: z[2,521]"

/* What rank 0 ends with. */
struct training {
    const char *path;
    int strategy;
    char found[16]; /* what the job says that it uses */
    uint32_t n_elems;
    float elems[MAX_ELEMS];
    double norms[N_STEPS];
    double factors[N_STEPS];
};

static uint64_t mixed(struct host_at at)
{
    uint64_t x = (at.rank + 1) * UINT64_C(0x9e3779b97f4a7c15) + at.elem + 977u * at.microbatch;

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9) + at.param;
    return x ^ x >> 32;
}

/* 40 binary orders: some are denormal in fp16, which is on the wire. */
static double gradient(struct host_at at)
{
    uint64_t bits = mixed(at);

    return ldexp((double)(bits >> 11) * 0x1p-52 - 1.0, (int)(bits % 41u) - 35);
}

static double weight(struct host_at at)
{
    at.rank = 100;
    return (double)(mixed(at) >> 11) * 0x1p-52 - 1.0;
}

static void values_take(struct host *host, struct training *training)
{
    uint32_t n_elems = 0;

    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values = host_export(host, param, HSDP_FLAT_MASTER);

        ck_assert_uint_le(n_elems + host->params[param].n_elems, MAX_ELEMS);
        if (host->rank == 0) {
            memcpy(training->elems + n_elems, values,
                   host->params[param].n_elems * sizeof(*values));
        }
        n_elems += (uint32_t)host->params[param].n_elems;
    }
    if (host->rank == 0) {
        training->n_elems = n_elems;
    }
}

static void training_rank(uint32_t rank, void *shared)
{
    struct training *training = shared;
    const char *path;
    const char *source;
    char settings[256];
    struct host host;

    snprintf(settings, sizeof(settings),
             "cpu_path=%s sharding_strategy=%s param_dtype=bf16 reduce_dtype=fp16 "
             "gradient_dtype=bf16",
             training->path, host_strategies[training->strategy]);
    host_open(&host, rank, DIMS, settings, UNITS);
    host_must(&host, host.api->job->setting(host.job, "cpu_path", &path, &source, &host.err));
    host_load(&host, weight);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        struct hsdp_step_info result;

        host_backward(&host, HSDP_SCOPE_NONE, 2 * step, gradient);
        host_backward(&host, HSDP_SCOPE_FULL, 2 * step + 1, gradient);
        result = host_step(&host, 1.0);
        if (rank == 0) {
            training->norms[step] = result.norm;
            training->factors[step] = result.factor;
        }
        host_must(&host, host_adamw(&host, 1e-2, 0.1));
        host_step_end(&host);
    }
    if (rank == 0) {
        snprintf(training->found, sizeof(training->found), "%s", path);
    }
    values_take(&host, training);
    host_close(&host);
}

static struct training *training_run(const char *path, int strategy)
{
    struct training *training = ranks_memory(sizeof(*training));

    training->path = path;
    training->strategy = strategy;
    ranks_run(N_RANKS, RANKS_LIMIT_MS, training_rank, training);
    return training;
}

START_TEST(training_on_every_path_gives_the_same_bits)
{
    struct training *plain = training_run("plain", _i);

    ck_assert_str_eq(plain->found, "plain");
    ck_assert_uint_gt(plain->n_elems, 0);
    ck_assert_double_finite(plain->norms[N_STEPS - 1]);
    for (uint32_t i = 1; i < kernels_n_paths(); i++) {
        struct training *training = training_run(kernels_path(i)->path, _i);

        ck_assert_str_eq(training->found, kernels_path(i)->path);
        ck_assert_mem_eq(training->elems, plain->elems, sizeof(plain->elems));
        ck_assert_mem_eq(training->norms, plain->norms, sizeof(plain->norms));
        ck_assert_mem_eq(training->factors, plain->factors, sizeof(plain->factors));
    }
}
END_TEST

/* A job of one rank, created only; its cpu_path and where that came from. */
static void path_expect(const char *given, const char *path, const char *source)
{
    const char *found_path;
    const char *found_source;
    char settings[64] = "";
    struct host host;

    ranks_environment_clear();
    if (given != NULL) {
        snprintf(settings, sizeof(settings), "cpu_path=%s", given);
    }
    host_join(&host, 0, "dp=1", settings);
    host_must(&host,
              host.api->job->setting(host.job, "cpu_path", &found_path, &found_source, &host.err));
    ck_assert_str_eq(found_path, path);
    ck_assert_str_eq(found_source, source);
    host_leave(&host);
}

START_TEST(cpu_path_unset_is_the_fastest_path)
{
    path_expect(NULL, kernels_path(kernels_n_paths() - 1)->path, "derived from the processor");
    path_expect("auto", kernels_path(kernels_n_paths() - 1)->path, "derived from the processor");
}
END_TEST

START_TEST(cpu_path_of_the_host_is_kept)
{
    path_expect("plain", "plain", "host");
}
END_TEST

START_TEST(cpu_path_of_the_environment_is_taken)
{
    setenv("HSDP_CPU_PATH", "plain", 1);
    path_expect(NULL, "plain", "environment");
    unsetenv("HSDP_CPU_PATH");
}
END_TEST

START_TEST(cpu_path_unknown_is_refused)
{
    const char *const keys[] = {"cpu_path"};
    const char *const values[] = {"sse9"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct host host;
    hsdp_job *job = NULL;

    ranks_environment_clear();
    host_join(&host, 0, "dp=1", "");
    spec.settings.keys = keys;
    spec.settings.values = values;
    spec.settings.n_settings = 1;
    host_must_refuse(&host, host.api->job->create(&spec, &job, &host.err), HSDP_ERR_INVALID,
                     "cpu_path: \"sse9\" is none of: auto plain avx2 avx512");
    host_leave(&host);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("cpu_path");
    TCase *tcase = tcase_create("cpu_path");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, training_on_every_path_gives_the_same_bits, 0, HOST_N_STRATEGIES);
    tcase_add_test(tcase, cpu_path_unset_is_the_fastest_path);
    tcase_add_test(tcase, cpu_path_of_the_host_is_kept);
    tcase_add_test(tcase, cpu_path_of_the_environment_is_taken);
    tcase_add_test(tcase, cpu_path_unknown_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
