/* SPDX-License-Identifier: Apache-2.0 */
/* Watching: what ends a wait badly, and the sentences about it. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/process.h"
#include "comm/watchdog.h"

#define NS_PER_MS UINT64_C(1000000)

/* How often peers and deadlines are looked at: a death is known to all soon after this. */
#define LOOK_MS 50

/* What was seen at one moment, and when to look again. */
struct look {
    uint64_t now_ns;
    uint64_t gone; /* ranks whose process has ended, or that have destroyed their job */
    uint64_t wake_ns;
};

static uint64_t missing_ranks(const struct wait *wait)
{
    uint64_t missing = 0;

    for (uint32_t i = 0; i < wait->n_entries; i++) {
        if (wait->entries[i].rank != WAIT_OTHER_NODES &&
            atomic_load(wait->entries[i].counter) < wait->entries[i].target) {
            missing |= UINT64_C(1) << wait->entries[i].rank;
        }
    }
    return missing;
}

/* -------------------------------------------------------------------------------- verdicts */

static void text_append(char *text, size_t max_bytes, const char *before, const char *value,
                        const char *after)
{
    size_t n_bytes = strlen(text);

    if (value != NULL && n_bytes < max_bytes) {
        snprintf(text + n_bytes, max_bytes - n_bytes, "%s%s%s", before, value, after);
    }
}

/* reduce of group "dp", unit "block.0", sequence 3 */
static void wait_name(const struct wait *wait, char *ret_text, size_t max_bytes)
{
    char sequence[24];

    snprintf(sequence, sizeof(sequence), "%" PRIu64, wait->sequence);
    ret_text[0] = '\0';
    text_append(ret_text, max_bytes, "", wait->operation == NULL ? "wait" : wait->operation, "");
    text_append(ret_text, max_bytes, " of group \"", wait->group, "\"");
    text_append(ret_text, max_bytes, ", unit \"", wait->unit, "\"");
    text_append(ret_text, max_bytes, ", sequence ", wait->sequence == 0 ? NULL : sequence, "");
}

/* Completes *err with where it happened, and makes it the job's. */
static int32_t verdict_raise(struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                             struct hsdp_error *err, struct hsdp_error *reterr)
{
    error_where(err, wait->operation, wait->group, wait->unit);
    err->sequence = wait->sequence;
    err->ticket = wait->ticket;
    err->waited_ms = waited_ns / NS_PER_MS;
    failure_raise(job, err);
    return failure_tell(job, reterr);
}

/* Those among the ranks of a mask whose process is stopped: alive, but not going on. */
static uint64_t ranks_stopped(const struct hsdp_job *job, uint64_t mask)
{
    struct control *control = atomic_load(&job->control);
    uint64_t stopped = 0;

    for (uint32_t rank = 0; rank < job->launch.world_ranks; rank++) {
        if ((mask >> rank & 1u) != 0 && rank != job->launch.rank) {
            stopped |= (uint64_t)process_is_stopped(control->ranks[rank].pid) << rank;
        }
    }
    return stopped;
}

/* rank 1; ranks 1, 2 (stopped); ranks 1, 2 (stopped: rank 2) */
static void missing_name(const struct hsdp_job *job, uint64_t missing, char *ret_text,
                         size_t max_bytes)
{
    uint64_t stopped = ranks_stopped(job, missing);
    char ranks[128];

    if (missing == 0) {
        snprintf(ret_text, max_bytes, "earlier work of this rank");
        return;
    }
    ranks_text(missing, ret_text, max_bytes);
    ranks_text(stopped, ranks, sizeof(ranks));
    if (stopped == missing) {
        text_append(ret_text, max_bytes, " (", "stopped", ")");
    } else if (stopped != 0) {
        text_append(ret_text, max_bytes, " (stopped: ", ranks, ")");
    }
}

static int32_t timeout_raise(struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                             struct hsdp_error *reterr)
{
    uint64_t missing = missing_ranks(wait);
    struct hsdp_error err;
    char name[256];
    char ranks[256];

    wait_name(wait, name, sizeof(name));
    missing_name(job, missing, ranks, sizeof(ranks));
    error_set(&err, HSDP_ERR_TIMEOUT, "%s: timeout after %.1f s on rank %" PRIu32 ": no sign of %s",
              name, (double)waited_ns / 1e9, job->launch.rank, ranks);
    error_missing(&err, missing);
    return verdict_raise(job, wait, waited_ns, &err, reterr);
}

static int32_t loss_raise(struct hsdp_job *job, const struct wait *wait, uint64_t lost,
                          uint64_t waited_ns, struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct hsdp_error err;
    char name[256];
    char ranks[128];
    uint64_t left = 0;

    for (uint32_t rank = 0; rank < job->launch.world_ranks; rank++) {
        left |= (uint64_t)(atomic_load(&control->ranks[rank].has_left) != 0) << rank;
    }
    wait_name(wait, name, sizeof(name));
    ranks_text(lost, ranks, sizeof(ranks));
    error_set(&err, HSDP_ERR_PEER_LOST, "%s: peer lost: %s %s", name, ranks,
              (lost & ~left) != 0 ? "died" : "left the job");
    error_missing(&err, lost);
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

    for (uint32_t rank = 0; rank < job->launch.world_ranks; rank++) {
        if ((mask >> rank & 1u) == 0 || rank == job->launch.rank) {
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

    return ms > UINT64_MAX / NS_PER_MS ? UINT64_MAX : ms * NS_PER_MS;
}

/* One wait that began at start_ns; its deadline is put off by the time that the host was away. */
static int32_t wait_judge(struct hsdp_job *job, const struct wait *wait, uint64_t start_ns,
                          uint64_t away_ns, struct look *look, struct hsdp_error *reterr)
{
    /* Read after the ranks were found gone: what they had raised before counts. */
    uint64_t lost = missing_ranks(wait) & look->gone;
    uint64_t waited_ns = look->now_ns > start_ns ? look->now_ns - start_ns : 0;
    uint64_t deadline_ns = wait->deadline_ns;

    if (wait->n_entries > 0 && wait_is_met(wait)) {
        return HSDP_OK;
    }
    if (lost != 0) {
        return loss_raise(job, wait, lost, waited_ns, reterr);
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

/* What a call waits for by itself: its own conditions, or a ticket whose turn has not come. */
static int32_t call_judge(struct hsdp_job *job, const struct waiting *waiting, struct look *look,
                          struct hsdp_error *reterr)
{
    struct wait turn = {.operation = "ticket.wait", .ticket = waiting->ticket};
    struct work *work = waiting->ticket == 0 ? NULL : work_find(job, waiting->ticket);

    if (waiting->wait != NULL) {
        return wait_judge(job, waiting->wait, waiting->start_ns, 0, look, reterr);
    }
    if (work != NULL && work->blocker(work) == NULL) {
        return wait_judge(job, &turn, waiting->start_ns, 0, look, reterr);
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

int32_t watch_look(struct hsdp_job *job, const struct waiting *waiting, struct hsdp_error *reterr)
{
    struct look look = {.now_ns = clock_now_ns()};
    uint64_t missing = waiting->wait == NULL ? 0 : missing_ranks(waiting->wait);
    int32_t status;

    if (atomic_exchange(&job->look_now, 0u) == 0 && look.now_ns < job->next_look_ns) {
        return HSDP_OK;
    }
    look.wake_ns = look.now_ns + LOOK_MS * NS_PER_MS;
    for (struct work *work = job->first_work; work != NULL; work = work->next) {
        const struct wait *wait = work->blocker(work);

        missing |= wait == NULL ? 0 : missing_ranks(wait);
    }
    look.gone = ranks_gone(job, missing);
    status = call_judge(job, waiting, &look, reterr);
    if (status == HSDP_OK) {
        status = queue_judge(job, &look, reterr);
    }
    if (status == HSDP_OK) {
        status = watchdog_check(job, look.now_ns, reterr);
    }
    job->next_look_ns = look.wake_ns;
    return status;
}
