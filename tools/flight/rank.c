/* SPDX-License-Identifier: Apache-2.0 */
/* One flight file: parsed, and checked to be one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define MAX_RANKS UINT32_C(1000000)

const char *member_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

uint64_t member_uint(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value < 0 ? 0 : (uint64_t)value;
}

/* 0 stays 0: not yet. */
static int64_t time_of(const struct rank *rank, const json_t *op, const char *key)
{
    int64_t ns = json_integer_value(json_object_get(op, key));

    return ns == 0 ? 0 : ns + rank->wall_offset_ns;
}

static bool op_take(const struct rank *rank, const json_t *value, struct op *ret)
{
    ret->number = member_uint(value, "number");
    ret->state = member_text(value, "state");
    ret->operation = member_text(value, "operation");
    ret->group = member_text(value, "group");
    ret->unit = member_text(value, "unit");
    ret->sequence = member_uint(value, "sequence");
    ret->ticket = member_uint(value, "ticket");
    ret->n_bytes = member_uint(value, "bytes");
    ret->issue_ns = time_of(rank, value, "issue_ns");
    ret->start_ns = time_of(rank, value, "start_ns");
    ret->end_ns = time_of(rank, value, "end_ns");
    return ret->number != 0 && ret->state[0] != '\0' &&
           (ret->issue_ns != 0 || strcmp(ret->state, "torn") == 0);
}

static bool ops_take(struct rank *rank, const json_t *array)
{
    size_t n = json_array_size(array);

    if (!json_is_array(array)) {
        return false;
    }
    rank->ops = calloc(n == 0 ? 1 : n, sizeof(*rank->ops));
    if (rank->ops == NULL) {
        return false;
    }
    rank->n_ops = n;
    for (size_t i = 0; i < n; i++) {
        if (!op_take(rank, json_array_get(array, i), &rank->ops[i])) {
            return false;
        }
    }
    return true;
}

static bool header_take(struct rank *rank)
{
    const json_t *root = rank->root;
    uint64_t number = member_uint(root, "rank");
    uint64_t world_ranks = member_uint(root, "world_ranks");

    if (!json_is_integer(json_object_get(root, "rank")) || world_ranks == 0 ||
        world_ranks > MAX_RANKS || number >= world_ranks) {
        return false;
    }
    rank->rank = (uint32_t)number;
    rank->world_ranks = (uint32_t)world_ranks;
    rank->written_by = (uint32_t)member_uint(root, "written_by");
    rank->wall_offset_ns = json_integer_value(json_object_get(root, "wall_offset_ns"));
    rank->now_ns = time_of(rank, root, "now_ns");
    rank->job = member_text(root, "job");
    rank->identity = member_text(root, "identity");
    rank->host = member_text(root, "host");
    rank->state = member_text(root, "state");
    rank->failure = json_object_get(root, "failure");
    rank->position = json_object_get(root, "position");
    rank->groups = json_object_get(root, "groups");
    rank->n_operations = member_uint(root, "n_operations");
    return rank->job[0] != '\0' && json_is_object(rank->failure);
}

/* NULL when it is a flight file that this program reads. */
static const char *content_take(struct rank *rank)
{
    if (strcmp(member_text(rank->root, "format"), "hsdp-flight") != 0) {
        return "no flight file: \"format\" is not \"hsdp-flight\"";
    }
    if (member_uint(rank->root, "version") != 1) {
        return "of another version of the format; this program reads version 1";
    }
    if (!header_take(rank)) {
        return "no flight file: rank, world_ranks, job or failure is missing or wrong";
    }
    return ops_take(rank, json_object_get(rank->root, "operations"))
               ? NULL
               : "no flight file: an operation is missing or wrong";
}

struct rank *rank_read(const char *path, char *ret_reason, size_t max_bytes)
{
    struct rank *rank = calloc(1, sizeof(*rank));
    const char *reason;
    json_error_t err;

    if (rank == NULL) {
        snprintf(ret_reason, max_bytes, "no memory");
        return NULL;
    }
    rank->root = json_load_file(path, 0, &err);
    if (rank->root == NULL) {
        snprintf(ret_reason, max_bytes, "%s (byte %d)", err.text, err.position);
        free(rank);
        return NULL;
    }
    reason = content_take(rank);
    if (reason != NULL) {
        snprintf(ret_reason, max_bytes, "%s", reason);
        rank_clear(rank);
        free(rank);
        return NULL;
    }
    return rank;
}

void rank_clear(struct rank *rank)
{
    free(rank->ops);
    json_decref(rank->root);
}

/* --------------------------------------------------------------------------- operations */

bool op_is_open(const struct op *op)
{
    return op->end_ns == 0;
}

static bool is_lane(const struct op *op)
{
    return strcmp(op->operation, "send") == 0 || strcmp(op->operation, "recv") == 0;
}

/*
 * Exchanges count over the whole job, reductions and the host's collectives in their group. The
 * rest counts epochs, or one pair of ranks.
 */
bool op_is_ordered(const struct op *op)
{
    if (op->sequence == 0) {
        return false;
    }
    if (op->group[0] == '\0') {
        return op->unit[0] == '\0' && op->ticket == 0 && strcmp(op->operation, "publish") != 0;
    }
    return strcmp(op->operation, "reduce") == 0 ||
           (op->unit[0] == '\0' && op->ticket != 0 && !is_lane(op));
}

void op_order_name(const struct op *op, char *ret_text, size_t max_bytes)
{
    if (op->group[0] == '\0') {
        snprintf(ret_text, max_bytes, "calls of the whole job");
    } else {
        snprintf(ret_text, max_bytes, "%s of group \"%s\"",
                 strcmp(op->operation, "reduce") == 0 ? "reductions" : "collectives", op->group);
    }
}
