/* SPDX-License-Identifier: Apache-2.0 */
/* Positions: written by one thread, read by anybody. */
#include "comm/position.h"

#include "comm/words.h"

#define READ_TRIES 1000u

/* A host that only asks counts as waiting for so long after it has asked. */
#define ASKED_NS UINT64_C(1000000000)

/* ---------------------------------------------------------------------------- writing */

void position_enter(struct position *position)
{
    word_store(&position->n_moves, word_load(&position->n_moves) | 1u);
}

void position_call(struct position *position, const char *name)
{
    words_write(position->call, POSITION_CALL_WORDS, name);
    word_store(&position->call_moves, word_load(&position->n_moves));
}

void position_leave(struct position *position, uint64_t left_ns)
{
    word_store(&position->left_ns, left_ns);
    word_store(&position->n_moves, (word_load(&position->n_moves) | 1u) + 1);
}

static void version_open(struct position *position)
{
    atomic_store_explicit(&position->version, word_load(&position->version) | 1u,
                          memory_order_relaxed);
}

static void version_close(struct position *position)
{
    word_store(&position->version, (word_load(&position->version) | 1u) + 1);
}

void position_wait(struct position *position, const struct wait *wait, uint64_t missing,
                   uint64_t since_ns, uint64_t asked_ns)
{
    version_open(position);
    word_store(&position->since_ns, since_ns);
    word_store(&position->asked_ns, asked_ns);
    word_store(&position->missing, missing);
    word_store(&position->sequence, wait->sequence);
    words_write(position->operation, POSITION_OPERATION_WORDS, wait->operation);
    words_write(position->group, POSITION_NAME_WORDS, wait->group);
    words_write(position->unit, POSITION_NAME_WORDS, wait->unit);
    version_close(position);
}

void position_asked(struct position *position, uint64_t asked_ns)
{
    if (word_load(&position->since_ns) != 0) {
        version_open(position);
        word_store(&position->asked_ns, asked_ns);
        version_close(position);
    }
}

void position_go(struct position *position)
{
    if (word_load(&position->since_ns) != 0) {
        version_open(position);
        word_store(&position->since_ns, 0);
        version_close(position);
    }
}

void position_phase(struct position *position, const char *phase)
{
    version_open(position);
    words_write(position->phase, POSITION_NAME_WORDS, phase);
    version_close(position);
}

void position_copy(struct position *to, const struct position *from)
{
    char phase[POSITION_NAME_WORDS * 8];
    char call[POSITION_CALL_WORDS * 8];

    words_read(from->phase, POSITION_NAME_WORDS, phase);
    words_read(from->call, POSITION_CALL_WORDS, call);
    position_phase(to, phase);
    word_store(&to->n_moves, word_load(&from->n_moves));
    if (word_load(&from->call_moves) == word_load(&from->n_moves)) {
        position_call(to, call);
    }
}

/* ---------------------------------------------------------------------------- reading */

/* A call that lasts is read at the first try; one that comes and goes is none. */
static void call_read(const struct position *position, struct position_view *ret)
{
    uint64_t n_moves = word_load(&position->n_moves);
    uint64_t call_moves = word_load(&position->call_moves);

    ret->is_inside = (n_moves & 1u) != 0;
    ret->left_ns = word_load(&position->left_ns);
    words_read(position->call, POSITION_CALL_WORDS, ret->call);
    if (!ret->is_inside || call_moves != n_moves ||
        atomic_load_explicit(&position->n_moves, memory_order_relaxed) != n_moves) {
        ret->call[0] = '\0';
    }
}

static void wait_read(const struct position *position, uint64_t now_ns, struct position_view *ret)
{
    uint64_t asked_ns = word_load(&position->asked_ns);

    ret->since_ns = word_load(&position->since_ns);
    ret->missing = word_load(&position->missing);
    ret->sequence = word_load(&position->sequence);
    words_read(position->operation, POSITION_OPERATION_WORDS, ret->operation);
    words_read(position->group, POSITION_NAME_WORDS, ret->group);
    words_read(position->unit, POSITION_NAME_WORDS, ret->unit);
    words_read(position->phase, POSITION_NAME_WORDS, ret->phase);
    ret->is_waiting =
        ret->since_ns != 0 && (asked_ns == 0 ? ret->is_inside : now_ns < asked_ns + ASKED_NS);
}

void position_read(const struct position *position, uint64_t now_ns, struct position_view *ret)
{
    memset(ret, 0, sizeof(*ret));
    call_read(position, ret);
    for (uint32_t i = 0; i < READ_TRIES; i++) {
        uint64_t version = word_load(&position->version);

        if ((version & 1u) != 0) {
            continue;
        }
        wait_read(position, now_ns, ret);
        if (atomic_load_explicit(&position->version, memory_order_relaxed) == version) {
            return;
        }
    }
    ret->is_waiting = false;
    ret->phase[0] = '\0';
}
