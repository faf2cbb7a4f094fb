/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: reductions are submitted in the order of their pass. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>

#include "base/error.h"
#include "comm/nccl_store.h"

static bool task_is_open(const struct nccl_task *task)
{
    uint64_t state = atomic_load(&task->state);

    return state == NCCL_TASK_QUEUED || state == NCCL_TASK_ISSUED;
}

/* ------------------------------------------------------------------------------------ submitting
 */

/*
 * Contributions take the way by an inner sum where both G and R\G span more than one rank; and
 * where G spans one, if an inner sum rests or will: what has rested is not rounded to the wire
 * again. All ranks of R choose alike, since they make the same passes.
 */
static bool is_staged(const struct nccl_reduction *reduction)
{
    const struct nccl_class *class = nccl_class_of(reduction->store, reduction->unit);

    return class->outer.n_ranks > 1 &&
           (class->inner.n_ranks > 1 || reduction->scope != HSDP_SCOPE_FULL ||
            reduction->has_inner);
}

/* What a reduction leaves behind; what it finds it has taken with it. */
static void marks_set(struct nccl_unit *u, const struct nccl_reduction *reduction)
{
    if (reduction->scope == HSDP_SCOPE_NONE) {
        u->has_local = u->has_local || !reduction->is_absent || reduction->taken != NULL;
        return;
    }
    u->has_local = false;
    u->has_inner = reduction->is_staged && reduction->scope == HSDP_SCOPE_INNER;
    u->has_step = u->has_step || !u->has_inner;
}

/* As much as over shared memory: docs/numbers.md, and the plan's report of traffic. */
static void reduction_count(struct store *store, const struct nccl_reduction *reduction)
{
    const struct nccl_class *class = nccl_class_of(store, reduction->unit);
    const uint64_t *shards = store->plan->units[reduction->unit].buffers[0].shard_elems;
    uint64_t wire_bytes = dtype_bytes(nccl_plan_class(store, reduction->unit)->reduce_dtype);
    struct plan_part part = plan_step_part(store->plan, reduction->unit);
    bool is_outer = reduction->is_staged || class->inner.n_ranks == 1;
    const struct nccl_ranks *last = is_outer ? &class->outer : &class->inner;

    if (reduction->is_staged) {
        nccl_count(&class->inner, shards[HSDP_SHARD_GRAD] * wire_bytes);
        wire_bytes = sizeof(float);
    }
    if (reduction->scope == HSDP_SCOPE_FULL || !reduction->is_staged) {
        nccl_count(last, part.n_elems * wire_bytes);
        nccl_count_bytes(last, (shards[HSDP_SHARD_STEP] - part.n_elems) * sizeof(float));
    }
}

static void groups_set(struct nccl_reduction *reduction)
{
    const struct nccl_class *class = nccl_class_of(reduction->store, reduction->unit);
    const struct nccl_ranks *ranks[] = {&class->inner, &class->later, &class->replicas};
    struct nccl_task *task = &reduction->task;

    task->n_groups = 0;
    for (int i = 0; i < 3 && reduction->scope != HSDP_SCOPE_NONE; i++) {
        if (ranks[i]->n_ranks > 1) {
            task->groups[task->n_groups++] = ranks[i]->group;
        }
    }
}

static int32_t reduction_submit(struct nccl_reduction *reduction, uint64_t *ret_ticket,
                                struct hsdp_error *reterr)
{
    struct store *store = reduction->store;
    struct nccl_unit *u = &store->units[reduction->unit];
    struct nccl_late *late = &u->late[1 - u->next_late];

    reduction->has_local = u->has_local;
    reduction->has_inner = u->has_inner;
    reduction->has_step = u->has_step;
    reduction->taken = late->has ? late : NULL;
    reduction->is_staged = is_staged(reduction);
    late->has = false;
    marks_set(u, reduction);
    if (reduction->scope != HSDP_SCOPE_NONE) {
        reduction_count(store, reduction);
    }
    groups_set(reduction);
    reduction->task.label.sequence = ++nccl_class_of(store, reduction->unit)->n_reductions;
    reduction->state = NCCL_REDUCTION_SUBMITTED;
    return nccl_task_submit(&reduction->task, ret_ticket, reterr);
}

/* -------------------------------------------------------------------------------------- the queue
 */

static void queue_remove(struct store *store, struct nccl_reduction *reduction)
{
    struct nccl_reduction **place = &store->queue;

    while (*place != reduction) {
        place = &(*place)->next;
    }
    *place = reduction->next;
}

/* The first in the order of its pass of those up to a position whose turn has come; NULL = none. */
static struct nccl_reduction *queue_due(const struct store *store, uint64_t pass, uint64_t limit)
{
    struct nccl_reduction *first = NULL;

    for (struct nccl_reduction *r = store->queue; r != NULL; r = r->next) {
        if (r->pass == pass && r->position <= limit && r->position <= *r->turn &&
            (first == NULL || r->position < first->position)) {
            first = r;
        }
    }
    return first;
}

static int32_t queue_submit(struct store *store, uint64_t pass, uint64_t limit,
                            struct hsdp_error *reterr)
{
    struct nccl_reduction *reduction = queue_due(store, pass, limit);
    int32_t status = HSDP_OK;

    while (reduction != NULL && status == HSDP_OK) {
        queue_remove(store, reduction);
        status = reduction_submit(reduction, NULL, reterr);
        reduction = queue_due(store, pass, limit);
    }
    return status;
}

static struct nccl_reduction *waiting_reduction(struct work *work)
{
    return (struct nccl_reduction *)((char *)work - offsetof(struct nccl_reduction, waiting));
}

static int32_t waiting_progress(struct work *work, struct hsdp_error *reterr)
{
    const struct nccl_reduction *reduction = waiting_reduction(work);

    (void)reterr;
    return reduction->state == NCCL_REDUCTION_QUEUED || task_is_open(&reduction->task)
               ? HSDP_PENDING
               : HSDP_OK;
}

static const struct wait *waiting_blocker(struct work *work)
{
    struct nccl_reduction *reduction = waiting_reduction(work);

    return reduction->state == NCCL_REDUCTION_QUEUED ? NULL : &reduction->task.label;
}

/* Whoever waits for a reduction gets it now, as on all ranks where the host waits. */
static void waiting_hurry(struct work *work)
{
    struct nccl_reduction *reduction = waiting_reduction(work);
    struct hsdp_error err;

    if (queue_submit(reduction->store, reduction->pass, reduction->position, &err) != HSDP_OK) {
        job_fail(reduction->store->job, &err);
    }
}

static int32_t waiting_order(struct work *work, void *stream, struct hsdp_error *reterr)
{
    struct nccl_reduction *reduction = waiting_reduction(work);

    waiting_hurry(work);
    if (reduction->state == NCCL_REDUCTION_QUEUED) { /* nothing is on its way */
        return job_ticket_wait(reduction->store->job, work->ticket, UINT64_MAX, reterr);
    }
    return nccl_task_order(&reduction->task, (cu_stream)stream, reterr);
}

static void waiting_finish(struct work *work, int32_t status)
{
    (void)status;
    waiting_reduction(work)->is_waiting = false;
}

static int32_t reduction_enqueue(struct store *store, struct nccl_reduction *reduction,
                                 uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    reduction->state = NCCL_REDUCTION_QUEUED;
    reduction->next = store->queue;
    store->queue = reduction;
    reduction->is_waiting = true;
    reduction->waiting.progress = waiting_progress;
    reduction->waiting.blocker = waiting_blocker;
    reduction->waiting.order = waiting_order;
    reduction->waiting.hurry = waiting_hurry;
    reduction->waiting.finish = waiting_finish;
    return job_work_start(store->job, &reduction->waiting, ret_ticket, reterr);
}

/* ------------------------------------------------------------------------------------- the table
 */

/* What was in the slot is whole once the host's stream has come to this. */
static int32_t slot_hand_over(struct store *store, const struct store_gradient *gradient,
                              struct hsdp_error *reterr)
{
    struct nccl_unit *u = &store->units[gradient->unit];
    cu_event event = plan_is_trainable(store->plan, gradient->unit) ? u->handed : u->consumed;

    if (gradient->is_absent) {
        return HSDP_OK;
    }
    return gpu_event_record(store->gpu, event, (cu_stream)gradient->stream, reterr);
}

static void reduction_init(struct store *store, const struct store_gradient *gradient)
{
    uint32_t unit = gradient->unit;
    struct nccl_reduction *reduction = &store->units[unit].reduction;
    uint64_t wire_bytes = dtype_bytes(nccl_plan_class(store, unit)->reduce_dtype);

    reduction->turn = gradient->turn;
    reduction->position = gradient->position;
    reduction->pass = store->units[unit].pass;
    reduction->scope = gradient->scope;
    reduction->is_absent = gradient->is_absent;
    reduction->task.stream = store->gpu->reduce_stream;
    reduction->task.run = nccl_reduction_run;
    reduction->task.label.operation = "reduce";
    reduction->task.label.group = nccl_class_of(store, unit)->reduce_name;
    reduction->task.label.unit = store->plan->units[unit].name;
    reduction->task.label.n_bytes = store->plan->units[unit].buffers[0].n_elems * wire_bytes;
}

int32_t nccl_reduce(struct store *store, const struct store_gradient *gradient,
                    uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct nccl_unit *u = &store->units[gradient->unit];
    struct nccl_reduction *reduction = &u->reduction;
    int32_t status = HSDP_OK;

    assert(reduction->state != NCCL_REDUCTION_QUEUED); /* its pass has ended */
    if (reduction->is_waiting) {
        status = job_ticket_wait(store->job, reduction->waiting.ticket, UINT64_MAX, reterr);
    }
    if (status == HSDP_OK) { /* the last microbatch's */
        status = nccl_task_await(&reduction->task, reterr);
    }
    if (status == HSDP_OK) {
        status = slot_hand_over(store, gradient, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    *ret_ticket = 0;
    if (plan_is_trainable(store->plan, gradient->unit)) { /* else they are of aliases, taken up */
        if (store->n_reductions != NULL) {
            atomic_fetch_add_explicit(store->n_reductions, 1, memory_order_relaxed);
        }
        u->next_late = 1 - u->next_late; /* what comes from now on joins the next reduction */
        reduction_init(store, gradient);
        status = reduction_enqueue(store, reduction, ret_ticket, reterr);
    }
    /* A turn is raised just before a unit is handed over: here is what has waited for that. */
    return status == HSDP_OK && !store->has_gathers
               ? queue_submit(store, store->units[gradient->unit].pass, UINT64_MAX, reterr)
               : status;
}

const struct wait *nccl_reduce_blocker(const struct store *store, uint32_t unit)
{
    const struct nccl_reduction *reduction = &store->units[unit].reduction;

    return reduction->state == NCCL_REDUCTION_QUEUED || task_is_open(&reduction->task)
               ? &reduction->task.label
               : NULL;
}

int32_t nccl_drain(struct store *store, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint32_t unit = 0; unit < store->plan->n_units && status == HSDP_OK; unit++) {
        status = queue_submit(store, store->units[unit].reduction.pass, UINT64_MAX, reterr);
    }
    for (uint32_t unit = 0; unit < store->plan->n_units && status == HSDP_OK; unit++) {
        status = nccl_task_await_issue(&store->units[unit].reduction.task, reterr);
    }
    return status;
}

/* ----------------------------------------------------------------------- among the gathers */

/*
 * All ranks unshard the same units in the same order, and reduce the same in the same order; but
 * when a rank hands a unit over, between which unshards, is its own affair: one has gradients,
 * another skips. Collectives are in one order. So a reduction has its place at the last moment
 * that all ranks have in common: before the unshard of the first unit behind it that needs its slot
 * or is `slots` units behind, and at the end of the pass.
 */
int32_t nccl_pass_begin(struct store *store, const uint32_t *units, uint64_t n_units, int32_t scope,
                        struct hsdp_error *reterr)
{
    (void)scope; /* what ranks declare is compared collective by collective: each names its unit */
    (void)reterr;
    store->n_passes++;
    for (uint64_t i = 0; i < n_units; i++) {
        store->units[units[i]].pass = store->n_passes;
        store->units[units[i]].position = i + 1;
    }
    return HSDP_OK;
}

/* Whether the reduction of a unit goes before the unshard of another one of its pass. */
static bool goes_before(const struct store *store, uint32_t unit, uint32_t next)
{
    const struct nccl_unit *u = &store->units[unit];
    const struct nccl_unit *n = &store->units[next];

    return u->pass == n->pass && u->position < n->position &&
           plan_is_trainable(store->plan, unit) &&
           (n->position - u->position >= store->plan->n_slots ||
            plan_grads_overlap(store->plan, unit, next));
}

/* Up to which position of its pass reductions go before a unit's unshard. */
static uint64_t place_limit(const struct store *store, uint32_t next)
{
    uint64_t limit = 0;

    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        if (goes_before(store, unit, next) && store->units[unit].position > limit) {
            limit = store->units[unit].position;
        }
    }
    return limit;
}

static int32_t ahead_refuse(const struct store *store, uint32_t unit, uint32_t next,
                            struct hsdp_error *reterr)
{
    const struct plan_unit *units = store->plan->units;

    error_set(reterr, HSDP_ERR_STATE,
              "unit.unshard: unit \"%s\" is %" PRIu64
              " units ahead of \"%s\", which was not handed over; its reduce or skip was expected "
              "first (the plan has slots=%" PRIu32 ")",
              units[next].name, store->units[next].position - store->units[unit].position,
              units[unit].name, store->plan->n_slots);
    error_where(reterr, "unit.unshard", NULL, units[next].name);
    return HSDP_ERR_STATE;
}

/* All up to a position of the pass have been handed over here, or this rank is out of order. */
static int32_t handed_check(const struct store *store, uint32_t next, uint64_t limit,
                            struct hsdp_error *reterr)
{
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        const struct nccl_unit *u = &store->units[unit];

        if (u->pass == store->units[next].pass && u->position <= limit &&
            plan_is_trainable(store->plan, unit) && u->reduction.pass != u->pass) {
            return ahead_refuse(store, unit, next, reterr);
        }
    }
    return HSDP_OK;
}

/* Of other passes, which have other units: those whose slot it needs. */
static int32_t others_submit(struct store *store, uint32_t next, struct hsdp_error *reterr)
{
    struct nccl_reduction *reduction = store->queue;
    int32_t status = HSDP_OK;

    while (reduction != NULL && status == HSDP_OK) {
        struct nccl_reduction *following = reduction->next;

        if (reduction->pass != store->units[next].pass &&
            plan_grads_overlap(store->plan, reduction->unit, next)) {
            status = queue_submit(store, reduction->pass, reduction->position, reterr);
            following = store->queue; /* others may have gone with it */
        }
        reduction = following == reduction ? reduction->next : following;
    }
    return status;
}

int32_t nccl_pass_reach(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    uint64_t limit = place_limit(store, unit);
    int32_t status;

    if (!store->has_gathers) {
        return HSDP_OK;
    }
    status = handed_check(store, unit, limit, reterr);
    if (status == HSDP_OK) {
        status = queue_submit(store, store->units[unit].pass, limit, reterr);
    }
    return status == HSDP_OK ? others_submit(store, unit, reterr) : status;
}

int32_t nccl_pass_end(struct store *store, const uint32_t *units, uint64_t n_units,
                      struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    if (n_units > 0) {
        status = queue_submit(store, store->units[units[0]].pass, UINT64_MAX, reterr);
    }
    for (uint64_t i = 0; i < n_units; i++) {
        store->units[units[i]].pass = 0;
    }
    return status;
}
