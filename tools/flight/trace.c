/* SPDX-License-Identifier: Apache-2.0 */
/* The trace: a process for each rank, a track for each group, an event for each operation. */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "summary.h"

#define MAX_TRACKS 256u /* of a rank; what comes later shares the last one */
#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(17))

/* Operations of a group that overlap lie on tracks of their own: events of one must not cross. */
struct track {
    const char *group;
    uint32_t number; /* among those of the group, from 1 */
    int64_t end_ns;
};

struct trace {
    FILE *file;
    int64_t base_ns;
    bool is_first;
    bool is_failed;
    struct track tracks[MAX_TRACKS]; /* of the rank that is written now */
    uint32_t n_tracks;
};

/* Takes the event. */
static void event_write(struct trace *trace, json_t *event)
{
    if (event == NULL || fputs(trace->is_first ? "\n" : ",\n", trace->file) < 0 ||
        json_dumpf(event, trace->file, DUMP_FLAGS) != 0) {
        trace->is_failed = true;
    }
    trace->is_first = false;
    json_decref(event);
}

static double microseconds(const struct trace *trace, int64_t ns)
{
    return (double)(ns - trace->base_ns) / 1000.0;
}

static void process_write(struct trace *trace, const struct rank *rank)
{
    char name[400];

    snprintf(name, sizeof(name), "rank %u (%s, %s)", rank->rank, rank->host, rank->state);
    event_write(trace, json_pack("{s:s, s:s, s:i, s:{s:s}}", "name", "process_name", "ph", "M",
                                 "pid", (int)rank->rank, "args", "name", name));
    event_write(trace,
                json_pack("{s:s, s:s, s:i, s:{s:i}}", "name", "process_sort_index", "ph", "M",
                          "pid", (int)rank->rank, "args", "sort_index", (int)rank->rank));
}

static uint32_t track_make(struct trace *trace, const struct rank *rank, const char *group,
                           uint32_t number)
{
    const char *words = group[0] == '\0' ? "whole job" : group;
    char name[128];

    if (trace->n_tracks == MAX_TRACKS) {
        return MAX_TRACKS - 1;
    }
    snprintf(name, sizeof(name), number == 1 ? "%s" : "%s (%u)", words, number);
    trace->tracks[trace->n_tracks] = (struct track){.group = group, .number = number};
    event_write(trace,
                json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M", "pid",
                          (int)rank->rank, "tid", (int)trace->n_tracks + 1, "args", "name", name));
    return trace->n_tracks++;
}

/* The first track of the group that is free at a time. */
static uint32_t track_find(struct trace *trace, const struct rank *rank, const char *group,
                           int64_t start_ns)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < trace->n_tracks; i++) {
        if (strcmp(trace->tracks[i].group, group) != 0) {
            continue;
        }
        if (trace->tracks[i].end_ns <= start_ns) {
            return i;
        }
        n++;
    }
    return track_make(trace, rank, group, n + 1);
}

static void op_write(struct trace *trace, const struct rank *rank, const struct op *op)
{
    int64_t start_ns = op->start_ns != 0 ? op->start_ns : op->issue_ns;
    int64_t end_ns = op->end_ns != 0 ? op->end_ns : rank->now_ns;
    uint32_t track;
    char name[256];

    end_ns = end_ns < start_ns ? start_ns : end_ns;
    track = track_find(trace, rank, op->group, start_ns);
    trace->tracks[track].end_ns = end_ns;
    snprintf(name, sizeof(name), "%s%s%s", op->operation, op->unit[0] == '\0' ? "" : " ", op->unit);
    event_write(trace,
                json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:s, s:I, s:I, s:I, s:I, s:f}}",
                          "name", name, "cat", op->operation, "ph", "X", "pid", (int)rank->rank,
                          "tid", (int)track + 1, "ts", microseconds(trace, start_ns), "dur",
                          (double)(end_ns - start_ns) / 1000.0, "args", "state", op->state,
                          "number", (json_int_t)op->number, "sequence", (json_int_t)op->sequence,
                          "ticket", (json_int_t)op->ticket, "bytes", (json_int_t)op->n_bytes,
                          "queued_us", (double)(start_ns - op->issue_ns) / 1000.0));
}

/* In order of their start, as tracks are given away. */
static int op_compare(const void *one, const void *other)
{
    const struct op *a = *(const struct op *const *)one;
    const struct op *b = *(const struct op *const *)other;
    int64_t a_ns = a->start_ns != 0 ? a->start_ns : a->issue_ns;
    int64_t b_ns = b->start_ns != 0 ? b->start_ns : b->issue_ns;

    if (a_ns != b_ns) {
        return a_ns < b_ns ? -1 : 1;
    }
    return a->number < b->number ? -1 : a->number > b->number;
}

static void rank_write(struct trace *trace, const struct rank *rank)
{
    const struct op **ops = calloc(rank->n_ops == 0 ? 1 : rank->n_ops, sizeof(*ops));
    size_t n = 0;

    if (ops == NULL) {
        trace->is_failed = true;
        return;
    }
    for (size_t i = 0; i < rank->n_ops; i++) {
        if (rank->ops[i].issue_ns != 0) { /* not torn */
            ops[n++] = &rank->ops[i];
        }
    }
    qsort(ops, n, sizeof(*ops), op_compare);
    trace->n_tracks = 0;
    process_write(trace, rank);
    for (size_t i = 0; i < n; i++) {
        op_write(trace, rank, ops[i]);
    }
    free(ops);
}

static int64_t base_find(const struct run *run)
{
    int64_t base_ns = run->ranks[0].now_ns;

    for (size_t i = 0; i < run->n_ranks; i++) {
        for (size_t k = 0; k < run->ranks[i].n_ops; k++) {
            int64_t ns = run->ranks[i].ops[k].issue_ns;

            base_ns = ns != 0 && ns < base_ns ? ns : base_ns;
        }
    }
    return base_ns;
}

int trace_write(const struct run *run, const char *path)
{
    struct trace trace = {.file = fopen(path, "we"), .is_first = true};

    if (trace.file == NULL) {
        complain("cannot write %s: %s", path, strerror(errno));
        return FLIGHT_NOTHING;
    }
    trace.base_ns = base_find(run);
    fprintf(trace.file, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"base_wall_ns\":\"%lld\"},",
            (long long)trace.base_ns);
    fprintf(trace.file, "\"traceEvents\":[");
    for (size_t i = 0; i < run->n_ranks; i++) {
        rank_write(&trace, &run->ranks[i]);
    }
    fprintf(trace.file, "\n]}\n");
    trace.is_failed |= ferror(trace.file) != 0;
    if (fclose(trace.file) != 0 || trace.is_failed) {
        complain("cannot write all of %s", path);
        return FLIGHT_NOTHING;
    }
    return FLIGHT_OK;
}
