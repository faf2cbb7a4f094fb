/* SPDX-License-Identifier: Apache-2.0 */
/* The wire of the rendezvous: addresses, sending and receiving. */
#include "comm/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

const char *const wire_setting_keys[WIRE_SETTINGS] = {
    "backend",
    "nccl_timeout_seconds",
    "init_timeout_seconds",
    "heartbeat_timeout_seconds",
    "peer_silence_seconds",
    "flight_records",
};

socklen_t wire_address(const char *identity, const char *name, struct sockaddr_un *ret)
{
    uint64_t low = text_hash(text_hash(TEXT_HASH_BASIS, identity), name);
    uint64_t high = text_hash(text_hash(low ^ UINT64_C(0x9e3779b97f4a7c15), name), identity);
    int n_bytes;

    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    /* The first byte stays zero: a name of its own, outside of any file system. */
    n_bytes = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1,
                       "hsdp-%lu-%016" PRIx64 "%016" PRIx64, (unsigned long)geteuid(), high, low);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n_bytes);
}

int wire_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool wire_peer(int fd, uint32_t *ret_uid, uint32_t *ret_pid)
{
    struct ucred peer;
    socklen_t n_bytes = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) != 0) {
        return false;
    }
    *ret_uid = (uint32_t)peer.uid;
    *ret_pid = (uint32_t)peer.pid;
    return true;
}

/* Room for one descriptor, aligned as the kernel wants it. */
union passage {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

bool wire_send(int fd, const void *bytes, uint64_t n_bytes, int passed_fd)
{
    union passage passage;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n_sent;

    if (passed_fd >= 0) {
        memset(&passage, 0, sizeof(passage));
        message.msg_control = &passage;
        message.msg_controllen = sizeof(passage);
        passage.header.cmsg_level = SOL_SOCKET;
        passage.header.cmsg_type = SCM_RIGHTS;
        passage.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&passage.header), &passed_fd, sizeof(int));
    }
    do {
        n_sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n_sent < 0 && errno == EINTR);
    return n_sent == (ssize_t)n_bytes;
}

static int passed_take(struct msghdr *message)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&fd, CMSG_DATA(header), sizeof(int));
    }
    return fd;
}

int wire_receive(int fd, void *ret_bytes, uint64_t n_bytes, int *ret_fd)
{
    union passage passage;
    struct iovec part = {.iov_base = ret_bytes, .iov_len = n_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n_received;

    message.msg_control = &passage;
    message.msg_controllen = CMSG_LEN(sizeof(int)); /* whatever more comes is closed */
    n_received = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n_received < 0 && (errno == EINTR || errno == ECONNRESET)) {
        /* A reset is told once, before what the other end had said last. */
        n_received = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    *ret_fd = n_received < 0 ? -1 : passed_take(&message);
    if (n_received < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? WIRE_NOTHING : WIRE_CLOSED;
    }
    if (n_received == (ssize_t)n_bytes && (message.msg_flags & MSG_TRUNC) == 0) {
        return WIRE_RECEIVED;
    }
    if (*ret_fd >= 0) {
        close(*ret_fd);
        *ret_fd = -1;
    }
    return n_received == 0 ? WIRE_CLOSED : WIRE_GARBAGE;
}

void wire_error_end(struct hsdp_error *err)
{
    err->message[sizeof(err->message) - 1] = '\0';
    err->operation[sizeof(err->operation) - 1] = '\0';
    err->group[sizeof(err->group) - 1] = '\0';
    err->unit[sizeof(err->unit) - 1] = '\0';
}

bool wire_send_message(int fd, struct wire_message *message, int passed_fd)
{
    message->magic = WIRE_MAGIC;
    message->protocol = WIRE_PROTOCOL;
    return wire_send(fd, message, sizeof(*message), passed_fd);
}

int wire_receive_message(int fd, struct wire_message *ret, int *ret_fd)
{
    int received = wire_receive(fd, ret, sizeof(*ret), ret_fd);

    if (received == WIRE_RECEIVED && (ret->magic != WIRE_MAGIC || ret->protocol != WIRE_PROTOCOL)) {
        if (*ret_fd >= 0) {
            close(*ret_fd);
            *ret_fd = -1;
        }
        return WIRE_GARBAGE;
    }
    if (received == WIRE_RECEIVED) {
        wire_error_end(&ret->error);
    }
    return received;
}
