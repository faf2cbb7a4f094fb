/* SPDX-License-Identifier: Apache-2.0 */
/* Reduced gradients: their norm, however windows change, and one division, whoever looks when. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define UNITS "unit a: w[1031] s[]; unit b: x[37,5] y[3]"

/* The mesh of a case, and what it adds to the settings: replicas of two and of three ranks. */
static const struct {
    const char *dims;
    uint32_t n_ranks;
    const char *more;
} meshes[] = {{"dp=4", 4, "shard_size=2"}, {"dp=3", 3, "shard_size=1"}};

/* ------------------------------------------------------------------------------------- windows */

enum content {
    NUMBERS,
    ABSENT, /* no rank has a gradient of unit b */
    HAS_INF,
    HAS_NAN,
};

/* How often each unit is reduced in full, and how the window ends. */
struct window {
    uint32_t n_passes[2];
    double p;
    enum content content;
    bool is_discarded;
};

/* Each number of passes comes behind the same, a smaller and a larger one; likewise each p. */
static const struct window windows[] = {
    {{1, 1}, 2.0, NUMBERS, false},     {{2, 1}, 2.0, NUMBERS, false},
    {{2, 3}, 2.0, NUMBERS, false},     {{1, 3}, 1.0, NUMBERS, false},
    {{3, 1}, 1.0, NUMBERS, true},      {{3, 0}, 1.0, NUMBERS, false},
    {{0, 1}, INFINITY, ABSENT, false}, {{1, 1}, INFINITY, HAS_INF, false},
    {{1, 1}, INFINITY, HAS_NAN, true}, {{1, 1}, 2.0, HAS_NAN, false},
    {{1, 2}, 2.0, HAS_INF, true},      {{1, 2}, 2.0, NUMBERS, false},
    {{0, 0}, 2.0, NUMBERS, false},     {{1, 2}, 3.0, NUMBERS, false},
    {{1, 2}, 3.0, NUMBERS, false},     {{1, 1}, 2.0, ABSENT, false},
};

static const struct window *current_window; /* this rank's */

static double number(struct host_at at)
{
    return (double)((7u * at.rank + 3u * at.microbatch + 5u * at.param + at.elem) % 11u) - 5.0;
}

static double gradient(struct host_at at)
{
    bool is_odd_one = at.rank == 1 && at.param == 2 && at.elem == 184;

    if (is_odd_one && current_window->content == HAS_INF) {
        return INFINITY;
    }
    return is_odd_one && current_window->content == HAS_NAN ? NAN : number(at);
}

/* One pass. */
static void pass_run(struct host *host, int32_t scope, uint32_t microbatch, const uint32_t *units,
                     uint32_t n_units)
{
    host_must(host, host_backward_begin(host, units, n_units, scope, &host->pass));
    for (uint32_t i = 0; i < n_units; i++) {
        if (units[i] == 1 && current_window->content == ABSENT) {
            host_attend(host, 1);
        } else {
            host_acquire(host, units[i]);
            host_fill(host, units[i], microbatch, gradient);
            host_hand_over(host, units[i]);
        }
    }
    host_pass_end(host);
}

/* Before each full pass one of the scope that is planned. */
static void passes_run(struct host *host, int32_t scope, uint32_t ret_n_batches[2])
{
    uint32_t n_batches = 0;

    ret_n_batches[0] = ret_n_batches[1] = 0;
    for (uint32_t pass = 0; pass < 3; pass++) {
        uint32_t units[2];
        uint32_t n_units = 0;

        for (uint32_t unit = 2; unit-- > 0;) {
            if (pass < current_window->n_passes[unit]) {
                units[n_units++] = unit;
                ret_n_batches[unit] += scope == HSDP_SCOPE_FULL ? 1 : 2;
            }
        }
        if (n_units > 0 && scope != HSDP_SCOPE_FULL) {
            pass_run(host, scope, n_batches++, units, n_units);
        }
        if (n_units > 0) {
            pass_run(host, HSDP_SCOPE_FULL, n_batches++, units, n_units);
        }
    }
}

/* The sum over ranks and passes of one element: a small integer. */
static double sum_of(const struct host *host, uint32_t param, uint64_t elem, uint32_t n_batches)
{
    double sum = 0.0;

    for (uint32_t batch = 0; batch < n_batches; batch++) {
        for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
            sum += number((struct host_at){rank, batch, param, elem});
        }
    }
    return sum;
}

static double norm_expected(const struct host *host, const uint32_t n_batches[2])
{
    double p = current_window->p;
    double norm = 0.0;

    for (uint32_t param = 0; param < host->n_params; param++) {
        uint32_t unit = host->params[param].unit;
        bool is_absent = unit == 1 && current_window->content == ABSENT;

        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            double sum = is_absent ? 0.0 : sum_of(host, param, elem, n_batches[unit]);

            norm = isinf(p) ? fmax(norm, fabs(sum)) : norm + pow(fabs(sum), p);
        }
    }
    return isinf(p) ? norm : pow(norm, 1.0 / p);
}

static void norm_compare(const struct host *host, double found, const uint32_t n_batches[2])
{
    double expected = norm_expected(host, n_batches);

    if (current_window->content == HAS_NAN) {
        ck_assert(isnan(found));
    } else if (current_window->content == HAS_INF) {
        ck_assert(isinf(found));
    } else if (current_window->p == 3.0) {
        ck_assert_double_eq_tol(found, expected, 1e-12 * expected);
    } else { /* sums of integers are exact */
        ck_assert_double_eq(found, expected);
    }
}

static void window_run(struct host *host, int32_t scope)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    uint32_t n_batches[2];

    passes_run(host, scope, n_batches);
    spec.norm_p = current_window->p;
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    host_must(host, host->api->step->result(host->model, &info, &host->err));
    norm_compare(host, info.norm, n_batches);
    if (current_window->is_discarded) {
        host_must(host, host->api->step->discard(host->model, NULL, &host->err));
    } else {
        host_step_end(host);
    }
}

static void norms_rank(uint32_t rank, void *shared)
{
    const int *number_of_case = shared;
    struct host host;

    host_open(&host, rank, meshes[*number_of_case % 2].dims, host_settings, UNITS);
    for (int i = 0; i < N_OF(windows); i++) {
        current_window = &windows[i];
        window_run(&host, *number_of_case / 2 % HOST_N_SCOPES);
    }
    host_close(&host);
}

START_TEST(norm_is_that_of_the_sums_however_often_units_are_reduced)
{
    int number_of_case = _i;
    char more[128];

    snprintf(more, sizeof(more), "gradient_op=sum accumulation_scope=%s %s",
             host_scopes[_i / 2 % HOST_N_SCOPES], meshes[_i % 2].more);
    host_settings_set(_i / 2 / HOST_N_SCOPES, more);
    ranks_run(meshes[_i % 2].n_ranks, RANKS_LIMIT_MS, norms_rank, &number_of_case);
}
END_TEST

/* ------------------------------------------------------------------------------- who looks when */

/* When the host takes the views of gradients: in the second step, or before all. */
enum look {
    NEVER,
    BEFORE,
    BEGUN,   /* before the step's result, */
    KNOWN,   /* behind it, */
    UPDATED, /* and behind the update by AdamW */
    TWICE,
    EXPORT,      /* no view, but gradients as whole parameters, */
    EXPORT_LAST, /* behind the update */
    N_LOOKS,
};

static const char *const look_names[N_LOOKS] = {"never", "before", "begun",  "known",
                                                "late",  "twice",  "export", "export behind"};

#define N_STEPS   5
#define MAX_ELEMS 1300

/* What comes out, on each rank. */
struct training {
    enum look look;
    int mesh;
    uint32_t n_elems;
    float masters[4][MAX_ELEMS];
    float states[4][MAX_ELEMS];
    double norms[4][N_STEPS];
};

static double weight(struct host_at at)
{
    return number(at) * 0.01;
}

/* The views of the two units, taken once and kept. */
static struct hsdp_tensor views[2];
static bool has_views;

static void views_take(struct host *host)
{
    for (uint32_t unit = 0; unit < 2; unit++) {
        host_must(host, host->api->model->flat_view(host->model, unit, 0, HSDP_FLAT_GRAD,
                                                    &views[unit], &host->err));
    }
    has_views = true;
}

/* The last window has nothing of unit b. */
static float quotient(const struct host *host, uint32_t step, uint32_t param, uint64_t elem)
{
    bool is_absent = step == N_STEPS - 1 && host->params[param].unit == 1;

    return is_absent ? 0.0f : (float)sum_of(host, param, elem, 1) / (float)host->n_ranks;
}

/* This rank's step shards. */
static void views_expect(struct host *host, uint32_t step)
{
    for (uint32_t unit = 0; unit < 2; unit++) {
        struct hsdp_segment segments[4];
        uint64_t n_segments;

        host_must(host, host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank,
                                                  segments, sizeof(*segments), N_OF(segments),
                                                  &n_segments, &host->err));
        for (uint64_t i = 0; i < n_segments; i++) {
            const struct hsdp_segment *at = &segments[i];

            for (uint64_t elem = 0; elem < at->n_elems; elem++) {
                ck_assert_double_eq(
                    host_read(&views[unit], at->shard_offset_elems + elem),
                    (double)quotient(host, step, at->param, at->param_offset_elems + elem));
            }
        }
    }
}

static void exports_expect(struct host *host, uint32_t step)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *grads = host_export(host, param, HSDP_FLAT_GRAD);

        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            ck_assert_float_eq(grads[elem], quotient(host, step, param, elem));
        }
    }
}

/* A point of a step: takes the views in the second one, and reads them from then on. */
static void look_at(struct host *host, enum look look, uint32_t step, enum look point)
{
    if (step == 1 && (look == point || (look == TWICE && point >= KNOWN))) {
        views_take(host);
    }
    if (has_views && point >= KNOWN) {
        views_expect(host, step);
    }
    if (step == 1 && point == (look == EXPORT ? KNOWN : UPDATED) && look >= EXPORT) {
        exports_expect(host, step);
    }
}

/* The third step is discarded. */
static void step_run(struct host *host, struct training *training, uint32_t step)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    static const uint32_t units[] = {1, 0};
    bool has_all = step < N_STEPS - 1;

    pass_run(host, HSDP_SCOPE_FULL, 0, has_all ? units : units + 1, has_all ? 2 : 1);
    spec.max_norm = 1.0;
    spec.norm_p = step % 2 == 0 ? 2.0 : INFINITY;
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    look_at(host, training->look, step, BEGUN);
    host_must(host, host->api->step->result(host->model, &info, &host->err));
    training->norms[host->rank][step] = info.norm;
    look_at(host, training->look, step, KNOWN);
    if (step == 2) {
        host_must(host, host->api->step->discard(host->model, NULL, &host->err));
        return;
    }
    host_must(host, host_adamw(host, 1e-2, 0.1));
    look_at(host, training->look, step, UPDATED);
    host_step_end(host);
}

static void values_take(struct host *host, int32_t flat, float *ret)
{
    uint32_t n_elems = 0;

    for (uint32_t param = 0; param < host->n_params; param++) {
        memcpy(ret + n_elems, host_export(host, param, flat),
               host->params[param].n_elems * sizeof(float));
        n_elems += (uint32_t)host->params[param].n_elems;
    }
    ck_assert_uint_le(n_elems, MAX_ELEMS);
}

static void looks_rank(uint32_t rank, void *shared)
{
    struct training *training = shared;
    struct host host;

    current_window = &windows[0]; /* numbers */
    host_open(&host, rank, meshes[training->mesh].dims, host_settings, UNITS);
    host_load(&host, weight);
    if (training->look == BEFORE) {
        views_take(&host);
    }
    for (uint32_t step = 0; step < N_STEPS; step++) {
        step_run(&host, training, step);
    }
    values_take(&host, HSDP_FLAT_MASTER, training->masters[rank]);
    values_take(&host, HSDP_FLAT_STATE + 1, training->states[rank]);
    host_close(&host);
}

/* Index: mesh, scope none or full, strategy. A mean over three ranks is no exact division. */
START_TEST(sums_are_divided_once_whoever_looks_when)
{
    struct training *first = NULL;
    char more[128];

    snprintf(more, sizeof(more), "accumulation_scope=%s %s", _i / 2 % 2 == 0 ? "none" : "full",
             meshes[_i % 2].more);
    host_settings_set(_i / 4, more);
    for (int look = NEVER; look < N_LOOKS; look++) {
        struct training *training = ranks_memory(sizeof(*training));

        training->look = (enum look)look;
        training->mesh = _i % 2;
        ranks_run(meshes[_i % 2].n_ranks, RANKS_LIMIT_MS, looks_rank, training);
        first = first == NULL ? training : first;
        ck_assert_msg(memcmp(first->masters, training->masters, sizeof(first->masters)) == 0 &&
                          memcmp(first->states, training->states, sizeof(first->states)) == 0 &&
                          memcmp(first->norms, training->norms, sizeof(first->norms)) == 0,
                      "%s: other bits where the host looks \"%s\"", host_settings,
                      look_names[look]);
    }
    ck_assert_double_gt(first->norms[0][0], 0.0);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("grads");
    TCase *tcase = tcase_create("grads");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, norm_is_that_of_the_sums_however_often_units_are_reduced, 0,
                        2 * HOST_N_SCOPES * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sums_are_divided_once_whoever_looks_when, 0, 4 * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
