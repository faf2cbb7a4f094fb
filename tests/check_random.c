/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training, each against training without sharding and against another strategy. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "random_pass.h"
#include "ranks.h"
#include "serial.h"
#include "suite.h"

/*
 * HSDP_TEST_SEED says which cases (1 unless given), HSDP_TEST_CASES how many of them, and
 * HSDP_TEST_CASE picks one alone, by the number that a failure prints.
 */

#define N_CASES     2000
#define BATCH_CASES 50
#define CASE_MS     60000u /* on a machine with much else to do */
#define SHOWN_CASES 1000

static struct random_case running; /* ranks inherit it */

/* What a run ends its steps with, for the comparison of bits. */
struct trace {
    uint64_t grads[RANDOM_MAX_STEPS][HOST_MAX_PARAMS];
    double norms[RANDOM_MAX_STEPS];
    uint64_t masters[HOST_MAX_PARAMS];
};

/* ----------------------------------------------------------------------------- bits of two runs */

static uint64_t bits_digest(struct host *host, uint32_t param, int32_t flat)
{
    const float *values = host_export(host, param, flat);
    uint64_t digest = 0;

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        uint32_t bits;

        memcpy(&bits, &values[elem], sizeof(bits));
        digest = random_mix(digest, bits, elem, 0);
    }
    return digest;
}

static void grads_note(struct host *host, struct trace *trace, uint32_t step)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (!host->params[param].is_frozen && host->params[param].storage == param) {
            trace->grads[step][param] = bits_digest(host, param, HSDP_FLAT_GRAD);
        }
    }
}

static void masters_note(struct host *host, struct trace *trace)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        trace->masters[param] = bits_digest(host, param, HSDP_FLAT_MASTER);
    }
}

static void traces_compare(const struct host *host, const struct trace *first,
                           const struct trace *second)
{
    for (uint32_t step = 0; step < running.n_steps; step++) {
        for (uint32_t param = 0; param < host->n_params; param++) {
            if (first->grads[step][param] != second->grads[step][param]) {
                ck_abort_msg("rank %u: step %u: gradients of %s have other bits in run 1",
                             host->rank, step, host->params[param].name);
            }
        }
        if (memcmp(&first->norms[step], &second->norms[step], sizeof(double)) != 0) {
            ck_abort_msg("rank %u: step %u: the norm is %.17g, in run 1 %.17g", host->rank, step,
                         first->norms[step], second->norms[step]);
        }
    }
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (first->masters[param] != second->masters[param]) {
            ck_abort_msg("rank %u: %s has other bits in run 1", host->rank,
                         host->params[param].name);
        }
    }
}

/* ---------------------------------------------------------------------------------------- steps */

static double weight_sum(const struct host *host, uint32_t step)
{
    double sum = 0.0;

    for (uint32_t rank = 0; rank < host->n_ranks; rank++) { /* the first of each data rank */
        uint32_t stride = 1;
        bool is_first = true;

        for (uint32_t d = host->n_dims; d-- > 0;) {
            is_first =
                is_first && (host->dims[d].is_data || rank / stride % host->dims[d].size == 0);
            stride *= host->dims[d].size;
        }
        sum += is_first ? random_tokens(rank, step) : 0.0;
    }
    return sum;
}

static struct hsdp_step_info step_open(struct host *host, uint32_t step)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;

    spec.max_norm = running.max_norm;
    spec.norm_p = running.norm_p;
    spec.gradient_scale = running.scale;
    spec.has_weight = running.has_weight;
    spec.weight = running.has_weight ? random_tokens(host->rank, step) : 0.0;
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    host_must(host, host->api->step->result(host->model, &result, &host->err));
    return result;
}

/* What the step says, as a function of what the gradients are. */
static void result_expect(const struct host *host, const struct serial *serial, uint32_t step,
                          const struct hsdp_step_info *result)
{
    double weight = running.has_weight ? weight_sum(host, step) : 0.0;
    double scale =
        (running.scale == 0.0 ? 1.0 : running.scale) / (running.has_weight ? weight : 1.0);
    bool is_finite = isfinite(serial->norm) && isfinite(scale);
    double clip = running.max_norm == 0.0 || !is_finite
                      ? 1.0
                      : fmin(1.0, running.max_norm / (result->norm + 1e-6));

    host_expect(result->is_nonfinite == !is_finite);
    host_expect(result->weight == weight);
    if (!is_finite) {
        host_expect(!isfinite(result->norm));
        host_expect(result->clip == 1.0);
        return;
    }
    if (!serial_has_norm(serial, result->norm, scale)) {
        ck_abort_msg("rank %u: the norm is %.9g, serially it is %.9g (slack %.3g)", host->rank,
                     result->norm, serial->norm * scale, serial->norm_slack * scale);
    }
    host_expect(fabs(result->clip - clip) <= 1e-15 * clip);
    host_expect(fabs(result->factor - scale * clip) <= 1e-15 * scale * clip);
}

/* Exports every parameter, and imports it again from a rank that is not always the first. */
static void params_copy(struct host *host, uint32_t step)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    for (uint32_t param = 0; param < host->n_params; param++) {
        uint32_t source = host_reducer(host, param, host->rank);
        struct hsdp_tensor full;
        const float *values = host_export(host, param, HSDP_FLAT_MASTER);

        if (step % 2 != 0) { /* the last one instead: the others have nothing to give */
            for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
                source = host_reducer(host, param, rank) == host_reducer(host, param, host->rank)
                             ? rank
                             : source;
            }
        }
        full = host_tensor(host, param, (void *)(uintptr_t)values, "fp32");
        host_must(host, host->api->model->import_param(host->model, param, HSDP_FLAT_MASTER,
                                                       source == host->rank ? &full : NULL, source,
                                                       NULL, &host->err));
    }
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

/* Spoils what every replica but the saving one holds, which sync must mend. */
static void params_sync(struct host *host)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
        uint32_t writer;

        host_must(host, host->api->plan->unit_info(host->plan, unit, &info, &host->err));
        host_must(host, host->api->plan->writer(host->plan, unit, HSDP_SHARD_STEP, host->rank,
                                                &writer, &host->err));
        for (uint32_t b = 0; writer != host->rank && b < info.n_buffers; b++) {
            struct hsdp_tensor flat;

            host_must(host, host->api->model->flat_view(host->model, unit, b, HSDP_FLAT_MASTER,
                                                        &flat, &host->err));
            for (uint64_t i = 0; i < (uint64_t)flat.shape[0]; i++) {
                host_write(&flat, i, 2.0 * host_read(&flat, i)); /* padding stays 0 */
            }
        }
    }
    host_must(host, host->api->model->sync(host->model, NULL, &host->err));
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

/* ----------------------------------------------------------------------------------------- runs */

static void step_close(struct host *host, struct serial *serial, uint32_t step,
                       const struct hsdp_step_info *result)
{
    enum random_step kind = running.steps[step];

    if (result->is_nonfinite || kind == RANDOM_STEP_DISCARD || kind == RANDOM_STEP_NONFINITE) {
        host_must(host, host->api->step->discard(host->model, NULL, &host->err));
        return;
    }
    host_descend(host, 0.125, result->factor);
    if (serial != NULL) {
        serial_descend(serial, 0.125, result->factor);
    }
    host_step_end(host);
    if (kind == RANDOM_STEP_COPY) {
        params_copy(host, step);
    } else if (kind == RANDOM_STEP_SYNC) {
        params_sync(host);
    }
}

/* A window and its step; against the model where there is one. */
static void window_run(struct host *host, struct serial *serial, struct trace *trace, uint32_t step)
{
    struct hsdp_step_info result;

    for (uint32_t i = 0; i < running.n_batches; i++) {
        if ((running.seed + i) % 4 == 0) {
            host_forward(host);
        }
        random_backward(host, step * running.n_batches + i);
    }
    result = step_open(host, step);
    if (serial != NULL) {
        serial->first_batch = step * running.n_batches;
        serial_reduce(serial);
        result_expect(host, serial, step, &result);
        if (isfinite(serial->norm)) {
            serial_expect_grads(serial, host);
        }
    }
    trace->norms[step] = result.norm;
    if (running.promises_bits && !result.is_nonfinite) { /* NaNs may have any payload */
        grads_note(host, trace, step);
    }
    if (result.is_nonfinite) {
        trace->norms[step] = INFINITY;
    }
    step_close(host, serial, step, &result);
}

static uint32_t first_holder(uint32_t param, uint32_t rank)
{
    return random_first_holder(&running, param, rank);
}

static void serial_set(struct serial *serial, const struct host *host)
{
    serial_init(serial, host, random_weight);
    serial->gradient = random_gradient;
    serial->late = random_late;
    serial->has_pass = random_has_pass;
    serial->first_holder = first_holder;
    serial->scopes = running.scopes;
    serial->n_batches = running.n_batches;
    serial->is_local = running.is_local;
    serial->is_exact = running.is_exact;
    serial->norm_p = running.norm_p;
}

static void run_train(struct host *host, int run, struct trace *trace)
{
    char units[RANDOM_TEXT_BYTES];
    struct serial serial;

    random_case_units(&running, run, host->rank, units);
    host_plan(host, running.settings[run], units);
    host_model(host);
    random_values_set(&running, host);
    host_load(host, random_weight);
    if (run == 0) {
        serial_set(&serial, host);
    }
    for (uint32_t step = 0; step < running.n_steps; step++) {
        window_run(host, run == 0 ? &serial : NULL, trace, step);
    }
    if (run == 0) {
        serial_expect_weights(&serial, host);
        serial_fini(&serial);
    }
    if (running.promises_bits) {
        masters_note(host, trace);
    }
}

static void case_rank(uint32_t rank, void *shared)
{
    static struct trace traces[RANDOM_RUNS];
    struct host host;

    (void)shared;
    host_join(&host, rank, running.dims, running.settings[0]);
    run_train(&host, 0, &traces[0]);
    if (running.promises_bits) {
        host.api->model->destroy(host.model);
        host.api->plan->destroy(host.plan);
        run_train(&host, 1, &traces[1]);
        traces_compare(&host, &traces[0], &traces[1]);
    }
    host_close(&host);
}

/* ---------------------------------------------------------------------------------------- cases */

/* Runs a case; one that fails is printed first. */
static void case_run(uint64_t seed, uint64_t number, void (*function)(uint32_t, void *))
{
    struct ranks ranks;
    bool is_good = true;

    random_case_draw(&running, random_mix(seed, number, 1, 1));
    ranks_start(&ranks, running.n_ranks, CASE_MS, function, NULL);
    while (ranks_running(&ranks) > 0 && ranks_now_ms() < ranks.deadline_ns / 1000000u) {
        ranks_sleep_ms(1);
    }
    for (uint32_t rank = 0; rank < running.n_ranks; rank++) {
        is_good = is_good && ranks.pids[rank] == 0 && ranks.wait_status[rank] == 0;
    }
    if (!is_good) {
        printf("case %" PRIu64 " failed; alone: HSDP_TEST_SEED=%" PRIu64 " HSDP_TEST_CASE=%" PRIu64
               " tests/check_random\n",
               number, seed, number);
        random_case_print(&running);
    }
    ranks_wait(&ranks);
}

static uint64_t environment_number(const char *name, uint64_t initial)
{
    const char *text = getenv(name);

    return text == NULL ? initial : strtoull(text, NULL, 10);
}

/* How many cases to run, and which one first. Instrumented code is many times slower. */
static uint64_t case_count(uint64_t *ret_first)
{
    const char *sanitizers = getenv("HSDP_TEST_SANITIZERS");
    bool is_slow = sanitizers != NULL && sanitizers[0] != '\0';

    *ret_first = environment_number("HSDP_TEST_CASE", 0);
    return getenv("HSDP_TEST_CASE") != NULL
               ? 1
               : environment_number("HSDP_TEST_CASES", is_slow ? N_CASES / 4 : N_CASES);
}

START_TEST(training_of_random_cases_equals_serial_training)
{
    uint64_t seed = environment_number("HSDP_TEST_SEED", 1);
    uint64_t first;
    uint64_t n_cases = case_count(&first);
    uint64_t number = first + (uint64_t)_i * BATCH_CASES;

    for (uint64_t i = 0; i < BATCH_CASES && number < first + n_cases; i++, number++) {
        case_run(seed, number, case_rank);
    }
    if (number % SHOWN_CASES == 0 || number == first + n_cases) {
        printf("seed %" PRIu64 ": %" PRIu64 " of %" PRIu64 " cases\n", seed, number - first,
               n_cases);
        fflush(stdout);
    }
}
END_TEST

/* Every feature is in a fair number of the cases; the texts name what a struct does not. */
START_TEST(random_cases_have_every_feature)
{
    static const char *const words[] = {"pp=",    "cp=",     "ep=",     "tp=",    "class c",
                                        "=sum",   "divisor", "shard_s", "replic", "master",
                                        "verify", "plain",   "=none",   "=inner", "=full",
                                        "[0]",    "!",       "/3",      "[2050]", "=u0p0"};
    static struct random_case drawn;
    uint32_t n_words[N_OF(words)] = {0};
    uint32_t n_tied = 0, n_aliases = 0, n_norms = 0;
    uint32_t n_bits = 0, n_chunks = 0, n_absent = 0, n_late = 0, n_weight = 0, n_eight = 0;

    for (uint64_t number = 0; number < N_CASES; number++) {
        random_case_draw(&drawn, random_mix(1, number, 1, 1));
        n_bits += drawn.promises_bits;
        n_chunks += drawn.has_chunks;
        n_absent += drawn.has_absent;
        n_late += drawn.has_late;
        n_weight += drawn.has_weight;
        n_tied += drawn.holders != 0;
        n_aliases += drawn.has_aliases;
        n_norms += drawn.norm_p != 0.0 && drawn.norm_p != 2.0;
        n_eight += drawn.n_ranks == RANDOM_MAX_RANKS;
        for (int i = 0; i < N_OF(words); i++) {
            n_words[i] += strstr(drawn.dims, words[i]) != NULL ||
                          strstr(drawn.settings[0], words[i]) != NULL ||
                          strstr(drawn.units[0], words[i]) != NULL;
        }
    }
    ck_assert_msg(n_bits > N_CASES / 2 && n_chunks > 200 && n_absent > 200 && n_late > 200 &&
                      n_weight > 200 && n_eight > 100,
                  "%u %u %u %u %u %u", n_bits, n_chunks, n_absent, n_late, n_weight, n_eight);
    ck_assert_msg(n_tied > 200 && n_aliases > 200 && n_norms > 200, "%u %u %u", n_tied, n_aliases,
                  n_norms);
    for (int i = 0; i < N_OF(words); i++) {
        ck_assert_msg(n_words[i] >= 50, "\"%s\" is in %u cases", words[i], n_words[i]);
    }
}
END_TEST

/* ----------------------------------------------------------- what is wrong is told apart */

static double more_on_the_last_rank(struct host_at at)
{
    return random_gradient(at) * (at.rank + 1 == running.n_ranks ? 1.0 + 0x1p-22 : 1.0);
}

static double less_a_rank(struct host_at at)
{
    return at.rank == 1 ? 0.0 : random_gradient(at);
}

/* What a wrong model has wrong. */
enum change { NOTHING, DIVISOR, LOST_RANK, LAST_PLACE, NORM_COUNT, N_CHANGES };

/* The model with one thing changed: does it still have the engine's gradients and norm? */
static bool model_agrees(struct host *host, enum change change, double norm)
{
    char text[SERIAL_TEXT_BYTES];
    struct serial serial;
    bool has_grads, has_norm;

    serial_set(&serial, host);
    serial.divisor += change == DIVISOR ? 1.0 : 0.0;
    if (change == LOST_RANK) {
        serial.gradient = less_a_rank;
    } else if (change == LAST_PLACE) {
        serial.gradient = more_on_the_last_rank;
    }
    serial_reduce(&serial);
    serial.norm *= change == NORM_COUNT ? sqrt(2.0) : 1.0; /* everything twice */
    has_grads = serial_has_grads(&serial, host, text);     /* collective */
    has_norm = serial_has_norm(&serial, norm, 1.0);
    serial_fini(&serial);
    return has_grads && has_norm;
}

static void wrong_model_rank(uint32_t rank, void *shared)
{
    enum change change = *(enum change *)shared;
    struct host host;
    double norm;

    host_open(&host, rank, running.dims, running.settings[0], running.units[0]);
    random_values_set(&running, &host);
    host_load(&host, random_weight);
    random_backward(&host, 0);
    norm = step_open(&host, 0).norm;
    ck_assert(model_agrees(&host, NOTHING, norm));
    ck_assert(!model_agrees(&host, change, norm));
    host.api->step->discard(host.model, NULL, &host.err);
    host_close(&host);
}

START_TEST(comparison_with_a_wrong_model_fails)
{
    enum change change = (enum change)(DIVISOR + _i / HOST_N_STRATEGIES);

    memset(&running, 0, sizeof(running));
    running.seed = 3;
    running.n_ranks = 4;
    running.n_batches = running.n_steps = 1;
    running.n_slots = 2;
    running.n_stages = running.stage_stride = 1;
    running.scopes[0] = HSDP_SCOPE_FULL;
    running.is_local = running.is_exact = true;
    strcpy(running.dims, "dp=2,cp=2");
    snprintf(running.settings[0], sizeof(running.settings[0]), "sharding_strategy=%s",
             host_strategies[_i % HOST_N_STRATEGIES]);
    strcpy(running.units[0], "unit a: w[97]; unit b: x[31]; unit c: y[5,3]; unit d: z[64]");
    ranks_run(running.n_ranks, RANKS_LIMIT_MS, wrong_model_rank, &change);
}
END_TEST

Suite *module_suite(void)
{
    uint64_t first;
    int n_batches = (int)((case_count(&first) + BATCH_CASES - 1) / BATCH_CASES);
    Suite *suite = suite_create("random");
    TCase *tcase = tcase_create("random");

    tcase_set_timeout(tcase, 230);
    tcase_add_loop_test(tcase, training_of_random_cases_equals_serial_training, 0, n_batches);
    tcase_add_test(tcase, random_cases_have_every_feature);
    tcase_add_loop_test(tcase, comparison_with_a_wrong_model_fails, 0,
                        (N_CHANGES - 1) * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
