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
#include "comm/forks.h"
#include "comm/nodes_internal.h"
#include "comm/rendezvous.h"
#include "comm/verdict.h"
#include "comm/watchdog.h"
#include "net/token.h"

#define LOOK_NS     UINT64_C(50000000) /* what nobody tells the watchdog is looked at so often */
#define FAREWELL_MS 500u               /* a peer may take to read it */

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
    int32_t status;

    if (nodes == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: no memory for %zu bytes",
                         sizeof(*nodes));
    }
    pthread_mutex_init(&nodes->lock, NULL);
    nodes->job = job;
    nodes->is_root = job->launch.rank == 0;
    nodes->status = HSDP_PENDING;
    nodes->linger_ns = UINT64_MAX;
    nodes->silence_ns = rendezvous_silence_ns(job);
    rendezvous_hello(job, &nodes->own.hello);
    gethostname(nodes->own.host, sizeof(nodes->own.host) - 1);
    forks_set_nodes(job, nodes); /* from its first descriptor on a child knows what to close */
    nodes_lock(nodes);
    status = token_take(job, token, &nodes->has_token, reterr);
    if (status == HSDP_OK) {
        status = nodes->is_root ? root_open(nodes, nodes->has_token ? token : NULL, reterr)
                                : leader_open(nodes, nodes->has_token ? token : NULL, reterr);
    }
    explicit_bzero(token, sizeof(token));
    nodes_unlock(nodes);
    if (status != HSDP_OK) {
        forks_set_nodes(job, NULL);
        nodes_close(nodes);
        return status;
    }
    *ret = nodes;
    return HSDP_OK;
}

void nodes_lock(struct nodes *nodes)
{
    if (nodes != NULL) {
        pthread_mutex_lock(&nodes->lock);
    }
}

void nodes_unlock(struct nodes *nodes)
{
    if (nodes != NULL) {
        pthread_mutex_unlock(&nodes->lock);
    }
}

static void nodes_free(struct nodes *nodes)
{
    root_fini(nodes);
    pthread_mutex_destroy(&nodes->lock);
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
    if (nodes == NULL) {
        return -1;
    }
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

    do {
        struct pollfd wire = {.fd = nodes_fd(nodes), .events = POLLIN};

        nodes_lock(nodes);
        wires_serve(nodes);
        nodes_unlock(nodes);
        if (is_flushed(nodes)) {
            return;
        }
        poll(&wire, 1, clock_left_ms(until_ns, 20));
    } while (clock_now_ns() < until_ns);
}

uint64_t nodes_beat_ns(const struct nodes *nodes)
{
    const struct launch *launch = &nodes->job->launch;

    return net_beat_ns(launch->world_ranks / launch->local_ranks, nodes->silence_ns);
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

    if (nodes == NULL || nodes->n_locals == LAUNCH_MAX_RANKS) {
        return;
    }
    nodes_lock(nodes);
    nodes->locals[nodes->n_locals++] = local;
    if (nodes->is_root) {
        root_arrived(nodes, 0, &local);
    } else {
        leader_arrived(nodes);
    }
    nodes_unlock(nodes);
}

int32_t nodes_meet(struct nodes *nodes, uint32_t *ret_reporter, struct hsdp_error *reterr)
{
    nodes_lock(nodes);
    wires_serve(nodes);
    if (nodes->is_root) {
        root_step(nodes);
    } else {
        leader_step(nodes);
    }
    nodes_unlock(nodes);
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
    nodes_lock(nodes);
    if (nodes->is_root) {
        root_expire(nodes);
    } else {
        leader_expire(nodes);
    }
    nodes_unlock(nodes);
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
    nodes_fail_own(nodes, reporter, err);
    nodes_fail_late(nodes);
    flush_within(nodes, ms);
}

bool nodes_fail_late(struct nodes *nodes)
{
    struct nodes_failed failed;
    bool is_open;

    if (nodes == NULL) {
        return false;
    }
    nodes_lock(nodes);
    nodes->linger_ns = UINT64_MAX; /* that is over */
    failed = (struct nodes_failed){.reporter = nodes->reporter, .error = nodes->error};
    wires_serve(nodes);
    is_open = nodes->is_root ? root_fail(nodes, &failed) : leader_fail(nodes, &failed);
    nodes_unlock(nodes);
    return is_open;
}

/* -------------------------------------------------------------------------------- afterwards */

void nodes_raise(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err)
{
    struct hsdp_error own = *err;

    if (!nodes->is_closing) {
        failure_record(nodes->job, reporter, &own);
    }
}

uint64_t node_absent(const struct nodes *nodes, uint64_t exchange)
{
    struct control *control = atomic_load(&nodes->job->control);
    uint64_t absent = 0;

    for (uint32_t i = 0; i < control->n_ranks; i++) {
        bool has_come = atomic_load(&control->ranks[i].n_exchanges) >= exchange;

        absent |= (uint64_t)!has_come << i;
    }
    return absent;
}

void positions_fill(const struct nodes *nodes, uint64_t exchange, struct nodes_positions *ret)
{
    const struct control *control = atomic_load(&nodes->job->control);
    uint64_t absent = node_absent(nodes, exchange);

    memset(ret, 0, sizeof(*ret));
    if (absent == 0) {
        return;
    }
    if (absent == UINT64_C(1) << nodes->job->node_index) { /* its own position is known best */
        snprintf(ret->text, sizeof(ret->text), "rank %" PRIu32 ", which", nodes->job->launch.rank);
        verdict_last(nodes->job, nodes->job->node_index, ret->text + strlen(ret->text),
                     sizeof(ret->text) - strlen(ret->text));
    } else {
        absent = verdict_missing(nodes->job, absent, ret->text, sizeof(ret->text));
    }
    for (uint32_t i = 0; i < control->n_ranks; i++) {
        if ((absent >> i & 1u) != 0) {
            ret->ranks[ret->n_ranks++] = control->ranks[i].rank;
        }
    }
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

/* Once the job has failed, all nodes hear it: the root tells it on. */
static void failure_watch(struct nodes *nodes)
{
    const struct failure *first = failure_first(nodes->job);

    if (first != NULL && !nodes->is_failure_told && !nodes->is_closing) {
        failure_send(nodes, first->rank, &first->error);
    }
}

/* The setting may change while the job runs. */
static void silence_follow(struct nodes *nodes)
{
    uint64_t silence_ns = rendezvous_silence_ns(nodes->job);

    if (silence_ns == nodes->silence_ns) {
        return;
    }
    nodes->silence_ns = silence_ns;
    if (nodes->hub != NULL) {
        hub_set_silence(nodes->hub, silence_ns, nodes_beat_ns(nodes));
    } else {
        uplink_set_silence(nodes->uplink, silence_ns, nodes_beat_ns(nodes));
    }
}

static uint64_t relay_serve(void *user)
{
    struct nodes *nodes = user;
    uint64_t look_ns = clock_now_ns() + LOOK_NS;
    uint64_t wake_ns;

    nodes_lock(nodes);
    silence_follow(nodes);
    wires_serve(nodes);
    if (nodes->is_root) {
        root_relay(nodes);
    } else {
        leader_relay(nodes);
    }
    failure_watch(nodes);
    wires_serve(nodes); /* what was queued goes out now */
    wake_ns = nodes_wake_ns(nodes);
    nodes_unlock(nodes);
    return wake_ns < look_ns ? wake_ns : look_ns;
}

int32_t nodes_start(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct watchdog_service service = {.serve = relay_serve, .user = job->nodes};

    if (job->nodes == NULL) {
        return HSDP_OK;
    }
    service.fd = nodes_fd(job->nodes);
    nodes_lock(job->nodes);
    if (job->nodes->hub != NULL) { /* who comes now may be looking for the job that follows */
        hub_stop_listening(job->nodes->hub);
    }
    nodes_unlock(job->nodes);
    job->nodes->is_relaying = true;
    if (job->nodes->status < 0) { /* after the last rank had come */
        nodes_raise(job->nodes, job->nodes->reporter, &job->nodes->error);
    }
    return watchdog_attach(job, &service, reterr);
}

void nodes_kick(struct hsdp_job *job)
{
    uint64_t one = 1;
    ssize_t n_written;

    if (job->nodes != NULL) {
        watchdog_wake(job);
    } else if (job->leader_bell >= 0) {
        n_written = write(job->leader_bell, &one, sizeof(one));
        (void)n_written; /* full means: it is awake already */
    }
}

void nodes_stop(struct hsdp_job *job)
{
    struct nodes *nodes = job->nodes;

    if (nodes == NULL) {
        return;
    }
    watchdog_detach(job);
    nodes_lock(nodes);
    failure_watch(nodes);
    for (uint32_t i = 1; nodes->hub != NULL && i < nodes->n_nodes; i++) {
        hub_end(nodes->hub, nodes->nodes[i].peer);
    }
    if (nodes->uplink != NULL) {
        uplink_end(nodes->uplink);
    }
    nodes_unlock(nodes);
    flush_within(nodes, FAREWELL_MS);
    forks_set_nodes(job, NULL);
    nodes_close(nodes);
}
