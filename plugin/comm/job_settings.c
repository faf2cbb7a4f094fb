/* SPDX-License-Identifier: Apache-2.0 */
/* A job's settings: what is derived from what, what this version does not do, what may change. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/job_internal.h"
#include "device/kernels.h"

#define DERIVED     "derived from nccl_timeout_seconds"
#define SILENCE_MAX 5 /* seconds, where nobody says otherwise */

static const char *const timeout_keys[] = {
    "nccl_timeout_seconds",
    "init_timeout_seconds",
    "heartbeat_timeout_seconds",
    "peer_silence_seconds",
};

enum { TIMEOUT_NCCL, TIMEOUT_INIT, TIMEOUT_HEARTBEAT, TIMEOUT_SILENCE, N_TIMEOUTS };

/* ---------------------------------------------------------------------------- derivation */

static bool is_derived(const struct settings *settings, const char *key)
{
    uint32_t index = setting_index(key);

    return settings->values[index] == NULL || strcmp(settings->sources[index], DERIVED) == 0;
}

/* The four timeouts as they would be with one of them changed (-1 = none). */
static void timeouts_derive(const struct settings *settings, int changed, int64_t value,
                            int64_t ret_seconds[N_TIMEOUTS])
{
    for (int i = 0; i < N_TIMEOUTS; i++) {
        if (i == changed) {
            ret_seconds[i] = value;
        } else if (!is_derived(settings, timeout_keys[i])) {
            ret_seconds[i] = settings_integer(settings, timeout_keys[i]);
        } else {
            ret_seconds[i] = ret_seconds[TIMEOUT_NCCL];
        }
    }
    if (changed != TIMEOUT_SILENCE && is_derived(settings, timeout_keys[TIMEOUT_SILENCE]) &&
        ret_seconds[TIMEOUT_SILENCE] > SILENCE_MAX) {
        ret_seconds[TIMEOUT_SILENCE] = SILENCE_MAX;
    }
}

static int32_t timeouts_check(const int64_t seconds[N_TIMEOUTS], struct hsdp_error *reterr)
{
    if (seconds[TIMEOUT_INIT] < seconds[TIMEOUT_NCCL]) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "init_timeout_seconds: %" PRId64
                         " is less than nccl_timeout_seconds, %" PRId64,
                         seconds[TIMEOUT_INIT], seconds[TIMEOUT_NCCL]);
    }
    if (seconds[TIMEOUT_SILENCE] > seconds[TIMEOUT_NCCL]) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "peer_silence_seconds: %" PRId64
                         " is more than nccl_timeout_seconds, %" PRId64,
                         seconds[TIMEOUT_SILENCE], seconds[TIMEOUT_NCCL]);
    }
    return HSDP_OK;
}

/* A text that does not change keeps its address: the host may have asked for it. */
static bool is_number(const struct settings *settings, int timeout, int64_t seconds)
{
    return settings_text(settings, timeout_keys[timeout]) != NULL &&
           settings_integer(settings, timeout_keys[timeout]) == seconds;
}

/* After a change of phases or settings; locked. */
static void timeouts_apply(struct hsdp_job *job)
{
    uint64_t ms = (uint64_t)settings_integer(&job->settings, "nccl_timeout_seconds") * 1000u;
    uint64_t beat_ms =
        (uint64_t)settings_integer(&job->settings, "heartbeat_timeout_seconds") * 1000u;
    uint64_t silence_ms =
        (uint64_t)settings_integer(&job->settings, "peer_silence_seconds") * 1000u;
    uint64_t idle_ms = beat_ms;

    if (job->n_phases > 0) {
        ms = job->phases[job->n_phases - 1].timeout_ms;
        idle_ms = ms > beat_ms ? ms : beat_ms;
    }
    atomic_store(&job->timeout_ms, ms);
    atomic_store(&job->heartbeat_ms, beat_ms);
    atomic_store(&job->idle_limit_ms, idle_ms);
    atomic_store(&job->silence_ms, silence_ms);
}

static int32_t timeouts_put(struct hsdp_job *job, int changed, const int64_t seconds[N_TIMEOUTS],
                            struct hsdp_error *reterr)
{
    struct settings *settings = &job->settings;
    int32_t status = HSDP_OK;

    job_lock(job);
    for (int i = 0; i < N_TIMEOUTS && status == HSDP_OK; i++) {
        if (i == changed) {
            status = settings_put_integer(settings, timeout_keys[i], seconds[i], "host", reterr);
        } else if (is_derived(settings, timeout_keys[i]) && !is_number(settings, i, seconds[i])) {
            status = settings_put_integer(settings, timeout_keys[i], seconds[i], DERIVED, reterr);
        }
    }
    if (status == HSDP_OK) { /* else some may have no value yet */
        timeouts_apply(job);
    }
    job_unlock(job);
    return status;
}

void job_timeout_source(const struct hsdp_job *job, char *ret_text, uint64_t max_bytes)
{
    if (job->n_phases > 0) {
        snprintf(ret_text, max_bytes, "phase %s", job->phases[job->n_phases - 1].name);
    } else {
        snprintf(ret_text, max_bytes, "%s", DERIVED);
    }
}

void job_timeouts_write(const struct hsdp_job *job, struct text *text)
{
    for (int i = 0; i < N_TIMEOUTS; i++) {
        json_open(text, timeout_keys[i], '{');
        json_uint(text, "seconds", (uint64_t)settings_integer(&job->settings, timeout_keys[i]));
        json_string(text, "source", job->settings.sources[setting_index(timeout_keys[i])]);
        json_close(text, '}');
    }
}

/* ------------------------------------------------------------------------------ at create */

/* Data lies where the transport moves it. */
static int32_t backend_choose(struct hsdp_job *job, bool has_device, struct hsdp_error *reterr)
{
    const char *backend = settings_text(&job->settings, "backend");

    if (strcmp(backend, "auto") == 0) {
        job->has_device = has_device;
        return has_device ? settings_put(&job->settings, "backend", "nccl",
                                         "derived from the device", reterr)
                          : settings_put(&job->settings, "backend", "shm",
                                         "derived from the ranks on this host", reterr);
    }
    job->has_device = strcmp(backend, "nccl") == 0;
    if (!job->has_device && strcmp(backend, "shm") != 0) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "job: backend \"%s\" is not built; this version has shm and nccl",
                         backend);
    }
    if (job->has_device != has_device) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: backend \"%s\" moves memory of device type %d; this job has device "
                         "type %d",
                         backend, job->has_device ? HSDP_DEVICE_CUDA : HSDP_DEVICE_CPU,
                         has_device ? HSDP_DEVICE_CUDA : HSDP_DEVICE_CPU);
    }
    return HSDP_OK;
}

/* What "auto" became can be read back. */
static int32_t kernels_init(struct hsdp_job *job, struct hsdp_error *reterr)
{
    const char *path = settings_text(&job->settings, "cpu_path");
    int32_t status;

    status = kernels_choose(path, kernels_n_paths(), &job->kernels, reterr);
    if (status == HSDP_OK && strcmp(path, job->kernels->path) != 0) {
        status = settings_put(&job->settings, "cpu_path", job->kernels->path,
                              "derived from the processor", reterr);
    }
    job->space = space_cpu(job->kernels);
    return status;
}

int32_t job_settings_init(struct hsdp_job *job, const struct hsdp_job_spec *spec,
                          struct hsdp_error *reterr)
{
    int64_t seconds[N_TIMEOUTS];
    int32_t status;

    status = settings_init(&job->settings, SETTING_JOB, &spec->settings, NULL, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = backend_choose(job, spec->device_type == HSDP_DEVICE_CUDA, reterr);
    if (status == HSDP_OK) {
        status = kernels_init(job, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    timeouts_derive(&job->settings, -1, 0, seconds);
    status = timeouts_check(seconds, reterr);
    return status == HSDP_OK ? timeouts_put(job, -1, seconds, reterr) : status;
}

/* ------------------------------------------------------------------------------ read, change */

int32_t job_setting(const struct hsdp_job *job, const char *key, const char **ret_value,
                    const char **ret_source, struct hsdp_error *reterr)
{
    return settings_get(&job->settings, key, ret_value, ret_source, reterr);
}

static int timeout_find(const char *key)
{
    for (int i = 0; i < N_TIMEOUTS; i++) {
        if (strcmp(timeout_keys[i], key) == 0) {
            return i;
        }
    }
    return -1;
}

/* What ranks compare; texts that are longer cannot be legal, but must differ when they do. */
struct change {
    char key[40];
    char value[40];
    uint64_t key_bytes;
    uint64_t value_bytes;
};

/* What a rank of the whole world has said in the exchange that is over. */
static void change_read(struct hsdp_job *job, uint32_t rank, struct change *ret)
{
    struct control *control = atomic_load(&job->control);

    memcpy(ret, control_mailbox(control, job->n_exchanges, rank)->bytes, sizeof(*ret));
    ret->key[sizeof(ret->key) - 1] = '\0';
    ret->value[sizeof(ret->value) - 1] = '\0';
}

static int32_t change_agree(struct hsdp_job *job, const char *key, const char *value,
                            struct hsdp_error *reterr)
{
    struct mailbox mailbox = {.operation = "setting_set", .n_bytes = sizeof(struct change)};
    struct change change;
    struct change first;
    int32_t status;

    memset(&change, 0, sizeof(change));
    snprintf(change.key, sizeof(change.key), "%s", key);
    snprintf(change.value, sizeof(change.value), "%s", value);
    change.key_bytes = strlen(key);
    change.value_bytes = strlen(value);
    memcpy(mailbox.bytes, &change, sizeof(change));
    status = exchange_run(job, &mailbox, 0, reterr);
    for (uint32_t rank = 0; status == HSDP_OK && rank < job->launch.world_ranks; rank++) {
        struct hsdp_error err;

        change_read(job, rank, &change);
        first = rank == 0 ? change : first;
        if (memcmp(&first, &change, sizeof(change)) == 0) {
            continue;
        }
        error_set(&err, HSDP_ERR_MISMATCH,
                  "setting_set: %s = \"%s\" on rank 0, %s = \"%s\" on rank %" PRIu32, first.key,
                  first.value, change.key, change.value, rank);
        error_where(&err, "job.setting_set", NULL, NULL);
        failure_raise(job, &err);
        return failure_tell(job, reterr);
    }
    return status;
}

int32_t job_setting_set(struct hsdp_job *job, const char *key, const char *value,
                        struct hsdp_error *reterr)
{
    const struct setting_def *def;
    int64_t seconds[N_TIMEOUTS];
    const char *old_value;
    const char *old_source;
    int64_t number;
    int32_t status;
    int changed;

    if (!job_is_connected(job)) {
        return error_set(reterr, HSDP_ERR_STATE, "job: setting_set of %s needs a connected job",
                         key);
    }
    status = change_agree(job, key, value, reterr);
    if (status == HSDP_OK) {
        job_collective_alone(job); /* what is wrong with it is so on all ranks */
        status = settings_get(&job->settings, key, &old_value, &old_source, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    changed = timeout_find(key);
    if (changed < 0) {
        return error_set(reterr, HSDP_ERR_STATE,
                         "job: %s is fixed once the job exists (\"%.64s\", %s)", key, old_value,
                         old_source);
    }
    def = &setting_defs[setting_index(key)];
    status = integer_parse(key, value, def->min, def->max, &number, reterr);
    if (status == HSDP_OK) {
        timeouts_derive(&job->settings, changed, number, seconds);
        status = timeouts_check(seconds, reterr);
    }
    return status == HSDP_OK ? timeouts_put(job, changed, seconds, reterr) : status;
}

/* ---------------------------------------------------------------------------------- phases */

int32_t job_phase_push(struct hsdp_job *job, const char *phase, uint64_t timeout_ms,
                       struct hsdp_error *reterr)
{
    struct job_phase *top;

    if (strlen(phase) >= sizeof(top->name)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: phase \"%.63s...\" has a name of %zu bytes; at most %zu", phase,
                         strlen(phase), sizeof(top->name) - 1);
    }
    if (timeout_ms == 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: phase \"%.63s\" has a timeout of 0 ms; at least 1", phase);
    }
    if (job->n_phases == JOB_MAX_PHASES) {
        return error_set(reterr, HSDP_ERR_STATE,
                         "job: phase \"%.63s\" would be the %uth open one; at most %u", phase,
                         JOB_MAX_PHASES + 1, JOB_MAX_PHASES);
    }
    job_lock(job);
    top = &job->phases[job->n_phases++];
    snprintf(top->name, sizeof(top->name), "%s", phase);
    top->timeout_ms = timeout_ms;
    timeouts_apply(job);
    job_unlock(job);
    position_phase(job->position, top->name);
    return HSDP_OK;
}

int32_t job_phase_pop(struct hsdp_job *job, struct hsdp_error *reterr)
{
    if (job->n_phases == 0) {
        return error_set(reterr, HSDP_ERR_STATE, "job: no phase is open");
    }
    job_lock(job);
    job->n_phases--;
    timeouts_apply(job);
    job_unlock(job);
    position_phase(job->position, job->n_phases == 0 ? "" : job->phases[job->n_phases - 1].name);
    return HSDP_OK;
}
