/* SPDX-License-Identifier: Apache-2.0 */
/* Uplink, where it may lead: hosts, their addresses and ports, and what was met there. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/error.h"
#include "net/uplink_internal.h"

#define LOOK_AGAIN_NS UINT64_C(1000000000)
#define MAX_SHOWN     6u /* addresses of a sentence */

/* ------------------------------------------------------------------------------------ the order */

bool target_is_first(const struct target *target)
{
    return target->port == 0 && target->host == 0 && target->address == 0;
}

bool target_is_only(const struct uplink *uplink)
{
    return uplink->n_hosts == 1 && uplink->n_ports == 1 && uplink->hosts[0].addresses.n == 1;
}

void target_next(const struct uplink *uplink, struct target *target)
{
    target->address++;
    if (target->address >= uplink->hosts[target->host].addresses.n) {
        target->address = 0;
        target->host++;
    }
    if (target->host >= uplink->n_hosts) {
        target->host = 0;
        target->port++;
    }
}

void target_skip(const struct uplink *uplink, struct target *target)
{
    while (target->port < uplink->n_ports &&
           target->address >= uplink->hosts[target->host].addresses.n) {
        target_next(uplink, target);
    }
}

bool target_address(const struct uplink *uplink, const struct target *target, struct address *ret)
{
    const struct addresses *addresses = &uplink->hosts[target->host].addresses;

    if (target->port >= uplink->n_ports || target->address >= addresses->n) {
        return false;
    }
    *ret = addresses->rows[target->address];
    address_set_port(ret, uplink->ports[target->port]);
    return true;
}

static struct uplink_try *target_try(const struct uplink *uplink, const struct target *target)
{
    return &uplink->hosts[target->host].tries[target->address * uplink->n_ports + target->port];
}

/* A hub has answered, and said why it lets nobody in. */
static bool try_is_clear(const struct uplink_try *try)
{
    return try->outcome > TRY_REFUSED && try->outcome < TRY_REFUSED + CHANNEL_REFUSED_STRANGER;
}

void target_note(struct uplink *uplink, enum try_outcome outcome, uint32_t detail)
{
    const struct uplink_try met = {outcome, detail};
    struct uplink_try *kept = target_try(uplink, &uplink->target);

    if (try_is_clear(&met) || !try_is_clear(kept)) {
        *kept = met;
    }
}

/* ------------------------------------------------------------------------------------ the hosts */

/* Addresses that stay as they were keep what was met there. */
static void addresses_replace(struct uplink *uplink, struct uplink_host *host,
                              const struct addresses *found)
{
    bool is_same = host->addresses.n == found->n;

    for (uint32_t i = 0; is_same && i < found->n; i++) {
        is_same = address_equals(&host->addresses.rows[i], &found->rows[i]);
    }
    if (!is_same) {
        host->addresses = *found;
        memset(host->tries, 0, (size_t)ADDRESS_MAX * uplink->n_ports * sizeof(*host->tries));
        uplink->resume_ns = 0;
    }
    host->trouble[0] = '\0';
}

static void host_take(struct uplink *uplink, struct uplink_host *host)
{
    struct addresses found;
    struct hsdp_error err;
    int32_t status;

    if (host->lookup == NULL) {
        return;
    }
    status = lookup_result(host->lookup, &found, &err);
    if (status == HSDP_PENDING) {
        return;
    }
    if (status == HSDP_OK) {
        addresses_replace(uplink, host, &found);
    } else {
        snprintf(host->trouble, sizeof(host->trouble), "%.127s", err.message);
    }
    if (lookup_fd(host->lookup) >= 0) {
        epoll_ctl(uplink->epoll_fd, EPOLL_CTL_DEL, lookup_fd(host->lookup), NULL);
    }
    lookup_end(host->lookup);
    host->lookup = NULL;
}

void hosts_take(struct uplink *uplink)
{
    for (uint32_t i = 0; i < uplink->n_hosts; i++) {
        host_take(uplink, &uplink->hosts[i]);
    }
}

static void host_look(struct uplink *uplink, uint32_t index)
{
    struct uplink_host *host = &uplink->hosts[index];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1 + index};
    uint64_t now_ns = clock_now_ns();
    struct hsdp_error err;

    if (host->lookup != NULL || host->is_number ||
        (host->looked_ns != 0 && now_ns < host->looked_ns + LOOK_AGAIN_NS)) {
        return;
    }
    host->looked_ns = now_ns;
    if (lookup_start(host->name, &host->lookup, &err) != HSDP_OK) {
        snprintf(host->trouble, sizeof(host->trouble), "%.127s", err.message);
        return;
    }
    if (lookup_fd(host->lookup) >= 0) {
        snprintf(host->trouble, sizeof(host->trouble), "net: host \"%.64s\": no answer yet",
                 host->name);
        epoll_ctl(uplink->epoll_fd, EPOLL_CTL_ADD, lookup_fd(host->lookup), &event);
    } else {
        host->is_number = true;
        host_take(uplink, host);
    }
}

void hosts_look(struct uplink *uplink)
{
    for (uint32_t i = 0; i < uplink->n_hosts; i++) {
        host_look(uplink, i);
    }
    hosts_take(uplink);
}

/* ------------------------------------------------------------------------------ what was met */

static void outcome_text(const struct uplink_try *try, char *ret_text, size_t max_bytes)
{
    switch (try->outcome) {
    case TRY_FAILED:
        snprintf(ret_text, max_bytes, "%s", strerror((int)try->detail));
        break;
    case TRY_NO_CONNECTION:
        snprintf(ret_text, max_bytes, "no answer");
        break;
    case TRY_NO_ANSWER:
        snprintf(ret_text, max_bytes, "no answer to our hello");
        break;
    case TRY_CUT:
        snprintf(ret_text, max_bytes, "it hung up on our hello");
        break;
    default:
        channel_refusal_text((enum channel_refusal)(try->outcome - TRY_REFUSED), try->detail,
                             ret_text, max_bytes);
        break;
    }
}

struct sentence {
    char *text;
    size_t max_bytes;
    size_t at;
    uint32_t n_shown;
    uint32_t n_left_out;
};

static void sentence_add(struct sentence *sentence, const char *where, const char *what)
{
    int n;

    if (sentence->n_shown == MAX_SHOWN || sentence->at >= sentence->max_bytes) {
        sentence->n_left_out++;
        return;
    }
    n = snprintf(sentence->text + sentence->at, sentence->max_bytes - sentence->at, "%s%s%s%s",
                 sentence->n_shown == 0 ? "" : "; ", where, where[0] == '\0' ? "" : ": ", what);
    sentence->at += n > 0 ? (size_t)n : 0;
    sentence->n_shown++;
}

/* What a target has met; where it is tried for the first time, what it waits for. */
static struct uplink_try try_known(const struct uplink *uplink, const struct target *target)
{
    struct uplink_try known = *target_try(uplink, target);
    bool is_current = uplink->is_trying && target->port == uplink->target.port &&
                      target->host == uplink->target.host &&
                      target->address == uplink->target.address;

    if (known.outcome == TRY_NONE && is_current) {
        known.outcome = uplink->link.is_connecting ? TRY_NO_CONNECTION : TRY_NO_ANSWER;
    }
    return known;
}

/* Once through all targets, for those that are clear, which come first, or for the others. */
static void sentence_pass(struct sentence *sentence, const struct uplink *uplink, bool is_clear)
{
    struct target target = {0};
    struct address address;
    char where[ADDRESS_MAX_CHARS];
    char what[128];

    target_skip(uplink, &target);
    while (target_address(uplink, &target, &address)) {
        struct uplink_try try = try_known(uplink, &target);

        if (try.outcome != TRY_NONE && try_is_clear(&try) == is_clear) {
            address_text(&address, where);
            outcome_text(&try, what, sizeof(what));
            sentence_add(sentence, where, what);
        }
        target_next(uplink, &target);
        target_skip(uplink, &target);
    }
}

void uplink_trouble(const struct uplink *uplink, char *ret_text, size_t max_bytes)
{
    struct sentence sentence = {.text = ret_text, .max_bytes = max_bytes};

    ret_text[0] = '\0';
    sentence_pass(&sentence, uplink, true);
    for (uint32_t i = 0; i < uplink->n_hosts; i++) {
        if (uplink->hosts[i].trouble[0] != '\0') {
            sentence_add(&sentence, "", uplink->hosts[i].trouble);
        }
    }
    sentence_pass(&sentence, uplink, false);
    if (sentence.n_left_out > 0 && sentence.at < max_bytes) {
        snprintf(ret_text + sentence.at, max_bytes - sentence.at, "; and %u more",
                 sentence.n_left_out);
    }
}
