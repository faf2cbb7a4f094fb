/* SPDX-License-Identifier: Apache-2.0 */
/* A run as its flight files tell it: ranks, operations, and what went wrong. */
#ifndef FLIGHT_RUN_H
#define FLIGHT_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses. */
enum {
    FLIGHT_OK,
    FLIGHT_NOTHING, /* no file that can be used, or the trace cannot be written */
    FLIGHT_USAGE,
    FLIGHT_SKIPPED, /* a report, but of a part of the files */
};

/* One operation of a rank. Texts are borrowed from its file. */
struct op {
    uint64_t number;
    uint64_t sequence;
    uint64_t ticket;
    uint64_t n_bytes;
    int64_t issue_ns; /* this and the next two: wall clock; 0 = not yet */
    int64_t start_ns;
    int64_t end_ns;
    const char *state;
    const char *operation; /* "" for a torn record */
    const char *group;
    const char *unit;
};

/* One file. */
struct rank {
    json_t *root; /* owns all texts */
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t written_by;
    int64_t now_ns; /* wall clock, when it was written */
    int64_t wall_offset_ns;
    const char *job;
    const char *identity;
    const char *host;
    const char *state;
    const json_t *failure;
    const json_t *position; /* NULL = none */
    const json_t *groups;
    uint64_t n_operations; /* ever; the last n_ops of them are here */
    struct op *ops;
    size_t n_ops;
};

struct run {
    struct rank *ranks; /* by number */
    size_t n_ranks;
    size_t n_skipped; /* files, each with a line on standard error */
};

/** Says something on standard error, behind the name of the program. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Reads one file; NULL with the reason in ret_reason. */
struct rank *rank_read(const char *path, char *ret_reason, size_t max_bytes);
void rank_clear(struct rank *rank);

/** Reads all files of a folder that are of one run: of `job` (NULL = the only one there is). */
int run_read(const char *folder, const char *job, struct run *ret);
void run_clear(struct run *run);

const struct rank *run_find(const struct run *run, uint32_t number);
/** A text or number of an object; "" and 0 where there is none. */
const char *member_text(const json_t *object, const char *key);
uint64_t member_uint(const json_t *object, const char *key);

/** Whether all members of a group do the same in this one, in order of its sequence. */
bool op_is_ordered(const struct op *op);
/** The order that its sequence counts in, for people: collectives of group "dp". */
void op_order_name(const struct op *op, char *ret_text, size_t max_bytes);
bool op_is_open(const struct op *op);

#endif /* FLIGHT_RUN_H */
