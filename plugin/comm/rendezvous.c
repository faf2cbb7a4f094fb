/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: what both sides share, and the meeting point by way of the host's store. */
#include "comm/rendezvous.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

#define KV_SLICE_MS  200u
#define ASK_PAUSE_MS 10 /* of a store that does not wait by itself */

int32_t rendezvous_meet(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct hsdp_error err;
    int32_t status;

    status = job->launch.is_leader ? rendezvous_leader(job, deadline_ns, &err)
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
    ret->local_rank = job->launch.local_rank;
    ret->local_ranks = job->launch.local_ranks;
    ret->run = job->run;
    for (uint32_t i = 0; i < WIRE_SETTINGS; i++) {
        const char *value = settings_text(&job->settings, wire_setting_keys[i]);

        snprintf(ret->settings[i], sizeof(ret->settings[i]), "%s", value == NULL ? "" : value);
    }
}

static int32_t settings_compare(const struct wire_hello *own, const struct wire_hello *other,
                                struct hsdp_error *reterr)
{
    for (uint32_t i = 0; i < WIRE_SETTINGS; i++) {
        if (strncmp(other->settings[i], own->settings[i], sizeof(own->settings[i])) != 0) {
            return error_set(
                reterr, HSDP_ERR_MISMATCH,
                "connect: %s is \"%s\" on rank %" PRIu32 ", \"%.23s\" on rank %" PRIu32,
                wire_setting_keys[i], own->settings[i], own->rank, other->settings[i], other->rank);
        }
    }
    return HSDP_OK;
}

int32_t rendezvous_compare(const struct wire_hello *own, const struct wire_hello *other,
                           struct hsdp_error *reterr)
{
    if (other->protocol != WIRE_PROTOCOL || other->abi_major != HSDP_ABI_MAJOR) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "connect: rank %" PRIu32 " speaks protocol %u of ABI %u, rank %" PRIu32
                         " protocol %" PRIu32 " of ABI %" PRIu32,
                         own->rank, WIRE_PROTOCOL, HSDP_ABI_MAJOR, other->rank, other->protocol,
                         other->abi_major);
    }
    if (other->world_ranks != own->world_ranks || other->rank >= own->world_ranks) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "connect: the world has %" PRIu32 " ranks on rank %" PRIu32 ", %" PRIu32
                         " on rank %" PRIu32,
                         own->world_ranks, own->rank, other->world_ranks, other->rank);
    }
    return settings_compare(own, other, reterr);
}

/* The same for all attempts: a survivor of another one is let in, to hear what it is. */
void rendezvous_net_identity(const struct hsdp_job *job, struct net_identity *ret)
{
    struct launch_identity run = job->run;
    char hex[LAUNCH_HEX_BYTES];
    uint64_t hash = text_hash(TEXT_HASH_BASIS, job->name);

    memset(ret, 0, sizeof(*ret));
    ret->rank = job->launch.rank;
    for (uint32_t field = LAUNCH_FIRST_ATTEMPT; field < LAUNCH_N_FIELDS; field++) {
        memset(run.values[field], 0, sizeof(run.values[field]));
    }
    launch_identity_hash(&run, hex);
    if (job->host.kv_put != NULL) {
        memcpy(hex, job->point.identity, sizeof(hex));
    }
    for (uint32_t i = 0; i < NET_JOB_BYTES; i++) {
        unsigned byte = 0;

        sscanf(hex + (size_t)2 * i, "%2x", &byte);
        ret->job[i] = (uint8_t)byte;
    }
    for (uint32_t i = 0; i < sizeof(hash); i++) {
        ret->job[i] ^= (uint8_t)(hash >> 8 * i);
    }
}

uint64_t rendezvous_limit_ms(const struct hsdp_job *job)
{
    return (uint64_t)settings_integer(&job->settings, "init_timeout_seconds") * 1000u;
}

uint64_t rendezvous_silence_ns(const struct hsdp_job *job)
{
    return atomic_load(&job->silence_ms) * CLOCK_NS_PER_MS;
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

/* Both sides derive the meeting point of a node from the run's identity and the node's key. */
static int32_t identity_set(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct text text = TEXT_INIT;

    text_add(&text, "%s", job->point.identity);
    if (job->launch.node_key[0] != '\0') {
        text_add(&text, "\nnode=%s", job->launch.node_key);
    }
    if (text.is_failed) {
        text_fini(&text);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: no memory for the identity");
    }
    free(job->identity);
    job->identity = text.chars; /* handed over */
    return HSDP_OK;
}

int32_t rendezvous_identify(struct hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status;

    if (job->host.kv_put == NULL) {
        return HSDP_OK; /* the launcher's environment is the identity */
    }
    status = meeting_point_init(&job->point, reterr);
    return status == HSDP_OK ? identity_set(job, reterr) : status;
}

static void key_write(const struct hsdp_job *job, char *ret_key, size_t max_bytes)
{
    snprintf(ret_key, max_bytes, "hsdp/%s/meeting", job->name);
}

static int32_t connect_fail(struct hsdp_job *job, struct hsdp_error *err, struct hsdp_error *reterr)
{
    error_where(err, "connect", NULL, NULL);
    failure_raise(job, err);
    return failure_tell(job, reterr);
}

/* The contract of the callbacks: their failure is the job's. */
static int32_t store_fail(struct hsdp_job *job, const char *call, const char *key, int32_t answer,
                          struct hsdp_error *reterr)
{
    struct hsdp_error err;

    error_set(&err, HSDP_ERR_UNAVAILABLE, "connect: %s of \"%s\" answered %" PRId32, call, key,
              answer);
    return connect_fail(job, &err, reterr);
}

/* What is in the store is none of ours, or of another version of this library. */
static int32_t value_fail(struct hsdp_job *job, const char *key, uint64_t n_bytes,
                          struct hsdp_error *reterr)
{
    struct hsdp_error err;

    error_set(&err, HSDP_ERR_UNAVAILABLE,
              "connect: kv_get of \"%s\" gave %" PRIu64 " bytes that are no meeting point", key,
              n_bytes);
    return connect_fail(job, &err, reterr);
}

int32_t rendezvous_publish(struct hsdp_job *job, struct hsdp_error *reterr)
{
    char key[JOB_NAME_MAX + 16];
    char value[MEETING_POINT_MAX_BYTES];
    uint32_t n_bytes;
    int32_t answer;

    if (job->host.kv_put == NULL) {
        return HSDP_OK;
    }
    if (job->point.port != 0) {
        int32_t status = meeting_point_addresses(&job->point, reterr);

        if (status != HSDP_OK) {
            return status;
        }
    }
    key_write(job, key, sizeof(key));
    n_bytes = meeting_point_write(&job->point, value);
    answer = job->host.kv_put(job->host.user, key, value, n_bytes);
    return answer == 0 ? HSDP_OK : store_fail(job, "kv_put", key, answer, reterr);
}

int32_t rendezvous_ask(struct hsdp_job *job, struct hsdp_error *reterr)
{
    char key[JOB_NAME_MAX + 16];
    char value[MEETING_POINT_MAX_BYTES];
    uint64_t n_bytes = 0;
    int32_t answer;

    if (job->host.kv_get == NULL) {
        return HSDP_OK;
    }
    key_write(job, key, sizeof(key));
    answer = job->host.kv_get(job->host.user, key, value, sizeof(value), &n_bytes, KV_SLICE_MS);
    if (answer == 1) {
        return HSDP_PENDING;
    }
    if (answer != 0) {
        return store_fail(job, "kv_get", key, answer, reterr);
    }
    if (!meeting_point_parse(value, n_bytes, &job->point)) {
        return value_fail(job, key, n_bytes, reterr);
    }
    return identity_set(job, reterr);
}

int32_t rendezvous_ask_until(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    int32_t status = rendezvous_ask(job, reterr);

    while (status == HSDP_PENDING) {
        const struct failure *first = failure_first(job);
        struct pollfd wake = {.fd = atomic_load(&job->abort_fd), .events = POLLIN};

        if (first != NULL) {
            *reterr = first->error;
            return reterr->status;
        }
        if (clock_now_ns() >= deadline_ns) {
            error_set(reterr, HSDP_ERR_TIMEOUT,
                      "connect: timeout after %s s: no sign of rank 0 in the host's store",
                      settings_text(&job->settings, "init_timeout_seconds"));
            error_missing_one(reterr, 0);
            reterr->waited_ms = rendezvous_limit_ms(job);
            return reterr->status;
        }
        poll(&wake, 1, clock_left_ms(deadline_ns, ASK_PAUSE_MS));
        status = rendezvous_ask(job, reterr);
    }
    return status;
}
