/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training with AdamW: what a host looks at, and when, changes no bits. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "random_train.h"
#include "ranks.h"
#include "suite.h"

/*
 * Run 0 of a case looks at nothing. Run 1, by the plain kernels and where bits allow it under
 * another strategy, takes views and exports gradients, and so has them divided early, and masters
 * published late. HSDP_TEST_SEED and HSDP_TEST_CASE as in check_random.
 */

#define N_CASES     300
#define BATCH_CASES 50
#define CASE_MS     60000u

enum look {
    LOOK_BEFORE,  /* at what gradients will be, before the window */
    LOOK_BETWEEN, /* at masters, within the window */
    LOOK_OPEN,    /* at gradients, in the step */
    LOOK_EXPORT,  /* likewise, all ranks together */
    LOOK_UPDATED, /* at gradients and masters, behind the update */
    N_LOOKS,
};

/* What a run leaves behind. */
struct trace {
    uint64_t digest[RANDOM_MAX_STEPS];
    double norms[RANDOM_MAX_STEPS];
    bool has_states;
};

static struct random_case running; /* ranks inherit it */

static uint64_t drawn_number(uint64_t what, uint64_t step, uint64_t rank)
{
    return random_mix(running.seed, what + 1000, step, rank);
}

/* All ranks look alike where looking is collective. */
static bool is_looked(int run, enum look look, uint32_t step, uint32_t rank)
{
    return run == 1 && drawn_number(look, step, look == LOOK_EXPORT ? 0 : rank) % 3 == 0;
}

static void flats_view(struct host *host, int32_t flat, double factor)
{
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_tensor view;

        if (!host_is_stepped(host, unit)) {
            continue;
        }
        host_must(host, host->api->model->flat_view(host->model, unit, 0, flat, &view, &host->err));
        for (uint64_t i = 0; factor != 1.0 && i < (uint64_t)view.shape[0]; i++) {
            host_write(&view, i, host_read(&view, i) * factor);
        }
    }
}

static void grads_export(struct host *host)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (!host->params[param].is_frozen && host->params[param].storage == param) {
            host_export(host, param, HSDP_FLAT_GRAD);
        }
    }
}

static uint64_t values_mix(uint64_t digest, const float *values, uint64_t n_elems)
{
    for (uint64_t i = 0; i < n_elems; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof(bits));
        digest = random_mix(digest, bits, i, 0);
    }
    return digest;
}

/* Masters, states, and parameters as they are unsharded. */
static uint64_t model_digest(struct host *host, bool has_states)
{
    uint64_t digest = 0;

    for (uint32_t param = 0; param < host->n_params; param++) {
        const struct host_param *p = &host->params[param];
        struct hsdp_tensor view;

        digest = values_mix(digest, host_export(host, param, HSDP_FLAT_MASTER), p->n_elems);
        for (int32_t state = 0; has_states && !p->is_frozen && state < 2; state++) {
            digest =
                values_mix(digest, host_export(host, param, HSDP_FLAT_STATE + state), p->n_elems);
        }
        host_must(host, host_unshard(host, p->unit, HSDP_USE_FORWARD));
        view = host_view(host, param, HSDP_VIEW_PARAM);
        for (uint64_t i = 0; i < p->n_elems; i++) {
            float value = (float)host_read(&view, i);

            digest = values_mix(digest, &value, 1);
        }
        host_must(host, host_release(host, p->unit));
    }
    return digest;
}

static void step_close(struct host *host, int run, uint32_t step, bool is_kept)
{
    if (!is_kept) {
        host_must(host, host->api->step->discard(host->model, NULL, &host->err));
        return;
    }
    host_must(host, host_adamw(host, 0.125, 0.25));
    if (is_looked(run, LOOK_UPDATED, step, host->rank)) {
        flats_view(host, HSDP_FLAT_GRAD, 1.0);
        flats_view(host, HSDP_FLAT_MASTER, 1.0);
    }
    if (drawn_number(N_LOOKS, step, 0) % 4 == 0) { /* both runs: written behind the update */
        flats_view(host, HSDP_FLAT_MASTER, 0.5);
    }
    host_step_end(host);
}

static void window_run(struct random_case *mine, int run, struct host *host, uint32_t step,
                       struct trace *trace)
{
    static const double powers[] = {0.0, 2.0, 2.0, 1.0, 3.0, INFINITY};
    uint32_t first = (uint32_t)(drawn_number(N_LOOKS + 1, step, 0) % mine->n_batches);
    struct hsdp_step_info result;
    bool is_kept;

    mine->norm_p = powers[drawn_number(N_LOOKS + 2, step, 0) % N_OF(powers)];
    if (is_looked(run, LOOK_BEFORE, step, host->rank)) {
        flats_view(host, HSDP_FLAT_GRAD, 1.0);
    }
    for (uint32_t i = first; i < mine->n_batches; i++) {
        random_backward(host, step * mine->n_batches + i);
        if (is_looked(run, LOOK_BETWEEN, step, host->rank)) {
            flats_view(host, HSDP_FLAT_MASTER, 1.0);
        }
    }
    result = random_step_open(mine, host, step);
    if (is_looked(run, LOOK_OPEN, step, host->rank)) {
        flats_view(host, HSDP_FLAT_GRAD, 1.0);
    }
    if (is_looked(run, LOOK_EXPORT, step, host->rank)) {
        grads_export(host);
    }
    is_kept = result.is_nonfinite == 0 && mine->steps[step] != RANDOM_STEP_DISCARD &&
              mine->steps[step] != RANDOM_STEP_NONFINITE;
    step_close(host, run, step, is_kept);
    trace->norms[step] = result.is_nonfinite != 0 ? INFINITY : result.norm;
    trace->has_states = trace->has_states || is_kept;
    trace->digest[step] = model_digest(host, trace->has_states);
}

static void run_train(int run, struct host *host, struct trace *trace)
{
    struct random_case mine = running;
    int other = running.promises_bits ? run : 0;
    char units[RANDOM_TEXT_BYTES];
    char settings[512];

    random_case_units(&mine, other, host->rank, units);
    snprintf(settings, sizeof(settings), "%s%s", mine.settings[other],
             run == 1 && strstr(mine.settings[other], "cpu_path") == NULL ? " cpu_path=plain" : "");
    host_plan(host, settings, units);
    host_model(host);
    random_values_set(&mine, host);
    host_load(host, random_weight);
    for (uint32_t step = 0; step < RANDOM_MAX_STEPS; step++) {
        window_run(&mine, run, host, step, trace);
    }
}

static void case_rank(uint32_t rank, void *shared)
{
    struct trace traces[2];
    struct host host;

    (void)shared;
    memset(traces, 0, sizeof(traces));
    host_join(&host, rank, running.dims, running.settings[0]);
    run_train(0, &host, &traces[0]);
    host.api->model->destroy(host.model);
    host.api->plan->destroy(host.plan);
    run_train(1, &host, &traces[1]);
    for (uint32_t step = 0; step < RANDOM_MAX_STEPS; step++) {
        ck_assert_msg(memcmp(&traces[0].norms[step], &traces[1].norms[step], sizeof(double)) == 0,
                      "rank %u: step %u: the norm is %.17g, in run 1 %.17g", rank, step,
                      traces[0].norms[step], traces[1].norms[step]);
        ck_assert_msg(traces[0].digest[step] == traces[1].digest[step],
                      "rank %u: step %u: other bits in run 1", rank, step);
    }
    host_close(&host);
}

static uint64_t environment_number(const char *name, uint64_t initial)
{
    const char *text = getenv(name);

    return text == NULL ? initial : strtoull(text, NULL, 10);
}

static void case_run(uint64_t seed, uint64_t number)
{
    struct ranks ranks;
    bool is_good = true;

    random_case_draw(&running, random_mix(seed, number, 2, 2));
    ranks_start(&ranks, running.n_ranks, CASE_MS, case_rank, NULL);
    while (ranks_running(&ranks) > 0 && ranks_now_ms() < ranks.deadline_ns / 1000000u) {
        ranks_sleep_ms(1);
    }
    for (uint32_t rank = 0; rank < running.n_ranks; rank++) {
        is_good = is_good && ranks.pids[rank] == 0 && ranks.wait_status[rank] == 0;
    }
    if (!is_good) {
        printf("case %" PRIu64 " of seed %" PRIu64 " failed\n", number, seed);
        random_case_print(&running);
    }
    ranks_wait(&ranks);
}

START_TEST(looks_of_random_cases_change_no_bits)
{
    uint64_t seed = environment_number("HSDP_TEST_SEED", 1);

    if (getenv("HSDP_TEST_CASE") != NULL) {
        if (_i == 0) {
            case_run(seed, environment_number("HSDP_TEST_CASE", 0));
        }
        return;
    }
    for (uint64_t i = 0; i < BATCH_CASES; i++) {
        case_run(seed, (uint64_t)_i * BATCH_CASES + i);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("looks");
    TCase *tcase = tcase_create("looks");

    tcase_set_timeout(tcase, 230);
    tcase_add_loop_test(tcase, looks_of_random_cases_change_no_bits, 0, N_CASES / BATCH_CASES);
    suite_add_tcase(suite, tcase);
    return suite;
}
