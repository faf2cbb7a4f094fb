/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup: the addresses of a host, found without making anybody wait for a name server. */
#ifndef NET_LOOKUP_H
#define NET_LOOKUP_H

#include "hsdp/abi.h"
#include "net/address.h"

/*
 * A number is an address at once. A name is resolved by a thread of its own, since that may take
 * many seconds. Who no longer wants to know leaves the thread alone: it touches nothing but its
 * own record, frees it, and the code that it runs stays loaded.
 */
struct lookup;

/**
 * Begins to look.
 *
 * Errors: HSDP_ERR_NO_MEMORY, HSDP_ERR_UNAVAILABLE when there can be no thread.
 */
int32_t lookup_start(const char *host, struct lookup **ret, struct hsdp_error *reterr);

/** Readable when it is done; -1 when it was done at once. */
int lookup_fd(const struct lookup *lookup);

/** HSDP_PENDING while it goes on; HSDP_ERR_UNAVAILABLE when the host has no address, and why. */
int32_t lookup_result(struct lookup *lookup, struct addresses *ret, struct hsdp_error *reterr);

/** Done or not. NULL: none. */
void lookup_end(struct lookup *lookup);

/** lookup_end in a child after fork, where there is no such thread. */
void lookup_end_in_child(struct lookup *lookup);

#endif /* NET_LOOKUP_H */
