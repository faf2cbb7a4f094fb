/* SPDX-License-Identifier: Apache-2.0 */
/* Every strategy against training without sharding: a table of meshes, and random cases. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"
#include "ranks.h"
#include "serial.h"
#include "suite.h"

#define N_OF(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
static const char *const scopes[] = {"none", "inner", "full"};

/* ------------------------------------------------------------------------------ random numbers */

/* A number without pattern from a few others; the same on every rank that asks. */
static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t x = a;

    x = (x ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 29 ^ c) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 32 ^ d) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t seed; /* of the running case; ranks inherit it */

/* -1 to 1 */
static double unit_value(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-52 - 1.0;
}

static double random_weight(struct host_at at)
{
    return unit_value(mixed(seed, 1, at.rank * 64u + at.param, at.elem));
}

static double random_gradient(struct host_at at)
{
    return unit_value(mixed(seed, at.microbatch * 64u + at.rank + 100, at.param, at.elem));
}

/* ----------------------------------------------------------------------------- a table of meshes
 */

struct run {
    char dims[64];
    char settings[256];
    char units[1024];
    int32_t scopes[4]; /* of a window's microbatches; the last is full */
    uint32_t n_batches;
    uint32_t n_slots;
    bool is_local;
};

/* A window, a step of gradient descent, and what is then in it. */
static void window_run(struct host *host, struct serial *serial, const struct run *run,
                       uint32_t window)
{
    struct hsdp_step_info result;

    serial->scopes = run->scopes;
    serial->n_batches = run->n_batches;
    serial->first_batch = window * run->n_batches;
    serial->is_local = run->is_local;
    serial->gradient = random_gradient;
    for (uint32_t batch = 0; batch < run->n_batches; batch++) {
        host_forward(host);
        host_backward(host, run->scopes[batch], serial->first_batch + batch, random_gradient);
    }
    serial_reduce(serial);
    result = host_step(host, 0.5);
    serial_expect_norm(serial, result.norm);
    serial_expect_grads(serial, host);
    host_descend(host, 0.125, result.factor);
    serial_descend(serial, 0.125, fmin(1.0, 0.5 / (serial->norm + 1e-6)));
    host_step_end(host);
}

static void run_rank(uint32_t rank, void *shared)
{
    const struct run *run = shared;
    struct serial serial;
    struct host host;

    host_open(&host, rank, run->dims, run->settings, run->units);
    host_load(&host, random_weight);
    serial_init(&serial, &host, random_weight);
    serial_expect_weights(&serial, &host);
    window_run(&host, &serial, run, 0);
    serial_expect_weights(&serial, &host);
    window_run(&host, &serial, run, 1);
    serial_expect_weights(&serial, &host);
    serial_fini(&serial);
    host_close(&host);
}

/* Scalars, empty and prime sizes, ties, frozen parameters and frozen units. */
static const char every_shape[] =
    "unit a: s[] w[7,3]@1 none[0,4] b[5]!; unit f: froz[31]!; "
    "unit t: emb[11,3] head[11,3]=emb big[1031]; unit z: one[1] ln[13]";
static const char with_experts[] =
    "unit a: w[7,3] b[5]!; class expert(%s); unit e: x[37] y[2,2]@1; unit g: z[1021]";

static const struct {
    const char *dims;
    uint32_t n_ranks;
    const char *expert_over;
} meshes[] = {
    {"dp=1", 1, "dp"},
    {"dp=2", 2, "dp"},
    {"dp=3", 3, "dp"},
    {"dp=4", 4, "dp"},
    {"dp=2,cp=1,ep=1", 2, "dp,cp"},
    {"dp=1,cp=2,ep=1", 2, "dp,cp"},
    {"dp=1,cp=1,ep=2", 2, "dp,cp"},
    {"dp=1,cp=1,ep=1", 1, "dp,cp"},
    {"dp=2,cp=2,ep=1", 4, "dp,cp"},
    {"dp=2,cp=1,ep=2", 4, "dp,cp"},
    {"dp=1,cp=2,ep=2", 4, "dp,cp"},
    {"dp=2,ep=2", 4, "ep"},
    {"pp=2,dp=2", 4, "dp"},
    {"ep=2,dp=2", 4, "dp"},
    {"dp=2,tp=2", 4, "dp"},
};

static uint32_t run_ranks_of(const char *dims)
{
    uint32_t n_ranks = 1;

    for (const char *at = strchr(dims, '='); at != NULL; at = strchr(at + 1, '=')) {
        n_ranks *= (uint32_t)atoi(at + 1);
    }
    return n_ranks;
}

static void run_start(struct run *run)
{
    ranks_run(run_ranks_of(run->dims), RANKS_LIMIT_MS, run_rank, run);
}

/* The loop index counts strategies and meshes; shapes and dtypes take turns. */
START_TEST(training_with_any_strategy_equals_serial_training)
{
    int mesh = _i / HOST_N_STRATEGIES;
    struct run run = {.n_batches = 2, .is_local = true, .scopes = {0, HSDP_SCOPE_FULL}};

    seed = (uint64_t)_i + 1;
    snprintf(run.dims, sizeof(run.dims), "%s", meshes[mesh].dims);
    snprintf(run.settings, sizeof(run.settings), "sharding_strategy=%s param_dtype=%s",
             host_strategies[_i % HOST_N_STRATEGIES], dtypes[_i % 3]);
    snprintf(run.units, sizeof(run.units), "%s", every_shape);
    run_start(&run);
}
END_TEST

START_TEST(training_of_experts_equals_serial_training)
{
    int mesh = _i / HOST_N_STRATEGIES;
    struct run run = {.n_batches = 2, .is_local = true, .scopes = {0, HSDP_SCOPE_FULL}};

    seed = (uint64_t)_i + 1000;
    snprintf(run.dims, sizeof(run.dims), "%s", meshes[mesh].dims);
    snprintf(run.settings, sizeof(run.settings),
             "sharding_strategy=%s reduce_dtype=%s gradient_dtype=%s",
             host_strategies[_i % HOST_N_STRATEGIES], dtypes[_i % 3], dtypes[_i / 3 % 3]);
    snprintf(run.units, sizeof(run.units), with_experts, meshes[mesh].expert_over);
    run_start(&run);
}
END_TEST

/* Layer norms under tensor parallelism: replicated over tp; their gradients are equal there, or,
 * with sequence parallelism, partial. */
static double by_data_rank(struct host_at at)
{
    return at.rank / 2 == 0 ? 1.0 : 3.0;
}

static void tensor_parallel_rank(uint32_t rank, void *shared)
{
    bool is_partial = *(bool *)shared;
    struct host host;

    host_open(&host, rank, "dp=2,tp=2", host_settings,
              is_partial ? "class ln(dp,tp); unit a: w[9]" : "class ln(dp,tp)(dp); unit a: w[9]");
    host_load(&host, random_weight);
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_data_rank);
    ck_assert_double_eq(host_step(&host, 0.0).norm, is_partial ? 12.0 : 6.0);
    host_expect_grad(&host, "w", is_partial ? 4.0 : 2.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(norm_of_what_is_replicated_over_tp_counts_once)
{
    bool is_partial = _i % 2 != 0;

    host_settings_set(_i / 2, "");
    ranks_run(4, RANKS_LIMIT_MS, tensor_parallel_rank, &is_partial);
}
END_TEST

/* Every dtype of parameters, wire and gradients, in every scope. */
START_TEST(training_in_any_dtype_equals_serial_training)
{
    struct run run = {.n_batches = 3, .dims = "dp=2,cp=2"};
    int scope = _i % 3;

    seed = (uint64_t)_i + 2000;
    run.is_local = scope == HSDP_SCOPE_NONE;
    run.scopes[0] = scope;
    run.scopes[1] = _i % 2 == 0 ? scope : HSDP_SCOPE_FULL;
    run.scopes[2] = HSDP_SCOPE_FULL;
    snprintf(run.settings, sizeof(run.settings),
             "sharding_strategy=%s param_dtype=%s reduce_dtype=%s gradient_dtype=%s "
             "accumulation_scope=%s slots=%d",
             host_strategies[_i % HOST_N_STRATEGIES], dtypes[_i / 3 % 3], dtypes[_i / 9 % 3],
             dtypes[_i / 27], scopes[scope], 1 + _i % 4);
    snprintf(run.units, sizeof(run.units), "%s", every_shape);
    run_start(&run);
}
END_TEST

/* ---------------------------------------------------------------------------------- random cases
 */

static struct run random_run; /* of the running case; ranks inherit it */

static uint32_t random_of(uint32_t what, uint32_t index, uint32_t n)
{
    return (uint32_t)(mixed(seed, 7000 + what, index, 3) % n);
}

static void random_dims(char *ret_text)
{
    static const char *const names[] = {"pp", "dp", "cp", "ep", "tp"};
    uint32_t n_ranks = 1;
    uint32_t n_dims = 0;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t size = 1 + random_of(0, i, i == 1 ? 4 : 3);

        if (n_ranks * size > 6 || (i != 1 && random_of(1, i, 5) < 3)) {
            continue;
        }
        n_ranks *= size;
        sprintf(ret_text + strlen(ret_text), "%s%s=%u", n_dims++ == 0 ? "" : ",", names[i], size);
    }
    if (strstr(ret_text, "dp") == NULL) {
        strcat(ret_text, n_dims == 0 ? "dp=1" : ",dp=1");
    }
}

static void random_settings(struct run *run)
{
    static const char *const replicates[] = {"", "replicate_dims=", "replicate_dims=cp",
                                             "replicate_dims=dp,ep"};
    uint32_t scope = random_of(2, 0, 3);
    const char *replicate = replicates[random_of(3, 0, 4)];
    size_t n_bytes;

    if ((strstr(replicate, "cp") != NULL && strstr(run->dims, "cp") == NULL) ||
        (strstr(replicate, "ep") != NULL && strstr(run->dims, "ep") == NULL)) {
        replicate = ""; /* no such dimension; or dp is split and goes by another name */
    }
    run->is_local = scope == HSDP_SCOPE_NONE;
    run->n_slots = 1 + random_of(4, 0, 4);
    run->n_batches = 1 + random_of(5, 0, 3);
    for (uint32_t i = 0; i < run->n_batches; i++) {
        run->scopes[i] = random_of(6, i, 3) == 0 ? HSDP_SCOPE_FULL : (int32_t)scope;
    }
    run->scopes[run->n_batches - 1] = HSDP_SCOPE_FULL;
    n_bytes = (size_t)snprintf(
        run->settings, sizeof(run->settings),
        "sharding_strategy=%s param_dtype=%s reduce_dtype=%s gradient_dtype=%s "
        "accumulation_scope=%s slots=%u %s",
        host_strategies[random_of(7, 0, HOST_N_STRATEGIES)], dtypes[random_of(8, 0, 3)],
        dtypes[random_of(9, 0, 3)], dtypes[random_of(10, 0, 3)], scopes[scope], run->n_slots,
        strstr(run->dims, "cp") != NULL || strstr(run->dims, "ep") != NULL ? replicate : "");
    ck_assert_uint_lt(n_bytes, sizeof(run->settings));
}

static void random_units(struct run *run)
{
    static const char *const shapes[] = {"[]",      "[0]",    "[1]",    "[7]",    "[31]", "[5,3]",
                                         "[2,0,3]", "[1031]", "[3,17]", "[2050]", "[64]", "[16,8]"};
    uint32_t n_units = 1 + random_of(11, 0, 6);
    char *at = run->units;

    *at = '\0';
    for (uint32_t unit = 0; unit < n_units; unit++) {
        if (unit > 0 && random_of(12, 0, n_units) == unit) {
            const char *strategy = host_strategies[random_of(13, 0, HOST_N_STRATEGIES)];
            const char *over =
                random_of(14, 0, 2) == 0 && strstr(run->dims, "cp") != NULL ? "dp,cp" : "dp";

            at += sprintf(at, "class expert(%s) sharding_strategy=%s; ", over, strategy);
        }
        at += sprintf(at, "unit u%u:", unit);
        for (uint32_t i = 0; i <= random_of(15, unit, 3); i++) {
            uint32_t index = unit * 4 + i;
            bool is_tied = i > 0 && random_of(16, index, 5) == 0;
            uint32_t shape = random_of(17, is_tied ? unit * 4 : index, (uint32_t)N_OF(shapes));
            bool is_frozen = random_of(18, is_tied ? unit * 4 : index, 6) == 0;

            at += sprintf(at, " p%u%s", index, shapes[shape]);
            at += is_tied && !is_frozen ? sprintf(at, "=p%u", unit * 4)
                                        : sprintf(at, "%s", is_frozen ? "!" : "");
        }
        at += sprintf(at, "; ");
    }
}

/* Which units a rank hands over: all before the first absent one, and some of the next slots - 1,
 * since further ahead none may be. Positions count trainable units in the order of the pass. */
static bool is_handed_over(uint32_t rank, uint32_t batch, uint32_t position)
{
    uint32_t first_absent = (uint32_t)(mixed(seed, 21, rank, batch) % 12u);

    return position < first_absent ||
           (position > first_absent && position - first_absent < random_run.n_slots &&
            mixed(seed, 22 + position, rank, batch) % 2 == 0);
}

static const struct host *random_host; /* this rank's, for its parameters */

static uint32_t unit_position(uint32_t unit)
{
    uint32_t position = 0;

    for (uint32_t u = random_host->n_units; u-- > unit + 1;) {
        position += host_is_trainable(random_host, u);
    }
    return position;
}

static double present_gradient(struct host_at at)
{
    uint32_t position = unit_position(random_host->params[at.param].unit);

    return is_handed_over(at.rank, at.microbatch, position) ? random_gradient(at) : 0.0;
}

/* A few parameters get a constant from elsewhere, also of units that are not handed over. */
static double late_gradient(struct host_at at)
{
    uint64_t bits = mixed(seed, 23, at.rank * 1000u + at.microbatch, at.param);

    return bits % 5 == 0 ? host_round(unit_value(bits), "bf16") : 0.0;
}

static void late_add(struct host *host, uint32_t unit, uint32_t batch)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const struct host_param *p = &host->params[param];
        double value = late_gradient((struct host_at){host->rank, batch, param, 0});

        if (p->unit == unit && p->storage == param && !p->is_frozen && value != 0.0) {
            host_grad_add(host, p->name, value, dtypes[param % 2]);
        }
    }
}

/* Where a rank is in a pass: units by position; turn = all before it were handed over. */
struct walk {
    uint32_t units[HOST_MAX_UNITS];
    bool is_acquired[HOST_MAX_UNITS];
    bool is_handed[HOST_MAX_UNITS];
    uint32_t n_units;
    uint32_t turn;
    uint32_t batch;
};

static uint32_t unit_slot(struct host *host, uint32_t unit)
{
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

    host_must(host, host->api->plan->unit_info(host->plan, unit, &info, &host->err));
    return info.param_slot;
}

/* Whether a unit may be unsharded now: its gradient memory is free, and its parameter slot. */
static bool walk_may_acquire(const struct walk *walk, struct host *host, uint32_t position)
{
    uint32_t slot = unit_slot(host, walk->units[position]);

    if (walk->is_acquired[position] || position - walk->turn >= random_run.n_slots ||
        !is_handed_over(host->rank, walk->batch, position)) {
        return false;
    }
    for (uint32_t other = 0; other < walk->n_units; other++) {
        if (walk->is_acquired[other] && !walk->is_handed[other] && slot != HSDP_NO_SLOT &&
            unit_slot(host, walk->units[other]) == slot) {
            return false;
        }
    }
    return true;
}

/* Acquires one unit or hands one over, if it may at all. */
static bool walk_step(struct walk *walk, struct host *host, uint32_t position)
{
    uint32_t unit = walk->units[position];
    int32_t use = position % 2 == 0 ? HSDP_USE_BACKWARD : HSDP_USE_BACKWARD_SET;

    if (walk->is_acquired[position] && !walk->is_handed[position]) {
        late_add(host, unit, walk->batch);
        host_hand_over(host, unit);
        walk->is_handed[position] = true;
        while (walk->turn < walk->n_units && walk->is_handed[walk->turn]) {
            walk->turn++;
        }
        return true;
    }
    if (walk_may_acquire(walk, host, position)) {
        host_must(host, host_unshard(host, unit, use));
        host_fill(host, unit, walk->batch, present_gradient);
        walk->is_acquired[position] = true;
        return true;
    }
    return false;
}

/* A pass whose units are handed over in an order of this rank's own. */
static void random_pass(struct host *host, int32_t scope, uint32_t batch)
{
    struct walk walk = {.batch = batch};
    bool is_moving = true;

    for (uint32_t unit = host->n_units; unit-- > 0;) {
        if (host_is_trainable(host, unit)) {
            walk.units[walk.n_units++] = unit;
        }
    }
    host_pass_begin(host, scope);
    for (uint32_t i = 0; i < 20 && walk.n_units > 0; i++) {
        walk_step(&walk, host, (uint32_t)(mixed(seed, 31 + i, host->rank, batch) % walk.n_units));
    }
    while (is_moving) { /* the rest in order */
        is_moving = false;
        for (uint32_t position = 0; position < walk.n_units; position++) {
            is_moving = walk_step(&walk, host, position) || is_moving;
        }
    }
    for (uint32_t position = 0; position < walk.n_units; position++) {
        if (!walk.is_handed[position]) {
            late_add(host, walk.units[position], batch);
        }
    }
    host_pass_end(host);
}

static void random_window(struct host *host, struct serial *serial, uint32_t window)
{
    struct hsdp_step_info result;

    serial->first_batch = window * random_run.n_batches;
    for (uint32_t batch = 0; batch < random_run.n_batches; batch++) {
        host_forward(host);
        random_pass(host, random_run.scopes[batch], serial->first_batch + batch);
    }
    serial_reduce(serial);
    result = host_step(host, 0.25);
    serial_expect_norm(serial, result.norm);
    serial_expect_grads(serial, host);
    host_descend(host, 0.125, result.factor);
    serial_descend(serial, 0.125, fmin(1.0, 0.25 / (serial->norm + 1e-6)));
    host_step_end(host);
}

static void random_rank(uint32_t rank, void *shared)
{
    struct serial serial;
    struct host host;

    (void)shared;
    host_open(&host, rank, random_run.dims, random_run.settings, random_run.units);
    random_host = &host;
    host_load(&host, random_weight);
    serial_init(&serial, &host, random_weight);
    serial.gradient = present_gradient;
    serial.late = late_gradient;
    serial.scopes = random_run.scopes;
    serial.n_batches = random_run.n_batches;
    serial.is_local = random_run.is_local;
    for (uint32_t window = 0; window < 2; window++) {
        random_window(&host, &serial, window);
        serial_expect_weights(&serial, &host);
    }
    serial_fini(&serial);
    host_close(&host);
}

static void random_case_run(uint64_t number)
{
    seed = number;
    memset(&random_run, 0, sizeof(random_run));
    random_dims(random_run.dims);
    random_settings(&random_run);
    random_units(&random_run);
    ranks_run(run_ranks_of(random_run.dims), RANKS_LIMIT_MS, random_rank, NULL);
}

#define BATCH_CASES 10

/* HSDP_TEST_CASES says how many in all, HSDP_TEST_SEED where they begin. */
static uint64_t environment_number(const char *name, uint64_t initial)
{
    const char *text = getenv(name);

    return text == NULL ? initial : strtoull(text, NULL, 10);
}

START_TEST(training_of_random_plans_equals_serial_training)
{
    uint64_t first = environment_number("HSDP_TEST_SEED", 1) + (uint64_t)_i * BATCH_CASES;

    for (uint64_t number = first; number < first + BATCH_CASES; number++) {
        printf("seed %" PRIu64 "\n", number);
        fflush(stdout);
        random_case_run(number);
    }
}
END_TEST

Suite *module_suite(void)
{
    int n_batches =
        (int)((environment_number("HSDP_TEST_CASES", 100) + BATCH_CASES - 1) / BATCH_CASES);
    Suite *suite = suite_create("strategies");
    TCase *tcase = tcase_create("strategies");

    tcase_set_timeout(tcase, 90);
    tcase_add_loop_test(tcase, training_with_any_strategy_equals_serial_training, 0,
                        N_OF(meshes) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, training_of_experts_equals_serial_training, 0,
                        N_OF(meshes) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, norm_of_what_is_replicated_over_tp_counts_once, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, training_in_any_dtype_equals_serial_training, 0, 81);
    tcase_add_loop_test(tcase, training_of_random_plans_equals_serial_training, 0, n_batches);
    suite_add_tcase(suite, tcase);
    return suite;
}
