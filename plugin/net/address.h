/* SPDX-License-Identifier: Apache-2.0 */
/* Address: of IPv4 and IPv6, and as text. */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDRESS_MAX       8u  /* of one name; more are not looked at */
#define ADDRESS_MAX_CHARS 80u /* "[...%interface]:65535" with its NUL */

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t n_bytes;
};

struct addresses {
    struct address rows[ADDRESS_MAX];
    uint32_t n;
};

/** Copies one of the system's; false when it is neither IPv4 nor IPv6. */
bool address_copy(struct address *ret, const struct sockaddr *any, socklen_t n_bytes);

/** The address that means "every address of this host", or the loopback one, of a family. */
void address_of_host(struct address *ret, int family, bool is_loopback);

uint16_t address_port(const struct address *address);
void address_set_port(struct address *address, uint16_t port);

/** 127.0.0.0/8, ::1, and the former written as the latter. */
bool address_is_loopback(const struct address *address);

bool address_equals(const struct address *a, const struct address *b);

/** "127.0.0.1:29500", "[::1]:29500"; without the port when it is 0. */
void address_text(const struct address *address, char ret_text[ADDRESS_MAX_CHARS]);

#endif /* NET_ADDRESS_H */
