/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics: reports of a job in JSON, and counters. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "model.h"
#include "text.h"

static const char report_names[] =
    "\"settings\", \"ledger\", \"memory\", \"traffic\", \"flight\", \"plan\", \"error\"";

static const struct call quiet = {"diag.report", NULL};

/* -------------------------------------------------------------------------------------- reports */

static void settings_write(hsdp_job *job, FILE *file)
{
    const char *before = "";

    fprintf(file, "{\"settings\":[");
    for (size_t k = 0; k < N_KEYS; k++) {
        const char *value, *source;

        if (settings_tell(&quiet, &job->settings, keys[k].name, &value, &source) != HSDP_OK) {
            continue;
        }
        fprintf(file, "%s{\"key\":\"%s\",\"value\":", before, keys[k].name);
        text_quote(file, value);
        fprintf(file, ",\"source\":");
        text_quote(file, source);
        fprintf(file, "}");
        before = ",";
    }
    fprintf(file, "]}");
}

/* "timeout_ms" of an operation that begins now, and where it comes from; own_ms is a group's. */
static void timeout_write(const hsdp_job *job, FILE *file, uint64_t own_ms)
{
    fprintf(file,
            "\"timeout_ms\":%" PRIu64 ",\"source\":", own_ms != 0 ? own_ms : job_timeout_ms(job));
    if (own_ms != 0) {
        fprintf(file, "\"group\"");
    } else if (job->n_phases > 0) {
        char phase[80];

        snprintf(phase, sizeof(phase), "phase %s", job->phases[job->n_phases - 1].name);
        text_quote(file, phase);
    } else {
        fprintf(file, "\"derived from nccl_timeout_seconds\"");
    }
}

static void ranks_write(FILE *file, const uint32_t *ranks, uint32_t n)
{
    fprintf(file, "\"ranks\":[");
    for (uint32_t i = 0; i < n; i++) {
        fprintf(file, "%s%" PRIu32, i == 0 ? "" : ",", ranks[i]);
    }
    fprintf(file, "]");
}

static void ledger_settings(hsdp_job *job, FILE *file)
{
    static const char *const names[] = {"nccl_timeout_seconds", "init_timeout_seconds",
                                        "heartbeat_timeout_seconds", "peer_silence_seconds"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = "", *source = "";

        settings_tell(&quiet, &job->settings, names[i], &value, &source);
        fprintf(file, ",\"%s\":{\"seconds\":%s,\"source\":", names[i], value);
        text_quote(file, source);
        fprintf(file, "}");
    }
}

static void ledger_write(hsdp_job *job, FILE *file)
{
    const char *before = "";

    fprintf(file, "{");
    timeout_write(job, file, 0);
    ledger_settings(job, file);
    fprintf(file, ",\"groups\":[");
    for (const hsdp_group *g = job->groups; g != NULL; g = g->next) {
        fprintf(file, "%s{\"name\":", before);
        text_quote(file, g->name);
        fprintf(file, ",");
        timeout_write(job, file, g->timeout_ms);
        fprintf(file, ",");
        ranks_write(file, g->members, g->n_ranks);
        fprintf(file, "}");
        before = ",";
    }
    for (const hsdp_model *m = job->models; m != NULL; m = m->next) {
        for (uint32_t u = 0; u < m->n_units; u++) {
            fprintf(file, "%s{\"name\":", before);
            text_quote(file, m->units[u].group);
            fprintf(file, ",\"class\":");
            text_quote(file, m->plan->classes[m->units[u].class_index].name);
            fprintf(file, ",");
            ranks_write(file, m->units[u].reduced.ranks, m->units[u].reduced.n);
            fprintf(file, ",");
            timeout_write(job, file, 0);
            fprintf(file, "}");
            before = ",";
        }
    }
    fprintf(file, "]}");
}

static void memory_write(hsdp_job *job, FILE *file)
{
    const char *before = "";

    fprintf(file, "{\"models\":[");
    for (hsdp_model *m = job->models; m != NULL; m = m->next) {
        struct hsdp_model_info info;

        model_describe(m, &info);
        fprintf(file,
                "%s{\"parameters\":%" PRIu64 ",\"masters\":%" PRIu64 ",\"gradients\":%" PRIu64
                ",\"optimizer\":%" PRIu64 ",\"unsharded\":%" PRIu64 "}",
                before, info.param_bytes, info.master_bytes, info.grad_bytes + info.grad_slot_bytes,
                info.state_bytes, info.unsharded_bytes);
        before = ",";
    }
    fprintf(file, "]}");
}

static void traffic_write(hsdp_job *job, FILE *file)
{
    const char *before = "";

    fprintf(file, "{\"groups\":[");
    for (const struct traffic *t = job->traffic; t != NULL; t = t->next) {
        fprintf(file, "%s{\"group\":", before);
        text_quote(file, t->group);
        fprintf(file, ",\"operations\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", t->n_operations,
                t->n_bytes);
        before = ",";
    }
    fprintf(file, "]}");
}

static void plan_write(hsdp_job *job, FILE *file)
{
    const char *before = "";

    fprintf(file, "{\"plans\":[");
    for (const hsdp_model *m = job->models; m != NULL; m = m->next) {
        uint64_t n_bytes = 0;
        char *text;

        reference_plan.report(m->plan, NULL, 0, &n_bytes, NULL);
        text = malloc((size_t)n_bytes);
        if (text != NULL &&
            reference_plan.report(m->plan, text, n_bytes, &n_bytes, NULL) == HSDP_OK) {
            fprintf(file, "%s%s", before, text);
            before = ",";
        }
        free(text);
    }
    fprintf(file, "]}");
}

static void error_report(hsdp_job *job, FILE *file)
{
    bool has_failed = atomic_load(&job->is_failed);

    fprintf(file, "{\"status\":%" PRId32, has_failed ? job->failure.status : HSDP_OK);
    if (has_failed) {
        fprintf(file, ",\"operation\":");
        text_quote(file, job->failure.operation);
        fprintf(file, ",\"message\":");
        text_quote(file, job->failure.message);
    }
    fprintf(file, "}");
}

static const struct report {
    const char *name;
    void (*write)(hsdp_job *job, FILE *file);
} reports[] = {
    {"settings", settings_write}, {"ledger", ledger_write}, {"memory", memory_write},
    {"traffic", traffic_write},   {"flight", NULL},         {"plan", plan_write},
    {"error", error_report},
};

static int32_t table_report(const hsdp_job *job, const char *what, char *ret_text,
                            uint64_t max_bytes, uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    const struct call call = {"diag.report", reterr};
    int32_t status = job_look(&call, job);
    const struct report *report = NULL;
    struct text text;

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "what", what) || !call_has(&call, "ret_bytes", ret_bytes) ||
        !call_has_array(&call, "ret_text", ret_text, max_bytes)) {
        return HSDP_ERR_INVALID;
    }
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        report = strcmp(reports[i].name, what) == 0 ? &reports[i] : report;
    }
    if (report == NULL) {
        return error_raise(&call, HSDP_ERR_INVALID, "diag.report: \"%.64s\" is none of %s", what,
                           report_names);
    }
    if (report->write == NULL) {
        return error_raise(&call, HSDP_ERR_UNSUPPORTED,
                           "diag.report: this plugin keeps no record of past operations");
    }
    if (text_open(&text)) {
        pthread_mutex_lock(&((hsdp_job *)job)->mutex);
        report->write((hsdp_job *)job, text.file);
        pthread_mutex_unlock(&((hsdp_job *)job)->mutex);
    }
    return text_close(&call, &text, ret_text, max_bytes, ret_bytes);
}

/* ------------------------------------------------------------------------------------- counters */

static const char *const count_names[N_COUNTS] = {
    [COUNT_STEPS] = "steps", [COUNT_UNSHARDS] = "unshards", [COUNT_REDUCTIONS] = "reductions",
    [COUNT_WAITS] = "waits", [COUNT_WAIT_NS] = "wait_ns",
};

static const char *const memory_names[] = {"memory.parameters", "memory.gradients",
                                           "memory.optimizer", "memory.unsharded"};

#define N_MEMORY 4u

static uint64_t memory_count(hsdp_job *job, uint64_t which)
{
    uint64_t n_bytes = 0;

    for (hsdp_model *m = job->models; m != NULL; m = m->next) {
        struct hsdp_model_info info;

        model_describe(m, &info);
        n_bytes += which == 0   ? info.param_bytes + info.master_bytes
                   : which == 1 ? info.grad_bytes + info.grad_slot_bytes
                   : which == 2 ? info.state_bytes
                                : info.unsharded_bytes;
    }
    return n_bytes;
}

/* The index-th counter; NULL past the last one. */
static const char *counter_at(hsdp_job *job, uint64_t index, uint64_t *ret_value)
{
    if (index < N_COUNTS) {
        *ret_value = job->counts[index];
        return count_names[index];
    }
    index -= N_COUNTS;
    if (index < N_MEMORY) {
        *ret_value = memory_count(job, index);
        return memory_names[index];
    }
    index -= N_MEMORY;
    for (const struct traffic *t = job->traffic; t != NULL; t = t->next) {
        if (index < 2) {
            *ret_value = index == 0 ? t->n_bytes : t->n_operations;
            return t->names[index];
        }
        index -= 2;
    }
    return NULL;
}

static int32_t table_counter(const hsdp_job *job, const char *name, uint64_t *ret_value,
                             struct hsdp_error *reterr)
{
    const struct call call = {"diag.counter", reterr};
    int32_t status = job_look(&call, job);
    const char *found;
    uint64_t value;

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "name", name) || !call_has(&call, "ret_value", ret_value)) {
        return HSDP_ERR_INVALID;
    }
    pthread_mutex_lock(&((hsdp_job *)job)->mutex);
    for (uint64_t i = 0; (found = counter_at((hsdp_job *)job, i, &value)) != NULL; i++) {
        if (strcmp(found, name) == 0) {
            *ret_value = value;
            break;
        }
    }
    pthread_mutex_unlock(&((hsdp_job *)job)->mutex);
    return found != NULL ? HSDP_OK
                         : error_raise(&call, HSDP_ERR_INVALID,
                                       "diag.counter: there is no counter \"%.64s\"", name);
}

static int32_t table_counter_name(const hsdp_job *job, uint64_t index, const char **ret_name,
                                  struct hsdp_error *reterr)
{
    const struct call call = {"diag.counter_name", reterr};
    int32_t status = job_look(&call, job);
    const char *found;
    uint64_t value;

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "ret_name", ret_name)) {
        return HSDP_ERR_INVALID;
    }
    pthread_mutex_lock(&((hsdp_job *)job)->mutex);
    found = counter_at((hsdp_job *)job, index, &value);
    pthread_mutex_unlock(&((hsdp_job *)job)->mutex);
    if (found == NULL) {
        return error_raise(&call, HSDP_ERR_INVALID,
                           "diag.counter_name: there is no counter %" PRIu64, index);
    }
    *ret_name = found;
    return HSDP_OK;
}

const struct hsdp_diag_ops reference_diag = {
    .struct_size = sizeof(struct hsdp_diag_ops),
    .report = table_report,
    .counter = table_counter,
    .counter_name = table_counter_name,
};
