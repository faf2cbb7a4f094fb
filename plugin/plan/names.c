/* SPDX-License-Identifier: Apache-2.0 */
/* Names: a hash table with open addressing, at most half full. */
#include "plan/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define FIRST_CAPACITY 64u

struct entry {
    const char *name; /* NULL = free */
    uint64_t hash;
    uint32_t index;
};

struct names {
    struct entry *entries;
    uint64_t capacity; /* a power of two */
    uint64_t n_entries;
};

/* The entry of a name, or the free one where it belongs. */
static struct entry *entry_find(const struct names *names, const char *name, uint64_t hash)
{
    uint64_t at = hash & (names->capacity - 1);

    while (names->entries[at].name != NULL) {
        if (names->entries[at].hash == hash && strcmp(names->entries[at].name, name) == 0) {
            break;
        }
        at = (at + 1) & (names->capacity - 1);
    }
    return &names->entries[at];
}

int32_t names_create(struct names **ret_names, struct hsdp_error *reterr)
{
    struct names *names = calloc(1, sizeof(*names));

    if (names != NULL) {
        names->entries = calloc(FIRST_CAPACITY, sizeof(*names->entries));
        names->capacity = FIRST_CAPACITY;
    }
    if (names == NULL || names->entries == NULL) {
        names_destroy(names);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a table of names");
    }
    *ret_names = names;
    return HSDP_OK;
}

void names_destroy(struct names *names)
{
    if (names != NULL) {
        free(names->entries);
        free(names);
    }
}

int32_t names_reserve(struct names *names, struct hsdp_error *reterr)
{
    struct names grown = {NULL, names->capacity * 2, names->n_entries};

    if ((names->n_entries + 1) * 2 <= names->capacity) {
        return HSDP_OK;
    }
    grown.entries = calloc(grown.capacity, sizeof(*grown.entries));
    if (grown.entries == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a table of names");
    }
    for (uint64_t i = 0; i < names->capacity; i++) {
        const struct entry *entry = &names->entries[i];

        if (entry->name != NULL) {
            *entry_find(&grown, entry->name, entry->hash) = *entry;
        }
    }
    free(names->entries);
    *names = grown;
    return HSDP_OK;
}

void names_add(struct names *names, const char *name, uint32_t index)
{
    uint64_t hash = text_hash(TEXT_HASH_BASIS, name);
    struct entry *entry = entry_find(names, name, hash);

    assert(entry->name == NULL && names->n_entries * 2 < names->capacity);
    *entry = (struct entry){name, hash, index};
    names->n_entries++;
}

bool names_find(const struct names *names, const char *name, uint32_t *ret_index)
{
    const struct entry *entry = entry_find(names, name, text_hash(TEXT_HASH_BASIS, name));

    if (entry->name == NULL) {
        return false;
    }
    *ret_index = entry->index;
    return true;
}
