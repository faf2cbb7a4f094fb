/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a test do with shared memory, in the order of each rank, as a probe sees it. */
#ifndef TESTS_ORDER_LOG_H
#define TESTS_ORDER_LOG_H

#include <check.h>

#include "comm/probe.h"
#include "host.h"

#define ORDER_MAX_RANKS  8
#define ORDER_MAX_EVENTS 60000

/* Memory is told apart by number: each rank has these. A place is a byte within one of them. */
enum order_memory {
    ORDER_REGION,  /* of the store: peers map it */
    ORDER_CONTROL, /* its part of the job's control block */
    ORDER_PRIVATE, /* a place is an address */
    ORDER_N_MEMORIES,
};

/* Counters that ranks raise. */
enum order_counter {
    ORDER_NO_COUNTER,
    ORDER_EPOCH,
    ORDER_STEP_ARRIVED,
    ORDER_OFFER_ARRIVED,
    ORDER_OFFER_CONSUMED,
    ORDER_ARRIVED,
    ORDER_CONSUMED,
    ORDER_OUTER_ARRIVED,
    ORDER_OUTER_CONSUMED,
    ORDER_EXCHANGES,
    ORDER_TIES_ARRIVED,
    ORDER_TIES_CONSUMED,
    ORDER_N_COUNTERS,
};

enum order_kind {
    ORDER_READ,
    ORDER_WRITE,
    ORDER_RAISE,
    ORDER_MET,
    ORDER_REDUCTION,
};

struct order_event {
    uint64_t begin; /* the bytes; of a counter its place */
    uint64_t end;   /* and its value, raised or awaited */
    uint32_t unit;
    uint8_t kind;
    uint8_t memory;
    uint8_t rank; /* whose memory */
    uint8_t what; /* enum probe_area, order_counter, probe_wait or probe_reduction */
};

/* One rank's; shared with the test by ranks_memory. */
struct order_log {
    uint32_t n_events;
    struct order_event events[ORDER_MAX_EVENTS];
};

/* What the ranks of one model have done. */
struct order_logs {
    uint32_t n_ranks;
    uint32_t n_units;
    struct order_log ranks[ORDER_MAX_RANKS];
};

/* Where memory of this rank's process belongs to. */
struct order_map {
    const struct hsdp_job *job;
    const struct store *store; /* NULL until the model is there */
    uint32_t rank;
    uint32_t n_ranks;
};

struct order_place {
    enum order_memory memory;
    uint32_t rank;
    uint64_t begin;
    uint64_t n_bytes; /* up to where another rank's memory begins */
};

/** The place of an address, and how much of n_bytes is in that memory. */
struct order_place order_locate(const struct order_map *map, const void *base, uint64_t n_bytes);
/** Which counter it is. */
enum order_counter order_counter_of(const struct order_map *map, const void *counter);

/* A probe that writes it all down. */
struct order_recorder {
    struct probe probe; /* first */
    struct order_map map;
    struct order_log *log;
};

void order_recorder_init(struct order_recorder *recorder, struct order_log *log);

/** Gives the job of a host that has joined a probe: models that it makes from now on have it. */
void order_probe_set(struct host *host, struct probe *probe, struct order_map *ret_map);
/** To be called once the model is there. */
void order_probe_model(struct host *host, struct order_map *map);

/* Their names in messages. */
extern const char *const order_area_names[PROBE_N_AREAS];
extern const char *const order_wait_names[PROBE_N_WAITS];
extern const char *const order_reduction_names[PROBE_N_REDUCTIONS];
extern const char *const order_counter_names[ORDER_N_COUNTERS];

#endif /* TESTS_ORDER_LOG_H */
