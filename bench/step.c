/* SPDX-License-Identifier: Apache-2.0 */
/* What an optimizer step costs: clip, AdamW and publish, beside moving the same bytes; small ones.
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/kernels.h"
#include "figures.h"
#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

/*
 * A host of one rank, through the public tables. The large model has one parameter; its step, from
 * begin to end, is set beside a loop that reads and writes as many bytes in as many streams:
 *
 *     read     gradient, master, exp_avg, exp_avg_sq         4 bytes an element each
 *     written  master, exp_avg, exp_avg_sq                   likewise
 *              the published parameter, where it is apart    2, in bf16
 */
#define MAX_ROUNDS 1000u
#define N_PHASES   4u

static struct hsdp_error err = HSDP_ERROR_INIT;
static const struct hsdp_api *api;
static const struct hsdp_adamw_ops *adamw;
static hsdp_job *job;

static void must(int32_t status)
{
    if (status < 0) {
        fprintf(stderr, "bench-step: %s\n", err.message);
        exit(EXIT_FAILURE);
    }
}

static void job_begin(hsdp_plugin **ret_plugin)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    const void *table;

    spec.world_ranks = 1;
    must(hsdp_plugin_load(NULL, ret_plugin, &err));
    api = hsdp_plugin_api(*ret_plugin);
    must(api->extension(HSDP_ADAMW_EXTENSION, &table, &err));
    adamw = table;
    must(api->job->create(&spec, &job, &err));
    must(api->job->connect(job, &err));
}

/* --------------------------------------------------------------------------------- models */

struct shape {
    const char *param_dtype;
    uint32_t n_units;
    uint32_t n_params; /* of each unit */
    int64_t n_elems;   /* of each parameter */
};

struct bench_model {
    hsdp_model *model;
    uint32_t *order; /* units in the order of a backward pass */
    uint32_t n_units;
};

static void params_add(hsdp_plan *plan, const struct shape *shape, uint32_t unit)
{
    for (uint32_t i = 0; i < shape->n_params; i++) {
        struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
        uint32_t index;
        char name[32];

        snprintf(name, sizeof(name), "p%" PRIu32 ".%" PRIu32, unit, i);
        param.name = name;
        param.shape = &shape->n_elems;
        param.n_dims = 1;
        param.unit = unit;
        must(api->plan->add_param(plan, &param, &index, &err));
    }
}

static void model_make(const struct shape *shape, struct bench_model *ret)
{
    const char *const keys[] = {"param_dtype", "accumulation_scope"};
    const char *const values[] = {shape->param_dtype, "full"};
    const struct hsdp_settings settings = {keys, values, 2};
    const char *const dims[] = {"dp"};
    const int64_t sizes[] = {1};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    hsdp_mesh *mesh;
    hsdp_plan *plan;
    uint32_t index;

    spec.dim_names = dims;
    spec.dim_sizes = sizes;
    spec.n_dims = 1;
    spec.world_ranks = 1;
    dense.name = "dense";
    must(api->mesh->create(&spec, &mesh, &err));
    must(api->plan->create(mesh, &settings, &plan, &err));
    must(api->plan->add_class(plan, &dense, &index, &err));
    for (uint32_t unit = 0; unit < shape->n_units; unit++) {
        char name[32];

        snprintf(name, sizeof(name), "u%" PRIu32, unit);
        must(api->plan->add_unit(plan, name, 0, &index, &err));
        params_add(plan, shape, unit);
    }
    must(api->plan->finish(plan, &err));
    must(api->model->create(job, plan, &ret->model, &err));
    api->plan->destroy(plan);
    api->mesh->destroy(mesh);
    ret->n_units = shape->n_units;
    ret->order = malloc(shape->n_units * sizeof(*ret->order));
    for (uint32_t i = 0; ret->order != NULL && i < shape->n_units; i++) {
        ret->order[i] = shape->n_units - 1 - i;
    }
    if (ret->order == NULL) {
        fprintf(stderr, "bench-step: no memory for %" PRIu32 " units\n", shape->n_units);
        exit(EXIT_FAILURE);
    }
}

static void model_drop(struct bench_model *model)
{
    api->model->destroy(model->model);
    free(model->order);
}

/* ------------------------------------------------------------------------ a step, in phases */

enum phase { PHASE_BACKWARD, PHASE_BEGIN, PHASE_UPDATE, PHASE_END };

/* Other gradients each time; every one of them is written. */
static void unit_fill(hsdp_model *model, uint32_t first_param, uint32_t n_params, uint32_t round)
{
    for (uint32_t i = 0; i < n_params; i++) {
        struct hsdp_tensor grad;
        float *values;

        must(api->model->param_view(model, first_param + i, HSDP_VIEW_GRAD, &grad, &err));
        values = (float *)((char *)grad.base + grad.byte_offset);
        for (int64_t e = 0; e < grad.shape[0]; e++) {
            values[e] = (float)((e + round) % 1021 - 510) * 0x1p-10f;
        }
    }
}

/* Unshards, hands over and releases every unit; filling gradients is not counted. */
static uint64_t backward_run(const struct bench_model *model, const struct shape *shape,
                             uint32_t round)
{
    uint64_t ns = 0;
    uint64_t at_ns = clock_now_ns();
    uint64_t pass;

    must(api->unit->backward_begin(model->model, model->order, model->n_units, HSDP_SCOPE_FULL,
                                   &pass, &err));
    for (uint32_t i = 0; i < model->n_units; i++) {
        uint32_t unit = model->order[i];

        must(api->unit->unshard(model->model, unit, HSDP_USE_BACKWARD_SET, NULL, NULL, &err));
        ns += clock_now_ns() - at_ns;
        unit_fill(model->model, unit * shape->n_params, shape->n_params, round);
        at_ns = clock_now_ns();
        must(api->unit->reduce(model->model, pass, unit, NULL, NULL, &err));
        must(api->unit->release(model->model, unit, NULL, &err));
    }
    must(api->unit->backward_end(model->model, pass, NULL, NULL, &err));
    return ns + clock_now_ns() - at_ns;
}

static void step_run(const struct bench_model *model, const struct shape *shape, uint32_t round,
                     uint64_t ret_ns[N_PHASES])
{
    static const double rate = 1e-3;
    static const double decay = 0.1;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct hsdp_adamw_spec update = HSDP_ADAMW_SPEC_INIT;
    uint64_t at_ns[N_PHASES];

    spec.max_norm = 1.0;
    update.learning_rate = &rate;
    update.weight_decay = &decay;
    update.n_hyper_groups = 1;
    update.beta1 = 0.9;
    update.beta2 = 0.95;
    update.epsilon = 1e-8;
    ret_ns[PHASE_BACKWARD] = backward_run(model, shape, round);
    at_ns[0] = clock_now_ns();
    must(api->step->begin(model->model, &spec, NULL, &err));
    must(api->step->result(model->model, &result, &err));
    at_ns[1] = clock_now_ns();
    must(adamw->step(model->model, &update, &err));
    at_ns[2] = clock_now_ns();
    must(api->step->end(model->model, NULL, NULL, &err));
    at_ns[3] = clock_now_ns();
    for (uint32_t i = 0; i + 1 < N_PHASES; i++) {
        ret_ns[PHASE_BEGIN + i] = at_ns[i + 1] - at_ns[i];
    }
}

/* ------------------------------------------------------------------------------- the limit */

/* As many streams, in memory that is as good as can be had. */
struct streams {
    float *floats[4]; /* the last one is only read */
    uint16_t *published;
    uint64_t n_elems;
};

static void *stream_map(uint64_t n_bytes)
{
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED) {
        fprintf(stderr, "bench-step: no memory for %" PRIu64 " bytes\n", n_bytes);
        exit(EXIT_FAILURE);
    }
    madvise(base, n_bytes, MADV_HUGEPAGE);
    memset(base, 1, n_bytes);
    return base;
}

static void streams_init(struct streams *ret, uint64_t n_elems)
{
    for (int i = 0; i < 4; i++) {
        ret->floats[i] = stream_map(n_elems * sizeof(float));
    }
    ret->published = stream_map(n_elems * sizeof(uint16_t));
    ret->n_elems = n_elems;
}

static void streams_fini(struct streams *streams)
{
    for (int i = 0; i < 4; i++) {
        munmap(streams->floats[i], streams->n_elems * sizeof(float));
    }
    munmap(streams->published, streams->n_elems * sizeof(uint16_t));
}

/* A line at a time, so that every compiler makes vectors of it. */
#define LINE_ELEMS 16u

/* Nothing that takes longer than the memory does. */
static void line_add(float *restrict p, float *restrict m, float *restrict v,
                     const float *restrict g)
{
    for (uint32_t i = 0; i < LINE_ELEMS; i++) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
    }
}

static uint64_t streams_move(const struct streams *streams, bool is_published)
{
    float *const *floats = streams->floats;
    uint64_t start_ns = clock_now_ns();

    for (uint64_t i = 0; i + LINE_ELEMS <= streams->n_elems; i += LINE_ELEMS) {
        line_add(floats[0] + i, floats[1] + i, floats[2] + i, floats[3] + i);
        if (is_published) {
            memcpy(streams->published + i, floats[0] + i, LINE_ELEMS * sizeof(uint16_t));
        }
    }
    return clock_now_ns() - start_ns;
}

/* ---------------------------------------------------------------------------------- figures */

/* Microseconds of one thing, over all rounds. */
struct figure {
    double us[MAX_ROUNDS];
    double median, fastest, slowest;
};

static void figure_keep(struct figure *figure, uint32_t round, uint64_t ns)
{
    figure->us[round] = (double)ns / 1e3;
}

static void figure_settle(struct figure *figure, uint32_t n_rounds)
{
    figure->median = figures_median(figure->us, n_rounds);
    figure->fastest = figure->us[0];
    figure->slowest = figure->us[n_rounds - 1];
}

static void figure_print(const char *words, const struct figure *figure)
{
    printf("%-58s%10.0f%10.0f%10.0f\n", words, figure->median, figure->fastest, figure->slowest);
}

static void head_print(const char *words)
{
    printf("%-58s%10s%10s%10s\n", words, "median", "fastest", "slowest");
}

static FILE *part_open(const char *path)
{
    FILE *file = path == NULL ? NULL : fopen(path, "w");

    if (path != NULL && file == NULL) {
        fprintf(stderr, "bench-step: cannot write %s\n", path);
        exit(EXIT_FAILURE);
    }
    return file;
}

/* Of all rounds of one model. */
struct rounds {
    struct figure phases[N_PHASES];
    struct figure step; /* begin to end */
    struct figure limit;
};

static struct rounds rounds;

static void round_keep(uint32_t round, const uint64_t ns[N_PHASES])
{
    uint64_t step_ns = 0;

    for (uint32_t i = 0; i < N_PHASES; i++) {
        figure_keep(&rounds.phases[i], round, ns[i]);
        step_ns += i == PHASE_BACKWARD ? 0 : ns[i];
    }
    figure_keep(&rounds.step, round, step_ns);
}

static void rounds_settle(uint32_t n_rounds)
{
    for (uint32_t i = 0; i < N_PHASES; i++) {
        figure_settle(&rounds.phases[i], n_rounds);
    }
    figure_settle(&rounds.step, n_rounds);
}

/* ------------------------------------------------------------------------------- large shards */

static void large_run(const char *dtype, uint64_t n_elems, uint32_t n_rounds, FILE *rows)
{
    const struct shape shape = {dtype, 1, 1, (int64_t)n_elems};
    bool is_published = strcmp(dtype, "fp32") != 0;
    uint64_t n_bytes = n_elems * (is_published ? 30u : 28u);
    struct bench_model model;
    struct streams streams;
    uint64_t ns[N_PHASES];
    char words[80];

    model_make(&shape, &model);
    streams_init(&streams, n_elems);
    step_run(&model, &shape, 0, ns); /* warms up, like the next */
    streams_move(&streams, is_published);
    for (uint32_t round = 0; round < n_rounds; round++) {
        step_run(&model, &shape, round + 1, ns);
        round_keep(round, ns);
        figure_keep(&rounds.limit, round, streams_move(&streams, is_published));
    }
    streams_fini(&streams);
    model_drop(&model);
    rounds_settle(n_rounds);
    figure_settle(&rounds.limit, n_rounds);
    snprintf(words, sizeof(words), "a step of %" PRIu64 " parameters, computed in %s, us", n_elems,
             dtype);
    head_print(words);
    figure_print("  begin and result", &rounds.phases[PHASE_BEGIN]);
    figure_print("  hsdp.adamw", &rounds.phases[PHASE_UPDATE]);
    figure_print("  end", &rounds.phases[PHASE_END]);
    figure_print("  all of it", &rounds.step);
    figure_print("  reading and writing as many bytes", &rounds.limit);
    printf("  %.2f times as long\n\n", rounds.step.median / rounds.limit.median);
    if (rows != NULL) {
        fprintf(rows,
                "{\"op\":\"step\",\"dtype\":\"%s\",\"ranks\":1,\"bytes\":%" PRIu64
                ",\"ours_us\":%.1f,\"ours_min_us\":%.1f,\"ours_max_us\":%.1f,\"peer\":null,"
                "\"peer_us\":null,\"ratio\":null,\"limit_us\":%.1f,\"share_of_limit\":%.3f}\n",
                dtype, n_bytes, rounds.step.median, rounds.step.fastest, rounds.step.slowest,
                rounds.limit.median, rounds.limit.median / rounds.step.median);
    }
}

/* --------------------------------------------------------------------------- small parameters */

static void small_run(uint32_t n_units, uint32_t n_params, uint32_t n_rounds, FILE *part)
{
    const struct shape shape = {"fp32", n_units, n_params, 100};
    struct bench_model model;
    uint64_t ns[N_PHASES];
    char words[80];

    model_make(&shape, &model);
    step_run(&model, &shape, 0, ns);
    step_run(&model, &shape, 1, ns);
    for (uint32_t round = 0; round < n_rounds; round++) {
        step_run(&model, &shape, round + 2, ns);
        round_keep(round, ns);
    }
    model_drop(&model);
    rounds_settle(n_rounds);
    snprintf(words, sizeof(words), "%" PRIu32 " parameters of 100 in %" PRIu32 " units, us",
             n_units * n_params, n_units);
    head_print(words);
    figure_print("  a backward pass: unshard, reduce, release", &rounds.phases[PHASE_BACKWARD]);
    figure_print("  begin and result", &rounds.phases[PHASE_BEGIN]);
    figure_print("  hsdp.adamw", &rounds.phases[PHASE_UPDATE]);
    figure_print("  end", &rounds.phases[PHASE_END]);
    figure_print("  the step, from begin to end", &rounds.step);
    printf("\n");
    if (part != NULL) {
        fprintf(part,
                "{\"params\":%" PRIu32 ",\"units\":%" PRIu32
                ",\"pass_us\":%.1f,\"begin_us\":%.1f,\"adamw_us\":%.1f,\"end_us\":%.1f,"
                "\"step_us\":%.1f}\n",
                n_units * n_params, n_units, rounds.phases[PHASE_BACKWARD].median,
                rounds.phases[PHASE_BEGIN].median, rounds.phases[PHASE_UPDATE].median,
                rounds.phases[PHASE_END].median, rounds.step.median);
    }
}

/* ------------------------------------------------------------------------------------- the norm */

/* On every path of this processor, over elements that lie in a cache, as in the last reduction of a
 * window. */
static void norms_run(uint32_t n_rounds, FILE *part)
{
    enum { N_ELEMS = 16384 };
    static float values[N_ELEMS];

    for (uint32_t i = 0; i < N_ELEMS; i++) {
        values[i] = (float)(i % 1021) * 0x1p-10f - 0.5f;
    }
    head_print("the exact norm of 16384 elements, ns an element");
    for (uint32_t i = 0; i < kernels_n_paths(); i++) {
        const struct kernels *kernels = kernels_path(i);
        double median;

        for (uint32_t round = 0; round < n_rounds; round++) {
            struct norm_sum sum = {.n_inf = 0};
            uint64_t start_ns = clock_now_ns();

            kernels->norm_add(&sum, values, N_ELEMS, 2.0);
            figure_keep(&rounds.step, round, clock_now_ns() - start_ns);
        }
        figure_settle(&rounds.step, n_rounds);
        median = rounds.step.median * 1e3 / N_ELEMS;
        printf("  %-56s%10.2f%10.2f%10.2f\n", kernels->path, median,
               rounds.step.fastest * 1e3 / N_ELEMS, rounds.step.slowest * 1e3 / N_ELEMS);
        if (part != NULL) {
            fprintf(part, "{\"norm\":\"%s\",\"ns_per_elem\":%.3f}\n", kernels->path, median);
        }
    }
}

/* ------------------------------------------------------------------------------------- main */

int main(int argc, char **argv)
{
    uint64_t n_elems = 100000000;
    uint32_t n_small = 10000;
    uint32_t n_rounds = 9;
    const char *rows_path = NULL;
    const char *part_path = NULL;
    hsdp_plugin *plugin;
    FILE *rows;
    FILE *part;
    int option;

    while ((option = getopt(argc, argv, "n:s:r:R:o:")) != -1) {
        if (option == 'n') {
            n_elems = figures_option("bench-step", optarg, UINT64_C(10000000000));
        } else if (option == 's') {
            n_small = (uint32_t)figures_option("bench-step", optarg, 1000000);
        } else if (option == 'r') {
            n_rounds = (uint32_t)figures_option("bench-step", optarg, MAX_ROUNDS);
        } else if (option == 'R') {
            rows_path = optarg;
        } else if (option == 'o') {
            part_path = optarg;
        } else {
            fprintf(stderr, "usage: bench-step [-n elements] [-s small parameters] [-r rounds] "
                            "[-R rows file] [-o file]\n");
            return 2;
        }
    }
    job_begin(&plugin);
    rows = part_open(rows_path);
    part = part_open(part_path);
    large_run("fp32", n_elems, n_rounds, rows);
    large_run("bf16", n_elems, n_rounds, rows);
    small_run(n_small, 1, n_rounds, part);
    small_run((n_small + 99) / 100, 100, n_rounds, part);
    norms_run(n_rounds, part);
    if ((rows != NULL && fclose(rows) != 0) || (part != NULL && fclose(part) != 0)) {
        fprintf(stderr, "bench-step: cannot write a part\n");
        return EXIT_FAILURE;
    }
    must(api->job->close(job, &err));
    api->job->destroy(job);
    hsdp_plugin_unload(plugin);
    return EXIT_SUCCESS;
}
