/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: a ring of the last operations. */
#include "comm/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static void name_copy(char *dst, size_t max_bytes, const char *src)
{
    snprintf(dst, max_bytes, "%s", src == NULL ? "" : src);
}

uint64_t flight_begin(struct flight *flight, const struct wait *wait, uint64_t ticket)
{
    struct flight_record *record;

    if (flight->records == NULL) {
        flight->records = calloc(flight->max_records, sizeof(*flight->records));
    }
    if (flight->records == NULL) {
        return 0;
    }
    record = &flight->records[flight->n_begun % flight->max_records];
    memset(record, 0, sizeof(*record));
    record->ticket = ticket;
    record->sequence = wait->sequence;
    record->begin_ns = clock_now_ns();
    name_copy(record->operation, sizeof(record->operation), wait->operation);
    name_copy(record->group, sizeof(record->group), wait->group);
    name_copy(record->unit, sizeof(record->unit), wait->unit);
    return ++flight->n_begun;
}

void flight_end(struct flight *flight, uint64_t number, enum flight_state state)
{
    struct flight_record *record;

    if (number == 0 || flight->n_begun - number >= flight->max_records) {
        return;
    }
    record = &flight->records[(number - 1) % flight->max_records];
    record->state = state;
    record->end_ns = clock_now_ns();
}

static void record_write(const struct flight_record *record, uint64_t number, struct text *text)
{
    static const char *const states[] = {"open", "done", "failed"};

    json_open(text, NULL, '{');
    json_uint(text, "number", number);
    json_uint(text, "ticket", record->ticket);
    json_uint(text, "sequence", record->sequence);
    json_string(text, "operation", record->operation);
    json_string(text, "group", record->group);
    json_string(text, "unit", record->unit);
    json_string(text, "state", states[record->state]);
    json_uint(text, "begin_ns", record->begin_ns);
    json_uint(text, "end_ns", record->end_ns);
    json_close(text, '}');
}

void flight_write(const struct flight *flight, struct text *text)
{
    uint64_t n_kept = flight->n_begun < flight->max_records ? flight->n_begun : flight->max_records;

    json_uint(text, "n_operations", flight->n_begun);
    json_open(text, "operations", '[');
    for (uint64_t number = flight->n_begun - n_kept + 1; number <= flight->n_begun; number++) {
        record_write(&flight->records[(number - 1) % flight->max_records], number, text);
    }
    json_close(text, ']');
}

void flight_fini(struct flight *flight)
{
    free(flight->records);
    flight->records = NULL;
}
