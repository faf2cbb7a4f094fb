/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of jobs: what follows from what, and functions of the table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "job.h"

/* A key that is not set gets a number that follows from another one. */
static int32_t setting_derive(const struct call *call, struct settings *settings, const char *key,
                              int64_t value)
{
    static const char source[] = "derived from nccl_timeout_seconds";
    size_t k = 0;

    while (strcmp(keys[k].name, key) != 0) {
        k++;
    }
    if (settings->values[k] != NULL && strcmp(settings->sources[k], source) != 0) {
        return HSDP_OK;
    }
    return settings_put_number(call, settings, key, value, source);
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

/* What the values have to do with each other, and with this plugin. */
int32_t job_settings_check(const struct call *call, const struct settings *settings)
{
    int64_t seconds = settings_number(settings, "nccl_timeout_seconds");
    const char *backend = settings_text(settings, "backend");
    const char *path = settings_text(settings, "cpu_path");

    if (settings_number(settings, "init_timeout_seconds") < seconds) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: init_timeout_seconds is %s; at least nccl_timeout_seconds, %" PRId64
                           ", is allowed",
                           call->name, settings_text(settings, "init_timeout_seconds"), seconds);
    }
    if (settings_number(settings, "peer_silence_seconds") > seconds) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: peer_silence_seconds is %s; 1 to nccl_timeout_seconds, %" PRId64
                           ", is allowed",
                           call->name, settings_text(settings, "peer_silence_seconds"), seconds);
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

static const struct key *key_find(const char *name)
{
    for (size_t k = 0; k < N_KEYS; k++) {
        if ((keys[k].homes & HOME_JOB) != 0 && strcmp(keys[k].name, name) == 0) {
            return &keys[k];
        }
    }
    return NULL;
}

/* Refuses a value here, before the ranks compare it. */
static int32_t value_check(const struct call *call, const struct key *key, const char *value)
{
    const struct range range = {key->name, key->least, key->most};
    int64_t number;

    return number_read(call, &range, value, &number);
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
    request.refusal = value_check(&quiet, key, value);
    request.sentence = error.message;
    status = job_meet(call, job, &request, &answer);
    packet_free(&answer);
    if (status == HSDP_OK) {
        status = settings_put(call, &job->settings, key->name, value, "host");
    }
    if (status == HSDP_OK) {
        status = job_settings_derive(call, &job->settings);
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
    } else if (strcmp(key, "nccl_timeout_seconds") != 0 &&
               strcmp(key, "heartbeat_timeout_seconds") != 0 &&
               strcmp(key, "peer_silence_seconds") != 0) {
        status = error_raise(&call, HSDP_ERR_STATE,
                             "job.setting_set: %s is fixed once the job exists", key);
    } else {
        status = setting_agree(&call, job, found, value);
    }
    return job_leave(job, status);
}
