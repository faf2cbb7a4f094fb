/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, the root once all have met: boards, failures and verdicts go through it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nodes_internal.h"

#define VERDICT_MS 400u /* so long leaders may take to say what their ranks do */

/* ------------------------------------------------------------------------------------ boards */

static uint64_t exchange_open(const struct nodes *nodes)
{
    return atomic_load(&atomic_load(&nodes->job->control)->n_boards) + 1;
}

struct writer {
    const struct nodes *nodes;
    uint32_t index;
};

static bool is_of_node(void *user, uint32_t rank)
{
    const struct writer *writer = user;

    return writer->nodes->owners[rank] == writer->index;
}

static void board_take(struct nodes *nodes, uint32_t index, const uint8_t *bytes, uint64_t n_bytes)
{
    struct node *node = &nodes->nodes[index];
    struct writer writer = {.nodes = nodes, .index = index};
    uint64_t exchange = 0;
    struct hsdp_error err;
    uint32_t n;

    memcpy(&exchange, bytes, n_bytes < sizeof(exchange) ? 0 : sizeof(exchange));
    if (exchange == exchange_open(nodes) && exchange == node->n_boards + 1 &&
        board_read(atomic_load(&nodes->job->control), bytes, n_bytes, is_of_node, &writer, &n) &&
        n == node->n_ranks) {
        node->n_boards = exchange;
        return;
    }
    error_set(&err, HSDP_ERR_MISMATCH,
              "exchange %" PRIu64 ": what the node of rank %" PRIu32
              " sent is not whole (exchange %" PRIu64 ")",
              exchange_open(nodes), node->leader, exchange);
    error_where(&err, "exchange", NULL, NULL);
    nodes_raise(nodes, nodes->job->launch.rank, &err);
}

static bool all_have(const struct nodes *nodes, uint64_t exchange)
{
    for (uint32_t i = 0; i < nodes->n_nodes; i++) {
        if (nodes->nodes[i].n_boards < exchange && nodes->nodes[i].n_ranks > 0) {
            return false;
        }
    }
    return true;
}

static bool all_are_done(const struct nodes *nodes)
{
    for (uint32_t i = 1; i < nodes->n_nodes; i++) {
        if (!nodes->nodes[i].is_done && !nodes->nodes[i].has_ended) {
            return false;
        }
    }
    return true;
}

static void board_give(struct nodes *nodes, uint64_t exchange)
{
    struct control *control = atomic_load(&nodes->job->control);
    uint32_t *ranks = malloc(control->world_ranks * sizeof(*ranks));
    struct nodes_buffer buffer = {0};
    struct hsdp_error err;

    for (uint32_t rank = 0; ranks != NULL && rank < control->world_ranks; rank++) {
        ranks[rank] = rank;
    }
    if (ranks != NULL) {
        board_write(&buffer, control, exchange, ranks, control->world_ranks);
    }
    if (ranks == NULL || buffer.is_failed) {
        error_set(&err, HSDP_ERR_NO_MEMORY, "exchange %" PRIu64 ": no memory to send it to all",
                  exchange);
        nodes_raise(nodes, nodes->job->launch.rank, &err);
    } else {
        root_tell(nodes, NODES_BOARD, buffer.bytes, buffer.n_bytes);
        nodes->n_sent = exchange;
        nodes->waits_for_done = board_is_farewell(nodes, exchange);
        if (!nodes->waits_for_done) {
            board_arrived(nodes, exchange);
        }
    }
    nodes_buffer_fini(&buffer);
    free(ranks);
}

static void boards_go_on(struct nodes *nodes)
{
    uint64_t exchange = exchange_open(nodes);

    if (nodes->waits_for_done) {
        if (all_are_done(nodes)) {
            nodes->waits_for_done = false;
            nodes->is_closing = true;
            board_arrived(nodes, exchange);
        }
        return;
    }
    if (failure_first(nodes->job) != NULL || nodes->n_sent >= exchange) {
        return;
    }
    if (node_absent(nodes, exchange) == 0) {
        nodes->nodes[0].n_boards = exchange;
    }
    if (all_have(nodes, exchange)) {
        board_give(nodes, exchange);
    }
}

/* ---------------------------------------------------------------------------------- verdicts */

static void text_add_part(struct verdict *verdict, const char *part)
{
    size_t n_bytes = strlen(verdict->text);

    snprintf(verdict->text + n_bytes, sizeof(verdict->text) - n_bytes, "%s%s",
             n_bytes == 0 ? "" : "; ", part);
}

static void positions_add(struct nodes *nodes, uint32_t index,
                          const struct nodes_positions *positions)
{
    bool is_any = false;

    for (uint32_t i = 0; i < positions->n_ranks; i++) {
        uint32_t rank = positions->ranks[i];

        if (rank < nodes->own.hello.world_ranks && nodes->owners[rank] == index) {
            rank_set_add(&nodes->verdict.missing, rank);
            is_any = true;
        }
    }
    if (is_any) {
        text_add_part(&nodes->verdict, positions->text);
    }
}

static void positions_take(struct nodes *nodes, uint32_t index, const uint8_t *bytes,
                           uint64_t n_bytes)
{
    struct node *node = &nodes->nodes[index];
    struct nodes_positions positions;

    if (!nodes->verdict.is_open || !node->is_asked || n_bytes != sizeof(positions)) {
        return;
    }
    node->is_asked = false;
    memcpy(&positions, bytes, sizeof(positions));
    positions.text[sizeof(positions.text) - 1] = '\0';
    if (positions.n_ranks <= LAUNCH_MAX_RANKS) {
        positions_add(nodes, index, &positions);
    }
}

void root_ask(struct nodes *nodes, const struct nodes_expired *cause)
{
    struct verdict *verdict = &nodes->verdict;
    struct nodes_positions own;

    if (verdict->is_open || cause->exchange != exchange_open(nodes) ||
        (nodes->n_sent >= cause->exchange && !nodes->waits_for_done)) {
        return;
    }
    rank_set_fini(&verdict->missing);
    if (!rank_set_init(&verdict->missing, nodes->own.hello.world_ranks)) {
        return; /* who asked tells what it knows itself */
    }
    verdict->is_open = true;
    verdict->until_ns = clock_deadline_ns(VERDICT_MS);
    verdict->cause = *cause;
    verdict->cause.operation[sizeof(verdict->cause.operation) - 1] = '\0';
    verdict->text[0] = '\0';
    positions_fill(nodes, cause->exchange, &own);
    positions_add(nodes, 0, &own);
    for (uint32_t i = 1; i < nodes->n_nodes; i++) {
        struct node *node = &nodes->nodes[i];

        if (node->has_ended || node->is_done) {
            continue;
        }
        if (nodes->waits_for_done) { /* it has been told all it needs, and does not go on */
            node->is_asked = true;
        } else if (node->n_boards < cause->exchange) {
            node->is_asked = hub_send(nodes->hub, node->peer, NODES_PROBE, cause, sizeof(*cause));
        }
    }
}

/* A leader that has not answered stands for all of its ranks. */
static void silent_add(struct nodes *nodes)
{
    for (uint32_t i = 1; i < nodes->n_nodes; i++) {
        struct node *node = &nodes->nodes[i];
        char part[NODES_HOST_BYTES + 64];

        if (!node->is_asked) {
            continue;
        }
        node->is_asked = false;
        for (uint32_t r = 0; r < node->n_ranks; r++) {
            rank_set_add(&nodes->verdict.missing, node->ranks[r]);
        }
        snprintf(part, sizeof(part), "rank %" PRIu32 ", which leads %s, does not answer",
                 node->leader, node->host);
        text_add_part(&nodes->verdict, part);
    }
}

static void verdict_give(struct nodes *nodes)
{
    struct verdict *verdict = &nodes->verdict;
    struct hsdp_error err;

    verdict->is_open = false;
    if (verdict->missing.n_ranks == 0) {
        return; /* they have come meanwhile */
    }
    error_set(&err, HSDP_ERR_TIMEOUT, "%s: timeout after %.1f s on rank %" PRIu32 ": no sign of %s",
              verdict->cause.operation, (double)verdict->cause.waited_ns / 1e9, verdict->cause.rank,
              verdict->text);
    rank_set_blame(&verdict->missing, &err);
    error_where(&err, verdict->cause.operation, NULL, NULL);
    err.waited_ms = verdict->cause.waited_ns / CLOCK_NS_PER_MS;
    nodes_raise(nodes, verdict->cause.rank, &err);
}

static void verdict_go_on(struct nodes *nodes)
{
    bool is_asking = false;

    if (!nodes->verdict.is_open) {
        return;
    }
    for (uint32_t i = 1; i < nodes->n_nodes; i++) {
        is_asking |= nodes->nodes[i].is_asked && !nodes->nodes[i].has_ended;
    }
    if (!is_asking || clock_now_ns() >= nodes->verdict.until_ns) {
        silent_add(nodes);
        verdict_give(nodes);
    }
}

/* ------------------------------------------------------------------------------------ events */

void root_received(struct nodes *nodes, uint32_t index, uint32_t kind, const uint8_t *bytes,
                   uint64_t n_bytes)
{
    struct nodes_failed failed;
    struct nodes_expired expired;

    if (kind == NODES_BOARD) {
        board_take(nodes, index, bytes, n_bytes);
    } else if (kind == NODES_FAILED && nodes_failed_read(bytes, n_bytes, &failed)) {
        nodes_raise(nodes, failed.reporter, &failed.error);
    } else if (kind == NODES_EXPIRED && n_bytes == sizeof(expired)) {
        memcpy(&expired, bytes, sizeof(expired));
        root_ask(nodes, &expired);
    } else if (kind == NODES_POSITIONS) {
        positions_take(nodes, index, bytes, n_bytes);
    } else if (kind == NODES_DONE) {
        nodes->nodes[index].is_done = true;
    }
}

void root_lost(struct nodes *nodes, uint32_t index, enum net_end why)
{
    const struct node *node = &nodes->nodes[index];
    struct rank_set lost;
    struct hsdp_error err;
    char ranks[160];

    if (nodes->is_closing || nodes->waits_for_done ||
        !rank_set_init(&lost, nodes->own.hello.world_ranks)) {
        return;
    }
    /* A connection that ended is its process; silence is the host, or the way to it. */
    for (uint32_t i = 0; why == NET_END_SILENT && i < node->n_ranks; i++) {
        rank_set_add(&lost, node->ranks[i]);
    }
    rank_set_add(&lost, node->leader);
    rank_set_text(&lost, ranks, sizeof(ranks));
    error_set(&err, HSDP_ERR_PEER_LOST, "peer lost: %s on %s: %s", ranks, node->host,
              why == NET_END_CLOSED ? "left the job" : net_end_text(why));
    rank_set_blame(&lost, &err);
    rank_set_fini(&lost);
    nodes_raise(nodes, nodes->job->launch.rank, &err);
}

void root_relay(struct nodes *nodes)
{
    struct nodes_expired question;

    boards_go_on(nodes);
    if (node_question(nodes, &question)) {
        root_ask(nodes, &question);
    }
    verdict_go_on(nodes);
}
