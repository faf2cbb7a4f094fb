/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: what is kept, and what readers in other processes see of a writer. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/flight.h"
#include "comm/words.h"
#include "ranks.h"
#include "suite.h"

#define N_RECORDS 16u

/* A ring that children see too. */
static struct flight ring_make(void)
{
    struct flight flight = {.max_records = N_RECORDS};

    flight.ring = ranks_memory(flight_ring_bytes(N_RECORDS));
    return flight;
}

/* All that a record holds follows from its number. */
static struct wait what_of(uint64_t number, char name[40])
{
    struct wait what = {.operation = "reduce", .group = name, .unit = name};

    snprintf(name, 40, "unit %llu", (unsigned long long)(number * UINT64_C(1000003)));
    what.sequence = number;
    what.n_bytes = 3 * number;
    return what;
}

static uint64_t record_add(const struct flight *flight)
{
    uint64_t number = flight_last(flight) + 1;
    char name[40];
    struct wait what = what_of(number, name);

    return flight_begin(flight, &what, 7 * number, number, number);
}

static void record_expect(const struct flight_record *record)
{
    char name[40];
    struct wait what = what_of(record->number, name);

    ck_assert_str_eq(record->operation, "reduce");
    ck_assert_str_eq(record->group, name);
    ck_assert_str_eq(record->unit, name);
    ck_assert_uint_eq(record->sequence, what.sequence);
    ck_assert_uint_eq(record->n_bytes, what.n_bytes);
    ck_assert_uint_eq(record->ticket, 7 * record->number);
    ck_assert_uint_eq(record->issue_ns, record->number);
    ck_assert(record->end_ns == 0 || record->end_ns == 2 * record->number);
    ck_assert_int_eq(record->state, record->end_ns == 0 ? FLIGHT_STARTED : FLIGHT_DONE);
}

START_TEST(flight_begin_without_a_ring_records_nothing)
{
    struct flight flight = {.ring = NULL, .max_records = N_RECORDS};
    struct flight_record record;
    struct wait what = {.operation = "reduce"};

    ck_assert_uint_eq(flight_begin(&flight, &what, 0, 1, 1), 0);
    flight_start(&flight, 1, 1, 1);
    flight_end(&flight, 1, FLIGHT_DONE, 1);
    ck_assert_uint_eq(flight_last(&flight), 0);
    ck_assert_int_eq(flight_read(&flight, 1, &record), FLIGHT_GONE);
}
END_TEST

START_TEST(flight_end_completes_its_record)
{
    struct flight flight = ring_make();
    struct flight_record record;
    struct wait what = {.operation = "barrier", .group = "dp"};

    ck_assert_uint_eq(flight_begin(&flight, &what, 5, 100, 0), 1);
    ck_assert_int_eq(flight_read(&flight, 1, &record), FLIGHT_READ);
    ck_assert_int_eq(record.state, FLIGHT_ISSUED);
    flight_start(&flight, 1, 9, 200);
    ck_assert_int_eq(flight_read(&flight, 1, &record), FLIGHT_READ);
    ck_assert_int_eq(record.state, FLIGHT_STARTED);
    flight_end(&flight, 1, FLIGHT_FAILED, 300);
    ck_assert_int_eq(flight_read(&flight, 1, &record), FLIGHT_READ);
    ck_assert_int_eq(record.state, FLIGHT_FAILED);
    ck_assert_uint_eq(record.issue_ns, 100);
    ck_assert_uint_eq(record.start_ns, 200);
    ck_assert_uint_eq(record.end_ns, 300);
    ck_assert_uint_eq(record.sequence, 9);
    ck_assert_str_eq(record.unit, "");
}
END_TEST

START_TEST(flight_begin_overwrites_the_oldest)
{
    struct flight flight = ring_make();
    struct flight_record record;

    for (uint64_t i = 1; i <= N_RECORDS + 3; i++) {
        ck_assert_uint_eq(record_add(&flight), i);
    }
    flight_end(&flight, 1, FLIGHT_DONE, 1); /* of another one's place by now */
    for (uint64_t i = 1; i <= N_RECORDS + 4; i++) {
        enum flight_read expected = i <= 3 || i > N_RECORDS + 3 ? FLIGHT_GONE : FLIGHT_READ;

        ck_assert_int_eq(flight_read(&flight, i, &record), expected);
        if (expected == FLIGHT_READ) {
            record_expect(&record);
        }
    }
}
END_TEST

/* Names that are cut where a character of two, three or four bytes crosses the end. */
START_TEST(flight_read_of_a_long_name_cuts_no_character)
{
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8d\x8e"};
    struct flight flight = ring_make();
    struct flight_record record;
    struct wait what = {.operation = "reduce"};
    const char *character = characters[_i / 4];
    size_t n_bytes = strlen(character);
    char name[200] = "";

    memset(name, 'a', (size_t)(_i % 4));
    while (strlen(name) < 100) {
        strcat(name, character);
    }
    what.unit = name;
    flight_begin(&flight, &what, 0, 1, 1);
    ck_assert_int_eq(flight_read(&flight, 1, &record), FLIGHT_READ);
    ck_assert_uint_eq((strlen(record.unit) - (size_t)(_i % 4)) % n_bytes, 0);
    ck_assert_uint_gt(strlen(record.unit), 43);
    ck_assert_int_eq(strncmp(record.unit, name, strlen(record.unit)), 0);
}
END_TEST

/* A writer that died in the middle: its record is torn, those before it are whole. */
START_TEST(flight_read_of_a_half_written_record_is_torn)
{
    struct flight flight = ring_make();
    struct flight_record record;
    struct text text = TEXT_INIT;

    record_add(&flight);
    record_add(&flight);
    if (_i == 0) { /* before it wrote anything, and after it began to */
        word_store(&flight.ring->n_begun, 3);
    } else {
        record_add(&flight);
        word_store(&flight.ring->slots[2].version, 3 * 8 + 3);
    }
    ck_assert_int_eq(flight_read(&flight, 3, &record), FLIGHT_TORN);
    ck_assert_str_eq(record.operation, "");
    ck_assert_int_eq(flight_read(&flight, 2, &record), FLIGHT_READ);
    record_expect(&record);
    flight_write(&flight, 2, &text);
    ck_assert_ptr_nonnull(
        strstr(text.chars, "\"operations\":[{\"number\":2,\"state\":\"started\""));
    ck_assert_ptr_nonnull(strstr(text.chars, "{\"number\":3,\"state\":\"torn\"}]"));
    text_fini(&text);
}
END_TEST

static void records_write(const struct flight *flight)
{
    for (;;) {
        uint64_t number = record_add(flight);

        flight_end(flight, number, FLIGHT_DONE, 2 * number);
    }
}

/* Every record that is read while another process writes is one that it has written. */
static uint64_t records_check(const struct flight *flight)
{
    struct flight_record record;
    uint64_t last = flight_last(flight);
    uint64_t n_read = 0;

    for (uint64_t i = last; i > 0 && i + N_RECORDS > last; i--) {
        if (flight_read(flight, i, &record) == FLIGHT_READ) {
            record_expect(&record);
            n_read++;
        }
    }
    return n_read;
}

START_TEST(flight_read_while_another_process_writes_is_never_mixed)
{
    struct flight flight = ring_make();
    uint64_t end_ms = ranks_now_ms() + 300;
    uint64_t n_read = 0;
    int wait_status;
    pid_t writer = fork();

    if (writer == 0) {
        records_write(&flight);
    }
    while (ranks_now_ms() < end_ms || n_read == 0) {
        n_read += records_check(&flight);
    }
    ck_assert_int_eq(kill(writer, SIGKILL), 0);
    ck_assert_int_eq(waitpid(writer, &wait_status, 0), writer);
    /* What the dead one has left can be read; at most the record that it was at is torn. */
    ck_assert_uint_ge(records_check(&flight), N_RECORDS - 1);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("flight");
    TCase *tcase = tcase_create("flight");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, flight_begin_without_a_ring_records_nothing);
    tcase_add_test(tcase, flight_end_completes_its_record);
    tcase_add_test(tcase, flight_begin_overwrites_the_oldest);
    tcase_add_loop_test(tcase, flight_read_of_a_long_name_cuts_no_character, 0, 16);
    tcase_add_loop_test(tcase, flight_read_of_a_half_written_record_is_torn, 0, 2);
    tcase_add_loop_test(tcase, flight_read_while_another_process_writes_is_never_mixed, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
