/* SPDX-License-Identifier: Apache-2.0 */
/* The setting `verify` at model.create. */
#include "shard/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* What ranks compare. */
struct choice {
    uint32_t is_wrap;
    uint32_t n_steps;
};

static void choice_write(const struct choice *choice, char *ret_text, size_t max_bytes)
{
    snprintf(ret_text, max_bytes, "%s", choice->is_wrap != 0 ? "wrap" : "off");
    if (choice->n_steps != 0) {
        snprintf(ret_text, max_bytes, "%sstep:%" PRIu32, choice->is_wrap != 0 ? "wrap," : "",
                 choice->n_steps);
    }
}

/* Every rank sees the same choices, so all find the same two. */
static int32_t choices_compare(struct hsdp_job *job, const struct choice *all,
                               struct hsdp_error *reterr)
{
    for (uint32_t rank = 1; rank < job_world_ranks(job); rank++) {
        struct hsdp_error err;
        char theirs[32];
        char first[32];

        if (memcmp(&all[rank], &all[0], sizeof(all[0])) == 0) {
            continue;
        }
        choice_write(&all[0], first, sizeof(first));
        choice_write(&all[rank], theirs, sizeof(theirs));
        error_set(&err, HSDP_ERR_MISMATCH,
                  "model.create: verify differs: rank 0 has \"%s\", rank %" PRIu32 " has \"%s\"",
                  first, rank, theirs);
        error_where(&err, "model.create", NULL, NULL);
        if (reterr != NULL) {
            *reterr = err;
        }
        return job_fail(job, &err);
    }
    return HSDP_OK;
}

int32_t verify_agree(struct hsdp_job *job, const struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    struct choice mine = {.is_wrap = plan->verify.is_wrap, .n_steps = plan->verify.n_steps};
    struct choice *all = calloc(job_world_ranks(job), sizeof(*all));
    int32_t status;

    if (all == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare settings");
    }
    status = job_exchange(job, "model.create", &mine, sizeof(mine), all, reterr);
    if (status == HSDP_OK) {
        status = choices_compare(job, all, reterr);
    }
    free(all);
    return status;
}
