/* SPDX-License-Identifier: Apache-2.0 */
/* Differences: where ranks of one group did something else under the same number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "summary.h"

/* An operation of a rank, where it stands in an order. */
struct place {
    const struct rank *rank;
    const struct op *op;
    size_t repeat; /* how many later ones of that rank have its order and number: other models */
    char order[96];
};

/* What has to be equal: the name of the operation and of its unit. */
static bool is_alike(const struct op *one, const struct op *other)
{
    return strcmp(one->operation, other->operation) == 0 && strcmp(one->unit, other->unit) == 0;
}

static int place_compare(const void *one, const void *other)
{
    const struct place *a = one;
    const struct place *b = other;
    int order = strcmp(a->order, b->order);

    if (order != 0) {
        return order;
    }
    if (a->op->sequence != b->op->sequence) {
        return a->op->sequence < b->op->sequence ? -1 : 1;
    }
    if (a->repeat != b->repeat) {
        return a->repeat < b->repeat ? -1 : 1;
    }
    return a->rank->rank < b->rank->rank ? -1 : a->rank->rank > b->rank->rank;
}

/* By order, number and rank, and from the newest: so repeats stand one after another. */
static int newest_compare(const void *one, const void *other)
{
    const struct place *a = one;
    const struct place *b = other;
    int order = strcmp(a->order, b->order);

    if (order != 0) {
        return order;
    }
    if (a->op->sequence != b->op->sequence) {
        return a->op->sequence < b->op->sequence ? -1 : 1;
    }
    if (a->rank != b->rank) {
        return a->rank->rank < b->rank->rank ? -1 : 1;
    }
    return a->op->number > b->op->number ? -1 : a->op->number < b->op->number;
}

static struct place *places_make(const struct run *run, size_t *ret_n)
{
    struct place *places;
    size_t n = 0;

    for (size_t i = 0; i < run->n_ranks; i++) {
        n += run->ranks[i].n_ops;
    }
    places = calloc(n == 0 ? 1 : n, sizeof(*places));
    *ret_n = 0;
    for (size_t i = 0; places != NULL && i < run->n_ranks; i++) {
        for (size_t k = 0; k < run->ranks[i].n_ops; k++) {
            const struct op *op = &run->ranks[i].ops[k];

            if (op_is_ordered(op)) {
                struct place *place = &places[(*ret_n)++];

                place->rank = &run->ranks[i];
                place->op = op;
                op_order_name(op, place->order, sizeof(place->order));
            }
        }
    }
    return places;
}

static void repeats_count(struct place *places, size_t n)
{
    qsort(places, n, sizeof(*places), newest_compare);
    for (size_t i = 1; i < n; i++) {
        if (places[i].rank == places[i - 1].rank &&
            places[i].op->sequence == places[i - 1].op->sequence &&
            strcmp(places[i].order, places[i - 1].order) == 0) {
            places[i].repeat = places[i - 1].repeat + 1;
        }
    }
    qsort(places, n, sizeof(*places), place_compare);
}

static bool is_same_place(const struct place *one, const struct place *other)
{
    return one->op->sequence == other->op->sequence && one->repeat == other->repeat &&
           strcmp(one->order, other->order) == 0;
}

/* Groups of one name have different members on other parts of the mesh. */
static bool are_in_one_group(const struct place *one, const struct place *other)
{
    const json_t *groups = one->rank->groups;

    if (one->op->group[0] == '\0') {
        return true;
    }
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *group = json_array_get(groups, g);
        const json_t *members = json_object_get(group, "ranks");
        const char *name = member_text(group, "name");

        name = name[0] == '\0' ? member_text(group, "group") : name;
        if (strcmp(name, one->op->group) != 0) {
            continue;
        }
        for (size_t i = 0; i < json_array_size(members); i++) {
            if (json_integer_value(json_array_get(members, i)) == (json_int_t)other->rank->rank) {
                return true;
            }
        }
        return false;
    }
    return false; /* nobody says so */
}

static json_t *difference_describe(const struct place *one, const struct place *other)
{
    char names[2][256];

    op_name(one->op, names[0], sizeof(names[0]));
    op_name(other->op, names[1], sizeof(names[1]));
    return json_pack("{s:s, s:I, s:[{s:i, s:s}, {s:i, s:s}]}", "order", one->order, "sequence",
                     (json_int_t)one->op->sequence, "ranks", "rank", (int)one->rank->rank,
                     "operation", names[0], "rank", (int)other->rank->rank, "operation", names[1]);
}

/* The first in each order; what follows it is of no interest. */
json_t *differences_make(const struct run *run)
{
    json_t *differences = json_array();
    const char *told = "";
    struct place *places;
    size_t first = 0;
    size_t n;

    places = places_make(run, &n);
    if (places == NULL) {
        return differences;
    }
    repeats_count(places, n);
    for (size_t i = 1; i < n; i++) {
        if (!is_same_place(&places[first], &places[i])) {
            first = i;
            continue;
        }
        for (size_t k = first; k < i && strcmp(told, places[i].order) != 0; k++) {
            if (!is_alike(places[k].op, places[i].op) && are_in_one_group(&places[k], &places[i])) {
                json_array_append_new(differences, difference_describe(&places[k], &places[i]));
                told = places[i].order;
            }
        }
    }
    free(places);
    return differences;
}
