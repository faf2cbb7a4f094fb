/* SPDX-License-Identifier: Apache-2.0 */
/* Listen: a port that is free at all addresses where a hub wants to be found. */
#ifndef NET_LISTEN_H
#define NET_LISTEN_H

#include <stdbool.h>

#include "hsdp/abi.h"
#include "net/address.h"

struct listen_spec {
    const char *host; /* NULL: loopback or any address, IPv4 and IPv6 */
    const uint16_t *ports;
    uint32_t n_ports;
    bool is_loopback_only;
};

struct listeners {
    int fds[ADDRESS_MAX];
    uint32_t n;
    uint16_t port;
};

/** Waits for a name at most 5 s. Errors: those of hub_open. */
int32_t listen_open(const struct listen_spec *spec, struct listeners *ret,
                    struct hsdp_error *reterr);

void listen_close(struct listeners *listeners);

/** Lets this process have n more descriptors, as far as it may decide that itself. */
void listen_raise_limit(uint64_t n_descriptors);

#endif /* NET_LISTEN_H */
