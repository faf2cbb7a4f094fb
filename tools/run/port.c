/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing MASTER_PORT. The port itself is left unbound, since rank 0 must bind it, perhaps without
 * SO_REUSEADDR. It lies below the range from which the kernel serves outgoing connections, so that
 * none of those takes it meanwhile, and its number is claimed by an abstract socket, so that no
 * other run of this host picks it.
 */
#include "port.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "run.h"

#define PORT_FIRST   20000
#define PORT_N       12000
#define PORT_N_TRIES 1000

static bool port_is_free(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_ANY),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return is_free;
}

/* The descriptor that holds the claim, or -1. */
static int port_claim(int port)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int length;

    if (fd < 0) {
        return -1;
    }
    length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "hsdp-run/port/%d", port);
    if (bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int port_reserve(int *ret_fd, int *ret_port)
{
    int i;

    for (i = 0; i < PORT_N_TRIES; i++) {
        uint32_t random;
        int port;
        int fd;

        if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
            break;
        }
        port = PORT_FIRST + (int)(random % PORT_N);
        fd = port_claim(port);
        if (fd >= 0 && port_is_free(port)) {
            *ret_fd = fd;
            *ret_port = port;
            return 0;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    run_complain("no TCP port from %d to %d is free for MASTER_PORT: %s", PORT_FIRST,
                 PORT_FIRST + PORT_N - 1, strerror(errno));
    return RUN_EXIT_LAUNCHER;
}
