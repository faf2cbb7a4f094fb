/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: how ranks meet, at a thread and a socket of the process that made the id. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "doubles/nccl_double.h"

/* The socket has no name in the file system, and so leaves nothing there. */
static const char id_magic[8] = "nccl-2x";

enum { ID_RANDOM_BYTES = 16, MAX_RANKS = 1024, N_TRIES = 100, TRY_MS = 20 };

struct hello {
    char magic[8];
    struct meeting_guest guest;
};

/* With the descriptor of the memory where the result is NCCL_OK. */
struct answer {
    nccl_result result;
    char text[200];
};

/* The thread's; it lives until all ranks have come, or as long as the process. */
struct host {
    int listener;
    int *guests; /* sockets by rank, -1 = has not come */
    struct meeting_guest *seats;
    uint32_t n_ranks; /* 0 = nobody has come */
    uint32_t n_come;
};

static socklen_t address_make(const struct nccl_unique_id *id, struct sockaddr_un *ret)
{
    char *name = ret->sun_path + 1;

    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    name += sprintf(name, "nccl-double-");
    for (int i = 0; i < ID_RANDOM_BYTES; i++) {
        name += sprintf(name, "%02x", (unsigned char)id->bytes[sizeof(id_magic) + (size_t)i]);
    }
    return (socklen_t)(name - (char *)ret);
}

/* ---------------------------------------------------------------------------- at the host */

static void answer_send(int guest, const struct answer *answer, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {(void *)answer, sizeof(*answer)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
    }
    if (sendmsg(guest, &message, MSG_NOSIGNAL) < 0) {
        nccl_debug("a rank has left the meeting: %s", strerror(errno));
    }
    close(guest);
}

static void host_answer_all(struct host *host, const struct answer *answer, int fd)
{
    for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
        if (host->guests[rank] >= 0) {
            answer_send(host->guests[rank], answer, fd);
        }
    }
}

/* What is wrong with a guest; false = nothing. */
static bool guest_is_wrong(const struct host *host, const struct hello *hello,
                           struct answer *ret_answer)
{
    const struct meeting_guest *guest = &hello->guest;

    *ret_answer = (struct answer){NCCL_REMOTE_ERROR, ""};
    if (guest->n_ranks != host->n_ranks) {
        snprintf(ret_answer->text, sizeof(ret_answer->text),
                 "ranks disagree on how many they are: %u and %u", host->n_ranks, guest->n_ranks);
    } else if (guest->rank >= host->n_ranks || host->guests[guest->rank] >= 0) {
        snprintf(ret_answer->text, sizeof(ret_answer->text), "rank %u of %u has come twice",
                 guest->rank, host->n_ranks);
    }
    return ret_answer->text[0] != '\0';
}

static void host_begin(struct host *host, uint32_t n_ranks)
{
    host->n_ranks = n_ranks;
    host->guests = calloc(n_ranks, sizeof(*host->guests));
    host->seats = calloc(n_ranks, sizeof(*host->seats));
    if (host->guests == NULL || host->seats == NULL) {
        nccl_die("no memory for a meeting of %u ranks", n_ranks);
    }
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        host->guests[rank] = -1;
    }
}

/* All have come: they get the memory, in which the host has written who they are. */
static void host_finish(struct host *host)
{
    struct answer answer = {NCCL_OK, ""};
    int fd = wire_create(host->n_ranks);
    struct wire wire;

    if (fd < 0 || !wire_map(&wire, dup(fd), host->n_ranks, 0)) {
        answer.result = NCCL_SYSTEM_ERROR;
        snprintf(answer.text, sizeof(answer.text), "no shared memory: %s", strerror(errno));
        host_answer_all(host, &answer, -1);
        return;
    }
    for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
        wire.seats[rank].device = host->seats[rank].device;
    }
    wire_unmap(&wire);
    host_answer_all(host, &answer, fd);
    close(fd);
}

/* False = the meeting is over. */
static bool host_receive(struct host *host)
{
    int guest = accept4(host->listener, NULL, NULL, SOCK_CLOEXEC);
    struct hello hello;
    struct answer answer;

    if (guest < 0 || recv(guest, &hello, sizeof(hello), 0) != (ssize_t)sizeof(hello) ||
        memcmp(hello.magic, id_magic, sizeof(id_magic)) != 0) {
        if (guest >= 0) {
            close(guest);
        }
        return true;
    }
    if (host->n_ranks == 0) {
        host_begin(host, hello.guest.n_ranks);
    }
    if (guest_is_wrong(host, &hello, &answer)) {
        answer_send(guest, &answer, -1);
        host_answer_all(host, &answer, -1);
        return false;
    }
    host->guests[hello.guest.rank] = guest;
    host->seats[hello.guest.rank] = hello.guest;
    host->n_come++;
    if (host->n_come == host->n_ranks) {
        host_finish(host);
        return false;
    }
    return true;
}

static void *host_thread(void *arg)
{
    struct host *host = arg;

    while (host_receive(host)) {
    }
    close(host->listener);
    free(host->guests);
    free(host->seats);
    free(host);
    return NULL;
}

static nccl_result host_start(int listener)
{
    struct host *host = calloc(1, sizeof(*host));
    pthread_t thread;
    sigset_t all;
    sigset_t former;
    int error;

    if (host == NULL) {
        close(listener);
        return nccl_fail(NCCL_SYSTEM_ERROR, "no memory for a meeting");
    }
    host->listener = listener;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    error = pthread_create(&thread, NULL, host_thread, host);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    if (error != 0) {
        close(listener);
        free(host);
        return nccl_fail(NCCL_SYSTEM_ERROR, "no thread for a meeting: %s", strerror(error));
    }
    pthread_detach(thread);
    return NCCL_OK;
}

nccl_result meeting_open(struct nccl_unique_id *ret_id)
{
    struct sockaddr_un address;
    socklen_t n_bytes;
    int listener;

    memset(ret_id, 0, sizeof(*ret_id));
    memcpy(ret_id->bytes, id_magic, sizeof(id_magic));
    if (getrandom(ret_id->bytes + sizeof(id_magic), ID_RANDOM_BYTES, 0) != ID_RANDOM_BYTES) {
        return nccl_fail(NCCL_SYSTEM_ERROR, "no random bytes: %s", strerror(errno));
    }
    n_bytes = address_make(ret_id, &address);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, n_bytes) != 0 ||
        listen(listener, MAX_RANKS) != 0) {
        int error = errno;

        if (listener >= 0) {
            close(listener);
        }
        return nccl_fail(NCCL_SYSTEM_ERROR, "no socket to meet at: %s", strerror(error));
    }
    return host_start(listener);
}

/* --------------------------------------------------------------------------- at the guests */

/* Tries for a while: whoever made the id may have ended, or have given up. */
static nccl_result guest_connect(const struct nccl_unique_id *id, const struct ncclComm *comm,
                                 int *ret_socket)
{
    struct sockaddr_un address;
    socklen_t n_bytes = address_make(id, &address);
    struct timespec pause = {0, TRY_MS * 1000000L};
    int guest = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    for (int i = 0; guest >= 0 && i < N_TRIES && !comm_is_stopped(comm); i++) {
        if (connect(guest, (struct sockaddr *)&address, n_bytes) == 0) {
            *ret_socket = guest;
            return NCCL_OK;
        }
        nanosleep(&pause, NULL);
    }
    if (guest >= 0) {
        close(guest);
    }
    return nccl_fail(NCCL_REMOTE_ERROR, "nobody is where the ranks were to meet");
}

static bool answer_receive(int guest, struct answer *ret_answer, int *ret_fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {ret_answer, sizeof(*ret_answer)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};

    if (recvmsg(guest, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*ret_answer)) {
        return false;
    }
    if (message.msg_controllen >= sizeof(control.bytes) && CMSG_FIRSTHDR(&message) != NULL) {
        memcpy(ret_fd, CMSG_DATA(&control.header), sizeof(int));
    }
    return true;
}

/* The answer comes when all are there; that may be never. */
static nccl_result guest_await(int guest, const struct ncclComm *comm, int *ret_fd)
{
    struct pollfd ready = {guest, POLLIN, 0};
    struct answer answer;

    while (poll(&ready, 1, TRY_MS) <= 0) {
        if (comm_is_stopped(comm)) {
            return nccl_fail(NCCL_INTERNAL_ERROR, "aborted while ranks met");
        }
    }
    *ret_fd = -1;
    if (!answer_receive(guest, &answer, ret_fd)) {
        return nccl_fail(NCCL_REMOTE_ERROR, "the process at which ranks met has ended");
    }
    if (answer.result != NCCL_OK || *ret_fd < 0) {
        return nccl_fail(answer.result, "%s", answer.text);
    }
    return NCCL_OK;
}

nccl_result meeting_join(const struct nccl_unique_id *id, const struct meeting_guest *guest,
                         const struct ncclComm *comm, int *ret_fd)
{
    struct hello hello = {.guest = *guest};
    nccl_result result;
    int connection = -1;

    if (memcmp(id->bytes, id_magic, sizeof(id_magic)) != 0) {
        return nccl_fail(NCCL_SYSTEM_ERROR, "this is no id of a communicator");
    }
    result = guest_connect(id, comm, &connection);
    if (result != NCCL_OK) {
        return result;
    }
    memcpy(hello.magic, id_magic, sizeof(id_magic));
    if (send(connection, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello)) {
        result = nccl_fail(NCCL_REMOTE_ERROR, "the process at which ranks meet has ended");
    } else {
        result = guest_await(connection, comm, ret_fd);
    }
    close(connection);
    return result;
}
