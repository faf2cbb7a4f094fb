/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: reductions that go on in stages without blocking. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/shm_store.h"

/* ---------------------------------------------------------------------------- conditions */

enum counter_kind {
    COUNTER_ARRIVED,
    COUNTER_CONSUMED,
    COUNTER_OUTER_ARRIVED,
    COUNTER_OUTER_CONSUMED,
};

static _Atomic uint64_t *counter_of(struct shm_counters *counters, enum counter_kind kind)
{
    switch (kind) {
    case COUNTER_ARRIVED:
        return &counters->arrived;
    case COUNTER_CONSUMED:
        return &counters->consumed;
    case COUNTER_OUTER_ARRIVED:
        return &counters->outer_arrived;
    default:
        return &counters->outer_consumed;
    }
}

/* Adds "every rank of `ranks` has raised its counter to target" to what a reduction waits for. */
static void condition_add(struct shm_reduction *reduction, const struct shm_ranks *ranks,
                          enum counter_kind kind, uint64_t target, enum probe_wait wait)
{
    struct store *store = reduction->store;

    if (ranks->n_ranks == 1) {
        return; /* nobody else reads or writes */
    }
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        struct wait_entry *entry = &reduction->entries[reduction->wait.n_entries++];
        struct shm_counters *counters = shm_counters(store, ranks->ranks[i], reduction->unit);

        entry->counter = counter_of(counters, kind);
        entry->target = target;
        entry->rank = ranks->ranks[i];
        entry->wait = wait;
    }
    probe_expect(store->probe, &reduction->entries[reduction->wait.n_entries - ranks->n_ranks],
                 ranks->n_ranks);
}

static void stage_begin(struct shm_reduction *reduction, enum shm_stage stage)
{
    reduction->stage = stage;
    reduction->wait.n_entries = 0;
    reduction->wait.entries = reduction->entries;
    reduction->wait.ticket = reduction->work.ticket;
}

static void counter_raise(struct shm_reduction *reduction, const struct shm_ranks *ranks,
                          enum counter_kind kind, uint64_t value)
{
    struct store *store = reduction->store;
    struct shm_counters *counters = store->units[reduction->unit].counters;

    if (ranks->n_ranks > 1) {
        job_signal(store->job, counter_of(counters, kind), value, ranks->ranks, ranks->n_ranks);
    }
}

/* ------------------------------------------------------------------------------- stages */

/*
 * Contributions take the way by an inner sum where both G and R\G span more than one rank; and
 * where G spans one, if an inner sum rests or will: what has rested is not rounded to the wire
 * again. All ranks of R choose alike, since they make the same passes.
 */
static bool is_staged(const struct shm_reduction *reduction)
{
    const struct shm_class *class = shm_class_of(reduction->store, reduction->unit);

    return class->outer.n_ranks > 1 &&
           (class->inner.n_ranks > 1 || reduction->scope != HSDP_SCOPE_FULL ||
            reduction->store->units[reduction->unit].has_inner);
}

/* Peers must be done with the last contribution. */
static void source_await(struct shm_reduction *reduction)
{
    struct store *store = reduction->store;
    struct shm_class *class = shm_class_of(store, reduction->unit);

    reduction->is_staged = is_staged(reduction);
    reduction->contributors = reduction->is_staged ? &class->inner : class->readers;
    stage_begin(reduction, SHM_SOURCE);
    reduction->wait.sequence = ++class->n_reductions;
    job_record_start(store->job, reduction->work.record, reduction->wait.sequence);
    condition_add(reduction, class->readers, COUNTER_CONSUMED,
                  store->units[reduction->unit].sequence, PROBE_WAIT_SOURCE);
}

static void inner_await(struct shm_reduction *reduction)
{
    struct store *store = reduction->store;
    struct shm_unit *u = &store->units[reduction->unit];

    probe_write(store->probe, PROBE_SOURCE, reduction->unit, &u->counters->source,
                sizeof(u->counters->source));
    u->counters->source = reduction->source;
    if (reduction->contributors->n_ranks > 1) { /* else no peer reads this one */
        u->sequence++;
        if (reduction->source == SHM_FROM_PLAN && u->sums.local_elems == 0) {
            u->slot_sequence = u->sequence;
        }
    }
    u->has_local = false;
    counter_raise(reduction, reduction->contributors, COUNTER_ARRIVED, u->sequence);
    stage_begin(reduction, SHM_INNER);
    condition_add(reduction, reduction->contributors, COUNTER_ARRIVED, u->sequence,
                  PROBE_WAIT_INNER);
}

static void resting_await(struct shm_reduction *reduction)
{
    struct store *store = reduction->store;
    struct shm_class *class = shm_class_of(store, reduction->unit);

    stage_begin(reduction, SHM_RESTING);
    condition_add(reduction, &class->outer, COUNTER_OUTER_CONSUMED,
                  store->units[reduction->unit].outer_sequence, PROBE_WAIT_RESTING);
}

static void outer_await(struct shm_reduction *reduction)
{
    struct store *store = reduction->store;
    struct shm_class *class = shm_class_of(store, reduction->unit);
    struct shm_unit *u = &store->units[reduction->unit];

    u->outer_sequence++;
    counter_raise(reduction, &class->outer, COUNTER_OUTER_ARRIVED, u->outer_sequence);
    stage_begin(reduction, SHM_OUTER);
    condition_add(reduction, &class->outer, COUNTER_OUTER_ARRIVED, u->outer_sequence,
                  PROBE_WAIT_OUTER);
}

/* Each replica sums up a part of the step shard for all of them, and says so when it has read what
 * it sums up. */
static void shared_await(struct shm_reduction *reduction)
{
    struct store *store = reduction->store;
    const struct shm_unit *u = &store->units[reduction->unit];
    const struct shm_ranks *replicas = &shm_class_of(store, reduction->unit)->replicas;

    stage_begin(reduction, SHM_SHARED);
    if (reduction->is_staged) {
        condition_add(reduction, replicas, COUNTER_OUTER_CONSUMED, u->outer_sequence,
                      PROBE_WAIT_SHARED);
    } else {
        condition_add(reduction, replicas, COUNTER_CONSUMED, u->sequence, PROBE_WAIT_SHARED);
    }
}

/* Acts once the conditions of a stage are met; true when the reduction is done. */
static bool stage_finish(struct shm_reduction *reduction)
{
    struct store *store = reduction->store;
    struct shm_class *class = shm_class_of(store, reduction->unit);
    struct shm_unit *u = &store->units[reduction->unit];

    switch (reduction->stage) {
    case SHM_SOURCE:
        shm_contribute(store, reduction->unit, reduction);
        if (reduction->scope == HSDP_SCOPE_NONE) {
            return true;
        }
        inner_await(reduction);
        return false;
    case SHM_INNER:
        if (reduction->is_staged) {
            resting_await(reduction);
            return false;
        }
        shm_sum_step(reduction);
        counter_raise(reduction, reduction->contributors, COUNTER_CONSUMED, u->sequence);
        shared_await(reduction);
        return false;
    case SHM_RESTING:
        shm_sum_inner(store, reduction->unit);
        counter_raise(reduction, reduction->contributors, COUNTER_CONSUMED, u->sequence);
        if (reduction->scope == HSDP_SCOPE_INNER) {
            return true;
        }
        outer_await(reduction);
        return false;
    case SHM_OUTER:
        shm_sum_step(reduction);
        counter_raise(reduction, &class->outer, COUNTER_OUTER_CONSUMED, u->outer_sequence);
        shared_await(reduction);
        return false;
    case SHM_SHARED:
        return true;
    default:
        assert(false); /* idle and queued reductions have no conditions to meet */
        return true;
    }
}

static int32_t stages_progress(struct shm_reduction *reduction)
{
    if (reduction->stage == SHM_QUEUED) {
        if (*reduction->turn < reduction->position) {
            return HSDP_PENDING;
        }
        source_await(reduction);
    }
    while (wait_is_met(&reduction->wait)) {
        probe_met(reduction->store->probe, &reduction->wait);
        if (stage_finish(reduction)) {
            return HSDP_OK;
        }
    }
    return HSDP_PENDING;
}

static int32_t reduction_progress(struct work *work, struct hsdp_error *reterr)
{
    struct shm_reduction *reduction = (struct shm_reduction *)work;
    struct probe *probe = reduction->store->probe;
    int32_t status;

    (void)reterr;
    probe_reduction(probe, reduction->unit, PROBE_ENTERED);
    status = stages_progress(reduction);
    probe_reduction(probe, reduction->unit, status == HSDP_OK ? PROBE_DONE : PROBE_LEFT);
    return status;
}

static const struct wait *reduction_blocker(struct work *work)
{
    struct shm_reduction *reduction = (struct shm_reduction *)work;

    return reduction->stage == SHM_QUEUED ? NULL : &reduction->wait;
}

const struct wait *shm_reduce_blocker(const struct store *store, uint32_t unit)
{
    const struct shm_reduction *reduction = &store->units[unit].reduction;

    return reduction->stage == SHM_IDLE ? NULL : &reduction->wait;
}

static void reduction_finish(struct work *work, int32_t status)
{
    struct shm_reduction *reduction = (struct shm_reduction *)work;

    (void)status;
    reduction->stage = SHM_IDLE;
    reduction->wait.n_entries = 0;
}

/* ------------------------------------------------------------------------------ the table */

static uint64_t contribution_bytes(const struct store *store, uint32_t unit)
{
    return store->plan->units[unit].buffers[0].n_elems *
           dtype_bytes(shm_plan_class(store, unit)->reduce_dtype);
}

int32_t shm_reduce(struct store *store, const struct store_gradient *gradient, uint64_t *ret_ticket,
                   struct hsdp_error *reterr)
{
    uint32_t unit = gradient->unit;
    struct shm_unit *u = &store->units[unit];
    struct shm_reduction *reduction = &u->reduction;
    int32_t status = HSDP_OK;

    if (!gradient->is_absent) {
        shm_slot_close(store, unit);
    }
    if (!plan_is_trainable(store->plan, unit)) { /* its gradients are of aliases, and taken up */
        *ret_ticket = 0;
        return HSDP_OK;
    }
    if (reduction->stage != SHM_IDLE) { /* the last microbatch's */
        status = job_ticket_wait(store->job, reduction->work.ticket, UINT64_MAX, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    probe_reduction(store->probe, unit, PROBE_AWAITED_LAST);
    shm_late_take(store, unit);
    reduction->work.progress = reduction_progress;
    reduction->work.blocker = reduction_blocker;
    reduction->work.finish = reduction_finish;
    reduction->wait.operation = "reduce";
    reduction->wait.group = shm_class_of(store, unit)->reduce_name;
    reduction->wait.unit = store->plan->units[unit].name;
    reduction->wait.deadline_ns = 0;
    reduction->wait.sequence = 0; /* known when its turn comes */
    reduction->wait.n_bytes = contribution_bytes(store, unit);
    reduction->work.label = &reduction->wait;
    reduction->work.is_queued = true;
    reduction->wait.check = shm_journals_check;
    reduction->wait.user = store;
    reduction->turn = gradient->turn;
    reduction->position = gradient->position;
    reduction->scope = gradient->scope;
    reduction->norm_p = gradient->norm_p;
    reduction->norm_divisor = gradient->norm_divisor;
    reduction->is_absent = gradient->is_absent;
    reduction->stage = SHM_QUEUED;
    probe_reduction(store->probe, unit, PROBE_HANDED_OVER);
    if (store->n_reductions != NULL) {
        atomic_fetch_add_explicit(store->n_reductions, 1, memory_order_relaxed);
    }
    return job_work_start(store->job, &reduction->work, ret_ticket, reterr);
}

int32_t shm_drain(struct store *store, struct hsdp_error *reterr)
{
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        struct shm_reduction *reduction = &store->units[unit].reduction;

        if (reduction->stage != SHM_IDLE) {
            int32_t status =
                job_ticket_wait(store->job, reduction->work.ticket, UINT64_MAX, reterr);

            if (status != HSDP_OK) {
                return status;
            }
        }
        probe_reduction(store->probe, unit, PROBE_AWAITED_STEP);
    }
    return HSDP_OK;
}
