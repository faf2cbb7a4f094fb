/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: making them, starting work on them, giving them back. */
#include "comm/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/group_internal.h"
#include "comm/nccl_coll.h"
#include "plan/selector.h"

/* --------------------------------------------------------------------------------- create */

static int32_t members_fill(struct hsdp_group *group, const struct hsdp_mesh *mesh,
                            const char *text, struct hsdp_error *reterr)
{
    struct selector selector;
    int64_t index;
    int32_t status = selector_parse(mesh, "group: selector", text, &selector, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    index = selector_index(mesh, &selector, mesh->rank);
    if (index < 0) {
        return error_set(reterr, HSDP_ERR_NOT_MEMBER,
                         "group: rank %" PRIu32 " is outside of \"%.64s\"", mesh->rank, text);
    }
    group->index = (uint32_t)index;
    group->n_ranks = selector_n_ranks(mesh, &selector);
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        group->ranks[i] = selector_rank(mesh, &selector, mesh->rank, i);
        group->members |= UINT64_C(1) << group->ranks[i];
    }
    return HSDP_OK;
}

static int32_t mesh_check(const struct hsdp_job *job, const struct hsdp_mesh *mesh,
                          struct hsdp_error *reterr)
{
    if (mesh->world_ranks != job->launch.world_ranks || mesh->rank != job->launch.rank) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "group: the mesh is seen from rank %" PRIu32 " of %" PRIu32
                         ", the job is rank %" PRIu32 " of %" PRIu32,
                         mesh->rank, mesh->world_ranks, job->launch.rank, job->launch.world_ranks);
    }
    return HSDP_OK;
}

static bool is_instance(const struct hsdp_job *job, const struct hsdp_group *group, uint32_t n)
{
    for (const struct communicator *c = job->communicators; c != NULL; c = c->next) {
        if (c->members == group->members && c->name_hash == group->name_hash && c->instance == n &&
            c->is_taken) {
            return true;
        }
    }
    for (const struct hsdp_group *g = job->groups; g != NULL; g = g->next) {
        if (g->members == group->members && g->name_hash == group->name_hash && g->instance == n &&
            !g->is_connected) {
            return true;
        }
    }
    return false;
}

/* The first that this rank has not used: ranks that ask in the same order get the same numbers. */
static uint32_t instance_next(const struct hsdp_job *job, const struct hsdp_group *group)
{
    uint32_t n = 0;

    while (is_instance(job, group, n)) {
        n++;
    }
    return n;
}

static void counters_register(struct hsdp_group *group)
{
    char name[96];

    snprintf(name, sizeof(name), "traffic.%.80s", group->name);
    group->traffic = job_counter_register(group->job, name);
    snprintf(name, sizeof(name), "operations.%.80s", group->name);
    group->n_operations = job_counter_register(group->job, name);
}

void group_free(struct hsdp_group *group)
{
    free(group->name);
    free(group);
}

int32_t group_create(struct hsdp_job *job, const struct hsdp_mesh *mesh,
                     const struct hsdp_group_spec *spec, struct hsdp_group **ret_group,
                     struct hsdp_error *reterr)
{
    struct hsdp_group *group;
    int32_t status = mesh_check(job, mesh, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (spec->selector == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "group: the selector is NULL");
    }
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "group: cannot allocate %zu bytes",
                         sizeof(*group));
    }
    group->job = job;
    group->timeout_ms = spec->timeout_ms;
    status = members_fill(group, mesh, spec->selector, reterr);
    if (status == HSDP_OK) {
        group->name = strdup(spec->selector[0] == '\0' ? "self" : spec->selector);
        status = group->name != NULL
                     ? HSDP_OK
                     : error_set(reterr, HSDP_ERR_NO_MEMORY, "group: no memory for its name");
    }
    if (status != HSDP_OK) {
        group_free(group);
        return status;
    }
    group->name_hash = text_hash(TEXT_HASH_BASIS, group->name);
    group->instance = instance_next(job, group);
    counters_register(group);
    job_ref(job);
    job_lock(job);
    group->next = job->groups;
    job->groups = group;
    job_unlock(job);
    *ret_group = group;
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------------ ask */

static uint64_t timeout_now(const struct hsdp_group *group)
{
    return group->timeout_ms != 0 ? group->timeout_ms : job_timeout_ms(group->job);
}

int32_t group_info(const struct hsdp_group *group, struct hsdp_group_info *ret_info,
                   struct hsdp_error *reterr)
{
    (void)reterr;
    memset(ret_info, 0, sizeof(*ret_info));
    ret_info->struct_size = sizeof(*ret_info);
    ret_info->name = group->name;
    ret_info->timeout_ms = timeout_now(group);
    ret_info->n_bytes_sent = group->n_bytes_sent;
    ret_info->n_bytes_received = group->n_bytes_received;
    ret_info->n_ranks = group->n_ranks;
    ret_info->index = group->index;
    ret_info->is_connected = group->is_connected && job_is_connected(group->job);
    return HSDP_OK;
}

int32_t group_members(const struct hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks,
                      struct hsdp_error *reterr)
{
    if (max_ranks < group->n_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "group \"%s\": %" PRIu32 " members, room for %" PRIu64, group->name,
                         group->n_ranks, max_ranks);
    }
    memcpy(ret_ranks, group->ranks, group->n_ranks * sizeof(*ret_ranks));
    return HSDP_OK;
}

struct hsdp_job *group_job(const struct hsdp_group *group)
{
    return group->job;
}

void group_write_ledger(const struct hsdp_group *group, struct text *text)
{
    char source[96] = "group";

    if (group->timeout_ms == 0) {
        job_timeout_source(group->job, source, sizeof(source));
    }
    json_open(text, NULL, '{');
    json_string(text, "name", group->name);
    json_uint(text, "timeout_ms", timeout_now(group));
    json_string(text, "source", source);
    json_open(text, "ranks", '[');
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        json_uint(text, NULL, group->ranks[i]);
    }
    json_close(text, ']');
    json_close(text, '}');
}

/* ---------------------------------------------------------------------------------- start */

static struct op_queue *op_queue_of(struct hsdp_group *group, const struct op *op)
{
    if (coll_is_send(op->header.kind)) {
        return &group->sends[op->header.root];
    }
    if (coll_is_receive(op->header.kind)) {
        return &group->receives[op->header.root];
    }
    return &group->collectives;
}

static void op_append(struct hsdp_group *group, struct op *op)
{
    struct op_queue *queue = op_queue_of(group, op);

    if (queue->last == NULL) {
        queue->first = op;
    } else {
        queue->last->next = op;
    }
    queue->last = op;
}

static void op_remove(struct hsdp_group *group, struct op *op)
{
    struct op_queue *queue = op_queue_of(group, op);
    struct op *previous = NULL;
    struct op *found = queue->first;

    while (found != NULL && found != op) {
        previous = found;
        found = found->next;
    }
    if (found == NULL) {
        return; /* done */
    }
    if (previous == NULL) {
        queue->first = op->next;
    } else {
        previous->next = op->next;
    }
    if (queue->last == op) {
        queue->last = previous;
    }
}

static void start_free(struct coll_start *start)
{
    struct hsdp_group *group = start->group;
    struct coll_start **link = &group->starts;

    for (uint32_t i = 0; i < start->n_ops; i++) {
        job_record_end(group->job, start->ops[i].record, HSDP_ERR_ABORTED); /* 0 = done */
        op_remove(group, &start->ops[i]);
    }
    while (*link != NULL && *link != start) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = start->next;
    }
    free(start);
}

static int32_t start_progress(struct work *work, struct hsdp_error *reterr)
{
    struct coll_start *start = (struct coll_start *)work;
    int32_t status = collectives_progress(start->group, reterr);

    if (status == HSDP_OK) {
        status = lanes_progress(start->group, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    return start->n_left == 0 ? HSDP_OK : HSDP_PENDING;
}

/* Of its operations that wait for others, the one that expires first; NULL when all are queued
 * behind earlier ones. What is done speaks for the record only. */
static const struct wait *start_blocker(struct work *work)
{
    struct coll_start *start = (struct coll_start *)work;
    const struct wait *blocker = NULL;

    if (start->n_left == 0) {
        return &start->ops[start->n_ops - 1].wait;
    }
    for (uint32_t i = 0; i < start->n_ops; i++) {
        const struct op *op = &start->ops[i];

        if ((op->phase != OP_POST && op->phase != OP_READ) || op->wait.n_entries == 0) {
            continue;
        }
        /* 0, the job's own timeout, becomes the largest here */
        if (blocker == NULL || op->wait.deadline_ns - 1 < blocker->deadline_ns - 1) {
            blocker = &op->wait;
        }
    }
    return blocker;
}

static void start_finish(struct work *work, int32_t status)
{
    (void)status;
    start_free((struct coll_start *)work);
}

static int32_t start_make(struct hsdp_group *group, const struct hsdp_coll_spec *specs,
                          uint64_t n_specs, struct coll_start **ret, struct hsdp_error *reterr)
{
    struct coll_start *start;
    int32_t status = HSDP_OK;

    start = calloc(1, sizeof(*start) + n_specs * sizeof(start->ops[0]));
    if (start == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "group \"%s\": no memory for %" PRIu64 " collectives", group->name,
                         n_specs);
    }
    for (uint64_t i = 0; i < n_specs && status == HSDP_OK; i++) {
        status = op_init(&start->ops[i], group, &specs[i], reterr);
        start->ops[i].start = start;
    }
    if (status != HSDP_OK) {
        free(start);
        return status;
    }
    start->group = group;
    start->n_ops = (uint32_t)n_specs;
    start->n_left = (uint32_t)n_specs;
    start->work.progress = start_progress;
    start->work.blocker = start_blocker;
    start->work.has_more_blockers = true;
    start->work.finish = start_finish;
    *ret = start;
    return HSDP_OK;
}

/* Of the ticket that job_work_start is about to hand out. */
static void op_record(struct hsdp_group *group, struct op *op)
{
    struct wait what = {.operation = coll_name(op->header.kind), .group = group->name};

    what.n_bytes = op->header.n_elems * element_bytes(op->header.element);
    op->record = job_record_issue(group->job, &what, group->job->last_ticket + 1);
}

int32_t group_start(struct hsdp_group *group, const struct hsdp_coll_spec *specs, uint64_t n_specs,
                    void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct coll_start *start = NULL;
    uint64_t ticket = 0;
    int32_t status;

    if (stream != NULL && !group->job->has_device) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "group \"%s\": stream %p; the only stream of a CPU is NULL", group->name,
                         stream);
    }
    if (!job_is_connected(group->job) || !group->is_connected) {
        return error_set(reterr, HSDP_ERR_STATE, "group \"%s\": %s", group->name,
                         job_is_connected(group->job) ? "group connect has not made it yet"
                                                      : "the job is not connected");
    }
    if (n_specs == 0 || n_specs > UINT32_MAX / 2) {
        return error_set(reterr, HSDP_ERR_INVALID, "group \"%s\": %" PRIu64 " collectives to start",
                         group->name, n_specs);
    }
    if (group->job->has_device) {
        return nccl_coll_start(group, specs, n_specs, stream, ret_ticket, reterr);
    }
    status = start_make(group, specs, n_specs, &start, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    start->next = group->starts;
    group->starts = start;
    for (uint32_t i = 0; i < start->n_ops; i++) {
        op_append(group, &start->ops[i]);
        op_record(group, &start->ops[i]);
    }
    status = job_work_start(group->job, &start->work, &ticket, reterr); /* may free it */
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
    return status;
}

/* ------------------------------------------------------------------------------ giving back */

void group_destroy(struct hsdp_group *group)
{
    struct hsdp_job *job = group == NULL ? NULL : group->job;
    struct hsdp_group **link;
    bool is_kept;

    if (group == NULL) {
        return;
    }
    while (group->starts != NULL) {
        job_work_cancel(group->job, &group->starts->work);
        start_free(group->starts);
    }
    is_kept = !nccl_coll_destroy(group);
    link = &group->job->groups;
    job_lock(group->job);
    while (*link != group) {
        link = &(*link)->next;
    }
    *link = group->next;
    if (is_kept) {
        group->next = job->gone_groups;
        job->gone_groups = group;
    }
    job_unlock(job);
    if (group->communicator != NULL) {
        communicator_unmap(group->communicator);
        if (group->n_ranks == 1) {
            free(group->communicator);
        }
    }
    if (!is_kept) {
        group_free(group);
    }
    job_unref(job);
}
