/* SPDX-License-Identifier: Apache-2.0 */
/* What the watchdog sees: deaths, hosts that stand still, watchdogs that do, failures. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/process.h"
#include "comm/verdict.h"
#include "comm/watchdog_internal.h"
#include "comm/words.h"

/* How long a call goes first with what it can say better. */
#define GRACE_NS (100u * CLOCK_NS_PER_MS)
/* Likewise for the operations of other ranks that wait for a host that stands still. */
#define HEARTBEAT_GRACE_MS 500u
/* A beat that is so late makes others look whether the process is stopped. */
#define LATE_NS (4u * WATCHDOG_PERIOD_MS * CLOCK_NS_PER_MS)
/* Where only the process table tells who has ended, it is read every so many looks. */
#define LOOKS_PER_TABLE 5u

/* Completes *err and makes it the job's; the host is told with the next look. */
static void verdict_record(struct watchdog *dog, const char *operation, uint64_t missing,
                           uint64_t waited_ns, struct hsdp_error *err)
{
    error_where(err, operation, NULL, NULL);
    error_missing(dog->job, err, missing);
    err->waited_ms = waited_ns / CLOCK_NS_PER_MS;
    failure_record(dog->job, dog->job->launch.rank, err);
}

/* The ranks that have no more duties: they said farewell, or that they go. */
static uint64_t ranks_left(const struct hsdp_job *job)
{
    const struct control *control = atomic_load(&job->control);
    uint64_t left = 0;

    for (uint32_t rank = 0; rank < job_node_ranks(job); rank++) {
        const struct control_rank *other = &control->ranks[rank];
        bool has_left = atomic_load(&other->has_left) != 0 || atomic_load(&other->has_closed) != 0;

        left |= (uint64_t)has_left << rank;
    }
    return left;
}

/* ----------------------------------------------------------------------------------- deaths */

static void ends_take(struct watchdog *dog)
{
    struct hsdp_job *job = dog->job;
    struct control *control = atomic_load(&job->control);
    bool reads_table = ++dog->n_looks % LOOKS_PER_TABLE == 0;

    for (uint32_t rank = 0; rank < job_node_ranks(job); rank++) {
        const struct pollfd *polls = &dog->polls[2 + 2 * rank];
        bool has_ended = (polls[0].revents & POLLIN) != 0 || job->pidfds[rank] == PIDFD_GONE;

        if (rank == job->node_index || (dog->gone >> rank & 1u) != 0) {
            continue;
        }
        if (job->pidfds[rank] == PIDFD_NONE && reads_table) {
            has_ended = process_has_ended(control->ranks[rank].pid);
        }
        dog->gone |= (uint64_t)has_ended << rank;
        dog->cut |= (uint64_t)((polls[1].revents & (POLLHUP | POLLERR)) != 0) << rank;
    }
}

static void loss_record(struct watchdog *dog, uint64_t lost)
{
    struct hsdp_error err;
    char ranks[128];
    char place[160] = "";

    ranks_text(dog->job, lost, ranks, sizeof(ranks));
    if ((lost & (lost - 1)) == 0) {
        verdict_last(dog->job, (uint32_t)__builtin_ctzll(lost), place, sizeof(place));
    }
    if ((lost & dog->gone) != 0) {
        error_set(&err, HSDP_ERR_PEER_LOST, "peer lost: %s died%s", ranks, place);
    } else { /* a process that runs another program now, or whose host closes what it did not open
              */
        error_set(&err, HSDP_ERR_PEER_LOST,
                  "peer lost: %s closed the connection to rank %" PRIu32
                  " without close or destroy",
                  ranks, dog->job->launch.rank);
    }
    verdict_record(dog, "watchdog", lost, dog->now_ns - dog->lost_ns, &err);
}

/* Makes a call of this process that waits look at its peers, now or as soon as it waits. */
static void call_hurry(struct hsdp_job *job)
{
    atomic_store(&job->look_now, 1u);
    control_ring(atomic_load(&job->control), job->node_index);
}

static void losses_judge(struct watchdog *dog)
{
    uint64_t lost = (dog->gone | dog->cut) & ~ranks_left(dog->job);

    if (lost == 0) {
        return;
    }
    if (dog->lost_ns == 0) {
        dog->lost_ns = dog->now_ns;
        call_hurry(dog->job);
    } else if (dog->now_ns - dog->lost_ns >= GRACE_NS) {
        loss_record(dog, (lost & dog->gone) != 0 ? lost & dog->gone : lost);
    }
}

/* -------------------------------------------------------------------------------- heartbeats */

static void heartbeat_record(struct watchdog *dog, uint64_t idle_ns)
{
    struct hsdp_job *job = dog->job;
    struct hsdp_error err;
    char call[POSITION_CALL_WORDS * 8];
    char phase[96] = "outside of any phase";

    job_lock(job);
    if (job->n_phases > 0) {
        snprintf(phase, sizeof(phase), "in phase \"%s\"", job->phases[job->n_phases - 1].name);
    }
    job_unlock(job);
    words_read(job->position->call, POSITION_CALL_WORDS, call);
    error_set(&err, HSDP_ERR_TIMEOUT,
              "heartbeat: rank %" PRIu32 " has made no call for %.1f s, %s; the last one was %s",
              job->launch.rank, (double)idle_ns / 1e9, phase, call[0] == '\0' ? "connect" : call);
    verdict_record(dog, "heartbeat", UINT64_C(1) << job->node_index, idle_ns, &err);
}

/* The host: a call that is inside has deadlines of its own. */
static void host_judge(struct watchdog *dog)
{
    struct hsdp_job *job = dog->job;
    bool is_inside = atomic_load(&job->is_inside) != 0;
    uint64_t n_moves = word_load(&job->position->n_moves);
    uint64_t idle_ns = dog->awake_ns - dog->moved_ns;

    if (is_inside || n_moves != dog->n_moves) {
        dog->n_moves = n_moves;
        dog->moved_ns = dog->awake_ns;
    } else if (idle_ns / CLOCK_NS_PER_MS > HEARTBEAT_GRACE_MS &&
               idle_ns / CLOCK_NS_PER_MS - HEARTBEAT_GRACE_MS >= atomic_load(&job->idle_limit_ms)) {
        heartbeat_record(dog, idle_ns);
    }
}

static void stuck_set(struct hsdp_error *err, uint32_t rank, uint64_t stuck_ns)
{
    error_set(err, HSDP_ERR_TIMEOUT,
              "heartbeat: the watchdog of rank %" PRIu32 " has been stuck for %.1f s", rank,
              (double)stuck_ns / 1e9);
}

/* The other watchdogs. A rank that is stopped ends with whoever waits for it, at his deadline. */
static void beats_judge(struct watchdog *dog)
{
    struct hsdp_job *job = dog->job;
    struct control *control = atomic_load(&job->control);
    uint64_t skipped = ranks_left(job) | dog->gone | dog->cut | UINT64_C(1) << job->node_index;

    for (uint32_t rank = 0; rank < job_node_ranks(job); rank++) {
        uint64_t beat = atomic_load(&control->ranks[rank].beat);
        uint64_t stuck_ns = dog->awake_ns - dog->beat_ns[rank];
        struct hsdp_error err;

        if ((skipped >> rank & 1u) != 0) {
            continue;
        }
        if (beat != dog->beats[rank]) {
            dog->beats[rank] = beat;
            dog->beat_ns[rank] = dog->awake_ns;
        } else if (stuck_ns >= LATE_NS && process_is_stopped(control->ranks[rank].pid)) {
            dog->beat_ns[rank] = dog->awake_ns; /* and it has as long again when it goes on */
        } else if (stuck_ns / CLOCK_NS_PER_MS >= atomic_load(&job->heartbeat_ms)) {
            stuck_set(&err, rank, stuck_ns);
            verdict_record(dog, "heartbeat", UINT64_C(1) << rank, stuck_ns, &err);
            return;
        }
    }
}

int32_t watchdog_check(struct hsdp_job *job, uint64_t now_ns, struct hsdp_error *reterr)
{
    const uint64_t max_gap_ns = 2u * WATCHDOG_PERIOD_MS * CLOCK_NS_PER_MS;
    struct control *control = atomic_load(&job->control);
    uint64_t gap_ns = now_ns - job->beat_look_ns;
    struct hsdp_error err;
    uint64_t beat;

    if (atomic_load(&job->watchdog) == NULL || !job_is_connected(job)) {
        return HSDP_OK;
    }
    beat = atomic_load(&control->ranks[job->node_index].beat);
    job->beat_look_ns = now_ns;
    job->beatless_ns += gap_ns < max_gap_ns ? gap_ns : max_gap_ns;
    if (beat != job->beat) {
        job->beat = beat;
        job->beatless_ns = 0;
    }
    if (job->beatless_ns / CLOCK_NS_PER_MS < atomic_load(&job->heartbeat_ms)) {
        return HSDP_OK;
    }
    stuck_set(&err, job->launch.rank, job->beatless_ns);
    error_where(&err, "heartbeat", NULL, NULL);
    error_missing(job, &err, UINT64_C(1) << job->node_index);
    err.waited_ms = job->beatless_ns / CLOCK_NS_PER_MS;
    failure_raise(job, &err);
    return failure_tell(job, reterr);
}

/* ---------------------------------------------------------------------------------- looking */

/* The host is told by the call that is inside, if that comes to it soon. */
static void failure_see(struct watchdog *dog)
{
    struct hsdp_job *job = dog->job;

    if (atomic_load(&job->is_noticed) != 0 || failure_first(job) == NULL) {
        return;
    }
    if (dog->failure_ns == 0) {
        dog->failure_ns = dog->now_ns;
    }
    if (atomic_load(&job->is_inside) == 0 || dog->now_ns - dog->failure_ns >= GRACE_NS) {
        failure_alert(job);
    }
}

/* Nobody has a duty yet. */
static void clocks_reset(struct watchdog *dog)
{
    dog->moved_ns = dog->awake_ns;
    for (uint32_t rank = 0; rank < job_node_ranks(dog->job); rank++) {
        dog->beat_ns[rank] = dog->awake_ns;
    }
}

void watchdog_look(struct watchdog *dog)
{
    struct hsdp_job *job = dog->job;

    ends_take(dog);
    if (!job_is_connected(job)) {
        clocks_reset(dog);
        return;
    }
    if (failure_first(job) == NULL) {
        losses_judge(dog);
    }
    if (failure_first(job) == NULL) {
        host_judge(dog);
    }
    if (failure_first(job) == NULL) {
        beats_judge(dog);
    }
    failure_see(dog);
}
