/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a rank: who it is, where the run meets, and nothing else that a job reads. */
#include "environment.h"

#include <ctype.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Below the range from which the kernel serves outgoing connections. */
#define PORT_FIRST   20000u
#define PORT_N       12000u
#define PORT_N_TRIES 100

extern char **environ;

static int port_is_free(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_ANY),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return is_free;
}

/* Ranks of one node hardly need it; where none is found, what they say of it is theirs to say. */
static uint16_t port_find(uint64_t start)
{
    uint16_t port = 0;

    for (uint64_t i = 0; i < PORT_N_TRIES; i++) {
        port = (uint16_t)(PORT_FIRST + (start + i) % PORT_N);
        if (port_is_free(port)) {
            return port;
        }
    }
    return port;
}

void environment_init(struct environment *ret, uint32_t n_ranks)
{
    struct timespec now;
    uint64_t now_us;

    clock_gettime(CLOCK_REALTIME, &now);
    now_us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
    snprintf(ret->run_id, sizeof(ret->run_id), "conform-%ld-%" PRIu64, (long)getpid(), now_us);
    ret->n_ranks = n_ranks;
    ret->master_port = port_find(now_us * 31u);
}

/* Whatever a plugin may take for a launcher's word, or for a setting. */
static int is_foreign(const char *entry)
{
    static const char *const beginnings[] = {
        "HSDP_",       "OMPI_",        "PMI_",          "PMIX_",
        "MPI_LOCAL",   "SLURM_",       "TORCHELASTIC_", "RANK=",
        "WORLD_SIZE=", "LOCAL_",       "GROUP_RANK=",   "GROUP_WORLD_SIZE=",
        "ROLE_",       "MASTER_ADDR=", "MASTER_PORT=",
    };

    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        if (strncmp(entry, beginnings[i], strlen(beginnings[i])) == 0) {
            return 1;
        }
    }
    return 0;
}

static void foreign_remove(void)
{
    size_t i = 0;

    while (environ != NULL && environ[i] != NULL) {
        size_t n_bytes = strcspn(environ[i], "=");
        char *name = is_foreign(environ[i]) ? strndup(environ[i], n_bytes) : NULL;

        if (name == NULL || unsetenv(name) != 0) {
            i++;
        }
        free(name);
    }
}

static void number_set(const char *name, uint32_t value)
{
    char digits[16];

    snprintf(digits, sizeof(digits), "%" PRIu32, value);
    setenv(name, digits, 1);
}

void environment_apply(const struct environment *environment, uint32_t rank)
{
    foreign_remove();
    number_set("RANK", rank);
    number_set("WORLD_SIZE", environment->n_ranks);
    number_set("LOCAL_RANK", rank);
    number_set("LOCAL_WORLD_SIZE", environment->n_ranks);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    number_set("MASTER_PORT", environment->master_port);
    setenv("HSDP_RUN_ID", environment->run_id, 1);
}

void environment_set(const char *setting)
{
    const char *value = strchr(setting, '=') + 1;
    char name[64] = "HSDP_";
    size_t n_bytes = strlen(name);

    for (const char *at = setting; *at != '=' && n_bytes + 1 < sizeof(name); at++) {
        name[n_bytes++] = (char)toupper((unsigned char)*at);
    }
    name[n_bytes] = '\0';
    setenv(name, value, 1);
}
