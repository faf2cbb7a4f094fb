/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: on a doorbell, while open work goes on and deadlines and peers are watched. */
#include <sched.h>

#include "base/clock.h"
#include "comm/job_internal.h"
#include "comm/probe.h"

#define SPIN_TRIES         60u /* before a wait sleeps; a microsecond or less each */
#define SPIN_TRIES_CROWDED 4u
#define ANNOUNCE_ROUNDS    4u /* of saying who is to wake a rank, before all are */
#define ANY_RANK           UINT64_MAX

/* Ranks are crowded where this rank's processors are too few for all who can run on no others:
 * ranks that are bound to a processor each are not, however many there are. */
void wait_init(struct hsdp_job *job)
{
    const struct control *control = atomic_load(&job->control);
    uint32_t n_processors = 1;
    uint32_t n_ranks = 0;
    cpu_set_t own;

    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof(own), &own) == 0) {
        n_processors = (uint32_t)CPU_COUNT(&own);
    }
    for (uint32_t rank = 0; rank < control->n_ranks; rank++) {
        cpu_set_t theirs;
        cpu_set_t common;

        if (sched_getaffinity((pid_t)control->ranks[rank].pid, sizeof(theirs), &theirs) != 0) {
            n_ranks++;
            continue;
        }
        CPU_AND(&common, &own, &theirs);
        n_ranks += (uint32_t)CPU_EQUAL(&common, &theirs);
    }
    job->is_crowded = n_ranks > n_processors;
    job->spin_tries = job->is_crowded ? SPIN_TRIES_CROWDED : SPIN_TRIES;
}

bool wait_is_met(const struct wait *wait)
{
    for (uint32_t i = 0; i < wait->n_entries; i++) {
        if (atomic_load(wait->entries[i].counter) < wait->entries[i].target) {
            return false;
        }
    }
    return true;
}

/*
 * A signaller raises the counter, then looks who sleeps; a waiter says that it sleeps, then looks
 * at the counter. All four are in one total order, so one of them sees the other.
 */
void job_signal(struct hsdp_job *job, _Atomic uint64_t *counter, uint64_t value,
                const uint32_t *ranks, uint32_t n_ranks)
{
    struct control *control = atomic_load(&job->control);

    job->standstill.n_signals++;
    probe_raise(job->probe, counter, value);
    atomic_store(counter, value);
    for (uint32_t i = 0; i < n_ranks; i++) {
        if (ranks[i] != job->node_index &&
            (atomic_load(&control->ranks[ranks[i]].sleeps_for) >> job->node_index & 1u) != 0) {
            control_ring(control, ranks[i]);
        }
    }
}

static bool waiting_is_over(const struct hsdp_job *job, const struct waiting *waiting)
{
    if (waiting->wait != NULL && !wait_is_met(waiting->wait)) {
        return false;
    }
    return waiting->ticket == 0 || work_find(job, waiting->ticket) == NULL;
}

static void processor_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A moment; whoever else wants this processor, maybe the very rank that is waited for, has it. */
static void waiting_spin(const struct hsdp_job *job)
{
    for (int i = 0; i < 8 && !job->is_crowded; i++) {
        processor_relax();
    }
    sched_yield();
}

/* One of the ranks that a condition lacks: it cannot be met before that one has signalled. False
 * where it lacks none. */
static bool waker_add(const struct wait *wait, uint64_t *wakers)
{
    uint64_t missing = missing_ranks(wait);

    *wakers |= missing & (0 - missing);
    return !wait_is_met(wait);
}

/*
 * By whom this rank wants to be woken: one rank for each thing that it waits for. So a barrier of n
 * ranks wakes each about ln(n) times, not n; and nothing that could go on is slept over, since a
 * peer may wait for it. False where something can go on already.
 */
static bool wakers_find(const struct hsdp_job *job, const struct waiting *waiting,
                        uint64_t *ret_wakers)
{
    struct work *work = job->is_progressing ? NULL : job->first_work; /* nested: not before this */
    bool is_blocked = true;

    *ret_wakers = 0;
    if (waiting->wait != NULL) {
        is_blocked = waker_add(waiting->wait, ret_wakers);
    }
    for (; work != NULL; work = work->next) {
        const struct wait *wait = work->blocker(work);

        if (work->has_more_blockers) {
            *ret_wakers = ANY_RANK;
        } else if (wait != NULL) {
            is_blocked = waker_add(wait, ret_wakers) && is_blocked;
        }
    }
    return is_blocked;
}

/* Says who is to wake this rank, and then looks what has come meanwhile: until both fit. */
static int32_t waiting_announce(struct hsdp_job *job, const struct waiting *waiting,
                                struct hsdp_error *reterr)
{
    struct control_rank *own = &atomic_load(&job->control)->ranks[job->node_index];
    int32_t status = HSDP_OK;
    uint64_t announced = 0;
    uint64_t wakers;

    for (uint32_t round = 0; status == HSDP_OK && !waiting_is_over(job, waiting); round++) {
        bool is_blocked = wakers_find(job, waiting, &wakers);

        if (round > 0 && (announced == ANY_RANK || (is_blocked && wakers == announced))) {
            break;
        }
        announced = round < ANNOUNCE_ROUNDS ? wakers : ANY_RANK;
        atomic_store(&own->sleeps_for, announced);
        __sync_synchronize(); /* what work reads in its progress comes after, however it reads it */
        status = job_progress(job, reterr);
    }
    return status;
}

/* One sleep, at most until the next look; anything that is signalled from here on ends it. */
static int32_t waiting_sleep(struct hsdp_job *job, struct waiting *waiting,
                             struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct control_rank *own = &control->ranks[job->node_index];
    uint32_t bell = atomic_load(&own->bell);
    uint64_t wake_ns;
    int32_t status;

    status = waiting_announce(job, waiting, reterr);
    if (status == HSDP_OK && !waiting_is_over(job, waiting)) {
        watch_tell(job, waiting, 0);
        status = watch_look(job, waiting, reterr);
        wake_ns = job->next_look_ns < waiting->give_up_ns ? job->next_look_ns : waiting->give_up_ns;
        if (status == HSDP_OK) {
            control_sleep(control, job->node_index, bell, clock_left_ms(wake_ns, 1000));
        }
    }
    atomic_store(&own->sleeps_for, 0);
    return status;
}

static int32_t waiting_loop(struct hsdp_job *job, struct waiting *waiting,
                            struct hsdp_error *reterr)
{
    uint32_t n_tries = 0;
    int32_t status = HSDP_OK;

    while (status == HSDP_OK && !waiting_is_over(job, waiting)) {
        status = job_progress(job, reterr);
        if (status != HSDP_OK || waiting_is_over(job, waiting)) {
            return status;
        }
        if (waiting->give_up_ns == 0 || clock_now_ns() >= waiting->give_up_ns) {
            status = watch_look(job, waiting, reterr);
            return status == HSDP_OK ? HSDP_PENDING : status;
        }
        if (n_tries < job->spin_tries) {
            waiting_spin(job);
            n_tries++;
        } else {
            status = waiting_sleep(job, waiting, reterr);
        }
    }
    return status;
}

int32_t wait_run(struct hsdp_job *job, struct waiting *waiting, struct hsdp_error *reterr)
{
    uint64_t now_ns;
    int32_t status;

    waiting->start_ns = clock_now_ns();
    waiting->away_ns = job->away_ns;
    job->look_ns = waiting->start_ns;
    waiting->serial = ++job->standstill.n_waits;
    status = waiting_loop(job, waiting, reterr);
    now_ns = clock_now_ns();
    if (status == HSDP_PENDING) { /* who only asks is still waiting */
        position_asked(job->position, now_ns);
    } else {
        position_go(job->position);
    }
    standstill_leave(job);
    atomic_fetch_add_explicit(job->n_waits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(job->wait_ns, now_ns - waiting->start_ns, memory_order_relaxed);
    return status;
}

int32_t job_wait(struct hsdp_job *job, const struct wait *wait, struct hsdp_error *reterr)
{
    struct waiting waiting = {.wait = wait, .give_up_ns = UINT64_MAX};
    uint64_t record = 0;
    int32_t status;

    if (wait_is_met(wait)) {
        probe_met(job->probe, wait);
        return HSDP_OK;
    }
    if (wait->record == 0) {
        record = job_record_begin(job, wait);
    }
    status = wait_run(job, &waiting, reterr);
    job_record_end(job, record, status);
    if (status == HSDP_OK) {
        probe_met(job->probe, wait);
    }
    return status;
}
