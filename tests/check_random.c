/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training, each against training without sharding and against another strategy. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "random_train.h"
#include "ranks.h"
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

static void case_rank(uint32_t rank, void *shared)
{
    static struct random_trace traces[RANDOM_RUNS];
    char text[SERIAL_TEXT_BYTES];
    struct host host;

    (void)shared;
    host_join(&host, rank, running.dims, running.settings[0]);
    random_train(&running, 0, &host, running.promises_bits ? &traces[0] : NULL);
    if (running.promises_bits) {
        host.api->model->destroy(host.model);
        host.api->plan->destroy(host.plan);
        random_train(&running, 1, &host, &traces[1]);
        if (!random_traces_agree(&running, &host, traces, text)) {
            ck_abort_msg("%s", text);
        }
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

    random_serial_init(&serial, &running, host);
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
    norm = random_step_open(&running, &host, 0).norm;
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
