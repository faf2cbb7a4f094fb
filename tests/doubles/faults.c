/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the doubles: which the environment switches on, for which rank, with which number. */
#include <stdlib.h>
#include <string.h>

#include "doubles/double.h"

static bool rank_is(const char *text, size_t n_chars)
{
    const char *rank = getenv("HSDP_DOUBLE_RANK");

    if (rank == NULL) {
        rank = getenv("RANK");
    }
    return rank != NULL && strlen(rank) == n_chars && strncmp(rank, text, n_chars) == 0;
}

/* One of the list, n_chars long: NAME, NAME=NUMBER, NAME@RANK, NAME@RANK=NUMBER. */
static bool entry_is(const char *entry, size_t n_chars, const char *name, int64_t *ret_number)
{
    size_t n_name = strlen(name);
    const char *end = entry + n_chars;
    const char *equals = memchr(entry, '=', n_chars);
    const char *key_end = equals != NULL ? equals : end;
    const char *at = memchr(entry, '@', (size_t)(key_end - entry));
    const char *name_end = at != NULL ? at : key_end;

    if ((size_t)(name_end - entry) != n_name || strncmp(entry, name, n_name) != 0 ||
        (at != NULL && !rank_is(at + 1, (size_t)(key_end - at - 1)))) {
        return false;
    }
    *ret_number = equals != NULL ? strtoll(equals + 1, NULL, 10) : 1;
    return true;
}

bool double_fault(const char *name, int64_t *ret_number)
{
    const char *entry = getenv("HSDP_DOUBLE_FAULTS");
    int64_t number;

    while (entry != NULL && *entry != '\0') {
        size_t n_chars = strcspn(entry, ",");

        if (entry_is(entry, n_chars, name, ret_number != NULL ? ret_number : &number)) {
            return true;
        }
        entry += n_chars + (entry[n_chars] == ',');
    }
    return false;
}
