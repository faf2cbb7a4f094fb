/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: each feature is drawn by one function. */
#include "random_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define N_OF(rows) ((uint32_t)(sizeof(rows) / sizeof((rows)[0])))

#define MAX_CLASSES 3u
#define MAX_UNITS   6u
#define N_DIMS      5u

/* A mesh while it is drawn. */
struct draw_mesh {
    const char *names[N_DIMS]; /* outermost first */
    uint32_t sizes[N_DIMS];
    bool is_data[N_DIMS];
    uint32_t n_dims;
    uint32_t shard_sizes[RANDOM_RUNS]; /* 0 = not given */
    uint32_t replicated;               /* replicate_dims as a mask; 0 = not given */
    uint32_t shared;                   /* over which some class is replicated, as a mask */
};

uint64_t random_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t x = a;

    x = (x ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 29 ^ c) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 32 ^ d) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* 0 to n - 1 */
static uint32_t draw(struct random_case *random, uint32_t n)
{
    return (uint32_t)((random_mix(random->seed, random->n_drawn++, 7, 3) >> 8) % n);
}

/* true once in n */
static bool draw_one_in(struct random_case *random, uint32_t n)
{
    return draw(random, n) == 0;
}

/* Appends to a text of so many bytes. */
static void put(char *text, size_t max_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(char *text, size_t max_bytes, const char *format, ...)
{
    size_t n_bytes = strlen(text);
    va_list list;

    va_start(list, format);
    n_bytes += (size_t)vsnprintf(text + n_bytes, max_bytes - n_bytes, format, list);
    va_end(list);
    host_expect(n_bytes < max_bytes);
}

/* ---------------------------------------------------------------------------------------- mesh */

static int mesh_dim(const struct draw_mesh *mesh, const char *name)
{
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if (strcmp(mesh->names[d], name) == 0) {
            return (int)d;
        }
    }
    return -1;
}

/* Names of a set of dimensions as a selector. */
static void selector_put(char *text, size_t max_bytes, const struct draw_mesh *mesh, uint32_t dims)
{
    bool is_first = true;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if ((dims >> d & 1u) != 0) {
            put(text, max_bytes, "%s%s", is_first ? "" : ",", mesh->names[d]);
            is_first = false;
        }
    }
}

static uint32_t data_mask(const struct draw_mesh *mesh)
{
    uint32_t mask = 0;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        mask |= mesh->is_data[d] ? 1u << d : 0;
    }
    return mask;
}

/* Four ranks at most in most cases: they cost less. */
static void dims_draw(struct random_case *random, struct draw_mesh *mesh)
{
    static const char *const names[N_DIMS] = {"pp", "dp", "cp", "ep", "tp"};
    uint32_t max_ranks = draw_one_in(random, 4) ? RANDOM_MAX_RANKS : 4;

    max_ranks = max_ranks < random->limits.max_ranks ? max_ranks : random->limits.max_ranks;
    random->n_ranks = 1;
    for (uint32_t i = 0; i < N_DIMS && mesh->n_dims < 4; i++) {
        bool is_wanted = i == 1 ? !draw_one_in(random, 12) : draw_one_in(random, i < 4 ? 2 : 3);
        uint32_t size = i == 1 && draw_one_in(random, 6) ? max_ranks : 1 + draw(random, 4);

        if (is_wanted && random->n_ranks * size <= max_ranks) {
            random->n_ranks *= size;
            mesh->names[mesh->n_dims] = names[i];
            mesh->sizes[mesh->n_dims] = size;
            mesh->is_data[mesh->n_dims++] = i >= 1 && i <= 3;
        }
    }
    if (mesh->n_dims == 0) {
        mesh->names[0] = "dp";
        mesh->sizes[0] = 1;
        mesh->is_data[0] = true;
        mesh->n_dims = 1;
    }
    if (mesh->n_dims >= 2 && draw_one_in(random, 4)) { /* an unusual order */
        uint32_t d = draw(random, mesh->n_dims - 1);
        struct draw_mesh old = *mesh;

        for (uint32_t i = 0; i < 2; i++) {
            mesh->names[d + i] = old.names[d + 1 - i];
            mesh->sizes[d + i] = old.sizes[d + 1 - i];
            mesh->is_data[d + i] = old.is_data[d + 1 - i];
        }
    }
}

/* Now and then one dimension that usually is data is not: its ranks see equal data. */
static void data_draw(struct random_case *random, struct draw_mesh *mesh)
{
    uint32_t d = draw(random, mesh->n_dims);

    if (draw_one_in(random, 8)) {
        mesh->is_data[d] = false;
    }
    for (d = 0; d < mesh->n_dims; d++) {
        put(random->dims, sizeof(random->dims), "%s%s=%u", d == 0 ? "" : ",", mesh->names[d],
            mesh->sizes[d]);
    }
    put(random->dims, sizeof(random->dims), " data=");
    selector_put(random->dims, sizeof(random->dims), mesh, data_mask(mesh));
}

static bool is_power_of_two(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* A split of dp, the same for both runs or not, and dimensions to replicate over. */
static void split_draw(struct random_case *random, struct draw_mesh *mesh)
{
    int dp = mesh_dim(mesh, "dp");

    if (dp >= 0 && mesh->is_data[dp] && draw_one_in(random, 3)) {
        for (int run = 0; run < RANDOM_RUNS; run++) {
            do {
                mesh->shard_sizes[run] = 1 + draw(random, mesh->sizes[dp]);
            } while (mesh->sizes[dp] % mesh->shard_sizes[run] != 0);
        }
        if (draw_one_in(random, 2)) {
            mesh->shard_sizes[1] = mesh->shard_sizes[0];
        }
    }
    if (draw_one_in(random, 4)) {
        mesh->replicated = draw(random, 1u << mesh->n_dims);
    }
}

/* ------------------------------------------------------------------------- when bits are equal */

/* The dimensions of R as the engine has them, outermost first, and which of them are outer. */
struct draw_order {
    uint32_t sizes[N_DIMS + 1];
    bool is_outer[N_DIMS + 1];
    uint32_t n;
};

static void order_add(struct draw_order *order, uint32_t size, bool is_outer)
{
    if (size > 1) {
        order->sizes[order->n] = size;
        order->is_outer[order->n++] = is_outer;
    }
}

static struct draw_order order_of(const struct draw_mesh *mesh, uint32_t reduced, int run)
{
    struct draw_order order = {.n = 0};
    uint32_t shard_size = mesh->shard_sizes[run];

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        bool is_dp = strcmp(mesh->names[d], "dp") == 0;
        bool is_outer = (mesh->replicated >> d & 1u) != 0 || (mesh->replicated == 0 && is_dp);

        if ((reduced >> d & 1u) == 0) {
            continue;
        }
        if (is_dp && shard_size != 0) { /* the default are the copies alone */
            order_add(&order, mesh->sizes[d] / shard_size, is_outer);
            order_add(&order, shard_size, is_outer && mesh->replicated != 0);
        } else {
            order_add(&order, mesh->sizes[d], is_outer);
        }
    }
    return order;
}

/* Outer dimensions first, then inner ones: every strategy adds in one order. */
static bool is_outermost(const struct draw_order *order)
{
    for (uint32_t i = 1; i < order->n; i++) {
        if (order->is_outer[i] && !order->is_outer[i - 1]) {
            return false;
        }
    }
    return true;
}

/* Whether all but the outermost are powers of two: then splitting dp otherwise changes nothing. */
static bool is_splittable(const struct draw_order *order)
{
    for (uint32_t i = 1; i < order->n; i++) {
        if (!is_power_of_two(order->sizes[i])) {
            return false;
        }
    }
    return true;
}

/* dp = 6 alone is split into 2 x 3 by hsdp, and not split by others. */
static bool has_default_split(const struct draw_mesh *mesh, struct draw_order *order)
{
    return mesh->shard_sizes[0] == 0 && order->n == 1 && order->sizes[0] == 6;
}

static bool class_has_same_bits(const struct draw_mesh *mesh, uint32_t reduced)
{
    struct draw_order first = order_of(mesh, reduced, 0);
    struct draw_order second = order_of(mesh, reduced, 1);
    struct draw_order data = order_of(mesh, data_mask(mesh), 0);
    bool is_one_mesh = mesh->shard_sizes[0] == mesh->shard_sizes[1];

    return is_outermost(&first) && is_outermost(&second) && !has_default_split(mesh, &data) &&
           (is_one_mesh || (is_splittable(&first) && is_splittable(&second)));
}

/* -------------------------------------------------------------------------------------- classes */

struct draw_class {
    char head[96]; /* "class b(dp,cp)(dp)"; "" = the first one, which need not be written */
    char settings[192];
    const char *strategies[RANDOM_RUNS];
    uint32_t over; /* replicated over these, as a mask */
    bool is_sum;
};

static void precision_draw(struct random_case *random, char *text, size_t max_bytes)
{
    static const char *const keys[] = {"param_dtype", "master_dtype", "reduce_dtype",
                                       "gradient_dtype"};

    for (uint32_t i = 0; i < N_OF(keys); i++) {
        if (draw_one_in(random, 2)) {
            put(text, max_bytes, " %s=%s", keys[i], host_dtypes[draw(random, 3)]);
        }
    }
}

/* A case with token weights sums in all its classes. */
static void operation_draw(struct random_case *random, struct draw_class *row)
{
    if (random->has_weight || draw_one_in(random, 5)) {
        put(row->settings, sizeof(row->settings), " gradient_op=sum");
    } else if (draw_one_in(random, 5)) {
        put(row->settings, sizeof(row->settings), " gradient_divisor=%u", 1 + draw(random, 9));
    }
}

static uint32_t some_of(struct random_case *random, uint32_t dims)
{
    return dims & draw(random, 1u << N_DIMS);
}

/* Over what a class is replicated, and over what of that it is reduced. */
static uint32_t selectors_draw(struct random_case *random, const struct draw_mesh *mesh,
                               struct draw_class *row)
{
    uint32_t all = (1u << mesh->n_dims) - 1;
    uint32_t over =
        draw_one_in(random, 3) ? some_of(random, all) : some_of(random, data_mask(mesh));
    uint32_t reduced = draw_one_in(random, 4) ? some_of(random, over) : over;

    row->over = over;
    put(row->head, sizeof(row->head), "(");
    selector_put(row->head, sizeof(row->head), mesh, over);
    put(row->head, sizeof(row->head), ")");
    if (reduced != over) {
        put(row->head, sizeof(row->head), "(");
        selector_put(row->head, sizeof(row->head), mesh, reduced);
        put(row->head, sizeof(row->head), ")");
        random->is_plain_reduce = false;
    }
    return reduced;
}

/* The first class has the plan's settings, and mostly its dimensions. */
static void class_draw(struct random_case *random, const struct draw_mesh *mesh, uint32_t index,
                       struct draw_class *row)
{
    uint32_t reduced = data_mask(mesh);

    memset(row, 0, sizeof(*row));
    for (int run = 0; run < RANDOM_RUNS; run++) {
        row->strategies[run] = host_strategies[draw(random, HOST_N_STRATEGIES)];
    }
    if (random->limits.strategy >= 0) {
        row->strategies[0] = host_strategies[random->limits.strategy];
    }
    if (index > 0 || draw_one_in(random, 4)) {
        put(row->head, sizeof(row->head), "class %c", (int)('a' + index));
        reduced = selectors_draw(random, mesh, row);
    }
    precision_draw(random, row->settings, sizeof(row->settings));
    operation_draw(random, row);
    random->promises_bits = random->promises_bits && class_has_same_bits(mesh, reduced);
}

static void class_put(struct random_case *random, uint32_t index, const struct draw_class *row,
                      int run)
{
    char *text = random->units[run];

    if (index == 0) { /* as the plan's defaults */
        put(random->settings[run], sizeof(random->settings[run]), "sharding_strategy=%s%s",
            row->strategies[run], row->settings);
        if (row->head[0] != '\0') {
            put(text, sizeof(random->units[run]), "%s; ", row->head);
        }
        return;
    }
    put(text, sizeof(random->units[run]), "%s sharding_strategy=%s%s; ", row->head,
        row->strategies[run], row->settings);
}

/* ---------------------------------------------------------------------------------------- units */

/* Empty, scalar, prime; one in a while of several pages. */
static const char *shape_draw(struct random_case *random)
{
    static const char *const small[] = {"[]",      "[0]",  "[1]",    "[7]",  "[31]",  "[5,3]",
                                        "[2,0,3]", "[97]", "[3,17]", "[64]", "[16,8]"};
    static const char *const large[] = {"[1031]", "[2050]", "[33,67]"};

    return draw_one_in(random, 16) ? large[draw(random, N_OF(large))]
                                   : small[draw(random, N_OF(small))];
}

/* Copies of a parameter on other stages. */
static const char *tie_draw(struct random_case *random, uint32_t param)
{
    random->is_tied[param] = random->n_stages > 1 && draw_one_in(random, 3);
    return random->is_tied[param] ? "*" : "";
}

/* What units have drawn so far. */
struct draw_params {
    const char *shapes[MAX_UNITS]; /* of the first parameter of each unit, */
    const char *ends[MAX_UNITS];   /* and what stands behind */
    uint32_t first_unit;           /* of this class */
    uint32_t n_params;
};

/* A name for the first parameter of an earlier unit of the same class, now and then. */
static bool alias_draw(struct random_case *random, const struct draw_params *drawn, uint32_t unit,
                       uint32_t i, char *text, size_t max_bytes)
{
    uint32_t n_units = unit - drawn->first_unit;
    uint32_t other = drawn->first_unit + (n_units == 0 ? 0 : draw(random, n_units));

    if (n_units == 0 || drawn->ends[other][0] == '@' || !draw_one_in(random, 4)) {
        return false;
    }
    put(text, max_bytes, " u%up%u%s%s=u%up0", unit, i, drawn->shapes[other], drawn->ends[other],
        other);
    random->has_aliases = true;
    return true;
}

/* The parameters of one unit: the later ones may be tied to the first. */
static void params_draw(struct random_case *random, struct draw_params *drawn, uint32_t unit,
                        char *text, size_t max_bytes)
{
    uint32_t n_params = 1 + draw(random, 3);
    const char *first_shape = shape_draw(random);
    const char *first_end = draw_one_in(random, 6) ? "!" : draw_one_in(random, 6) ? "@1" : "";

    drawn->shapes[unit] = first_shape;
    drawn->ends[unit] = first_end;
    put(text, max_bytes, " u%up0%s%s%s", unit, first_shape, first_end,
        tie_draw(random, drawn->n_params++));
    for (uint32_t i = 1; i < n_params; i++, drawn->n_params++) {
        const char *shape = shape_draw(random);
        char end[8] = "";

        if (alias_draw(random, drawn, unit, i, text, max_bytes)) {
            continue;
        }

        if (draw_one_in(random, 4)) { /* frozen, another hyper group, or in blocks */
            static const char *const ends[] = {"!", "@1", "/3", "/4", "/50", "/1"};

            strcpy(end, ends[draw(random, N_OF(ends))]);
        }
        if (first_end[0] == '\0' && draw_one_in(random, 5)) {
            put(text, max_bytes, " u%up%u%s=u%up0", unit, i, first_shape, unit);
        } else if (end[0] == '\0' && draw_one_in(random, 3)) {
            put(text, max_bytes, " u%up%u%s^", unit, i, shape);
        } else {
            put(text, max_bytes, " u%up%u%s%s%s", unit, i, shape, end,
                tie_draw(random, drawn->n_params));
        }
    }
}

/* Two stages or more, unless some class has equal values on all of them. */
static void holders_draw(struct random_case *random, const struct draw_mesh *mesh)
{
    int pp = mesh_dim(mesh, "pp");
    bool is_tied = memchr(random->is_tied, true, sizeof(random->is_tied)) != NULL;

    if (pp < 0 || (mesh->shared >> pp & 1u) != 0) {
        random->n_stages = 1;
        return;
    }
    while (is_tied && is_power_of_two(random->holders)) {
        random->holders = draw(random, 1u << random->n_stages);
    }
}

static void stages_set(struct random_case *random, const struct draw_mesh *mesh)
{
    int pp = mesh_dim(mesh, "pp");

    random->n_stages = pp < 0 ? 1 : mesh->sizes[pp];
    random->stage_stride = 1;
    for (int d = pp + 1; pp >= 0 && d < (int)mesh->n_dims; d++) {
        random->stage_stride *= mesh->sizes[d];
    }
}

static void units_draw(struct random_case *random, struct draw_mesh *mesh)
{
    struct draw_params drawn = {.n_params = 0};
    uint32_t n_units = 1 + draw(random, MAX_UNITS);
    uint32_t n_classes = 0;

    for (uint32_t unit = 0; unit < n_units; unit++) {
        char params[192] = "";

        if (unit == 0 || (n_classes < MAX_CLASSES && draw_one_in(random, 3))) {
            struct draw_class row;

            class_draw(random, mesh, n_classes, &row);
            mesh->shared |= row.over;
            drawn.first_unit = unit;
            for (int run = 0; run < RANDOM_RUNS; run++) {
                class_put(random, n_classes, &row, run);
            }
            n_classes++;
        }
        params_draw(random, &drawn, unit, params, sizeof(params));
        for (int run = 0; run < RANDOM_RUNS; run++) {
            put(random->units[run], sizeof(random->units[run]), "unit u%u:%s; ", unit, params);
        }
    }
}

/* -------------------------------------------------------------------------------- how it is run */

/* Sums of scope inner are other ones under each strategy; those of none and full are not. */
static void window_draw(struct random_case *random)
{
    uint32_t scope = draw(random, 3);

    random->n_slots = 1 + draw(random, 4);
    random->n_batches = 1 + draw(random, RANDOM_MAX_BATCHES);
    random->is_local = scope == HSDP_SCOPE_NONE;
    for (uint32_t i = 0; i < random->n_batches; i++) {
        bool is_full = i + 1 == random->n_batches || draw_one_in(random, 4);

        random->scopes[i] = is_full ? HSDP_SCOPE_FULL : (int32_t)scope;
        if (random->scopes[i] == HSDP_SCOPE_INNER) {
            random->promises_bits = false;
        }
    }
    for (int run = 0; run < RANDOM_RUNS; run++) {
        put(random->settings[run], sizeof(random->settings[run]),
            " accumulation_scope=%s slots=%u nccl_timeout_seconds=50", host_scopes[scope],
            random->n_slots);
    }
    random->is_exact = draw_one_in(random, 2);
    random->has_late = draw_one_in(random, 3);
    random->has_chunks = draw_one_in(random, 3);
    random->has_absent = random->is_plain_reduce && draw_one_in(random, 2);
}

/* What is checked while running, and which kernels compute: neither changes a number. */
static void checks_draw(struct random_case *random)
{
    static const char *const checks[] = {"access", "wrap", "step:1", "access,wrap,step:2"};
    const char *check = checks[draw(random, N_OF(checks))];
    bool is_checked = draw_one_in(random, 4);
    bool is_plain = draw_one_in(random, 4);

    for (int run = 0; random->limits.has_checks && run < RANDOM_RUNS; run++) {
        put(random->settings[run], sizeof(random->settings[run]), "%s%s%s",
            is_checked ? " verify=" : "", is_checked ? check : "",
            is_plain ? " cpu_path=plain" : "");
    }
}

static void placement_put(struct random_case *random, const struct draw_mesh *mesh)
{
    for (int run = 0; run < RANDOM_RUNS; run++) {
        char *text = random->settings[run];
        size_t max_bytes = sizeof(random->settings[run]);

        if (mesh->shard_sizes[run] != 0) {
            put(text, max_bytes, " shard_size=%u", mesh->shard_sizes[run]);
        }
        if (mesh->replicated != 0) {
            put(text, max_bytes, " replicate_dims=");
            selector_put(text, max_bytes, mesh, mesh->replicated);
        }
    }
}

static void steps_draw(struct random_case *random)
{
    static const double norms[] = {0.0, 0.0, 1.0, 2.0, 2.5, 3.0, 8.0, INFINITY};

    random->n_steps = draw_one_in(random, 4) ? RANDOM_MAX_STEPS : 1 + draw(random, 2);
    for (uint32_t i = 0; i < random->n_steps; i++) {
        random->steps[i] =
            draw_one_in(random, 2) ? RANDOM_STEP_PLAIN : (enum random_step)draw(random, 5);
    }
    random->norm_p = norms[draw(random, N_OF(norms))];
    random->max_norm = draw_one_in(random, 3) ? 0.0 : ldexp(1.0, (int)draw(random, 8) - 4);
    random->scale = draw_one_in(random, 2) ? 0.0 : 1.0 / random->n_batches;
}

void random_case_draw(struct random_case *ret, uint64_t seed)
{
    static const struct random_limits limits = {RANDOM_MAX_RANKS, -1, true};

    random_case_draw_within(ret, seed, &limits);
}

void random_case_draw_within(struct random_case *ret, uint64_t seed,
                             const struct random_limits *limits)
{
    struct draw_mesh mesh;

    memset(&mesh, 0, sizeof(mesh));
    memset(ret, 0, sizeof(*ret));
    ret->seed = seed;
    ret->limits = *limits;
    ret->is_plain_reduce = true;
    ret->promises_bits = true;
    ret->has_weight = draw_one_in(ret, 5);
    dims_draw(ret, &mesh);
    data_draw(ret, &mesh);
    split_draw(ret, &mesh);
    stages_set(ret, &mesh);
    units_draw(ret, &mesh);
    holders_draw(ret, &mesh);
    window_draw(ret);
    placement_put(ret, &mesh);
    checks_draw(ret);
    steps_draw(ret);
}
