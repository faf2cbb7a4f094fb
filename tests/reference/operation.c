/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: requests that are under way, the tickets they belong to, and waiting. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job.h"

/* The server tells of a deadline; so long behind it, without a sign, a rank goes by itself. */
#define GRACE_MS 500

static void operation_free(struct operation *op)
{
    packet_free(&op->answer);
    free(op);
}

void operations_free(hsdp_job *job)
{
    while (job->operations != NULL) {
        struct operation *first = job->operations;

        job->operations = first->next;
        operation_free(first);
    }
    while (job->traffic != NULL) {
        struct traffic *first = job->traffic;

        job->traffic = first->next;
        free(first);
    }
    free(job->orphans);
}

/* ------------------------------------------------------------------------------------ requests */

static struct operation *operation_make(const struct request *request, struct follow_up follow_up)
{
    struct operation *op = calloc(1, sizeof(*op));

    if (op == NULL) {
        return NULL;
    }
    op->follow_up = follow_up;
    op->start_ms = now_ms();
    op->deadline_ms = request->timeout_ms < UINT64_MAX - op->start_ms
                          ? op->start_ms + request->timeout_ms
                          : UINT64_MAX;
    op->has_own_timeout = request->has_own_timeout;
    op->is_farewell = strcmp(request->key, KEY_CLOSE) == 0;
    op->sequence = request->sequence;
    snprintf(op->name, sizeof(op->name), "%s", request->operation);
    snprintf(op->group, sizeof(op->group), "%s", request->group);
    snprintf(op->unit, sizeof(op->unit), "%s", request->unit);
    return op;
}

/* What the server would answer to a rank that is alone. A sum of one, and its mean, is itself. */
static bool operation_answer_alone(struct operation *op, const struct request *request)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    op->is_answered = true;
    op->is_refused = request->refusal != HSDP_OK;
    if (op->is_refused) {
        error.status = request->refusal;
        snprintf(error.message, sizeof(error.message), "%s", request->sentence);
        error_write(&error, &op->answer);
    } else {
        packet_put_blob(&op->answer, request->payload, request->payload_bytes);
    }
    return !op->answer.is_bad;
}

/* Appends it, so that its answer finds it, and gives it its numbers. */
static void operation_add(hsdp_job *job, struct operation *op, uint64_t *ticket)
{
    struct operation **last = &job->operations;

    pthread_mutex_lock(&job->mutex);
    while (*last != NULL) {
        last = &(*last)->next;
    }
    op->number = ++job->n_requests;
    if (*ticket == 0) {
        *ticket = ++job->n_tickets;
    }
    op->ticket = *ticket;
    *last = op;
    pthread_mutex_unlock(&job->mutex);
}

int32_t job_reserve(const struct call *call, hsdp_job *job, const void *owner, const char *unit,
                    uint64_t *ret_ticket)
{
    const struct request request = {.key = "",
                                    .operation = call->name,
                                    .group = "",
                                    .unit = unit,
                                    .timeout_ms = job_timeout_ms(job)};
    struct operation *op = operation_make(&request, (struct follow_up){NULL, NULL, owner});

    if (op == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    *ret_ticket = 0;
    operation_add(job, op, ret_ticket);
    pthread_mutex_lock(&job->mutex);
    op->number = 0;
    pthread_mutex_unlock(&job->mutex);
    return HSDP_OK;
}

void job_settle(hsdp_job *job, uint64_t ticket)
{
    pthread_mutex_lock(&job->mutex);
    for (struct operation **at = &job->operations; *at != NULL; at = &(*at)->next) {
        struct operation *op = *at;

        if (op->number == 0 && op->ticket == ticket) {
            *at = op->next;
            operation_free(op);
            break;
        }
    }
    pthread_mutex_unlock(&job->mutex);
}

uint64_t job_join(hsdp_job *job, const uint64_t *tickets, uint64_t n)
{
    uint64_t ticket;

    pthread_mutex_lock(&job->mutex);
    ticket = ++job->n_tickets;
    for (struct operation *op = job->operations; op != NULL; op = op->next) {
        for (uint64_t i = 0; i < n; i++) {
            op->also = op->ticket == tickets[i] ? ticket : op->also;
        }
    }
    pthread_mutex_unlock(&job->mutex);
    return ticket;
}

static void traffic_add(hsdp_job *job, const char *group, uint64_t n_bytes)
{
    struct traffic **at = &job->traffic;

    pthread_mutex_lock(&job->mutex);
    while (*at != NULL && strcmp((*at)->group, group) != 0) {
        at = &(*at)->next;
    }
    if (*at == NULL && (*at = calloc(1, sizeof(**at))) != NULL) {
        snprintf((*at)->group, sizeof((*at)->group), "%s", group);
        snprintf((*at)->names[0], sizeof((*at)->names[0]), "traffic.%s", group);
        snprintf((*at)->names[1], sizeof((*at)->names[1]), "operations.%s", group);
    }
    if (*at != NULL) {
        (*at)->n_operations++;
        (*at)->n_bytes += n_bytes;
    }
    pthread_mutex_unlock(&job->mutex);
}

int32_t job_request(const struct call *call, hsdp_job *job, const struct request *request,
                    struct follow_up follow_up, uint64_t *ticket)
{
    struct operation *op = operation_make(request, follow_up);
    struct packet packet = {0};
    bool is_alone = request->n_members == 1;
    uint64_t number;

    if (op != NULL && is_alone && !operation_answer_alone(op, request)) {
        operation_free(op);
        op = NULL;
    }
    if (op != NULL && !is_alone) {
        request_write(request, &packet);
    }
    if (op == NULL || packet.is_bad) {
        free(op); /* it has no answer yet */
        packet_free(&packet);
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes to be sent",
                           call->name, request->payload_bytes);
    }
    if (request->group[0] != '\0') {
        traffic_add(job, request->group, is_alone ? 0 : request->payload_bytes);
    }
    job_settle(job, *ticket);
    operation_add(job, op, ticket);
    number = op->number;
    if (!is_alone) {
        connection_send(job, (struct frame){.kind = FRAME_REQUEST, .request = number}, &packet);
    }
    packet_free(&packet);
    return HSDP_OK;
}

void request_of_job(const struct call *call, hsdp_job *job, struct meeting_text *text,
                    struct request *ret)
{
    *ret = (struct request){.alike = call->name, .operation = call->name, .group = "", .unit = ""};
    ret->sentence = "";
    ret->members = text->members;
    ret->n_members = job->launch.world_ranks;
    ret->timeout_ms = job_timeout_ms(job);
    ret->sequence = ++job->n_meetings;
    ret->key = text->key;
    ret->payload = "";
    snprintf(text->key, sizeof(text->key), "job.%" PRIu64, job->n_meetings);
    for (uint32_t r = 0; r < ret->n_members; r++) {
        text->members[r] = r;
    }
}

void job_retime(hsdp_job *job)
{
    uint64_t timeout_ms = job_timeout_ms(job);
    uint64_t after = 0;
    struct operation *op;

    do { /* one after the other: nothing is sent under the mutex */
        struct packet packet = {0};
        uint64_t number = 0;

        pthread_mutex_lock(&job->mutex);
        op = job->operations;
        while (op != NULL && (op->number <= after || op->has_own_timeout || op->is_answered)) {
            op = op->next;
        }
        if (op != NULL) {
            op->deadline_ms = op->start_ms + timeout_ms;
            number = after = op->number;
        }
        pthread_mutex_unlock(&job->mutex);
        packet_put_number(&packet, timeout_ms);
        if (number != 0 && job->has_thread) {
            connection_send(job, (struct frame){.kind = FRAME_TIMEOUT, .request = number}, &packet);
        }
        packet_free(&packet);
    } while (op != NULL);
}

/* ------------------------------------------------------------------------------------- answers */

/* Takes one answered operation out of the list; NULL = none. One that is refused, or that nobody
 * follows up, stays for who waits for it, unless `ticket` is its own. */
static struct operation *operation_take(hsdp_job *job, uint64_t ticket)
{
    struct operation *op;

    pthread_mutex_lock(&job->mutex);
    for (struct operation **at = &job->operations; *at != NULL; at = &(*at)->next) {
        op = *at;
        if (op->is_answered && (ticket == op->ticket || (ticket == 0 && op->follow_up.owner))) {
            *at = op->next;
            pthread_mutex_unlock(&job->mutex);
            return op;
        }
    }
    pthread_mutex_unlock(&job->mutex);
    return NULL;
}

void job_progress(hsdp_job *job)
{
    struct operation *op = operation_take(job, 0);

    while (op != NULL) {
        if (op->follow_up.finish != NULL) {
            op->follow_up.finish(op->follow_up.context, &op->answer);
        }
        operation_free(op);
        op = operation_take(job, 0);
    }
}

/* -------------------------------------------------------------------------------------- waiting */

static struct operation *operation_find(hsdp_job *job, uint64_t ticket)
{
    struct operation *op = job->operations;

    while (op != NULL && op->ticket != ticket && (op->also != ticket || ticket == 0)) {
        op = op->next;
    }
    return op;
}

/* The server itself is silent: rank 0 hangs, or the machine does. */
static void server_is_silent(hsdp_job *job, const struct operation *op)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    error.status = HSDP_ERR_TIMEOUT;
    error.n_missing_ranks = 1; /* rank 0 */
    error.sequence = op->sequence;
    snprintf(error.operation, sizeof(error.operation), "%s", op->name);
    snprintf(error.group, sizeof(error.group), "%s", op->group);
    snprintf(error.unit, sizeof(error.unit), "%s", op->unit);
    snprintf(error.message, sizeof(error.message),
             "%s: no sign of rank 0, in whose process all ranks meet, within %" PRIu64 " ms",
             op->name, now_ms() - op->start_ms);
    job_fail(job, &error);
}

/* Sleeps until something changes, `until` at the latest. The mutex is held. */
static void change_await(hsdp_job *job, uint64_t until)
{
    uint64_t most_ms = now_ms() + 1000;
    struct timespec at;

    until = until < most_ms ? until : most_ms; /* deadlines may be shifted meanwhile */
    at = (struct timespec){(time_t)(until / 1000), (long)(until % 1000) * 1000000};
    pthread_cond_timedwait(&job->changed, &job->mutex, &at);
}

/* One turn of waiting; HSDP_PENDING = look again. `told` is the request the server knows of. */
static int32_t wait_turn(const struct call *call, hsdp_job *job, uint64_t ticket, uint64_t until,
                         uint64_t *told)
{
    struct operation *op, copy;
    uint64_t limit;

    pthread_mutex_lock(&job->mutex);
    op = operation_find(job, ticket);
    if (op == NULL || op->is_answered) {
        pthread_mutex_unlock(&job->mutex);
        return op == NULL ? HSDP_OK : HSDP_PENDING;
    }
    copy = *op;
    if (atomic_load(&job->is_failed)) {
        pthread_mutex_unlock(&job->mutex);
        return job_failure(call, job, &copy);
    }
    limit = copy.deadline_ms < UINT64_MAX - GRACE_MS ? copy.deadline_ms + GRACE_MS : UINT64_MAX;
    if (until != UINT64_MAX || *told == copy.number) {
        change_await(job, until < limit ? until : limit);
    }
    pthread_mutex_unlock(&job->mutex);
    if (until == UINT64_MAX && *told != copy.number && copy.number != 0) {
        *told = copy.number;
        connection_send(job, (struct frame){.kind = FRAME_WAIT, .request = copy.number}, NULL);
    }
    if (now_ms() >= limit) {
        server_is_silent(job, &copy);
    }
    return HSDP_PENDING;
}

int32_t job_wait(const struct call *call, hsdp_job *job, uint64_t ticket, uint64_t wait_ms)
{
    uint64_t start = now_ms();
    uint64_t until = wait_ms < UINT64_MAX - start ? start + wait_ms : UINT64_MAX;
    uint64_t told = 0;
    int32_t status = HSDP_PENDING;

    if (ticket != 0) {
        job->counts[COUNT_WAITS]++;
    }
    do {
        job_progress(job);
        status = wait_turn(call, job, ticket, until, &told);
    } while (status == HSDP_PENDING && (now_ms() < until || wait_ms == UINT64_MAX));
    job_progress(job);
    job->counts[COUNT_WAIT_NS] += (now_ms() - start) * 1000000;
    if (status == HSDP_PENDING) {
        pthread_mutex_lock(&job->mutex);
        status = operation_find(job, ticket) == NULL ? HSDP_OK : HSDP_PENDING;
        pthread_mutex_unlock(&job->mutex);
    }
    return status;
}

int32_t job_meet(const struct call *call, hsdp_job *job, const struct request *request,
                 struct packet *ret_answer)
{
    struct operation *op = NULL;
    struct hsdp_error error;
    uint64_t ticket = 0, told = 0;
    int32_t status = job_request(call, job, request, (struct follow_up){0}, &ticket);

    while (status == HSDP_OK && op == NULL) {
        op = operation_take(job, ticket);
        if (op == NULL) {
            status = wait_turn(call, job, ticket, UINT64_MAX, &told);
            status = status == HSDP_PENDING ? HSDP_OK : status;
        }
    }
    if (op == NULL) {
        return status;
    }
    if (op->is_refused) {
        error_read(&op->answer, &error);
        if (request->refusal != HSDP_OK) { /* this rank knows its own reason best */
            error.status = request->refusal;
            snprintf(error.message, sizeof(error.message), "%s", request->sentence);
            snprintf(error.unit, sizeof(error.unit), "%s", request->unit);
        }
        status = error_pass(call, &error);
    } else {
        *ret_answer = op->answer;
        op->answer = (struct packet){0}; /* handed over */
    }
    operation_free(op);
    return status;
}

int32_t job_wait_all(const struct call *call, hsdp_job *job, const void *owner)
{
    int32_t status = HSDP_OK;

    while (status == HSDP_OK) {
        const struct operation *op;
        uint64_t ticket;

        pthread_mutex_lock(&job->mutex);
        op = job->operations;
        while (op != NULL && op->follow_up.owner != owner) {
            op = op->next;
        }
        ticket = op != NULL ? op->ticket : 0;
        pthread_mutex_unlock(&job->mutex);
        if (ticket == 0) {
            break;
        }
        status = job_wait(call, job, ticket, UINT64_MAX);
    }
    return status;
}

/* -------------------------------------------------------------------------------------- orphans */

void job_forget(hsdp_job *job, const void *owner)
{
    pthread_mutex_lock(&job->mutex);
    for (struct operation **at = &job->operations; *at != NULL;) {
        struct operation *op = *at;
        uint64_t *longer;

        if (op->follow_up.owner != owner) {
            at = &op->next;
            continue;
        }
        longer = realloc(job->orphans, (job->n_orphans + 1) * sizeof(*longer));
        if (longer != NULL) {
            job->orphans = longer;
            job->orphans[job->n_orphans++] = op->ticket;
        }
        *at = op->next;
        operation_free(op);
    }
    pthread_mutex_unlock(&job->mutex);
}

uint64_t job_open_tickets(hsdp_job *job)
{
    uint64_t n = 0;

    pthread_mutex_lock(&job->mutex);
    for (struct operation *op = job->operations; op != NULL; op = op->next) {
        n += op->ticket != (op->next != NULL ? op->next->ticket : 0);
    }
    pthread_mutex_unlock(&job->mutex);
    return n;
}
