/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: how the ranks of a job find each other and agree before there is a control block. */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "comm/job_internal.h"
#include "comm/wire.h"

/**
 * Meets all other ranks by a deadline: rank 0 listens, checks what each says and hands out the
 * control block. On success job->control and job->connections are set. A job of several ranks.
 *
 * Errors: what fails a job has failed it, on every rank that came; HSDP_ERR_ADDRESS_IN_USE,
 * HSDP_ERR_NO_MEMORY and HSDP_ERR_UNAVAILABLE leave it as it was.
 */
int32_t rendezvous_meet(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);

/* rendezvous_root.c, rendezvous_guest.c: the two sides. */
int32_t rendezvous_root(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);
int32_t rendezvous_guest(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);

/** What a rank says of itself. */
void rendezvous_hello(const struct hsdp_job *job, struct wire_hello *ret);

/* rendezvous_identity.c: where to meet. Rank 0 publishes it, the others ask again for each try:
 * HSDP_PENDING while it is not there. */
int32_t rendezvous_publish(struct hsdp_job *job, struct hsdp_error *reterr);
int32_t rendezvous_ask(struct hsdp_job *job, struct hsdp_error *reterr);
/** Makes this run's identity, where the host has a key/value store. */
int32_t rendezvous_identify(struct hsdp_job *job, struct hsdp_error *reterr);

/** Ends a meeting: what fails a job does so, as reported by `reporter`. Returns err->status. */
int32_t rendezvous_end(struct hsdp_job *job, uint32_t reporter, struct hsdp_error *err);

#endif /* COMM_RENDEZVOUS_H */
