/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody who belongs to a job, by its token and identity, and does not do what it should. */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/job.h"
#include "net/hub.h"
#include "net/uplink.h"

#define HOSTILE_SECONDS "4" /* nccl_timeout_seconds, which all have to have */

/* Either an uplink, in place of a leader, or a hub, in place of the root. */
struct hostile {
    struct hsdp_job *job; /* not connected: it lends its identity */
    struct hub *hub;
    struct uplink *uplink;
    uint64_t random;
    uint32_t peer; /* of the hub: the last that has joined */
    uint32_t n_joined;
    uint32_t n_received;
    uint32_t kind; /* of the last message */
    bool has_ended;
};

/** As the leader that this process's environment names, to the root of it. */
void hostile_leader_init(struct hostile *ret, uint16_t port, uint64_t seed);
/** As the root. */
void hostile_root_init(struct hostile *ret, uint16_t port, uint64_t seed);
/** Hangs up without a word. */
void hostile_fini(struct hostile *hostile);

/** Serves until n have joined, or n messages have come, the other end has ended, or ms are over. */
void hostile_serve(struct hostile *hostile, uint32_t n_joined, uint32_t n_received, uint32_t ms);

/** 0 to n - 1. */
uint32_t hostile_draw(struct hostile *hostile, uint32_t n);

void hostile_send(struct hostile *hostile, uint32_t kind, const void *bytes, uint64_t n_bytes);

/** What a leader with one rank says to join. */
void hostile_join(struct hostile *hostile);
/** The mailboxes of the ranks from `first` on: they are in `operation`, with an opinion. */
void hostile_board(struct hostile *hostile, uint64_t exchange, uint32_t first, uint32_t n_ranks,
                   const char *operation);
/** Something of any kind, of any size or of one that it could have. */
void hostile_say_anything(struct hostile *hostile);

#endif /* TESTS_HOSTILE_H */
