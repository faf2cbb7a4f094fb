/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: what both sides share, and the meeting point by way of the host's store. */
#include "comm/rendezvous.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

#define IDENTITY_BYTES 32u /* hexadecimal digits */
#define KV_SLICE_MS    200u

int32_t rendezvous_meet(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct hsdp_error err;
    int32_t status;

    status = job->launch.rank == 0 ? rendezvous_root(job, deadline_ns, &err)
                                   : rendezvous_guest(job, deadline_ns, &err);
    if (status != HSDP_OK && reterr != NULL) {
        *reterr = err;
    }
    return status;
}

void rendezvous_hello(const struct hsdp_job *job, struct wire_hello *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->magic = WIRE_MAGIC;
    ret->protocol = WIRE_PROTOCOL;
    ret->abi_major = HSDP_ABI_MAJOR;
    ret->abi_minor = HSDP_ABI_MINOR;
    ret->rank = job->launch.rank;
    ret->world_ranks = job->launch.world_ranks;
    for (uint32_t i = 0; i < WIRE_SETTINGS; i++) {
        const char *value = settings_text(&job->settings, wire_setting_keys[i]);

        snprintf(ret->settings[i], sizeof(ret->settings[i]), "%s", value == NULL ? "" : value);
    }
}

int32_t rendezvous_end(struct hsdp_job *job, uint32_t reporter, struct hsdp_error *err)
{
    error_where(err, "connect", NULL, NULL);
    if (error_fails_job(err->status) || err->status == HSDP_ERR_ABORTED) {
        failure_raise_for(job, reporter, err);
        return failure_tell(job, err);
    }
    return err->status;
}

/* ------------------------------------------------------------------- the host's key/value store */

static int32_t identity_set(struct hsdp_job *job, const char *text, struct hsdp_error *reterr)
{
    char *copy = strdup(text);

    if (copy == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: no memory for %zu bytes",
                         strlen(text));
    }
    free(job->identity);
    job->identity = copy;
    return HSDP_OK;
}

int32_t rendezvous_identify(struct hsdp_job *job, struct hsdp_error *reterr)
{
    uint8_t bytes[IDENTITY_BYTES / 2];
    char text[IDENTITY_BYTES + 1];

    if (job->host.kv_put == NULL) {
        return HSDP_OK; /* the launcher's environment is the identity */
    }
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no random numbers: %s",
                         strerror(errno));
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    return identity_set(job, text, reterr);
}

static void key_write(const struct hsdp_job *job, char *ret_key, size_t max_bytes)
{
    snprintf(ret_key, max_bytes, "hsdp/%s/meeting", job->name);
}

/* The contract of the callbacks: their failure is the job's. */
static int32_t store_fail(struct hsdp_job *job, const char *call, const char *key, int32_t answer,
                          struct hsdp_error *reterr)
{
    struct hsdp_error err;

    error_set(&err, HSDP_ERR_UNAVAILABLE, "connect: %s of \"%s\" answered %" PRId32, call, key,
              answer);
    error_where(&err, "connect", NULL, NULL);
    failure_raise(job, &err);
    return failure_tell(job, reterr);
}

int32_t rendezvous_publish(struct hsdp_job *job, struct hsdp_error *reterr)
{
    char key[JOB_NAME_MAX + 16];
    int32_t answer;

    if (job->host.kv_put == NULL) {
        return HSDP_OK;
    }
    key_write(job, key, sizeof(key));
    answer = job->host.kv_put(job->host.user, key, job->identity, IDENTITY_BYTES);
    return answer == 0 ? HSDP_OK : store_fail(job, "kv_put", key, answer, reterr);
}

int32_t rendezvous_ask(struct hsdp_job *job, struct hsdp_error *reterr)
{
    char key[JOB_NAME_MAX + 16];
    char value[IDENTITY_BYTES + 1] = "";
    uint64_t n_bytes = 0;
    int32_t answer;

    if (job->host.kv_get == NULL) {
        return HSDP_OK;
    }
    key_write(job, key, sizeof(key));
    answer = job->host.kv_get(job->host.user, key, value, IDENTITY_BYTES, &n_bytes, KV_SLICE_MS);
    if (answer == 1) {
        return HSDP_PENDING;
    }
    if (answer != 0 || n_bytes != IDENTITY_BYTES) {
        return store_fail(job, "kv_get", key, answer, reterr);
    }
    return identity_set(job, value, reterr);
}
