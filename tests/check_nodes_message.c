/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between nodes: what is written is read, and what is broken does no harm. */
#include "comm/nodes_message.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

#define MAX_WORLD 24u
#define N_WORLDS  200

/* -------------------------------------------------------------------------------- random worlds */

/* Each test draws its own numbers, the same in every run. */
static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*random >> 33) % n;
}

struct world {
    uint64_t random;
    uint64_t exchange;
    uint32_t world_ranks;
    uint64_t speakers; /* mask of the ranks that the message is of */
    uint64_t writable; /* mask of those that may be written */
    struct control *from;
    struct control *to;
    uint64_t control_bytes;
    uint8_t *before; /* a copy of `to` */
    struct nodes_buffer buffer;
    uint8_t *message; /* of exactly that size, so that nothing beyond it is read unseen */
};

static void mailbox_fill(struct world *world, uint32_t rank)
{
    struct mailbox *mailbox = control_mailbox(world->from, world->exchange, rank);

    if (rank > 0 && draw(&world->random, 3) != 0) { /* most say what the one before says */
        *mailbox = *control_mailbox(world->from, world->exchange, rank - 1);
        return;
    }
    memset(mailbox, 0, sizeof(*mailbox));
    memcpy(mailbox->operation, "operation.x", 12);
    mailbox->operation[10] = (char)('a' + draw(&world->random, 3));
    mailbox->is_opinion = draw(&world->random, 2);
    mailbox->n_bytes = draw(&world->random, 4) * draw(&world->random, JOB_EXCHANGE_MAX_BYTES / 3);
    for (uint32_t i = 0; i < mailbox->n_bytes; i++) {
        mailbox->bytes[i] = (uint8_t)draw(&world->random, 256);
    }
}

static void message_copy(struct world *world)
{
    free(world->message);
    world->message = malloc(world->buffer.n_bytes);
    memcpy(world->message, world->buffer.bytes, world->buffer.n_bytes);
}

static void world_init(struct world *world, uint64_t seed)
{
    struct control_size size = {.n_ranks = 1, .n_records = 16};
    uint32_t ranks[MAX_WORLD];
    uint32_t n = 0;

    memset(world, 0, sizeof(*world));
    world->random = seed;
    world->exchange = 1 + draw(&world->random, 1000);
    world->world_ranks = 2 + draw(&world->random, MAX_WORLD - 1);
    size.world_ranks = world->world_ranks;
    world->control_bytes = control_bytes(&size);
    ck_assert_int_eq(control_map(-1, &size, &world->from, NULL), HSDP_OK);
    ck_assert_int_eq(control_map(-1, &size, &world->to, NULL), HSDP_OK);
    for (uint32_t rank = 0; rank < world->world_ranks; rank++) {
        mailbox_fill(world, rank);
        if (draw(&world->random, 4) != 0) {
            world->speakers |= UINT64_C(1) << rank;
            ranks[n++] = rank;
        }
        world->writable |= (uint64_t)(draw(&world->random, 3) != 0) << rank;
        memset(control_mailbox(world->to, 0, rank), 0xa5, sizeof(struct mailbox));
        memset(control_mailbox(world->to, 1, rank), 0xa5, sizeof(struct mailbox));
    }
    board_write(&world->buffer, world->from, world->exchange, ranks, n);
    ck_assert(!world->buffer.is_failed);
    ck_assert_uint_le(world->buffer.n_bytes, nodes_max_bytes(world->world_ranks));
    message_copy(world);
    world->before = malloc(world->control_bytes);
    memcpy(world->before, world->to, world->control_bytes);
}

static void world_fini(struct world *world)
{
    nodes_buffer_fini(&world->buffer);
    free(world->message);
    free(world->before);
    control_unmap(world->from);
    control_unmap(world->to);
}

static bool is_writable(void *user, uint32_t rank)
{
    const struct world *world = user;

    ck_assert_uint_lt(rank, world->world_ranks);
    return (world->writable >> rank & 1u) != 0;
}

/* Whatever came: nothing but the mailboxes that may be written has changed. */
static void rest_assert(const struct world *world)
{
    for (uint32_t rank = 0; rank < world->world_ranks; rank++) {
        for (uint64_t parity = 0; parity < 2 && (world->writable >> rank & 1u) != 0; parity++) {
            const uint8_t *mailbox = (const uint8_t *)control_mailbox(world->to, parity, rank);

            memcpy(world->before + (mailbox - (const uint8_t *)world->to), mailbox,
                   sizeof(struct mailbox));
        }
    }
    ck_assert_int_eq(memcmp(world->before, world->to, world->control_bytes), 0);
}

/* ------------------------------------------------------------------------------------- boards */

static void mailbox_assert(const struct mailbox *got, const struct mailbox *sent)
{
    ck_assert_str_eq(got->operation, sent->operation);
    ck_assert_uint_eq(got->is_opinion, sent->is_opinion);
    ck_assert_uint_eq(got->n_bytes, sent->n_bytes);
    ck_assert_int_eq(memcmp(got->bytes, sent->bytes, sent->n_bytes), 0);
}

START_TEST(board_read_gets_what_was_written_and_writes_nothing_else)
{
    struct world world;
    uint64_t written;
    uint32_t n;

    world_init(&world, (uint64_t)_i);
    written = world.speakers & world.writable;
    ck_assert(board_read(world.to, world.message, world.buffer.n_bytes, is_writable, &world, &n));
    ck_assert_uint_eq(n, (uint32_t)__builtin_popcountll(written));
    for (uint32_t rank = 0; rank < world.world_ranks; rank++) {
        if ((written >> rank & 1u) != 0) {
            mailbox_assert(control_mailbox(world.to, world.exchange, rank),
                           control_mailbox(world.from, world.exchange, rank));
        }
    }
    world.writable = written;
    rest_assert(&world);
    world_fini(&world);
}
END_TEST

/* Where it is cut between two runs it is whole, but tells of fewer ranks: callers count them. */
START_TEST(board_read_of_a_part_is_refused_or_counts_less)
{
    struct world world;

    world_init(&world, (uint64_t)_i);
    world.writable = UINT64_MAX;
    for (uint64_t n_bytes = 0; n_bytes < world.buffer.n_bytes; n_bytes++) {
        uint8_t *part = malloc(n_bytes + 1);
        uint32_t n;

        memcpy(part + 1, world.message, n_bytes); /* its end is the end of the memory */
        if (board_read(world.to, part + 1, n_bytes, is_writable, &world, &n)) {
            ck_assert_uint_lt(n, (uint32_t)__builtin_popcountll(world.speakers));
        }
        free(part);
    }
    rest_assert(&world);
    world_fini(&world);
}
END_TEST

static void message_break(struct world *world)
{
    uint32_t n_changes = 1 + draw(&world->random, 4);

    for (uint32_t i = 0; i < n_changes; i++) {
        uint32_t at = draw(&world->random, (uint32_t)world->buffer.n_bytes);

        world->message[at] = draw(&world->random, 2) == 0 ? (uint8_t)draw(&world->random, 256)
                                                          : (uint8_t)(0xff * (at & 1u));
    }
}

START_TEST(board_read_of_broken_bytes_writes_nothing_else)
{
    struct world world;

    world_init(&world, (uint64_t)_i);
    for (int i = 0; i < 200; i++) {
        uint32_t n;

        message_copy(&world);
        message_break(&world);
        if (board_read(world.to, world.message, world.buffer.n_bytes, is_writable, &world, &n)) {
            for (uint32_t rank = 0; rank < world.world_ranks; rank++) {
                bool is_written = (world.writable >> rank & 1u) != 0;
                const struct mailbox *mailbox = control_mailbox(world.to, world.exchange, rank);

                ck_assert(!is_written || mailbox->n_bytes <= JOB_EXCHANGE_MAX_BYTES ||
                          mailbox->n_bytes == 0xa5a5a5a5u);
            }
        }
    }
    rest_assert(&world);
    world_fini(&world);
}
END_TEST

static struct control *control_of(uint32_t world_ranks)
{
    struct control_size size = {.n_ranks = 1, .world_ranks = world_ranks, .n_records = 16};
    struct control *control = NULL;

    ck_assert_int_eq(control_map(-1, &size, &control, NULL), HSDP_OK);
    return control;
}

static bool is_any(void *user, uint32_t rank)
{
    (void)rank;
    return user == NULL;
}

/* What each part of a run may not say. */
static const struct nodes_run bad_runs[] = {
    {.first = 4, .n_ranks = 1},
    {.first = 0, .n_ranks = 5},
    {.first = 3, .n_ranks = 2},
    {.first = 1, .n_ranks = UINT32_MAX},
    {.first = UINT32_MAX, .n_ranks = 2},
    {.first = 0, .n_ranks = 0},
    {.first = 0, .n_ranks = 1, .n_bytes = 17},
    {.first = 0, .n_ranks = 1, .n_bytes = JOB_EXCHANGE_MAX_BYTES + 1},
    {.first = 0, .n_ranks = 1, .n_bytes = UINT32_MAX},
};

START_TEST(board_read_of_a_run_beyond_the_world_is_refused)
{
    struct control *control = control_of(4);
    struct nodes_buffer buffer = {0};
    uint8_t bytes[2000] = {0};
    uint64_t n_bytes = bad_runs[_i].n_bytes == JOB_EXCHANGE_MAX_BYTES + 1 ? sizeof(bytes) : 16;
    uint32_t n;

    nodes_buffer_add(&buffer, &(uint64_t){1}, 8);
    nodes_buffer_add(&buffer, &bad_runs[_i], sizeof(bad_runs[_i]));
    nodes_buffer_add(&buffer, bytes, n_bytes);
    ck_assert(!board_read(control, buffer.bytes, buffer.n_bytes, is_any, NULL, &n));
    nodes_buffer_fini(&buffer);
    control_unmap(control);
}
END_TEST

START_TEST(board_read_ends_the_operation)
{
    struct control *control = control_of(4);
    struct nodes_run run = {.first = 2, .n_ranks = 1};
    struct nodes_buffer buffer = {0};
    uint32_t n;

    memset(run.operation, 'x', sizeof(run.operation));
    nodes_buffer_add(&buffer, &(uint64_t){1}, 8);
    nodes_buffer_add(&buffer, &run, sizeof(run));
    ck_assert(board_read(control, buffer.bytes, buffer.n_bytes, is_any, NULL, &n));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(strlen(control_mailbox(control, 1, 2)->operation), 31);
    nodes_buffer_fini(&buffer);
    control_unmap(control);
}
END_TEST

/* In shared memory another rank may break one; it is carried as far as it is legal. */
START_TEST(board_write_of_a_mailbox_of_no_legal_size_ends)
{
    struct control *control = control_of(2);
    struct nodes_buffer buffer = {0};
    const uint32_t ranks[] = {0, 1};

    control_mailbox(control, 1, 0)->n_bytes = UINT32_MAX;
    control_mailbox(control, 1, 1)->n_bytes = UINT32_MAX;
    board_write(&buffer, control, 1, ranks, 2);
    ck_assert(!buffer.is_failed);
    ck_assert_uint_le(buffer.n_bytes, nodes_max_bytes(2));
    nodes_buffer_fini(&buffer);
    control_unmap(control);
}
END_TEST

/* -------------------------------------------------------------------------------------- others */

START_TEST(nodes_failed_read_ends_texts_and_wants_a_failure)
{
    struct nodes_failed sent;
    struct nodes_failed got;

    memset(&sent, 'x', sizeof(sent));
    sent.error.status = HSDP_ERR_TIMEOUT;
    ck_assert(nodes_failed_read((const uint8_t *)&sent, sizeof(sent), &got));
    ck_assert_uint_eq(strlen(got.error.message), sizeof(got.error.message) - 1);
    ck_assert_uint_eq(strlen(got.error.operation), sizeof(got.error.operation) - 1);
    ck_assert(!nodes_failed_read((const uint8_t *)&sent, sizeof(sent) - 1, &got));
    ck_assert(!nodes_failed_read((const uint8_t *)&sent, 0, &got));
    sent.error.status = HSDP_OK;
    ck_assert(!nodes_failed_read((const uint8_t *)&sent, sizeof(sent), &got));
}
END_TEST

START_TEST(nodes_array_wants_whole_elements)
{
    uint64_t n = 7;

    ck_assert(nodes_array(24, 8, &n));
    ck_assert_uint_eq(n, 3);
    ck_assert(nodes_array(0, 8, &n));
    ck_assert_uint_eq(n, 0);
    ck_assert(!nodes_array(25, 8, &n));
}
END_TEST

/* The least world's messages are no longer than its connections let pass. */
START_TEST(nodes_max_bytes_holds_every_message_of_two_ranks)
{
    ck_assert_uint_ge(nodes_max_bytes(2), sizeof(struct nodes_join));
    ck_assert_uint_ge(nodes_max_bytes(2), sizeof(struct nodes_failed));
    ck_assert_uint_ge(nodes_max_bytes(2), sizeof(struct nodes_positions));
    ck_assert_uint_ge(nodes_max_bytes(2), LAUNCH_MAX_RANKS * sizeof(struct nodes_rank));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nodes_message");
    TCase *tcase = tcase_create("nodes_message");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, board_read_gets_what_was_written_and_writes_nothing_else, 0,
                        N_WORLDS);
    tcase_add_loop_test(tcase, board_read_of_a_part_is_refused_or_counts_less, 0, 10);
    tcase_add_loop_test(tcase, board_read_of_broken_bytes_writes_nothing_else, 0, N_WORLDS / 4);
    tcase_add_loop_test(tcase, board_read_of_a_run_beyond_the_world_is_refused, 0,
                        sizeof(bad_runs) / sizeof(bad_runs[0]));
    tcase_add_test(tcase, board_read_ends_the_operation);
    tcase_add_test(tcase, board_write_of_a_mailbox_of_no_legal_size_ends);
    tcase_add_test(tcase, nodes_failed_read_ends_texts_and_wants_a_failure);
    tcase_add_test(tcase, nodes_array_wants_whole_elements);
    tcase_add_test(tcase, nodes_max_bytes_holds_every_message_of_two_ranks);
    suite_add_tcase(suite, tcase);
    return suite;
}
