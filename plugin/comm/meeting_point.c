/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting point: the value in the host's store, and the addresses of this machine. */
#include "comm/meeting_point.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/error.h"

#define MAGIC       "hsdp1 " /* and the version of what follows */
#define MAGIC_BYTES (sizeof(MAGIC) - 1)
#define HEX_DIGITS  (MEETING_POINT_HEX_BYTES - 1)
#define PORT_MAX    65535u
#define PORT_DIGITS 5u

int32_t meeting_point_init(struct meeting_point *ret, struct hsdp_error *reterr)
{
    uint8_t bytes[HEX_DIGITS / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no random numbers: %s",
                         strerror(errno));
    }
    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        snprintf(ret->identity + 2 * i, 3, "%02x", bytes[i]);
    }
    return HSDP_OK;
}

/* ------------------------------------------------------------------------- own addresses */

/* In which round an address is taken: the likeliest to be reached first. */
enum { ROUND_IPV4, ROUND_IPV6, ROUND_LOOPBACK, N_ROUNDS };

static int address_round(const struct ifaddrs *entry)
{
    const struct sockaddr_in6 *v6 = (const void *)entry->ifa_addr;

    if (entry->ifa_addr == NULL || (entry->ifa_flags & IFF_UP) == 0) {
        return -1;
    }
    if (entry->ifa_addr->sa_family == AF_INET) {
        return (entry->ifa_flags & IFF_LOOPBACK) != 0 ? ROUND_LOOPBACK : ROUND_IPV4;
    }
    if (entry->ifa_addr->sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
        return -1;
    }
    return (entry->ifa_flags & IFF_LOOPBACK) != 0 ? ROUND_LOOPBACK : ROUND_IPV6;
}

static void address_add(struct meeting_point *point, const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    const void *bytes =
        address->sa_family == AF_INET ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr;
    char *text = point->addresses[point->n_addresses];

    if (inet_ntop(address->sa_family, bytes, text, MEETING_POINT_ADDRESS_BYTES) == NULL) {
        return;
    }
    for (uint32_t i = 0; i < point->n_addresses; i++) {
        if (strcmp(point->addresses[i], text) == 0) {
            return;
        }
    }
    point->n_addresses++;
}

int32_t meeting_point_addresses(struct meeting_point *point, struct hsdp_error *reterr)
{
    struct ifaddrs *all;

    if (getifaddrs(&all) != 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no list of own addresses: %s",
                         strerror(errno));
    }
    point->n_addresses = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
            if (point->n_addresses < MEETING_POINT_MAX_ADDRESSES && address_round(entry) == round) {
                address_add(point, entry->ifa_addr);
            }
        }
    }
    freeifaddrs(all);
    return HSDP_OK;
}

/* ------------------------------------------------------------------------- the value */

uint32_t meeting_point_write(const struct meeting_point *point,
                             char ret_value[MEETING_POINT_MAX_BYTES])
{
    char text[MEETING_POINT_MAX_BYTES + 1];
    size_t n =
        (size_t)snprintf(text, sizeof(text), MAGIC "%s %u", point->identity, (unsigned)point->port);

    for (uint32_t i = 0; i < point->n_addresses; i++) {
        size_t length = strlen(point->addresses[i]);

        if (n + 1 + length <= MEETING_POINT_MAX_BYTES) {
            n += (size_t)snprintf(text + n, sizeof(text) - n, " %s", point->addresses[i]);
        }
    }
    memcpy(ret_value, text, n);
    return (uint32_t)n;
}

/* The bytes that are still to be read. */
struct rest {
    const char *chars;
    uint64_t n;
};

static bool identity_take(struct rest *rest, struct meeting_point *ret)
{
    if (rest->n < HEX_DIGITS) {
        return false;
    }
    for (uint32_t i = 0; i < HEX_DIGITS; i++) {
        char c = rest->chars[i];

        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return false;
        }
        ret->identity[i] = c;
    }
    rest->chars += HEX_DIGITS;
    rest->n -= HEX_DIGITS;
    return true;
}

static bool port_take(struct rest *rest, struct meeting_point *ret)
{
    uint32_t port = 0;
    uint32_t n = 0;

    while (n < rest->n && n <= PORT_DIGITS && rest->chars[n] >= '0' && rest->chars[n] <= '9') {
        port = 10 * port + (uint32_t)(rest->chars[n] - '0');
        n++;
    }
    if (n == 0 || n > PORT_DIGITS || port > PORT_MAX || (n > 1 && rest->chars[0] == '0')) {
        return false;
    }
    ret->port = (uint16_t)port;
    rest->chars += n;
    rest->n -= n;
    return true;
}

/* Only as inet_ntop would write it: what is read is what was written. */
static bool is_address(const char *text)
{
    char again[MEETING_POINT_ADDRESS_BYTES];
    struct in6_addr bytes;
    int family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;

    return inet_pton(family, text, &bytes) == 1 &&
           inet_ntop(family, &bytes, again, sizeof(again)) != NULL && strcmp(text, again) == 0;
}

static bool address_take(struct rest *rest, struct meeting_point *ret)
{
    char *text = ret->addresses[ret->n_addresses];
    uint32_t n = 0;

    if (ret->n_addresses == MEETING_POINT_MAX_ADDRESSES) {
        return false;
    }
    while (n < rest->n && rest->chars[n] != ' ') {
        if (n == MEETING_POINT_ADDRESS_BYTES - 1 || rest->chars[n] == '\0') {
            return false;
        }
        text[n] = rest->chars[n];
        n++;
    }
    text[n] = '\0';
    ret->n_addresses++;
    rest->chars += n;
    rest->n -= n;
    return is_address(text);
}

bool meeting_point_parse(const char *value, uint64_t n_bytes, struct meeting_point *ret)
{
    struct meeting_point point;
    struct rest rest = {value, n_bytes};

    memset(&point, 0, sizeof(point));
    if (n_bytes < MAGIC_BYTES || n_bytes > MEETING_POINT_MAX_BYTES ||
        memcmp(value, MAGIC, MAGIC_BYTES) != 0) {
        return false;
    }
    rest.chars += MAGIC_BYTES;
    rest.n -= MAGIC_BYTES;
    if (!identity_take(&rest, &point) || rest.n == 0 || rest.chars[0] != ' ') {
        return false;
    }
    rest.chars++;
    rest.n--;
    if (!port_take(&rest, &point)) {
        return false;
    }
    while (rest.n > 0) {
        if (*rest.chars != ' ') {
            return false;
        }
        rest.chars++;
        rest.n--;
        if (!address_take(&rest, &point)) {
            return false;
        }
    }
    *ret = point;
    return true;
}
