/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, the root: its hub, and the meeting of the leaders. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nodes_internal.h"
#include "comm/rendezvous.h"

#define LINGER_MS   500u /* once nodes disagree: so long the others may come to hear it */
#define SPARE_PEERS 64u  /* room for those who are told that they do not belong here */

void root_tell(struct nodes *nodes, uint32_t kind, const void *bytes, uint64_t n_bytes)
{
    for (uint32_t i = 1; i < nodes->n_nodes; i++) {
        if (!nodes->nodes[i].has_ended) {
            hub_send(nodes->hub, nodes->nodes[i].peer, kind, bytes, n_bytes);
        }
    }
}

bool root_fail(struct nodes *nodes, const struct nodes_failed *failed)
{
    for (; nodes->n_failed < nodes->n_nodes; nodes->n_failed++) {
        const struct node *node = &nodes->nodes[nodes->n_failed];

        if (nodes->n_failed > 0 && !node->has_ended) {
            hub_send(nodes->hub, node->peer, NODES_FAILED, failed, sizeof(*failed));
        }
    }
    return nodes->hub != NULL &&
           nodes->own.hello.local_ranks + nodes->n_heralded < nodes->own.hello.world_ranks;
}

static struct node *node_of_peer(struct nodes *nodes, uint32_t peer, uint32_t *ret_index)
{
    for (uint32_t i = 1; i < nodes->n_nodes; i++) {
        if (nodes->nodes[i].peer == peer && !nodes->nodes[i].has_ended) {
            *ret_index = i;
            return &nodes->nodes[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------- who comes */

static void misfit_note(struct nodes *nodes, const struct hsdp_error *err)
{
    if (nodes->misfit.status == HSDP_OK) {
        nodes->misfit = *err;
        nodes->linger_ns = clock_deadline_ns(LINGER_MS);
    }
}

/* This one alone is told; the meeting goes on. */
static void peer_refuse(struct nodes *nodes, uint32_t peer, const struct hsdp_error *err)
{
    struct nodes_failed failed = {.reporter = nodes->job->launch.rank, .error = *err};

    hub_send(nodes->hub, peer, NODES_FAILED, &failed, sizeof(failed));
    hub_end(nodes->hub, peer);
}

void root_arrived(struct nodes *nodes, uint32_t index, const struct nodes_rank *rank)
{
    struct node *node = &nodes->nodes[index];
    struct hsdp_error err;
    uint32_t owner;

    nodes->n_known++;
    if (rank->rank >= nodes->own.hello.world_ranks) {
        error_set(&err, HSDP_ERR_MISMATCH,
                  "connect: %s sent rank %" PRIu32 "; the world has %" PRIu32 " ranks", node->host,
                  rank->rank, nodes->own.hello.world_ranks);
        misfit_note(nodes, &err);
        return;
    }
    owner = nodes->owners[rank->rank];
    if (owner != NODES_NOBODY || node->n_ranks == LAUNCH_MAX_RANKS) {
        error_set(&err, HSDP_ERR_MISMATCH,
                  "connect: rank %" PRIu32 " came twice: process %" PRIu32 " on %s and process "
                  "%" PRIu32 " on %s",
                  rank->rank, nodes->pids[rank->rank],
                  nodes->nodes[owner == NODES_NOBODY ? index : owner].host, rank->pid, node->host);
        misfit_note(nodes, &err);
        return;
    }
    nodes->owners[rank->rank] = index;
    nodes->pids[rank->rank] = rank->pid;
    node->ranks[node->n_ranks++] = rank->rank;
    nodes->n_arrived++;
}

static void node_join(struct nodes *nodes, uint32_t index, const struct nodes_join *join)
{
    struct node *node = &nodes->nodes[index];
    struct wire_hello hello = join->hello;
    struct hsdp_error err;

    node->has_joined = true;
    node->leader = hello.rank;
    nodes->n_heralded += hello.local_ranks;
    snprintf(node->host, sizeof(node->host), "%.*s", (int)sizeof(join->host) - 1, join->host);
    if (rendezvous_compare(&nodes->own.hello, &hello, &err) != HSDP_OK) {
        misfit_note(nodes, &err);
    }
}

static void ranks_take(struct nodes *nodes, uint32_t index, const uint8_t *bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct nodes_rank rank;

        memcpy(&rank, bytes + i * sizeof(rank), sizeof(rank));
        root_arrived(nodes, index, &rank);
    }
}

/* False: no message of a meeting. */
static bool meeting_hear(struct nodes *nodes, uint32_t index, uint32_t kind, const uint8_t *bytes,
                         uint64_t n_bytes)
{
    struct node *node = &nodes->nodes[index];
    struct nodes_failed failed;
    struct nodes_join join;
    uint64_t n;

    if (kind == NODES_JOIN && n_bytes == sizeof(join) && !node->has_joined) {
        memcpy(&join, bytes, sizeof(join));
        node_join(nodes, index, &join);
    } else if (kind == NODES_RANKS && node->has_joined &&
               nodes_array(n_bytes, sizeof(struct nodes_rank), &n)) {
        ranks_take(nodes, index, bytes, n);
    } else if (kind == NODES_FAILED && nodes_failed_read(bytes, n_bytes, &failed)) {
        nodes_fail_own(nodes, failed.reporter, &failed.error);
    } else if (kind == NODES_EXPIRED) {
        root_expire(nodes);
    } else {
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------- events of the hub */

/* Who was let in once does not come again: without memory for it ranks do not meet. */
static void meeting_fail_memory(struct nodes *nodes)
{
    struct hsdp_error err;

    error_set(&err, HSDP_ERR_NO_MEMORY,
              "connect: rank %" PRIu32 " has no memory for the leader of a node",
              nodes->job->launch.rank);
    nodes_fail_own(nodes, nodes->job->launch.rank, &err);
}

static void hub_joined(void *user, uint32_t peer, const struct net_identity *who)
{
    struct nodes *nodes = user;
    struct node *grown;
    uint32_t *ranks;

    (void)who;
    if (nodes->is_relaying) {
        hub_end(nodes->hub, peer);
        return;
    }
    grown = realloc(nodes->nodes, (nodes->n_nodes + 1) * sizeof(*grown));
    ranks = calloc(LAUNCH_MAX_RANKS, sizeof(*ranks));
    if (grown != NULL) {
        nodes->nodes = grown;
    }
    if (grown == NULL || ranks == NULL) {
        free(ranks);
        hub_end(nodes->hub, peer);
        meeting_fail_memory(nodes);
        return;
    }
    memset(&nodes->nodes[nodes->n_nodes], 0, sizeof(*grown));
    nodes->nodes[nodes->n_nodes].peer = peer;
    nodes->nodes[nodes->n_nodes].ranks = ranks;
    nodes->n_nodes++;
}

/* A survivor of an earlier attempt, or one of another run, is none of us: it alone hears it. */
static bool is_survivor(struct nodes *nodes, uint32_t index, uint32_t kind, const uint8_t *bytes,
                        uint64_t n_bytes)
{
    struct node *node = &nodes->nodes[index];
    struct nodes_join join;
    struct hsdp_error err;

    if (kind != NODES_JOIN || n_bytes != sizeof(join) || node->has_joined) {
        return false;
    }
    memcpy(&join, bytes, sizeof(join));
    if (launch_identity_check(&nodes->own.hello.run, 0, &join.hello.run, join.hello.rank, &err) ==
        HSDP_OK) {
        return false;
    }
    error_where(&err, "connect", NULL, NULL);
    node->has_ended = true;
    peer_refuse(nodes, node->peer, &err);
    return true;
}

static void hub_received(void *user, uint32_t peer, uint32_t kind, const uint8_t *bytes,
                         uint64_t n_bytes)
{
    struct nodes *nodes = user;
    uint32_t index;

    if (node_of_peer(nodes, peer, &index) == NULL) {
        return;
    }
    if (nodes->is_relaying) {
        root_received(nodes, index, kind, bytes, n_bytes);
    } else if (!is_survivor(nodes, index, kind, bytes, n_bytes) &&
               !meeting_hear(nodes, index, kind, bytes, n_bytes)) {
        nodes->nodes[index].has_ended = true;
        hub_end(nodes->hub, peer); /* it holds the token, but speaks another language */
    }
}

static void hub_ended(void *user, uint32_t peer, enum net_end why)
{
    struct nodes *nodes = user;
    struct hsdp_error err;
    struct node *node;
    uint32_t index;

    if (why == NET_END_MEMORY && !nodes->is_relaying) {
        meeting_fail_memory(nodes);
    }
    node = node_of_peer(nodes, peer, &index);
    if (node == NULL) {
        return;
    }
    node->has_ended = true;
    if (nodes->is_relaying) {
        root_lost(nodes, index, why);
    } else if (node->has_joined && nodes->misfit.status == HSDP_OK) {
        error_set(&err, HSDP_ERR_PEER_LOST,
                  "connect: peer lost: rank %" PRIu32 " on %s, %s, before all ranks had come",
                  node->leader, node->host, net_end_text(why));
        error_missing_one(&err, node->leader);
        nodes_fail_own(nodes, nodes->job->launch.rank, &err);
    }
}

/* -------------------------------------------------------------------------------- open, end */

static int32_t tables_allocate(struct nodes *nodes, struct hsdp_error *reterr)
{
    uint32_t world_ranks = nodes->own.hello.world_ranks;

    nodes->owners = malloc(world_ranks * sizeof(*nodes->owners));
    nodes->pids = calloc(world_ranks, sizeof(*nodes->pids));
    nodes->nodes = calloc(1, sizeof(*nodes->nodes));
    if (nodes->nodes != NULL) {
        nodes->n_nodes = 1;
        nodes->nodes[0].ranks = calloc(LAUNCH_MAX_RANKS, sizeof(*nodes->nodes[0].ranks));
    }
    if (nodes->owners == NULL || nodes->pids == NULL || nodes->nodes == NULL ||
        nodes->nodes[0].ranks == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "connect: no memory for a world of %" PRIu32 " ranks", world_ranks);
    }
    memset(nodes->owners, 0xff, world_ranks * sizeof(*nodes->owners));
    memcpy(nodes->nodes[0].host, nodes->own.host, sizeof(nodes->nodes[0].host));
    nodes->nodes[0].has_joined = true;
    return HSDP_OK;
}

int32_t root_open(struct nodes *nodes, const uint8_t *token, struct hsdp_error *reterr)
{
    static const uint16_t any = 0;
    const struct hsdp_job *job = nodes->job;
    const struct launch_place *place = &job->launch.place;
    struct hub_spec spec = {.ports = place->ports, .n_ports = place->n_ports, .token = token};
    int32_t status = tables_allocate(nodes, reterr);

    if (status != HSDP_OK || (job->launch.is_one_host && place->n_ports == 0)) {
        return status; /* on one host nobody needs a port, unless one is given */
    }
    if (place->n_ports == 0) {
        spec.ports = &any;
        spec.n_ports = 1;
    }
    spec.max_peers = job->launch.world_ranks - job->launch.local_ranks + SPARE_PEERS;
    rendezvous_net_identity(job, &spec.self);
    spec.max_message_bytes = nodes_max_bytes(job->launch.world_ranks);
    spec.silence_ns = nodes->silence_ns;
    spec.beat_ns = nodes_beat_ns(nodes);
    spec.events = (struct hub_events){
        .joined = hub_joined, .received = hub_received, .ended = hub_ended, .user = nodes};
    return hub_open(&spec, &nodes->hub, reterr);
}

void root_fini(struct nodes *nodes)
{
    for (uint32_t i = 0; i < nodes->n_nodes; i++) {
        free(nodes->nodes[i].ranks);
    }
    free(nodes->nodes);
    free(nodes->owners);
    free(nodes->pids);
    rank_set_fini(&nodes->verdict.missing);
}

/* ------------------------------------------------------------------------------- how it goes */

void root_expire(struct nodes *nodes)
{
    const struct hsdp_job *job = nodes->job;
    struct rank_set missing;
    struct hsdp_error err;
    char ranks[200];
    char trouble[160] = "";
    bool lacks_token = nodes->hub != NULL && !nodes->has_token && !job->launch.is_one_host;

    if (nodes->misfit.status != HSDP_OK) {
        nodes_fail_own(nodes, job->launch.rank, &nodes->misfit);
        return;
    }
    if (!rank_set_init(&missing, job->launch.world_ranks)) {
        error_set(&err, HSDP_ERR_NO_MEMORY, "connect: no memory to say which ranks are missing");
        nodes_fail_own(nodes, job->launch.rank, &err);
        return;
    }
    for (uint32_t rank = 0; rank < job->launch.world_ranks; rank++) {
        if (nodes->owners[rank] == NODES_NOBODY) {
            rank_set_add(&missing, rank);
        }
    }
    rank_set_text(&missing, ranks, sizeof(ranks));
    if (nodes->hub != NULL) {
        hub_trouble(nodes->hub, trouble, sizeof(trouble));
    }
    error_set(&err, HSDP_ERR_TIMEOUT, "connect: timeout after %s s: no sign of %s%s%s%s%s",
              settings_text(&job->settings, "init_timeout_seconds"), ranks,
              trouble[0] == '\0' ? "" : " (turned away: ", trouble, trouble[0] == '\0' ? "" : ")",
              lacks_token ? "; " NODES_NO_TOKEN : "");
    rank_set_blame(&missing, &err);
    rank_set_fini(&missing);
    err.waited_ms = rendezvous_limit_ms(job);
    nodes_fail_own(nodes, job->launch.rank, &err);
}

/* Who has come, and has no ranks, is nobody to wait for. */
static void idlers_end(struct nodes *nodes)
{
    for (uint32_t i = 1; i < nodes->n_nodes; i++) {
        struct node *node = &nodes->nodes[i];

        if (node->n_ranks == 0 && !node->has_ended) {
            node->has_ended = true;
            hub_end(nodes->hub, node->peer);
        }
    }
}

void root_step(struct nodes *nodes)
{
    uint32_t world_ranks = nodes->own.hello.world_ranks;

    if (nodes->status != HSDP_PENDING) {
        return;
    }
    if (nodes->misfit.status != HSDP_OK &&
        (nodes->n_known >= world_ranks || clock_now_ns() >= nodes->linger_ns)) {
        nodes_fail_own(nodes, nodes->job->launch.rank, &nodes->misfit);
    } else if (nodes->misfit.status == HSDP_OK && nodes->n_arrived == world_ranks) {
        nodes->status = HSDP_OK;
        idlers_end(nodes);
        root_tell(nodes, NODES_WELCOME, NULL, 0);
    }
}
