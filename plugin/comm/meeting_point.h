/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting point: what rank 0 publishes in the host's store, so that others find it. */
#ifndef COMM_MEETING_POINT_H
#define COMM_MEETING_POINT_H

#include <stdbool.h>
#include <stdint.h>

#include "hsdp/job.h"

#define MEETING_POINT_MAX_BYTES     255u /* of a value in a store */
#define MEETING_POINT_HEX_BYTES     33u  /* 32 hexadecimal digits and a NUL */
#define MEETING_POINT_ADDRESS_BYTES 46u  /* of an IPv4 or IPv6 address, as text */
#define MEETING_POINT_MAX_ADDRESSES 16u

struct meeting_point {
    char identity[MEETING_POINT_HEX_BYTES]; /* of the run, random */
    uint16_t port;                          /* where rank 0 listens; 0 = nowhere: one host */
    uint32_t n_addresses;                   /* the likeliest first, loopback last */
    char addresses[MEETING_POINT_MAX_ADDRESSES][MEETING_POINT_ADDRESS_BYTES];
};

/** Makes a random identity; the rest is zero. */
int32_t meeting_point_init(struct meeting_point *ret, struct hsdp_error *reterr);

/**
 * Fills in the addresses of this machine that others may reach: of interfaces that are up, IPv4
 * before IPv6, loopback last; those that need a scope (link-local IPv6) are left out.
 */
int32_t meeting_point_addresses(struct meeting_point *point, struct hsdp_error *reterr);

/** Writes "hsdp1 IDENTITY PORT ADDRESS...", as many addresses as fit; returns its bytes. */
uint32_t meeting_point_write(const struct meeting_point *point,
                             char ret_value[MEETING_POINT_MAX_BYTES]);

/** Reads exactly what meeting_point_write writes; false for anything else, *ret untouched. */
bool meeting_point_parse(const char *value, uint64_t n_bytes, struct meeting_point *ret);

#endif /* COMM_MEETING_POINT_H */
