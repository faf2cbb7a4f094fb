/* SPDX-License-Identifier: Apache-2.0 */
/* Listen: ports, tried in order. */
#include "net/listen.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "net/link.h"
#include "net/lookup.h"

#define BACKLOG        4096
#define LOOKUP_MS      5000
#define ANY_PORT_TRIES 16u /* one that is free for IPv4 may be held for IPv6 */

static int32_t host_wait(const char *host, struct addresses *ret, struct hsdp_error *reterr)
{
    struct lookup *lookup = NULL;
    struct pollfd poll_fd = {.events = POLLIN};
    int32_t status = lookup_start(host, &lookup, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    poll_fd.fd = lookup_fd(lookup);
    if (poll_fd.fd >= 0) {
        poll(&poll_fd, 1, LOOKUP_MS);
    }
    status = lookup_result(lookup, ret, reterr);
    lookup_end(lookup);
    if (status == HSDP_PENDING) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "net: no answer in %d s, what the address of \"%s\" is", LOOKUP_MS / 1000,
                         host);
    }
    return status;
}

static int32_t addresses_find(const struct listen_spec *spec, struct addresses *ret,
                              struct hsdp_error *reterr)
{
    char text[ADDRESS_MAX_CHARS];
    int32_t status;

    if (spec->host == NULL) {
        address_of_host(&ret->rows[0], AF_INET, spec->is_loopback_only);
        address_of_host(&ret->rows[1], AF_INET6, spec->is_loopback_only);
        ret->n = 2;
        return HSDP_OK;
    }
    status = host_wait(spec->host, ret, reterr);
    for (uint32_t i = 0; status == HSDP_OK && spec->is_loopback_only && i < ret->n; i++) {
        if (!address_is_loopback(&ret->rows[i])) {
            address_text(&ret->rows[i], text);
            return error_set(reterr, HSDP_ERR_INVALID,
                             "net: \"%s\" is %s, and without a token nobody but this host is "
                             "listened to",
                             spec->host, text);
        }
    }
    return status;
}

/* A listening socket; -1 with errno. */
static int address_listen(const struct address *address)
{
    int fd = link_socket(address->any.sa_family);
    int one = 1;
    int saved;

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (address->any.sa_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    }
    if (bind(fd, &address->any, address->n_bytes) == 0 && listen(fd, BACKLOG) == 0) {
        return fd;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static uint16_t port_of(int fd)
{
    struct address address = {.n_bytes = sizeof(address.v6)};

    if (getsockname(fd, &address.any, &address.n_bytes) != 0) {
        return 0;
    }
    return address_port(&address);
}

/* An address that this host does not have, or not any more, is not listened at. */
static bool errno_is_absence(int number)
{
    return number == EADDRNOTAVAIL || number == EAFNOSUPPORT || number == EPROTONOSUPPORT;
}

/* One port at all addresses: 0 or an errno. */
static int port_listen(const struct addresses *addresses, uint16_t port, struct listeners *ret)
{
    int absence = EADDRNOTAVAIL;

    ret->n = 0;
    ret->port = port;
    for (uint32_t i = 0; i < addresses->n; i++) {
        struct address address = addresses->rows[i];
        int fd;

        address_set_port(&address, ret->port);
        fd = address_listen(&address);
        if (fd >= 0) {
            ret->fds[ret->n++] = fd;
            ret->port = port_of(fd);
        } else if (errno_is_absence(errno)) {
            absence = errno;
        } else {
            int number = errno;

            listen_close(ret);
            return number;
        }
    }
    return ret->n > 0 ? 0 : absence;
}

static int port_try(const struct addresses *addresses, uint16_t port, struct listeners *ret)
{
    uint32_t n_tries = port == 0 ? ANY_PORT_TRIES : 1;
    int number = EADDRINUSE;

    for (uint32_t i = 0; i < n_tries && number == EADDRINUSE; i++) {
        number = port_listen(addresses, port, ret);
    }
    return number;
}

/* "29501-29516, 7" */
static void ports_text(const struct listen_spec *spec, char *ret_text, size_t max_bytes)
{
    size_t at = 0;
    uint32_t last;

    for (uint32_t i = 0; i < spec->n_ports && at < max_bytes; i = last + 1) {
        const char *comma = i == 0 ? "" : ", ";
        int n;

        last = i;
        while (last + 1 < spec->n_ports && spec->ports[last + 1] == spec->ports[last] + 1) {
            last++;
        }
        if (last == i) {
            n = snprintf(ret_text + at, max_bytes - at, "%s%u", comma, spec->ports[i]);
        } else {
            n = snprintf(ret_text + at, max_bytes - at, "%s%u-%u", comma, spec->ports[i],
                         spec->ports[last]);
        }
        at += n > 0 ? (size_t)n : 0;
    }
}

int32_t listen_open(const struct listen_spec *spec, struct listeners *ret,
                    struct hsdp_error *reterr)
{
    struct addresses addresses = {.n = 0};
    const char *host = spec->host == NULL ? "this host" : spec->host;
    char ports[256];
    int32_t status = addresses_find(spec, &addresses, reterr);

    for (uint32_t i = 0; status == HSDP_OK && i < spec->n_ports; i++) {
        int number = port_try(&addresses, spec->ports[i], ret);

        if (number == 0) {
            return HSDP_OK;
        }
        if (number != EADDRINUSE) {
            return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                             "net: cannot listen at port %u of %s: %s", spec->ports[i], host,
                             strerror(number));
        }
    }
    if (status != HSDP_OK) {
        return status;
    }
    ports_text(spec, ports, sizeof(ports));
    return error_set(reterr, HSDP_ERR_ADDRESS_IN_USE, "net: port%s %s of %s %s held by %s",
                     spec->n_ports == 1 ? "" : "s", ports, host, spec->n_ports == 1 ? "is" : "are",
                     spec->n_ports == 1 ? "another process" : "other processes");
}

void listen_close(struct listeners *listeners)
{
    for (uint32_t i = 0; i < listeners->n; i++) {
        close(listeners->fds[i]);
    }
    listeners->n = 0;
}

void listen_raise_limit(uint64_t n_descriptors)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < n_descriptors &&
        limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = n_descriptors < limit.rlim_max ? n_descriptors : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}
