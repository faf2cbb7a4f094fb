/* SPDX-License-Identifier: Apache-2.0 */
/* A hub and its uplinks in one process. */
#include "net_fixture.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ranks.h"

static const uint16_t any_port;
static const char *const loopback[] = {"127.0.0.1"};

/* ------------------------------------------------------------------------------------ events */

static void message_note(struct net_log *log, uint32_t kind, const uint8_t *bytes, uint64_t n_bytes)
{
    log->n_messages++;
    log->kind = kind;
    log->n_bytes = n_bytes;
    log->n_bytes_ever += n_bytes;
    memset(log->bytes, 0, sizeof(log->bytes));
    memcpy(log->bytes, bytes, n_bytes < sizeof(log->bytes) ? n_bytes : sizeof(log->bytes));
    for (uint64_t i = 0; i < n_bytes; i++) {
        log->sum += bytes[i];
    }
}

static void end_note(struct net_log *log, enum net_end why)
{
    log->n_ended++;
    log->why = why;
}

static void hub_joined(void *user, uint32_t peer, const struct net_identity *who)
{
    struct net_log *log = user;

    log->n_joined++;
    log->peer = peer;
    log->who = *who;
}

static void hub_received(void *user, uint32_t peer, uint32_t kind, const uint8_t *bytes,
                         uint64_t n_bytes)
{
    struct net_log *log = user;

    log->peer = peer;
    message_note(log, kind, bytes, n_bytes);
    if (log->answers) {
        ck_assert(hub_send(log->hub, peer, kind + 1, bytes, n_bytes));
    }
}

static void hub_ended(void *user, uint32_t peer, enum net_end why)
{
    struct net_log *log = user;

    log->peer = peer;
    end_note(log, why);
}

static void uplink_joined(void *user)
{
    ((struct net_log *)user)->n_joined++;
}

static void uplink_received(void *user, uint32_t kind, const uint8_t *bytes, uint64_t n_bytes)
{
    message_note(user, kind, bytes, n_bytes);
}

static void uplink_ended(void *user, enum net_end why)
{
    end_note(user, why);
}

/* -------------------------------------------------------------------------------- open, close */

struct hub_spec net_hub_spec(struct net_world *world)
{
    struct hub_spec spec = {.ports = &any_port, .n_ports = 1, .max_peers = NET_UPLINKS};

    spec.self.job[0] = 7;
    spec.max_message_bytes = NET_MESSAGE;
    spec.silence_ns = NET_SILENCE_NS;
    spec.events = (struct hub_events){hub_joined, hub_received, hub_ended, &world->hub_log};
    return spec;
}

struct uplink_spec net_uplink_spec(struct net_world *world, uint32_t index)
{
    struct uplink_spec spec = {.hosts = loopback, .n_hosts = 1, .n_ports = 1};

    spec.ports = &world->port;
    spec.self.job[0] = 7;
    spec.self.rank = index + 1;
    spec.max_message_bytes = NET_MESSAGE;
    spec.silence_ns = NET_SILENCE_NS;
    spec.events =
        (struct uplink_events){uplink_joined, uplink_received, uplink_ended, &world->logs[index]};
    return spec;
}

void net_hub_open(struct net_world *world, const struct hub_spec *spec)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status = hub_open(spec, &world->hub, &err);

    ck_assert_msg(status == HSDP_OK, "%s", err.message);
    world->hub_log.hub = world->hub;
    world->port = hub_port(world->hub);
}

void net_uplink_open(struct net_world *world, uint32_t index, const struct uplink_spec *spec)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status = uplink_open(spec, &world->uplinks[index], &err);

    ck_assert_msg(status == HSDP_OK, "%s", err.message);
}

void net_world_close(struct net_world *world)
{
    for (uint32_t i = 0; i < NET_UPLINKS; i++) {
        uplink_close(world->uplinks[i]);
        world->uplinks[i] = NULL;
    }
    hub_close(world->hub);
    world->hub = NULL;
}

/* ----------------------------------------------------------------------------------- serving */

static void poll_add(struct pollfd *polls, nfds_t *n, int fd, uint64_t due_ns, uint64_t *wake_ns)
{
    polls[(*n)++] = (struct pollfd){.fd = fd, .events = POLLIN};
    *wake_ns = due_ns < *wake_ns ? due_ns : *wake_ns;
}

/* Sleeps by what they say themselves when they are due: so a wrong answer is a hang, and found. */
static void world_sleep(struct net_world *world, uint64_t until_ns)
{
    struct pollfd polls[1 + NET_UPLINKS];
    uint64_t wake_ns = until_ns;
    nfds_t n = 0;

    if (world->hub != NULL) {
        poll_add(polls, &n, hub_fd(world->hub), hub_wake_ns(world->hub), &wake_ns);
    }
    for (uint32_t i = 0; i < NET_UPLINKS; i++) {
        if (world->uplinks[i] != NULL) {
            poll_add(polls, &n, uplink_fd(world->uplinks[i]), uplink_wake_ns(world->uplinks[i]),
                     &wake_ns);
        }
    }
    poll(polls, n, clock_left_ms(wake_ns, (int)NET_LIMIT_MS));
}

static void world_serve(struct net_world *world)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (world->hub != NULL) {
        ck_assert_int_eq(hub_serve(world->hub, &err), HSDP_OK);
    }
    for (uint32_t i = 0; i < NET_UPLINKS; i++) {
        if (world->uplinks[i] != NULL) {
            ck_assert_int_eq(uplink_serve(world->uplinks[i], &err), HSDP_OK);
        }
    }
}

void net_serve_until(struct net_world *world, bool (*holds)(struct net_world *world))
{
    uint64_t until_ns = clock_deadline_ns(NET_LIMIT_MS);
    char text[512] = "";

    while (!holds(world)) {
        if (clock_now_ns() >= until_ns) {
            if (world->uplinks[0] != NULL) {
                uplink_trouble(world->uplinks[0], text, sizeof(text));
            }
            ck_abort_msg("waited in vain; the first uplink met: %s", text);
        }
        world_sleep(world, until_ns);
        world_serve(world);
    }
}

void net_serve_ms(struct net_world *world, uint32_t ms)
{
    uint64_t until_ns = clock_deadline_ns(ms);

    while (clock_now_ns() < until_ns) {
        world_sleep(world, until_ns);
        world_serve(world);
    }
}

bool net_all_joined(struct net_world *world)
{
    uint32_t n_uplinks = 0;

    for (uint32_t i = 0; i < NET_UPLINKS; i++) {
        if (world->uplinks[i] != NULL) {
            n_uplinks++;
            if (world->logs[i].n_joined == 0) {
                return false;
            }
        }
    }
    return world->hub_log.n_joined >= n_uplinks;
}

const uint8_t *net_token(uint8_t byte)
{
    static uint8_t tokens[256][NET_TOKEN_BYTES];

    memset(tokens[byte], byte, NET_TOKEN_BYTES);
    return tokens[byte];
}

/* --------------------------------------------------------------------------------- strangers */

static struct sockaddr_in loopback_address(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int net_stranger(const struct net_world *world)
{
    struct sockaddr_in address = loopback_address(world->port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

bool net_stranger_is_dropped(int fd, uint32_t ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    uint64_t until_ns = clock_deadline_ns(ms);
    char bytes[512];

    while (poll(&poll_fd, 1, clock_left_ms(until_ns, (int)ms)) > 0) {
        if (recv(fd, bytes, sizeof(bytes), 0) <= 0) {
            return true;
        }
    }
    return false;
}

int net_silent_listener(uint16_t *ret_port)
{
    struct sockaddr_in address = loopback_address(0);
    socklen_t n_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, n_bytes), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &n_bytes), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

bool net_has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return has;
}
