/* SPDX-License-Identifier: Apache-2.0 */
/* The summary: who came to the operation that failed, and where each rank was. */
#include "summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How many bytes of a name a record keeps. */
#define OPERATION_BYTES 31u
#define NAME_BYTES      47u

static void text_append(char *text, size_t max_bytes, const char *before, const char *value,
                        const char *after)
{
    size_t n_bytes = strlen(text);

    if (value[0] != '\0' && n_bytes < max_bytes) {
        snprintf(text + n_bytes, max_bytes - n_bytes, "%s%s%s", before, value, after);
    }
}

static void what_name(const char *const names[3], uint64_t sequence, char *ret_text,
                      size_t max_bytes)
{
    char number[24] = "";

    if (sequence != 0) {
        snprintf(number, sizeof(number), "%" PRIu64, sequence);
    }
    snprintf(ret_text, max_bytes, "%s", names[0]);
    text_append(ret_text, max_bytes, " of group \"", names[1], "\"");
    text_append(ret_text, max_bytes, ", unit \"", names[2], "\"");
    text_append(ret_text, max_bytes, ", sequence ", number, "");
}

void op_name(const struct op *op, char *ret_text, size_t max_bytes)
{
    const char *const names[3] = {op->operation[0] == '\0' ? "a torn record" : op->operation,
                                  op->group, op->unit};

    what_name(names, op->sequence, ret_text, max_bytes);
}

/* -------------------------------------------------------------------------- who arrived */

/* Whether an operation is the one that failed: one without a number is over in no other way. */
static bool op_is_failed(const struct op *op, const json_t *failure)
{
    uint64_t sequence = member_uint(failure, "sequence");

    if (strncmp(op->operation, member_text(failure, "operation"), OPERATION_BYTES) != 0 ||
        strncmp(op->group, member_text(failure, "group"), NAME_BYTES) != 0 ||
        strncmp(op->unit, member_text(failure, "unit"), NAME_BYTES) != 0 ||
        strcmp(op->state, "issued") == 0) {
        return false;
    }
    return sequence != 0 ? op->sequence == sequence : strcmp(op->state, "done") != 0;
}

static bool rank_has_arrived(const struct rank *rank, const json_t *failure)
{
    for (size_t i = rank->n_ops; i-- > 0;) {
        if (op_is_failed(&rank->ops[i], failure)) {
            return true;
        }
    }
    return false;
}

static bool array_has(const json_t *array, uint32_t number)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (json_integer_value(json_array_get(array, i)) == (json_int_t)number) {
            return true;
        }
    }
    return false;
}

/* The members of the group that failed, as a rank among them knows them; NULL = nobody says. */
static const json_t *members_find(const struct run *run, const json_t *failure)
{
    const char *name = member_text(failure, "group");
    uint32_t reporter = (uint32_t)member_uint(failure, "reported_by");

    for (size_t i = 0; i < run->n_ranks; i++) {
        for (size_t g = 0; g < json_array_size(run->ranks[i].groups); g++) {
            const json_t *group = json_array_get(run->ranks[i].groups, g);
            const json_t *members = json_object_get(group, "ranks");
            const char *own = member_text(group, "name");

            own = own[0] == '\0' ? member_text(group, "group") : own;
            if (strcmp(own, name) == 0 && array_has(members, reporter)) {
                return members;
            }
        }
    }
    return NULL;
}

static bool is_member(const struct run *run, const json_t *failure, uint32_t number)
{
    const json_t *members = members_find(run, failure);

    if (members != NULL) {
        return array_has(members, number);
    }
    return member_text(failure, "group")[0] == '\0' ||
           array_has(json_object_get(failure, "missing_ranks"), number);
}

static void arrivals_add(const struct run *run, const json_t *failure, json_t *summary)
{
    json_t *arrived = json_array();
    json_t *absent = json_array();
    json_t *unknown = json_array();

    for (uint32_t number = 0; number < run->ranks[0].world_ranks; number++) {
        const struct rank *rank = run_find(run, number);

        if (rank != NULL && rank_has_arrived(rank, failure)) {
            json_array_append_new(arrived, json_integer(number));
        } else if (!is_member(run, failure, number)) {
            continue;
        } else if (rank != NULL || array_has(json_object_get(failure, "missing_ranks"), number)) {
            json_array_append_new(absent, json_integer(number));
        } else {
            json_array_append_new(unknown, json_integer(number));
        }
    }
    json_object_set_new(summary, "arrived", arrived);
    json_object_set_new(summary, "not_arrived", absent);
    json_object_set_new(summary, "unknown", unknown);
}

/* ---------------------------------------------------------------------------- the ranks */

/* waits in reduce of group "dp" for ranks 1, 2 since 1.0 s */
static void position_name(const struct rank *rank, char *ret_text, size_t max_bytes)
{
    const json_t *position = rank->position;
    const json_t *others = json_object_get(position, "waits_for");
    const char *where = member_text(position, "where");
    const char *const names[3] = {member_text(position, "operation"),
                                  member_text(position, "group"), member_text(position, "unit")};
    char name[256];

    ret_text[0] = '\0';
    if (strcmp(where, "waits") == 0) {
        what_name(names, member_uint(position, "sequence"), name, sizeof(name));
        text_append(ret_text, max_bytes, "waits in ", name, "");
        text_append(ret_text, max_bytes, " for ",
                    json_array_size(others) == 0 ? "earlier work of its own" : "rank", "");
        for (size_t i = 0; i < json_array_size(others); i++) {
            snprintf(name, sizeof(name), "%" PRId64,
                     (int64_t)json_integer_value(json_array_get(others, i)));
            text_append(ret_text, max_bytes, i == 0 ? " " : ", ", name, "");
        }
    } else if (strcmp(where, "inside") == 0) {
        const char *call = member_text(position, "call");

        text_append(ret_text, max_bytes, "inside of ", call[0] == '\0' ? "a call" : call, "");
    } else {
        text_append(ret_text, max_bytes, "", where[0] == '\0' ? "connecting" : "outside of calls",
                    "");
    }
    text_append(ret_text, max_bytes, ", phase \"", member_text(position, "phase"), "\"");
}

/* The one that ended last, and the oldest that has not. */
static void ops_find(const struct rank *rank, const struct op **ret_last,
                     const struct op **ret_current)
{
    *ret_last = NULL;
    *ret_current = NULL;
    for (size_t i = 0; i < rank->n_ops; i++) {
        const struct op *op = &rank->ops[i];

        if (strcmp(op->state, "done") == 0 &&
            (*ret_last == NULL || op->end_ns >= (*ret_last)->end_ns)) {
            *ret_last = op;
        }
        if (strcmp(op->state, "done") != 0 && *ret_current == NULL) {
            *ret_current = op;
        }
    }
}

static json_t *rank_describe(const struct rank *rank)
{
    const struct op *last;
    const struct op *current;
    char position[512];
    char names[2][256] = {"", ""};

    ops_find(rank, &last, &current);
    position_name(rank, position, sizeof(position));
    if (last != NULL) {
        op_name(last, names[0], sizeof(names[0]));
    }
    if (current != NULL) {
        op_name(current, names[1], sizeof(names[1]));
    }
    return json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:I, s:I}", "rank", (int)rank->rank,
                     "host", rank->host, "state", rank->state, "written_by", (int)rank->written_by,
                     "position", position, "last_completed", names[0], "current", names[1],
                     "current_state", current == NULL ? "" : current->state, "n_operations",
                     (json_int_t)rank->n_operations, "idle_ns",
                     (json_int_t)(last == NULL ? 0 : rank->now_ns - last->end_ns));
}

/* All files of a run tell the same failure, but for a rank that had only its own words for it. */
static const json_t *failure_find(const struct run *run)
{
    uint32_t reporter = (uint32_t)member_uint(run->ranks[0].failure, "reported_by");
    const struct rank *rank = run_find(run, reporter);

    return rank == NULL ? run->ranks[0].failure : rank->failure;
}

json_t *summary_make(const struct run *run)
{
    const json_t *failure = failure_find(run);
    const char *const names[3] = {member_text(failure, "operation"), member_text(failure, "group"),
                                  member_text(failure, "unit")};
    json_t *ranks = json_array();
    json_t *summary;
    char name[256];

    what_name(names, member_uint(failure, "sequence"), name, sizeof(name));
    for (size_t i = 0; i < run->n_ranks; i++) {
        json_array_append_new(ranks, rank_describe(&run->ranks[i]));
    }
    summary =
        json_pack("{s:s, s:i, s:I, s:I, s:O, s:s, s:o, s:o}", "job", run->ranks[0].job,
                  "world_ranks", (int)run->ranks[0].world_ranks, "n_files",
                  (json_int_t)run->n_ranks, "n_skipped", (json_int_t)run->n_skipped, "failure",
                  failure, "operation", name, "ranks", ranks, "differences", differences_make(run));
    if (summary != NULL && names[0][0] != '\0') {
        arrivals_add(run, failure, summary);
    }
    return summary;
}
