/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of every path, each beside a loop that only moves its bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "bus.h"
#include "device/fpmode.h"
#include "device/kernels.h"
#include "figures.h"

#define MAX_ROUNDS  1000u
#define MAX_SOURCES 8u
#define LINE_ELEMS  16u /* the limits' loops take lines, of which every compiler makes vectors */

/* Arrays of (n_elems,), larger than the caches. */
static float *sources[MAX_SOURCES];
static float *outputs[2];
static float *averages[3]; /* params and both averages */
static uint16_t *halves[2];
static uint16_t *published;
static size_t n_elems = (size_t)16 << 20;
static struct norm_sum sum;
static volatile uint64_t read_result;

static void fail(const char *what)
{
    fprintf(stderr, "bench-kernels: %s\n", what);
    exit(EXIT_FAILURE);
}

/* ---------------------------------------------------------------------------------- arrays */

static void *array_map(size_t elem_bytes)
{
    size_t n_bytes = n_elems * elem_bytes;
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED) {
        fail("no memory for the arrays");
    }
    madvise(base, n_bytes, MADV_HUGEPAGE);
    memset(base, 0, n_bytes);
    return base;
}

/* Numbers in [-1/2, 1/2) without much of a pattern. */
static void values_fill(float *values, uint32_t seed)
{
    for (size_t i = 0; i < n_elems; i++) {
        seed = seed * 1664525 + 1013904223;
        values[i] = (float)(int32_t)seed * 0x1p-32f;
    }
}

static void arrays_make(void)
{
    for (uint32_t i = 0; i < MAX_SOURCES; i++) {
        sources[i] = array_map(sizeof(float));
        values_fill(sources[i], i);
    }
    for (uint32_t i = 0; i < 3; i++) {
        averages[i] = array_map(sizeof(float));
    }
    for (uint32_t i = 0; i < 2; i++) {
        outputs[i] = array_map(sizeof(float));
        halves[i] = array_map(sizeof(uint16_t));
        cast_from_fp32(halves[i], DTYPE_BF16, sources[i], n_elems);
    }
    published = array_map(sizeof(uint16_t));
}

/* ---------------------------------------------------------------------------------- kernels */

/* One thing to measure, and the loop that is its limit. */
struct job {
    const char *key; /* in JSON */
    const char *words;
    void (*run)(const struct kernels *kernels, const struct job *job);
    void (*limit)(const struct job *job);
    enum dtype dtype; /* of sources, of what is converted, or of copies */
    uint32_t n_sources;
    uint32_t n_copies;
    bool has_norm;
};

static void sum_run(const struct kernels *kernels, const struct job *job)
{
    const struct reduce_norm norm = {&sum, 2.0, 2.0f};
    const void *starts[MAX_SOURCES];
    struct reduce_spec spec = {.dst = outputs[0], .sources = starts, .n_dims = 1};

    for (uint32_t i = 0; i < job->n_sources; i++) {
        starts[i] = job->dtype == DTYPE_FP32 ? (void *)sources[i] : (void *)halves[i];
    }
    spec.dim_sizes = &job->n_sources;
    spec.n_elems = n_elems;
    spec.source_dtype = job->dtype;
    spec.wire_dtype = job->dtype;
    spec.n_copies = job->n_copies;
    spec.copies = &outputs[1];
    spec.norm = job->has_norm ? &norm : NULL;
    spec.is_streamed = reduce_streams(n_elems * sizeof(float));
    kernels->tree(&spec);
}

static void norm_run(const struct kernels *kernels, const struct job *job)
{
    (void)job;
    kernels->norm_add(&sum, sources[0], n_elems, 2.0);
}

/* By -1, so that it can be repeated; it takes as long as any other power of two. */
static void divide_run(const struct kernels *kernels, const struct job *job)
{
    (void)job;
    kernels->norm_divide_add(&sum, outputs[0], -1.0f, n_elems, 2.0);
}

static void narrow_run(const struct kernels *kernels, const struct job *job)
{
    kernels->from_fp32(published, job->dtype, sources[0], n_elems);
}

static void widen_run(const struct kernels *kernels, const struct job *job)
{
    kernels->to_fp32(outputs[0], halves[0], job->dtype, n_elems);
}

static void adamw_run(const struct kernels *kernels, const struct job *job)
{
    static const struct adamw_hyper hyper = {1e-3, 0.1, 0.9, 0.95, 1e-8};
    const struct adamw_constants constants = adamw_constants_compute(&hyper, 7);
    void *const copy = published;
    struct adamw_shard shard = {.params = averages[0], .params_dtype = DTYPE_FP32};

    shard.exp_avg = averages[1];
    shard.exp_avg_sq = averages[2];
    shard.grads = sources[0];
    shard.n_elems = n_elems;
    shard.grads_divisor = 2.0f;
    shard.copies = &copy;
    shard.n_copies = job->n_copies;
    shard.copies_dtype = job->dtype;
    shard.are_copies_streamed = reduce_streams(n_elems * sizeof(*published));
    kernels->adamw(&constants, &shard, 0.5f);
}

/* ----------------------------------------------------------------------------------- limits */

/* The loops of the widest vectors. */
static void bus_run(const struct bus_work *work)
{
#ifdef HSDP_X86_PATHS
    if (kernels_n_paths() == 3) {
        bus_sum_avx512(work);
        return;
    }
    if (kernels_n_paths() == 2) {
        bus_sum_avx2(work);
        return;
    }
#endif
    bus_sum_plain(work);
}

/* The same sources and destinations. */
static void sum_limit(const struct job *job)
{
    struct bus_work work = {.n_elems = n_elems, .dtype = job->dtype, .n_sources = job->n_sources};

    for (uint32_t i = 0; i < job->n_sources; i++) {
        work.sources[i] = job->dtype == DTYPE_FP32 ? (void *)sources[i] : (void *)halves[i];
    }
    work.n_outputs = 1 + job->n_copies;
    work.outputs[0] = outputs[0];
    work.outputs[1] = outputs[1];
    work.is_streamed = reduce_streams(n_elems * sizeof(float));
    bus_run(&work);
}

/* Six bytes an element, as all conversions between fp32 and 16 bits. */
static void cast_limit(const struct job *job)
{
    (void)job;
    sum_limit(&(struct job){.dtype = DTYPE_BF16, .n_sources = 1});
}

static void read_limit(const struct job *job)
{
    uint64_t lanes[8] = {0};

    (void)job;
    for (size_t i = 0; i < n_elems; i += LINE_ELEMS) {
        uint64_t line[8];

        memcpy(line, sources[0] + i, sizeof(line));
        for (uint32_t lane = 0; lane < 8; lane++) {
            lanes[lane] ^= line[lane];
        }
    }
    for (uint32_t lane = 0; lane < 8; lane++) {
        read_result ^= lanes[lane];
    }
}

static void line_negate(float *values)
{
    for (uint32_t i = 0; i < LINE_ELEMS; i++) {
        values[i] = -values[i];
    }
}

static void rewrite_limit(const struct job *job)
{
    (void)job;
    for (size_t i = 0; i < n_elems; i += LINE_ELEMS) {
        line_negate(outputs[0] + i);
    }
}

static void line_add(float *restrict p, float *restrict m, float *restrict v,
                     const float *restrict g)
{
    for (uint32_t i = 0; i < LINE_ELEMS; i++) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
    }
}

/* Of other arrays than AdamW's, whose averages have to stay what they are. */
static void adamw_limit(const struct job *job)
{
    for (size_t i = 0; i < n_elems; i += LINE_ELEMS) {
        line_add(outputs[0] + i, outputs[1] + i, sources[7] + i, sources[0] + i);
        if (job->n_copies != 0) {
            memcpy(published + i, outputs[0] + i, LINE_ELEMS * sizeof(*published));
        }
    }
}

static const struct job jobs[] = {
    {"sum_2", "a sum of 2", sum_run, sum_limit, DTYPE_FP32, 2, 0, false},
    {"sum_2_norm", "  and its norm", sum_run, sum_limit, DTYPE_FP32, 2, 0, true},
    {"sum_2_copy", "  and a copy", sum_run, sum_limit, DTYPE_FP32, 2, 1, false},
    {"sum_2_copy_norm", "  and both", sum_run, sum_limit, DTYPE_FP32, 2, 1, true},
    {"sum_4", "a sum of 4", sum_run, sum_limit, DTYPE_FP32, 4, 0, false},
    {"sum_8", "a sum of 8", sum_run, sum_limit, DTYPE_FP32, 8, 0, false},
    {"sum_2_bf16", "a sum of 2 in bf16", sum_run, sum_limit, DTYPE_BF16, 2, 0, false},
    {"sum_2_bf16_norm", "  and its norm", sum_run, sum_limit, DTYPE_BF16, 2, 0, true},
    {"norm", "a norm", norm_run, read_limit, DTYPE_FP32, 0, 0, true},
    {"divide_norm", "a division and the norm", divide_run, rewrite_limit, DTYPE_FP32, 0, 0, true},
    {"to_bf16", "to bf16", narrow_run, cast_limit, DTYPE_BF16, 0, 0, false},
    {"from_bf16", "from bf16", widen_run, cast_limit, DTYPE_BF16, 0, 0, false},
    {"to_fp16", "to fp16", narrow_run, cast_limit, DTYPE_FP16, 0, 0, false},
    {"from_fp16", "from fp16", widen_run, cast_limit, DTYPE_FP16, 0, 0, false},
    {"adamw", "AdamW", adamw_run, adamw_limit, DTYPE_BF16, 0, 0, false},
    {"adamw_copy", "  and a copy in bf16", adamw_run, adamw_limit, DTYPE_BF16, 0, 1, false},
};

enum { N_JOBS = sizeof(jobs) / sizeof(jobs[0]), MAX_PATHS = 3, LIMIT = MAX_PATHS };

/* --------------------------------------------------------------------------------- figures */

/* Of one job on one path, or of its limit: ns an element. */
struct figure {
    double ns[MAX_ROUNDS];
    double median, fastest, slowest;
};

static struct figure figures[N_JOBS][MAX_PATHS + 1];

static void figure_keep(struct figure *figure, uint32_t round, uint64_t ns)
{
    figure->ns[round] = (double)ns / (double)n_elems;
}

static void figure_settle(struct figure *figure, uint32_t n_rounds)
{
    figure->median = figures_median(figure->ns, n_rounds);
    figure->fastest = figure->ns[0];
    figure->slowest = figure->ns[n_rounds - 1];
}

/* All paths and the limit in turn. */
static void round_run(uint32_t round)
{
    for (uint32_t k = 0; k < N_JOBS; k++) {
        uint64_t start_ns = clock_now_ns();

        jobs[k].limit(&jobs[k]);
        figure_keep(&figures[k][LIMIT], round, clock_now_ns() - start_ns);
        for (uint32_t path = 0; path < kernels_n_paths(); path++) {
            start_ns = clock_now_ns();
            jobs[k].run(kernels_path(path), &jobs[k]);
            figure_keep(&figures[k][path], round, clock_now_ns() - start_ns);
        }
    }
}

static void rounds_run(uint32_t n_rounds)
{
    struct fp_mode mode = fp_mode_enter();

    round_run(0); /* warms up */
    for (uint32_t round = 0; round < n_rounds; round++) {
        round_run(round);
    }
    fp_mode_leave(mode);
    for (uint32_t k = 0; k < N_JOBS; k++) {
        for (uint32_t path = 0; path < kernels_n_paths(); path++) {
            figure_settle(&figures[k][path], n_rounds);
        }
        figure_settle(&figures[k][LIMIT], n_rounds);
    }
}

static void table_print(void)
{
    printf("%-28s%-10s%9s%9s%9s%9s%7s\n", "kernels, ns an element", "path", "median", "fastest",
           "slowest", "limit", "ratio");
    for (uint32_t k = 0; k < N_JOBS; k++) {
        const struct figure *limit = &figures[k][LIMIT];

        for (uint32_t path = 0; path < kernels_n_paths(); path++) {
            const struct figure *figure = &figures[k][path];

            printf("%-28s%-10s%9.3f%9.3f%9.3f%9.3f%7.2f\n", path == 0 ? jobs[k].words : "",
                   kernels_path(path)->path, figure->median, figure->fastest, figure->slowest,
                   limit->median, figure->median / limit->median);
        }
    }
}

static void part_write(const char *part)
{
    FILE *file = fopen(part, "w");

    if (file == NULL) {
        fail("cannot write the part");
    }
    for (uint32_t k = 0; k < N_JOBS; k++) {
        const struct figure *limit = &figures[k][LIMIT];

        for (uint32_t path = 0; path < kernels_n_paths(); path++) {
            const struct figure *figure = &figures[k][path];

            fprintf(file,
                    "{\"kernel\":\"%s\",\"path\":\"%s\",\"elems\":%zu,\"ns_per_elem\":%.4f,"
                    "\"fastest\":%.4f,\"slowest\":%.4f,\"limit_ns_per_elem\":%.4f}\n",
                    jobs[k].key, kernels_path(path)->path, n_elems, figure->median, figure->fastest,
                    figure->slowest, limit->median);
        }
    }
    if (fclose(file) != 0) {
        fail("cannot write the part");
    }
}

int main(int argc, char **argv)
{
    uint32_t n_rounds = 11;
    const char *part = NULL;
    int option;

    while ((option = getopt(argc, argv, "n:r:o:")) != -1) {
        if (option == 'n') {
            n_elems = figures_option("bench-kernels", optarg, UINT32_MAX);
            n_elems = (n_elems + LINE_ELEMS - 1) / LINE_ELEMS * LINE_ELEMS;
        } else if (option == 'r') {
            n_rounds = (uint32_t)figures_option("bench-kernels", optarg, MAX_ROUNDS);
        } else if (option == 'o') {
            part = optarg;
        } else {
            fprintf(stderr, "usage: bench-kernels [-n elements] [-r rounds] [-o file]\n");
            return 2;
        }
    }
    arrays_make();
    rounds_run(n_rounds);
    table_print();
    if (part != NULL) {
        part_write(part);
    }
    return EXIT_SUCCESS;
}
