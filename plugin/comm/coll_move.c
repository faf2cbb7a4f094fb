/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of collective posts in a round, and what it takes from the others' pieces. */
#include <string.h>

#include "comm/group_internal.h"
#include "device/fpmode.h"

/* Up to here every member reduces all of it; above, each a part, which it then gives to all. */
#define DIRECT_BYTES (8u * 1024u)

/* ------------------------------------------------------------------------------- geometry */

static uint64_t piece_elems(const struct op *op)
{
    return ROUND_BYTES / element_bytes(op->header.element);
}

/* Where the piece is divided among the members. */
static uint64_t part_elems(const struct hsdp_group *group, const struct op *op)
{
    uint64_t part_bytes = ROUND_BYTES / group->n_ranks / 64u * 64u;

    return part_bytes / element_bytes(op->header.element);
}

static uint64_t ceil_divide(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How many of n elements lie in the round-th window of `window` elements. */
static uint64_t window_elems(uint64_t n, uint64_t round, uint64_t window)
{
    uint64_t first = round * window;

    return first >= n ? 0 : smaller(n - first, window);
}

static bool is_direct(const struct op *op)
{
    return op->header.n_elems * element_bytes(op->header.element) <= DIRECT_BYTES;
}

static uint64_t largest(const struct hsdp_group *group, const uint64_t *elems)
{
    uint64_t max = 0;

    for (uint32_t i = 0; i < group->n_ranks; i++) {
        max = elems[i] > max ? elems[i] : max;
    }
    return max;
}

/* Every member finds the same number, from the headers of all. */
uint64_t op_n_rounds(const struct hsdp_group *group, const struct op *op, int slot)
{
    uint64_t n = 1;
    uint64_t max = 0;

    switch (op->header.kind) {
    case HSDP_COLL_ALL_REDUCE:
        n = is_direct(op) ? 1 : 2 * ceil_divide(op->header.n_elems, piece_elems(op));
        break;
    case HSDP_COLL_BROADCAST:
        n = ceil_divide(op->header.n_elems, piece_elems(op));
        break;
    case HSDP_COLL_ALL_GATHER:
        n = ceil_divide(largest(group, op->header.recv_elems), piece_elems(op));
        break;
    case HSDP_COLL_REDUCE_SCATTER:
        n = ceil_divide(largest(group, op->header.send_elems), part_elems(group, op));
        break;
    case HSDP_COLL_ALL_TO_ALL:
        for (uint32_t i = 0; i < group->n_ranks; i++) {
            uint64_t of_member = largest(group, group_area(group, i)->headers[slot].send_elems);

            max = of_member > max ? of_member : max;
        }
        n = ceil_divide(max, part_elems(group, op));
        break;
    default:
        break;
    }
    return n == 0 ? 1 : n;
}

static void elems_copy(const struct op *op, uint8_t *dst, const uint8_t *src, uint64_t n_elems)
{
    if (n_elems > 0 && dst != src) {
        memcpy(dst, src, n_elems * element_bytes(op->header.element));
    }
}

/* An empty tensor has no address to count from, so this goes by numbers. */
static const uint8_t *input_at(const struct op *op, uint64_t first)
{
    return (const uint8_t *)((uintptr_t)op->input + first * element_bytes(op->header.element));
}

static uint8_t *output_at(const struct op *op, uint64_t first)
{
    return (uint8_t *)((uintptr_t)op->output + first * element_bytes(op->header.element));
}

/* ------------------------------------------------------------------------------- all_reduce */

/* The window of a round pair, and one member's part of it. */
struct part {
    uint64_t window_first; /* elements, of the whole */
    uint64_t window_elems;
    uint64_t first; /* within the window */
    uint64_t n_elems;
};

static struct part reduce_part(const struct hsdp_group *group, const struct op *op, uint32_t member)
{
    uint64_t window = op->round / 2;
    struct part part;
    uint64_t per_member;

    part.window_first = window * piece_elems(op);
    part.window_elems = window_elems(op->header.n_elems, window, piece_elems(op));
    per_member = ceil_divide(part.window_elems, group->n_ranks);
    part.first = smaller(member * per_member, part.window_elems);
    part.n_elems = smaller(per_member, part.window_elems - part.first);
    return part;
}

static void sources_reduce(struct hsdp_group *group, const struct op *op, int slot, uint64_t first,
                           uint8_t *dst, uint64_t n_elems)
{
    const void *sources[GROUP_MAX_RANKS];
    struct values_spec spec = {.sources = sources};
    struct fp_mode mode;

    spec.dst = dst;
    spec.n_sources = group->n_ranks;
    spec.element = op->header.element;
    spec.n_elems = n_elems;
    spec.reduce = op->header.reduce;
    spec.kernels = job_kernels(group->job);
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        sources[i] = group_area(group, i)->pieces[slot] + first * element_bytes(op->header.element);
    }
    mode = fp_mode_enter();
    values_reduce(&spec);
    fp_mode_leave(mode);
    traffic_count(group, 0, (group->n_ranks - 1) * n_elems * element_bytes(op->header.element));
}

static void reduce_post(struct hsdp_group *group, const struct op *op, uint8_t *piece)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    struct part part = reduce_part(group, op, group->index);
    uint64_t n_elems = part.n_elems;

    if (is_direct(op)) {
        n_elems = op->header.n_elems;
        elems_copy(op, piece, op->input, n_elems);
    } else if (op->round % 2 == 0) {
        n_elems = part.window_elems;
        elems_copy(op, piece, input_at(op, part.window_first), n_elems);
    } else {
        elems_copy(op, piece, output_at(op, part.window_first + part.first), n_elems);
    }
    traffic_count(group, n_elems * elem_bytes, 0);
}

static void reduce_read(struct hsdp_group *group, const struct op *op, int slot)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    struct part part = reduce_part(group, op, group->index);

    if (is_direct(op)) {
        sources_reduce(group, op, slot, 0, op->output, op->header.n_elems);
        return;
    }
    if (op->round % 2 == 0) {
        sources_reduce(group, op, slot, part.first, output_at(op, part.window_first + part.first),
                       part.n_elems);
        return;
    }
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        part = reduce_part(group, op, i);
        if (i != group->index) {
            elems_copy(op, output_at(op, part.window_first + part.first),
                       group_area(group, i)->pieces[slot], part.n_elems);
            traffic_count(group, 0, part.n_elems * elem_bytes);
        }
    }
}

/* ------------------------------------------------------------------ gather, scatter, the others */

static void gather_post(struct hsdp_group *group, const struct op *op, uint8_t *piece)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    uint64_t n_elems = window_elems(op->header.n_elems, op->round, piece_elems(op));

    elems_copy(op, piece, input_at(op, op->round * piece_elems(op)), n_elems);
    traffic_count(group, n_elems * elem_bytes, 0);
}

static void gather_read(struct hsdp_group *group, const struct op *op, int slot)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    uint64_t first = 0;

    for (uint32_t i = 0; i < group->n_ranks; i++) {
        uint64_t n = window_elems(op->header.recv_elems[i], op->round, piece_elems(op));

        elems_copy(op, output_at(op, first + op->round * piece_elems(op)),
                   group_area(group, i)->pieces[slot], n);
        traffic_count(group, 0, i == group->index ? 0 : n * elem_bytes);
        first += op->header.recv_elems[i];
    }
}

/* Each member's part of the piece holds what goes to that member. */
static void parts_post(struct hsdp_group *group, const struct op *op, uint8_t *piece)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    uint64_t per_part = part_elems(group, op);
    uint64_t first = 0;

    for (uint32_t i = 0; i < group->n_ranks; i++) {
        uint64_t n = window_elems(op->header.send_elems[i], op->round, per_part);

        elems_copy(op, piece + i * per_part * elem_bytes,
                   input_at(op, first + op->round * per_part), n);
        traffic_count(group, i == group->index ? 0 : n * elem_bytes, 0);
        first += op->header.send_elems[i];
    }
}

static void scatter_read(struct hsdp_group *group, const struct op *op, int slot)
{
    uint64_t per_part = part_elems(group, op);
    uint64_t n = window_elems(op->header.n_elems, op->round, per_part);

    if (n > 0) {
        sources_reduce(group, op, slot, group->index * per_part,
                       output_at(op, op->round * per_part), n);
    }
}

static void exchange_read(struct hsdp_group *group, const struct op *op, int slot)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    uint64_t per_part = part_elems(group, op);
    uint64_t first = 0;

    for (uint32_t i = 0; i < group->n_ranks; i++) {
        uint64_t n = window_elems(op->header.recv_elems[i], op->round, per_part);

        elems_copy(op, output_at(op, first + op->round * per_part),
                   group_area(group, i)->pieces[slot] + group->index * per_part * elem_bytes, n);
        traffic_count(group, 0, i == group->index ? 0 : n * elem_bytes);
        first += op->header.recv_elems[i];
    }
}

static void broadcast_read(struct hsdp_group *group, const struct op *op, int slot)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    uint64_t first = op->round * piece_elems(op);
    uint64_t n = window_elems(op->header.n_elems, op->round, piece_elems(op));

    if (op->output == NULL || op->output == op->input) {
        return; /* the root, which has it */
    }
    elems_copy(op, output_at(op, first), group_area(group, op->header.root)->pieces[slot], n);
    traffic_count(group, 0, op->header.root == group->index ? 0 : n * elem_bytes);
}

/* ------------------------------------------------------------------------------- the table */

void piece_post(struct hsdp_group *group, const struct op *op, uint8_t *piece)
{
    switch (op->header.kind) {
    case HSDP_COLL_ALL_REDUCE:
        reduce_post(group, op, piece);
        break;
    case HSDP_COLL_ALL_GATHER:
        gather_post(group, op, piece);
        break;
    case HSDP_COLL_REDUCE_SCATTER:
    case HSDP_COLL_ALL_TO_ALL:
        parts_post(group, op, piece);
        break;
    case HSDP_COLL_BROADCAST:
        if (op->header.root == group->index) {
            gather_post(group, op, piece);
        }
        break;
    default:
        break;
    }
}

void pieces_read(struct hsdp_group *group, const struct op *op, int slot)
{
    switch (op->header.kind) {
    case HSDP_COLL_ALL_REDUCE:
        reduce_read(group, op, slot);
        break;
    case HSDP_COLL_ALL_GATHER:
        gather_read(group, op, slot);
        break;
    case HSDP_COLL_REDUCE_SCATTER:
        scatter_read(group, op, slot);
        break;
    case HSDP_COLL_ALL_TO_ALL:
        exchange_read(group, op, slot);
        break;
    case HSDP_COLL_BROADCAST:
        broadcast_read(group, op, slot);
        break;
    default:
        break;
    }
}

void op_copy_alone(const struct op *op)
{
    if (op->output != NULL) {
        elems_copy(op, op->output, op->input, op->header.n_elems);
    }
}
