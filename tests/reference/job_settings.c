/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of jobs: what follows from what, and functions of the table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "job.h"

static const char derived[] = "derived from nccl_timeout_seconds";

static const struct key *key_find(const char *name)
{
    for (size_t k = 0; k < N_KEYS; k++) {
        if ((keys[k].homes & HOME_JOB) != 0 && strcmp(keys[k].name, name) == 0) {
            return &keys[k];
        }
    }
    return NULL;
}

/* True for a key of which neither the host nor the environment has said anything. */
static bool is_derived(const struct settings *settings, const char *key)
{
    size_t k = (size_t)(key_find(key) - keys);

    return settings->values[k] == NULL || settings->sources[k] == derived;
}

static int32_t setting_derive(const struct call *call, struct settings *settings, const char *key,
                              int64_t value)
{
    return is_derived(settings, key) ? settings_put_number(call, settings, key, value, derived)
                                     : HSDP_OK;
}

int32_t job_settings_derive(const struct call *call, struct settings *settings)
{
    int64_t seconds = settings_number(settings, "nccl_timeout_seconds");
    int32_t status = setting_derive(call, settings, "init_timeout_seconds", seconds);

    if (status == HSDP_OK) {
        status = setting_derive(call, settings, "heartbeat_timeout_seconds", seconds);
    }
    if (status == HSDP_OK) {
        status = setting_derive(call, settings, "peer_silence_seconds", seconds < 5 ? seconds : 5);
    }
    return status;
}

/* Timeouts that go together. */
struct limits {
    int64_t nccl;
    int64_t init;
    int64_t silence;
};

static int32_t limits_check(const struct call *call, const struct limits *limits)
{
    if (limits->init < limits->nccl) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: init_timeout_seconds is %" PRId64
                           "; at least nccl_timeout_seconds, %" PRId64 ", is allowed",
                           call->name, limits->init, limits->nccl);
    }
    if (limits->silence > limits->nccl) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: peer_silence_seconds is %" PRId64
                           "; 1 to nccl_timeout_seconds, %" PRId64 ", is allowed",
                           call->name, limits->silence, limits->nccl);
    }
    return HSDP_OK;
}

int32_t job_settings_check(const struct call *call, const struct settings *settings)
{
    const struct limits limits = {
        .nccl = settings_number(settings, "nccl_timeout_seconds"),
        .init = settings_number(settings, "init_timeout_seconds"),
        .silence = settings_number(settings, "peer_silence_seconds"),
    };
    const char *backend = settings_text(settings, "backend");
    const char *path = settings_text(settings, "cpu_path");
    int32_t status = limits_check(call, &limits);

    if (status != HSDP_OK) {
        return status;
    }
    if (strcmp(backend, "auto") != 0) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED,
                           "%s: backend %s is not built into this plugin, only auto: sockets",
                           call->name, backend);
    }
    if (strcmp(path, "auto") != 0 && strcmp(path, "plain") != 0) {
        return error_raise(call, HSDP_ERR_UNAVAILABLE,
                           "%s: cpu_path %s is not built into this plugin, only plain", call->name,
                           path);
    }
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------------ settings */

int32_t job_table_setting(const hsdp_job *job, const char *key, const char **ret_value,
                          const char **ret_source, struct hsdp_error *reterr)
{
    const struct call call = {"job.setting", reterr};
    int32_t status = job_enter_to_ask(&call, job);

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "key", key) || !call_has(&call, "ret_value", ret_value) ||
        !call_has(&call, "ret_source", ret_source)) {
        return job_leave(job, HSDP_ERR_INVALID);
    }
    return job_leave(job, settings_tell(&call, &job->settings, key, ret_value, ret_source));
}

static bool is_timeout(const char *key)
{
    static const char *const timeouts[] = {"nccl_timeout_seconds", "init_timeout_seconds",
                                           "heartbeat_timeout_seconds", "peer_silence_seconds"};

    for (size_t i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
        if (strcmp(timeouts[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static int64_t number_after(const struct settings *settings, const char *key, const char *changed,
                            int64_t number)
{
    return strcmp(key, changed) == 0 ? number : settings_number(settings, key);
}

/* Refuses a value here, before the ranks compare it; those that are derived will follow it. */
static int32_t value_check(const struct call *call, const struct settings *settings,
                           const struct key *key, const char *value)
{
    const struct range range = {key->name, key->least, key->most};
    bool is_first = strcmp(key->name, "nccl_timeout_seconds") == 0;
    struct limits limits;
    int64_t number;
    int32_t status = number_read(call, &range, value, &number);

    if (status != HSDP_OK) {
        return status;
    }
    limits.nccl = number_after(settings, "nccl_timeout_seconds", key->name, number);
    limits.init = number_after(settings, "init_timeout_seconds", key->name, number);
    limits.silence = number_after(settings, "peer_silence_seconds", key->name, number);
    if (is_first && is_derived(settings, "init_timeout_seconds")) {
        limits.init = number;
    }
    if (is_first && is_derived(settings, "peer_silence_seconds")) {
        limits.silence = number < 5 ? number : 5;
    }
    return limits_check(call, &limits);
}

/* Under the mutex, for the threads that read. */
static int32_t setting_change(const struct call *call, hsdp_job *job, const struct key *key,
                              const char *value)
{
    int32_t status;

    pthread_mutex_lock(&job->mutex);
    status = settings_put(call, &job->settings, key->name, value, "host");
    if (status == HSDP_OK) {
        status = job_settings_derive(call, &job->settings);
    }
    pthread_mutex_unlock(&job->mutex);
    return status;
}

static int32_t setting_agree(const struct call *call, hsdp_job *job, const struct key *key,
                             const char *value)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call quiet = {call->name, &error};
    struct packet answer = {0};
    struct meeting_text text;
    struct request request;
    char alike[256];
    int32_t status;

    snprintf(alike, sizeof(alike), "%s=%.128s", key->name, value);
    request_of_job(call, job, &text, &request);
    request.alike = alike;
    request.refusal = value_check(&quiet, &job->settings, key, value);
    request.sentence = error.message;
    status = job_meet(call, job, &request, &answer);
    packet_free(&answer);
    if (status == HSDP_OK) {
        status = setting_change(call, job, key, value);
        job_retime(job);
    }
    return status;
}

int32_t job_table_setting_set(hsdp_job *job, const char *key, const char *value,
                              struct hsdp_error *reterr)
{
    const struct call call = {"job.setting_set", reterr};
    int32_t status = job_enter_connected(&call, job);
    const struct key *found;
    const char *text, *source;

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "key", key) || !call_has(&call, "value", value)) {
        return job_leave(job, HSDP_ERR_INVALID);
    }
    found = key_find(key);
    if (found == NULL) {
        status = settings_tell(&call, &job->settings, key, &text, &source); /* lists the keys */
    } else if (!is_timeout(key)) {
        status = error_raise(&call, HSDP_ERR_STATE,
                             "job.setting_set: %s is fixed once the job exists", key);
    } else {
        status = setting_agree(&call, job, found, value);
    }
    return job_leave(job, status);
}
