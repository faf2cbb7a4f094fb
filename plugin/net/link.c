/* SPDX-License-Identifier: Apache-2.0 */
/* Link: a socket with its channel. */
#include "net/link.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

#define MAX_READS       8u /* of one link at a time: others have something to say, too */
#define QUEUED_MESSAGES 4u
#define QUEUED_BYTES    4096u /* beside them: for beats and short messages */
#define MIN_USER_MS     1000u

int link_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Best effort: beats find what these do not. */
void link_tune(int fd, uint64_t silence_ns)
{
    uint64_t limit_ms = silence_ns / CLOCK_NS_PER_MS;
    unsigned user_ms = limit_ms > INT32_MAX ? INT32_MAX : (unsigned)limit_ms;
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (silence_ns != 0) {
        user_ms = user_ms < MIN_USER_MS ? MIN_USER_MS : user_ms;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms)); /* 0: the system's */
}

static void end_set(struct link *link, enum net_end why)
{
    if (link->end == NET_END_NONE) {
        link->end = why;
    }
}

/* The system may find out before we do that nothing comes through any more. */
static enum net_end end_of(int number)
{
    bool is_silent = number == ETIMEDOUT || number == EHOSTUNREACH || number == ENETUNREACH ||
                     number == EHOSTDOWN || number == ENETDOWN;

    return is_silent ? NET_END_SILENT : NET_END_LOST;
}

static bool epoll_set(struct link *link, int operation)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = link->mark};

    if (link->wants_out) {
        event.events |= EPOLLOUT;
    }
    return epoll_ctl(link->epoll_fd, operation, link->fd, &event) == 0;
}

static void out_watch(struct link *link, bool wants_out)
{
    if (link->wants_out != wants_out) {
        link->wants_out = wants_out;
        if (!epoll_set(link, EPOLL_CTL_MOD)) {
            end_set(link, NET_END_MEMORY);
        }
    }
}

bool link_init(struct link *link, int fd, int epoll_fd, uint64_t mark,
               const struct channel_spec *spec)
{
    memset(link, 0, sizeof(*link));
    link->fd = fd;
    link->epoll_fd = epoll_fd;
    link->mark = mark;
    link->received_ns = clock_now_ns();
    link->sent_ns = link->received_ns;
    link->beat_ns = NET_BEAT_NS;
    link->is_connecting = spec->side == CHANNEL_CLIENT;
    link->wants_out = link->is_connecting;
    channel_init(&link->channel, spec);
    return epoll_set(link, EPOLL_CTL_ADD);
}

void link_set_times(struct link *link, uint64_t beat_ns, uint64_t silence_ns)
{
    link->beat_ns = beat_ns == 0 ? NET_BEAT_NS : beat_ns;
    link->silence_ns = silence_ns;
    link->received_ns = clock_now_ns(); /* the other end may have beaten more seldom so far */
}

void link_fini_in_child(struct link *link)
{
    if (link->fd >= 0) {
        close(link->fd);
    }
    link->fd = -1;
    channel_fini(&link->channel);
}

void link_fini(struct link *link)
{
    if (link->fd >= 0) {
        /* A child of this process may hold both: nothing of them may go on through it. */
        epoll_ctl(link->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
        shutdown(link->fd, SHUT_RDWR);
    }
    link_fini_in_child(link);
}

/* ---------------------------------------------------------------------------------- incoming */

static void input_handle(struct link *link, const uint8_t *bytes, uint64_t n_bytes,
                         link_handler *handler, void *user)
{
    while (n_bytes > 0 && link->end == NET_END_NONE && !link->is_leaving) {
        uint64_t n_used;
        enum channel_event event = channel_feed(&link->channel, bytes, n_bytes, &n_used);

        bytes += n_used;
        n_bytes -= n_used;
        if (event == CHANNEL_ENDED) {
            link_flush(link); /* why it was refused; as far as it goes */
            end_set(link, link->channel.end);
        }
        if (event != CHANNEL_WANTS) {
            handler(user, link, event);
        }
    }
}

void link_receive(struct link *link, uint8_t *inbox, link_handler *handler, void *user)
{
    for (uint32_t i = 0; i < MAX_READS && link->end == NET_END_NONE; i++) {
        ssize_t n = recv(link->fd, inbox, LINK_INBOX_BYTES, 0);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        }
        if (n <= 0) {
            end_set(link, n == 0 ? NET_END_LOST : end_of(errno));
            break;
        }
        link->received_ns = clock_now_ns();
        input_handle(link, inbox, (uint64_t)n, handler, user);
        if ((uint64_t)n < LINK_INBOX_BYTES) {
            break; /* the next end or byte makes epoll speak again */
        }
    }
    link_flush(link);
}

bool link_has_unread(const struct link *link)
{
    int n_bytes = 0;

    return ioctl(link->fd, FIONREAD, &n_bytes) == 0 && n_bytes > 0;
}

/* ---------------------------------------------------------------------------------- outgoing */

static bool queue_send(struct link *link)
{
    struct bytes *out = &link->channel.out;

    while (bytes_left(out) > 0) {
        ssize_t n = send(link->fd, out->memory + out->begin, bytes_left(out), MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
            return true;
        }
        if (n < 0) {
            return false;
        }
        bytes_take(out, (uint64_t)n);
        link->sent_ns = clock_now_ns();
    }
    return true;
}

void link_flush(struct link *link)
{
    if (link->end != NET_END_NONE || link->is_connecting) {
        return;
    }
    if (!queue_send(link)) {
        enum net_end why = end_of(errno);

        /* What it said last may still be there to be read, and reading finds the end as well. */
        bytes_take(&link->channel.out, bytes_left(&link->channel.out));
        link->is_shut = true;
        if (!link_has_unread(link)) {
            end_set(link, why);
        }
    }
    if (link->end == NET_END_NONE) {
        out_watch(link, bytes_left(&link->channel.out) > 0);
    }
    if (link->is_leaving && !link->is_shut && bytes_left(&link->channel.out) == 0) {
        shutdown(link->fd, SHUT_WR);
        link->is_shut = true;
    }
}

static bool message_queue(struct link *link, uint32_t kind, const void *bytes, uint64_t n_bytes)
{
    uint64_t max_bytes = link->channel.spec.max_message_bytes;
    uint64_t limit_bytes = QUEUED_MESSAGES * (max_bytes + CHANNEL_FRAME_BYTES) + QUEUED_BYTES;

    if (bytes_left(&link->channel.out) + n_bytes + CHANNEL_FRAME_BYTES > limit_bytes) {
        end_set(link, NET_END_OVERFLOW);
        return false;
    }
    if (!channel_say(&link->channel, kind, bytes, n_bytes)) {
        end_set(link, NET_END_MEMORY);
        return false;
    }
    return true;
}

bool link_send(struct link *link, uint32_t kind, const void *bytes, uint64_t n_bytes)
{
    if (link->end != NET_END_NONE || link->is_leaving || link->is_shut ||
        !channel_is_joined(&link->channel) || !message_queue(link, kind, bytes, n_bytes)) {
        return false;
    }
    if (!link->wants_out) {
        link_flush(link);
    }
    return link->end == NET_END_NONE;
}

static void beat_say(struct link *link, uint64_t now_ns)
{
    if (link->end != NET_END_NONE || link->is_leaving || link->is_shut || link->wants_out ||
        !channel_is_joined(&link->channel) || now_ns < link->sent_ns + link->beat_ns) {
        return;
    }
    link->sent_ns = now_ns;
    if (!channel_say_beat(&link->channel)) {
        end_set(link, NET_END_MEMORY);
    }
    link_flush(link);
}

void link_leave(struct link *link)
{
    if (link->end == NET_END_NONE && !link->is_leaving) {
        if (channel_is_joined(&link->channel) && !channel_say_farewell(&link->channel)) {
            end_set(link, NET_END_MEMORY);
        }
        link->is_leaving = true;
        link_flush(link);
    }
}

bool link_is_flushed(const struct link *link)
{
    if (link->end != NET_END_NONE) {
        return true;
    }
    return !link->is_leaving && bytes_left(&link->channel.out) == 0;
}

/* -------------------------------------------------------------------------------------- time */

uint64_t link_due_ns(const struct link *link)
{
    uint64_t due_ns = link->sent_ns + link->beat_ns;
    uint64_t silent_ns = link->silence_ns == 0 ? UINT64_MAX : link->received_ns + link->silence_ns;

    if (link->end != NET_END_NONE) {
        return 0;
    }
    return link->wants_out || due_ns > silent_ns ? silent_ns : due_ns;
}

void link_watch(struct link *link, uint64_t now_ns)
{
    beat_say(link, now_ns);
    if (link->silence_ns != 0 && now_ns >= link->received_ns + link->silence_ns &&
        !link_has_unread(link)) {
        end_set(link, NET_END_SILENT);
    }
}
