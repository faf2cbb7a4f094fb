/* SPDX-License-Identifier: Apache-2.0 */
/* Hub: listens, and serves who has come. */
#include "net/hub.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "net/hub_internal.h"

#define STRANGERS          128u /* at least; and as many as may join at a time, up to: */
#define STRANGERS_AS_PEERS 8192u
#define EVENT_BATCH        256
#define MAX_BATCHES        16u  /* of one hub_serve */
#define OTHER_DESCRIPTORS  256u /* of the host and of us, beside the connections */

static int32_t spec_check(const struct hub_spec *spec, struct hsdp_error *reterr)
{
    assert(spec->events.joined != NULL && spec->events.received != NULL &&
           spec->events.ended != NULL);
    if (spec->n_ports == 0 || spec->n_ports > NET_MAX_PORTS) {
        return error_set(reterr, HSDP_ERR_INVALID, "net: %" PRIu32 " ports; 1 to %u are allowed",
                         spec->n_ports, NET_MAX_PORTS);
    }
    if (spec->max_peers == 0 || spec->max_peers > NET_MAX_PEERS) {
        return error_set(reterr, HSDP_ERR_INVALID, "net: %" PRIu32 " peers; 1 to %u are allowed",
                         spec->max_peers, NET_MAX_PEERS);
    }
    if (spec->max_message_bytes > NET_MAX_MESSAGE) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "net: messages of %" PRIu64 " bytes; up to %" PRIu64 " are allowed",
                         spec->max_message_bytes, NET_MAX_MESSAGE);
    }
    return HSDP_OK;
}

static int32_t slots_create(struct hub *hub, struct hsdp_error *reterr)
{
    uint32_t max_peers = hub->spec.max_peers;

    hub->max_strangers =
        STRANGERS + (max_peers < STRANGERS_AS_PEERS ? max_peers : STRANGERS_AS_PEERS);
    hub->n_slots = max_peers + hub->max_strangers;
    hub->guests = calloc(hub->n_slots, sizeof(*hub->guests));
    hub->numbers = calloc(hub->n_slots, sizeof(*hub->numbers));
    hub->free_slots = calloc(hub->n_slots, sizeof(*hub->free_slots));
    if (hub->guests == NULL || hub->numbers == NULL || hub->free_slots == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "net: no memory for %" PRIu32 " peers",
                         max_peers);
    }
    for (uint32_t i = 0; i < hub->n_slots; i++) {
        hub->numbers[i] = i;
        hub->free_slots[i] = hub->n_slots - 1 - i;
    }
    hub->n_free = hub->n_slots;
    return HSDP_OK;
}

static bool listeners_watch(struct hub *hub, int operation)
{
    bool is_done = true;

    for (uint32_t i = 0; i < hub->listeners.n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = HUB_LISTENER_MARK + i};

        is_done =
            epoll_ctl(hub->epoll_fd, operation, hub->listeners.fds[i], &event) == 0 && is_done;
    }
    return is_done;
}

static int32_t listeners_create(struct hub *hub, const struct hub_spec *spec,
                                struct hsdp_error *reterr)
{
    struct listen_spec listen_spec = {spec->host, spec->ports, spec->n_ports, spec->token == NULL};
    int32_t status;

    listen_raise_limit((uint64_t)hub->n_slots + OTHER_DESCRIPTORS);
    hub->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (hub->epoll_fd < 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: epoll: %s", strerror(errno));
    }
    status = listen_open(&listen_spec, &hub->listeners, reterr);
    for (uint32_t i = 0; status == HSDP_OK && i < hub->listeners.n; i++) {
        link_tune(hub->listeners.fds[i], spec->silence_ns); /* who is accepted inherits it */
    }
    if (status == HSDP_OK && !listeners_watch(hub, EPOLL_CTL_ADD)) {
        status = error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: epoll: %s", strerror(errno));
    }
    return status;
}

int32_t hub_open(const struct hub_spec *spec, struct hub **ret, struct hsdp_error *reterr)
{
    struct hub *hub = NULL;
    int32_t status = spec_check(spec, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    hub = calloc(1, sizeof(*hub));
    if (hub == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "net: no memory for %zu bytes", sizeof(*hub));
    }
    hub->spec = *spec;
    hub->spec.host = NULL;
    hub->spec.ports = NULL;
    hub->spec.token = NULL;
    hub->epoll_fd = -1;
    hub->oldest = HUB_NOBODY;
    hub->newest = HUB_NOBODY;
    hub->members_due_ns = UINT64_MAX;
    hub->listen_again_ns = UINT64_MAX;
    status = keys_init(&hub->keys, spec->token, reterr);
    if (status == HSDP_OK) {
        status = slots_create(hub, reterr);
    }
    if (status == HSDP_OK) {
        status = listeners_create(hub, spec, reterr);
    }
    if (status != HSDP_OK) {
        hub_close(hub);
        return status;
    }
    *ret = hub;
    return HSDP_OK;
}

static void hub_destroy(struct hub *hub, void (*fini)(struct link *))
{
    if (hub == NULL) {
        return;
    }
    for (uint32_t i = 0; hub->guests != NULL && i < hub->n_slots; i++) {
        if (hub->guests[i] != NULL) {
            fini(&hub->guests[i]->link);
            free(hub->guests[i]);
        }
    }
    listen_close(&hub->listeners);
    if (hub->epoll_fd >= 0) {
        close(hub->epoll_fd);
    }
    free(hub->guests);
    free(hub->numbers);
    free(hub->free_slots);
    keys_fini(&hub->keys);
    free(hub);
}

void hub_close(struct hub *hub)
{
    hub_destroy(hub, link_fini);
}

void hub_close_in_child(struct hub *hub)
{
    hub_destroy(hub, link_fini_in_child);
}

void hub_stop_listening(struct hub *hub)
{
    listeners_watch(hub, EPOLL_CTL_DEL);
    listen_close(&hub->listeners);
    hub->listen_again_ns = UINT64_MAX;
    guests_drop_strangers(hub);
}

/* ----------------------------------------------------------------------------------- serving */

uint16_t hub_port(const struct hub *hub)
{
    return hub->listeners.port;
}

int hub_fd(const struct hub *hub)
{
    return hub->epoll_fd;
}

uint64_t hub_wake_ns(const struct hub *hub)
{
    uint64_t wake_ns = hub->has_ended ? 0 : hub->members_due_ns;

    if (hub->oldest != HUB_NOBODY && hub->guests[hub->oldest]->limit_ns < wake_ns) {
        wake_ns = hub->guests[hub->oldest]->limit_ns;
    }
    return hub->listen_again_ns < wake_ns ? hub->listen_again_ns : wake_ns;
}

static void events_handle(struct hub *hub, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t mark = events[i].data.u64;
        struct guest *guest;

        if (mark >= HUB_LISTENER_MARK) {
            guests_accept(hub, hub->listeners.fds[mark - HUB_LISTENER_MARK]);
            continue;
        }
        guest = guest_find(hub, mark); /* an earlier event may have ended it */
        if (guest != NULL) {
            guest_serve(hub, guest, events[i].events);
        }
    }
}

int32_t hub_serve(struct hub *hub, struct hsdp_error *reterr)
{
    struct epoll_event events[EVENT_BATCH];
    int n = EVENT_BATCH;
    uint64_t now_ns;

    for (uint32_t i = 0; i < MAX_BATCHES && n == EVENT_BATCH; i++) {
        n = epoll_wait(hub->epoll_fd, events, EVENT_BATCH, 0);
        if (n < 0 && errno != EINTR) {
            return error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: epoll: %s", strerror(errno));
        }
        events_handle(hub, events, n);
    }
    now_ns = clock_now_ns();
    guests_watch_strangers(hub, now_ns);
    if (hub->has_ended || now_ns >= hub->members_due_ns) {
        guests_watch_members(hub, now_ns);
    }
    if (now_ns >= hub->listen_again_ns) {
        hub->listen_again_ns = UINT64_MAX;
        listeners_watch(hub, EPOLL_CTL_MOD);
    }
    return HSDP_OK;
}

/* ----------------------------------------------------------------------------------- sending */

static struct guest *peer_find(const struct hub *hub, uint32_t peer)
{
    struct guest *guest = guest_find(hub, peer);

    return guest != NULL && guest->state == GUEST_PEER ? guest : NULL;
}

bool hub_send(struct hub *hub, uint32_t peer, uint32_t kind, const void *bytes, uint64_t n_bytes)
{
    struct guest *guest = peer_find(hub, peer);
    bool is_sent;

    assert(kind < NET_KIND_LIMIT && n_bytes <= hub->spec.max_message_bytes);
    if (guest == NULL) {
        return false;
    }
    is_sent = link_send(&guest->link, kind, bytes, n_bytes);
    hub->has_ended = hub->has_ended || guest->link.end != NET_END_NONE;
    return is_sent;
}

void hub_end(struct hub *hub, uint32_t peer)
{
    struct guest *guest = peer_find(hub, peer);

    if (guest != NULL) {
        guest_leave(hub, guest);
    }
}

bool hub_is_flushed(const struct hub *hub)
{
    for (uint32_t i = 0; i < hub->n_slots; i++) {
        if (hub->guests[i] != NULL && hub->guests[i]->state == GUEST_PEER &&
            !link_is_flushed(&hub->guests[i]->link)) {
            return false;
        }
    }
    return true;
}

void hub_set_silence(struct hub *hub, uint64_t silence_ns, uint64_t beat_ns)
{
    hub->spec.silence_ns = silence_ns;
    hub->spec.beat_ns = beat_ns;
    for (uint32_t i = 0; i < hub->n_slots; i++) {
        if (hub->guests[i] != NULL) {
            link_tune(hub->guests[i]->link.fd, silence_ns);
            link_set_times(&hub->guests[i]->link, beat_ns, silence_ns);
        }
    }
    hub->members_due_ns = 0; /* each may be due sooner now */
}

/* ---------------------------------------------------------------------------------- counting */

void hub_count(const struct hub *hub, struct hub_counts *ret)
{
    *ret = hub->counts;
}

void hub_trouble(const struct hub *hub, char *ret_text, size_t max_bytes)
{
    const struct hub_counts *counts = &hub->counts;
    const struct {
        uint64_t n;
        const char *what;
    } rows[] = {
        {counts->other_tokens, "with another token or none"},
        {counts->other_jobs, "of another job or attempt"},
        {counts->other_versions, "of another version"},
        {counts->remotes, "from another host, without a token"},
        {counts->crowded_out, "too many at a time"},
        {counts->silent, "that said too little in time"},
        {counts->garbage, "that spoke no word of ours"},
    };
    size_t at = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].n > 0 && at < max_bytes) {
            int n = snprintf(ret_text + at, max_bytes - at, "%s%" PRIu64 " %s", at > 0 ? ", " : "",
                             rows[i].n, rows[i].what);

            at += n > 0 ? (size_t)n : 0;
        }
    }
}
