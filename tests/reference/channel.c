/* SPDX-License-Identifier: Apache-2.0 */
/* Channels: unix sockets in the abstract namespace, which leave no file behind. */
#include "channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* No packet is longer: what says so is no rank. */
#define MOST_BYTES ((uint64_t)1 << 40)

static socklen_t address_make(const char *name, struct sockaddr_un *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX; /* the first byte of the path stays 0: no file */
    strncpy(ret->sun_path + 1, name, sizeof(ret->sun_path) - 2);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(ret->sun_path + 1));
}

static int closed(int fd)
{
    int saved = errno;

    close(fd);
    errno = saved;
    return -1;
}

int channel_listen(const char *name)
{
    struct sockaddr_un address;
    socklen_t n_bytes = address_make(name, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return -1;
    }
    if (bind(fd, (struct sockaddr *)&address, n_bytes) != 0 || listen(fd, SOMAXCONN) != 0) {
        return closed(fd);
    }
    return fd;
}

int channel_connect(const char *name)
{
    struct sockaddr_un address;
    socklen_t n_bytes = address_make(name, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return -1;
    }
    return connect(fd, (struct sockaddr *)&address, n_bytes) == 0 ? fd : closed(fd);
}

static bool peer_read(int fd, struct ucred *ret)
{
    socklen_t n_bytes = sizeof(*ret);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &n_bytes) == 0;
}

int channel_watch(int fd)
{
    struct ucred peer;

    if (!peer_read(fd, &peer) || peer.pid <= 0) {
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

bool channel_is_own(int fd)
{
    struct ucred peer;

    return peer_read(fd, &peer) && peer.uid == geteuid();
}

/* Reads up to n_bytes; 0 = nothing there, -1 = closed. */
static ssize_t some_read(int fd, void *to, size_t n_bytes)
{
    ssize_t n = recv(fd, to, n_bytes, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return n <= 0 ? -1 : n;
}

enum inbox_state inbox_read(struct inbox *inbox, int fd)
{
    ssize_t n = 1;

    while (inbox->n_frame < sizeof(inbox->frame)) {
        n = some_read(fd, (char *)&inbox->frame + inbox->n_frame,
                      sizeof(inbox->frame) - inbox->n_frame);
        if (n <= 0) {
            return n == 0 ? INBOX_EMPTY : INBOX_CLOSED;
        }
        inbox->n_frame += (size_t)n;
    }
    if (inbox->frame.n_bytes > MOST_BYTES ||
        !packet_reserve(&inbox->packet, (size_t)inbox->frame.n_bytes)) {
        return INBOX_CLOSED;
    }
    while (inbox->n_body < inbox->frame.n_bytes) {
        n = some_read(fd, inbox->packet.bytes + inbox->n_body,
                      (size_t)inbox->frame.n_bytes - inbox->n_body);
        if (n <= 0) {
            return n == 0 ? INBOX_EMPTY : INBOX_CLOSED;
        }
        inbox->n_body += (size_t)n;
    }
    inbox->packet.n_bytes = inbox->n_body;
    return INBOX_WHOLE;
}

void inbox_next(struct inbox *inbox)
{
    packet_free(&inbox->packet);
    *inbox = (struct inbox){0};
}
