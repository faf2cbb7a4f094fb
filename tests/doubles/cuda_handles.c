/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA double's handles: numbers that name an object for as long as it lives. */
#include <stdlib.h>

#include "doubles/cuda_double.h"

struct entry {
    void *object; /* NULL = free */
    uint32_t generation;
    uint32_t kind;
};

static struct entry *entries;
static uint32_t n_entries;

/* Bits 0 to 7 are the kind, 8 to 31 the entry, the rest its generation; so none is 0, 1 or 2. */
enum { KIND_BITS = 8, INDEX_BITS = 24, KIND_MARK = 0x50 };

static void *handle_number(uint32_t index)
{
    uint64_t number = entries[index].generation;

    number = number << INDEX_BITS | index;
    return (void *)(uintptr_t)(number << KIND_BITS | KIND_MARK | entries[index].kind);
}

static uint32_t entry_free(void)
{
    uint32_t index = 0;

    while (index < n_entries && entries[index].object != NULL) {
        index++;
    }
    if (index == n_entries) {
        uint32_t n_more = n_entries + 64;
        struct entry *grown = realloc(entries, n_more * sizeof(*grown));

        if (grown == NULL) {
            driver_die("no memory for handles");
        }
        for (uint32_t new = n_entries; new < n_more; new ++) {
            grown[new] = (struct entry){NULL, 0, 0};
        }
        entries = grown;
        n_entries = n_more;
    }
    return index;
}

void *handle_create(enum handle_kind kind, void *object)
{
    uint32_t index = entry_free();

    entries[index] = (struct entry){object, entries[index].generation + 1, kind};
    return handle_number(index);
}

static struct entry *entry_find(const void *handle)
{
    uintptr_t number = (uintptr_t)handle;
    uint32_t index = (uint32_t)(number >> KIND_BITS) & ((1u << INDEX_BITS) - 1);

    if (index >= n_entries || entries[index].object == NULL || handle_number(index) != handle) {
        return NULL;
    }
    return &entries[index];
}

void *handle_find(enum handle_kind kind, const void *handle)
{
    struct entry *entry = entry_find(handle);

    return entry != NULL && entry->kind == kind ? entry->object : NULL;
}

void handle_destroy(const void *handle)
{
    struct entry *entry = entry_find(handle);

    if (entry != NULL) {
        entry->object = NULL;
    }
}
