/* SPDX-License-Identifier: Apache-2.0 */
/* Hub, each who comes: a stranger, then one who has proved to hold the token, then a peer. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/hub_internal.h"

#define ACCEPT_BATCH      128u
#define STRANGER_LIMIT_NS UINT64_C(2000000000)
#define PROVED_LIMIT_NS   UINT64_C(20000000000) /* it holds the token: only slow, or lost */
#define LEAVE_LIMIT_NS    UINT64_C(5000000000)
#define DEAF_NS           UINT64_C(50000000) /* out of descriptors: so long nobody is accepted */
#define MEMBERS_LEAST_NS  UINT64_C(20000000) /* between two looks at all members */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct guest *guest_find(const struct hub *hub, uint64_t number)
{
    struct guest *guest = number > UINT32_MAX ? NULL : hub->guests[number % hub->n_slots];

    return guest != NULL && guest->number == number ? guest : NULL;
}

static void members_due(struct hub *hub, uint64_t due_ns)
{
    uint64_t soonest_ns = hub->members_seen_ns + MEMBERS_LEAST_NS;

    hub->members_due_ns = least(hub->members_due_ns, due_ns > soonest_ns ? due_ns : soonest_ns);
}

/* ------------------------------------------------------------------------------- coming, going */

static void strangers_add(struct hub *hub, struct guest *guest, uint32_t slot)
{
    guest->older = hub->newest;
    guest->newer = HUB_NOBODY;
    if (hub->newest == HUB_NOBODY) {
        hub->oldest = slot;
    } else {
        hub->guests[hub->newest]->newer = slot;
    }
    hub->newest = slot;
    hub->counts.n_strangers++;
}

static void strangers_take(struct hub *hub, struct guest *guest)
{
    if (guest->older == HUB_NOBODY) {
        hub->oldest = guest->newer;
    } else {
        hub->guests[guest->older]->newer = guest->newer;
    }
    if (guest->newer == HUB_NOBODY) {
        hub->newest = guest->older;
    } else {
        hub->guests[guest->newer]->older = guest->older;
    }
    hub->counts.n_strangers--;
}

static void guest_free(struct hub *hub, struct guest *guest)
{
    uint32_t slot = guest->number % hub->n_slots;

    if (guest->state == GUEST_STRANGER) {
        strangers_take(hub, guest);
    } else {
        hub->n_members--;
        hub->counts.n_peers -= guest->state == GUEST_PEER;
    }
    link_fini(&guest->link);
    hub->guests[slot] = NULL;
    hub->free_slots[hub->n_free++] = slot;
    free(guest);
}

/* Takes over fd. Strangers have a limit, members too, and there are slots for both. */
static void guest_add(struct hub *hub, int fd)
{
    struct channel_spec spec = {CHANNEL_SERVER, &hub->keys, hub->spec.self,
                                hub->spec.max_message_bytes, hub->n_members >= hub->spec.max_peers};
    struct guest *guest = calloc(1, sizeof(*guest));
    uint32_t slot;

    if (guest == NULL) {
        close(fd);
        return;
    }
    slot = hub->free_slots[--hub->n_free];
    guest->number = hub->numbers[slot];
    hub->numbers[slot] =
        guest->number > UINT32_MAX - hub->n_slots ? slot : guest->number + hub->n_slots;
    hub->guests[slot] = guest;
    strangers_add(hub, guest, slot);
    guest->limit_ns = clock_now_ns() + STRANGER_LIMIT_NS;
    if (!link_init(&guest->link, fd, hub->epoll_fd, guest->number, &spec)) {
        guest_free(hub, guest);
        return;
    }
    link_set_times(&guest->link, hub->spec.beat_ns, hub->spec.silence_ns);
}

static void oldest_drop(struct hub *hub)
{
    hub->counts.crowded_out++;
    guest_free(hub, hub->guests[hub->oldest]);
}

/* No descriptor is left: the oldest stranger makes room, or nobody is accepted for a moment. */
static void accept_fail(struct hub *hub)
{
    struct epoll_event nothing = {.events = 0};

    if (hub->oldest != HUB_NOBODY) {
        oldest_drop(hub);
        return;
    }
    for (uint32_t i = 0; i < hub->listeners.n; i++) {
        nothing.data.u64 = HUB_LISTENER_MARK + i;
        epoll_ctl(hub->epoll_fd, EPOLL_CTL_MOD, hub->listeners.fds[i], &nothing);
    }
    hub->listen_again_ns = clock_now_ns() + DEAF_NS;
}

void guests_accept(struct hub *hub, int listener_fd)
{
    for (uint32_t i = 0; i < ACCEPT_BATCH; i++) {
        struct address from = {.n_bytes = sizeof(from.v6)};
        int fd = accept4(listener_fd, &from.any, &from.n_bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                accept_fail(hub);
            }
            return;
        }
        if (!hub->keys.has_token && !address_is_loopback(&from)) {
            hub->counts.remotes++;
            close(fd); /* not one word with it */
            continue;
        }
        if (hub->counts.n_strangers >= hub->max_strangers) {
            oldest_drop(hub);
        }
        guest_add(hub, fd);
    }
}

/* ---------------------------------------------------------------------------- what it has said */

static void refusal_count(struct hub *hub, const struct channel *channel)
{
    switch (channel->refusal) {
    case CHANNEL_REFUSED_VERSION:
        hub->counts.other_versions++;
        break;
    case CHANNEL_REFUSED_JOB:
        hub->counts.other_jobs++;
        break;
    case CHANNEL_REFUSED_TOKEN:
    case CHANNEL_REFUSED_NO_TOKEN:
    case CHANNEL_REFUSED_TOKEN_HERE:
        hub->counts.other_tokens++;
        break;
    case CHANNEL_REFUSED_FULL:
        hub->counts.crowded_out++;
        break;
    case CHANNEL_WELCOME: /* it went without a word */
    case CHANNEL_REFUSED_STRANGER:
        hub->counts.garbage++;
        break;
    }
}

static void guest_proved(struct hub *hub, struct guest *guest)
{
    if (hub->n_members >= hub->spec.max_peers) { /* others were faster */
        guest->link.channel.refusal = CHANNEL_REFUSED_FULL;
        guest->link.end = NET_END_GARBAGE;
        return;
    }
    strangers_take(hub, guest);
    guest->state = GUEST_PROVED;
    hub->n_members++;
    guest->limit_ns = clock_now_ns() + PROVED_LIMIT_NS;
    members_due(hub, guest->limit_ns);
}

static void guest_joined(struct hub *hub, struct guest *guest)
{
    guest->state = GUEST_PEER;
    guest->limit_ns = UINT64_MAX;
    hub->counts.n_peers++;
    hub->counts.n_joined++;
    members_due(hub, link_due_ns(&guest->link));
    hub->spec.events.joined(hub->spec.events.user, guest->number, &guest->link.channel.who);
}

static void guest_hear(void *user, struct link *link, enum channel_event event)
{
    struct hub *hub = user;
    struct guest *guest = (struct guest *)link; /* its first member */
    const struct channel_message *message = &link->channel.message;

    switch (event) {
    case CHANNEL_PROVED:
        guest_proved(hub, guest);
        break;
    case CHANNEL_JOINED:
        guest_joined(hub, guest);
        break;
    case CHANNEL_MESSAGE:
        hub->spec.events.received(hub->spec.events.user, guest->number, message->kind,
                                  message->bytes, message->n_bytes);
        break;
    case CHANNEL_WANTS:
    case CHANNEL_BEAT:
    case CHANNEL_ENDED: /* guest_settle sees it */
        break;
    }
}

/* Frees one that has ended, and then says so: from now on its number is nobody's. */
static void guest_settle(struct hub *hub, struct guest *guest)
{
    uint32_t number = guest->number;
    enum net_end why = guest->link.end;
    /* Who has proved itself may take itself for let in, and then it does not come again. */
    bool was_peer =
        guest->state == GUEST_PEER || (guest->state == GUEST_PROVED && why == NET_END_MEMORY);

    if (why == NET_END_NONE) {
        return;
    }
    if (guest->state == GUEST_STRANGER && why != NET_END_SILENT) {
        refusal_count(hub, &guest->link.channel);
    }
    was_peer = was_peer && !guest->link.is_leaving;
    guest_free(hub, guest);
    if (was_peer) {
        hub->spec.events.ended(hub->spec.events.user, number, why);
    }
}

void guest_serve(struct hub *hub, struct guest *guest, uint32_t epoll_events)
{
    if ((epoll_events & EPOLLOUT) != 0) {
        link_flush(&guest->link);
    }
    if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        link_receive(&guest->link, hub->inbox, guest_hear, hub);
    }
    guest_settle(hub, guest);
}

void guest_leave(struct hub *hub, struct guest *guest)
{
    link_leave(&guest->link);
    guest->link.is_leaving = true; /* also where it has ended, and nobody has been told yet */
    guest->limit_ns = clock_now_ns() + LEAVE_LIMIT_NS;
    members_due(hub, guest->limit_ns);
    hub->has_ended = hub->has_ended || guest->link.end != NET_END_NONE;
}

/* -------------------------------------------------------------------------------------- limits */

/*
 * One that is at its limit is heard once more. If its hello had come, and only now is read, then it
 * was this end that was slow: it has as long again to prove that it belongs, once.
 */
static void stranger_expire(struct hub *hub, struct guest *guest, uint64_t now_ns)
{
    bool had_hello = channel_has_hello(&guest->link.channel);

    link_receive(&guest->link, hub->inbox, guest_hear, hub);
    if (guest->state == GUEST_STRANGER && guest->link.end == NET_END_NONE) {
        if (!had_hello && channel_has_hello(&guest->link.channel)) {
            strangers_take(hub, guest);
            strangers_add(hub, guest, guest->number % hub->n_slots);
            guest->limit_ns = now_ns + STRANGER_LIMIT_NS;
        } else {
            hub->counts.silent++;
            guest->link.end = NET_END_SILENT;
        }
    }
    guest_settle(hub, guest);
}

/* They stand in the order of their limits. */
void guests_watch_strangers(struct hub *hub, uint64_t now_ns)
{
    while (hub->oldest != HUB_NOBODY && hub->guests[hub->oldest]->limit_ns <= now_ns) {
        stranger_expire(hub, hub->guests[hub->oldest], now_ns);
    }
}

static void member_watch(struct hub *hub, struct guest *guest, uint64_t now_ns)
{
    if (guest->state == GUEST_PEER && !guest->link.is_leaving) {
        link_watch(&guest->link, now_ns);
        members_due(hub, link_due_ns(&guest->link));
    } else if (now_ns >= guest->limit_ns && guest->link.end == NET_END_NONE) {
        guest->link.end = NET_END_SILENT;
    } else {
        members_due(hub, guest->limit_ns);
    }
    guest_settle(hub, guest);
}

void guests_watch_members(struct hub *hub, uint64_t now_ns)
{
    hub->members_seen_ns = now_ns;
    hub->members_due_ns = UINT64_MAX;
    hub->has_ended = false;
    for (uint32_t i = 0; i < hub->n_slots; i++) {
        if (hub->guests[i] != NULL && hub->guests[i]->state != GUEST_STRANGER) {
            member_watch(hub, hub->guests[i], now_ns);
        }
    }
}

void guests_drop_strangers(struct hub *hub)
{
    for (uint32_t i = 0; i < hub->n_slots; i++) {
        if (hub->guests[i] != NULL && hub->guests[i]->state != GUEST_PEER) {
            guest_free(hub, hub->guests[i]);
        }
    }
}
