/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the leaders of nodes: making and reading them. */
#include "comm/nodes_message.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are sent as they lie");

#define RANK_BYTES (sizeof(struct nodes_run) + JOB_EXCHANGE_MAX_BYTES + sizeof(struct nodes_rank))

uint64_t nodes_max_bytes(uint32_t world_ranks)
{
    return (uint64_t)world_ranks * RANK_BYTES + 4096u;
}

bool nodes_array(uint64_t n_bytes, uint64_t element_bytes, uint64_t *ret_n)
{
    *ret_n = n_bytes / element_bytes;
    return n_bytes % element_bytes == 0;
}

bool nodes_failed_read(const uint8_t *bytes, uint64_t n_bytes, struct nodes_failed *ret)
{
    if (n_bytes != sizeof(*ret)) {
        return false;
    }
    memcpy(ret, bytes, sizeof(*ret));
    wire_error_end(&ret->error);
    return ret->error.status < 0;
}

void nodes_buffer_add(struct nodes_buffer *buffer, const void *bytes, uint64_t n_bytes)
{
    uint64_t wanted = buffer->n_bytes + n_bytes;

    if (wanted > buffer->capacity_bytes) {
        uint64_t capacity = wanted + wanted / 2 + 256;
        uint8_t *grown = realloc(buffer->bytes, capacity);

        if (grown == NULL) {
            buffer->is_failed = true;
            return;
        }
        buffer->bytes = grown;
        buffer->capacity_bytes = capacity;
    }
    if (n_bytes > 0) {
        memcpy(buffer->bytes + buffer->n_bytes, bytes, n_bytes);
    }
    buffer->n_bytes = wanted;
}

void nodes_buffer_fini(struct nodes_buffer *buffer)
{
    free(buffer->bytes);
    memset(buffer, 0, sizeof(*buffer));
}

/* ----------------------------------------------------------------------------------- boards */

static bool is_same(const struct mailbox *one, const struct mailbox *other)
{
    return one->n_bytes == other->n_bytes && one->n_bytes <= JOB_EXCHANGE_MAX_BYTES &&
           one->is_opinion == other->is_opinion &&
           memcmp(one->operation, other->operation, sizeof(one->operation)) == 0 &&
           memcmp(one->bytes, other->bytes, one->n_bytes) == 0;
}

void board_write(struct nodes_buffer *buffer, struct control *control, uint64_t exchange,
                 const uint32_t *ranks, uint32_t n)
{
    nodes_buffer_add(buffer, &exchange, sizeof(exchange));
    for (uint32_t i = 0; i < n;) {
        const struct mailbox *mailbox = control_mailbox(control, exchange, ranks[i]);
        struct nodes_run run = {.first = ranks[i], .is_opinion = mailbox->is_opinion};

        run.n_bytes =
            mailbox->n_bytes < JOB_EXCHANGE_MAX_BYTES ? mailbox->n_bytes : JOB_EXCHANGE_MAX_BYTES;
        memcpy(run.operation, mailbox->operation, sizeof(run.operation));
        while (i < n && ranks[i] == run.first + run.n_ranks &&
               is_same(mailbox, control_mailbox(control, exchange, ranks[i]))) {
            run.n_ranks++;
            i++;
        }
        if (run.n_ranks == 0) { /* a mailbox of no legal size stands for itself */
            run.n_ranks = 1;
            i++;
        }
        nodes_buffer_add(buffer, &run, sizeof(run));
        nodes_buffer_add(buffer, mailbox->bytes, run.n_bytes);
    }
}

static void run_apply(struct control *control, uint64_t exchange, const struct nodes_run *run,
                      const uint8_t *bytes, uint32_t rank)
{
    struct mailbox *mailbox = control_mailbox(control, exchange, rank);

    memcpy(mailbox->operation, run->operation, sizeof(mailbox->operation));
    mailbox->operation[sizeof(mailbox->operation) - 1] = '\0';
    mailbox->n_bytes = run->n_bytes;
    mailbox->is_opinion = run->is_opinion;
    memcpy(mailbox->bytes, bytes, run->n_bytes);
}

bool board_read(struct control *control, const uint8_t *bytes, uint64_t n_bytes,
                bool (*may_write)(void *user, uint32_t rank), void *user, uint32_t *ret_n)
{
    uint64_t exchange;
    uint64_t at = sizeof(exchange);

    *ret_n = 0;
    if (n_bytes < sizeof(exchange)) {
        return false;
    }
    memcpy(&exchange, bytes, sizeof(exchange));
    while (at < n_bytes) {
        struct nodes_run run;

        if (n_bytes - at < sizeof(run)) {
            return false;
        }
        memcpy(&run, bytes + at, sizeof(run));
        at += sizeof(run);
        if (run.n_bytes > JOB_EXCHANGE_MAX_BYTES || run.n_bytes > n_bytes - at ||
            run.n_ranks == 0 || run.first >= control->world_ranks ||
            run.n_ranks > control->world_ranks - run.first) {
            return false;
        }
        for (uint32_t rank = run.first; rank < run.first + run.n_ranks; rank++) {
            if (may_write(user, rank)) {
                run_apply(control, exchange, &run, bytes + at, rank);
                ++*ret_n;
            }
        }
        at += run.n_bytes;
    }
    return true;
}
