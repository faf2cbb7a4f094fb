/* SPDX-License-Identifier: Apache-2.0 */
/* Replaying logs with vector clocks, and comparing all accesses that overlap. */
#include "order_races.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS  (ORDER_MAX_RANKS * (HOST_MAX_UNITS + 1))
#define MAX_COUNTERS 2048 /* places of 8 bytes, from the start of a memory */
#define NOTHING      UINT32_MAX

struct access {
    const struct order_event *event;
    uint32_t thread;
    uint32_t time;     /* of its thread */
    uint32_t snapshot; /* what its thread had seen of the others */
};

struct raise {
    uint64_t value;
    uint32_t snapshot;
    uint32_t previous; /* of the same counter; NOTHING = none */
};

struct replay {
    const struct order_logs *logs;
    const struct order_removal *removal;
    uint32_t n_threads;
    uint32_t clocks[MAX_THREADS][MAX_THREADS]; /* [t][u]: what t has seen of u; own times from 1 */
    uint32_t snapshot_of[MAX_THREADS];         /* of the clock as it is; NOTHING = not taken */
    uint32_t at[ORDER_MAX_RANKS];              /* the next event */
    uint32_t running[ORDER_MAX_RANKS];         /* the thread of a rank that goes on */
    uint32_t *snapshots;                       /* n_threads each */
    uint32_t n_snapshots, max_snapshots;
    struct raise *raises;
    uint32_t n_raises;
    uint32_t last_raise[ORDER_N_MEMORIES][ORDER_MAX_RANKS][MAX_COUNTERS];
    struct access *accesses;
    uint32_t n_accesses;
};

static void *memory_of(size_t n, size_t n_bytes)
{
    void *memory = calloc(n + 1, n_bytes);

    ck_assert_ptr_nonnull(memory);
    return memory;
}

static uint32_t thread_host(const struct replay *replay, uint32_t rank)
{
    return rank * (replay->logs->n_units + 1);
}

static uint32_t thread_rank(const struct replay *replay, uint32_t thread)
{
    return thread / (replay->logs->n_units + 1);
}

static struct replay *replay_create(const struct order_logs *logs,
                                    const struct order_removal *removal)
{
    struct replay *replay = memory_of(1, sizeof(*replay));
    size_t n_events = 0;

    replay->logs = logs;
    replay->removal = removal;
    replay->n_threads = logs->n_ranks * (logs->n_units + 1);
    ck_assert_uint_le(replay->n_threads, MAX_THREADS);
    for (uint32_t rank = 0; rank < logs->n_ranks; rank++) {
        n_events += logs->ranks[rank].n_events;
        replay->running[rank] = thread_host(replay, rank);
    }
    for (uint32_t thread = 0; thread < replay->n_threads; thread++) {
        replay->clocks[thread][thread] = 1;
        replay->snapshot_of[thread] = NOTHING;
    }
    memset(replay->last_raise, 0xff, sizeof(replay->last_raise));
    replay->raises = memory_of(n_events, sizeof(*replay->raises));
    replay->accesses = memory_of(n_events, sizeof(*replay->accesses));
    return replay;
}

static void replay_destroy(struct replay *replay)
{
    free(replay->snapshots);
    free(replay->raises);
    free(replay->accesses);
    free(replay);
}

/* ---------------------------------------------------------------------------------- clocks */

static uint32_t snapshot_take(struct replay *replay, uint32_t thread)
{
    size_t n_bytes = replay->n_threads * sizeof(uint32_t);

    if (replay->snapshot_of[thread] != NOTHING) {
        return replay->snapshot_of[thread];
    }
    if (replay->n_snapshots == replay->max_snapshots) {
        replay->max_snapshots = replay->max_snapshots * 2 + 64;
        replay->snapshots = realloc(replay->snapshots, replay->max_snapshots * n_bytes);
        ck_assert_ptr_nonnull(replay->snapshots);
    }
    memcpy(replay->snapshots + replay->n_snapshots * replay->n_threads, replay->clocks[thread],
           n_bytes);
    replay->snapshot_of[thread] = replay->n_snapshots;
    return replay->n_snapshots++;
}

/* What a thread does from now on is not in what it has released. */
static uint32_t clock_release(struct replay *replay, uint32_t thread)
{
    uint32_t snapshot = snapshot_take(replay, thread);

    replay->clocks[thread][thread]++;
    replay->snapshot_of[thread] = NOTHING;
    return snapshot;
}

static void clock_acquire(struct replay *replay, uint32_t thread, uint32_t snapshot)
{
    const uint32_t *seen = replay->snapshots + (size_t)snapshot * replay->n_threads;

    for (uint32_t other = 0; other < replay->n_threads; other++) {
        if (replay->clocks[thread][other] < seen[other]) {
            replay->clocks[thread][other] = seen[other];
            replay->snapshot_of[thread] = NOTHING;
        }
    }
}

/* ---------------------------------------------------------------------------------- events */

static bool is_removed(const struct replay *replay, uint32_t rank, const struct order_event *event)
{
    const struct order_removal *removal = replay->removal;

    if (removal == NULL) {
        return false;
    }
    if (event->kind == ORDER_REDUCTION) {
        return removal->reduction >= PROBE_AWAITED_SLOT && event->what == removal->reduction;
    }
    if (removal->wait == PROBE_WAIT_NONE || event->what != removal->wait) {
        return false;
    }
    return removal->n_kept == 0 || event->rank / removal->n_kept != rank / removal->n_kept;
}

static uint32_t *counter_find(struct replay *replay, const struct order_event *event)
{
    uint64_t number = event->begin / sizeof(uint64_t);

    ck_assert_uint_lt(number, MAX_COUNTERS);
    return &replay->last_raise[event->memory][event->rank][number];
}

static void raise_replay(struct replay *replay, uint32_t rank, const struct order_event *event)
{
    struct raise *raise = &replay->raises[replay->n_raises];
    uint32_t *last = counter_find(replay, event);

    raise->value = event->end;
    raise->previous = *last;
    raise->snapshot = clock_release(replay, replay->running[rank]);
    *last = replay->n_raises++;
}

/* False when no rank has raised the counter so far. */
static bool met_replay(struct replay *replay, uint32_t rank, const struct order_event *event)
{
    uint32_t found = *counter_find(replay, event);

    if (event->end == 0 || is_removed(replay, rank, event)) {
        return true;
    }
    if (found == NOTHING || replay->raises[found].value < event->end) {
        return false;
    }
    while (replay->raises[found].previous != NOTHING &&
           replay->raises[replay->raises[found].previous].value >= event->end) {
        found = replay->raises[found].previous;
    }
    clock_acquire(replay, replay->running[rank], replay->raises[found].snapshot);
    return true;
}

static void reduction_replay(struct replay *replay, uint32_t rank, const struct order_event *event)
{
    uint32_t host = thread_host(replay, rank);
    uint32_t thread = host + 1 + event->unit;

    switch (event->what) {
    case PROBE_HANDED_OVER:
        clock_acquire(replay, thread, clock_release(replay, host));
        break;
    case PROBE_ENTERED:
        replay->running[rank] = thread;
        break;
    case PROBE_LEFT:
    case PROBE_DONE:
        replay->running[rank] = host;
        break;
    case PROBE_AWAITED_TURN:
        if (!is_removed(replay, rank, event)) {
            clock_acquire(replay, thread, clock_release(replay, host));
        }
        break;
    default:
        if (!is_removed(replay, rank, event)) {
            clock_acquire(replay, host, clock_release(replay, thread));
        }
    }
}

static void access_replay(struct replay *replay, uint32_t rank, const struct order_event *event)
{
    struct access *access = &replay->accesses[replay->n_accesses++];

    access->event = event;
    access->thread = replay->running[rank];
    access->time = replay->clocks[access->thread][access->thread];
    access->snapshot = snapshot_take(replay, access->thread);
}

/* A rank goes on until it has met what its peers have not raised yet; true if it went on. */
static bool rank_replay(struct replay *replay, uint32_t rank)
{
    const struct order_log *log = &replay->logs->ranks[rank];
    uint32_t from = replay->at[rank];

    for (; replay->at[rank] < log->n_events; replay->at[rank]++) {
        const struct order_event *event = &log->events[replay->at[rank]];

        switch (event->kind) {
        case ORDER_RAISE:
            raise_replay(replay, rank, event);
            break;
        case ORDER_REDUCTION:
            reduction_replay(replay, rank, event);
            break;
        case ORDER_MET:
            if (!met_replay(replay, rank, event)) {
                return replay->at[rank] != from;
            }
            break;
        default:
            access_replay(replay, rank, event);
        }
    }
    return replay->at[rank] != from;
}

static void logs_replay(struct replay *replay)
{
    bool has_moved = true;

    while (has_moved) {
        has_moved = false;
        for (uint32_t rank = 0; rank < replay->logs->n_ranks; rank++) {
            has_moved |= rank_replay(replay, rank);
        }
    }
    for (uint32_t rank = 0; rank < replay->logs->n_ranks; rank++) {
        const struct order_log *log = &replay->logs->ranks[rank];

        if (replay->at[rank] < log->n_events) {
            const struct order_event *event = &log->events[replay->at[rank]];

            ck_abort_msg("rank %" PRIu32 " has met the wait \"%s\" for %" PRIu64
                         ", which rank %u never raised",
                         rank, order_wait_names[event->what], event->end, event->rank);
        }
    }
}

/* ----------------------------------------------------------------------------------- races */

static int accesses_compare(const void *a, const void *b)
{
    const struct order_event *one = ((const struct access *)a)->event;
    const struct order_event *other = ((const struct access *)b)->event;

    if (one->memory != other->memory) {
        return one->memory < other->memory ? -1 : 1;
    }
    if (one->rank != other->rank) {
        return one->rank < other->rank ? -1 : 1;
    }
    return one->begin < other->begin ? -1 : one->begin > other->begin;
}

static bool is_before(const struct replay *replay, const struct access *a, const struct access *b)
{
    return replay->snapshots[(size_t)b->snapshot * replay->n_threads + a->thread] >= a->time;
}

static bool is_race(const struct replay *replay, const struct access *a, const struct access *b)
{
    return (a->event->kind == ORDER_WRITE || b->event->kind == ORDER_WRITE) &&
           a->thread != b->thread && !is_before(replay, a, b) && !is_before(replay, b, a);
}

static uint32_t access_sort(const struct access *access)
{
    return 2u * access->event->what + (access->event->kind == ORDER_WRITE);
}

static void race_fill(const struct replay *replay, const struct access *a, const struct access *b,
                      struct order_race *ret)
{
    ret->events[0] = *a->event;
    ret->events[1] = *b->event;
    ret->ranks[0] = thread_rank(replay, a->thread);
    ret->ranks[1] = thread_rank(replay, b->thread);
}

static uint32_t races_find(struct replay *replay, struct order_race *ret_races, uint32_t max_races)
{
    bool is_found[2 * PROBE_N_AREAS][2 * PROBE_N_AREAS] = {{false}};
    uint32_t n_races = 0;

    qsort(replay->accesses, replay->n_accesses, sizeof(*replay->accesses), accesses_compare);
    for (uint32_t i = 0; i < replay->n_accesses; i++) {
        const struct access *a = &replay->accesses[i];

        for (uint32_t j = i + 1; j < replay->n_accesses && n_races < max_races; j++) {
            const struct access *b = &replay->accesses[j];
            bool *is_known = &is_found[access_sort(a)][access_sort(b)];

            if (a->event->memory != b->event->memory || a->event->rank != b->event->rank ||
                b->event->begin >= a->event->end) {
                break;
            }
            if (!*is_known && is_race(replay, a, b)) {
                *is_known = is_found[access_sort(b)][access_sort(a)] = true;
                race_fill(replay, a, b, &ret_races[n_races++]);
            }
        }
    }
    return n_races;
}

uint32_t order_races(const struct order_logs *logs, const struct order_removal *removal,
                     struct order_race *ret_races, uint32_t max_races)
{
    struct replay *replay = replay_create(logs, removal);
    uint32_t n_races;

    logs_replay(replay);
    n_races = races_find(replay, ret_races, max_races);
    replay_destroy(replay);
    return n_races;
}

void order_race_text(const struct order_race *race, char *ret_text, size_t max_bytes)
{
    const struct order_event *a = &race->events[0];
    const struct order_event *b = &race->events[1];

    snprintf(ret_text, max_bytes,
             "rank %" PRIu32 " %s %s of unit %" PRId32 ", rank %" PRIu32 " %s %s of unit %" PRId32
             ": bytes %" PRIu64 "..%" PRIu64 " and %" PRIu64 "..%" PRIu64 " of rank %u",
             race->ranks[0], a->kind == ORDER_WRITE ? "writes" : "reads", order_area_names[a->what],
             (int32_t)a->unit, race->ranks[1], b->kind == ORDER_WRITE ? "writes" : "reads",
             order_area_names[b->what], (int32_t)b->unit, a->begin, a->end, b->begin, b->end,
             a->rank);
}

uint32_t order_n_met(const struct order_logs *logs, const struct order_removal *removal)
{
    struct replay replay = {.removal = removal};
    uint32_t n_met = 0;

    for (uint32_t rank = 0; rank < logs->n_ranks; rank++) {
        for (uint32_t i = 0; i < logs->ranks[rank].n_events; i++) {
            const struct order_event *event = &logs->ranks[rank].events[i];

            if (event->kind == ORDER_MET || event->kind == ORDER_REDUCTION) {
                n_met += is_removed(&replay, rank, event);
            }
        }
    }
    return n_met;
}
