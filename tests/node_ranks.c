/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes on one machine: the environment that a launcher gives to their ranks. */
#include "node_ranks.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The size of the index-th node, 0 when there is none. */
static uint32_t node_size(const char *sizes, uint32_t index)
{
    char *end = NULL;
    uint32_t size = 0;

    for (uint32_t i = 0; i <= index; i++) {
        size = (uint32_t)strtoul(sizes, &end, 10);
        if (*end == '\0') {
            return i == index ? size : 0;
        }
        sizes = end + 1;
    }
    return size;
}

uint32_t node_ranks_world(const char *sizes)
{
    uint32_t n_ranks = 0;

    for (uint32_t i = 0; node_size(sizes, i) > 0; i++) {
        n_ranks += node_size(sizes, i);
    }
    return n_ranks;
}

uint16_t node_ranks_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t n_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &n_bytes), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void number_set(const char *name, uint32_t value)
{
    char digits[16];

    snprintf(digits, sizeof(digits), "%u", value);
    setenv(name, digits, 1);
}

void node_ranks_environment(const struct nodes_case *nodes, uint32_t rank)
{
    uint32_t index = 0;
    uint32_t first = 0;

    while (rank >= first + node_size(nodes->sizes, index)) {
        first += node_size(nodes->sizes, index++);
    }
    number_set("LOCAL_RANK", rank - first);
    number_set("LOCAL_WORLD_SIZE", node_size(nodes->sizes, index));
    number_set("GROUP_RANK", index);
    number_set("MASTER_PORT", nodes->port);
}
