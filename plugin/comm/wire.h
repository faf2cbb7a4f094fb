/* SPDX-License-Identifier: Apache-2.0 */
/* The wire of the rendezvous: messages of fixed size between the ranks of a node. */
#ifndef COMM_WIRE_H
#define COMM_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "comm/launch.h"
#include "hsdp/job.h"

/*
 * Sequenced packets on an abstract unix socket: a message arrives whole or not at all, nothing is
 * left in a file system, and both ends learn the other's user from the kernel. Client speaks first.
 *
 *     client  HELLO                          once
 *     leader  HEARD                          it has been read
 *     client  EXPIRED                        its deadline has passed: who is missing?
 *     leader  BELL + descriptor              of several nodes: wakes its watchdog
 *     leader  FAILED | WELCOME + descriptor  how it ended
 *     client  FAILED                         its host has aborted
 *     leader  MEMORY + descriptor            later, on the connections that stay open
 *
 * Whatever the versions, a message begins with magic and protocol.
 */
#define WIRE_MAGIC    UINT32_C(0x70647368)
#define WIRE_PROTOCOL 1u

#define WIRE_SETTINGS 6u /* settings that must be equal on all ranks */

struct wire_hello {
    uint32_t magic;
    uint32_t protocol;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t local_rank;
    uint32_t local_ranks;
    struct launch_identity run;
    char settings[WIRE_SETTINGS][24]; /* values, in the order of wire_setting_keys */
};

extern const char *const wire_setting_keys[WIRE_SETTINGS];

enum wire_kind {
    WIRE_HEARD = 1,
    WIRE_EXPIRED,
    WIRE_FAILED,
    WIRE_BELL,
    WIRE_WELCOME,
    WIRE_MEMORY,
};

struct wire_message {
    uint32_t magic; /* this and the next are filled by wire_send_message */
    uint32_t protocol;
    uint32_t kind;
    uint32_t rank;   /* FAILED: who reported it */
    uint64_t number; /* MEMORY: counted from 1 */
    struct hsdp_error error;
};

enum {
    WIRE_RECEIVED,
    WIRE_NOTHING, /* not now */
    WIRE_CLOSED,  /* the other end is gone */
    WIRE_GARBAGE, /* no message of ours */
};

/** The address that an identity and a name make. */
socklen_t wire_address(const char *identity, const char *name, struct sockaddr_un *ret);

int wire_socket(void); /* does not block; -1 with errno */

/** The user and process at the other end; false when the kernel does not say. */
bool wire_peer(int fd, uint32_t *ret_uid, uint32_t *ret_pid);

/** Sends n_bytes as one message; false when the other end is gone. */
bool wire_send(int fd, const void *bytes, uint64_t n_bytes, int passed_fd);

/** Receives one message of exactly n_bytes, with at most one descriptor (-1 = none). */
int wire_receive(int fd, void *ret_bytes, uint64_t n_bytes, int *ret_fd);

/** Texts of another process: makes sure that they end. */
void wire_error_end(struct hsdp_error *err);

bool wire_send_message(int fd, struct wire_message *message, int passed_fd);
int wire_receive_message(int fd, struct wire_message *ret, int *ret_fd);

#endif /* COMM_WIRE_H */
