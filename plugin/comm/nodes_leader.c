/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, every leader but the root: its uplink, from the first try to the farewell. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nodes_internal.h"
#include "comm/rendezvous.h"

#define ANSWER_MS 700u /* so long the root may take to say whose fault it is */

/* ------------------------------------------------------------------------------ what it hears */

static void leader_joined(void *user)
{
    struct nodes *nodes = user;

    uplink_send(nodes->uplink, NODES_JOIN, &nodes->own, sizeof(nodes->own));
    nodes->n_told = 0;
    leader_arrived(nodes);
}

/* The mailboxes of this node are where they were made. */
static bool is_foreign(void *user, uint32_t rank)
{
    const struct nodes *nodes = user;

    for (uint32_t i = 0; i < nodes->n_locals; i++) {
        if (nodes->locals[i].rank == rank) {
            return false;
        }
    }
    return true;
}

static void board_take(struct nodes *nodes, const uint8_t *bytes, uint64_t n_bytes)
{
    struct control *control = atomic_load(&nodes->job->control);
    uint64_t exchange = atomic_load(&control->n_boards) + 1;
    uint64_t told = 0;
    struct hsdp_error err;
    uint32_t n;

    memcpy(&told, bytes, n_bytes < sizeof(told) ? 0 : sizeof(told));
    if (told != exchange || exchange > nodes->n_sent ||
        !board_read(control, bytes, n_bytes, is_foreign, nodes, &n) ||
        n + nodes->n_locals != control->world_ranks) {
        error_set(&err, HSDP_ERR_MISMATCH,
                  "exchange %" PRIu64 ": what rank 0 sent is not whole (exchange %" PRIu64 ")",
                  exchange, told);
        error_where(&err, "exchange", NULL, NULL);
        nodes_raise(nodes, nodes->job->launch.rank, &err);
        return;
    }
    if (board_is_farewell(nodes, exchange)) {
        nodes->is_closing = true;
        uplink_send(nodes->uplink, NODES_DONE, &exchange, sizeof(exchange));
    }
    board_arrived(nodes, exchange);
}

/* What the ranks of this node do that the others wait for. */
static void positions_send(struct nodes *nodes, const uint8_t *bytes, uint64_t n_bytes)
{
    struct nodes_positions positions;
    struct nodes_expired probe;

    if (n_bytes != sizeof(probe)) {
        return;
    }
    memcpy(&probe, bytes, sizeof(probe));
    positions_fill(nodes, probe.exchange, &positions);
    uplink_send(nodes->uplink, NODES_POSITIONS, &positions, sizeof(positions));
}

static void leader_received(void *user, uint32_t kind, const uint8_t *bytes, uint64_t n_bytes)
{
    struct nodes *nodes = user;
    struct nodes_failed failed;

    if (kind == NODES_FAILED && nodes_failed_read(bytes, n_bytes, &failed)) {
        nodes->is_failure_told = true; /* by the root, to all */
        if (nodes->is_relaying) {
            nodes_raise(nodes, failed.reporter, &failed.error);
        } else {
            nodes_fail_own(nodes, failed.reporter, &failed.error);
        }
    } else if (kind == NODES_WELCOME && nodes->status == HSDP_PENDING) {
        nodes->status = HSDP_OK;
    } else if (kind == NODES_BOARD && nodes->is_relaying) {
        board_take(nodes, bytes, n_bytes);
    } else if (kind == NODES_PROBE && nodes->is_relaying) {
        positions_send(nodes, bytes, n_bytes);
    }
}

static void leader_ended(void *user, enum net_end why)
{
    struct nodes *nodes = user;
    struct hsdp_error err;

    if (nodes->is_closing) {
        return;
    }
    if (why == NET_END_MEMORY && !nodes->is_relaying) {
        error_set(&err, HSDP_ERR_NO_MEMORY,
                  "connect: rank %" PRIu32 " has no memory for what rank 0 says",
                  nodes->job->launch.rank);
        nodes_fail_own(nodes, nodes->job->launch.rank, &err);
        return;
    }
    error_set(&err, HSDP_ERR_PEER_LOST, "%speer lost: rank 0, the root, %s",
              nodes->is_relaying ? "" : "connect: ",
              why == NET_END_CLOSED ? "left the job" : net_end_text(why));
    error_missing_one(&err, 0);
    if (nodes->is_relaying) {
        nodes_raise(nodes, nodes->job->launch.rank, &err);
    } else {
        nodes_fail_own(nodes, nodes->job->launch.rank, &err);
    }
}

/* -------------------------------------------------------------------------------- meeting */

int32_t leader_open(struct nodes *nodes, const uint8_t *token, struct hsdp_error *reterr)
{
    const struct hsdp_job *job = nodes->job;
    const struct launch_place *place = &job->launch.place;
    const char *hosts[MEETING_POINT_MAX_ADDRESSES] = {place->host};
    struct uplink_spec spec = {.hosts = hosts, .n_hosts = 1, .token = token};

    spec.ports = place->ports;
    spec.n_ports = place->n_ports;
    if (job->host.kv_get != NULL) {
        spec.ports = &job->point.port;
        spec.n_ports = 1;
        spec.n_hosts = job->point.n_addresses;
        for (uint32_t i = 0; i < spec.n_hosts; i++) {
            hosts[i] = job->point.addresses[i];
        }
        if (job->point.port == 0) {
            return error_set(reterr, HSDP_ERR_MISMATCH,
                             "connect: rank 0 expects all ranks on its host; rank %" PRIu32
                             " is on another",
                             job->launch.rank);
        }
    }
    rendezvous_net_identity(job, &spec.self);
    spec.max_message_bytes = nodes_max_bytes(job->launch.world_ranks);
    spec.silence_ns = nodes->silence_ns;
    spec.beat_ns = nodes_beat_ns(nodes);
    spec.events = (struct uplink_events){
        .joined = leader_joined, .received = leader_received, .ended = leader_ended, .user = nodes};
    return uplink_open(&spec, &nodes->uplink, reterr);
}

void leader_arrived(struct nodes *nodes)
{
    if (uplink_state(nodes->uplink) == UPLINK_JOINED && nodes->n_told < nodes->n_locals) {
        uplink_send(nodes->uplink, NODES_RANKS, &nodes->locals[nodes->n_told],
                    (nodes->n_locals - nodes->n_told) * sizeof(nodes->locals[0]));
        nodes->n_told = nodes->n_locals;
    }
}

/* The root does not answer, or was never found. */
static void expiry_give(struct nodes *nodes)
{
    const char *seconds = settings_text(&nodes->job->settings, "init_timeout_seconds");
    struct hsdp_error err;
    char trouble[300];

    if (uplink_state(nodes->uplink) == UPLINK_JOINED) {
        error_set(&err, HSDP_ERR_TIMEOUT,
                  "connect: timeout after %s s: rank 0 at %s does not answer", seconds,
                  uplink_address(nodes->uplink));
    } else {
        uplink_trouble(nodes->uplink, trouble, sizeof(trouble));
        error_set(&err, HSDP_ERR_TIMEOUT, "connect: timeout after %s s: no sign of rank 0: %s%s",
                  seconds, trouble[0] == '\0' ? nodes->job->launch.place.host : trouble,
                  nodes->has_token ? "" : "; " NODES_NO_TOKEN);
    }
    error_missing_one(&err, 0);
    err.waited_ms = rendezvous_limit_ms(nodes->job);
    nodes_fail_own(nodes, nodes->job->launch.rank, &err);
}

void leader_expire(struct nodes *nodes)
{
    struct nodes_expired expired = {.rank = nodes->job->launch.rank};

    if (nodes->expired_ns != 0) {
        return;
    }
    nodes->expired_ns = clock_now_ns();
    if (uplink_state(nodes->uplink) != UPLINK_JOINED ||
        !uplink_send(nodes->uplink, NODES_EXPIRED, &expired, sizeof(expired))) {
        expiry_give(nodes);
    }
}

void leader_step(struct nodes *nodes)
{
    if (nodes->status == HSDP_PENDING && nodes->expired_ns != 0 &&
        clock_now_ns() >= nodes->expired_ns + ANSWER_MS * CLOCK_NS_PER_MS) {
        expiry_give(nodes);
    }
}

bool leader_fail(struct nodes *nodes, const struct nodes_failed *failed)
{
    enum uplink_state state = nodes->uplink == NULL ? UPLINK_ENDED : uplink_state(nodes->uplink);

    if (state == UPLINK_JOINED && !nodes->is_failure_told) {
        nodes->is_failure_told = true;
        uplink_send(nodes->uplink, NODES_FAILED, failed, sizeof(*failed));
    }
    return state == UPLINK_TRYING;
}

/* -------------------------------------------------------------------------------- afterwards */

static void board_send(struct nodes *nodes)
{
    struct control *control = atomic_load(&nodes->job->control);
    struct nodes_buffer buffer = {0};
    uint32_t ranks[LAUNCH_MAX_RANKS];
    struct hsdp_error err;

    for (uint32_t i = 0; i < control->n_ranks; i++) {
        ranks[i] = control->ranks[i].rank;
    }
    board_write(&buffer, control, ++nodes->n_sent, ranks, control->n_ranks);
    if (buffer.is_failed) {
        error_set(&err, HSDP_ERR_NO_MEMORY, "exchange %" PRIu64 ": no memory to send it to rank 0",
                  nodes->n_sent);
        nodes_raise(nodes, nodes->job->launch.rank, &err);
    } else {
        uplink_send(nodes->uplink, NODES_BOARD, buffer.bytes, buffer.n_bytes);
    }
    nodes_buffer_fini(&buffer);
}

void leader_relay(struct nodes *nodes)
{
    struct control *control = atomic_load(&nodes->job->control);
    struct nodes_expired question;

    while (!nodes->is_closing && nodes->n_sent == atomic_load(&control->n_boards) &&
           node_absent(nodes, nodes->n_sent + 1) == 0) {
        board_send(nodes);
    }
    if (node_question(nodes, &question)) {
        uplink_send(nodes->uplink, NODES_EXPIRED, &question, sizeof(question));
    }
}
