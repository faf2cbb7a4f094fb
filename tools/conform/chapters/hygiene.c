/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter hygiene: a plugin leaves the process, and the machine, as they were. */
#include "hygiene.h"

#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

extern char **environ;

/* ----------------------------------------------------------------------------------- whole runs */

hsdp_plugin *hygiene_load(struct conform *conform, const char *path)
{
    hsdp_plugin *plugin = process_load(conform, path);

    conform->api = hsdp_plugin_api(plugin);
    return plugin;
}

/* A host may do so at any time: also this leaves the process as it is. */
static void description_ask(struct conform *conform)
{
    uint64_t n_bytes = 0;

    conform_must_refuse(conform, conform->api->describe(NULL, 0, &n_bytes, &conform->err),
                        HSDP_ERR_BUFFER_TOO_SMALL);
}

void hygiene_train(struct conform *conform, const struct scene_spec *spec)
{
    struct scene scene;

    description_ask(conform);
    scene_join(&scene, conform, spec);
    scene_gather(&scene);
    scene_model(&scene, "");
    scene_load(&scene, 3.0f);
    scene_backward(&scene, 1.0f);
    scene_step(&scene);
    scene_expect_param(&scene, SCENE_X, 2.0f);
    conform_must(conform, scene_wait(&scene, scene_barrier(&scene, 0)));
    scene_close(&scene);
}

void hygiene_cycle(struct conform *conform)
{
    static const struct scene_spec patient = {.settings = SCENE_PATIENT};
    hsdp_plugin *plugin = hygiene_load(conform, conform->plugin_path);

    hygiene_train(conform, &patient);
    hsdp_plugin_unload(plugin);
    conform->api = NULL;
    conform_meet(conform);
}

/* -------------------------------------------------------------------------------- the process */

static char *environment_copy(struct conform *conform)
{
    size_t n_bytes = 1;
    char *text;

    for (char **entry = environ; *entry != NULL; entry++) {
        n_bytes += strlen(*entry) + 1;
    }
    text = calloc(n_bytes, 1);
    conform_expect(conform, text != NULL, "the kit has no memory");
    for (char **entry = environ; *entry != NULL; entry++) {
        strcat(strcat(text, *entry), "\n");
    }
    return text;
}

static void environment_run(struct conform *conform)
{
    char *before = environment_copy(conform);
    char *after;

    hygiene_cycle(conform);
    after = environment_copy(conform);
    conform_expect(conform, strcmp(before, after) == 0,
                   "the environment has changed from %zu bytes to %zu", strlen(before),
                   strlen(after));
    free(before);
    free(after);
}

static void silent_run(struct conform *conform)
{
    hygiene_cycle(conform); /* what is written fails the check */
}

struct handlers {
    struct sigaction actions[65];
    sigset_t mask;
};

static void handlers_copy(struct handlers *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (int number = 1; number < 65; number++) {
        sigaction(number, NULL, &ret->actions[number]);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &ret->mask);
}

static void handlers_compare(struct conform *conform, const struct handlers *before,
                             const char *when)
{
    struct handlers now;

    handlers_copy(&now);
    for (int number = 1; number < 65; number++) {
        const struct sigaction *a = &before->actions[number];
        const struct sigaction *b = &now.actions[number];

        conform_expect(conform, a->sa_handler == b->sa_handler && a->sa_flags == b->sa_flags,
                       "the handler of signal %d has changed %s", number, when);
        conform_expect(conform,
                       sigismember(&before->mask, number) == sigismember(&now.mask, number),
                       "signal %d is %s %s", number,
                       sigismember(&now.mask, number) == 1 ? "blocked" : "not blocked", when);
    }
}

static void signals_run(struct conform *conform)
{
    struct scene_spec spec = {.settings = SCENE_PATIENT};
    struct handlers before;
    hsdp_plugin *plugin;
    struct scene scene;

    handlers_copy(&before);
    plugin = hygiene_load(conform, conform->plugin_path);
    description_ask(conform);
    handlers_compare(conform, &before, "when the plugin is loaded");
    scene_join(&scene, conform, &spec);
    scene_model(&scene, "verify=access");
    scene_load(&scene, 1.0f);
    handlers_compare(conform, &before, "while a job runs");
    scene_close(&scene);
    hsdp_plugin_unload(plugin);
    handlers_compare(conform, &before, "when the plugin is unloaded");
}

static void rounding_run(struct conform *conform)
{
    static const struct scene_spec patient = {.settings = SCENE_PATIENT};
    hsdp_plugin *plugin = hygiene_load(conform, conform->plugin_path);

    if (fesetround(FE_DOWNWARD) != 0) {
        conform_skip(conform, "this machine rounds in one way only");
    }
    hygiene_train(conform, &patient);
    conform_expect(conform, fegetround() == FE_DOWNWARD,
                   "a host that rounds down rounds otherwise after a run");
    hsdp_plugin_unload(plugin);
}

static void process_run(struct conform *conform)
{
    char folder[2][4096];
    char locale[2][256];
    struct rlimit limits[2];
    mode_t mask = umask(027);
    int priority = getpriority(PRIO_PROCESS, 0);
    pid_t group = getpgrp();
    pid_t session = getsid(0);

    getrlimit(RLIMIT_NOFILE, &limits[0]);
    conform_expect(conform, getcwd(folder[0], sizeof(folder[0])) != NULL, "there is no folder");
    snprintf(locale[0], sizeof(locale[0]), "%s", setlocale(LC_ALL, NULL));
    hygiene_cycle(conform);
    snprintf(locale[1], sizeof(locale[1]), "%s", setlocale(LC_ALL, NULL));
    getrlimit(RLIMIT_NOFILE, &limits[1]);
    conform_expect(
        conform, getcwd(folder[1], sizeof(folder[1])) != NULL && strcmp(folder[0], folder[1]) == 0,
        "the current folder has changed");
    conform_expect(conform, strcmp(locale[0], locale[1]) == 0,
                   "the locale has changed from \"%s\" to \"%s\"", locale[0], locale[1]);
    conform_expect(conform, umask(mask) == 027, "the file mode creation mask has changed");
    conform_expect(conform, getpriority(PRIO_PROCESS, 0) == priority, "the priority has changed");
    conform_expect(conform, getpgrp() == group && getsid(0) == session,
                   "the process group or the session has changed");
    conform_expect(conform, limits[0].rlim_cur == limits[1].rlim_cur,
                   "the limit of descriptors has changed");
}

/* ---------------------------------------------------------------------------------- leftovers */

static uint32_t mappings_count(struct conform *conform)
{
    FILE *file = fopen("/proc/self/maps", "re");
    uint32_t n = 0;
    int byte;

    if (file == NULL) {
        conform_skip(conform, "/proc/self/maps cannot be read");
    }
    while ((byte = fgetc(file)) != EOF) {
        n += byte == '\n';
    }
    fclose(file);
    return n;
}

/* One that has ended may still be listed for a moment. */
static void threads_run(struct conform *conform)
{
    static const struct scene_spec patient = {.settings = SCENE_PATIENT};
    uint32_t before = process_count_entries(conform, "/proc/self/task");
    hsdp_plugin *plugin;
    uint64_t since_ms;

    conform_needs_cpu(conform, "its driver has threads of its own, which stay");
    plugin = hygiene_load(conform, conform->plugin_path);
    hygiene_train(conform, &patient);
    since_ms = conform_now_ms();
    while (process_count_entries(conform, "/proc/self/task") != before) {
        conform_expect(conform, conform_now_ms() - since_ms < 3000,
                       "%u threads before a job, %u after it", (unsigned)before,
                       (unsigned)process_count_entries(conform, "/proc/self/task"));
        conform_sleep_ms(5);
    }
    hsdp_plugin_unload(plugin);
}

#define N_WARM   4
#define N_CYCLES 8

static void descriptors_run(struct conform *conform)
{
    uint32_t before = process_count_entries(conform, "/proc/self/fd");

    for (int i = 0; i < N_WARM; i++) {
        uint32_t after;

        hygiene_cycle(conform);
        after = process_count_entries(conform, "/proc/self/fd");
        conform_expect(conform, after == before, "%u descriptors before a run, %u after it",
                       (unsigned)before, (unsigned)after);
    }
}

/* What grows in each of many cycles is a leak; what the system keeps for itself grows once. */
static void mappings_run(struct conform *conform)
{
    uint32_t before = 0;
    uint32_t after;

    conform_needs_cpu(conform, "its libraries keep memory of their own");
    for (int i = 0; i < N_WARM + N_CYCLES; i++) {
        if (i == N_WARM) {
            before = mappings_count(conform);
        }
        hygiene_cycle(conform);
    }
    after = mappings_count(conform);
    conform_expect(conform, after < before + N_CYCLES, "%u mappings, %u after %d more runs",
                   (unsigned)before, (unsigned)after, N_CYCLES);
}

static void unloaded_run(struct conform *conform)
{
    struct stat status;
    char line[4096 + 128];
    FILE *file;

    hygiene_cycle(conform);
    file = fopen("/proc/self/maps", "re");
    if (file == NULL || stat(conform->plugin_path, &status) != 0) {
        conform_skip(conform, "/proc/self/maps cannot be read");
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        char *inode = line;

        for (int field = 0; field < 4 && inode != NULL; field++) {
            inode = strchr(inode + 1, ' ');
        }
        conform_expect(conform,
                       inode == NULL || strtoull(inode, NULL, 10) != (uint64_t)status.st_ino,
                       "the plugin is still there after it was unloaded");
    }
    fclose(file);
}

/* --------------------------------------------------------------------------------- two at once */

static double doubled(struct scene *scene, double value)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct conform *conform = scene->conform;
    double sum = 0;
    struct hsdp_tensor input = {.base = &value, .device_type = HSDP_DEVICE_CPU, .dtype_lanes = 1};
    struct hsdp_tensor output;

    input.dtype_code = HSDP_DTYPE_FLOAT;
    input.dtype_bits = 64;
    output = input;
    output.base = &sum;
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = &input;
    spec.output = &output;
    conform_must(conform, scene_run(scene, &spec));
    return sum;
}

static void sum_expect(struct scene *scene, double value)
{
    double sum = doubled(scene, value);

    conform_expect(scene->conform, sum == 2 * value, "two ranks with %g have a sum of %g", value,
                   sum);
}

static void two_jobs_run(struct conform *conform)
{
    struct scene_spec spec = {.name = "one", .settings = SCENE_PATIENT};
    struct scene one;
    struct scene two;

    scene_join(&one, conform, &spec);
    spec.name = "two";
    scene_join(&two, conform, &spec);
    scene_gather(&one);
    scene_gather(&two);
    sum_expect(&one, 3.0);
    sum_expect(&two, 5.0);
    conform_must(conform, one.api->job->abort(one.job, "one is enough", &conform->err));
    conform_must_refuse(conform, one.api->job->status(one.job, &conform->err), HSDP_ERR_ABORTED);
    conform_must(conform, two.api->job->status(two.job, &conform->err));
    scene_drop(&one);
    sum_expect(&two, 7.0);
    scene_close(&two);
}

/* Two ranks that call their jobs by different names wait for each other in vain. */
static void two_names_run(struct conform *conform)
{
    struct scene_spec spec = {.settings = "nccl_timeout_seconds=1"};
    struct scene scene;

    spec.name = conform->rank == 0 ? "one" : "two";
    scene_create(&scene, conform, &spec);
    conform_must_refuse(conform, scene.api->job->connect(scene.job, &conform->err),
                        HSDP_ERR_TIMEOUT);
    scene_expect_missing(&scene, 1 - conform->rank);
    conform_meet(conform);
    scene_drop(&scene);
}

/* Copies a file byte by byte: another file, another plugin. */
static void file_copy(struct conform *conform, const char *from, const char *to)
{
    int source = open(from, O_RDONLY | O_CLOEXEC);
    int target = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    char bytes[65536];
    ssize_t n;

    conform_expect(conform, source >= 0 && target >= 0, "no copy of the plugin: %s",
                   strerror(errno));
    while ((n = read(source, bytes, sizeof(bytes))) > 0) {
        conform_expect(conform, write(target, bytes, (size_t)n) == n, "no copy of the plugin: %s",
                       strerror(errno));
    }
    close(source);
    close(target);
}

static void two_copies_run(struct conform *conform)
{
    struct scene_spec spec = {.name = "one", .settings = SCENE_PATIENT};
    char path[sizeof(struct hygiene_folder) + 16];
    struct hygiene_folder folder;
    hsdp_plugin *plugins[2];
    struct scene one;
    struct scene two;

    conform_needs_cpu(conform,
                      "NCCL is called by one thread of a process, and each copy has its own");
    hygiene_folder_make(conform, &folder);
    snprintf(path, sizeof(path), "%s/copy.so", folder.path);
    file_copy(conform, conform->plugin_path, path);
    plugins[1] = hygiene_load(conform, path);
    unlink(path);
    rmdir(folder.path);
    scene_join(&two, conform, &spec);
    scene_gather(&two);
    plugins[0] = hygiene_load(conform, conform->plugin_path);
    conform_expect(conform, hsdp_plugin_api(plugins[0]) != hsdp_plugin_api(plugins[1]),
                   "two files are one plugin");
    spec.name = "two";
    scene_join(&one, conform, &spec);
    scene_gather(&one);
    sum_expect(&one, 3.0);
    sum_expect(&two, 5.0);
    scene_close(&one);
    hsdp_plugin_unload(plugins[0]);
    conform_meet(conform);
    sum_expect(&two, 7.0);
    scene_close(&two);
    hsdp_plugin_unload(plugins[1]);
}

#define PROMISE "abi.h: Process"

static const struct conform_check checks[] = {
    {"the environment stays as it was", PROMISE, environment_run, 2, 0, CONFORM_UNLOADED},
    {"nothing is written to stdout or stderr", PROMISE, silent_run, 2, 0, CONFORM_UNLOADED},
    {"signal handlers stay as they were", PROMISE, signals_run, 2, 0, CONFORM_UNLOADED},
    {"the rounding mode stays as it was", PROMISE, rounding_run, 2, 0, CONFORM_UNLOADED},
    {"folder, locale and limits stay as they were", PROMISE, process_run, 2, 0, CONFORM_UNLOADED},
    {"no thread outlives the last job", PROMISE, threads_run, 2, 0, CONFORM_UNLOADED},
    {"no descriptor is left open", PROMISE, descriptors_run, 2, 0, CONFORM_UNLOADED},
    {"no mapping is left in each run", PROMISE, mappings_run, 2, 0, CONFORM_UNLOADED},
    {"an unloaded plugin is gone", "loader.h: unload", unloaded_run, 2, 0, CONFORM_UNLOADED},
    {"two jobs in one process do not meet", "job.h: name", two_jobs_run, 2, 0, 0},
    {"jobs of other names do not meet", "job.h: name", two_names_run, 2, 0, 0},
    {"two copies of a plugin do not meet", PROMISE, two_copies_run, 2, 0, CONFORM_UNLOADED},
    {"a second thread is told BUSY", "abi.h: Threads", hygiene_busy_run, 2, 0, 0},
    {"a child is told FORKED, the parent goes on", "abi.h: Fork", hygiene_fork_run, 2, 0, 0},
    {"a run leaves no file", PROMISE, hygiene_files_run, 1, 0, CONFORM_UNLOADED},
    {"a run that was killed leaves no file", PROMISE, hygiene_killed_run, 1, 0, CONFORM_UNLOADED},
};

const struct conform_chapter conform_hygiene = {
    .name = "hygiene",
    .title = "nothing leaked, nothing touched",
    .checks = checks,
    .n_checks = sizeof(checks) / sizeof(checks[0]),
};
