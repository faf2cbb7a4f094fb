/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: what the stages of a pipeline hold in common. */
#include <stdio.h>

#include "random_case.h"

uint32_t random_stage(const struct random_case *random, uint32_t rank)
{
    return rank / random->stage_stride % random->n_stages;
}

uint32_t random_first_holder(const struct random_case *random, uint32_t param, uint32_t rank)
{
    uint32_t stage = random_stage(random, rank);
    uint32_t first = 0;

    if (!random->is_tied[param] || (random->holders >> stage & 1u) == 0) {
        return rank;
    }
    while ((random->holders >> first & 1u) == 0) {
        first++;
    }
    return rank - (stage - first) * random->stage_stride;
}

/* "~pp[0,2]" */
static void holders_write(const struct random_case *random, char *ret_text, size_t max_bytes)
{
    size_t n_bytes = 0;

    for (uint32_t stage = 0; stage < random->n_stages; stage++) {
        if ((random->holders >> stage & 1u) != 0) {
            n_bytes += (size_t)snprintf(ret_text + n_bytes, max_bytes - n_bytes, "%s%u",
                                        n_bytes == 0 ? "~pp[" : ",", stage);
        }
    }
    snprintf(ret_text + n_bytes, max_bytes - n_bytes, "]");
}

void random_case_units(const struct random_case *random, int run, uint32_t rank,
                       char ret_text[RANDOM_TEXT_BYTES])
{
    uint32_t stage = random_stage(random, rank);
    bool is_holder = (random->holders >> stage & 1u) != 0;
    size_t n_bytes = 0;
    char holders[32];

    holders_write(random, holders, sizeof(holders));
    for (const char *c = random->units[run]; *c != '\0'; c++) {
        char one[2] = {*c, '\0'};
        const char *more = *c == '*'   ? (is_holder ? holders : "")
                           : *c == '^' ? (stage % 2 == 1 ? "/50" : "")
                                       : one;

        host_expect(n_bytes + strlen(more) < RANDOM_TEXT_BYTES);
        n_bytes += (size_t)snprintf(ret_text + n_bytes, RANDOM_TEXT_BYTES - n_bytes, "%s", more);
    }
}
