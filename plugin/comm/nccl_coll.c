/* SPDX-License-Identifier: Apache-2.0 */
/* The host's collectives on devices: connecting groups, starting, giving back. */
#include "comm/nccl_coll.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* ----------------------------------------------------------------------------------- connect */

static struct hsdp_group *group_of(const struct hsdp_job *job, const struct communicator *c)
{
    struct hsdp_group *g = job->groups;

    while (g != NULL && (g->is_connected || g->members != c->members ||
                         g->name_hash != c->name_hash || g->instance != c->instance)) {
        g = g->next;
    }
    return g;
}

/* In the order of the list, which is the same on all ranks. Returns how many. */
static uint32_t wanted_fill(const struct hsdp_job *job, const struct communicator *first,
                            struct nccl_wanted *ret_wanted, struct hsdp_group **ret_groups)
{
    uint32_t n = 0;

    for (const struct communicator *c = first; c != NULL; c = c->next) {
        struct hsdp_group *group = group_of(job, c);

        if (group != NULL) {
            ret_wanted[n] = (struct nccl_wanted){
                .ranks = group->ranks, .n_ranks = group->n_ranks, .name = group->name};
            ret_groups[n++] = group;
        }
    }
    return n;
}

/* A communicator needs all its members: one that has not asked is told, before others wait. */
static int32_t members_check(const struct hsdp_job *job, const struct communicator *first,
                             struct hsdp_error *reterr)
{
    for (const struct communicator *c = first; c != NULL; c = c->next) {
        bool is_member = (c->members >> job->launch.rank & 1u) != 0;

        if (is_member && group_of(job, c) == NULL) {
            return error_set(reterr, HSDP_ERR_MISMATCH,
                             "group.connect: rank %" PRIu32 " has asked for a group of %" PRIu32
                             " ranks with rank %" PRIu32 ", which has not",
                             c->first_rank, c->n_ranks, job->launch.rank);
        }
    }
    return HSDP_OK;
}

int32_t nccl_coll_connect(struct hsdp_job *job, const struct communicator *first,
                          struct hsdp_error *reterr)
{
    struct nccl_wanted *wanted;
    struct nccl_group **found;
    struct hsdp_group **groups;
    uint32_t n = 0;
    int32_t status = members_check(job, first, reterr);

    for (const struct communicator *c = first; c != NULL; c = c->next) {
        n++;
    }
    wanted = calloc(n + 1, sizeof(*wanted));
    found = calloc(n + 1, sizeof(struct nccl_group *));
    groups = calloc(n + 1, sizeof(struct hsdp_group *));
    if (status == HSDP_OK && (wanted == NULL || found == NULL || groups == NULL)) {
        status = error_set(reterr, HSDP_ERR_NO_MEMORY, "group.connect: no memory");
    }
    status = exchange_agree(job, "group.connect", status, reterr);
    if (status == HSDP_OK) {
        n = wanted_fill(job, first, wanted, groups);
        status = nccl_groups_make(job, wanted, n, found, reterr);
    }
    for (uint32_t i = 0; status == HSDP_OK && i < n; i++) {
        groups[i]->nccl = found[i];
    }
    free(wanted);
    free(found);
    free(groups);
    return status;
}

/* ------------------------------------------------------------------------------------- starts */

static void coll_free(struct nccl_coll *coll)
{
    const bool is_child = *coll->group->job->alive == 0; /* which has no device */
    struct gpu *gpu = job_gpu(coll->group->job);

    nccl_task_fini(&coll->task);
    if (coll->begin != NULL && !is_child) {
        gpu_event_destroy(gpu, coll->begin);
    }
    if (!is_child) {
        gpu_free(gpu, &coll->scratch);
    }
    free(coll->ops);
    free(coll);
}

/* What the traffic of an operation was, by what was exchanged. */
static void op_count(struct hsdp_group *group, const struct op *op)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    uint64_t n_sent = 0;
    uint64_t n_received = 0;
    uint64_t others = group->n_ranks - 1;
    bool is_own = op->header.root == group->index;

    switch (op->header.kind) {
    case HSDP_COLL_ALL_REDUCE:
        n_sent = n_received = 2 * op->header.n_elems * others / group->n_ranks;
        break;
    case HSDP_COLL_ALL_GATHER:
        n_sent = op->header.n_elems * others;
        for (uint32_t i = 0; i < group->n_ranks; i++) {
            n_received += i == group->index ? 0 : op->header.recv_elems[i];
        }
        break;
    case HSDP_COLL_REDUCE_SCATTER:
        n_received = op->header.n_elems * others;
        for (uint32_t i = 0; i < group->n_ranks; i++) {
            n_sent += i == group->index ? 0 : op->header.send_elems[i];
        }
        break;
    case HSDP_COLL_ALL_TO_ALL:
        for (uint32_t i = 0; i < group->n_ranks; i++) {
            n_sent += i == group->index ? 0 : op->header.send_elems[i];
            n_received += i == group->index ? 0 : op->header.recv_elems[i];
        }
        break;
    case HSDP_COLL_BROADCAST:
        n_sent = is_own ? op->header.n_elems : 0;
        n_received = is_own ? 0 : op->header.n_elems;
        break;
    case HSDP_COLL_SEND:
        n_sent = is_own ? 0 : op->header.n_elems;
        break;
    case HSDP_COLL_RECV:
        n_received = is_own ? 0 : op->header.n_elems;
        break;
    default:
        break;
    }
    traffic_count(group, n_sent * elem_bytes, n_received * elem_bytes);
    if (group->n_operations != NULL) {
        atomic_fetch_add(group->n_operations, 1u);
    }
}

static int32_t coll_complete(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct nccl_coll *coll = (struct nccl_coll *)task;

    (void)reterr;
    for (uint32_t i = 0; i < coll->n_ops; i++) {
        op_count(coll->group, &coll->ops[i]);
    }
    coll->is_busy = false;
    return HSDP_OK;
}

static int32_t coll_create(struct hsdp_group *group, struct nccl_coll **ret,
                           struct hsdp_error *reterr)
{
    struct nccl_coll *coll = calloc(1, sizeof(*coll));
    struct gpu *gpu = job_gpu(group->job);
    int32_t status;

    if (coll == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "group \"%s\": no memory to start",
                         group->name);
    }
    coll->group = group;
    status = nccl_task_init(group->job, &coll->task, reterr);
    if (status == HSDP_OK) {
        status = gpu_event_create(gpu, &coll->begin, reterr);
    }
    if (status != HSDP_OK) {
        coll_free(coll);
        return status;
    }
    coll->task.run = nccl_coll_run;
    coll->task.complete = coll_complete;
    coll->task.stream = gpu->reduce_stream;
    coll->task.groups[0] = group->nccl;
    coll->task.n_groups = group->n_ranks > 1 ? 1 : 0;
    coll->next = group->colls;
    group->colls = coll;
    *ret = coll;
    return HSDP_OK;
}

/* One that is done, or a new one; with room for so many operations. */
static int32_t coll_take(struct hsdp_group *group, uint32_t n_ops, struct nccl_coll **ret,
                         struct hsdp_error *reterr)
{
    struct nccl_coll *coll = group->colls;
    int32_t status = HSDP_OK;
    struct op *ops;

    while (coll != NULL && coll->is_busy) {
        coll = coll->next;
    }
    if (coll == NULL) {
        status = coll_create(group, &coll, reterr);
    }
    if (status == HSDP_OK && coll->max_ops < n_ops) {
        ops = realloc(coll->ops, n_ops * sizeof(*ops));
        if (ops == NULL) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY,
                             "group \"%s\": no memory for %" PRIu32 " collectives", group->name,
                             n_ops);
        }
        coll->ops = ops;
        coll->max_ops = n_ops;
    }
    *ret = coll;
    return status;
}

static int32_t scratch_take(struct nccl_coll *coll, uint64_t n_bytes, struct hsdp_error *reterr)
{
    struct gpu *gpu = job_gpu(coll->group->job);

    if (coll->scratch.n_bytes >= n_bytes) {
        return HSDP_OK;
    }
    gpu_free(gpu, &coll->scratch);
    return gpu_alloc(gpu, n_bytes, HSDP_MEMORY_DEVICE, "the host's collectives", &coll->scratch,
                     reterr);
}

static bool is_own(const struct nccl_coll *coll, const struct op *op, bool is_send)
{
    return (is_send ? coll_is_send(op->header.kind) : coll_is_receive(op->header.kind)) &&
           op->header.root == coll->group->index;
}

/* What a rank sends itself nobody else can receive: both sides are in one call, and alike. */
static int32_t own_messages_check(const struct nccl_coll *coll, struct hsdp_error *reterr)
{
    uint32_t to = 0;
    bool is_matched = true;

    for (uint32_t from = 0; from < coll->n_ops && is_matched; from++) {
        const struct op *sent = &coll->ops[from];

        if (!is_own(coll, sent, true)) {
            continue;
        }
        while (to < coll->n_ops && !is_own(coll, &coll->ops[to], false)) {
            to++;
        }
        is_matched = to < coll->n_ops && coll->ops[to].header.n_elems == sent->header.n_elems &&
                     element_equals(coll->ops[to].header.element, sent->header.element);
        to++;
    }
    while (is_matched && to < coll->n_ops) {
        is_matched = !is_own(coll, &coll->ops[to++], false);
    }
    return is_matched
               ? HSDP_OK
               : error_set(
                     reterr, HSDP_ERR_UNSUPPORTED,
                     "group \"%s\": on a device a send to oneself has its receive, of the same "
                     "elements, in the same call",
                     coll->group->name);
}

static int32_t ops_init(struct nccl_coll *coll, const struct hsdp_coll_spec *specs,
                        uint32_t n_specs, struct hsdp_error *reterr)
{
    uint64_t scratch_bytes = 0;
    int32_t status = HSDP_OK;

    coll->n_ops = n_specs;
    for (uint32_t i = 0; i < n_specs && status == HSDP_OK; i++) {
        uint64_t n_bytes;

        status = op_init(&coll->ops[i], coll->group, &specs[i], reterr);
        if (status == HSDP_OK) {
            n_bytes = nccl_coll_scratch(&coll->ops[i], coll->group->n_ranks);
            scratch_bytes = n_bytes > scratch_bytes ? n_bytes : scratch_bytes;
        }
    }
    if (status == HSDP_OK) {
        status = own_messages_check(coll, reterr);
    }
    return status == HSDP_OK ? scratch_take(coll, scratch_bytes, reterr) : status;
}

/* The first operation speaks for all; the timeout is the shortest. */
static void label_set(struct nccl_coll *coll)
{
    struct hsdp_group *group = coll->group;
    struct wait *label = &coll->task.label;
    uint64_t timeout_ms = 0;

    memset(label, 0, sizeof(*label));
    label->operation = coll_name(coll->ops[0].header.kind);
    label->group = group->name;
    label->sequence = ++group->collectives.n_begun;
    for (uint32_t i = 0; i < coll->n_ops; i++) {
        const struct op *op = &coll->ops[i];
        uint64_t own_ms = op->timeout_ms != 0 ? op->timeout_ms : group->timeout_ms;

        timeout_ms = own_ms != 0 && (timeout_ms == 0 || own_ms < timeout_ms) ? own_ms : timeout_ms;
        label->n_bytes += op->header.n_elems * element_bytes(op->header.element);
    }
    label->deadline_ns = timeout_ms == 0 ? 0 : clock_deadline_ns(timeout_ms);
}

int32_t nccl_coll_start(struct hsdp_group *group, const struct hsdp_coll_spec *specs,
                        uint64_t n_specs, void *stream, uint64_t *ret_ticket,
                        struct hsdp_error *reterr)
{
    struct nccl_coll *coll = NULL;
    int32_t status = coll_take(group, (uint32_t)n_specs, &coll, reterr);

    if (status == HSDP_OK) {
        status = ops_init(coll, specs, (uint32_t)n_specs, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_event_record(job_gpu(group->job), coll->begin, stream, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    label_set(coll);
    coll->is_busy = true;
    return nccl_task_submit(&coll->task, ret_ticket, reterr);
}

void nccl_coll_free(struct hsdp_group *group)
{
    while (group->colls != NULL) {
        struct nccl_coll *coll = group->colls;

        group->colls = coll->next;
        coll_free(coll);
    }
}

bool nccl_coll_destroy(struct hsdp_group *group)
{
    struct nccl_coll **link = &group->colls;

    while (*link != NULL) {
        struct nccl_coll *coll = *link;

        nccl_task_abandon(&coll->task);
        if (nccl_task_is_held(&coll->task)) {
            link = &coll->next;
        } else {
            *link = coll->next;
            coll_free(coll);
        }
    }
    return group->colls == NULL;
}
