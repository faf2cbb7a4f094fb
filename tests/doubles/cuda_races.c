/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA double's race detector: accesses that neither streams, events nor the host order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doubles/cuda_double.h"

/*
 * Vector clocks, when work is enqueued: what comes before it is settled then, however fast the
 * threads are. A piece of work comes after what its stream has had, what the events stand for that
 * the stream was told to wait for, and what the host had seen to be done. All threads of the host
 * count as one: how they tell each other is nothing that a driver sees.
 *
 * An allocation keeps those parts of accesses that something to come may race with: not what the
 * host has seen to be done, and not what a later access stands for, since whatever comes after that
 * comes after both.
 */

struct clock host_clock;
static bool is_on;
static bool is_fatal;
static atomic_uint_fast64_t n_races;

void races_init(void)
{
    const char *mode = getenv("HSDP_DOUBLE_RACES");

    is_on = mode == NULL || strcmp(mode, "off") != 0;
    is_fatal = mode != NULL && strcmp(mode, "fatal") == 0;
    if (is_on && mode != NULL && !is_fatal && strcmp(mode, "on") != 0) {
        driver_die("HSDP_DOUBLE_RACES is '%s', none of on, off, fatal", mode);
    }
}

uint64_t double_n_races(void)
{
    return atomic_load(&n_races);
}

void clock_join(struct clock *clock, const struct clock *other)
{
    for (uint32_t slot = 0; slot < CLOCK_SLOTS; slot++) {
        if (clock->times[slot] < other->times[slot]) {
            clock->times[slot] = other->times[slot];
        }
    }
}

/* ------------------------------------------------------------------------------ the sentence */

static const char *verb_of(bool is_write)
{
    return is_write ? "writes" : "reads";
}

static void race_found(const struct allocation *allocation, const struct past_access *past,
                       const struct past_access *now)
{
    char where[64] = "";

    if (atomic_fetch_add(&n_races, 1) > 0) {
        return;
    }
    if (now->stream != NULL) {
        snprintf(where, sizeof(where), " on stream %p", (void *)now->stream);
    }
    fprintf(stderr,
            "libcuda double: race: %s%s %s bytes %" PRIuPTR " to %" PRIuPTR
            " of the %zu at 0x%" PRIxPTR ", %s on stream %p %s %" PRIuPTR " to %" PRIuPTR
            ", and nothing orders the two\n",
            now->name, where, verb_of(now->is_write), now->begin - allocation->base,
            now->end - allocation->base, allocation->n_bytes, allocation->base, past->name,
            (void *)past->stream, verb_of(past->is_write), past->begin - allocation->base,
            past->end - allocation->base);
    if (is_fatal) {
        abort();
    }
}

/* ---------------------------------------------------------------------------- the accesses */

static bool past_is_before(const struct past_access *past, const struct clock *clock)
{
    return clock->times[past->slot] >= past->time;
}

static void past_append(struct allocation *allocation, const struct past_access *past)
{
    if (allocation->n_accesses == allocation->max_accesses) {
        allocation->max_accesses = 2 * allocation->max_accesses + 8;
        allocation->accesses =
            realloc(allocation->accesses, allocation->max_accesses * sizeof(*allocation->accesses));
        if (allocation->accesses == NULL) {
            driver_die("no memory for the race detector");
        }
    }
    allocation->accesses[allocation->n_accesses++] = *past;
}

/* Takes out the part that `now` covers; false = nothing is left. What is behind it is appended. */
static bool past_cut(struct allocation *allocation, uint32_t index, const struct past_access *now)
{
    struct past_access rest = allocation->accesses[index];
    bool is_left = rest.begin < now->begin;

    if (is_left) {
        allocation->accesses[index].end = now->begin;
    }
    if (rest.end > now->end) {
        rest.begin = now->end;
        if (!is_left) {
            allocation->accesses[index] = rest;
            return true;
        }
        past_append(allocation, &rest);
    }
    return is_left;
}

/* Of one past access; false = it need not be kept. */
static bool past_compare(struct allocation *allocation, uint32_t index,
                         const struct past_access *now, const struct clock *clock)
{
    const struct past_access *past = &allocation->accesses[index];

    if (past_is_before(past, &host_clock)) {
        return false;
    }
    if (past->end <= now->begin || now->end <= past->begin) {
        return true;
    }
    if (!past_is_before(past, clock)) {
        if (past->is_write || now->is_write) {
            race_found(allocation, past, now);
        }
        return true;
    }
    return now->is_write || !past->is_write ? past_cut(allocation, index, now) : true;
}

static void past_compare_all(struct allocation *allocation, const struct past_access *now,
                             const struct clock *clock)
{
    uint32_t n_before = allocation->n_accesses;
    uint32_t n_kept = 0;

    for (uint32_t i = 0; i < n_before; i++) {
        if (past_compare(allocation, i, now, clock)) {
            if (n_kept < i) {
                allocation->accesses[n_kept] = allocation->accesses[i];
            }
            n_kept++;
        }
    }
    for (uint32_t i = n_before; i < allocation->n_accesses; i++) { /* what was cut off */
        allocation->accesses[n_kept++] = allocation->accesses[i];
    }
    allocation->n_accesses = n_kept;
}

static struct past_access access_make(const struct double_access *access, const char *name)
{
    struct past_access now = {.begin = (uintptr_t)access->address,
                              .end = (uintptr_t)access->address + access->n_bytes,
                              .is_write = access->is_write != 0};

    strncpy(now.name, name, MAX_NAME - 1);
    return now;
}

void races_access(struct allocation *allocation, const struct double_access *access,
                  const struct actor *actor)
{
    struct past_access now = access_make(access, actor->name);

    if (!is_on) {
        return;
    }
    now.time = actor->time;
    now.slot = actor->slot;
    now.stream = actor->stream;
    past_compare_all(allocation, &now, actor->clock);
    past_append(allocation, &now);
}

/* It is not kept: all that is enqueued later comes after it. */
void races_host_access(struct allocation *allocation, const struct double_access *access,
                       const char *name)
{
    struct past_access now = access_make(access, name);

    if (is_on && allocation->n_accesses > 0) {
        past_compare_all(allocation, &now, &host_clock);
    }
}

void races_forget(struct allocation *allocation)
{
    free(allocation->accesses);
    allocation->accesses = NULL;
    allocation->n_accesses = 0;
    allocation->max_accesses = 0;
}
