/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: from the positions of the ranks to a sentence. */
#include "comm/verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/job_internal.h"
#include "comm/process.h"

#define N_SCANNED   128u /* records from the last one back */
#define N_LISTED    8u   /* ranks in one list */
#define N_DESCRIBED 4u   /* ranks in one sentence */

enum doing {
    DOING_LEFT,
    DOING_DIED,
    DOING_STOPPED,
    DOING_OUTSIDE,
    DOING_INSIDE,
    DOING_WAITS, /* for others */
};

/* A rank as it was at one moment. */
struct suspect {
    const struct control *control;
    uint32_t rank; /* in the world */
    enum doing doing;
    uint64_t idle_ns;          /* since anything was heard of it */
    bool is_at_device;         /* it waits for its own device */
    bool has_done;             /* `last` is filled */
    struct flight_record last; /* what it completed last */
    struct position_view position;
};

/* -------------------------------------------------------------------------------- texts */

/* Adds "BEFORE VALUE AFTER" unless value is NULL; false when there is no room for all of it. */
static bool text_append(char *text, size_t max_bytes, const char *before, const char *value,
                        const char *after)
{
    size_t n_bytes = strlen(text);

    if (value == NULL) {
        return true;
    }
    if (n_bytes + strlen(before) + strlen(value) + strlen(after) >= max_bytes) {
        return false;
    }
    snprintf(text + n_bytes, max_bytes - n_bytes, "%s%s%s", before, value, after);
    return true;
}

void verdict_operation(const struct wait *wait, char *ret_text, size_t max_bytes)
{
    char sequence[24];

    snprintf(sequence, sizeof(sequence), "%" PRIu64, wait->sequence);
    ret_text[0] = '\0';
    text_append(ret_text, max_bytes, "", wait->operation == NULL ? "wait" : wait->operation, "");
    text_append(ret_text, max_bytes, " of group \"", wait->group, "\"");
    text_append(ret_text, max_bytes, ", unit \"", wait->unit, "\"");
    text_append(ret_text, max_bytes, ", sequence ", wait->sequence == 0 ? NULL : sequence, "");
}

static const char *name_or_null(const char *name)
{
    return name[0] == '\0' ? NULL : name;
}

static uint32_t ranks_count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

static uint32_t ranks_first(uint64_t mask)
{
    return (uint32_t)__builtin_ctzll(mask);
}

/* ranks 1, 2, 3; ranks 1, ..., 8 and 55 more */
static void ranks_list(const struct control *control, uint64_t mask, char *ret_text,
                       size_t max_bytes)
{
    const char *before = ranks_count(mask) == 1 ? "rank " : "ranks ";
    char number[24];

    ret_text[0] = '\0';
    for (uint32_t n = 0; n < N_LISTED && mask != 0; n++) {
        snprintf(number, sizeof(number), "%" PRIu32, control->ranks[ranks_first(mask)].rank);
        text_append(ret_text, max_bytes, before, number, "");
        before = ", ";
        mask &= mask - 1;
    }
    snprintf(number, sizeof(number), "%" PRIu32, ranks_count(mask));
    text_append(ret_text, max_bytes, " and ", mask == 0 ? NULL : number, " more");
}

/* -------------------------------------------------------------------------------- looking */

/* What it completed last, and when anything was heard of it. */
static void record_find(const struct flight *flight, struct suspect *suspect, uint64_t *ret_heard)
{
    uint64_t last = flight_last(flight);
    struct flight_record record;

    *ret_heard = 0;
    for (uint64_t i = 0; i < N_SCANNED && i < last; i++) {
        if (flight_read(flight, last - i, &record) != FLIGHT_READ) {
            continue;
        }
        *ret_heard = record.issue_ns > *ret_heard ? record.issue_ns : *ret_heard;
        *ret_heard = record.end_ns > *ret_heard ? record.end_ns : *ret_heard;
        if (record.state == FLIGHT_DONE &&
            (!suspect->has_done || record.end_ns > suspect->last.end_ns)) {
            suspect->last = record;
            suspect->has_done = true;
        }
    }
}

static enum doing rank_doing(const struct control_rank *other, const struct position_view *position)
{
    if (atomic_load(&other->has_left) != 0) {
        return DOING_LEFT;
    }
    if (process_has_ended(other->pid)) {
        return DOING_DIED;
    }
    if (process_is_stopped(other->pid)) {
        return DOING_STOPPED;
    }
    if (position->is_waiting) {
        return DOING_WAITS;
    }
    return position->is_inside ? DOING_INSIDE : DOING_OUTSIDE;
}

static void suspect_look(const struct hsdp_job *job, uint32_t index, struct suspect *ret)
{
    struct control *control = atomic_load(&job->control);
    struct flight flight = control_flight(control, index);
    uint64_t now_ns = clock_now_ns();
    uint64_t heard_ns;

    memset(ret, 0, sizeof(*ret));
    ret->control = control;
    ret->rank = control->ranks[index].rank;
    position_read(&control->ranks[index].position, now_ns, &ret->position);
    ret->is_at_device = ret->position.missing == UINT64_C(1) << index;
    ret->position.missing &= ~(UINT64_C(1) << index);
    ret->doing = rank_doing(&control->ranks[index], &ret->position);
    record_find(&flight, ret, &heard_ns);
    heard_ns = ret->position.left_ns > heard_ns ? ret->position.left_ns : heard_ns;
    ret->idle_ns = heard_ns != 0 && heard_ns < now_ns ? now_ns - heard_ns : 0;
}

/* -------------------------------------------------------------------------- what it does */

/* since unshard of unit "b.1" */
static void last_append(const struct suspect *suspect, char *text, size_t max_bytes)
{
    const struct flight_record *last = &suspect->last;

    if (suspect->has_done) {
        text_append(text, max_bytes, ", since ", last->operation, "");
        text_append(text, max_bytes, " of unit \"", name_or_null(last->unit), "\"");
        text_append(text, max_bytes, " of group \"",
                    last->unit[0] == '\0' ? name_or_null(last->group) : NULL, "\"");
    }
}

/* outside of any call for 2.0 s in phase "compile", since ... */
static void place_append(const struct suspect *suspect, bool is_timed, char *text, size_t max_bytes)
{
    const struct position_view *position = &suspect->position;
    char seconds[32];

    if (position->is_inside) {
        text_append(text, max_bytes, "inside of ",
                    position->call[0] == '\0' ? "a call" : position->call, "");
    } else {
        text_append(text, max_bytes, "", "outside of any call", "");
    }
    snprintf(seconds, sizeof(seconds), "%.1f", (double)suspect->idle_ns / 1e9);
    text_append(text, max_bytes, " for ", is_timed ? seconds : NULL, " s");
    text_append(text, max_bytes, " in phase \"", name_or_null(position->phase), "\"");
    last_append(suspect, text, max_bytes);
}

static void waits_append(const struct suspect *suspect, char *text, size_t max_bytes)
{
    const struct position_view *position = &suspect->position;
    struct wait wait = {.operation = position->operation, .sequence = position->sequence};
    char name[256];

    wait.group = name_or_null(position->group);
    wait.unit = name_or_null(position->unit);
    verdict_operation(&wait, name, sizeof(name));
    text_append(text, max_bytes, "waits in ", name, " for ");
    if (position->missing == 0) {
        snprintf(name, sizeof(name), "%s",
                 suspect->is_at_device ? "its device" : "earlier work of its own");
    } else {
        ranks_list(suspect->control, position->missing, name, sizeof(name));
    }
    text_append(text, max_bytes, "", name, "");
}

static void doing_append(const struct suspect *suspect, char *text, size_t max_bytes)
{
    static const char *const words[] = {"has left the job", "has died",  "is stopped",
                                        "has been ",        "has been ", ""};

    text_append(text, max_bytes, "", words[suspect->doing], "");
    if (suspect->doing == DOING_OUTSIDE || suspect->doing == DOING_INSIDE) {
        place_append(suspect, true, text, max_bytes);
    } else if (suspect->doing == DOING_WAITS) {
        waits_append(suspect, text, max_bytes);
    }
}

const char *verdict_state(const struct hsdp_job *job, uint32_t index)
{
    struct suspect suspect;

    suspect_look(job, index, &suspect);
    switch (suspect.doing) {
    case DOING_LEFT:
        return "left";
    case DOING_DIED:
        return "died";
    case DOING_STOPPED:
        return "stopped";
    default:
        return NULL;
    }
}

void verdict_last(const struct hsdp_job *job, uint32_t index, char *ret_text, size_t max_bytes)
{
    struct suspect suspect;

    suspect_look(job, index, &suspect);
    snprintf(ret_text, max_bytes, " ");
    place_append(&suspect, false, ret_text, max_bytes);
}

/* --------------------------------------------------------------------------- the sentence */

static bool is_on_the_way(const struct suspect *suspect)
{
    return suspect->doing == DOING_WAITS && suspect->position.missing != 0;
}

/* The ranks that do not wait for others, of all that can be reached. */
static uint64_t ends_find(const struct hsdp_job *job, uint64_t missing)
{
    uint64_t own = UINT64_C(1) << job->node_index;
    uint64_t open = missing & ~own;
    uint64_t seen = own;
    uint64_t ends = 0;

    while (open != 0) {
        struct suspect suspect;
        uint32_t index = ranks_first(open);

        suspect_look(job, index, &suspect);
        seen |= UINT64_C(1) << index;
        if (is_on_the_way(&suspect)) {
            open |= suspect.position.missing;
        } else {
            ends |= UINT64_C(1) << index;
        }
        open &= ~seen;
    }
    return ends;
}

/* A sentence about ranks, as far as it has come. */
struct story {
    char *text;
    size_t max_bytes;
    uint64_t ends;
    uint64_t named;     /* ranks to describe */
    uint64_t described; /* of them */
    uint64_t next;      /* the one that was named last, alone; else 0 */
};

/* False when there is no room for it. */
static bool story_describe(const struct hsdp_job *job, struct story *story, uint32_t index)
{
    bool is_next = story->next == UINT64_C(1) << index;
    struct suspect suspect;
    char text[400] = "";
    char who[24] = ", which ";

    suspect_look(job, index, &suspect);
    if (!is_next) {
        snprintf(who, sizeof(who), "; rank %" PRIu32 " ", suspect.rank);
    }
    doing_append(&suspect, text, sizeof(text));
    if (!text_append(story->text, story->max_bytes, who, text, "")) {
        return false;
    }
    story->described |= UINT64_C(1) << index;
    story->next = 0;
    if (is_on_the_way(&suspect)) {
        uint64_t others = suspect.position.missing;

        story->named |= others;
        story->next = ranks_count(others) == 1 ? others & ~story->described : 0;
    }
    return true;
}

/* Who comes next: whoever was just named, else first those at an end. */
static uint64_t story_choose(const struct story *story)
{
    uint64_t open = story->named & ~story->described;

    if ((story->next & open) != 0) {
        return story->next;
    }
    return (open & story->ends) != 0 ? open & story->ends : open;
}

uint64_t verdict_missing(const struct hsdp_job *job, uint64_t missing, char *ret_text,
                         size_t max_bytes)
{
    struct story story = {.text = ret_text, .max_bytes = max_bytes - 16, .named = missing};
    uint64_t own = UINT64_C(1) << job->node_index;
    bool is_told = true;
    char more[24];

    if (missing == 0) {
        snprintf(ret_text, max_bytes, "earlier work of this rank");
        return 0;
    }
    story.ends = ends_find(job, missing);
    story.described = own; /* everybody knows what this one does */
    story.next = ranks_count(missing) == 1 ? missing : 0;
    ranks_list(atomic_load(&job->control), missing, ret_text, max_bytes);
    while (is_told && story_choose(&story) != 0 &&
           ranks_count(story.described & ~own) < N_DESCRIBED) {
        is_told = story_describe(job, &story, ranks_first(story_choose(&story)));
    }
    snprintf(more, sizeof(more), "%" PRIu32, ranks_count(story.named & ~story.described));
    story.max_bytes = max_bytes; /* what was kept free */
    if ((story.named & ~story.described) != 0 && ranks_count(story.named) > 1) {
        text_append(ret_text, max_bytes, "; and ", more, " more");
    } else if (story.ends == 0) {
        text_append(ret_text, max_bytes, ": ", "a deadlock", "");
    }
    return story.ends != 0 ? story.ends : missing & ~own;
}
