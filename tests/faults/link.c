/* SPDX-License-Identifier: Apache-2.0 */
/* The link between a leader and the root: bytes go through here, until they do not. */
#include "faults/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PAIRS 32u
#define TICK_MS   1

/* One connection of the leader, and the one to the root that stands for it. */
struct pair {
    int ends[2];
};

struct proxy {
    struct record *record;
    int listener;
    struct pair pairs[MAX_PAIRS];
    uint32_t n_pairs;
};

/* ------------------------------------------------------------------------- the store's value */

/* What meeting_point.h says: "hsdp1 IDENTITY PORT ADDRESS...". */
static bool value_read(const void *value, uint64_t n_bytes, char ret_identity[33],
                       unsigned *ret_port)
{
    char text[RECORD_STORE_BYTES + 1];

    if (n_bytes >= sizeof(text)) {
        return false;
    }
    memcpy(text, value, n_bytes);
    text[n_bytes] = '\0';
    return sscanf(text, "hsdp1 %32s %u", ret_identity, ret_port) == 2;
}

void link_publish(struct record *record, const void *value, uint64_t n_bytes)
{
    char identity[33];
    unsigned port;

    if (value_read(value, n_bytes, identity, &port)) {
        atomic_store(&record->root_port, port);
    }
}

uint64_t link_redirect(const struct record *record, char *value, uint64_t n_bytes,
                       uint64_t max_bytes)
{
    char text[RECORD_STORE_BYTES];
    char identity[33];
    unsigned port;
    uint64_t n;

    if (!value_read(value, n_bytes, identity, &port)) {
        return n_bytes;
    }
    n = (uint64_t)snprintf(text, sizeof(text), "hsdp1 %s %u 127.0.0.1", identity,
                           (unsigned)record->proxy_port);
    if (n > max_bytes) {
        return n_bytes;
    }
    memcpy(value, text, n);
    return n;
}

/* ------------------------------------------------------------------------- sockets */

static struct sockaddr_in loopback(uint32_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int socket_bind(uint16_t *ret_port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t n_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *ret_port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &n_bytes) == 0) {
        *ret_port = ntohs(address.sin_port);
    }
    return fd;
}

uint16_t link_free_port(void)
{
    uint16_t port;
    int fd = socket_bind(&port);

    if (fd >= 0) {
        close(fd);
    }
    return port;
}

/* With a reset rather than an end, when `is_reset`. */
static void pair_close(struct proxy *proxy, uint32_t index, bool is_reset)
{
    struct linger at_once = {.l_onoff = is_reset, .l_linger = 0};

    for (int side = 0; side < 2; side++) {
        setsockopt(proxy->pairs[index].ends[side], SOL_SOCKET, SO_LINGER, &at_once,
                   sizeof(at_once));
        close(proxy->pairs[index].ends[side]);
    }
    proxy->pairs[index] = proxy->pairs[--proxy->n_pairs];
}

static void pair_accept(struct proxy *proxy)
{
    struct sockaddr_in root = loopback(atomic_load(&proxy->record->root_port));
    int there = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int here = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);

    if (here >= 0 && there >= 0 && proxy->n_pairs < MAX_PAIRS &&
        connect(there, (struct sockaddr *)&root, sizeof(root)) == 0) {
        proxy->pairs[proxy->n_pairs++] = (struct pair){{here, there}};
        return;
    }
    if (here >= 0) {
        close(here);
    }
    if (there >= 0) {
        close(there);
    }
}

/* False when one of the two has ended. */
static bool bytes_pass(int from, int to)
{
    char bytes[16384];
    ssize_t n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    ssize_t n_sent = 0;

    if (n < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    while (n > 0 && n_sent < n) {
        ssize_t sent = send(to, bytes + n_sent, (size_t)(n - n_sent), MSG_NOSIGNAL);

        if (sent <= 0) {
            return false;
        }
        n_sent += sent;
    }
    return n > 0;
}

/* ------------------------------------------------------------------------- the process */

static void proxy_pass(struct proxy *proxy)
{
    struct pollfd polls[1 + 2 * MAX_PAIRS];
    uint32_t n = proxy->n_pairs;

    polls[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (uint32_t i = 0; i < 2 * n; i++) {
        polls[1 + i] = (struct pollfd){.fd = proxy->pairs[i / 2].ends[i % 2], .events = POLLIN};
    }
    if (poll(polls, 1 + 2 * n, TICK_MS) <= 0 || atomic_load(&proxy->record->link) != LINK_PASSES) {
        return;
    }
    for (uint32_t i = n; i-- > 0;) { /* backwards: closing one moves the last here */
        const int *ends = proxy->pairs[i].ends;

        if ((polls[1 + 2 * i].revents != 0 && !bytes_pass(ends[0], ends[1])) ||
            (polls[2 + 2 * i].revents != 0 && !bytes_pass(ends[1], ends[0]))) {
            pair_close(proxy, i, false);
        }
    }
    if (polls[0].revents != 0 && atomic_load(&proxy->record->root_port) != 0) {
        pair_accept(proxy);
    }
}

static void proxy_run(struct proxy *proxy)
{
    for (;;) {
        uint32_t drops = LINK_DROPS;

        if (atomic_load(&proxy->record->link) == LINK_IS_CUT) {
            poll(NULL, 0, TICK_MS);
        } else if (atomic_compare_exchange_strong(&proxy->record->link, &drops, LINK_PASSES)) {
            while (proxy->n_pairs > 0) {
                pair_close(proxy, 0, true);
            }
        } else {
            proxy_pass(proxy);
        }
    }
}

int link_start(struct record *record)
{
    struct proxy proxy = {.record = record};
    pid_t parent = getpid();
    pid_t pid;

    proxy.listener = socket_bind(&record->proxy_port);
    if (proxy.listener < 0 || listen(proxy.listener, 64) != 0) {
        return 0;
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(3);
        }
        proxy_run(&proxy);
    }
    close(proxy.listener);
    return pid;
}

void link_end(int pid)
{
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}
