/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: what a job knows of itself, as JSON, for any thread. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/flight_file.h"
#include "comm/group_internal.h"
#include "comm/job_internal.h"
#include "comm/nccl_engine.h"

/* Models speak up by themselves. */
static void reporters_write(const struct hsdp_job *job, const char *what, struct text *text)
{
    for (struct reporter *r = job->reporters; r != NULL; r = r->next) {
        r->write(r, what, text);
    }
}

static void models_write(const struct hsdp_job *job, const char *what, struct text *text)
{
    json_open(text, "models", '[');
    reporters_write(job, what, text);
    json_close(text, ']');
    if (strcmp(what, "memory") == 0) {
        nccl_engine_write(job, text);
    }
}

static void settings_write(const struct hsdp_job *job, const char *what, struct text *text)
{
    (void)what;
    for (uint32_t i = 0; i < SETTINGS_COUNT; i++) {
        const char *value = job->settings.values[i];

        if ((setting_defs[i].homes & SETTING_JOB) == 0) {
            continue;
        }
        json_open(text, setting_defs[i].key, '{');
        json_string(text, "value", value == NULL ? "" : value);
        json_string(text, "source", value == NULL ? "default" : job->settings.sources[i]);
        json_close(text, '}');
    }
}

static void groups_write(const struct hsdp_job *job, const char *what, struct text *text)
{
    for (const struct hsdp_group *g = job->groups; g != NULL; g = g->next) {
        group_write_ledger(g, text);
    }
    reporters_write(job, what, text);
}

void report_groups(struct hsdp_job *job, struct text *text)
{
    job_lock(job);
    groups_write(job, "ledger", text);
    job_unlock(job);
}

static void ledger_write(const struct hsdp_job *job, const char *what, struct text *text)
{
    uint32_t nccl = setting_index("nccl_timeout_seconds");
    char source[96];

    snprintf(source, sizeof(source), "%s", job->settings.sources[nccl]);
    if (job->n_phases > 0) {
        job_timeout_source(job, source, sizeof(source));
    }
    json_open(text, "job", '{');
    json_uint(text, "rank", job->launch.rank);
    json_uint(text, "world_ranks", job->launch.world_ranks);
    json_uint(text, "timeout_ms", atomic_load(&job->timeout_ms));
    json_string(text, "source", source);
    json_uint(text, "idle_limit_ms", atomic_load(&job->idle_limit_ms));
    job_timeouts_write(job, text);
    json_close(text, '}');
    json_open(text, "groups", '[');
    groups_write(job, what, text);
    json_close(text, ']');
    nccl_engine_write(job, text);
}

static void traffic_write(const struct hsdp_job *job, const char *what, struct text *text)
{
    static const char bytes_prefix[] = "traffic.";
    const size_t n_prefix = sizeof(bytes_prefix) - 1;

    (void)what;
    json_open(text, "groups", '[');
    for (struct counter *c = atomic_load(&job->counters); c != NULL; c = atomic_load(&c->next)) {
        char operations[sizeof(c->name) + 16];
        uint64_t n_operations = 0;

        if (strncmp(c->name, bytes_prefix, n_prefix) != 0) {
            continue;
        }
        snprintf(operations, sizeof(operations), "operations.%s", c->name + n_prefix);
        json_open(text, NULL, '{');
        json_string(text, "group", c->name + n_prefix);
        json_uint(text, "bytes", atomic_load(&c->value));
        if (job_counter(job, operations, &n_operations, NULL) == HSDP_OK) {
            json_uint(text, "operations", n_operations);
        }
        json_close(text, '}');
    }
    json_close(text, ']');
}

static void flight_report(const struct hsdp_job *job, const char *what, struct text *text)
{
    (void)what;
    flight_own_write(job, UINT64_MAX, text);
}

void report_failure(const struct hsdp_job *job, struct text *text)
{
    const struct failure *first = failure_first(job);

    json_bool(text, "has_failed", first != NULL);
    if (first == NULL) {
        return;
    }
    json_string(text, "status", error_name(first->error.status));
    json_uint(text, "reported_by", first->rank);
    json_string(text, "message", first->error.message);
    json_string(text, "operation", first->error.operation);
    json_string(text, "group", first->error.group);
    json_string(text, "unit", first->error.unit);
    json_uint(text, "sequence", first->error.sequence);
    json_uint(text, "ticket", first->error.ticket);
    json_uint(text, "waited_ms", first->error.waited_ms);
    json_uint(text, "n_missing_ranks", first->error.n_missing_ranks);
    json_open(text, "missing_ranks", '[');
    for (uint32_t i = 0; i < first->error.n_missing_ranks && i < HSDP_ERROR_MAX_RANKS; i++) {
        json_uint(text, NULL, first->error.missing_ranks[i]);
    }
    json_close(text, ']');
}

static void error_write(const struct hsdp_job *job, const char *what, struct text *text)
{
    (void)what;
    report_failure(job, text);
}

struct report {
    const char *name;
    void (*write)(const struct hsdp_job *job, const char *what, struct text *text);
};

static const struct report reports[] = {
    {"settings", settings_write}, {"ledger", ledger_write},  {"memory", models_write},
    {"traffic", traffic_write},   {"flight", flight_report}, {"plan", models_write},
    {"error", error_write},
};

int32_t job_report(const struct hsdp_job *job, const char *what, char *ret_text, uint64_t max_bytes,
                   uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    struct hsdp_job *locked = (struct hsdp_job *)(uintptr_t)job; /* for its lock alone */
    struct text text = TEXT_INIT;
    int32_t status = job_check_process(job, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        if (strcmp(reports[i].name, what) != 0) {
            continue;
        }
        json_open(&text, NULL, '{');
        job_lock(locked);
        reports[i].write(job, what, &text);
        job_unlock(locked);
        json_close(&text, '}');
        status = text_export(&text, ret_text, max_bytes, ret_bytes, reterr);
        text_fini(&text);
        return status;
    }
    return error_set(reterr, HSDP_ERR_INVALID,
                     "diag: no report is named \"%.64s\"; known: settings, ledger, memory, "
                     "traffic, flight, plan, error",
                     what);
}

void job_reporter_add(struct hsdp_job *job, struct reporter *reporter)
{
    job_lock(job);
    reporter->next = job->reporters;
    job->reporters = reporter;
    job_unlock(job);
}

void job_reporter_remove(struct hsdp_job *job, struct reporter *reporter)
{
    struct reporter **link = &job->reporters;

    job_lock(job);
    while (*link != NULL && *link != reporter) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = reporter->next;
    }
    job_unlock(job);
}
