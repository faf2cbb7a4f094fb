/* SPDX-License-Identifier: Apache-2.0 */
/* Names: numbered in the order in which they come, and a hash table from name to number. */
#include "plan/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define FIRST_CAPACITY 64u
#define MAX_CAPACITY   (UINT64_C(1) << 32) /* of 2^31 names */
#define HASH_FACTOR    UINT64_C(0x9e3779b97f4a7c15)

/* Open addressing, at most half full. Small, since a large plan is in no cache. */
struct entry {
    uint32_t hash;
    uint32_t number; /* of the name, plus one; 0 = free */
};

struct names {
    const char **list; /* by number; as many as fit */
    struct entry *entries;
    uint64_t capacity; /* of entries; a power of two */
    uint32_t n_names;
};

/* Eight bytes at a time: names are long and alike, "model.layers.17.mlp.up.weight". */
static uint32_t name_hash(const char *name)
{
    size_t n_left = strlen(name);
    uint64_t hash = n_left;

    while (n_left > 0) {
        const size_t n_bytes = n_left < sizeof(uint64_t) ? n_left : sizeof(uint64_t);
        uint64_t word = 0;

        memcpy(&word, name, n_bytes);
        hash = (hash ^ word) * HASH_FACTOR;
        hash ^= hash >> 32;
        name += n_bytes;
        n_left -= n_bytes;
    }
    return (uint32_t)(hash * HASH_FACTOR >> 32);
}

/* The entry of a name, or the free one where it belongs. */
static struct entry *entry_find(const struct names *names, const char *name, uint32_t hash)
{
    uint64_t at = hash & (names->capacity - 1);

    while (names->entries[at].number != 0) {
        if (names->entries[at].hash == hash &&
            strcmp(names->list[names->entries[at].number - 1], name) == 0) {
            break;
        }
        at = (at + 1) & (names->capacity - 1);
    }
    return &names->entries[at];
}

static int32_t memory_refuse(struct hsdp_error *reterr)
{
    return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a table of names");
}

int32_t names_create(struct names **ret_names, struct hsdp_error *reterr)
{
    struct names *names = calloc(1, sizeof(*names));

    if (names != NULL) {
        names->entries = calloc(FIRST_CAPACITY, sizeof(*names->entries));
        names->list = malloc(FIRST_CAPACITY / 2 * sizeof(*names->list));
        names->capacity = FIRST_CAPACITY;
    }
    if (names == NULL || names->entries == NULL || names->list == NULL) {
        names_destroy(names);
        return memory_refuse(reterr);
    }
    *ret_names = names;
    return HSDP_OK;
}

void names_destroy(struct names *names)
{
    if (names != NULL) {
        free(names->entries);
        free(names->list);
        free(names);
    }
}

/* All entries once more, where they belong in a table twice as large. */
static void entries_move(const struct names *names, struct entry *grown)
{
    for (uint64_t i = 0; i < names->capacity; i++) {
        const struct entry entry = names->entries[i];
        uint64_t at = entry.hash & (2 * names->capacity - 1);

        if (entry.number == 0) {
            continue;
        }
        while (grown[at].number != 0) { /* no two names are equal */
            at = (at + 1) & (2 * names->capacity - 1);
        }
        grown[at] = entry;
    }
}

int32_t names_reserve(struct names *names, struct hsdp_error *reterr)
{
    struct entry *grown;
    const char **list;

    if ((names->n_names + UINT64_C(1)) * 2 <= names->capacity) {
        return HSDP_OK;
    }
    if (names->capacity == MAX_CAPACITY) {
        return memory_refuse(reterr);
    }
    list = realloc(names->list, names->capacity * sizeof(*names->list));
    if (list == NULL) {
        return memory_refuse(reterr);
    }
    names->list = list;
    grown = calloc(2 * names->capacity, sizeof(*grown));
    if (grown == NULL) {
        return memory_refuse(reterr);
    }
    entries_move(names, grown);
    free(names->entries);
    names->entries = grown;
    names->capacity *= 2;
    return HSDP_OK;
}

void names_add(struct names *names, const char *name)
{
    const uint32_t hash = name_hash(name);
    struct entry *entry = entry_find(names, name, hash);

    assert(entry->number == 0 && names->n_names * UINT64_C(2) < names->capacity);
    names->list[names->n_names++] = name;
    *entry = (struct entry){hash, names->n_names};
}

bool names_find(const struct names *names, const char *name, uint32_t *ret_number)
{
    const struct entry *entry = entry_find(names, name, name_hash(name));

    if (entry->number == 0) {
        return false;
    }
    *ret_number = entry->number - 1;
    return true;
}
