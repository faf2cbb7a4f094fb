/* SPDX-License-Identifier: Apache-2.0 */
/* Ports that others hold, tokens that differ, and strangers: none of them disturbs who belongs. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/channel.h"
#include "net_fixture.h"
#include "ranks.h"
#include "suite.h"

#define STRANGER_MS     2000u  /* they are dropped then, */
#define STRANGER_MAX_MS 15000u /* or later on a busy machine */

static void uplink_text_expect(const struct net_world *world, const char *part)
{
    char text[512];

    uplink_trouble(world->uplinks[0], text, sizeof(text));
    ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, text);
}

static void uplink_open_at(struct net_world *world, const uint16_t *ports, uint32_t n_ports,
                           const uint8_t *token)
{
    struct uplink_spec spec = net_uplink_spec(world, 0);

    spec.ports = ports;
    spec.n_ports = n_ports;
    spec.token = token;
    net_uplink_open(world, 0, &spec);
}

/* --------------------------------------------------------------------------------------- ports */

/* The first port of the list is held, the second is free. */
static int held_ports(uint16_t ports[2])
{
    int held = net_silent_listener(&ports[0]);

    close(net_silent_listener(&ports[1]));
    return held;
}

START_TEST(hub_open_held_port_takes_the_next)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    uint16_t ports[2];
    int held = held_ports(ports);

    spec.ports = ports;
    spec.n_ports = 2;
    net_hub_open(&world, &spec);
    ck_assert_uint_eq(world.port, ports[1]);
    net_world_close(&world);
    close(held);
}
END_TEST

START_TEST(hub_open_all_ports_held_names_them)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t n_descriptors = ranks_n_descriptors();
    uint16_t ports[2];
    int held[2] = {net_silent_listener(&ports[0]), net_silent_listener(&ports[1])};
    char number[16];

    spec.ports = ports;
    spec.n_ports = 1 + (uint32_t)_i;
    spec.token = _i == 0 ? NULL : net_token(1); /* at loopback, and at every address */
    ck_assert_int_eq(hub_open(&spec, &world.hub, &err), HSDP_ERR_ADDRESS_IN_USE);
    ck_assert_ptr_null(world.hub);
    for (int i = 0; i <= _i; i++) {
        snprintf(number, sizeof(number), "%u", ports[i]);
        ck_assert_msg(strstr(err.message, number) != NULL, "%s", err.message);
        close(held[i]);
    }
    ck_assert_uint_le(ranks_n_descriptors(), n_descriptors + 2);
}
END_TEST

START_TEST(hub_open_ports_in_a_row_are_named_as_a_range)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hub *holders[3] = {NULL, NULL, NULL};
    uint16_t ports[3];
    char range[32];

    net_hub_open(&world, &spec);
    for (uint16_t i = 0; i < 3; i++) { /* held by us, or by somebody else already */
        ports[i] = (uint16_t)(world.port + i);
        spec.ports = &ports[i];
        hub_open(&spec, &holders[i], NULL);
    }
    spec.ports = ports;
    spec.n_ports = 3;
    snprintf(range, sizeof(range), "ports %u-%u ", ports[0], ports[2]);
    ck_assert_int_eq(hub_open(&spec, &holders[0], &err), HSDP_ERR_ADDRESS_IN_USE);
    ck_assert_msg(strstr(err.message, range) != NULL, "%s", err.message);
    for (uint32_t i = 0; i < 3; i++) {
        hub_close(holders[i]);
    }
    net_world_close(&world);
}
END_TEST

START_TEST(hub_open_second_hub_at_the_port_is_refused)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hub *second = NULL;

    net_hub_open(&world, &spec);
    spec.ports = &world.port;
    ck_assert_int_eq(hub_open(&spec, &second, &err), HSDP_ERR_ADDRESS_IN_USE);
    net_world_close(&world);
    ck_assert_int_eq(hub_open(&spec, &second, &err), HSDP_OK); /* and free again at once */
    hub_close(second);
}
END_TEST

START_TEST(hub_open_without_token_at_another_address_is_refused)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    struct hsdp_error err = HSDP_ERROR_INIT;

    spec.host = "192.0.2.1"; /* of documents: nobody's */
    ck_assert_int_eq(hub_open(&spec, &world.hub, &err), HSDP_ERR_INVALID);
    ck_assert_msg(strstr(err.message, "without a token") != NULL, "%s", err.message);
    spec.token = net_token(1);
    ck_assert_int_eq(hub_open(&spec, &world.hub, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_msg(strstr(err.message, "192.0.2.1") != NULL, "%s", err.message);
}
END_TEST

START_TEST(hub_open_bad_spec_is_refused)
{
    struct net_world world = {0};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hub_spec specs[3];

    for (uint32_t i = 0; i < 3; i++) {
        specs[i] = net_hub_spec(&world);
    }
    specs[0].n_ports = 0;
    specs[1].max_peers = 0;
    specs[2].max_message_bytes = NET_MAX_MESSAGE + 1;
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(hub_open(&specs[i], &world.hub, &err), HSDP_ERR_INVALID);
    }
}
END_TEST

START_TEST(uplink_open_silent_listener_first_joins_at_the_next)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    uint16_t ports[2];
    int silent = net_silent_listener(&ports[0]);

    net_hub_open(&world, &spec);
    ports[1] = world.port;
    uplink_open_at(&world, ports, 2, NULL);
    net_serve_until(&world, net_all_joined);
    uplink_text_expect(&world, "no answer to our hello");
    net_world_close(&world);
    close(silent);
}
END_TEST

/* Nowhere else to go: it waits longer there, and says for what. */
START_TEST(uplink_trouble_first_try_says_what_it_waits_for)
{
    struct net_world world = {0};
    int silent = net_silent_listener(&world.port);

    uplink_open_at(&world, &world.port, 1, NULL);
    net_serve_ms(&world, 300);
    uplink_text_expect(&world, "no answer to our hello");
    ck_assert_int_eq(uplink_state(world.uplinks[0]), UPLINK_TRYING);
    net_world_close(&world);
    close(silent);
}
END_TEST

/* Answers whoever comes, as such a server does, to what it does not understand. */
static void *http_serve(void *argument)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    int listener = *(int *)argument;
    int fd = accept(listener, NULL, NULL);
    char bytes[512];

    if (fd >= 0 && recv(fd, bytes, sizeof(bytes), 0) > 0) {
        send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
    }
    close(fd);
    return NULL;
}

START_TEST(uplink_open_web_server_first_joins_at_the_next)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    uint16_t ports[2];
    int listener = net_silent_listener(&ports[0]);
    pthread_t thread;

    net_hub_open(&world, &spec);
    ports[1] = world.port;
    ck_assert_int_eq(pthread_create(&thread, NULL, http_serve, &listener), 0);
    uplink_open_at(&world, ports, 2, NULL);
    net_serve_until(&world, net_all_joined);
    uplink_text_expect(&world, "it is nobody of ours");
    pthread_join(thread, NULL);
    net_world_close(&world);
    close(listener);
}
END_TEST

/* Whether a name server answers at all is not known: it is closed in any case. */
START_TEST(uplink_open_unknown_host_is_said_and_harmless)
{
    static const char *const hosts[] = {"no.such.host.invalid", "127.0.0.1"};
    struct net_world world = {0};
    struct hub_spec hub_spec = net_hub_spec(&world);
    struct uplink_spec spec;

    net_hub_open(&world, &hub_spec);
    spec = net_uplink_spec(&world, 0);
    spec.hosts = hosts;
    spec.n_hosts = 2;
    net_uplink_open(&world, 0, &spec);
    net_serve_until(&world, net_all_joined);
    uplink_text_expect(&world, "no.such.host.invalid");
    net_world_close(&world);
}
END_TEST

/* -------------------------------------------------------------------------------------- tokens */

struct tokens {
    uint8_t of_uplink; /* 0 = none */
    uint8_t of_hub;
    const char *refusal;
};

static const struct tokens tokens[] = {
    {1, 2, "it has another token"},
    {0, 2, "it has a token, this process has none"},
    {1, 0, "it has no token, this process has one"},
};

static bool hub_has_refused(struct net_world *world)
{
    struct hub_counts counts;

    hub_count(world->hub, &counts);
    return counts.other_tokens + counts.other_jobs + counts.remotes > 1;
}

START_TEST(uplink_open_another_token_is_kept_out_and_named)
{
    const struct tokens *row = &tokens[_i];
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    char text[256];

    spec.token = row->of_hub == 0 ? NULL : net_token(row->of_hub);
    net_hub_open(&world, &spec);
    uplink_open_at(&world, &world.port, 1, row->of_uplink == 0 ? NULL : net_token(row->of_uplink));
    net_serve_until(&world, hub_has_refused);
    uplink_text_expect(&world, row->refusal);
    hub_trouble(world.hub, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "with another token or none"));
    ck_assert_uint_eq(world.hub_log.n_joined + world.logs[0].n_joined, 0);
    net_world_close(&world);
}
END_TEST

START_TEST(uplink_open_another_job_is_kept_out_and_named)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    char text[256];

    spec.self.job[1] = 1;
    net_hub_open(&world, &spec);
    uplink_open_at(&world, &world.port, 1, NULL);
    net_serve_until(&world, hub_has_refused);
    uplink_text_expect(&world, "it serves another job or attempt");
    hub_trouble(world.hub, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "of another job or attempt"));
    ck_assert_uint_eq(world.hub_log.n_joined + world.logs[0].n_joined, 0);
    net_world_close(&world);
}
END_TEST

/* ----------------------------------------------------------------------------------- strangers */

/* A hub that stands alone in a thread, while the test plays the strangers. */
struct served {
    struct net_world world;
    _Atomic bool is_over;
    pthread_t thread;
};

static void *hub_thread(void *argument)
{
    struct served *served = argument;

    while (!atomic_load(&served->is_over)) {
        net_serve_ms(&served->world, 5);
    }
    return NULL;
}

static void served_begin(struct served *served)
{
    struct hub_spec spec = net_hub_spec(&served->world);

    net_hub_open(&served->world, &spec);
    ck_assert_int_eq(pthread_create(&served->thread, NULL, hub_thread, served), 0);
}

/* Stops the hub's thread; from then on the test serves it. */
static void served_take(struct served *served)
{
    atomic_store(&served->is_over, true);
    ck_assert_int_eq(pthread_join(served->thread, NULL), 0);
}

/* Who belongs joins, whatever else is going on, and soon. */
static void join_expect(struct served *served)
{
    uint64_t start_ns = clock_now_ns();

    uplink_open_at(&served->world, &served->world.port, 1, NULL);
    net_serve_until(&served->world, net_all_joined);
    ck_assert_uint_lt(clock_now_ns() - start_ns, UINT64_C(10000000000));
    ck_assert_uint_eq(served->world.hub_log.n_joined, 1);
}

struct stranger {
    const char *bytes;
    size_t n_bytes;
    bool is_dropped_at_once;
};

#define HELLO_HEAD "hsdp-net\1\0\0\0\1\0\0\0"

static const struct stranger strangers[] = {
    {"", 0, false},                                         /* half open */
    {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, true},        /* a web client */
    {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", 10, true}, /* one of TLS */
    {"\n", 1, true},
    {"hsdp-net", 8, false},
    {HELLO_HEAD, 16, false},                /* hello, and then silence */
    {"hsdp-net\1\0\0\0\3\0\0\0", 16, true}, /* a proof before any hello */
    {"hsdp-net\7\0\0\0\1\0\0\0", 16, true}, /* another version */
    {HELLO_HEAD HELLO_HEAD HELLO_HEAD HELLO_HEAD "12345678", 72, true}, /* another job */
};

START_TEST(hub_serve_stranger_is_dropped_and_disturbs_nobody)
{
    const struct stranger *row = &strangers[_i];
    struct served served = {0};
    struct hub_counts counts;
    uint64_t start_ns;
    int fd;

    served_begin(&served);
    start_ns = clock_now_ns();
    fd = net_stranger(&served.world);
    ck_assert_int_eq(send(fd, row->bytes, row->n_bytes, MSG_NOSIGNAL), (ssize_t)row->n_bytes);
    ck_assert(net_stranger_is_dropped(fd, STRANGER_MAX_MS));
    if (!row->is_dropped_at_once) {
        ck_assert_uint_ge(clock_now_ns() - start_ns, (STRANGER_MS - 100) * UINT64_C(1000000));
    }
    close(fd);
    served_take(&served);
    hub_count(served.world.hub, &counts);
    ck_assert_uint_eq(counts.n_strangers, 0);
    join_expect(&served);
    net_world_close(&served.world);
}
END_TEST

/* A byte now and then does not prolong the limit. */
START_TEST(hub_serve_slow_drip_is_dropped_in_time)
{
    struct served served = {0};
    uint64_t start_ns;
    uint32_t i = 0;
    int fd;

    served_begin(&served);
    start_ns = clock_now_ns();
    fd = net_stranger(&served.world);
    for (i = 0; i < CHANNEL_HELLO_BYTES && !net_stranger_is_dropped(fd, 100); i++) {
        send(fd, i < 16 ? &HELLO_HEAD[i] : "x", 1, MSG_NOSIGNAL);
    }
    ck_assert_uint_lt(i, CHANNEL_HELLO_BYTES); /* 7 s at least */
    ck_assert_uint_ge(clock_now_ns() - start_ns, (STRANGER_MS - 100) * UINT64_C(1000000));
    close(fd);
    served_take(&served);
    join_expect(&served);
    net_world_close(&served.world);
}
END_TEST

static uint64_t memory_pages(void)
{
    unsigned long long n_pages = 0;
    unsigned long long n_resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%llu %llu", &n_pages, &n_resident), 2);
    fclose(file);
    return n_resident;
}

#define MANY      2000
#define MAX_THERE 300u /* of a hub that expects few: see hub_counts */

static int strangers_open(const struct net_world *world, int fds[MANY])
{
    static const char *const said[] = {"", "G", "hsdp-net", HELLO_HEAD};
    int n;

    for (n = 0; n < MANY; n++) {
        const char *bytes = said[n % 4];

        fds[n] = net_stranger(world);
        send(fds[n], bytes, n % 4 == 3 ? 16 : strlen(bytes), MSG_NOSIGNAL);
    }
    return n;
}

/* As many strangers as there may be: they are bounded, the oldest go first, one who belongs joins
 * amid them, and in the end nothing is left of them. */
START_TEST(hub_serve_two_thousand_strangers_disturb_nobody)
{
    struct rlimit limit = {2 * MANY + 500, 2 * MANY + 500};
    struct served served = {0};
    struct hub_counts counts;
    uint32_t n_descriptors;
    uint64_t n_pages = memory_pages();
    int fds[MANY];

    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        printf("skipped: no %d descriptors here\n", 2 * MANY + 500);
        return;
    }
    served_begin(&served);
    n_descriptors = ranks_n_descriptors();
    strangers_open(&served.world, fds);
    served_take(&served);
    hub_count(served.world.hub, &counts);
    ck_assert_uint_ge(counts.crowded_out, MANY / 2);
    ck_assert_uint_le(counts.n_strangers, MAX_THERE);
    ck_assert_uint_le(ranks_n_descriptors(), n_descriptors + MANY + MAX_THERE);
    ck_assert_uint_le(memory_pages() - n_pages, 4096); /* 16 MiB, of which the most is the test's */
    join_expect(&served);
    net_serve_ms(&served.world, STRANGER_MS + 200);
    hub_count(served.world.hub, &counts);
    ck_assert_uint_eq(counts.n_strangers, 0);
    ck_assert_uint_eq(counts.n_peers, 1);
    for (int i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    ck_assert_uint_le(ranks_n_descriptors(), n_descriptors + 8);
    net_world_close(&served.world);
}
END_TEST

/* Out of descriptors: strangers make room, and the hub neither fails nor spins. */
START_TEST(hub_serve_out_of_descriptors_goes_on)
{
    struct net_world world = {0};
    struct hub_spec spec = net_hub_spec(&world);
    struct rlimit limit;
    struct rlimit few;
    int fds[40];

    net_hub_open(&world, &spec);
    for (int i = 0; i < N_OF(fds); i++) {
        fds[i] = net_stranger(&world);
    }
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = ranks_n_descriptors() + 4; /* the hub can take few more than there are */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    net_serve_ms(&world, 200);
    few.rlim_cur = 3; /* and now none */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    net_serve_ms(&world, STRANGER_MS + 500);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < N_OF(fds); i++) {
        close(fds[i]);
    }
    uplink_open_at(&world, &world.port, 1, NULL);
    net_serve_until(&world, net_all_joined);
    net_world_close(&world);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("net_strangers");
    TCase *tcase = tcase_create("net_strangers");

    tcase_set_timeout(tcase, 90);
    tcase_add_test(tcase, hub_open_held_port_takes_the_next);
    tcase_add_loop_test(tcase, hub_open_all_ports_held_names_them, 0, 2);
    tcase_add_test(tcase, hub_open_ports_in_a_row_are_named_as_a_range);
    tcase_add_test(tcase, hub_open_second_hub_at_the_port_is_refused);
    tcase_add_test(tcase, hub_open_without_token_at_another_address_is_refused);
    tcase_add_test(tcase, hub_open_bad_spec_is_refused);
    tcase_add_test(tcase, uplink_open_silent_listener_first_joins_at_the_next);
    tcase_add_test(tcase, uplink_trouble_first_try_says_what_it_waits_for);
    tcase_add_test(tcase, uplink_open_web_server_first_joins_at_the_next);
    tcase_add_test(tcase, uplink_open_unknown_host_is_said_and_harmless);
    tcase_add_loop_test(tcase, uplink_open_another_token_is_kept_out_and_named, 0, N_OF(tokens));
    tcase_add_test(tcase, uplink_open_another_job_is_kept_out_and_named);
    tcase_add_loop_test(tcase, hub_serve_stranger_is_dropped_and_disturbs_nobody, 0,
                        N_OF(strangers));
    tcase_add_test(tcase, hub_serve_slow_drip_is_dropped_in_time);
    tcase_add_test(tcase, hub_serve_two_thousand_strangers_disturb_nobody);
    tcase_add_test(tcase, hub_serve_out_of_descriptors_goes_on);
    suite_add_tcase(suite, tcase);
    return suite;
}
