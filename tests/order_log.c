/* SPDX-License-Identifier: Apache-2.0 */
/* Writing down what a probe is told, with places instead of addresses. */
#include "order_log.h"

#include "comm/job_internal.h"
#include "comm/shm_store.h"
#include "shard/model.h"

const char *const order_area_names[PROBE_N_AREAS] = {
    "parameters", "master",     "flat shard",  "reduced gradients", "slot",
    "local sums", "late sums",  "late values", "contribution",      "source kind",
    "inner sums", "step words", "offer words", "offered",           "stage",
    "tied",       "mailbox"};
const char *const order_wait_names[PROBE_N_WAITS] = {
    "none",  "step",   "published", "slot",       "source",   "inner", "resting",
    "outer", "shared", "offer",     "offer read", "exchange", "ties",  "ties read"};
const char *const order_reduction_names[PROBE_N_REDUCTIONS] = {"handed over",
                                                               "entered",
                                                               "left",
                                                               "done",
                                                               "awaited for the slot",
                                                               "awaited as the last",
                                                               "awaited for a step",
                                                               "awaiting its turn"};
const char *const order_counter_names[ORDER_N_COUNTERS] = {
    "none",           "epoch",       "step_arrived", "offer_arrived",
    "offer_consumed", "arrived",     "consumed",     "outer_arrived",
    "outer_consumed", "n_exchanges", "ties_arrived", "ties_consumed"};

/* ---------------------------------------------------------------------------------- places */

static bool range_has(const void *base, uint64_t n_bytes, const void *at, uint64_t *ret_offset)
{
    uintptr_t first = (uintptr_t)base;

    *ret_offset = (uintptr_t)at - first;
    return base != NULL && (uintptr_t)at >= first && (uintptr_t)at - first < n_bytes;
}

/* A view is the shards of its peers back to back. */
static bool view_locate(const struct order_map *map, const void *base, struct order_place *ret)
{
    const struct hsdp_plan *plan = map->store->plan;

    for (uint32_t i = 0; i < plan->n_units * PLAN_MAX_BUFFERS; i++) {
        uint32_t b = i % PLAN_MAX_BUFFERS;
        const struct shm_unit *u = &map->store->units[i / PLAN_MAX_BUFFERS];
        const struct plan_class *class = shm_plan_class(map->store, i / PLAN_MAX_BUFFERS);
        uint64_t shard_bytes;
        uint64_t at;

        if (!range_has(u->view[b], u->view_bytes[b], base, &at)) {
            continue;
        }
        shard_bytes =
            u->view_bytes[b] / placement_n_slices(&class->place, plan->mesh, HSDP_SHARD_PARAM);
        ret->memory = ORDER_REGION;
        ret->rank = placement_owner(&class->place, plan->mesh, HSDP_SHARD_PARAM, map->rank,
                                    (uint32_t)(at / shard_bytes));
        ret->begin = u->params_offset[b] + at % shard_bytes;
        ret->n_bytes = shard_bytes - at % shard_bytes;
        return true;
    }
    return false;
}

struct order_place order_locate(const struct order_map *map, const void *base, uint64_t n_bytes)
{
    const struct control *control = atomic_load(&map->job->control);
    struct order_place place = {.n_bytes = n_bytes};

    for (uint32_t rank = 0; rank < map->n_ranks; rank++) {
        if (range_has(&control->ranks[rank], sizeof(control->ranks[rank]), base, &place.begin)) {
            place.memory = ORDER_CONTROL;
            place.rank = rank;
            return place;
        }
        if (map->store != NULL && range_has(map->store->regions[rank],
                                            map->store->mapped_bytes[rank], base, &place.begin)) {
            place.memory = ORDER_REGION;
            place.rank = rank;
            return place;
        }
    }
    if (map->store == NULL || !view_locate(map, base, &place)) {
        place.memory = ORDER_PRIVATE;
        place.rank = map->rank;
        place.begin = (uintptr_t)base;
    }
    place.n_bytes = place.n_bytes < n_bytes ? place.n_bytes : n_bytes;
    return place;
}

enum order_counter order_counter_of(const struct order_map *map, const void *counter)
{
    static const struct {
        size_t offset;
        enum order_counter counter;
    } headers[] = {{offsetof(struct shm_header, epoch), ORDER_EPOCH},
                   {offsetof(struct shm_header, step_arrived), ORDER_STEP_ARRIVED},
                   {offsetof(struct shm_header, offer_arrived), ORDER_OFFER_ARRIVED},
                   {offsetof(struct shm_header, offer_consumed), ORDER_OFFER_CONSUMED},
                   {offsetof(struct shm_header, ties_arrived), ORDER_TIES_ARRIVED},
                   {offsetof(struct shm_header, ties_consumed), ORDER_TIES_CONSUMED}};
    struct order_place place = order_locate(map, counter, sizeof(uint64_t));
    uint64_t at = place.begin;

    if (place.memory == ORDER_CONTROL) {
        return at == offsetof(struct control_rank, n_exchanges) ? ORDER_EXCHANGES
                                                                : ORDER_NO_COUNTER;
    }
    if (place.memory == ORDER_PRIVATE) {
        return ORDER_NO_COUNTER;
    }
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        if (at == headers[i].offset) {
            return headers[i].counter;
        }
    }
    at = (at - map->store->counters_offset) % sizeof(struct shm_counters);
    return (enum order_counter)(ORDER_ARRIVED + at / sizeof(uint64_t));
}

/* ------------------------------------------------------------------------------- recording */

static void event_add(struct order_recorder *recorder, struct order_event event)
{
    struct order_log *log = recorder->log;

    if (log->n_events == ORDER_MAX_EVENTS) {
        ck_abort_msg("a log of %d events is full", ORDER_MAX_EVENTS);
    }
    log->events[log->n_events++] = event;
}

static void recorder_access(struct probe *probe, const struct probe_access *access)
{
    struct order_recorder *recorder = (struct order_recorder *)probe;

    for (uint64_t at = 0; at < access->n_bytes;) {
        struct order_place place =
            order_locate(&recorder->map, (const uint8_t *)access->base + at, access->n_bytes - at);
        struct order_event event = {.begin = place.begin, .end = place.begin + place.n_bytes};

        event.unit = access->unit;
        event.kind = access->is_write ? ORDER_WRITE : ORDER_READ;
        event.memory = (uint8_t)place.memory;
        event.rank = (uint8_t)place.rank;
        event.what = (uint8_t)access->area;
        event_add(recorder, event);
        at += place.n_bytes;
    }
}

static void recorder_raise(struct probe *probe, const _Atomic uint64_t *counter, uint64_t value)
{
    struct order_recorder *recorder = (struct order_recorder *)probe;
    enum order_counter what = order_counter_of(&recorder->map, counter);
    struct order_place place = order_locate(&recorder->map, counter, sizeof(value));
    struct order_event event = {.begin = place.begin, .end = value, .kind = ORDER_RAISE};

    if (what != ORDER_NO_COUNTER) {
        event.memory = (uint8_t)place.memory;
        event.rank = (uint8_t)place.rank;
        event.what = (uint8_t)what;
        event_add(recorder, event);
    }
}

static void recorder_expect(struct probe *probe, struct wait_entry *entries, uint32_t n_entries)
{
    (void)probe; /* what counts is what was met */
    (void)entries;
    (void)n_entries;
}

static void recorder_met(struct probe *probe, const struct wait_entry *entries, uint32_t n_entries)
{
    struct order_recorder *recorder = (struct order_recorder *)probe;

    for (uint32_t i = 0; i < n_entries; i++) {
        struct order_place place =
            order_locate(&recorder->map, entries[i].counter, sizeof(uint64_t));
        struct order_event event = {.begin = place.begin, .end = entries[i].target};

        event.kind = ORDER_MET;
        event.memory = (uint8_t)place.memory;
        event.rank = (uint8_t)place.rank;
        event.what = (uint8_t)entries[i].wait;
        if (entries[i].wait != PROBE_WAIT_NONE) {
            event_add(recorder, event);
        }
    }
}

static void recorder_reduction(struct probe *probe, uint32_t unit, enum probe_reduction what)
{
    struct order_recorder *recorder = (struct order_recorder *)probe;
    struct order_log *log = recorder->log;
    struct order_event event = {.unit = unit, .kind = ORDER_REDUCTION, .what = (uint8_t)what};
    const struct order_event *last = log->n_events == 0 ? NULL : &log->events[log->n_events - 1];

    if (what == PROBE_LEFT && last != NULL && last->kind == ORDER_REDUCTION &&
        last->what == PROBE_ENTERED) {
        log->n_events--; /* it still waits, as it did before */
        return;
    }
    event_add(recorder, event);
}

void order_recorder_init(struct order_recorder *recorder, struct order_log *log)
{
    memset(recorder, 0, sizeof(*recorder));
    recorder->probe.access = recorder_access;
    recorder->probe.raise = recorder_raise;
    recorder->probe.expect = recorder_expect;
    recorder->probe.met = recorder_met;
    recorder->probe.reduction = recorder_reduction;
    recorder->log = log;
}

/* ------------------------------------------------------------------------------ the host's side */

void order_probe_set(struct host *host, struct probe *probe, struct order_map *ret_map)
{
    struct hsdp_job *job = host->job; /* the plugin is built from the structs of this tree */

    ret_map->job = job;
    ret_map->store = NULL;
    ret_map->rank = host->rank;
    ret_map->n_ranks = host->n_ranks;
    job->probe = probe;
}

void order_probe_model(struct host *host, struct order_map *map)
{
    struct hsdp_model *model = host->model;

    map->store = model->store;
}
