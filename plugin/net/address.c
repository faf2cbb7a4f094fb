/* SPDX-License-Identifier: Apache-2.0 */
/* Address: of IPv4 and IPv6. */
#include "net/address.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

bool address_copy(struct address *ret, const struct sockaddr *any, socklen_t n_bytes)
{
    memset(ret, 0, sizeof(*ret));
    if (any->sa_family == AF_INET && n_bytes >= sizeof(ret->v4)) {
        memcpy(&ret->v4, any, sizeof(ret->v4));
        ret->n_bytes = sizeof(ret->v4);
        return true;
    }
    if (any->sa_family == AF_INET6 && n_bytes >= sizeof(ret->v6)) {
        memcpy(&ret->v6, any, sizeof(ret->v6));
        ret->n_bytes = sizeof(ret->v6);
        return true;
    }
    return false;
}

void address_of_host(struct address *ret, int family, bool is_loopback)
{
    memset(ret, 0, sizeof(*ret));
    if (family == AF_INET) {
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_addr.s_addr = htonl(is_loopback ? INADDR_LOOPBACK : INADDR_ANY);
        ret->n_bytes = sizeof(ret->v4);
    } else {
        ret->v6.sin6_family = AF_INET6;
        ret->v6.sin6_addr = is_loopback ? in6addr_loopback : in6addr_any;
        ret->n_bytes = sizeof(ret->v6);
    }
}

uint16_t address_port(const struct address *address)
{
    return ntohs(address->any.sa_family == AF_INET ? address->v4.sin_port : address->v6.sin6_port);
}

void address_set_port(struct address *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET) {
        address->v4.sin_port = htons(port);
    } else {
        address->v6.sin6_port = htons(port);
    }
}

bool address_is_loopback(const struct address *address)
{
    const struct in6_addr *v6 = &address->v6.sin6_addr;

    if (address->any.sa_family == AF_INET) {
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
    }
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

bool address_equals(const struct address *a, const struct address *b)
{
    return a->n_bytes == b->n_bytes && memcmp(&a->v6, &b->v6, a->n_bytes) == 0;
}

void address_text(const struct address *address, char ret_text[ADDRESS_MAX_CHARS])
{
    bool is_v6 = address->any.sa_family == AF_INET6;
    uint16_t port = address_port(address);
    char host[64];

    if (getnameinfo(&address->any, address->n_bytes, host, sizeof(host), NULL, 0, NI_NUMERICHOST) !=
        0) {
        snprintf(host, sizeof(host), "?");
    }
    if (port == 0) {
        snprintf(ret_text, ADDRESS_MAX_CHARS, "%s", host);
    } else {
        snprintf(ret_text, ADDRESS_MAX_CHARS, is_v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    }
}
