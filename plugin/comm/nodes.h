/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes: how the leader of a node meets the leaders of the others, and speaks to them afterwards.
 */
#ifndef COMM_NODES_H
#define COMM_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/job_internal.h"

/*
 * Rank 0, the root, holds a hub; every other leader an uplink to it: so the root sees nodes, not
 * ranks. While ranks meet, the thread that is inside of connect serves it; from nodes_start on the
 * watchdog does, and carries between the nodes
 *
 *   - boards of exchanges: from each leader to the root when all ranks of its node have come, and
 *     back to all when all nodes have;
 *   - failures: to the root, and from it to all;
 *   - verdicts: who expires asks the root, which asks the leaders of who is missing what they do.
 *
 * A job on one host has the root's side only, and only while its ranks meet: its port is held, and
 * who comes to it by mistake hears why.
 */
struct nodes;

/**
 * The root listens, another leader begins to look for it (with the host's store: job->point is
 * read already).
 *
 * Errors: HSDP_ERR_ADDRESS_IN_USE, and others of hub_open, uplink_open and token_read.
 */
int32_t nodes_open(struct hsdp_job *job, struct nodes **ret, struct hsdp_error *reterr);

/** Around everything that a fork must not fall into, as all below do; NULL is accepted. */
void nodes_lock(struct nodes *nodes);
void nodes_unlock(struct nodes *nodes);

/** Closes at once. NULL: none. */
void nodes_close(struct nodes *nodes);
/** In a child after fork: peers notice nothing. */
void nodes_close_in_child(struct nodes *nodes);

uint16_t nodes_port(const struct nodes *nodes); /* the root's; 0 = none */
int nodes_fd(const struct nodes *nodes); /* readable when there is something to do; -1 = never */
uint64_t nodes_wake_ns(const struct nodes *nodes);

/* ---------------------------------------------------------------------------------- meeting */

/** A rank of this node has come. NULL, after a failure to open: nobody cares. */
void nodes_arrived(struct nodes *nodes, uint32_t rank, uint32_t pid);

/**
 * Does what is to be done. HSDP_PENDING while ranks are missing, HSDP_OK when the whole world has
 * come, else what it failed with, as told by *ret_reporter.
 */
int32_t nodes_meet(struct nodes *nodes, uint32_t *ret_reporter, struct hsdp_error *reterr);

/** The deadline of a rank of this node has passed: nodes_meet soon says who is missing. */
void nodes_expire(struct nodes *nodes);

/** Tells the other nodes how it failed, as far as they listen, within ms. */
void nodes_fail(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err, uint32_t ms);

/** After nodes_fail: tells those who come a moment later. False: all know it, or nobody listens. */
bool nodes_fail_late(struct nodes *nodes);

/* -------------------------------------------------------------------------------- afterwards */

/* Of any rank; where it leads no node, or there is only one, they do nothing. */

/** All have met, and the control block is there: the watchdog serves job->nodes from here on. */
int32_t nodes_start(struct hsdp_job *job, struct hsdp_error *reterr);

/** Says farewell to the other nodes, closes, and sets job->nodes to NULL. */
void nodes_stop(struct hsdp_job *job);

/** Makes the relay of this node look: a mailbox has been filled, or a rank asks the root. */
void nodes_kick(struct hsdp_job *job);

#endif /* COMM_NODES_H */
