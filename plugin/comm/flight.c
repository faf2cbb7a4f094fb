/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: a ring that one thread writes and anybody reads. */
#include "comm/flight.h"

#include "comm/words.h"

/*
 * A record is written at most three times: when it is called, started and ended. So versions of one
 * number stay apart from those of the next, and no two states of a record have the same.
 */
#define VERSIONS 8u

/* A writer needs far less than a microsecond: after so many looks it is dead or stopped. */
#define READ_TRIES 1000u

/* ---------------------------------------------------------------------------- writing */

uint64_t flight_ring_bytes(uint64_t max_records)
{
    return sizeof(struct flight_ring) + max_records * sizeof(struct flight_slot);
}

static struct flight_slot *slot_of(const struct flight *flight, uint64_t number)
{
    return &flight->ring->slots[(number - 1) % flight->max_records];
}

uint64_t flight_last(const struct flight *flight)
{
    return flight->ring == NULL ? 0 : word_load(&flight->ring->n_begun);
}

/* NULL for a record that is no longer there, or has ended. */
static struct flight_slot *slot_reopen(const struct flight *flight, uint64_t number)
{
    struct flight_slot *slot;
    uint64_t version;

    if (number == 0 || flight->ring == NULL ||
        flight_last(flight) - number >= flight->max_records) {
        return NULL;
    }
    slot = slot_of(flight, number);
    version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    if (version < number * VERSIONS || version >= number * VERSIONS + VERSIONS - 2) {
        return NULL;
    }
    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    return slot;
}

static void slot_close(struct flight_slot *slot)
{
    word_store(&slot->version, atomic_load_explicit(&slot->version, memory_order_relaxed) + 1);
}

uint64_t flight_begin(const struct flight *flight, const struct wait *what, uint64_t ticket,
                      uint64_t issue_ns, uint64_t start_ns)
{
    struct flight_slot *slot;
    uint64_t number;

    if (flight->ring == NULL) {
        return 0;
    }
    number = atomic_load_explicit(&flight->ring->n_begun, memory_order_relaxed) + 1;
    /* First: who dies from here on leaves a record that is seen to be torn. */
    word_store(&flight->ring->n_begun, number);
    slot = slot_of(flight, number);
    atomic_store_explicit(&slot->version, number * VERSIONS + 1, memory_order_relaxed);
    word_store(&slot->state, start_ns == 0 ? FLIGHT_ISSUED : FLIGHT_STARTED);
    word_store(&slot->issue_ns, issue_ns);
    word_store(&slot->start_ns, start_ns);
    word_store(&slot->end_ns, 0);
    word_store(&slot->ticket, ticket);
    word_store(&slot->sequence, what->sequence);
    word_store(&slot->n_bytes, what->n_bytes);
    words_write(slot->operation, FLIGHT_OPERATION_WORDS, what->operation);
    words_write(slot->group, FLIGHT_NAME_WORDS, what->group);
    words_write(slot->unit, FLIGHT_NAME_WORDS, what->unit);
    slot_close(slot);
    return number;
}

void flight_start(const struct flight *flight, uint64_t number, uint64_t sequence,
                  uint64_t start_ns)
{
    struct flight_slot *slot = slot_reopen(flight, number);

    if (slot != NULL) {
        word_store(&slot->state, FLIGHT_STARTED);
        word_store(&slot->sequence, sequence);
        word_store(&slot->start_ns, start_ns);
        slot_close(slot);
    }
}

void flight_end(const struct flight *flight, uint64_t number, enum flight_state state,
                uint64_t end_ns)
{
    struct flight_slot *slot = slot_reopen(flight, number);

    if (slot != NULL) {
        word_store(&slot->state, state);
        word_store(&slot->end_ns, end_ns);
        slot_close(slot);
    }
}

/* ---------------------------------------------------------------------------- reading */

static void slot_copy(const struct flight_slot *slot, struct flight_record *ret)
{
    uint64_t state = word_load(&slot->state);

    ret->state = state < FLIGHT_N_STATES ? (enum flight_state)state : FLIGHT_FAILED;
    ret->issue_ns = word_load(&slot->issue_ns);
    ret->start_ns = word_load(&slot->start_ns);
    ret->end_ns = word_load(&slot->end_ns);
    ret->ticket = word_load(&slot->ticket);
    ret->sequence = word_load(&slot->sequence);
    ret->n_bytes = word_load(&slot->n_bytes);
    words_read(slot->operation, FLIGHT_OPERATION_WORDS, ret->operation);
    words_read(slot->group, FLIGHT_NAME_WORDS, ret->group);
    words_read(slot->unit, FLIGHT_NAME_WORDS, ret->unit);
}

enum flight_read flight_read(const struct flight *flight, uint64_t number,
                             struct flight_record *ret)
{
    uint64_t last = flight_last(flight);
    const struct flight_slot *slot;

    memset(ret, 0, sizeof(*ret));
    ret->number = number;
    if (number == 0 || number > last || last - number >= flight->max_records) {
        return FLIGHT_GONE;
    }
    slot = slot_of(flight, number);
    for (uint32_t i = 0; i < READ_TRIES; i++) {
        uint64_t version = word_load(&slot->version);

        if (version >= (number + 1) * VERSIONS) {
            return FLIGHT_GONE; /* overwritten meanwhile */
        }
        if (version < number * VERSIONS || (version & 1u) != 0) {
            continue;
        }
        slot_copy(slot, ret);
        if (atomic_load_explicit(&slot->version, memory_order_relaxed) == version) {
            return FLIGHT_READ;
        }
    }
    memset(ret, 0, sizeof(*ret));
    ret->number = number;
    return FLIGHT_TORN;
}

static void record_write(const struct flight_record *record, enum flight_read found,
                         struct text *text)
{
    static const char *const states[FLIGHT_N_STATES] = {"issued", "started", "done", "failed"};

    json_open(text, NULL, '{');
    json_uint(text, "number", record->number);
    json_string(text, "state", found == FLIGHT_TORN ? "torn" : states[record->state]);
    if (found == FLIGHT_READ) {
        json_string(text, "operation", record->operation);
        json_string(text, "group", record->group);
        json_string(text, "unit", record->unit);
        json_uint(text, "sequence", record->sequence);
        json_uint(text, "ticket", record->ticket);
        json_uint(text, "bytes", record->n_bytes);
        json_uint(text, "issue_ns", record->issue_ns);
        json_uint(text, "start_ns", record->start_ns);
        json_uint(text, "end_ns", record->end_ns);
    }
    json_close(text, '}');
}

void flight_write(const struct flight *flight, uint64_t max_records, struct text *text)
{
    uint64_t last = flight_last(flight);
    uint64_t n_kept = last < flight->max_records ? last : flight->max_records;

    n_kept = n_kept < max_records ? n_kept : max_records;
    json_uint(text, "n_operations", last);
    json_open(text, "operations", '[');
    for (uint64_t number = last - n_kept + 1; number <= last; number++) {
        struct flight_record record;
        enum flight_read found = flight_read(flight, number, &record);

        if (found != FLIGHT_GONE) {
            record_write(&record, found, text);
        }
    }
    json_close(text, ']');
}
