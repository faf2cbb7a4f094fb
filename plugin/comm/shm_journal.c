/* SPDX-License-Identifier: Apache-2.0 */
/* Journals: writing down unshards and passes, and finding the first difference between two ranks.
 */
#include "comm/shm_journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/shm_store.h"

#define MIN_ENTRIES UINT64_C(256)
#define N_WINDOWS   UINT64_C(8) /* so many times all units are kept */

/* An entry of a pass: what it is, the number of the pass in its journal, and scope or unit. */
enum mark {
    MARK_BEGIN = 1,
    MARK_UNIT = 2,
    MARK_END = 3,
};

static uint64_t entry_value(enum mark mark, uint64_t number, uint32_t what)
{
    return (uint64_t)mark << 62 | (number & UINT64_C(0x3fffffff)) << 32 | what;
}

static enum mark value_mark(uint64_t value)
{
    return (enum mark)(value >> 62);
}

static uint64_t value_number(uint64_t value)
{
    return value >> 32 & UINT64_C(0x3fffffff);
}

/* --------------------------------------------------------------------------------- layout */

static struct shm_journal_part *part_of(const struct store *store,
                                        const struct shm_journal *journal, uint32_t rank)
{
    return (struct shm_journal_part *)(store->regions[rank] + journal->offset);
}

static struct shm_journal *journal_find(const struct store *store, enum shm_journal_kind kind,
                                        uint32_t dims)
{
    for (uint32_t i = 0; i < store->n_journals; i++) {
        if (store->journals[i].kind == kind && store->journals[i].dims == dims) {
            return &store->journals[i];
        }
    }
    return NULL;
}

/* That of a group; a group of one has nobody to compare with, and NULL. */
static struct shm_journal *journal_add(struct store *store, enum shm_journal_kind kind,
                                       uint32_t dims, const struct shm_ranks *ranks,
                                       uint64_t *offset)
{
    struct shm_journal *journal = journal_find(store, kind, dims);
    uint64_t n_wanted = N_WINDOWS * (store->plan->n_units + UINT64_C(2));

    if (journal != NULL || ranks->n_ranks == 1) {
        return journal;
    }
    journal = &store->journals[store->n_journals++];
    journal->kind = kind;
    journal->dims = dims;
    journal->ranks = ranks;
    mesh_dims_text(store->plan->mesh, dims, journal->group, sizeof(journal->group));
    journal->max_entries = MIN_ENTRIES;
    while (journal->max_entries < n_wanted) {
        journal->max_entries *= 2;
    }
    journal->max_batch = kind == SHM_JOURNAL_UNSHARDS ? 1 : store->plan->n_units + UINT64_C(2);
    journal->offset = *offset;
    *offset += sizeof(struct shm_journal_part) + journal->max_entries * sizeof(struct shm_entry);
    return journal;
}

int32_t shm_journals_layout(struct store *store, uint64_t *offset, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = store->plan;

    store->journals = calloc(plan->n_classes * UINT64_C(2) + 1, sizeof(*store->journals));
    if (store->journals == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "shm: no memory for journals");
    }
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        const struct placement *place = &plan->classes[c].place;
        struct shm_class *class = &store->classes[c];

        class->unshards = journal_add(store, SHM_JOURNAL_UNSHARDS, place->cuts[HSDP_SHARD_PARAM],
                                      &class->gather, offset);
        if (plan_class_is_trainable(plan, c)) {
            class->passes =
                journal_add(store, SHM_JOURNAL_PASSES, place->reduced, &class->reduced, offset);
        }
    }
    return HSDP_OK;
}

void shm_journals_renumber(struct store *store)
{
    for (uint32_t j = 0; j < store->n_journals; j++) {
        store->journals[j].first_entry = store->journals[j].n_entries;
        store->journals[j].n_passes = 0;
    }
}

void shm_journals_free(struct store *store)
{
    free(store->journals);
}

/* --------------------------------------------------------------------------- writing down */

static uint64_t hash_add(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static void entry_add(const struct store *store, struct shm_journal *journal, uint64_t value)
{
    struct shm_journal_part *part = part_of(store, journal, store->rank);
    struct shm_entry *entry = &part->entries[journal->n_written % journal->max_entries];

    journal->hash = hash_add(journal->hash, value);
    atomic_store_explicit(&entry->value, value, memory_order_release);
    atomic_store_explicit(&entry->hash, journal->hash, memory_order_release);
    journal->n_written++;
}

static void entries_show(const struct store *store, struct shm_journal *journal)
{
    journal->n_entries = journal->n_written;
    atomic_store_explicit(&part_of(store, journal, store->rank)->n_entries, journal->n_entries,
                          memory_order_release);
}

void shm_journal_unshard(struct store *store, uint32_t unit)
{
    struct shm_journal *journal = shm_class_of(store, unit)->unshards;

    if (journal != NULL) {
        entry_add(store, journal, unit);
        entries_show(store, journal);
    }
}

/* Begins with the first unit that is reduced there: a pass without any is none of this group's. */
static void pass_write(struct store *store, struct shm_journal *journal, const uint32_t *units,
                       uint64_t n_units, int32_t scope)
{
    for (uint64_t i = 0; i < n_units; i++) {
        if (!plan_is_trainable(store->plan, units[i]) ||
            shm_class_of(store, units[i])->passes != journal) {
            continue;
        }
        if (journal->n_written == journal->n_entries) {
            journal->n_passes++;
            entry_add(store, journal, entry_value(MARK_BEGIN, journal->n_passes, (uint32_t)scope));
        }
        entry_add(store, journal, entry_value(MARK_UNIT, journal->n_passes, units[i]));
    }
    if (journal->n_written != journal->n_entries) {
        entry_add(store, journal, entry_value(MARK_END, journal->n_passes, 0));
        entries_show(store, journal);
    }
}

int32_t shm_journal_pass(struct store *store, const uint32_t *units, uint64_t n_units,
                         int32_t scope, struct hsdp_error *reterr)
{
    for (uint32_t i = 0; i < store->n_journals; i++) {
        if (store->journals[i].kind == SHM_JOURNAL_PASSES) {
            pass_write(store, &store->journals[i], units, n_units, scope);
        }
    }
    return shm_journals_compare(store, reterr);
}

/* ---------------------------------------------------------------------- what differs first */

struct entry_copy {
    uint64_t value;
    uint64_t hash;
};

/* False when it is not there any more; an entry becomes visible with its batch. */
static bool entry_read(const struct store *store, const struct shm_journal *journal, uint32_t rank,
                       uint64_t index, struct entry_copy *ret)
{
    struct shm_journal_part *part = part_of(store, journal, rank);
    struct shm_entry *entry = &part->entries[index % journal->max_entries];
    uint64_t n_entries;

    ret->value = atomic_load_explicit(&entry->value, memory_order_acquire);
    ret->hash = atomic_load_explicit(&entry->hash, memory_order_acquire);
    n_entries = atomic_load_explicit(&part->n_entries, memory_order_acquire);
    return n_entries + journal->max_batch <= index + journal->max_entries;
}

/* Two ranks, the lower one first, and what they have at one place. */
struct difference {
    uint32_t ranks[2];
    uint64_t index;
    uint64_t values[2];
    bool is_there[2]; /* false: the rank has begun a step instead */
};

static void side_text(const struct store *store, const struct shm_journal *journal,
                      const struct difference *difference, int side, char *ret_text,
                      size_t max_bytes)
{
    static const char *const scopes[] = {"none", "inner", "full"};
    uint64_t value = difference->values[side];
    uint32_t what = (uint32_t)value;

    if (!difference->is_there[side]) {
        snprintf(ret_text, max_bytes, "step.begin");
    } else if (journal->kind == SHM_JOURNAL_UNSHARDS || value_mark(value) == MARK_UNIT) {
        snprintf(ret_text, max_bytes, "unit \"%.63s\"",
                 what < store->plan->n_units ? store->plan->units[what].name : "?");
    } else if (value_mark(value) == MARK_END) {
        snprintf(ret_text, max_bytes, "no more units");
    } else {
        snprintf(ret_text, max_bytes, "a pass of scope %s", what <= 2 ? scopes[what] : "?");
    }
}

/* Where a pass begins that an entry of this rank belongs to. */
static uint64_t pass_first(const struct store *store, const struct shm_journal *journal,
                           uint64_t index)
{
    struct entry_copy entry;

    while (index > 0 && entry_read(store, journal, store->rank, index - 1, &entry) &&
           value_mark(entry.value) != MARK_END) {
        index--;
    }
    return index;
}

static void place_text(const struct store *store, const struct shm_journal *journal,
                       const struct difference *difference, char *ret_text, size_t max_bytes)
{
    uint64_t number = value_number(difference->values[difference->is_there[0] ? 0 : 1]);
    uint64_t first;

    if (journal->kind == SHM_JOURNAL_UNSHARDS) {
        snprintf(ret_text, max_bytes, "unit.unshard: number %" PRIu64 " in group \"%s\"",
                 difference->index + 1 - journal->first_entry, journal->group);
        return;
    }
    first = pass_first(store, journal, difference->index);
    if (first == difference->index) {
        snprintf(ret_text, max_bytes, "unit.backward_begin: pass %" PRIu64 " of group \"%s\"",
                 number, journal->group);
    } else {
        snprintf(ret_text, max_bytes,
                 "unit.backward_begin: pass %" PRIu64 " of group \"%s\", position %" PRIu64, number,
                 journal->group, difference->index - first);
    }
}

static int32_t difference_set(const struct store *store, const struct shm_journal *journal,
                              const struct difference *difference, struct hsdp_error *reterr)
{
    bool is_pass = journal->kind == SHM_JOURNAL_PASSES;
    int own = difference->ranks[0] == store->rank ? 0 : 1;
    uint32_t unit = (uint32_t)difference->values[own];
    char place[160];
    char sides[2][96];

    place_text(store, journal, difference, place, sizeof(place));
    for (int side = 0; side < 2; side++) {
        side_text(store, journal, difference, side, sides[side], sizeof(sides[side]));
    }
    error_set(reterr, HSDP_ERR_MISMATCH, "%s: %s on rank %" PRIu32 ", %s on rank %" PRIu32, place,
              sides[0], difference->ranks[0], sides[1], difference->ranks[1]);
    if (!difference->is_there[own] ||
        (is_pass && value_mark(difference->values[own]) != MARK_UNIT)) {
        unit = store->plan->n_units;
    }
    error_where(reterr, is_pass ? "unit.backward_begin" : "unit.unshard", journal->group,
                unit < store->plan->n_units ? store->plan->units[unit].name : NULL);
    if (reterr != NULL) {
        reterr->sequence = is_pass
                               ? value_number(difference->values[difference->is_there[0] ? 0 : 1])
                               : difference->index + 1 - journal->first_entry;
    }
    return HSDP_ERR_MISMATCH;
}

static struct difference difference_of(const struct store *store, uint32_t rank, uint64_t index)
{
    struct difference difference = {.index = index, .is_there = {true, true}};

    difference.ranks[0] = rank < store->rank ? rank : store->rank;
    difference.ranks[1] = rank < store->rank ? store->rank : rank;
    return difference;
}

/* The first n entries of two ranks differ: which one is it? One that is known no more is not named.
 */
static int32_t prefix_differs(const struct store *store, const struct shm_journal *journal,
                              uint32_t rank, uint64_t n, struct hsdp_error *reterr)
{
    uint64_t first = n > journal->max_entries ? n - journal->max_entries : 0;
    bool is_known = first == 0;

    for (uint64_t i = first; i < n; i++) {
        struct difference difference = difference_of(store, rank, i);
        struct entry_copy entries[2];

        if (!entry_read(store, journal, difference.ranks[0], i, &entries[0]) ||
            !entry_read(store, journal, difference.ranks[1], i, &entries[1])) {
            is_known = false; /* overwritten */
            continue;
        }
        difference.values[0] = entries[0].value;
        difference.values[1] = entries[1].value;
        if (entries[0].hash == entries[1].hash) {
            is_known = true;
        } else if (is_known) {
            return difference_set(store, journal, &difference, reterr);
        }
    }
    error_set(reterr, HSDP_ERR_MISMATCH,
              "%s: rank %" PRIu32 " and rank %" PRIu32 " have done different things in group "
              "\"%s\", too long ago to say which",
              journal->kind == SHM_JOURNAL_PASSES ? "unit.backward_begin" : "unit.unshard",
              rank < store->rank ? rank : store->rank, rank < store->rank ? store->rank : rank,
              journal->group);
    error_where(reterr,
                journal->kind == SHM_JOURNAL_PASSES ? "unit.backward_begin" : "unit.unshard",
                journal->group, NULL);
    if (reterr != NULL) {
        reterr->sequence = n;
    }
    return HSDP_ERR_MISMATCH;
}

/* -------------------------------------------------------------------------------- comparing */

/* One has n entries before a step, the other more, of which the first n are the same. */
static int32_t surplus_set(const struct store *store, const struct shm_journal *journal,
                           uint32_t rank, const uint64_t counts[2], struct hsdp_error *reterr)
{
    uint64_t n = counts[0] < counts[1] ? counts[0] : counts[1];
    struct difference difference = difference_of(store, rank, n);
    uint32_t more = counts[0] > counts[1] ? store->rank : rank;
    int side = difference.ranks[0] == more ? 0 : 1;
    struct entry_copy entry;

    difference.is_there[1 - side] = false;
    if (!entry_read(store, journal, more, n, &entry)) {
        entry.value = entry_value(MARK_END, 0, UINT32_MAX);
    }
    difference.values[side] = entry.value;
    return difference_set(store, journal, &difference, reterr);
}

/* A peer that has begun a step of which this rank is short has done all that comes before it. */
static int32_t laggard_compare(const struct store *store, const struct shm_journal *journal,
                               uint32_t rank, struct hsdp_error *reterr)
{
    struct shm_journal_part *part = part_of(store, journal, rank);
    const struct shm_journal_mark *mark = &part->at_step[(store->step + 1) % 2];
    uint64_t counts[2] = {journal->n_entries, 0};

    if (atomic_load(&shm_header(store, rank)->step_arrived) <= store->step ||
        atomic_load(&mark->step) != store->step + 1) {
        return HSDP_OK;
    }
    counts[1] = atomic_load(&mark->n_entries);
    return counts[1] < counts[0] ? surplus_set(store, journal, rank, counts, reterr) : HSDP_OK;
}

static int32_t peer_compare(const struct store *store, const struct shm_journal *journal,
                            uint32_t rank, struct hsdp_error *reterr)
{
    struct shm_journal_part *theirs = part_of(store, journal, rank);
    uint64_t n = atomic_load_explicit(&theirs->n_entries, memory_order_acquire);
    struct entry_copy own;
    struct entry_copy other;

    n = n < journal->n_entries ? n : journal->n_entries;
    if (n > 0 && entry_read(store, journal, store->rank, n - 1, &own) &&
        entry_read(store, journal, rank, n - 1, &other) && own.hash != other.hash) {
        return prefix_differs(store, journal, rank, n, reterr);
    }
    return laggard_compare(store, journal, rank, reterr);
}

int32_t shm_journals_compare(struct store *store, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint32_t j = 0; j < store->n_journals && status == HSDP_OK; j++) {
        const struct shm_journal *journal = &store->journals[j];

        for (uint32_t i = 0; i < journal->ranks->n_ranks && status == HSDP_OK; i++) {
            if (journal->ranks->ranks[i] != store->rank) {
                status = peer_compare(store, journal, journal->ranks->ranks[i], reterr);
            }
        }
    }
    return status;
}

int32_t shm_journals_check(void *user, struct hsdp_error *reterr)
{
    return shm_journals_compare(user, reterr);
}

void shm_journals_mark(struct store *store)
{
    for (uint32_t j = 0; j < store->n_journals; j++) {
        const struct shm_journal *journal = &store->journals[j];
        struct shm_journal_mark *mark =
            &part_of(store, journal, store->rank)->at_step[store->step % 2];

        probe_write(store->probe, PROBE_STEP_WORDS, PROBE_NO_UNIT, mark, sizeof(*mark));
        atomic_store(&mark->step, store->step);
        atomic_store(&mark->n_entries, journal->n_entries);
        atomic_store(&mark->hash, journal->hash);
    }
}

static int32_t marks_compare(const struct store *store, const struct shm_journal *journal,
                             uint32_t rank, struct hsdp_error *reterr)
{
    const struct shm_journal_mark *own =
        &part_of(store, journal, store->rank)->at_step[store->step % 2];
    const struct shm_journal_mark *theirs =
        &part_of(store, journal, rank)->at_step[store->step % 2];
    uint64_t counts[2] = {atomic_load(&own->n_entries), 0};
    uint64_t n;
    struct entry_copy entries[2];

    probe_read(store->probe, PROBE_STEP_WORDS, PROBE_NO_UNIT, theirs, sizeof(*theirs));
    if (atomic_load(&theirs->step) != store->step) {
        return HSDP_OK;
    }
    counts[1] = atomic_load(&theirs->n_entries);
    if (counts[1] == counts[0]) {
        return atomic_load(&own->hash) == atomic_load(&theirs->hash)
                   ? HSDP_OK
                   : prefix_differs(store, journal, rank, counts[0], reterr);
    }
    n = counts[0] < counts[1] ? counts[0] : counts[1];
    if (n > 0 && entry_read(store, journal, store->rank, n - 1, &entries[0]) &&
        entry_read(store, journal, rank, n - 1, &entries[1]) &&
        entries[0].hash != entries[1].hash) {
        return prefix_differs(store, journal, rank, n, reterr);
    }
    return surplus_set(store, journal, rank, counts, reterr);
}

int32_t shm_journals_settle(struct store *store, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint32_t j = 0; j < store->n_journals && status == HSDP_OK; j++) {
        const struct shm_journal *journal = &store->journals[j];

        for (uint32_t i = 0; i < journal->ranks->n_ranks && status == HSDP_OK; i++) {
            if (journal->ranks->ranks[i] != store->rank) {
                status = marks_compare(store, journal, journal->ranks->ranks[i], reterr);
            }
        }
    }
    return status;
}
