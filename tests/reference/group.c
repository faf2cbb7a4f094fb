/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: the functions of the table. */
#include "group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intake.h"
#include "reference.h"

#define MOST_COLLS        65536u
#define MOST_STRIDE_BYTES 65536u

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
    if (group->n_ranks == 1) {
        strcpy(group->key, "self"); /* it meets nobody */
    }
    return HSDP_OK;
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

/* Which of the groups with these members it is, of those that this call connects. */
static uint32_t group_instance(const hsdp_group *group)
{
    uint32_t n = 0;

    for (const hsdp_group *g = group->next; g != NULL; g = g->next) {
        n += g->key[0] == '\0' && g->n_ranks == group->n_ranks &&
             memcmp(g->members, group->members, g->n_ranks * sizeof(uint32_t)) == 0;
    }
    return n;
}

/* Members have to have given it one timeout. */
static int32_t group_compare(const struct call *call, hsdp_group *group, uint64_t *ticket)
{
    struct request request = {.key = group->key,
                              .operation = call->name,
                              .group = group->name,
                              .unit = "",
                              .sentence = "",
                              .payload = ""};
    char alike[160];

    snprintf(alike, sizeof(alike), "group \"%.80s\" with a timeout of %" PRIu64 " ms", group->name,
             group->timeout_ms);
    request.members = group->members;
    request.n_members = group->n_ranks;
    request.alike = alike;
    request.timeout_ms = group_timeout_ms(group);
    return job_request(call, group->job, &request, (struct follow_up){NULL, NULL, group}, ticket);
}

static int32_t table_connect(hsdp_job *job, struct hsdp_error *reterr)
{
    const struct call call = {"group.connect", reterr};
    int32_t status = job_enter_connected(&call, job);
    struct packet answer = {0};
    struct meeting_text text;
    struct request request;
    uint64_t ticket = 0;

    if (status != HSDP_OK) {
        return status;
    }
    request_of_job(&call, job, &text, &request);
    status = job_meet(&call, job, &request, &answer);
    packet_free(&answer);
    for (hsdp_group *g = job->groups; g != NULL && status == HSDP_OK; g = g->next) {
        if (g->key[0] == '\0') {
            snprintf(g->key, sizeof(g->key), "group.%" PRIu64 ".%" PRIu32, request.sequence,
                     group_instance(g));
            status = group_compare(&call, g, &ticket);
        }
    }
    if (status == HSDP_OK) {
        status = job_wait(&call, job, ticket, UINT64_MAX);
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
    info.is_connected = group->key[0] != '\0' && group->job->is_connected;
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
    if (spec_bytes < coll_intake.first_bytes || spec_bytes > MOST_STRIDE_BYTES) {
        status = error_raise(&call, HSDP_ERR_VERSION,
                             "group.start: %" PRIu64 " bytes between specs; ABI 1.0 has %zu",
                             spec_bytes, coll_intake.first_bytes);
    } else if (n_specs < 1 || n_specs > MOST_COLLS || stream != NULL || spec_bytes % 8 != 0) {
        status = error_raise(&call, HSDP_ERR_INVALID,
                             "group.start: %" PRIu64 " collectives, %" PRIu64
                             " bytes apart, on stream %p; 1 to %u, a multiple of 8, and NULL are "
                             "allowed",
                             n_specs, spec_bytes, stream, MOST_COLLS);
    } else if (!group->job->is_connected || group->key[0] == '\0') {
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
