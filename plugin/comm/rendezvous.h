/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: how the ranks of a job find each other and agree before there is a control block. */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "comm/job_internal.h"
#include "comm/wire.h"
#include "net/net.h"

/**
 * Meets all other ranks by a deadline. Those of a node meet at its leader, which checks what each
 * says, and, once the leaders have met, too (comm/nodes.h), hands out the node's control block. On
 * success job->control, job->connections and, on a leader of several nodes, job->nodes are set. A
 * job of several ranks.
 *
 * Errors: what fails a job has failed it, on every rank that came; HSDP_ERR_ADDRESS_IN_USE,
 * HSDP_ERR_NO_MEMORY and HSDP_ERR_UNAVAILABLE leave it as it was.
 */
int32_t rendezvous_meet(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);

/* rendezvous_leader.c, rendezvous_guest.c: the two sides of a node. */
int32_t rendezvous_leader(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);
int32_t rendezvous_guest(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);

/** What a rank says of itself. */
void rendezvous_hello(const struct hsdp_job *job, struct wire_hello *ret);

/** What all ranks of a world must agree on: HSDP_ERR_MISMATCH names the first difference. */
int32_t rendezvous_compare(const struct wire_hello *own, const struct wire_hello *other,
                           struct hsdp_error *reterr);

/** What connections between nodes begin with: the run, whatever the attempt, and this rank. */
void rendezvous_net_identity(const struct hsdp_job *job, struct net_identity *ret);
uint64_t rendezvous_silence_ns(const struct hsdp_job *job);

/** How long a rank waits for the others, milliseconds. */
uint64_t rendezvous_limit_ms(const struct hsdp_job *job);

/* The host's key/value store; without one they do nothing. Rank 0 makes the run's identity and
 * publishes where to meet; the others ask, again for each try: HSDP_PENDING while it is not there.
 */
int32_t rendezvous_identify(struct hsdp_job *job, struct hsdp_error *reterr);
int32_t rendezvous_publish(struct hsdp_job *job, struct hsdp_error *reterr);
int32_t rendezvous_ask(struct hsdp_job *job, struct hsdp_error *reterr);
/** Asks until it is there, the job fails, or the deadline has passed. */
int32_t rendezvous_ask_until(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);

/** Ends a meeting: what fails a job does so, as reported by `reporter`. Returns err->status. */
int32_t rendezvous_end(struct hsdp_job *job, uint32_t reporter, struct hsdp_error *err);

#endif /* COMM_RENDEZVOUS_H */
