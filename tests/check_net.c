/* SPDX-License-Identifier: Apache-2.0 */
/* Hub and uplink: who joins, what they say to each other, and how it ends. */
#include <arpa/inet.h>
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net_fixture.h"
#include "ranks.h"
#include "suite.h"

#define SHORT_SILENCE_NS UINT64_C(500000000)

static bool hub_has_message(struct net_world *world)
{
    return world->hub_log.n_messages > 0;
}

static bool uplink_has_message(struct net_world *world)
{
    return world->logs[0].n_messages > 0;
}

static bool hub_has_end(struct net_world *world)
{
    return world->hub_log.n_ended > 0;
}

static bool uplink_has_end(struct net_world *world)
{
    return world->logs[0].n_ended > 0;
}

/* One hub and one uplink that have joined, with these tokens. */
static void pair_open(struct net_world *world, const uint8_t *token)
{
    struct hub_spec hub_spec = net_hub_spec(world);
    struct uplink_spec uplink_spec;

    hub_spec.token = token;
    net_hub_open(world, &hub_spec);
    uplink_spec = net_uplink_spec(world, 0);
    uplink_spec.token = token;
    net_uplink_open(world, 0, &uplink_spec);
    net_serve_until(world, net_all_joined);
}

static void ipv6_expect_or_skip(void)
{
    if (!net_has_ipv6()) {
        printf("skipped: no IPv6 on this host\n");
        exit(EXIT_SUCCESS);
    }
}

/* ------------------------------------------------------------------------------------ joining */

static const char *const hosts[] = {"127.0.0.1", "::1", "localhost"};

START_TEST(uplink_open_at_any_kind_of_address_joins)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;

    if (_i == 1) {
        ipv6_expect_or_skip();
    }
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    spec.hosts = &hosts[_i];
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    ck_assert_int_eq(uplink_state(world.uplinks[0]), UPLINK_JOINED);
    ck_assert_uint_eq(world.hub_log.who.rank, 1);
    ck_assert_uint_eq(world.hub_log.who.job[0], 7);
    ck_assert_ptr_nonnull(strstr(uplink_address(world.uplinks[0]), _i == 1 ? "[::1]:" : "1"));
    net_world_close(&world);
}
END_TEST

START_TEST(hub_open_at_a_named_host_is_found_there)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;

    hub_spec.host = "localhost";
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    spec.hosts = &hosts[2];
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    net_world_close(&world);
}
END_TEST

START_TEST(hub_open_with_a_token_is_found_at_any_address)
{
    struct net_world world = {0};

    pair_open(&world, net_token(9));
    net_world_close(&world);
}
END_TEST

START_TEST(uplink_open_before_the_hub_joins_when_it_comes)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;
    char text[256];

    close(net_silent_listener(&world.port)); /* free now, and soon the hub's */
    spec = net_uplink_spec(&world, 0);
    net_uplink_open(&world, 0, &spec);
    net_serve_ms(&world, 300);
    ck_assert_int_eq(uplink_state(world.uplinks[0]), UPLINK_TRYING);
    uplink_trouble(world.uplinks[0], text, sizeof(text));
    ck_assert_msg(strstr(text, "Connection refused") != NULL, "%s", text);
    hub_spec.ports = &(uint16_t){world.port};
    net_hub_open(&world, &hub_spec);
    net_serve_until(&world, net_all_joined);
    net_world_close(&world);
}
END_TEST

START_TEST(hub_open_several_uplinks_join_and_leave_no_descriptor)
{
    struct net_world world = {0};
    uint32_t n_descriptors = ranks_n_descriptors();
    struct hub_spec hub_spec = net_hub_spec(&world);

    net_hub_open(&world, &hub_spec);
    for (uint32_t i = 0; i < NET_UPLINKS; i++) {
        struct uplink_spec spec = net_uplink_spec(&world, i);

        net_uplink_open(&world, i, &spec);
    }
    net_serve_until(&world, net_all_joined);
    ck_assert_uint_eq(world.hub_log.n_joined, NET_UPLINKS);
    net_world_close(&world);
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
}
END_TEST

static bool hub_is_full(struct net_world *world)
{
    char text[256];

    uplink_trouble(world->uplinks[1], text, sizeof(text));
    return strstr(text, "all that it expects have come") != NULL;
}

START_TEST(hub_open_more_than_it_expects_are_told_so)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;

    hub_spec.max_peers = 1;
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    spec = net_uplink_spec(&world, 1);
    net_uplink_open(&world, 1, &spec);
    net_serve_until(&world, hub_is_full);
    ck_assert_uint_eq(world.hub_log.n_joined, 1);
    uplink_close(world.uplinks[0]); /* and who comes when one has gone joins */
    world.uplinks[0] = NULL;
    net_serve_until(&world, net_all_joined);
    net_world_close(&world);
}
END_TEST

/* ----------------------------------------------------------------------------------- messages */

START_TEST(hub_send_messages_go_both_ways)
{
    struct net_world world = {0};

    pair_open(&world, NULL);
    ck_assert(uplink_send(world.uplinks[0], 11, "to the hub", 10));
    net_serve_until(&world, hub_has_message);
    ck_assert_uint_eq(world.hub_log.kind, 11);
    ck_assert_uint_eq(world.hub_log.n_bytes, 10);
    ck_assert_mem_eq(world.hub_log.bytes, "to the hub", 10);
    ck_assert(hub_send(world.hub, world.hub_log.peer, 12, NULL, 0));
    net_serve_until(&world, uplink_has_message);
    ck_assert_uint_eq(world.logs[0].kind, 12);
    ck_assert_uint_eq(world.logs[0].n_bytes, 0);
    net_world_close(&world);
}
END_TEST

#define LARGE_BYTES UINT64_C(5000000)

static bool large_is_back(struct net_world *world)
{
    return world->logs[0].n_bytes_ever == LARGE_BYTES;
}

START_TEST(uplink_send_more_than_a_socket_takes_comes_whole)
{
    struct net_world world = {.hub_log.answers = true};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;
    uint8_t *bytes = malloc(LARGE_BYTES);
    uint64_t sum = 0;

    for (uint64_t i = 0; i < LARGE_BYTES; i++) {
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
        sum += bytes[i];
    }
    hub_spec.max_message_bytes = LARGE_BYTES;
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    spec.max_message_bytes = LARGE_BYTES;
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    ck_assert(uplink_send(world.uplinks[0], 1, bytes, LARGE_BYTES));
    net_serve_until(&world, large_is_back);
    ck_assert_uint_eq(world.logs[0].sum, sum);
    ck_assert_mem_eq(world.logs[0].bytes, bytes, sizeof(world.logs[0].bytes));
    free(bytes);
    net_world_close(&world);
}
END_TEST

#define MANY 2000u

static bool many_are_back(struct net_world *world)
{
    return world->logs[0].n_messages == MANY;
}

START_TEST(uplink_send_many_messages_come_in_order)
{
    struct net_world world = {.hub_log.answers = true};
    uint64_t sum = 0;
    uint32_t i;

    pair_open(&world, net_token(3));
    for (i = 0; i < MANY; i++) {
        sum += i & 255u;
        sum += i >> 8;
        while (!uplink_send(world.uplinks[0], i, &i, sizeof(i))) {
            ck_abort_msg("message %u was refused", i);
        }
        if (i % 16 == 15) {
            net_serve_ms(&world, 1);
        }
    }
    net_serve_until(&world, many_are_back);
    ck_assert_uint_eq(world.logs[0].kind, MANY); /* the last, and one more */
    ck_assert_uint_eq(world.logs[0].sum, sum);
    net_world_close(&world);
}
END_TEST

START_TEST(hub_send_to_nobody_is_refused)
{
    struct net_world world = {0};
    uint32_t peer;

    pair_open(&world, NULL);
    peer = world.hub_log.peer;
    ck_assert(!hub_send(world.hub, peer + 1, 1, NULL, 0));
    uplink_close(world.uplinks[0]);
    world.uplinks[0] = NULL;
    net_serve_until(&world, hub_has_end);
    ck_assert(!hub_send(world.hub, peer, 1, NULL, 0));
    net_world_close(&world);
}
END_TEST

/* --------------------------------------------------------------------------------------- ends */

START_TEST(uplink_end_farewell_is_told_from_a_loss)
{
    struct net_world world = {0};

    pair_open(&world, net_token(1));
    ck_assert(uplink_send(world.uplinks[0], 5, "last", 4));
    uplink_end(world.uplinks[0]);
    net_serve_until(&world, hub_has_end);
    ck_assert_int_eq(world.hub_log.why, NET_END_CLOSED);
    ck_assert_uint_eq(world.hub_log.n_messages, 1);
    ck_assert_uint_eq(world.logs[0].n_ended, 0);
    ck_assert_int_eq(uplink_state(world.uplinks[0]), UPLINK_ENDED);
    net_world_close(&world);
}
END_TEST

static bool world_is_flushed(struct net_world *world)
{
    return hub_is_flushed(world->hub);
}

START_TEST(hub_end_sends_what_is_queued_before_the_end)
{
    struct net_world world = {0};

    pair_open(&world, net_token(1));
    ck_assert(hub_send(world.hub, world.hub_log.peer, 5, "last", 4));
    hub_end(world.hub, world.hub_log.peer);
    ck_assert(!hub_is_flushed(world.hub));
    ck_assert(!hub_send(world.hub, world.hub_log.peer, 5, "late", 4));
    net_serve_until(&world, uplink_has_end);
    net_serve_until(&world, world_is_flushed);
    ck_assert_int_eq(world.logs[0].why, NET_END_CLOSED);
    ck_assert_uint_eq(world.logs[0].n_messages, 1);
    ck_assert_uint_eq(world.hub_log.n_ended, 0);
    net_world_close(&world);
}
END_TEST

START_TEST(uplink_close_without_farewell_is_a_loss)
{
    struct net_world world = {0};

    pair_open(&world, NULL);
    uplink_close(world.uplinks[0]);
    world.uplinks[0] = NULL;
    net_serve_until(&world, hub_has_end);
    ck_assert_int_eq(world.hub_log.why, NET_END_LOST);
    net_world_close(&world);
}
END_TEST

START_TEST(hub_close_without_farewell_is_a_loss_for_good)
{
    struct net_world world = {0};

    pair_open(&world, NULL);
    hub_close(world.hub);
    world.hub = NULL;
    net_serve_until(&world, uplink_has_end);
    ck_assert_int_eq(world.logs[0].why, NET_END_LOST);
    ck_assert_int_eq(uplink_state(world.uplinks[0]), UPLINK_ENDED);
    ck_assert(!uplink_send(world.uplinks[0], 1, NULL, 0));
    net_serve_ms(&world, 100);
    ck_assert_uint_eq(world.logs[0].n_ended, 1);
    net_world_close(&world);
}
END_TEST

/* An uplink that lives, but is not served: a stopped process. */
START_TEST(hub_serve_silent_peer_has_ended)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink *stopped;
    struct uplink_spec spec;
    uint64_t start_ns;

    hub_spec.silence_ns = SHORT_SILENCE_NS;
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    stopped = world.uplinks[0];
    world.uplinks[0] = NULL;
    start_ns = clock_now_ns();
    net_serve_until(&world, hub_has_end);
    ck_assert_int_eq(world.hub_log.why, NET_END_SILENT);
    ck_assert_uint_ge(clock_now_ns() - start_ns, SHORT_SILENCE_NS - 2 * NET_BEAT_NS);
    world.uplinks[0] = stopped;
    net_world_close(&world);
}
END_TEST

START_TEST(uplink_serve_silent_hub_has_ended)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;
    struct hub *stopped;

    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    spec.silence_ns = SHORT_SILENCE_NS;
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    stopped = world.hub;
    world.hub = NULL;
    net_serve_until(&world, uplink_has_end);
    ck_assert_int_eq(world.logs[0].why, NET_END_SILENT);
    world.hub = stopped;
    net_world_close(&world);
}
END_TEST

START_TEST(net_beat_ns_few_many_and_impatient_have_their_rate)
{
    ck_assert_uint_eq(net_beat_ns(2, 0), NET_BEAT_NS);
    ck_assert_uint_eq(net_beat_ns(2000, UINT64_C(5000000000)), NET_BEAT_NS);
    ck_assert_uint_eq(net_beat_ns(10000, UINT64_C(5000000000)), UINT64_C(1000000000));
    ck_assert_uint_eq(net_beat_ns(10000, UINT64_C(1000000000)), UINT64_C(250000000));
    ck_assert_uint_eq(net_beat_ns(1000000, UINT64_C(5000000000)), UINT64_C(1250000000));
}
END_TEST

/* With nothing to say they stay, by their beats. */
START_TEST(hub_serve_quiet_peers_stay)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;

    hub_spec.silence_ns = NET_SILENCE_NS / 10; /* 2 s: much for a beat, also on a busy machine */
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    spec.silence_ns = NET_SILENCE_NS / 10;
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    net_serve_ms(&world, 3000);
    ck_assert_uint_eq(world.hub_log.n_ended + world.logs[0].n_ended, 0);
    net_world_close(&world);
}
END_TEST

/* A hub that was stopped itself takes nobody for silent who has spoken meanwhile. */
START_TEST(hub_serve_after_a_long_sleep_hears_first)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;
    struct hub *stopped;

    hub_spec.silence_ns = SHORT_SILENCE_NS;
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    stopped = world.hub;
    world.hub = NULL;
    net_serve_ms(&world, 1200);
    world.hub = stopped;
    net_serve_ms(&world, 10);
    ck_assert_uint_eq(world.hub_log.n_ended, 0);
    net_world_close(&world);
}
END_TEST

START_TEST(hub_send_to_one_that_does_not_read_ends_it)
{
    struct net_world world = {0};
    struct uplink *stopped;
    uint8_t bytes[NET_MESSAGE] = {0};
    uint64_t n_sent = 0;

    pair_open(&world, NULL);
    stopped = world.uplinks[0];
    world.uplinks[0] = NULL;
    while (hub_send(world.hub, world.hub_log.peer, 1, bytes, sizeof(bytes))) {
        n_sent++;
        ck_assert_uint_lt(n_sent, 100000); /* 100 MB: more than any socket takes */
    }
    ck_assert_uint_ge(n_sent, 4);
    ck_assert_uint_eq(world.hub_log.n_ended, 0); /* told by hub_serve only */
    net_serve_until(&world, hub_has_end);
    ck_assert_int_eq(world.hub_log.why, NET_END_OVERFLOW);
    world.uplinks[0] = stopped;
    net_world_close(&world);
}
END_TEST

/* --------------------------------------------------------------------------------------- forks */

/* The child has closed its copies and lives on; the parent's end is seen all the same. */
START_TEST(uplink_close_in_child_tells_nobody_and_holds_nothing)
{
    struct net_world world = {0};
    int pipe_fds[2];
    char byte;
    pid_t pid;

    pair_open(&world, NULL);
    ck_assert_int_eq(pipe(pipe_fds), 0);
    pid = fork();
    if (pid == 0) {
        uplink_close_in_child(world.uplinks[0]);
        hub_close_in_child(world.hub);
        _exit(read(pipe_fds[0], &byte, 1) == 1 ? 0 : 1);
    }
    net_serve_ms(&world, 300);
    ck_assert_uint_eq(world.hub_log.n_ended + world.logs[0].n_ended, 0);
    ck_assert(uplink_send(world.uplinks[0], 3, NULL, 0));
    net_serve_until(&world, hub_has_message);
    uplink_close(world.uplinks[0]);
    world.uplinks[0] = NULL;
    net_serve_until(&world, hub_has_end);
    ck_assert_int_eq(write(pipe_fds[1], "x", 1), 1);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    net_world_close(&world);
}
END_TEST

static void forking_rank(uint32_t rank, void *shared)
{
    struct net_world *world = shared;
    struct uplink_spec spec = net_uplink_spec(world, 0);

    (void)rank;
    net_uplink_open(world, 0, &spec);
    while (uplink_state(world->uplinks[0]) != UPLINK_JOINED) {
        net_serve_ms(world, 5);
    }
    if (fork() == 0) {
        uplink_close_in_child(world->uplinks[0]);
        ranks_sleep_ms(3000);
        _exit(0);
    }
    for (;;) {
        net_serve_ms(world, 50);
    }
}

/* A process that is killed, and whose child lives on, has ended for the hub. */
START_TEST(uplink_of_a_killed_process_with_a_child_has_ended)
{
    struct net_world *world = ranks_memory(sizeof(*world));
    struct net_world hub_world = {0};
    struct hub_spec hub_spec = net_hub_spec(&hub_world);
    struct ranks ranks;
    uint64_t start_ns;

    net_hub_open(&hub_world, &hub_spec);
    world->port = hub_world.port;
    ranks_start(&ranks, 1, RANKS_LIMIT_MS, forking_rank, world);
    while (hub_world.hub_log.n_joined == 0) {
        net_serve_ms(&hub_world, 5);
    }
    net_serve_ms(&hub_world, 200); /* time for the fork */
    start_ns = clock_now_ns();
    ranks_kill(&ranks, 0);
    net_serve_until(&hub_world, hub_has_end);
    ck_assert_int_eq(hub_world.hub_log.why, NET_END_LOST);
    ck_assert_uint_lt(clock_now_ns() - start_ns, UINT64_C(2500000000)); /* the child lives */
    ranks_wait(&ranks);
    net_world_close(&hub_world);
}
END_TEST

static void joining_tests(TCase *tcase)
{
    tcase_add_loop_test(tcase, uplink_open_at_any_kind_of_address_joins, 0, N_OF(hosts));
    tcase_add_test(tcase, hub_open_at_a_named_host_is_found_there);
    tcase_add_test(tcase, hub_open_with_a_token_is_found_at_any_address);
    tcase_add_test(tcase, uplink_open_before_the_hub_joins_when_it_comes);
    tcase_add_test(tcase, hub_open_several_uplinks_join_and_leave_no_descriptor);
    tcase_add_test(tcase, hub_open_more_than_it_expects_are_told_so);
    tcase_add_test(tcase, hub_send_messages_go_both_ways);
    tcase_add_test(tcase, uplink_send_more_than_a_socket_takes_comes_whole);
    tcase_add_test(tcase, uplink_send_many_messages_come_in_order);
    tcase_add_test(tcase, hub_send_to_nobody_is_refused);
}

Suite *module_suite(void)
{
    Suite *suite = suite_create("net");
    TCase *tcase = tcase_create("net");

    tcase_set_timeout(tcase, 60);
    joining_tests(tcase);
    tcase_add_test(tcase, uplink_end_farewell_is_told_from_a_loss);
    tcase_add_test(tcase, hub_end_sends_what_is_queued_before_the_end);
    tcase_add_test(tcase, uplink_close_without_farewell_is_a_loss);
    tcase_add_test(tcase, hub_close_without_farewell_is_a_loss_for_good);
    tcase_add_test(tcase, hub_serve_silent_peer_has_ended);
    tcase_add_test(tcase, uplink_serve_silent_hub_has_ended);
    tcase_add_test(tcase, net_beat_ns_few_many_and_impatient_have_their_rate);
    tcase_add_test(tcase, hub_serve_quiet_peers_stay);
    tcase_add_test(tcase, hub_serve_after_a_long_sleep_hears_first);
    tcase_add_test(tcase, hub_send_to_one_that_does_not_read_ends_it);
    tcase_add_test(tcase, uplink_close_in_child_tells_nobody_and_holds_nothing);
    tcase_add_test(tcase, uplink_of_a_killed_process_with_a_child_has_ended);
    suite_add_tcase(suite, tcase);
    return suite;
}
