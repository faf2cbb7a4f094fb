/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings: requests of the same key and members, which are answered when the last has come. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_internal.h"

const struct request *meeting_request(const struct meeting *meeting)
{
    return &meeting->arrivals[meeting->first].request;
}

/* The place of a rank among the members; n_members if it is none. */
static uint32_t member_index(const struct request *request, uint32_t rank)
{
    uint32_t i = 0;

    while (i < request->n_members && request->members[i] != rank) {
        i++;
    }
    return i;
}

bool meeting_misses(const struct meeting *meeting, uint32_t rank)
{
    uint32_t i = member_index(meeting_request(meeting), rank);

    return i < meeting->n_members && !meeting->arrivals[i].is_there;
}

static void meeting_destroy(struct meeting *meeting)
{
    for (uint32_t i = 0; i < meeting->n_members; i++) {
        packet_free(&meeting->arrivals[i].packet);
    }
    free(meeting);
}

void meetings_destroy(struct server *server)
{
    while (server->meetings != NULL) {
        struct meeting *first = server->meetings;

        server->meetings = first->next;
        meeting_destroy(first);
    }
}

static struct meeting *meeting_find(struct server *server, const struct request *request)
{
    for (struct meeting *m = server->meetings; m != NULL; m = m->next) {
        const struct request *other = meeting_request(m);

        if (strcmp(other->key, request->key) == 0 && other->n_members == request->n_members &&
            memcmp(other->members, request->members, request->n_members * sizeof(uint32_t)) == 0) {
            return m;
        }
    }
    return NULL;
}

static struct meeting *meeting_add(struct server *server, uint32_t n_members, uint32_t first)
{
    struct meeting *meeting = calloc(1, sizeof(*meeting) + n_members * sizeof(struct arrival));

    if (meeting != NULL) {
        meeting->n_members = n_members;
        meeting->first = first;
        meeting->deadline_ms = UINT64_MAX;
        meeting->next = server->meetings;
        server->meetings = meeting;
    }
    return meeting;
}

/* --------------------------------------------------------------------------------- agreement */

/* The line of a text that begins at *at, as "%.*s" wants it; moves *at behind it. */
static int line_next(const char **at)
{
    size_t n = strcspn(*at, "\n");

    *at += n + ((*at)[n] == '\n');
    return (int)n;
}

struct line {
    const char *text;
    int n_bytes;
    uint32_t rank;
};

/* Says how two lines differ: by value where both are KEY=VALUE. */
static void lines_say(struct hsdp_error *error, struct line left, struct line right)
{
    int n_key = (int)strcspn(left.text, "=\n ");

    if (left.text[n_key] == '=' && n_key < left.n_bytes && n_key < right.n_bytes &&
        strncmp(left.text, right.text, (size_t)n_key + 1) == 0) {
        error_say(error, "%.*s is %.*s on rank %" PRIu32 ", %.*s on rank %" PRIu32, n_key,
                  left.text, left.n_bytes - n_key - 1, left.text + n_key + 1, left.rank,
                  right.n_bytes - n_key - 1, right.text + n_key + 1, right.rank);
        return;
    }
    error_say(error, "rank %" PRIu32 " has %.*s, rank %" PRIu32 " has %.*s", left.rank,
              left.n_bytes > 0 ? left.n_bytes : 7, left.n_bytes > 0 ? left.text : "nothing",
              right.rank, right.n_bytes > 0 ? right.n_bytes : 7,
              right.n_bytes > 0 ? right.text : "nothing");
}

/* Fails the job with the first line in which two requests differ. */
static void requests_differ(struct server *server, const struct meeting *meeting, uint32_t index)
{
    uint32_t lower = index < meeting->first ? index : meeting->first;
    uint32_t higher = index < meeting->first ? meeting->first : index;
    const struct request *first = &meeting->arrivals[lower].request;
    const struct request *second = &meeting->arrivals[higher].request;
    const char *left, *right, *left_end = first->alike, *right_end = second->alike;
    struct hsdp_error error;
    int n_left, n_right;

    do {
        left = left_end;
        right = right_end;
        n_left = line_next(&left_end);
        n_right = line_next(&right_end);
    } while (n_left == n_right && strncmp(left, right, (size_t)n_left) == 0 &&
             (*left_end != '\0' || *right_end != '\0'));
    error_begin(&error, HSDP_ERR_MISMATCH, meeting);
    lines_say(&error, (struct line){left, n_left, first->members[lower]},
              (struct line){right, n_right, first->members[higher]});
    server_fail(server, &error);
}

static bool requests_agree(const struct request *left, const struct request *right)
{
    return left->refusal != HSDP_OK || right->refusal != HSDP_OK ||
           (strcmp(left->alike, right->alike) == 0 && left->combine == right->combine &&
            (left->combine == COMBINE_GATHER ||
             (left->element == right->element && left->reduce == right->reduce &&
              left->payload_bytes == right->payload_bytes)));
}

/* -------------------------------------------------------------------------------------- ends */

static void answer_gather(const struct meeting *meeting, struct packet *answer)
{
    for (uint32_t i = 0; i < meeting->n_members; i++) {
        packet_put_blob(answer, meeting->arrivals[i].request.payload,
                        meeting->arrivals[i].request.payload_bytes);
    }
}

static void answer_reduce(const struct meeting *meeting, struct packet *answer)
{
    const struct request *request = meeting_request(meeting);
    void *room = packet_put_room(answer, request->payload_bytes);
    const void **payloads = calloc(meeting->n_members, sizeof(*payloads));

    for (uint32_t i = 0; i < meeting->n_members && payloads != NULL; i++) {
        payloads[i] = meeting->arrivals[i].request.payload;
    }
    if (room == NULL || payloads == NULL ||
        !payloads_reduce(request, payloads, meeting->n_members, room)) {
        answer->is_bad = true;
    }
    free(payloads);
}

/* The lowest member that cannot take part; n_members where all can. */
static uint32_t meeting_refuser(const struct meeting *meeting)
{
    uint32_t i = 0;

    while (i < meeting->n_members && meeting->arrivals[i].request.refusal == HSDP_OK) {
        i++;
    }
    return i;
}

static void answer_refuse(const struct meeting *meeting, uint32_t refuser, struct packet *answer)
{
    const struct request *request = &meeting->arrivals[refuser].request;
    struct hsdp_error error = HSDP_ERROR_INIT;

    error.status = request->refusal;
    snprintf(error.operation, sizeof(error.operation), "%s", request->operation);
    snprintf(error.unit, sizeof(error.unit), "%s", request->unit);
    error_say(&error, "%s: rank %" PRIu32 ": %s", request->operation, request->members[refuser],
              request->sentence);
    error_write(&error, answer);
}

static void meeting_answer(struct server *server, const struct meeting *meeting)
{
    uint32_t refuser = meeting_refuser(meeting);
    bool is_refused = refuser < meeting->n_members;
    struct packet answer = {0};
    struct hsdp_error error;

    if (is_refused) {
        answer_refuse(meeting, refuser, &answer);
    } else if (meeting_request(meeting)->combine == COMBINE_GATHER) {
        answer_gather(meeting, &answer);
    } else {
        answer_reduce(meeting, &answer);
    }
    if (answer.is_bad) {
        error_begin(&error, HSDP_ERR_NO_MEMORY, meeting);
        error_say(&error, "rank 0 has no memory for the answer");
        server_fail(server, &error);
        packet_free(&answer);
        return;
    }
    for (uint32_t i = 0; i < meeting->n_members; i++) {
        struct peer *peer = server->ranks[meeting_request(meeting)->members[i]];
        struct frame frame = {.kind = is_refused ? FRAME_REFUSED : FRAME_ANSWER,
                              .request = meeting->arrivals[i].request_number};

        if (peer != NULL) {
            peer->waits_in = peer->waits_in == meeting ? NULL : peer->waits_in;
            peer_send(peer, frame, &answer);
        }
    }
    packet_free(&answer);
}

static void meeting_end(struct server *server, struct meeting *meeting)
{
    struct meeting **at = &server->meetings;

    while (*at != meeting) {
        at = &(*at)->next;
    }
    *at = meeting->next;
    if (strcmp(meeting_request(meeting)->key, KEY_CLOSE) == 0) {
        server->is_closed = true;
    } else if (strcmp(meeting_request(meeting)->key, KEY_CONNECT) == 0 && server->listen_fd >= 0) {
        close(server->listen_fd); /* its name is free for the next job */
        server->listen_fd = -1;
    }
    meeting_answer(server, meeting);
    meeting_destroy(meeting);
}

/* ------------------------------------------------------------------------------------ arrivals */

/* The earliest deadline of those who have come. */
static void deadline_set(struct meeting *meeting)
{
    meeting->deadline_ms = UINT64_MAX;
    for (uint32_t i = 0; i < meeting->n_members; i++) {
        const struct arrival *arrival = &meeting->arrivals[i];

        if (arrival->is_there && arrival->request.timeout_ms < UINT64_MAX - arrival->time_ms &&
            arrival->time_ms + arrival->request.timeout_ms < meeting->deadline_ms) {
            meeting->deadline_ms = arrival->time_ms + arrival->request.timeout_ms;
        }
    }
}

void meeting_shift(struct meeting *meeting, uint64_t stopped_ms)
{
    for (uint32_t i = 0; i < meeting->n_members; i++) {
        meeting->arrivals[i].time_ms += stopped_ms;
    }
    deadline_set(meeting);
}

static void meeting_join(struct server *server, struct meeting *meeting, uint32_t index,
                         struct arrival *arrival)
{
    meeting->arrivals[index] = *arrival;
    meeting->n_arrivals++;
    deadline_set(meeting);
    if (!requests_agree(meeting_request(meeting), &arrival->request)) {
        requests_differ(server, meeting, index);
    } else if (meeting->n_arrivals == meeting->n_members) {
        meeting_end(server, meeting);
    } else {
        for (uint32_t r = 0; r < server->world_ranks; r++) {
            if (server->has_left[r] && meeting_misses(meeting, r)) {
                server_lose(server, r, "has left the job");
                return;
            }
        }
    }
}

void server_request(struct server *server, struct peer *peer)
{
    struct arrival arrival = {.is_there = true, .packet = peer->inbox.packet};
    struct meeting *meeting;
    uint32_t index;

    arrival.request_number = peer->inbox.frame.request;
    arrival.time_ms = now_ms();
    peer->inbox.packet = (struct packet){0}; /* taken */
    request_read(&arrival.packet, &arrival.request);
    index = member_index(&arrival.request, peer->rank);
    if (server->is_failed || arrival.packet.is_bad || index == arrival.request.n_members) {
        packet_free(&arrival.packet);
        return; /* it has been told already, or is no rank of ours */
    }
    for (uint32_t i = 0; i < arrival.request.n_members; i++) {
        if (arrival.request.members[i] >= server->world_ranks) {
            packet_free(&arrival.packet);
            return;
        }
    }
    meeting = meeting_find(server, &arrival.request);
    if (meeting == NULL) {
        meeting = meeting_add(server, arrival.request.n_members, index);
    }
    if (meeting == NULL || meeting->arrivals[index].is_there) {
        packet_free(&arrival.packet);
        return;
    }
    meeting_join(server, meeting, index, &arrival);
}

/* The meeting in which a request is waiting, and who has made it. */
static struct meeting *request_find(struct server *server, const struct peer *peer, uint64_t number,
                                    uint32_t *ret_index)
{
    for (struct meeting *m = server->meetings; m != NULL; m = m->next) {
        uint32_t i = member_index(meeting_request(m), peer->rank);

        if (i < m->n_members && m->arrivals[i].is_there &&
            m->arrivals[i].request_number == number) {
            *ret_index = i;
            return m;
        }
    }
    return NULL;
}

void server_wait(struct server *server, struct peer *peer, uint64_t request_number)
{
    uint32_t index;
    struct meeting *meeting = request_find(server, peer, request_number, &index);

    if (meeting != NULL) {
        peer->waits_in = meeting;
        server_find_deadlock(server, peer->rank);
    }
}

void server_retime(struct server *server, const struct peer *peer, uint64_t request_number,
                   uint64_t timeout_ms)
{
    uint32_t index;
    struct meeting *meeting = request_find(server, peer, request_number, &index);

    if (meeting != NULL) {
        meeting->arrivals[index].request.timeout_ms = timeout_ms;
        deadline_set(meeting);
    }
}
