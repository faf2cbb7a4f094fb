/* SPDX-License-Identifier: Apache-2.0 */
/* Two jobs in one process, of one plugin or of two that are loaded at once: they do not meet. */
#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* ------------------------------------------------------------------------------ the second file */

static char folder[512];
static char copy_path[600];

static void file_copy(const char *from, const char *to)
{
    struct stat file;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    off_t n_left;

    ck_assert_int_ge(in, 0);
    ck_assert_int_ge(out, 0);
    ck_assert_int_eq(fstat(in, &file), 0);
    n_left = file.st_size;
    while (n_left > 0) {
        ssize_t n = sendfile(out, in, NULL, (size_t)n_left);

        ck_assert_int_gt(n, 0);
        n_left -= n;
    }
    close(in);
    close(out);
}

static void copy_make(void)
{
    snprintf(folder, sizeof(folder), "%s/neighbours.XXXXXX", getenv("HSDP_TEST_BUILDDIR"));
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(copy_path, sizeof(copy_path), "%s/hsdp.so", folder);
    file_copy(getenv("HSDP_TEST_PLUGIN"), copy_path);
}

static void copy_remove(void)
{
    unlink(copy_path);
    rmdir(folder);
}

/* ----------------------------------------------------------------------------- both in one rank */

/* Two hosts in each rank; `a` has the plugin that is tested, `b` that or its copy. */
struct pair {
    struct host a, b;
};

static double gradient_of_a(struct host_at at)
{
    return 1.0 + 2.0 * at.rank; /* the mean of two ranks is 2 */
}

static double gradient_of_b(struct host_at at)
{
    return 10.0 + 2.0 * at.rank; /* and here 11 */
}

static void pair_open(struct pair *pair, uint32_t rank, bool is_copied)
{
    char run_id[128];

    host_open(&pair->a, rank, "dp=2", "sharding_strategy=fsdp nccl_timeout_seconds=21",
              "unit a: w[64]; unit b: x[5]");
    snprintf(run_id, sizeof(run_id), "%s-b", getenv("HSDP_RUN_ID"));
    setenv("HSDP_RUN_ID", run_id, 1);
    if (is_copied) {
        setenv("HSDP_TEST_PLUGIN", copy_path, 1);
    }
    host_open(&pair->b, rank, "dp=2", "sharding_strategy=zero1 nccl_timeout_seconds=22 slots=1",
              "unit u: w[7] v[2]!; unit t: x[1031]");
    ck_assert_int_eq(pair->a.api != pair->b.api, is_copied);
}

static void pair_close(struct pair *pair)
{
    host_close(&pair->a);
    host_close(&pair->b);
}

/* A step of one host. */
static void single_step(struct host *host, host_value gradient, double mean)
{
    host_backward(host, HSDP_SCOPE_FULL, 0, gradient);
    host_step(host, 0.0);
    host_expect_grad(host, "w", mean);
    host_expect_grad(host, "x", mean);
    host_step_end(host);
}

/* A step of both, whose calls take turns. */
static void pair_step(struct pair *pair)
{
    struct host *a = &pair->a, *b = &pair->b;

    host_forward(a);
    host_pass_begin(a, HSDP_SCOPE_FULL);
    host_pass_begin(b, HSDP_SCOPE_FULL);
    for (uint32_t unit = 2; unit-- > 0;) {
        host_acquire(a, unit);
        host_acquire(b, unit);
        host_fill(b, unit, 0, gradient_of_b);
        host_fill(a, unit, 0, gradient_of_a);
        host_hand_over(b, unit);
        host_hand_over(a, unit);
    }
    host_pass_end(b);
    host_pass_end(a);
    host_step(a, 0.0);
    host_step(b, 0.0);
    host_expect_grad(a, "w", 2.0);
    host_expect_grad(b, "w", 11.0);
    host_expect_grad(a, "x", 2.0);
    host_expect_grad(b, "x", 11.0);
    host_step_end(a);
    host_step_end(b);
}

static uint64_t steps_counted(struct host *host)
{
    uint64_t n = 0;

    host_must(host, host->api->diag->counter(host->job, "steps", &n, &host->err));
    return n;
}

static void expect_report(struct host *host, const char *what, const char *part)
{
    static char text[65536];
    uint64_t n_bytes;

    host_must(host,
              host->api->diag->report(host->job, what, text, sizeof(text), &n_bytes, &host->err));
    ck_assert_msg(strstr(text, part) != NULL, "no %s in %s", part, text);
}

/* ------------------------------------------------------------------------------------ the tests */

static void objects_rank(uint32_t rank, void *shared)
{
    struct pair pair;
    void *first = dlopen(getenv("HSDP_TEST_PLUGIN"), RTLD_NOW);
    void *second = dlopen(copy_path, RTLD_NOW);

    (void)shared;
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(second);
    ck_assert_ptr_ne(dlsym(first, HSDP_ENTRY_SYMBOL), dlsym(second, HSDP_ENTRY_SYMBOL));
    dlclose(first);
    dlclose(second);
    pair_open(&pair, rank, true);
    ck_assert_str_ne(hsdp_plugin_path(pair.a.plugin), hsdp_plugin_path(pair.b.plugin));
    pair_close(&pair);
}

START_TEST(neighbours_of_two_files_are_two_objects)
{
    ranks_run(2, RANKS_LIMIT_MS, objects_rank, NULL);
}
END_TEST

static void training_rank(uint32_t rank, void *shared)
{
    struct pair pair;

    pair_open(&pair, rank, *(bool *)shared);
    pair_step(&pair);
    single_step(&pair.a, gradient_of_a, 2.0);
    pair_step(&pair);
    ck_assert_uint_eq(steps_counted(&pair.a), 3);
    ck_assert_uint_eq(steps_counted(&pair.b), 2);
    pair_close(&pair);
}

START_TEST(neighbours_train_in_turns)
{
    bool is_copied = _i == 1;

    ranks_run(2, RANKS_LIMIT_MS, training_rank, &is_copied);
}
END_TEST

static void settings_rank(uint32_t rank, void *shared)
{
    struct pair pair;
    const char *key = "nccl_timeout_seconds";

    pair_open(&pair, rank, *(bool *)shared);
    expect_report(&pair.a, "settings", "{\"value\":\"21\",\"source\":\"host\"}");
    expect_report(&pair.b, "settings", "{\"value\":\"22\",\"source\":\"host\"}");
    host_must(&pair.a, pair.a.api->job->setting_set(pair.a.job, key, "23", &pair.a.err));
    expect_report(&pair.a, "settings", "{\"value\":\"23\",\"source\":\"host\"}");
    expect_report(&pair.b, "settings", "{\"value\":\"22\",\"source\":\"host\"}");
    expect_report(&pair.a, "plan", "\"fsdp\"");
    expect_report(&pair.b, "plan", "\"zero1\"");
    pair_close(&pair);
}

START_TEST(neighbours_have_settings_and_reports_of_their_own)
{
    bool is_copied = _i == 1;

    ranks_run(2, RANKS_LIMIT_MS, settings_rank, &is_copied);
}
END_TEST

/* Forks still find the handlers of the plugin that is left, and only those. */
static void fork_expect_fine(void)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

/* a has failed on all ranks, and b goes on. */
static void failing_rank(uint32_t rank, void *shared)
{
    const uint64_t start_ms = ranks_now_ms();
    struct pair pair;

    pair_open(&pair, rank, *(bool *)shared);
    if (rank == 1) {
        host_must(&pair.a, pair.a.api->job->abort(pair.a.job, "only a", &pair.a.err));
    }
    single_step(&pair.b, gradient_of_b, 11.0);
    while (pair.a.api->job->status(pair.a.job, &pair.a.err) == HSDP_OK) {
        ck_assert_uint_lt(ranks_now_ms() - start_ms, 15000);
        ranks_sleep_ms(1);
    }
    host_must_refuse(&pair.a, host_unshard(&pair.a, 0, HSDP_USE_FORWARD), HSDP_ERR_ABORTED,
                     "only a");
    expect_report(&pair.a, "error", "only a");
    expect_report(&pair.b, "error", "{\"has_failed\":false}");
    single_step(&pair.b, gradient_of_b, 11.0);
    host_leave(&pair.a); /* and unloads its plugin, where it is one of its own */
    fork_expect_fine();
    single_step(&pair.b, gradient_of_b, 11.0);
    host_close(&pair.b);
    fork_expect_fine();
}

START_TEST(neighbour_of_a_failed_job_goes_on)
{
    bool is_copied = _i == 1;

    ranks_run(2, RANKS_LIMIT_MS, failing_rank, &is_copied);
}
END_TEST

/* ------------------------------------------------------------------------------ names of jobs */

static hsdp_job *named_join(struct host *host, const char *name)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    hsdp_job *job = NULL;

    spec.name = name;
    host_must(host, host->api->job->create(&spec, &job, &host->err));
    host_must(host, host->api->job->connect(job, &host->err));
    return job;
}

/* Under one launcher, with nothing but the name between them. */
static void names_rank(uint32_t rank, void *shared)
{
    struct host host;
    hsdp_job *first;
    hsdp_job *second;

    (void)shared;
    host_join(&host, rank, "dp=2", "");
    first = named_join(&host, "first");
    second = named_join(&host, "second");
    if (rank == 0) {
        host_must(&host, host.api->job->abort(first, "only the first", &host.err));
    }
    host_must(&host, host.api->job->close(second, &host.err));
    host.api->job->destroy(second);
    host.api->job->destroy(first);
    host_close(&host);
}

START_TEST(neighbours_under_one_launcher_meet_by_name)
{
    ranks_run(2, RANKS_LIMIT_MS, names_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_neighbours");
    TCase *tcase = tcase_create("neighbours");

    tcase_set_timeout(tcase, 30);
    tcase_add_unchecked_fixture(tcase, copy_make, copy_remove);
    tcase_add_test(tcase, neighbours_of_two_files_are_two_objects);
    tcase_add_loop_test(tcase, neighbours_train_in_turns, 0, 2);
    tcase_add_loop_test(tcase, neighbours_have_settings_and_reports_of_their_own, 0, 2);
    tcase_add_loop_test(tcase, neighbour_of_a_failed_job_goes_on, 0, 2);
    tcase_add_test(tcase, neighbours_under_one_launcher_meet_by_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
