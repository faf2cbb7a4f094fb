/* SPDX-License-Identifier: Apache-2.0 */
/* A host program for tests of several hosts: does what its arguments say, one after the other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

/*
 *     hosts_host ACTION...        ACTION: [RANK:]VERB[=ARGUMENT]
 *
 * Rank RANK alone does it, or every rank. Each action that may fail prints one line, and so does
 * every rank at its end:
 *
 *     rank 2 exchange status -6 after 310 ms, missing 3: peer lost: ...
 *
 * It goes on after an error, as long as there are actions; the exit status is always 0.
 */
struct host {
    const struct hsdp_api *api;
    hsdp_job *job;
    uint32_t rank;
    char folder[200]; /* of the key/value store and of marks: HOSTS_FOLDER */
};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static void sleep_ms(uint64_t ms)
{
    struct timespec span = {.tv_sec = (time_t)(ms / 1000u),
                            .tv_nsec = (long)(ms % 1000u) * 1000000};

    nanosleep(&span, NULL);
}

/* ------------------------------------------------------------------------- files of the folder */

/* "hsdp/default/meeting" becomes "hsdp-default-meeting". */
static void path_make(const struct host *host, const char *key, char *ret_path, size_t max_bytes)
{
    size_t at = strlen(host->folder) + 1;

    snprintf(ret_path, max_bytes, "%s/%s", host->folder, key);
    for (char *c = ret_path + at; *c != '\0'; c++) {
        *c = *c == '/' ? '-' : *c;
    }
}

/* Written beside it first: nobody reads a half. */
static int32_t store_put(void *user, const char *key, const void *value, uint64_t value_bytes)
{
    char path[400];
    char beside[420];
    FILE *file;
    int failed;

    path_make(user, key, path, sizeof(path));
    snprintf(beside, sizeof(beside), "%s.%ld", path, (long)getpid());
    file = fopen(beside, "wb");
    if (file == NULL) {
        return -1;
    }
    failed = fwrite(value, 1, value_bytes, file) != value_bytes;
    failed |= fclose(file) != 0;
    return failed || rename(beside, path) != 0 ? -1 : 0;
}

static int32_t store_get(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                         uint64_t *ret_bytes, uint32_t wait_ms)
{
    uint64_t until_ms = now_ms() + wait_ms;
    char path[400];
    FILE *file;

    path_make(user, key, path, sizeof(path));
    while ((file = fopen(path, "rb")) == NULL) {
        if (now_ms() >= until_ms) {
            return 1;
        }
        sleep_ms(10);
    }
    *ret_bytes = fread(ret_value, 1, max_bytes, file);
    fclose(file);
    return 0;
}

/* A mark that the test waits for: the file VERB.RANK. */
static void mark_make(const struct host *host, const char *name)
{
    char path[400];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s.%u", host->folder, name, (unsigned)host->rank);
    file = fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "%ld\n", (long)getpid());
        fclose(file);
    }
}

/* And one that the test makes. */
static void mark_await(const struct host *host, const char *name)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", host->folder, name);
    for (int i = 0; i < 1500 && access(path, F_OK) != 0; i++) {
        sleep_ms(20);
    }
}

/* ------------------------------------------------------------------------------ what is printed */

static void event_print(const struct host *host, const char *action, int32_t status,
                        uint64_t start_ms, const struct hsdp_error *err)
{
    char line[1200];
    size_t n = (size_t)snprintf(line, sizeof(line), "rank %u %s status %d after %llu ms",
                                (unsigned)host->rank, action, (int)status,
                                (unsigned long long)(now_ms() - start_ms));

    if (status < 0) {
        n += (size_t)snprintf(line + n, sizeof(line) - n, ", missing");
        for (uint32_t i = 0; i < err->n_missing_ranks && i < HSDP_ERROR_MAX_RANKS; i++) {
            n += (size_t)snprintf(line + n, sizeof(line) - n, " %u", err->missing_ranks[i]);
        }
        n += (size_t)snprintf(line + n, sizeof(line) - n, ": %s", err->message);
    }
    puts(line);
    fflush(stdout);
}

/* -------------------------------------------------------------------------------------- actions */

/* Says again what holds already, as often as is said. */
static int32_t exchanges_run(struct host *host, const char *argument, struct hsdp_error *err)
{
    unsigned long n = argument == NULL ? 1 : strtoul(argument, NULL, 10);
    static const char key[] = "nccl_timeout_seconds";
    int32_t status = HSDP_OK;

    for (unsigned long i = 0; i < n && status == HSDP_OK; i++) {
        const char *value = NULL;
        const char *source = NULL;
        char copy[40];

        status = host->api->job->setting(host->job, key, &value, &source, err);
        if (status == HSDP_OK) {
            snprintf(copy, sizeof(copy), "%s", value);
            status = host->api->job->setting_set(host->job, key, copy, err);
        }
    }
    return status;
}

/* KEY,VALUE */
static int32_t setting_change(struct host *host, const char *argument, struct hsdp_error *err)
{
    char key[64];
    const char *comma = strchr(argument, ',');

    snprintf(key, sizeof(key), "%.*s", (int)(comma - argument), argument);
    return host->api->job->setting_set(host->job, key, comma + 1, err);
}

static hsdp_mesh *mesh_make(struct host *host, struct hsdp_error *err)
{
    const int64_t sizes[] = {-1};
    const char *const names[] = {"dp"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    hsdp_mesh *mesh = NULL;

    host->api->job->info(host->job, &info, err);
    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 1;
    spec.world_ranks = info.world_ranks;
    spec.rank = info.rank;
    host->api->mesh->create(&spec, &mesh, err);
    return mesh;
}

static int32_t group_make(struct host *host, struct hsdp_error *err)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    hsdp_mesh *mesh = mesh_make(host, err);
    hsdp_group *group = NULL;
    int32_t status;

    spec.selector = "dp";
    status = host->api->group->create(host->job, mesh, &spec, &group, err);
    if (status == HSDP_OK) {
        status = host->api->group->connect(host->job, err);
    }
    host->api->group->destroy(group);
    host->api->mesh->destroy(mesh);
    return status;
}

static int32_t model_make(struct host *host, struct hsdp_error *err)
{
    const int64_t shape[] = {8};
    const struct hsdp_plan_ops *plans = host->api->plan;
    struct hsdp_settings settings = {NULL, NULL, 0};
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    hsdp_mesh *mesh = mesh_make(host, err);
    hsdp_plan *plan = NULL;
    hsdp_model *model = NULL;
    int32_t status = plans->create(mesh, &settings, &plan, err);

    dense.name = "dense";
    param.name = "p";
    param.shape = shape;
    param.n_dims = 1;
    if (status == HSDP_OK) {
        plans->add_class(plan, &dense, &(uint32_t){0}, err);
        plans->add_unit(plan, "u", 0, &param.unit, err);
        plans->add_param(plan, &param, &(uint32_t){0}, err);
        plans->finish(plan, err);
        status = host->api->model->create(host->job, plan, &model, err);
    }
    host->api->model->destroy(model);
    plans->destroy(plan);
    host->api->mesh->destroy(mesh);
    return status;
}

/* A child that lives on for a while, whatever becomes of its parent. */
static void child_leave(void)
{
    if (fork() == 0) {
        sleep_ms(3000);
        _exit(0);
    }
}

/* What needs no line; false: none of these. */
static int quiet_do(struct host *host, const char *verb, const char *argument)
{
    if (strcmp(verb, "sleep") == 0) {
        sleep_ms(strtoul(argument, NULL, 10));
    } else if (strcmp(verb, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(verb, "stop") == 0) {
        raise(SIGSTOP);
    } else if (strcmp(verb, "fork") == 0) {
        child_leave();
    } else if (strcmp(verb, "mark") == 0) {
        mark_make(host, argument);
    } else if (strcmp(verb, "await") == 0) {
        mark_await(host, argument);
    } else if (strcmp(verb, "destroy") == 0) {
        host->api->job->destroy(host->job);
        host->job = NULL;
    } else {
        return 0;
    }
    return 1;
}

static void action_do(struct host *host, const char *verb, const char *argument)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const struct hsdp_job_ops *jobs = host->api->job;
    uint64_t start_ms = now_ms();
    int32_t status;

    if (strcmp(verb, "connect") == 0) {
        status = jobs->connect(host->job, &err);
    } else if (strcmp(verb, "exchange") == 0) {
        status = exchanges_run(host, argument, &err);
    } else if (strcmp(verb, "set") == 0) {
        status = setting_change(host, argument, &err);
    } else if (strcmp(verb, "status") == 0) {
        status = jobs->status(host->job, &err);
    } else if (strcmp(verb, "abort") == 0) {
        status = jobs->abort(host->job, argument, &err);
    } else if (strcmp(verb, "close") == 0) {
        status = jobs->close(host->job, &err);
    } else if (strcmp(verb, "group") == 0) {
        status = group_make(host, &err);
    } else if (strcmp(verb, "model") == 0) {
        status = model_make(host, &err);
    } else {
        fprintf(stderr, "hosts_host: no action \"%s\"\n", verb);
        exit(2);
    }
    event_print(host, verb, status, start_ms, &err);
}

/* [RANK:]VERB[=ARGUMENT] */
static void argument_do(struct host *host, const char *text)
{
    char verb[32];
    const char *argument = strchr(text, '=');
    const char *colon = strchr(text, ':');
    size_t n_bytes;

    if (colon != NULL && (argument == NULL || colon < argument)) {
        if (strtoul(text, NULL, 10) != host->rank) {
            return;
        }
        text = colon + 1;
    }
    n_bytes = argument == NULL ? strlen(text) : (size_t)(argument - text);
    snprintf(verb, sizeof(verb), "%.*s", (int)n_bytes, text);
    argument = argument == NULL ? NULL : argument + 1;
    if (host->job != NULL && !quiet_do(host, verb, argument)) {
        action_do(host, verb, argument);
    }
}

/* ----------------------------------------------------------------------------------------- main */

static int32_t host_open(struct host *host, hsdp_plugin **ret_plugin, struct hsdp_error *err)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    const char *folder = getenv("HOSTS_FOLDER");
    int32_t status = hsdp_plugin_load(NULL, ret_plugin, err);

    if (status != HSDP_OK) {
        return status;
    }
    snprintf(host->folder, sizeof(host->folder), "%s", folder == NULL ? "." : folder);
    if (getenv("HOSTS_STORE") != NULL) {
        spec.kv_put = store_put;
        spec.kv_get = store_get;
        spec.user = host;
    }
    host->api = hsdp_plugin_api(*ret_plugin);
    status = host->api->job->create(&spec, &host->job, err);
    if (status == HSDP_OK) {
        status = host->api->job->info(host->job, &info, err);
        host->rank = info.rank;
    }
    return status;
}

int main(int n_arguments, char **arguments)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct host host = {.api = NULL};
    hsdp_plugin *plugin = NULL;
    uint64_t start_ms = now_ms();
    int32_t status = host_open(&host, &plugin, &err);

    if (status != HSDP_OK) {
        event_print(&host, "create", status, start_ms, &err);
        return 0;
    }
    for (int i = 1; i < n_arguments; i++) {
        argument_do(&host, arguments[i]);
    }
    start_ms = now_ms();
    host.api->job->destroy(host.job);
    hsdp_plugin_unload(plugin);
    event_print(&host, "end", HSDP_OK, start_ms, &err);
    return 0;
}
