/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: arrays and texts that a plugin reads and fills, exactly as far as they go. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "guard.h"

#define SEGMENT_1_0 32u
#define COLL_1_0    64u

/* ------------------------------------------------------------------------------------ strides */

/* The segments of unit 0, with a stride, in memory that ends behind them. */
static void segments_expect(struct arguments *arguments, uint64_t stride)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    struct conform *conform = arguments->conform;
    unsigned char *room;
    uint64_t n = 0;
    uint64_t n_again = 0;

    arguments_refuse_as(
        arguments, "plan.segments into no room",
        ops->segments(arguments->plan, 0, HSDP_SHARD_STEP, 0, NULL, stride, 0, &n, arguments->err),
        HSDP_ERR_BUFFER_TOO_SMALL);
    conform_expect(conform, n == 2, "plan.segments: a rank that owns two parameters has %llu",
                   (unsigned long long)n);
    room = guard_memory(conform, n * stride);
    arguments_refuse_as(arguments, "plan.segments into room for one of two",
                        ops->segments(arguments->plan, 0, HSDP_SHARD_STEP, 0, (void *)room, stride,
                                      1, &n_again, arguments->err),
                        HSDP_ERR_BUFFER_TOO_SMALL);
    conform_expect(conform, n_again == n && guard_is_filled(room, n * stride, GUARD_FILLER),
                   "plan.segments: fails, but has written to the array that is too small");
    arguments_accept(arguments, ops->segments(arguments->plan, 0, HSDP_SHARD_STEP, 0, (void *)room,
                                              stride, n, &n_again, arguments->err));
    for (uint64_t i = 0; i < n; i++) {
        struct hsdp_segment segment;

        memcpy(&segment, room + i * stride, sizeof(segment));
        conform_expect(conform,
                       segment.param < 2 && segment.param_offset_elems == 0 &&
                           segment.n_elems == (segment.param == 0 ? 6u : 4u),
                       "plan.segments with %llu bytes between elements: segment %llu is no whole "
                       "parameter",
                       (unsigned long long)stride, (unsigned long long)i);
        conform_expect(
            conform,
            guard_is_filled(room + i * stride + sizeof(segment), stride - sizeof(segment), 0),
            "plan.segments: what is behind the plugin's own struct is not zeroed");
    }
}

static void barriers_start(struct arguments *arguments, uint64_t stride, uint64_t n)
{
    struct hsdp_coll_spec barrier = HSDP_COLL_SPEC_INIT;
    unsigned char *specs = guard_memory(arguments->conform, stride * n);
    uint64_t ticket = 0;

    barrier.kind = HSDP_COLL_BARRIER;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(specs + i * stride, &barrier, sizeof(barrier)); /* what follows is the filler */
    }
    arguments_accept(arguments,
                     arguments->api->group->start(arguments->group, (void *)specs, stride, n, NULL,
                                                  &ticket, arguments->err));
    arguments_accept(arguments, arguments->api->job->ticket_wait(arguments->job, ticket, UINT64_MAX,
                                                                 arguments->err));
}

/* Elements of group.start say their own size, so nothing says with what a stride is refused. */
static void strides_refuse(struct arguments *arguments)
{
    struct hsdp_coll_spec barriers[2] = {HSDP_COLL_SPEC_INIT, HSDP_COLL_SPEC_INIT};
    struct arguments *a = arguments;
    uint64_t *longs = a->out.longs;
    struct hsdp_segment *segments = a->out.segments;

    barriers[0].kind = HSDP_COLL_BARRIER;
    barriers[1].kind = HSDP_COLL_BARRIER;
    arguments_refuse_as(
        a, "plan.segments with 0 bytes between elements",
        a->api->plan->segments(a->plan, 0, HSDP_SHARD_STEP, 0, segments, 0, 2, longs, a->err),
        HSDP_ERR_VERSION);
    arguments_refuse_as(a, "plan.segments with fewer bytes between elements than ABI 1.0 has",
                        a->api->plan->segments(a->plan, 0, HSDP_SHARD_STEP, 0, segments,
                                               SEGMENT_1_0 - 8, 2, longs, a->err),
                        HSDP_ERR_VERSION);
    arguments_refuse_as(a, "group.start with 0 bytes between elements",
                        a->api->group->start(a->group, barriers, 0, 2, NULL, longs, a->err),
                        ARGUMENTS_ANY_REFUSAL);
    arguments_refuse_as(
        a, "group.start with fewer bytes between elements than ABI 1.0 has",
        a->api->group->start(a->group, barriers, COLL_1_0 - 8, 2, NULL, longs, a->err),
        ARGUMENTS_ANY_REFUSAL);
    barriers[1].struct_size = 0;
    arguments_refuse_as(
        a, "group.start whose second spec has a struct_size of 0",
        a->api->group->start(a->group, barriers, sizeof(barriers[0]), 2, NULL, longs, a->err),
        HSDP_ERR_VERSION);
}

void arrays_of_strides(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    segments_expect(&a, sizeof(struct hsdp_segment));
    segments_expect(&a, sizeof(struct hsdp_segment) + 16);
    barriers_start(&a, sizeof(struct hsdp_coll_spec), 1);
    barriers_start(&a, sizeof(struct hsdp_coll_spec), 9);
    barriers_start(&a, sizeof(struct hsdp_coll_spec) + 16, 2);
    strides_refuse(&a);
    arguments_close(&a);
}

/* -------------------------------------------------------------------------------------- texts */

static int32_t report_ask(struct arguments *a, const char *what, char *text, uint64_t max_bytes,
                          uint64_t *ret_bytes)
{
    return what == NULL ? a->api->plan->report(a->plan, text, max_bytes, ret_bytes, a->err)
                        : a->api->diag->report(a->job, what, text, max_bytes, ret_bytes, a->err);
}

/* NULL is the plan's own report. */
static void report_expect(struct arguments *arguments, const char *what)
{
    struct conform *conform = arguments->conform;
    char call[64];
    uint64_t n_bytes = 0;
    uint64_t n_again = 0;
    char *text;
    int32_t status;

    snprintf(call, sizeof(call), "%s.report of %s", what == NULL ? "plan" : "diag",
             what == NULL ? "a plan" : what);
    arguments_enter(arguments, call, ARGUMENTS_FULL);
    status = report_ask(arguments, what, NULL, 0, &n_bytes);
    if (status == HSDP_ERR_UNSUPPORTED && what != NULL) {
        return; /* a report that is not built */
    }
    conform_check_refused(conform, call, status, HSDP_ERR_BUFFER_TOO_SMALL);
    conform_expect(conform, n_bytes > 2 && n_bytes < UINT64_C(1) << 28, "%s: needs %llu bytes",
                   call, (unsigned long long)n_bytes);
    text = guard_memory(conform, n_bytes);
    arguments_enter(arguments, call, ARGUMENTS_FULL);
    status = report_ask(arguments, what, text, n_bytes / 2, &n_again);
    conform_check_refused(conform, call, status, HSDP_ERR_BUFFER_TOO_SMALL);
    conform_expect(conform, guard_is_filled(text, n_bytes, GUARD_FILLER),
                   "%s: fails, but has written to the buffer that is too small", call);
    text += (8 - n_bytes % 8) % 8;
    arguments_enter(arguments, call, ARGUMENTS_FULL);
    status = report_ask(arguments, what, text, n_bytes, &n_again);
    conform_check_ok(conform, call, status);
    conform_expect(conform, n_again == n_bytes && memchr(text, '\0', n_bytes) == text + n_bytes - 1,
                   "%s: *ret_bytes is not the length of the text with its NUL", call);
}

static void members_expect(struct arguments *arguments)
{
    const struct hsdp_mesh_ops *ops = arguments->api->mesh;
    uint32_t *room = guard_memory(arguments->conform, sizeof(*room));
    uint64_t n = 77;

    arguments_refuse_as(arguments, "mesh.members into no room",
                        ops->members(arguments->mesh, "dp", 0, NULL, 0, &n, arguments->err),
                        HSDP_ERR_BUFFER_TOO_SMALL);
    conform_expect(arguments->conform, n == 1, "mesh.members: tells of %llu members; there is 1",
                   (unsigned long long)n);
    room += 1; /* up to the very edge */
    arguments_accept(arguments,
                     ops->members(arguments->mesh, "dp", 0, room, 1, &n, arguments->err));
    arguments_accept(arguments, ops->coords(arguments->mesh, 0, room, 1, arguments->err));
    arguments_accept(arguments,
                     arguments->api->group->members(arguments->group, room, 1, arguments->err));
    conform_expect(arguments->conform, *room == 0, "group.members: the one member is not rank 0");
}

void texts_of_any_size(struct conform *conform)
{
    static const char *const reports[] = {"settings", "ledger", "memory", "traffic",
                                          "flight",   "plan",   "error"};
    struct arguments a;

    arguments_open(&a, conform);
    report_expect(&a, NULL);
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        report_expect(&a, reports[i]);
    }
    members_expect(&a);
    arguments_close(&a);
}
