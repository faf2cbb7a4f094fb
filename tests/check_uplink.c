/* SPDX-License-Identifier: Apache-2.0 */
/* Uplinks and hubs: limits that change while they are joined, and what is known of refusals. */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net_fixture.h"
#include "suite.h"

#define SHORT_SILENCE_NS UINT64_C(600000000)

static bool hub_has_end(struct net_world *world)
{
    return world->hub_log.n_ended > 0;
}

static bool uplink_has_end(struct net_world *world)
{
    return world->logs[0].n_ended > 0;
}

/* Both with NET_SILENCE_NS, which is more than a test has time for. */
static void pair_open(struct net_world *world)
{
    struct hub_spec hub_spec = net_hub_spec(world);
    struct uplink_spec spec;

    net_hub_open(world, &hub_spec);
    spec = net_uplink_spec(world, 0);
    net_uplink_open(world, 0, &spec);
    net_serve_until(world, net_all_joined);
}

START_TEST(hub_set_silence_counts_from_then_on)
{
    struct net_world world = {0};
    struct uplink *stopped;
    uint64_t start_ns = clock_now_ns();

    pair_open(&world);
    hub_set_silence(world.hub, SHORT_SILENCE_NS, 0);
    stopped = world.uplinks[0];
    world.uplinks[0] = NULL;
    net_serve_until(&world, hub_has_end);
    ck_assert_int_eq(world.hub_log.why, NET_END_SILENT);
    ck_assert_uint_lt(clock_now_ns() - start_ns, NET_SILENCE_NS);
    world.uplinks[0] = stopped;
    net_world_close(&world);
}
END_TEST

START_TEST(uplink_set_silence_counts_from_then_on)
{
    struct net_world world = {0};
    struct hub *stopped;
    uint64_t start_ns = clock_now_ns();

    pair_open(&world);
    uplink_set_silence(world.uplinks[0], SHORT_SILENCE_NS, 0);
    stopped = world.hub;
    world.hub = NULL;
    net_serve_until(&world, uplink_has_end);
    ck_assert_int_eq(world.logs[0].why, NET_END_SILENT);
    ck_assert_uint_lt(clock_now_ns() - start_ns, NET_SILENCE_NS);
    world.hub = stopped;
    net_world_close(&world);
}
END_TEST

/* Longer again: who was about to be silent is not. */
START_TEST(hub_set_silence_longer_lets_a_quiet_one_stay)
{
    struct net_world world = {0};
    struct uplink *stopped;

    pair_open(&world);
    hub_set_silence(world.hub, SHORT_SILENCE_NS, 0);
    stopped = world.uplinks[0];
    world.uplinks[0] = NULL;
    hub_set_silence(world.hub, NET_SILENCE_NS, 0);
    net_serve_ms(&world, 1500);
    ck_assert_uint_eq(world.hub_log.n_ended, 0);
    world.uplinks[0] = stopped;
    net_world_close(&world);
}
END_TEST

static bool uplink_was_refused(struct net_world *world)
{
    char text[512];

    uplink_trouble(world->uplinks[0], text, sizeof(text));
    return strstr(text, "another token") != NULL;
}

START_TEST(uplink_trouble_after_a_refusal_tells_it_though_the_hub_is_gone)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;

    hub_spec.token = net_token(1);
    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    spec.token = net_token(2);
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, uplink_was_refused);
    hub_close(world.hub);
    world.hub = NULL;
    net_serve_ms(&world, 1500); /* it tries again, and nobody is there */
    ck_assert(uplink_was_refused(&world));
    net_world_close(&world);
}
END_TEST

static bool stranger_is_counted(struct net_world *world)
{
    struct hub_counts counts;

    hub_count(world->hub, &counts);
    return counts.n_strangers > 0;
}

static bool second_is_in(struct net_world *world)
{
    return world->logs[1].n_joined > 0;
}

/* Peers stay; who has said nothing is dropped; who looks for it goes on looking. */
START_TEST(hub_stop_listening_lets_nobody_in_and_keeps_peers)
{
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;
    struct hub *first;
    int stranger;

    pair_open(&world);
    stranger = net_stranger(&world);
    net_serve_until(&world, stranger_is_counted);
    hub_stop_listening(world.hub);
    ck_assert(!stranger_is_counted(&world));
    ck_assert(net_stranger_is_dropped(stranger, 5000));
    close(stranger);
    spec = net_uplink_spec(&world, 1);
    net_uplink_open(&world, 1, &spec);
    net_serve_ms(&world, 300);
    ck_assert_uint_eq(world.logs[1].n_joined + world.logs[0].n_ended + world.hub_log.n_ended, 0);
    first = world.hub;
    hub_spec.ports = &world.port; /* free again, though the first one's peers are there */
    net_hub_open(&world, &hub_spec);
    net_serve_until(&world, second_is_in);
    hub_close(first);
    net_world_close(&world);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("uplink");
    TCase *tcase = tcase_create("uplink");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, hub_set_silence_counts_from_then_on);
    tcase_add_test(tcase, uplink_set_silence_counts_from_then_on);
    tcase_add_test(tcase, hub_set_silence_longer_lets_a_quiet_one_stay);
    tcase_add_test(tcase, uplink_trouble_after_a_refusal_tells_it_though_the_hub_is_gone);
    tcase_add_test(tcase, hub_stop_listening_lets_nobody_in_and_keeps_peers);
    suite_add_tcase(suite, tcase);
    return suite;
}
