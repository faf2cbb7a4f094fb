/* SPDX-License-Identifier: Apache-2.0 */
/* Failures as the server sees them: who is late, who is gone, who waits for whom. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server_internal.h"

void server_fail(struct server *server, const struct hsdp_error *error)
{
    struct packet packet = {0};

    if (server->is_failed || server->is_closed) {
        return;
    }
    server->is_failed = true;
    server->failure = *error;
    meetings_destroy(server);
    error_write(error, &packet);
    for (struct peer *peer = server->peers; peer != NULL; peer = peer->next) {
        peer->waits_in = NULL;
        if (peer->is_known) {
            peer_send(peer, (struct frame){.kind = FRAME_FAILED}, &packet);
        }
    }
    packet_free(&packet);
}

void error_begin(struct hsdp_error *error, int32_t status, const struct meeting *meeting)
{
    const struct request *request = meeting_request(meeting);

    *error = (struct hsdp_error)HSDP_ERROR_INIT;
    error->status = status;
    error->sequence = request->sequence;
    snprintf(error->operation, sizeof(error->operation), "%s", request->operation);
    snprintf(error->group, sizeof(error->group), "%s", request->group);
    snprintf(error->unit, sizeof(error->unit), "%s", request->unit);
    error_say(error, "%s", request->operation);
    if (request->unit[0] != '\0') {
        error_say(error, " of unit \"%s\", sequence %" PRIu64, request->unit, request->sequence);
    }
    if (request->group[0] != '\0') {
        error_say(error, " of group \"%s\"", request->group);
    }
    error_say(error, ": ");
}

void error_say(struct hsdp_error *error, const char *format, ...)
{
    size_t n = strlen(error->message);
    va_list args;

    va_start(args, format);
    vsnprintf(error->message + n, sizeof(error->message) - n, format, args);
    va_end(args);
}

static void error_miss(struct hsdp_error *error, uint32_t rank)
{
    if (error->n_missing_ranks < HSDP_ERROR_MAX_RANKS) {
        error->missing_ranks[error->n_missing_ranks] = rank;
    }
    error->n_missing_ranks++;
}

/* "rank 1, 2, ...": who has not come to a meeting. */
static void missing_say(const struct server *server, const struct meeting *meeting,
                        struct hsdp_error *error)
{
    const char *before = "rank ";

    for (uint32_t r = 0; r < server->world_ranks; r++) {
        if (meeting_misses(meeting, r)) {
            error_say(error, "%s%" PRIu32, before, r);
            before = ", ";
        }
    }
}

/* The meeting in which a rank does nothing but wait. */
static struct meeting *rank_waits_in(const struct server *server, uint32_t rank)
{
    return server->ranks[rank] != NULL ? server->ranks[rank]->waits_in : NULL;
}

/* Follows those who have not come to where they wait for others; notes the ends of these ways. */
static void ends_follow(const struct server *server, const struct meeting *meeting, bool *is_seen,
                        bool *is_end)
{
    for (uint32_t r = 0; r < server->world_ranks; r++) {
        struct meeting *next;

        if (!meeting_misses(meeting, r) || is_seen[r]) {
            continue;
        }
        is_seen[r] = true;
        next = rank_waits_in(server, r);
        if (next == NULL) {
            is_end[r] = true;
        } else {
            ends_follow(server, next, is_seen, is_end);
        }
    }
}

/* Names those who are to blame for a meeting that did not take place. */
static void missing_blame(const struct server *server, const struct meeting *meeting,
                          struct hsdp_error *error)
{
    bool *is_seen = calloc(server->world_ranks, 2);
    bool *is_end = is_seen + server->world_ranks;

    if (is_seen != NULL) {
        ends_follow(server, meeting, is_seen, is_end);
    }
    for (uint32_t r = 0; r < server->world_ranks; r++) {
        if (is_seen != NULL && is_end[r]) {
            error_miss(error, r);
        }
    }
    for (uint32_t r = 0; r < server->world_ranks; r++) {
        if (meeting_misses(meeting, r) && rank_waits_in(server, r) != NULL) {
            error_say(error, "; rank %" PRIu32 " waits in %s for ", r,
                      meeting_request(rank_waits_in(server, r))->operation);
            missing_say(server, rank_waits_in(server, r), error);
        }
        if (error->n_missing_ranks == 0 && meeting_misses(meeting, r)) {
            error_miss(error, r); /* a circle */
        }
    }
    free(is_seen);
}

void meeting_expire(struct server *server, struct meeting *meeting)
{
    struct hsdp_error error;

    error_begin(&error, HSDP_ERR_TIMEOUT, meeting);
    error_say(&error, "timeout after %" PRIu64 " ms: no sign of ",
              meeting_request(meeting)->timeout_ms);
    missing_say(server, meeting, &error);
    missing_blame(server, meeting, &error);
    server_fail(server, &error);
}

void server_lose(struct server *server, uint32_t rank, const char *how)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    error.status = HSDP_ERR_PEER_LOST;
    snprintf(error.operation, sizeof(error.operation), "job");
    for (struct meeting *m = server->meetings; m != NULL; m = m->next) {
        if (meeting_misses(m, rank)) {
            error_begin(&error, HSDP_ERR_PEER_LOST, m);
            break;
        }
    }
    error_miss(&error, rank);
    error_say(&error, "rank %" PRIu32 " %s", rank, how);
    server_fail(server, &error);
}

/* The way by which `rank` is waited for in `meeting`, written on the way back. */
static bool circle_find(const struct server *server, const struct meeting *meeting, uint32_t rank,
                        bool *is_seen, struct hsdp_error *error)
{
    if (meeting_misses(meeting, rank)) {
        return true;
    }
    for (uint32_t r = 0; r < server->world_ranks; r++) {
        struct meeting *next = rank_waits_in(server, r);

        if (next == NULL || is_seen[r] || !meeting_misses(meeting, r)) {
            continue;
        }
        is_seen[r] = true;
        if (circle_find(server, next, rank, is_seen, error)) {
            error_say(error, ", and rank %" PRIu32 " in %s for ", r,
                      meeting_request(next)->operation);
            missing_say(server, next, error);
            return true;
        }
    }
    return false;
}

void server_find_deadlock(struct server *server, uint32_t rank)
{
    struct meeting *meeting = rank_waits_in(server, rank);
    bool *is_seen = calloc(server->world_ranks, sizeof(*is_seen));
    bool is_found = false;
    struct hsdp_error error;

    if (is_seen != NULL && meeting != NULL) {
        error_begin(&error, HSDP_ERR_MISMATCH, meeting);
        error_say(&error, "rank %" PRIu32 " waits for ", rank);
        missing_say(server, meeting, &error);
        is_found = circle_find(server, meeting, rank, is_seen, &error);
    }
    for (uint32_t r = 0; r < server->world_ranks && is_found; r++) {
        if (meeting_misses(meeting, r)) {
            error_miss(&error, r);
        }
    }
    if (is_found) {
        server_fail(server, &error);
    }
    free(is_seen);
}
