/* SPDX-License-Identifier: Apache-2.0 */
/* What planning costs: many parameters on a million ranks, and questions to their mesh. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "figures.h"
#include "heap.h"
#include "plan/plan.h"

#define MAX_ROUNDS  1000u
#define MAX_PARAMS  1000000u
#define NAME_BYTES  64u
#define NS_PER_MS   1e6
#define N_QUESTIONS 100000u /* of a round */

/* A million ranks, and a thousand beside them: what is planned for both takes the same memory. */
static const int64_t many_ranks[] = {1000, 10, 100};
static const int64_t few_ranks[] = {10, 10, 10};

/* What block_elems of the matrices are. */
enum blocks { BLOCKS_NONE, BLOCKS_ROWS, BLOCKS_ODD_ROWS };
static const char *const blocks_words[] = {"none", "rows", "odd rows"};

/* One kind of plan. Every other unit is of experts, which are not replicated over ep. */
struct kind {
    const char *strategy;
    uint32_t unit_params; /* of each unit */
    enum blocks blocks;
};

static const struct kind kinds[] = {
    {"fsdp", 10, BLOCKS_NONE},       {"hsdp", 10, BLOCKS_NONE},
    {"hfsdp", 10, BLOCKS_NONE},      {"hsdp", 100, BLOCKS_NONE},
    {"hsdp", 100000, BLOCKS_NONE},   {"fsdp", 10, BLOCKS_ROWS},
    {"hsdp", 10, BLOCKS_ROWS},       {"hfsdp", 10, BLOCKS_ROWS},
    {"fsdp", 10, BLOCKS_ODD_ROWS},   {"hsdp", 10, BLOCKS_ODD_ROWS},
    {"hfsdp", 10, BLOCKS_ODD_ROWS},  {"fsdp", 1000, BLOCKS_ODD_ROWS},
    {"hsdp", 1000, BLOCKS_ODD_ROWS}, {"fsdp", 100000, BLOCKS_ODD_ROWS},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct bench {
    uint32_t n_params;
    uint32_t n_rounds;
    char (*names)[NAME_BYTES]; /* of parameters, then of units: the host has them */
    FILE *part;                /* lines of JSON; NULL = none */
};

static void fail(const char *what)
{
    fprintf(stderr, "bench-plan: %s\n", what);
    exit(EXIT_FAILURE);
}

/* What every call of the engine must answer here. */
static void check(int32_t status, const struct hsdp_error *err)
{
    if (status != HSDP_OK) {
        fail(err->message);
    }
}

/* ------------------------------------------------------------------------------ what is planned */

/* The parameters of a transformer block, of several widths. */
static uint32_t shape_of(uint32_t param, enum blocks blocks, int64_t ret_shape[2])
{
    static const struct {
        uint32_t rows, columns; /* in widths; 0 rows: a vector */
    } shapes[10] = {{0, 1}, {0, 1}, {3, 1}, {0, 3}, {1, 1}, {0, 1}, {0, 1}, {4, 1}, {1, 4}, {0, 4}};
    const uint32_t width = 1024 + param / 10 % 7 * (blocks == BLOCKS_ODD_ROWS ? 193 : 192);

    ret_shape[0] = (int64_t)shapes[param % 10].rows * width;
    ret_shape[1] = (int64_t)shapes[param % 10].columns * width;
    if (ret_shape[0] == 0) {
        ret_shape[0] = ret_shape[1];
        return 1;
    }
    return 2;
}

static uint32_t n_units(const struct bench *bench, const struct kind *kind)
{
    return (bench->n_params + kind->unit_params - 1) / kind->unit_params;
}

static struct hsdp_mesh *mesh_make(const int64_t *sizes)
{
    static const char *const names[] = {"dp", "cp", "ep"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *mesh = NULL;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 3;
    spec.rank = 999;
    check(mesh_create(&spec, &mesh, &err), &err);
    return mesh;
}

static void classes_add(struct hsdp_plan *plan)
{
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_class_spec expert = HSDP_CLASS_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t index;

    dense.name = "dense";
    expert.name = "expert";
    expert.replicated_over = "dp,cp";
    check(plan_add_class(plan, &dense, &index, &err), &err);
    check(plan_add_class(plan, &expert, &index, &err), &err);
}

static void params_add(const struct bench *bench, const struct kind *kind, struct hsdp_plan *plan)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t unit = 0;
    uint32_t index;

    for (uint32_t p = 0; p < bench->n_params; p++) {
        struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
        int64_t shape[2];

        if (p % kind->unit_params == 0) {
            const char *name = bench->names[bench->n_params + p / kind->unit_params];

            check(plan_add_unit(plan, name, p / kind->unit_params % 2, &unit, &err), &err);
        }
        spec.name = bench->names[p];
        spec.n_dims = shape_of(p, kind->blocks, shape);
        spec.shape = shape;
        spec.unit = unit;
        spec.block_elems = kind->blocks != BLOCKS_NONE && spec.n_dims == 2 ? (uint64_t)shape[1] : 0;
        check(plan_add_param(plan, &spec, &index, &err), &err);
    }
}

static struct hsdp_plan *plan_make(const struct bench *bench, const struct kind *kind,
                                   const struct hsdp_mesh *mesh)
{
    const char *keys[] = {"sharding_strategy"};
    const char *values[] = {kind->strategy};
    const struct hsdp_settings settings = {keys, values, 1};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_plan *plan = NULL;

    check(plan_create(mesh, &settings, &plan, &err), &err);
    classes_add(plan);
    params_add(bench, kind, plan);
    check(plan_finish(plan, &err), &err);
    return plan;
}

/* ------------------------------------------------------------------------------- what it costs */

/* Milliseconds of each round. */
struct cost {
    double plan[MAX_ROUNDS];     /* from create to finish */
    double segments[MAX_ROUNDS]; /* who owns what of every unit: two kinds of shard of a rank */
    double report[MAX_ROUNDS];
    struct heap_use use;     /* of one plan */
    int64_t few_ranks_bytes; /* peak of the same plan on a thousand ranks */
};

static double ms_since(uint64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) / NS_PER_MS;
}

static void segments_ask(const struct bench *bench, const struct kind *kind,
                         const struct hsdp_plan *plan, struct hsdp_segment *segments)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    for (uint32_t unit = 0; unit < n_units(bench, kind); unit++) {
        struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
        uint32_t writer;
        uint64_t n;

        check(plan_unit_info(plan, unit, &info, &err), &err);
        for (int32_t shard = HSDP_SHARD_PARAM; shard <= HSDP_SHARD_STEP; shard += 2) {
            check(plan_segments(plan, unit, shard, 999, segments, sizeof(*segments),
                                kind->unit_params, &n, &err),
                  &err);
            check(plan_writer(plan, unit, shard, 999, &writer, &err), &err);
        }
    }
}

static void report_write(const struct hsdp_plan *plan)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes = 0;
    char *text;

    (void)plan_report(plan, NULL, 0, &n_bytes, NULL); /* how many there are */
    text = malloc(n_bytes);
    if (text == NULL) {
        fail("no memory for a report");
    }
    check(plan_report(plan, text, n_bytes, &n_bytes, &err), &err);
    free(text);
}

static void round_run(const struct bench *bench, const struct kind *kind, uint32_t round,
                      struct cost *cost)
{
    struct hsdp_mesh *mesh = mesh_make(many_ranks);
    struct hsdp_segment *segments = malloc(kind->unit_params * sizeof(*segments));
    struct hsdp_plan *plan;
    uint64_t start_ns;

    if (segments == NULL) {
        fail("no memory for segments");
    }
    start_ns = clock_now_ns();
    plan = plan_make(bench, kind, mesh);
    cost->plan[round] = ms_since(start_ns);
    start_ns = clock_now_ns();
    segments_ask(bench, kind, plan, segments);
    cost->segments[round] = ms_since(start_ns);
    start_ns = clock_now_ns();
    report_write(plan);
    cost->report[round] = ms_since(start_ns);
    plan_destroy(plan);
    free(segments);
    mesh_destroy(mesh);
}

/* What one plan takes of the heap; not timed, but counted in each round as well. */
static struct heap_use memory_count(const struct bench *bench, const struct kind *kind,
                                    const int64_t *ranks)
{
    struct hsdp_mesh *mesh = mesh_make(ranks);
    struct hsdp_plan *plan;
    struct heap_use use;

    heap_begin();
    plan = plan_make(bench, kind, mesh);
    use = heap_use();
    plan_destroy(plan);
    mesh_destroy(mesh);
    return use;
}

static void kind_write(const struct bench *bench, const struct kind *kind, struct cost *cost)
{
    const double ms = figures_median(cost->plan, bench->n_rounds);
    const double segments_ms = figures_median(cost->segments, bench->n_rounds);
    const double report_ms = figures_median(cost->report, bench->n_rounds);
    const double least = cost->plan[0], most = cost->plan[bench->n_rounds - 1];

    printf("%-8s%8" PRIu32 "%10s%10.1f%9.1f%9.1f%11.1f%10.1f%9.1f%13.1f\n", kind->strategy,
           n_units(bench, kind), blocks_words[kind->blocks], ms, least, most, segments_ms,
           report_ms, (double)cost->use.peak_bytes / 1e6, (double)cost->few_ranks_bytes / 1e6);
    if (bench->part != NULL) {
        fprintf(bench->part,
                "{\"kind\":\"plan\",\"strategy\":\"%s\",\"params\":%" PRIu32 ",\"units\":%" PRIu32
                ",\"blocks\":\"%s\",\"ranks\":1000000,\"ms\":%.3f,"
                "\"ms_min\":%.3f,\"ms_max\":%.3f,\"segments_ms\":%.3f,\"report_ms\":%.3f,"
                "\"peak_bytes\":%" PRId64 ",\"held_bytes\":%" PRId64
                ",\"peak_bytes_on_1000_ranks\":%" PRId64 "}\n",
                kind->strategy, bench->n_params, n_units(bench, kind), blocks_words[kind->blocks],
                ms, least, most, segments_ms, report_ms, cost->use.peak_bytes, cost->use.held_bytes,
                cost->few_ranks_bytes);
    }
}

static void plans_measure(const struct bench *bench)
{
    struct cost *costs = calloc(N_KINDS, sizeof(*costs));

    if (costs == NULL) {
        fail("no memory for figures");
    }
    for (uint32_t round = 0; round < bench->n_rounds; round++) {
        for (uint32_t k = 0; k < N_KINDS; k++) {
            round_run(bench, &kinds[k], round, &costs[k]);
        }
    }
    printf("%" PRIu32 " parameters on 1,000,000 ranks, medians of %" PRIu32 " rounds\n"
           "%-8s%8s%10s%10s%9s%9s%11s%10s%9s%13s\n",
           bench->n_params, bench->n_rounds, "", "units", "blocks", "plan, ms", "least", "most",
           "segments", "report", "peak MB", "on 1,000 MB");
    for (uint32_t k = 0; k < N_KINDS; k++) {
        costs[k].use = memory_count(bench, &kinds[k], many_ranks);
        costs[k].few_ranks_bytes = memory_count(bench, &kinds[k], few_ranks).peak_bytes;
        kind_write(bench, &kinds[k], &costs[k]);
    }
    free(costs);
}

/* ------------------------------------------------------------------- questions to a large mesh */

static uint32_t ask_coords(const struct hsdp_mesh *mesh, uint32_t rank)
{
    uint32_t coords[3] = {0, 0, 0};

    mesh_coords(mesh, rank, coords, 3, NULL);
    return coords[0] + coords[1] + coords[2];
}

static uint32_t ask_members(const struct hsdp_mesh *mesh, uint32_t rank)
{
    uint32_t ranks[10] = {0};
    uint64_t n = 0;

    mesh_members(mesh, "cp", rank, ranks, 10, &n, NULL);
    return ranks[n - 1];
}

static uint32_t ask_rank(const struct hsdp_mesh *mesh, uint32_t rank)
{
    return mesh_peer(mesh, mesh->data_dims, 0, rank);
}

static uint32_t ask_index(const struct hsdp_mesh *mesh, uint32_t rank)
{
    return mesh_index(mesh, mesh->data_dims, rank);
}

static const struct {
    const char *key; /* in JSON */
    const char *words;
    uint32_t (*ask)(const struct hsdp_mesh *mesh, uint32_t rank);
} questions[] = {
    {"coords_ns", "coordinates of a rank", ask_coords},
    {"members_ns", "the ten ranks of a group, by its name", ask_members},
    {"rank_ns", "the rank at some coordinates", ask_rank},
    {"index_ns", "the place of a rank in its group", ask_index},
};
#define N_QUESTION_KINDS (sizeof(questions) / sizeof(questions[0]))

/* Nanoseconds of one question, in the median round; ranks far apart are asked about in turn. */
static double question_measure(const struct bench *bench, const struct hsdp_mesh *mesh, uint32_t q)
{
    double ns[MAX_ROUNDS];
    volatile uint32_t sum = 0; /* so that every answer is wanted */

    for (uint32_t round = 0; round < bench->n_rounds; round++) {
        const uint64_t start_ns = clock_now_ns();

        for (uint32_t i = 0; i < N_QUESTIONS; i++) {
            sum += questions[q].ask(mesh, (uint32_t)((uint64_t)i * 999983 % mesh->world_ranks));
        }
        ns[round] = (double)(clock_now_ns() - start_ns) / N_QUESTIONS;
    }
    (void)sum;
    return figures_median(ns, bench->n_rounds);
}

static void mesh_measure(const struct bench *bench)
{
    struct hsdp_mesh *mesh;
    double ns;

    heap_begin();
    mesh = mesh_make(many_ranks);
    printf("\n%-44s%8s\n", "a mesh of 1,000,000 ranks", "ns");
    if (bench->part != NULL) {
        fprintf(bench->part, "{\"kind\":\"mesh\",\"ranks\":1000000,\"held_bytes\":%" PRId64,
                heap_use().held_bytes);
    }
    for (uint32_t q = 0; q < N_QUESTION_KINDS; q++) {
        ns = question_measure(bench, mesh, q);
        printf("%-44s%8.1f\n", questions[q].words, ns);
        if (bench->part != NULL) {
            fprintf(bench->part, ",\"%s\":%.1f", questions[q].key, ns);
        }
    }
    if (bench->part != NULL) {
        fprintf(bench->part, "}\n");
    }
    mesh_destroy(mesh);
}

/* ------------------------------------------------------------------------------------------ main
 */

static void names_make(struct bench *bench)
{
    bench->names = calloc(2 * (uint64_t)bench->n_params, sizeof(*bench->names));
    if (bench->names == NULL) {
        fail("no memory for names");
    }
    for (uint32_t p = 0; p < bench->n_params; p++) {
        snprintf(bench->names[p], NAME_BYTES, "model.layers.%" PRIu32 ".mlp.weight.%" PRIu32,
                 p / 10, p % 10);
        snprintf(bench->names[bench->n_params + p], NAME_BYTES, "model.layers.%" PRIu32, p);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.n_params = 100000, .n_rounds = 11};
    const char *part = NULL;
    int option;

    while ((option = getopt(argc, argv, "n:r:o:")) != -1) {
        if (option == 'n') {
            bench.n_params = (uint32_t)figures_option("bench-plan", optarg, MAX_PARAMS);
        } else if (option == 'r') {
            bench.n_rounds = (uint32_t)figures_option("bench-plan", optarg, MAX_ROUNDS);
        } else if (option == 'o') {
            part = optarg;
        } else {
            fprintf(stderr, "usage: bench-plan [-n params] [-r rounds] [-o file]\n");
            return 2;
        }
    }
    if (part != NULL && (bench.part = fopen(part, "w")) == NULL) {
        fail("cannot write the part");
    }
    names_make(&bench);
    plans_measure(&bench);
    mesh_measure(&bench);
    free(bench.names);
    if (bench.part != NULL && fclose(bench.part) != 0) {
        fail("cannot write the part");
    }
    return EXIT_SUCCESS;
}
