/* SPDX-License-Identifier: Apache-2.0 */
/* Watching: what ends a wait badly, and the sentences about it. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/nccl_engine.h"
#include "comm/nodes.h"
#include "comm/process.h"
#include "comm/verdict.h"
#include "comm/watchdog.h"

/* How often peers and deadlines are looked at: a death is known to all soon after this. */
#define LOOK_MS 50

#define ANSWER_MS UINT64_C(800) /* so long the root may take to say who is missing */

/* What was seen at one moment, and when to look again. */
struct look {
    uint64_t now_ns;
    uint64_t gone; /* ranks whose process has ended, or that have destroyed their job */
    uint64_t wake_ns;
};

uint64_t missing_ranks(const struct wait *wait)
{
    uint64_t missing = 0;

    for (uint32_t i = 0; i < wait->n_entries; i++) {
        if (wait->entries[i].rank < LAUNCH_MAX_RANKS &&
            atomic_load(wait->entries[i].counter) < wait->entries[i].target) {
            missing |= UINT64_C(1) << wait->entries[i].rank;
        }
    }
    return missing;
}

/* -------------------------------------------------------------------------------- verdicts */

/* Completes *err with where it happened, and makes it the job's. */
static int32_t verdict_raise(struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                             struct hsdp_error *err, struct hsdp_error *reterr)
{
    error_where(err, wait->operation, wait->group, wait->unit);
    err->sequence = wait->sequence;
    err->ticket = wait->ticket;
    err->waited_ms = waited_ns / CLOCK_NS_PER_MS;
    failure_raise(job, err);
    return failure_tell(job, reterr);
}

/*
 * All of this node have come: the root finds out who of the others has not, and fails the job with
 * that. It has a moment for it. HSDP_PENDING: there is no answer.
 */
static int32_t others_ask(struct hsdp_job *job, uint64_t waited_ns)
{
    struct control_rank *own = &atomic_load(&job->control)->ranks[job->node_index];
    uint64_t now_ns = clock_now_ns();

    if (atomic_load(&own->expired_exchange) != job->n_exchanges) {
        job->asked_ns = now_ns;
        atomic_store(&own->expired_after_ns, waited_ns);
        atomic_store(&own->expired_exchange, job->n_exchanges);
        nodes_kick(job);
    }
    return now_ns < job->asked_ns + ANSWER_MS * CLOCK_NS_PER_MS ? HSDP_OK : HSDP_PENDING;
}

/* Who is no rank: WAIT_OTHER_NODES or WAIT_DEVICE. */
static bool misses(const struct wait *wait, uint32_t who)
{
    bool is_missing = false;

    for (uint32_t i = 0; i < wait->n_entries; i++) {
        is_missing |= wait->entries[i].rank == who &&
                      atomic_load(wait->entries[i].counter) < wait->entries[i].target;
    }
    return is_missing;
}

/* The ranks of this node without which a wait does not end: other nodes are heard through the
 * leader, which may have come itself. */
static uint64_t needed_ranks(const struct wait *wait)
{
    return missing_ranks(wait) | wait->peers | (uint64_t)misses(wait, WAIT_OTHER_NODES);
}

/* Nobody has answered. What this node can see itself is whether its leader could have asked. */
static int32_t root_blame(struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                          struct hsdp_error *reterr)
{
    const struct control_rank *leader = &atomic_load(&job->control)->ranks[0];
    struct hsdp_error err;

    if (job->node_index != 0 && process_is_stopped(leader->pid)) {
        error_set(&err, HSDP_ERR_TIMEOUT,
                  "%s: timeout after %.1f s on rank %" PRIu32 ": no sign of rank %" PRIu32
                  ", which leads this node and is stopped",
                  wait->operation, (double)waited_ns / 1e9, job->launch.rank, leader->rank);
        error_missing_one(&err, leader->rank);
        return verdict_raise(job, wait, waited_ns, &err, reterr);
    }
    error_set(&err, HSDP_ERR_TIMEOUT,
              "%s: timeout after %.1f s on rank %" PRIu32
              ": no sign of ranks of other nodes, nor of rank 0, which knows who they are",
              wait->operation, (double)waited_ns / 1e9, job->launch.rank);
    error_missing_one(&err, 0);
    return verdict_raise(job, wait, waited_ns, &err, reterr);
}

/* Those of this node that do not go on: peers of peers may wait for them. */
static uint64_t ranks_stopped(const struct hsdp_job *job)
{
    uint64_t stopped = 0;

    for (uint32_t rank = 0; rank < job_node_ranks(job); rank++) {
        if (rank != job->node_index && verdict_state(job, rank) != NULL) {
            stopped |= UINT64_C(1) << rank;
        }
    }
    return stopped;
}

/* Nobody is missing: it is this rank's own device, or what feeds it; or a rank that
 * has come does not go on. */
static void device_blame(const struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                         struct hsdp_error *ret_err)
{
    uint64_t stopped = ranks_stopped(job);
    char name[256];
    char where[256];
    size_t n_bytes;

    verdict_operation(wait, name, sizeof(name));
    nccl_engine_where(job, where, sizeof(where));
    n_bytes = strlen(where);
    if (stopped != 0) {
        n_bytes += (size_t)snprintf(where + n_bytes, sizeof(where) - n_bytes, "; ");
        verdict_missing(job, stopped, where + n_bytes, sizeof(where) - n_bytes);
    }
    error_set(ret_err, HSDP_ERR_TIMEOUT, "%s: timeout after %.1f s on rank %" PRIu32 ": %s%s", name,
              (double)waited_ns / 1e9, job->launch.rank,
              wait->n_entries > 1 ? "all ranks have come; " : "", where);
    error_missing(job, ret_err, stopped);
}

void watch_blame(const struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                 struct hsdp_error *ret_err)
{
    char text[sizeof(ret_err->message)];
    size_t n_bytes;
    uint64_t missing;

    if (misses(wait, WAIT_DEVICE) && missing_ranks(wait) == 0) {
        device_blame(job, wait, waited_ns, ret_err);
        return;
    }
    verdict_operation(wait, text, sizeof(text));
    n_bytes = strlen(text);
    snprintf(text + n_bytes, sizeof(text) - n_bytes,
             ": timeout after %.1f s on rank %" PRIu32 ": no sign of ", (double)waited_ns / 1e9,
             job->launch.rank);
    n_bytes = strlen(text);
    missing = verdict_missing(job, missing_ranks(wait), text + n_bytes, sizeof(text) - n_bytes);
    error_set(ret_err, HSDP_ERR_TIMEOUT, "%s", text);
    error_missing(job, ret_err, missing);
}

static int32_t timeout_raise(struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                             struct hsdp_error *reterr)
{
    struct hsdp_error err;

    if (misses(wait, WAIT_OTHER_NODES) && missing_ranks(wait) == 0) {
        return others_ask(job, waited_ns) == HSDP_OK ? HSDP_OK
                                                     : root_blame(job, wait, waited_ns, reterr);
    }
    watch_blame(job, wait, waited_ns, &err);
    return verdict_raise(job, wait, waited_ns, &err, reterr);
}

static int32_t loss_raise(struct hsdp_job *job, const struct wait *wait, uint64_t lost,
                          uint64_t waited_ns, struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct hsdp_error err;
    char name[256];
    char ranks[128];
    char place[160] = "";
    uint64_t left = 0;

    for (uint32_t i = 0; i < control->n_ranks; i++) {
        left |= (uint64_t)(atomic_load(&control->ranks[i].has_left) != 0) << i;
    }
    if ((lost & 1u) != 0 && atomic_load(&control->ranks[0].n_exchanges) == 0) {
        lost = 1; /* it died while it let ranks in: those whom it had not reached gave up */
    }
    verdict_operation(wait, name, sizeof(name));
    ranks_text(job, lost, ranks, sizeof(ranks));
    if ((lost & (lost - 1)) == 0) {
        verdict_last(job, (uint32_t)__builtin_ctzll(lost), place, sizeof(place));
    }
    error_set(&err, HSDP_ERR_PEER_LOST, "%s: peer lost: %s %s%s", name, ranks,
              (lost & ~left) != 0 ? "died" : "left the job", place);
    error_missing(job, &err, lost);
    return verdict_raise(job, wait, waited_ns, &err, reterr);
}

/* --------------------------------------------------------------------------------- looking */

/* True for a rank that has destroyed its job, or that is known to have died without a look. */
static bool rank_is_gone(const struct hsdp_job *job, uint32_t rank)
{
    const struct control_rank *other = &atomic_load(&job->control)->ranks[rank];

    return atomic_load(&other->has_left) != 0 || job->pidfds[rank] == PIDFD_GONE ||
           (job->pidfds[rank] == PIDFD_NONE && process_has_ended(other->pid));
}

static uint64_t ranks_gone(const struct hsdp_job *job, uint64_t mask)
{
    struct pollfd polls[LAUNCH_MAX_RANKS];
    uint32_t ranks[LAUNCH_MAX_RANKS];
    uint32_t n = 0;
    uint64_t gone = 0;

    for (uint32_t rank = 0; rank < job_node_ranks(job); rank++) {
        if ((mask >> rank & 1u) == 0 || rank == job->node_index) {
            continue;
        }
        gone |= (uint64_t)rank_is_gone(job, rank) << rank;
        polls[n] = (struct pollfd){.fd = job->pidfds[rank], .events = POLLIN};
        ranks[n++] = rank;
    }
    if (n > 0 && poll(polls, n, 0) > 0) {
        for (uint32_t i = 0; i < n; i++) {
            gone |= (uint64_t)(polls[i].revents != 0) << ranks[i];
        }
    }
    return gone;
}

static uint64_t deadline_add(uint64_t start_ns, uint64_t span_ns)
{
    return span_ns > UINT64_MAX - start_ns ? UINT64_MAX : start_ns + span_ns;
}

static uint64_t timeout_ns(const struct hsdp_job *job)
{
    uint64_t ms = job_timeout_ms(job);

    return ms > UINT64_MAX / CLOCK_NS_PER_MS ? UINT64_MAX : ms * CLOCK_NS_PER_MS;
}

/* One wait that began at start_ns; its deadline is put off by the time that the host was away. */
static int32_t wait_judge(struct hsdp_job *job, const struct wait *wait, uint64_t start_ns,
                          uint64_t away_ns, struct look *look, struct hsdp_error *reterr)
{
    /* Read after the ranks were found gone: what they had raised before counts. */
    uint64_t lost = needed_ranks(wait) & look->gone;
    uint64_t waited_ns = look->now_ns > start_ns ? look->now_ns - start_ns : 0;
    uint64_t deadline_ns = wait->deadline_ns;
    struct hsdp_error err;

    if (wait->n_entries > 0 && wait_is_met(wait)) {
        return HSDP_OK;
    }
    if (lost != 0) {
        return loss_raise(job, wait, lost, waited_ns, reterr);
    }
    if (wait->check != NULL && wait->check(wait->user, &err) != HSDP_OK) {
        err.waited_ms = waited_ns / CLOCK_NS_PER_MS;
        failure_raise(job, &err);
        return failure_tell(job, reterr);
    }
    if (deadline_ns == 0) {
        deadline_ns = deadline_add(start_ns, timeout_ns(job));
    }
    deadline_ns = deadline_add(deadline_ns, away_ns);
    if (look->now_ns >= deadline_ns) {
        return timeout_raise(job, wait, waited_ns, reterr);
    }
    look->wake_ns = deadline_ns < look->wake_ns ? deadline_ns : look->wake_ns;
    return HSDP_OK;
}

/* Whether other open work has a clock: what it waits for can be named. */
static bool queue_has_clock(const struct hsdp_job *job)
{
    for (struct work *work = job->first_work; work != NULL; work = work->next) {
        if (work->clock_ns != 0 && work->blocker(work) != NULL) {
            return true;
        }
    }
    return false;
}

/* What a call waits for by itself: its own conditions, or a ticket whose turn has not come, and
 * that for nothing else which is under way. */
static int32_t call_judge(struct hsdp_job *job, const struct waiting *waiting, struct look *look,
                          struct hsdp_error *reterr)
{
    struct wait turn = {.operation = "ticket.wait", .ticket = waiting->ticket};
    struct work *work = waiting->ticket == 0 ? NULL : work_find(job, waiting->ticket);
    uint64_t away_ns = job->away_ns - waiting->away_ns;

    if (waiting->wait != NULL) {
        return wait_judge(job, waiting->wait, waiting->start_ns, away_ns, look, reterr);
    }
    if (work != NULL && work->blocker(work) == NULL && !queue_has_clock(job)) {
        return wait_judge(job, &turn, waiting->start_ns, away_ns, look, reterr);
    }
    return HSDP_OK;
}

static int32_t queue_judge(struct hsdp_job *job, struct look *look, struct hsdp_error *reterr)
{
    struct work *work = job->first_work;
    int32_t status = HSDP_OK;

    while (work != NULL && status == HSDP_OK) {
        struct work *next = work->next; /* a failure frees all of them */
        const struct wait *wait = work->blocker(work);

        if (wait != NULL && work->clock_ns != 0) {
            status =
                wait_judge(job, wait, work->clock_ns, job->away_ns - work->away_ns, look, reterr);
        }
        work = next;
    }
    return status;
}

/* Who waits for the device may wait for peers that have not come to some collective there. */
static const struct wait *device_wait(struct hsdp_job *job, const struct wait *wait)
{
    for (struct work *work = job->first_work; work != NULL; work = work->next) {
        const struct wait *other = work->blocker(work);

        if (other != NULL && misses(other, WAIT_DEVICE) && missing_ranks(other) != 0) {
            return other;
        }
    }
    return wait;
}

void watch_tell(struct hsdp_job *job, const struct waiting *waiting, uint64_t asked_ns)
{
    const struct wait turn = {.operation = "ticket.wait"};
    struct work *work = waiting->ticket == 0 ? NULL : work_find(job, waiting->ticket);
    const struct wait *wait = waiting->wait;
    uint64_t since_ns = waiting->start_ns;
    uint64_t missing;

    if (wait == NULL && work != NULL) {
        wait = work->blocker(work);
        since_ns = asked_ns != 0 && work->clock_ns != 0 ? work->clock_ns : since_ns;
    }
    for (work = job->first_work; wait == NULL && work != NULL; work = work->next) {
        wait = work->blocker(work); /* what goes before it */
    }
    wait = wait == NULL ? &turn : wait;
    wait = misses(wait, WAIT_DEVICE) && missing_ranks(wait) == 0 ? device_wait(job, wait) : wait;
    missing = missing_ranks(wait);
    if (missing == 0 && misses(wait, WAIT_DEVICE)) {
        missing = UINT64_C(1) << job->node_index;
    }
    position_wait(job->position, wait, missing, since_ns, asked_ns);
}

/*
 * A wait looks every few milliseconds. Where it did not, this process was stopped, maybe with all
 * others (Ctrl-Z, a machine that was frozen): in that time nobody could come. Those who were not
 * stopped keep the deadline.
 */
static void stops_count(struct hsdp_job *job, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - job->look_ns;

    job->away_ns += gap_ns >= AWAY_MIN_NS ? gap_ns : 0;
    job->look_ns = now_ns;
}

int32_t watch_look(struct hsdp_job *job, const struct waiting *waiting, struct hsdp_error *reterr)
{
    struct look look = {.now_ns = clock_now_ns()};
    uint64_t needed = waiting->wait == NULL ? 0 : needed_ranks(waiting->wait);
    int32_t status;

    stops_count(job, look.now_ns);
    if (atomic_exchange(&job->look_now, 0u) == 0 && look.now_ns < job->next_look_ns) {
        return HSDP_OK;
    }
    if (waiting->give_up_ns == 0) {
        watch_tell(job, waiting, look.now_ns);
    }
    look.wake_ns = look.now_ns + LOOK_MS * CLOCK_NS_PER_MS;
    for (struct work *work = job->first_work; work != NULL; work = work->next) {
        const struct wait *wait = work->blocker(work);

        needed |= wait == NULL ? 0 : needed_ranks(wait);
    }
    look.gone = ranks_gone(job, needed);
    status = call_judge(job, waiting, &look, reterr);
    if (status == HSDP_OK) {
        status = queue_judge(job, &look, reterr);
    }
    if (status == HSDP_OK) {
        status = watchdog_check(job, look.now_ns, reterr);
    }
    if (status == HSDP_OK) {
        status = standstill_look(job, waiting, reterr);
    }
    job->next_look_ns = look.wake_ns;
    return status;
}
