/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes: what both sides do, the root and the leaders of the other nodes. */
#include "comm/nodes.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nodes_internal.h"
#include "comm/rendezvous.h"
#include "net/token.h"

#define LOOK_NS UINT64_C(50000000) /* what nobody tells the watchdog is looked at so often */

/* ----------------------------------------------------------------------------- open, close */

static int32_t token_take(const struct hsdp_job *job, uint8_t ret_token[NET_TOKEN_BYTES],
                          bool *ret_is_there, struct hsdp_error *reterr)
{
    const char *path = settings_text(&job->settings, "token_file");

    *ret_is_there = path != NULL;
    return path == NULL ? HSDP_OK : token_read(path, ret_token, reterr);
}

int32_t nodes_open(struct hsdp_job *job, struct nodes **ret, struct hsdp_error *reterr)
{
    struct nodes *nodes = calloc(1, sizeof(*nodes));
    uint8_t token[NET_TOKEN_BYTES];
    bool has_token = false;
    int32_t status;

    if (nodes == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: no memory for %zu bytes",
                         sizeof(*nodes));
    }
    nodes->job = job;
    nodes->is_root = job->launch.rank == 0;
    nodes->status = HSDP_PENDING;
    nodes->linger_ns = UINT64_MAX;
    rendezvous_hello(job, &nodes->own.hello);
    gethostname(nodes->own.host, sizeof(nodes->own.host) - 1);
    status = token_take(job, token, &has_token, reterr);
    if (status == HSDP_OK) {
        status = nodes->is_root ? root_open(nodes, has_token ? token : NULL, reterr)
                                : leader_open(nodes, has_token ? token : NULL, reterr);
    }
    explicit_bzero(token, sizeof(token));
    if (status != HSDP_OK) {
        nodes_close(nodes);
        return status;
    }
    *ret = nodes;
    return HSDP_OK;
}

static void nodes_free(struct nodes *nodes)
{
    root_fini(nodes);
    free(nodes);
}

void nodes_close(struct nodes *nodes)
{
    if (nodes != NULL) {
        hub_close(nodes->hub);
        uplink_close(nodes->uplink);
        nodes_free(nodes);
    }
}

void nodes_close_in_child(struct nodes *nodes)
{
    if (nodes != NULL) {
        hub_close_in_child(nodes->hub);
        uplink_close_in_child(nodes->uplink);
        nodes_free(nodes);
    }
}

uint16_t nodes_port(const struct nodes *nodes)
{
    return nodes->hub == NULL ? 0 : hub_port(nodes->hub);
}

int nodes_fd(const struct nodes *nodes)
{
    if (nodes->hub != NULL) {
        return hub_fd(nodes->hub);
    }
    return nodes->uplink == NULL ? -1 : uplink_fd(nodes->uplink);
}

uint64_t nodes_wake_ns(const struct nodes *nodes)
{
    uint64_t wake_ns = UINT64_MAX;

    if (nodes->hub != NULL) {
        wake_ns = hub_wake_ns(nodes->hub);
    } else if (nodes->uplink != NULL) {
        wake_ns = uplink_wake_ns(nodes->uplink);
    }
    wake_ns = nodes->linger_ns < wake_ns ? nodes->linger_ns : wake_ns;
    if (nodes->verdict.is_open && nodes->verdict.until_ns < wake_ns) {
        wake_ns = nodes->verdict.until_ns;
    }
    return wake_ns;
}

/* Reads and writes what there is; events change the state. */
static void wires_serve(struct nodes *nodes)
{
    struct hsdp_error err;
    int32_t status = HSDP_OK;

    if (nodes->hub != NULL) {
        status = hub_serve(nodes->hub, &err);
    } else if (nodes->uplink != NULL) {
        status = uplink_serve(nodes->uplink, &err);
    }
    if (status != HSDP_OK && nodes->is_relaying) {
        nodes_raise(nodes, nodes->job->launch.rank, &err);
    } else if (status != HSDP_OK) {
        nodes_fail_own(nodes, nodes->job->launch.rank, &err);
    }
}

static bool is_flushed(const struct nodes *nodes)
{
    return (nodes->hub == NULL || hub_is_flushed(nodes->hub)) &&
           (nodes->uplink == NULL || uplink_is_flushed(nodes->uplink));
}

static void flush_within(struct nodes *nodes, uint32_t ms)
{
    uint64_t until_ns = clock_deadline_ns(ms);

    wires_serve(nodes);
    while (!is_flushed(nodes) && clock_now_ns() < until_ns) {
        struct pollfd wire = {.fd = nodes_fd(nodes), .events = POLLIN};

        poll(&wire, 1, clock_left_ms(until_ns, 20));
        wires_serve(nodes);
    }
}

/* ---------------------------------------------------------------------------------- meeting */

void nodes_fail_own(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err)
{
    if (nodes->status >= 0) { /* the first; it may come after the last rank */
        nodes->status = err->status;
        nodes->reporter = reporter;
        nodes->error = *err;
    }
}

void nodes_arrived(struct nodes *nodes, uint32_t rank, uint32_t pid)
{
    struct nodes_rank local = {.rank = rank, .pid = pid};

    if (nodes->n_locals == LAUNCH_MAX_RANKS) {
        return;
    }
    nodes->locals[nodes->n_locals++] = local;
    if (nodes->is_root) {
        root_arrived(nodes, 0, &local);
    } else {
        leader_arrived(nodes);
    }
}

int32_t nodes_meet(struct nodes *nodes, uint32_t *ret_reporter, struct hsdp_error *reterr)
{
    wires_serve(nodes);
    if (nodes->is_root) {
        root_step(nodes);
    } else {
        leader_step(nodes);
    }
    if (nodes->status < 0) {
        *ret_reporter = nodes->reporter;
        *reterr = nodes->error;
    }
    return nodes->status;
}

void nodes_expire(struct nodes *nodes)
{
    if (nodes->status != HSDP_PENDING) {
        return;
    }
    if (nodes->is_root) {
        root_expire(nodes);
    } else {
        leader_expire(nodes);
    }
}

static void failure_send(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err)
{
    struct nodes_failed failed = {.reporter = reporter, .error = *err};

    nodes->is_failure_told = true;
    if (nodes->is_root) {
        root_tell(nodes, NODES_FAILED, &failed, sizeof(failed));
    } else if (nodes->uplink != NULL) {
        uplink_send(nodes->uplink, NODES_FAILED, &failed, sizeof(failed));
    }
}

void nodes_fail(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err, uint32_t ms)
{
    failure_send(nodes, reporter, err);
    flush_within(nodes, ms);
}

/* -------------------------------------------------------------------------------- afterwards */

void nodes_raise(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err)
{
    struct hsdp_error own = *err;

    if (!nodes->is_closing) {
        failure_raise_for(nodes->job, reporter, &own);
    }
}

uint32_t node_absent(const struct nodes *nodes, uint64_t exchange, uint32_t *ret_indices)
{
    struct control *control = atomic_load(&nodes->job->control);
    uint32_t n = 0;

    for (uint32_t i = 0; i < control->n_ranks; i++) {
        if (atomic_load(&control->ranks[i].n_exchanges) < exchange) {
            ret_indices[n++] = i;
        }
    }
    return n;
}

bool node_question(struct nodes *nodes, struct nodes_expired *ret)
{
    struct control *control = atomic_load(&nodes->job->control);
    uint64_t exchange = atomic_load(&control->n_boards) + 1;

    for (uint32_t i = 0; i < control->n_ranks && nodes->n_asked < exchange; i++) {
        struct control_rank *rank = &control->ranks[i];

        if (atomic_load(&rank->expired_exchange) == exchange) {
            memset(ret, 0, sizeof(*ret));
            ret->exchange = exchange;
            ret->waited_ns = atomic_load(&rank->expired_after_ns);
            ret->rank = rank->rank;
            memcpy(ret->operation, control_mailbox(control, exchange, rank->rank)->operation,
                   sizeof(ret->operation));
            nodes->n_asked = exchange;
            return true;
        }
    }
    return false;
}

void board_arrived(struct nodes *nodes, uint64_t exchange)
{
    struct control *control = atomic_load(&nodes->job->control);

    atomic_store(&control->n_boards, exchange);
    control_ring_all(control);
}

bool board_is_farewell(const struct nodes *nodes, uint64_t exchange)
{
    struct control *control = atomic_load(&nodes->job->control);

    for (uint32_t rank = 0; rank < control->world_ranks; rank++) {
        if (strncmp(control_mailbox(control, exchange, rank)->operation, JOB_FAREWELL,
                    sizeof(JOB_FAREWELL)) != 0) {
            return false;
        }
    }
    return true;
}

void nodes_relay(struct nodes *nodes)
{
    nodes->is_relaying = true;
    if (nodes->status < 0) {
        nodes_raise(nodes, nodes->reporter, &nodes->error);
    }
}

/* Once the job has failed, all nodes hear it: the root tells it on. */
static void failure_watch(struct nodes *nodes)
{
    const struct failure *first = failure_first(nodes->job);

    if (first != NULL && !nodes->is_failure_told && !nodes->is_closing) {
        failure_send(nodes, first->rank, &first->error);
    }
}

uint64_t nodes_serve(struct nodes *nodes)
{
    uint64_t look_ns = clock_now_ns() + LOOK_NS;
    uint64_t wake_ns;

    wires_serve(nodes);
    if (nodes->is_root) {
        root_relay(nodes);
    } else {
        leader_relay(nodes);
    }
    failure_watch(nodes);
    wires_serve(nodes); /* what was queued goes out now */
    wake_ns = nodes_wake_ns(nodes);
    return wake_ns < look_ns ? wake_ns : look_ns;
}

void nodes_end(struct nodes *nodes, uint32_t ms)
{
    failure_watch(nodes);
    for (uint32_t i = 1; nodes->hub != NULL && i < nodes->n_nodes; i++) {
        hub_end(nodes->hub, nodes->nodes[i].peer);
    }
    if (nodes->uplink != NULL) {
        uplink_end(nodes->uplink);
    }
    flush_within(nodes, ms);
}
