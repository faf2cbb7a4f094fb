/* SPDX-License-Identifier: Apache-2.0 */
/* How long it takes until many participants have joined a hub over loopback, with a token. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "figures.h"
#include "net/hub.h"
#include "net/uplink.h"

#define MAX_ROUNDS    100u
#define MAX_PROCESSES 64u
#define LIMIT_NS      UINT64_C(120000000000) /* of a round */
#define LOOK_NS       UINT64_C(20000000) /* between two looks at what all uplinks are due to do */
#define SILENCE_NS    UINT64_C(30000000000)
#define MESSAGE_BYTES 4096u
#define NS_PER_SECOND 1e9
#define EVENTS        256
#define BATCH         32u /* uplinks that begin before those that have are served */

struct bench {
    uint32_t n_participants;
    uint32_t n_processes; /* of uplinks: each holds its share of them */
    uint32_t n_rounds;
    const char *part; /* a file for one line of JSON; NULL = none */
    uint8_t token[NET_TOKEN_BYTES];
    struct net_identity self;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench-join: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static void limit_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        fail("getrlimit");
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        fail("setrlimit");
    }
}

/* ------------------------------------------------------------------------ a process of uplinks */

static void uplink_joined(void *user)
{
    (void)user;
}

static void uplink_received(void *user, uint32_t kind, const uint8_t *bytes, uint64_t n_bytes)
{
    (void)user;
    (void)kind;
    (void)bytes;
    (void)n_bytes;
}

static void uplink_ended(void *user, enum net_end why)
{
    (void)user;
    (void)why;
}

static struct uplink *uplink_begin(const struct bench *bench, uint16_t port, uint32_t rank)
{
    static const char *const host = "127.0.0.1";
    struct uplink_spec spec = {.hosts = &host, .ports = &port, .n_hosts = 1, .n_ports = 1};
    struct uplink *uplink = NULL;
    struct hsdp_error err = HSDP_ERROR_INIT;

    spec.token = bench->token;
    spec.self = bench->self;
    spec.self.rank = rank;
    spec.max_message_bytes = MESSAGE_BYTES;
    spec.silence_ns = SILENCE_NS;
    spec.beat_ns = net_beat_ns(bench->n_participants, SILENCE_NS);
    spec.events = (struct uplink_events){uplink_joined, uplink_received, uplink_ended, NULL};
    if (uplink_open(&spec, &uplink, &err) != HSDP_OK) {
        fprintf(stderr, "bench-join: %s\n", err.message);
        exit(EXIT_FAILURE);
    }
    return uplink;
}

/* Serves those that have something to do now; who is only due by the clock waits a moment. */
static void uplinks_serve(int epoll_fd, struct uplink **uplinks, uint32_t n, uint64_t *look_ns)
{
    struct epoll_event events[EVENTS];
    int n_events = epoll_wait(epoll_fd, events, EVENTS, clock_left_ms(*look_ns, 1000));
    uint64_t now_ns = clock_now_ns();

    for (int i = 0; i < n_events; i++) {
        if (events[i].data.ptr != NULL) {
            uplink_serve(events[i].data.ptr, NULL);
        }
    }
    if (now_ns >= *look_ns) {
        for (uint32_t i = 0; i < n; i++) {
            if (uplink_wake_ns(uplinks[i]) <= now_ns) {
                uplink_serve(uplinks[i], NULL);
            }
        }
        *look_ns = now_ns + LOOK_NS;
    }
}

static bool pipe_has_ended(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLHUP) != 0; /* bytes are for others */
}

/* Begins at the byte in the pipe, goes on until its end. */
static void process_run(const struct bench *bench, uint16_t port, uint32_t index, int go_fd)
{
    uint32_t n = (bench->n_participants - index + bench->n_processes - 1) / bench->n_processes;
    struct uplink **uplinks = calloc(n, sizeof(struct uplink *));
    struct epoll_event event = {.events = EPOLLIN};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    uint64_t look_ns = 0;
    char byte;

    limit_raise();
    if (uplinks == NULL || epoll_fd < 0 || read(go_fd, &byte, 1) != 1) {
        fail("a process of uplinks cannot begin");
    }
    for (uint32_t i = 0; i < n; i++) {
        uplinks[i] = uplink_begin(bench, port, index + i * bench->n_processes);
        event.data.ptr = uplinks[i];
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, uplink_fd(uplinks[i]), &event) != 0) {
            fail("epoll_ctl");
        }
        uplink_serve(uplinks[i], NULL); /* its first try */
        if (i % BATCH == BATCH - 1) {   /* each is as quick as if it were alone in its process */
            look_ns = 0;
            uplinks_serve(epoll_fd, uplinks, i + 1, &look_ns);
        }
    }
    while (!pipe_has_ended(go_fd)) {
        uplinks_serve(epoll_fd, uplinks, n, &look_ns);
    }
    for (uint32_t i = 0; i < n; i++) {
        uplink_close(uplinks[i]);
    }
    free(uplinks);
    close(epoll_fd);
}

/* ------------------------------------------------------------------------------------- the hub */

struct counts {
    uint32_t n_joined;
    uint32_t n_ended;
};

static void hub_joined(void *user, uint32_t peer, const struct net_identity *who)
{
    (void)peer;
    (void)who;
    ((struct counts *)user)->n_joined++;
}

static void hub_received(void *user, uint32_t peer, uint32_t kind, const uint8_t *bytes,
                         uint64_t n_bytes)
{
    (void)user;
    (void)peer;
    (void)kind;
    (void)bytes;
    (void)n_bytes;
}

static void hub_ended(void *user, uint32_t peer, enum net_end why)
{
    (void)peer;
    (void)why;
    ((struct counts *)user)->n_ended++;
}

static struct hub *hub_begin(const struct bench *bench, struct counts *counts)
{
    static const uint16_t any_port;
    struct hub_spec spec = {.host = "127.0.0.1", .ports = &any_port, .n_ports = 1};
    struct hub *hub = NULL;
    struct hsdp_error err = HSDP_ERROR_INIT;

    spec.max_peers = bench->n_participants;
    spec.token = bench->token;
    spec.self = bench->self;
    spec.max_message_bytes = MESSAGE_BYTES;
    spec.silence_ns = SILENCE_NS;
    spec.beat_ns = net_beat_ns(bench->n_participants, SILENCE_NS);
    spec.events = (struct hub_events){hub_joined, hub_received, hub_ended, counts};
    if (hub_open(&spec, &hub, &err) != HSDP_OK) {
        fprintf(stderr, "bench-join: %s\n", err.message);
        exit(EXIT_FAILURE);
    }
    return hub;
}

/* Seconds from the start signal until all have joined. */
static double joins_wait(const struct bench *bench, struct hub *hub, const struct counts *counts,
                         int go_fd)
{
    struct pollfd poll_fd = {.fd = hub_fd(hub), .events = POLLIN};
    char bytes[MAX_PROCESSES] = {0};
    uint64_t start_ns = clock_now_ns();
    char trouble[256];

    if (write(go_fd, bytes, bench->n_processes) != (ssize_t)bench->n_processes) {
        fail("write");
    }
    while (counts->n_joined < bench->n_participants) {
        poll(&poll_fd, 1, clock_left_ms(hub_wake_ns(hub), 1000));
        hub_serve(hub, NULL);
        if (clock_now_ns() - start_ns > LIMIT_NS || counts->n_ended > 0) {
            hub_trouble(hub, trouble, sizeof(trouble));
            fprintf(stderr, "bench-join: %" PRIu32 " have joined, %" PRIu32 " ended; %s\n",
                    counts->n_joined, counts->n_ended, trouble);
            exit(EXIT_FAILURE);
        }
    }
    return (double)(clock_now_ns() - start_ns) / NS_PER_SECOND;
}

static double round_run(const struct bench *bench)
{
    struct counts counts = {0};
    struct hub *hub = hub_begin(bench, &counts);
    int fds[2];
    int status;
    double seconds;

    fflush(stdout);
    if (pipe(fds) != 0) {
        fail("pipe");
    }
    for (uint32_t i = 0; i < bench->n_processes; i++) {
        pid_t pid = fork();

        if (pid < 0) {
            fail("fork");
        }
        if (pid == 0) {
            uint16_t port = hub_port(hub);

            hub_close_in_child(hub);
            close(fds[1]);
            process_run(bench, port, i, fds[0]);
            _exit(0);
        }
    }
    close(fds[0]);
    seconds = joins_wait(bench, hub, &counts, fds[1]);
    close(fds[1]);
    for (uint32_t i = 0; i < bench->n_processes; i++) {
        if (wait(&status) < 0 || status != 0) {
            fail("a process of uplinks failed");
        }
    }
    hub_close(hub);
    return seconds;
}

/* -------------------------------------------------------------------------------------- results */

static void results_write(const struct bench *bench, double *seconds)
{
    FILE *file = bench->part == NULL ? NULL : fopen(bench->part, "w");
    double median = figures_median(seconds, bench->n_rounds);

    printf("joins over loopback, with a token: %" PRIu32 " participants in %" PRIu32 " processes\n",
           bench->n_participants, bench->n_processes);
    printf("rounds   median s   fastest s   slowest s\n");
    printf("%6" PRIu32 "%11.3f%12.3f%12.3f\n", bench->n_rounds, median, seconds[0],
           seconds[bench->n_rounds - 1]);
    if (bench->part == NULL) {
        return;
    }
    if (file == NULL) {
        fail(bench->part);
    }
    fprintf(file,
            "{\"participants\":%" PRIu32 ",\"authenticated\":true,\"processes\":%" PRIu32
            ",\"rounds\":%" PRIu32 ",\"seconds\":%.3f,\"fastest\":%.3f,\"slowest\":%.3f}\n",
            bench->n_participants, bench->n_processes, bench->n_rounds, median, seconds[0],
            seconds[bench->n_rounds - 1]);
    if (fclose(file) != 0) {
        fail(bench->part);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.n_participants = 10000, .n_processes = 8, .n_rounds = 5};
    double seconds[MAX_ROUNDS];
    int option;

    while ((option = getopt(argc, argv, "n:p:r:o:")) != -1) {
        if (option == 'n') {
            bench.n_participants = (uint32_t)figures_option("bench-join", optarg, NET_MAX_PEERS);
        } else if (option == 'p') {
            bench.n_processes = (uint32_t)figures_option("bench-join", optarg, MAX_PROCESSES);
        } else if (option == 'r') {
            bench.n_rounds = (uint32_t)figures_option("bench-join", optarg, MAX_ROUNDS);
        } else if (option == 'o') {
            bench.part = optarg;
        } else {
            fprintf(stderr, "usage: bench-join [-n participants] [-p processes] [-r rounds] "
                            "[-o file]\n");
            return 2;
        }
    }
    memset(bench.token, 0x5c, sizeof(bench.token));
    for (uint32_t i = 0; i < bench.n_rounds; i++) {
        seconds[i] = round_run(&bench);
    }
    results_write(&bench, seconds);
    return EXIT_SUCCESS;
}
