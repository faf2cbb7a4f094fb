/* SPDX-License-Identifier: Apache-2.0 */
/* Ports that somebody else holds: case E9 of tests/cases/README.md, on one host and on several. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "jobs.h"
#include "node_ranks.h"
#include "ranks.h"
#include "suite.h"

#define N_PORTS 17u /* MASTER_PORT and those that are tried after it */

/* One host, and as many hosts as ranks. */
static const char *const shapes[] = {"3", "1,1,1"};

struct places {
    struct nodes_case nodes;
    bool is_fixed;       /* by rendezvous_port */
    int32_t expected[2]; /* of rank 0, and of the others; the second may also be a timeout */
};

/* --------------------------------------------------------------------------- who holds ports */

/* Listens at a port of 127.0.0.1; -1 when it is held already. */
static int port_hold(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 64) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Holds n ports in a row; their first one. */
static uint16_t ports_hold(uint32_t n, int *ret_fds)
{
    for (;;) {
        uint16_t first = node_ranks_port();
        uint32_t n_held = 0;

        while (first < 65535u - n && n_held < n) {
            ret_fds[n_held] = port_hold((uint16_t)(first + n_held));
            if (ret_fds[n_held] < 0) {
                break;
            }
            n_held++;
        }
        if (n_held == n) {
            return first;
        }
        while (n_held > 0) {
            close(ret_fds[--n_held]);
        }
    }
}

/* Answers whatever comes as a web server does. */
static void *http_serve(void *argument)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    int listener = *(int *)argument;
    int fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        char bytes[256];
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

        n = n < 0 ? n : send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
        (void)n;
        close(fd);
    }
    return NULL;
}

/* --------------------------------------------------------------------------------- the ranks */

static void placed_rank(uint32_t rank, void *shared)
{
    const struct places *places = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    uint64_t start_ms;
    int32_t expected = places->expected[rank == 0 ? 0 : 1];
    int32_t status;
    char port[16];

    node_ranks_environment(&places->nodes, rank);
    if (places->is_fixed) {
        snprintf(port, sizeof(port), "%u", places->nodes.port);
        setenv("HSDP_RENDEZVOUS_PORT", port, 1);
    }
    job = test_job_create("2");
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    start_ms = ranks_now_ms();
    status = job_connect(job, &err);
    if (rank == 0 || status != HSDP_ERR_TIMEOUT) {
        status_assert(status, expected, &err);
    }
    ck_assert_uint_le(ranks_now_ms() - start_ms, rank == 0 && expected != HSDP_OK ? 1900 : 8000);
    if (expected == HSDP_ERR_ADDRESS_IN_USE && status == expected) {
        snprintf(port, sizeof(port), "%u", places->nodes.port);
        ck_assert_msg(strstr(err.message, port) != NULL, "%s", err.message);
    }
    if (expected == HSDP_OK) {
        test_job_end(job);
    } else {
        test_job_drop(job);
    }
}

/* The error of others in time: what rank 0 says where they hear it, else a timeout. */
static void held_run(const char *shape, bool is_http)
{
    struct places places = {.nodes.sizes = shape, .is_fixed = true};
    pthread_t server;
    int fd;

    places.nodes.port = ports_hold(1, &fd);
    places.expected[0] = HSDP_ERR_ADDRESS_IN_USE;
    places.expected[1] = HSDP_ERR_ADDRESS_IN_USE;
    if (is_http) {
        ck_assert_int_eq(pthread_create(&server, NULL, http_serve, &fd), 0);
        pthread_detach(server);
    }
    ranks_run(3, RANKS_LIMIT_MS, placed_rank, &places);
}

START_TEST(job_connect_at_a_port_of_a_silent_listener_is_refused)
{
    held_run(shapes[_i], false);
}
END_TEST

START_TEST(job_connect_at_a_port_of_a_web_server_is_refused)
{
    held_run(shapes[_i], true);
}
END_TEST

START_TEST(job_connect_with_master_port_held_takes_another)
{
    struct places places = {.nodes.sizes = shapes[_i]};
    int fd;

    places.nodes.port = ports_hold(1, &fd);
    ranks_run(3, RANKS_LIMIT_MS, placed_rank, &places);
}
END_TEST

START_TEST(job_connect_with_all_ports_held_fails_in_time)
{
    struct places places = {.nodes.sizes = shapes[_i]};
    int fds[N_PORTS];

    places.nodes.port = ports_hold(N_PORTS, fds);
    places.expected[0] = HSDP_ERR_ADDRESS_IN_USE;
    places.expected[1] = HSDP_ERR_ADDRESS_IN_USE;
    ranks_run(3, RANKS_LIMIT_MS, placed_rank, &places);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("ports");
    TCase *tcase = tcase_create("ports");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, job_connect_at_a_port_of_a_silent_listener_is_refused, 0, 2);
    tcase_add_loop_test(tcase, job_connect_at_a_port_of_a_web_server_is_refused, 0, 2);
    tcase_add_loop_test(tcase, job_connect_with_master_port_held_takes_another, 0, 2);
    tcase_add_loop_test(tcase, job_connect_with_all_ports_held_fails_in_time, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
