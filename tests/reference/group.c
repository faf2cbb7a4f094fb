/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: the functions of the table. */
#include "group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intake.h"
#include "reference.h"

#define MOST_COLLS 65536u

static const struct intake spec_intake = {"spec", 24, sizeof(struct hsdp_group_spec)};
static const struct intake info_intake = {"ret_info", 56, sizeof(struct hsdp_group_info)};
static const struct intake coll_intake = {"specs", 64, sizeof(struct hsdp_coll_spec)};

uint64_t group_timeout_ms(const hsdp_group *group)
{
    return group->timeout_ms != 0 ? group->timeout_ms : job_timeout_ms(group->job);
}

/* -------------------------------------------------------------------------------------- create */

static int32_t mesh_check(const struct call *call, const hsdp_job *job, const hsdp_mesh *mesh)
{
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    int32_t status = reference_mesh.info(mesh, &info, NULL);

    if (status == HSDP_OK &&
        (info.world_ranks != job->launch.world_ranks || info.rank != job->launch.rank)) {
        status = error_raise(call, HSDP_ERR_INVALID,
                             "%s: the mesh is seen from rank %" PRIu32 " of %" PRIu32
                             ", the job from rank %" PRIu32 " of %" PRIu32,
                             call->name, info.rank, info.world_ranks, job->launch.rank,
                             job->launch.world_ranks);
    }
    return status;
}

/* Groups of the same name and members are told apart by how many there were before. */
static int32_t group_number(const struct call *call, hsdp_group *group)
{
    struct group_count *count = group->job->group_counts;

    while (count != NULL &&
           (strcmp(count->name, group->name) != 0 || count->first_rank != group->members[0])) {
        count = count->next;
    }
    if (count == NULL) {
        count = calloc(1, sizeof(*count) + strlen(group->name) + 1);
        if (count == NULL) {
            return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
        }
        strcpy(count->name, group->name);
        count->first_rank = group->members[0];
        count->next = group->job->group_counts;
        group->job->group_counts = count;
    }
    snprintf(group->key, sizeof(group->key), "group.%" PRIu64 ".%.30s", ++count->n, group->name);
    return HSDP_OK;
}

static int32_t group_fill(const struct call *call, const hsdp_mesh *mesh,
                          const struct hsdp_group_spec *spec, hsdp_group *group)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    uint64_t n_ranks = 0;
    int32_t status = reference_mesh.members(mesh, spec->selector, group->job->launch.rank,
                                            group->members, MOST_RANKS, &n_ranks, &error);

    if (status != HSDP_OK) {
        snprintf(error.operation, sizeof(error.operation), "%s", call->name);
        return error_pass(call, &error);
    }
    group->n_ranks = (uint32_t)n_ranks;
    while (group->members[group->index] != group->job->launch.rank) {
        group->index++;
    }
    group->timeout_ms = spec->timeout_ms;
    group->name = strdup(spec->selector[0] != '\0' ? spec->selector : "self");
    if (group->name == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    return group_number(call, group);
}

static int32_t group_make(const struct call *call, hsdp_job *job, const hsdp_mesh *mesh,
                          const struct hsdp_group_spec *theirs, hsdp_group **ret_group)
{
    struct hsdp_group_spec spec;
    int32_t status = intake_take(call, &spec_intake, theirs, &spec);
    hsdp_group *group;

    if (status == HSDP_OK) {
        status = mesh_check(call, job, mesh);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(call, "spec.selector", spec.selector)) {
        return HSDP_ERR_INVALID;
    }
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    group->job = job;
    status = group_fill(call, mesh, &spec, group);
    if (status != HSDP_OK) {
        free(group->name);
        free(group);
        return status;
    }
    job_hold(job);
    pthread_mutex_lock(&job->mutex); /* diagnostics look at the list from any thread */
    group->next = job->groups;
    job->groups = group;
    pthread_mutex_unlock(&job->mutex);
    *ret_group = group;
    return HSDP_OK;
}

static int32_t table_create(hsdp_job *job, const hsdp_mesh *mesh,
                            const struct hsdp_group_spec *spec, hsdp_group **ret_group,
                            struct hsdp_error *reterr)
{
    const struct call call = {"group.create", reterr};
    int32_t status = job_enter(&call, job);

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "mesh", mesh) || !call_has(&call, "ret_group", ret_group)) {
        return job_leave(job, HSDP_ERR_INVALID);
    }
    return job_leave(job, group_make(&call, job, mesh, spec, ret_group));
}

/* ------------------------------------------------------------------------------------- connect */

/* What a rank says of one of its groups. */
struct said {
    const char *key;
    const uint32_t *members;
    size_t n_bytes; /* of them */
    uint64_t timeout_ms;
};

static void groups_write(const hsdp_job *job, struct packet *packet)
{
    for (const hsdp_group *g = job->groups; g != NULL; g = g->next) {
        packet_put_text(packet, g->key);
        packet_put_blob(packet, g->members, g->n_ranks * sizeof(uint32_t));
        packet_put_number(packet, g->timeout_ms);
    }
}

static bool said_next(struct packet *part, struct said *ret)
{
    if (part->at >= part->n_bytes) {
        return false;
    }
    ret->key = packet_get_text(part);
    ret->members = packet_get_blob(part, &ret->n_bytes);
    ret->timeout_ms = packet_get_number(part);
    return !part->is_bad;
}

/* Members have to have given a group one timeout. */
static int32_t said_compare(const struct call *call, hsdp_job *job, const struct said *said,
                            uint32_t rank, struct packet answer)
{
    for (uint32_t r = 0; r < rank; r++) {
        struct hsdp_error error = HSDP_ERROR_INIT;
        struct packet part = packet_get_part(&answer);
        struct said other;

        while (said_next(&part, &other)) {
            if (strcmp(said->key, other.key) != 0 || said->n_bytes != other.n_bytes ||
                memcmp(said->members, other.members, said->n_bytes) != 0 ||
                said->timeout_ms == other.timeout_ms) {
                continue;
            }
            error.status = HSDP_ERR_MISMATCH;
            snprintf(error.operation, sizeof(error.operation), "%s", call->name);
            snprintf(error.message, sizeof(error.message),
                     "%s: group \"%.60s\" has a timeout of %" PRIu64 " ms on rank %" PRIu32
                     ", %" PRIu64 " ms on rank %" PRIu32,
                     call->name, strrchr(said->key, '.') + 1, other.timeout_ms, r, said->timeout_ms,
                     rank);
            job_fail(job, &error);
            return error_pass(call, &error);
        }
    }
    return HSDP_OK;
}

static int32_t groups_compare(const struct call *call, hsdp_job *job, struct packet answer)
{
    struct packet rest = answer;
    int32_t status = HSDP_OK;

    for (uint32_t r = 0; r < job->launch.world_ranks && status == HSDP_OK; r++) {
        struct packet part = packet_get_part(&rest);
        struct said said;

        while (status == HSDP_OK && said_next(&part, &said)) {
            status = said_compare(call, job, &said, r, answer);
        }
    }
    return status;
}

static int32_t table_connect(hsdp_job *job, struct hsdp_error *reterr)
{
    const struct call call = {"group.connect", reterr};
    int32_t status = job_enter_connected(&call, job);
    struct packet payload = {0}, answer = {0};
    struct meeting_text text;
    struct request request;

    if (status != HSDP_OK) {
        return status;
    }
    groups_write(job, &payload);
    request_of_job(&call, job, &text, &request);
    request_carry(&request, &payload);
    status = job_meet(&call, job, &request, &answer);
    if (status == HSDP_OK) {
        status = groups_compare(&call, job, answer);
    }
    packet_free(&payload);
    packet_free(&answer);
    for (hsdp_group *g = job->groups; g != NULL && status == HSDP_OK; g = g->next) {
        g->is_connected = true;
    }
    return job_leave(job, status);
}

/* ----------------------------------------------------------------------------------- questions */

static int32_t table_info(const hsdp_group *group, struct hsdp_group_info *ret_info,
                          struct hsdp_error *reterr)
{
    const struct call call = {"group.info", reterr};
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    int32_t status;

    if (!call_has(&call, "group", group)) {
        return HSDP_ERR_INVALID;
    }
    status = job_enter_to_ask(&call, group->job);
    if (status != HSDP_OK) {
        return status;
    }
    status = intake_check(&call, &info_intake, ret_info);
    if (status != HSDP_OK) {
        return job_leave(group->job, status);
    }
    info.name = group->name;
    info.timeout_ms = group_timeout_ms(group);
    info.n_bytes_sent = group->n_bytes_sent;
    info.n_bytes_received = group->n_bytes_received;
    info.n_ranks = group->n_ranks;
    info.index = group->index;
    info.is_connected = group->is_connected && group->job->is_connected;
    intake_give(&info_intake, &info, ret_info);
    return job_leave(group->job, HSDP_OK);
}

static int32_t table_members(const hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks,
                             struct hsdp_error *reterr)
{
    const struct call call = {"group.members", reterr};
    int32_t status;

    if (!call_has(&call, "group", group) || !call_has(&call, "ret_ranks", ret_ranks)) {
        return HSDP_ERR_INVALID;
    }
    status = job_enter_to_ask(&call, group->job);
    if (status != HSDP_OK) {
        return status;
    }
    if (max_ranks < group->n_ranks) {
        status = error_raise(&call, HSDP_ERR_INVALID,
                             "group.members: there are %" PRIu32 " ranks, ret_ranks holds %" PRIu64,
                             group->n_ranks, max_ranks);
    }
    if (status == HSDP_OK) {
        memcpy(ret_ranks, group->members, group->n_ranks * sizeof(uint32_t));
    }
    return job_leave(group->job, status);
}

/* --------------------------------------------------------------------------------------- start */

static int32_t spec_read(const struct call *call, hsdp_group *group, const void *theirs,
                         struct coll **ret_coll, uint64_t *ret_timeout_ms)
{
    struct hsdp_coll_spec spec;
    struct coll *coll;
    int32_t status = intake_take(call, &coll_intake, theirs, &spec);

    if (status == HSDP_OK) {
        status = intake_reserved(call, &coll_intake, spec.reserved);
    }
    if (status != HSDP_OK) {
        return status;
    }
    coll = calloc(1, sizeof(*coll));
    if (coll == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    status = coll_read(call, group, &spec, coll);
    if (status != HSDP_OK) {
        free(coll);
        return status;
    }
    *ret_timeout_ms = spec.timeout_ms;
    *ret_coll = coll;
    return HSDP_OK;
}

/* Reads all of them before the first is started, so that an error leaves nothing under way. */
static int32_t specs_start(const struct call *call, hsdp_group *group, const char *specs,
                           uint64_t spec_bytes, uint64_t n_specs, uint64_t *ticket)
{
    struct coll **colls = calloc((size_t)n_specs, sizeof(*colls));
    uint64_t *timeouts = calloc((size_t)n_specs, sizeof(*timeouts));
    int32_t status = HSDP_OK;
    uint64_t n_read = 0, n_started = 0;

    if (colls == NULL || timeouts == NULL) {
        status = error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
        goto out;
    }
    for (; n_read < n_specs && status == HSDP_OK; n_read++) {
        size_t n_bytes;

        memcpy(&n_bytes, specs + n_read * spec_bytes, sizeof(n_bytes));
        if (n_bytes > spec_bytes) {
            status = error_raise(call, HSDP_ERR_VERSION,
                                 "%s: specs[%" PRIu64 "].struct_size is %zu; specs are %" PRIu64
                                 " bytes apart",
                                 call->name, n_read, n_bytes, spec_bytes);
            break;
        }
        status =
            spec_read(call, group, specs + n_read * spec_bytes, &colls[n_read], &timeouts[n_read]);
    }
    for (; n_started < n_specs && status == HSDP_OK; n_started++) {
        status = coll_start(call, colls[n_started], timeouts[n_started], ticket);
    }

out:
    for (uint64_t i = n_started; i < n_read; i++) {
        free(colls[i]);
    }
    free(colls);
    free(timeouts);
    return status;
}

static int32_t table_start(hsdp_group *group, const struct hsdp_coll_spec *specs,
                           uint64_t spec_bytes, uint64_t n_specs, void *stream,
                           uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    const struct call call = {"group.start", reterr};
    uint64_t ticket = 0;
    int32_t status;

    if (!call_has(&call, "group", group) || !call_has(&call, "specs", specs)) {
        return HSDP_ERR_INVALID;
    }
    status = job_enter(&call, group->job);
    if (status != HSDP_OK) {
        return status;
    }
    if (spec_bytes < coll_intake.first_bytes || spec_bytes > MOST_STRUCT_BYTES) {
        status = error_raise(&call, HSDP_ERR_VERSION,
                             "group.start: %" PRIu64 " bytes between specs; ABI 1.0 has %zu",
                             spec_bytes, coll_intake.first_bytes);
    } else if (n_specs < 1 || n_specs > MOST_COLLS || stream != NULL || spec_bytes % 8 != 0) {
        status = error_raise(&call, HSDP_ERR_INVALID,
                             "group.start: %" PRIu64 " collectives, %" PRIu64
                             " bytes apart, on stream %p; 1 to %u, a multiple of 8, and NULL are "
                             "allowed",
                             n_specs, spec_bytes, stream, MOST_COLLS);
    } else if (!group->job->is_connected || !group->is_connected) {
        status = error_raise(&call, HSDP_ERR_STATE,
                             "group.start: group \"%s\" is not connected; group.connect was "
                             "expected",
                             group->name);
    } else {
        status = specs_start(&call, group, (const char *)specs, spec_bytes, n_specs, &ticket);
    }
    job_progress(group->job);
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
    return job_leave(group->job, status);
}

static void table_destroy(hsdp_group *group)
{
    hsdp_group **at;

    if (group == NULL) {
        return;
    }
    pthread_mutex_lock(&group->job->mutex);
    at = &group->job->groups;
    while (*at != group) {
        at = &(*at)->next;
    }
    *at = group->next;
    pthread_mutex_unlock(&group->job->mutex);
    job_forget(group->job, group);
    colls_free(group);
    job_drop(group->job);
    free(group->name);
    free(group);
}

const struct hsdp_group_ops reference_group = {
    .struct_size = sizeof(struct hsdp_group_ops),
    .create = table_create,
    .connect = table_connect,
    .info = table_info,
    .members = table_members,
    .start = table_start,
    .destroy = table_destroy,
};
