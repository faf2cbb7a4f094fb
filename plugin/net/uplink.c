/* SPDX-License-Identifier: Apache-2.0 */
/* Uplink: tries every address and port of a hub, in order, again and again, until it is let in. */
#include "net/uplink.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "net/uplink_internal.h"

#define TRY_LIMIT_NS     UINT64_C(200000000) /* of one try at first; then longer: it may be busy */
#define TRY_LIMIT_MAX_NS UINT64_C(16000000000) /* and where there is nowhere else to go */
#define LEAVE_LIMIT_NS   UINT64_C(5000000000)
#define PAUSE_MS         50u /* at most, after the first round of tries; then longer */
#define PAUSE_MAX_MS     500u
#define MAX_TRIES        64u /* of one uplink_serve: connections that are refused at once */
#define MAX_EVENTS       (1 + NET_MAX_HOSTS)
#define LINK_MARK        0u /* hosts have the others */

static int32_t spec_check(const struct uplink_spec *spec, struct hsdp_error *reterr)
{
    assert(spec->events.joined != NULL && spec->events.received != NULL &&
           spec->events.ended != NULL);
    if (spec->n_hosts == 0 || spec->n_hosts > NET_MAX_HOSTS) {
        return error_set(reterr, HSDP_ERR_INVALID, "net: %" PRIu32 " hosts; 1 to %u are allowed",
                         spec->n_hosts, NET_MAX_HOSTS);
    }
    if (spec->n_ports == 0 || spec->n_ports > NET_MAX_PORTS) {
        return error_set(reterr, HSDP_ERR_INVALID, "net: %" PRIu32 " ports; 1 to %u are allowed",
                         spec->n_ports, NET_MAX_PORTS);
    }
    if (spec->max_message_bytes > NET_MAX_MESSAGE) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "net: messages of %" PRIu64 " bytes; up to %" PRIu64 " are allowed",
                         spec->max_message_bytes, NET_MAX_MESSAGE);
    }
    return HSDP_OK;
}

static int32_t targets_create(struct uplink *uplink, const struct uplink_spec *spec,
                              struct hsdp_error *reterr)
{
    uplink->n_hosts = spec->n_hosts;
    uplink->n_ports = spec->n_ports;
    memcpy(uplink->ports, spec->ports, spec->n_ports * sizeof(*spec->ports));
    for (uint32_t i = 0; i < spec->n_hosts; i++) {
        struct uplink_host *host = &uplink->hosts[i];

        host->name = strdup(spec->hosts[i]);
        host->tries = calloc((size_t)ADDRESS_MAX * spec->n_ports, sizeof(*host->tries));
        if (host->name == NULL || host->tries == NULL) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY, "net: no memory for host \"%s\"",
                             spec->hosts[i]);
        }
    }
    return HSDP_OK;
}

int32_t uplink_open(const struct uplink_spec *spec, struct uplink **ret, struct hsdp_error *reterr)
{
    struct uplink *uplink = NULL;
    int32_t status = spec_check(spec, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    uplink = calloc(1, sizeof(*uplink));
    if (uplink == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "net: no memory for %zu bytes",
                         sizeof(*uplink));
    }
    uplink->spec = *spec;
    uplink->spec.hosts = NULL;
    uplink->spec.ports = NULL;
    uplink->spec.token = NULL;
    uplink->link.fd = -1;
    uplink->try_limit_ns = TRY_LIMIT_NS;
    uplink->pause_ms = PAUSE_MS;
    uplink->state = UPLINK_TRYING;
    status = keys_init(&uplink->keys, spec->token, reterr);
    if (status == HSDP_OK) {
        status = targets_create(uplink, spec, reterr);
    }
    uplink->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (status == HSDP_OK && uplink->epoll_fd < 0) {
        status = error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: epoll: %s", strerror(errno));
    }
    if (status != HSDP_OK) {
        uplink_close(uplink);
        return status;
    }
    *ret = uplink;
    return HSDP_OK;
}

static void uplink_destroy(struct uplink *uplink, void (*fini)(struct link *),
                           void (*end)(struct lookup *))
{
    if (uplink == NULL) {
        return;
    }
    fini(&uplink->link);
    for (uint32_t i = 0; i < uplink->n_hosts; i++) {
        end(uplink->hosts[i].lookup);
        free(uplink->hosts[i].name);
        free(uplink->hosts[i].tries);
    }
    if (uplink->epoll_fd >= 0) {
        close(uplink->epoll_fd);
    }
    keys_fini(&uplink->keys);
    free(uplink);
}

void uplink_close(struct uplink *uplink)
{
    uplink_destroy(uplink, link_fini, lookup_end);
}

void uplink_close_in_child(struct uplink *uplink)
{
    uplink_destroy(uplink, link_fini_in_child, lookup_end_in_child);
}

/* ------------------------------------------------------------------------------------- trying */

/* A try has failed, and what it met; the next is due. */
static void try_end(struct uplink *uplink, enum try_outcome outcome, uint32_t detail)
{
    target_note(uplink, outcome, detail);
    link_fini(&uplink->link);
    uplink->is_trying = false;
    target_next(uplink, &uplink->target);
}

/* All have been tried: a pause, of a random length, since others may have begun with us. */
static void round_end(struct uplink *uplink)
{
    uint32_t pause_ms = 1 + randombytes_uniform(uplink->pause_ms);

    uplink->resume_ns = clock_now_ns() + pause_ms * CLOCK_NS_PER_MS;
    uplink->pause_ms = 2 * uplink->pause_ms < PAUSE_MAX_MS ? 2 * uplink->pause_ms : PAUSE_MAX_MS;
    if (uplink->has_waited && uplink->try_limit_ns < TRY_LIMIT_MAX_NS) {
        uplink->try_limit_ns *= 2;
    }
    uplink->has_waited = false;
    uplink->target = (struct target){0};
}

static void target_connect(struct uplink *uplink, const struct address *address)
{
    struct channel_spec spec = {CHANNEL_CLIENT, &uplink->keys, uplink->spec.self,
                                uplink->spec.max_message_bytes, false};
    int fd = link_socket(address->any.sa_family);
    int number;

    if (fd < 0) {
        try_end(uplink, TRY_FAILED, (uint32_t)errno);
        return;
    }
    link_tune(fd, uplink->spec.silence_ns);
    if (connect(fd, &address->any, address->n_bytes) != 0 && errno != EINPROGRESS) {
        number = errno;
        close(fd);
        try_end(uplink, TRY_FAILED, (uint32_t)number);
        return;
    }
    uplink->is_trying = true;
    uplink->give_up_ns =
        clock_now_ns() + (target_is_only(uplink) ? TRY_LIMIT_MAX_NS : uplink->try_limit_ns);
    if (!link_init(&uplink->link, fd, uplink->epoll_fd, LINK_MARK, &spec) ||
        uplink->link.channel.end != NET_END_NONE) {
        try_end(uplink, TRY_FAILED, ENOMEM);
        return;
    }
    link_set_times(&uplink->link, uplink->spec.beat_ns, uplink->spec.silence_ns);
}

/*
 * To a port where nobody listens, a socket may be given the same port and meet itself: it would
 * hold the port that the hub wants. It goes without lingering.
 */
static bool socket_meets_itself(int fd)
{
    struct address own = {.n_bytes = sizeof(own.v6)};
    struct address other = {.n_bytes = sizeof(other.v6)};
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    if (getsockname(fd, &own.any, &own.n_bytes) != 0 ||
        getpeername(fd, &other.any, &other.n_bytes) != 0 || !address_equals(&own, &other)) {
        return false;
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return true;
}

static void connecting_end(struct uplink *uplink)
{
    socklen_t n_bytes = sizeof(int);
    int number = 0;

    if (getsockopt(uplink->link.fd, SOL_SOCKET, SO_ERROR, &number, &n_bytes) != 0) {
        number = errno;
    }
    if (number == 0 && socket_meets_itself(uplink->link.fd)) {
        close(uplink->link.fd); /* not shut down first: that would be a regular end */
        uplink->link.fd = -1;
        number = ECONNREFUSED;
    }
    if (number != 0) {
        try_end(uplink, TRY_FAILED, (uint32_t)number);
        return;
    }
    uplink->link.is_connecting = false;
    link_flush(&uplink->link);
}

static void address_note(struct uplink *uplink)
{
    struct address address = {.n_bytes = sizeof(address.v6)};

    if (getpeername(uplink->link.fd, &address.any, &address.n_bytes) == 0) {
        address_text(&address, uplink->address);
    }
}

static void link_hear(void *user, struct link *link, enum channel_event event)
{
    struct uplink *uplink = user;
    const struct uplink_events *events = &uplink->spec.events;
    const struct channel_message *message = &link->channel.message;

    if (event == CHANNEL_JOINED) {
        uplink->state = UPLINK_JOINED;
        address_note(uplink);
        events->joined(events->user);
    } else if (event == CHANNEL_MESSAGE) {
        events->received(events->user, message->kind, message->bytes, message->n_bytes);
    }
}

/* What has ended the link, if it has ended. */
static void link_settle(struct uplink *uplink)
{
    const struct channel *channel = &uplink->link.channel;
    const struct uplink_events *events = &uplink->spec.events;
    bool is_leaving = uplink->link.is_leaving;
    enum net_end why = uplink->link.end;

    if (uplink->link.fd < 0 || why == NET_END_NONE) {
        return;
    }
    if (uplink->state == UPLINK_TRYING) {
        if (channel->refusal == CHANNEL_WELCOME) {
            try_end(uplink, TRY_CUT, 0);
        } else {
            try_end(uplink, (enum try_outcome)(TRY_REFUSED + channel->refusal),
                    channel->other_version);
        }
        return;
    }
    uplink->state = UPLINK_ENDED;
    link_fini(&uplink->link);
    if (!is_leaving) {
        events->ended(events->user, why);
    }
}

/* ------------------------------------------------------------------------------------ serving */

int uplink_fd(const struct uplink *uplink)
{
    return uplink->epoll_fd;
}

uint64_t uplink_wake_ns(const struct uplink *uplink)
{
    if (uplink->state == UPLINK_ENDED) {
        return uplink->link.fd < 0 ? UINT64_MAX : uplink->give_up_ns;
    }
    if (uplink->state == UPLINK_JOINED) {
        return link_due_ns(&uplink->link);
    }
    return uplink->is_trying ? uplink->give_up_ns : uplink->resume_ns;
}

static void events_handle(struct uplink *uplink, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 != LINK_MARK) {
            hosts_take(uplink);
        } else if (uplink->link.fd >= 0 && uplink->link.is_connecting) {
            connecting_end(uplink);
        } else if (uplink->link.fd >= 0) {
            link_flush(&uplink->link);
            link_receive(&uplink->link, uplink->inbox, link_hear, uplink);
        }
    }
    link_settle(uplink);
}

/* Goes from try to try as long as they fail at once. */
static void tries_go_on(struct uplink *uplink)
{
    uint64_t now_ns = clock_now_ns();
    struct address address;

    if (uplink->is_trying && now_ns >= uplink->give_up_ns) {
        uplink->has_waited = true;
        try_end(uplink, uplink->link.is_connecting ? TRY_NO_CONNECTION : TRY_NO_ANSWER, 0);
    }
    for (uint32_t i = 0; i < MAX_TRIES && !uplink->is_trying; i++) {
        if (now_ns < uplink->resume_ns) {
            return;
        }
        if (target_is_first(&uplink->target)) {
            hosts_look(uplink);
        }
        target_skip(uplink, &uplink->target);
        if (!target_address(uplink, &uplink->target, &address)) {
            round_end(uplink);
            return;
        }
        target_connect(uplink, &address);
    }
}

int32_t uplink_serve(struct uplink *uplink, struct hsdp_error *reterr)
{
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_wait(uplink->epoll_fd, events, MAX_EVENTS, 0);
    uint64_t now_ns;

    if (n < 0 && errno != EINTR) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: epoll: %s", strerror(errno));
    }
    events_handle(uplink, events, n);
    now_ns = clock_now_ns();
    if (uplink->state == UPLINK_TRYING) {
        tries_go_on(uplink);
    } else if (uplink->state == UPLINK_JOINED) {
        link_watch(&uplink->link, now_ns);
        link_settle(uplink);
    } else if (uplink->link.fd >= 0 && now_ns >= uplink->give_up_ns) {
        link_fini(&uplink->link);
    }
    return HSDP_OK;
}

bool uplink_send(struct uplink *uplink, uint32_t kind, const void *bytes, uint64_t n_bytes)
{
    assert(kind < NET_KIND_LIMIT && n_bytes <= uplink->spec.max_message_bytes);
    return uplink->state == UPLINK_JOINED && link_send(&uplink->link, kind, bytes, n_bytes);
}

void uplink_end(struct uplink *uplink)
{
    if (uplink->state == UPLINK_JOINED) {
        link_leave(&uplink->link);
        uplink->link.is_leaving = true;
        uplink->give_up_ns = clock_now_ns() + LEAVE_LIMIT_NS;
    } else {
        link_fini(&uplink->link);
    }
    uplink->state = UPLINK_ENDED;
}

bool uplink_is_flushed(const struct uplink *uplink)
{
    return uplink->link.fd < 0 || link_is_flushed(&uplink->link);
}

void uplink_set_silence(struct uplink *uplink, uint64_t silence_ns, uint64_t beat_ns)
{
    uplink->spec.silence_ns = silence_ns;
    uplink->spec.beat_ns = beat_ns;
    if (uplink->link.fd >= 0) {
        link_tune(uplink->link.fd, silence_ns);
        link_set_times(&uplink->link, beat_ns, silence_ns);
    }
}

enum uplink_state uplink_state(const struct uplink *uplink)
{
    return uplink->state;
}

const char *uplink_address(const struct uplink *uplink)
{
    return uplink->address;
}
