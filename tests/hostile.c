/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody who belongs to a job, by its token and identity, and does not do what it should. */
#include "hostile.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/job_internal.h"
#include "comm/nodes_message.h"
#include "comm/rendezvous.h"
#include "jobs.h"

#define MAX_BYTES 6000u

static const char *const loopback[] = {"127.0.0.1"};

/* -------------------------------------------------------------------------------------- events */

static void leader_joined(void *user)
{
    ((struct hostile *)user)->n_joined++;
}

static void leader_received(void *user, uint32_t kind, const uint8_t *bytes, uint64_t n_bytes)
{
    struct hostile *hostile = user;

    (void)bytes;
    (void)n_bytes;
    hostile->n_received++;
    hostile->kind = kind;
}

static void leader_ended(void *user, enum net_end why)
{
    (void)why;
    ((struct hostile *)user)->has_ended = true;
}

static void root_joined(void *user, uint32_t peer, const struct net_identity *who)
{
    struct hostile *hostile = user;

    (void)who;
    hostile->peer = peer;
    hostile->n_joined++;
}

static void root_received(void *user, uint32_t peer, uint32_t kind, const uint8_t *bytes,
                          uint64_t n_bytes)
{
    (void)peer;
    leader_received(user, kind, bytes, n_bytes);
}

static void root_ended(void *user, uint32_t peer, enum net_end why)
{
    (void)peer;
    leader_ended(user, why);
}

/* --------------------------------------------------------------------------------- open, close */

static void hostile_init(struct hostile *ret, uint64_t seed)
{
    memset(ret, 0, sizeof(*ret));
    ret->random = seed;
    ret->job = test_job_create(HOSTILE_SECONDS);
}

void hostile_leader_init(struct hostile *ret, uint16_t port, uint64_t seed)
{
    struct uplink_spec spec = {.hosts = loopback, .n_hosts = 1, .ports = &port, .n_ports = 1};
    struct hsdp_error err = HSDP_ERROR_INIT;

    hostile_init(ret, seed);
    rendezvous_net_identity(ret->job, &spec.self);
    spec.max_message_bytes = nodes_max_bytes(job_world_ranks(ret->job));
    spec.events = (struct uplink_events){leader_joined, leader_received, leader_ended, ret};
    status_assert(uplink_open(&spec, &ret->uplink, &err), HSDP_OK, &err);
    hostile_serve(ret, 1, UINT32_MAX, 10000);
    ck_assert_uint_eq(ret->n_joined, 1);
}

void hostile_root_init(struct hostile *ret, uint16_t port, uint64_t seed)
{
    struct hub_spec spec = {.ports = &port, .n_ports = 1, .max_peers = 8};
    struct hsdp_error err = HSDP_ERROR_INIT;

    hostile_init(ret, seed);
    rendezvous_net_identity(ret->job, &spec.self);
    spec.max_message_bytes = nodes_max_bytes(job_world_ranks(ret->job));
    spec.events = (struct hub_events){root_joined, root_received, root_ended, ret};
    status_assert(hub_open(&spec, &ret->hub, &err), HSDP_OK, &err);
    hostile_serve(ret, 1, UINT32_MAX, 10000);
    ck_assert_uint_eq(ret->n_joined, 1);
}

void hostile_fini(struct hostile *hostile)
{
    uplink_close(hostile->uplink);
    hub_close(hostile->hub);
    job_destroy(hostile->job);
}

void hostile_serve(struct hostile *hostile, uint32_t n_joined, uint32_t n_received, uint32_t ms)
{
    uint64_t until_ns = clock_deadline_ns(ms);
    struct hsdp_error err = HSDP_ERROR_INIT;

    while (clock_now_ns() < until_ns && !hostile->has_ended && hostile->n_joined < n_joined &&
           hostile->n_received < n_received) {
        struct pollfd wire = {.events = POLLIN};

        wire.fd = hostile->hub != NULL ? hub_fd(hostile->hub) : uplink_fd(hostile->uplink);
        poll(&wire, 1, 5);
        if (hostile->hub != NULL) {
            ck_assert_int_eq(hub_serve(hostile->hub, &err), HSDP_OK);
        } else {
            ck_assert_int_eq(uplink_serve(hostile->uplink, &err), HSDP_OK);
        }
    }
}

/* ------------------------------------------------------------------------------------- speaking */

uint32_t hostile_draw(struct hostile *hostile, uint32_t n)
{
    hostile->random =
        hostile->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(hostile->random >> 33) % n;
}

void hostile_send(struct hostile *hostile, uint32_t kind, const void *bytes, uint64_t n_bytes)
{
    if (hostile->hub != NULL) {
        hub_send(hostile->hub, hostile->peer, kind, bytes, n_bytes);
    } else {
        uplink_send(hostile->uplink, kind, bytes, n_bytes);
    }
}

void hostile_join(struct hostile *hostile)
{
    struct nodes_rank rank = {.rank = job_rank(hostile->job), .pid = (uint32_t)getpid()};
    struct nodes_join join;

    memset(&join, 0, sizeof(join));
    rendezvous_hello(hostile->job, &join.hello);
    snprintf(join.host, sizeof(join.host), "hostile");
    hostile_send(hostile, NODES_JOIN, &join, sizeof(join));
    hostile_send(hostile, NODES_RANKS, &rank, sizeof(rank));
}

void hostile_board(struct hostile *hostile, uint64_t exchange, uint32_t first, uint32_t n_ranks,
                   const char *operation)
{
    struct nodes_run run = {.first = first, .n_ranks = n_ranks, .is_opinion = 1};
    struct nodes_buffer buffer = {0};

    snprintf(run.operation, sizeof(run.operation), "%s", operation);
    nodes_buffer_add(&buffer, &exchange, sizeof(exchange));
    nodes_buffer_add(&buffer, &run, sizeof(run));
    hostile_send(hostile, NODES_BOARD, buffer.bytes, buffer.n_bytes);
    nodes_buffer_fini(&buffer);
}

/* The size that a message of its kind has. */
static uint64_t size_of_kind(struct hostile *hostile, uint32_t kind)
{
    static const uint64_t sizes[] = {
        [NODES_JOIN] = sizeof(struct nodes_join),
        [NODES_RANKS] = 3 * sizeof(struct nodes_rank),
        [NODES_FAILED] = sizeof(struct nodes_failed),
        [NODES_EXPIRED] = sizeof(struct nodes_expired),
        [NODES_BOARD] = 8 + sizeof(struct nodes_run),
        [NODES_PROBE] = sizeof(struct nodes_expired),
        [NODES_POSITIONS] = sizeof(struct nodes_positions),
    };

    if (kind >= sizeof(sizes) / sizeof(sizes[0]) || hostile_draw(hostile, 4) == 0) {
        return hostile_draw(hostile, MAX_BYTES);
    }
    return sizes[kind];
}

void hostile_say_anything(struct hostile *hostile)
{
    static uint8_t bytes[MAX_BYTES];
    uint32_t kind = hostile_draw(hostile, NODES_POSITIONS + 3);
    uint64_t n_bytes = size_of_kind(hostile, kind);
    bool is_noise = hostile_draw(hostile, 2) == 0;

    for (uint64_t i = 0; i < n_bytes; i++) { /* else small numbers, which go deeper */
        bytes[i] = (uint8_t)(is_noise      ? hostile_draw(hostile, 256)
                             : i % 4u == 0 ? hostile_draw(hostile, 4)
                                           : 0);
    }
    hostile_send(hostile, kind, bytes, n_bytes);
}
