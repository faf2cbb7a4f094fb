/* SPDX-License-Identifier: Apache-2.0 */
/* The setting `verify` at model.create. */
#include "shard/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/space.h"
#include "shard/proof.h"

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

/* ------------------------------------------------------------------------------------- wrap */

/* A counter of the job, and what it has counted before. */
struct count {
    _Atomic uint64_t *counter;
    uint64_t value;
};

/* Those that tell a host what its own calls have done; waits were really waited. */
static bool is_of_calls(const char *name)
{
    return strcmp(name, "steps") == 0 || strcmp(name, "unshards") == 0 ||
           strcmp(name, "reductions") == 0 || strncmp(name, "traffic.", 8) == 0 ||
           strncmp(name, "operations.", 11) == 0;
}

/* Freed by counts_restore; NULL without memory. */
static struct count *counts_keep(struct hsdp_job *job, uint64_t *ret_n_counts)
{
    struct count *counts;
    const char *name;
    uint64_t n_names = 0;
    uint64_t n = 0;

    while (job_counter_name(job, n_names, &name, NULL) == HSDP_OK) {
        n_names++;
    }
    counts = calloc(n_names + 1, sizeof(*counts));
    for (uint64_t i = 0; counts != NULL && i < n_names; i++) {
        job_counter_name(job, i, &name, NULL);
        if (is_of_calls(name)) {
            counts[n].counter = job_counter_register(job, name);
            counts[n].value = atomic_load(counts[n].counter);
            n++;
        }
    }
    *ret_n_counts = n;
    return counts;
}

static void counts_restore(struct count *counts, uint64_t n_counts)
{
    for (uint64_t i = 0; counts != NULL && i < n_counts; i++) {
        atomic_store(counts[i].counter, counts[i].value);
    }
    free(counts);
}

/* As a model is that has not done anything. */
static int32_t model_restore(struct hsdp_model *model, struct hsdp_error *reterr)
{
    float *factor = model->ops->factor(model->store);

    memset(&model->step, 0, sizeof(model->step));
    memset(model->factor, 0, sizeof(model->factor));
    model->n_steps = 0;
    model->n_discarded = 0;
    model->n_passes = 0;
    model->ops->renumber(model->store);
    return factor == NULL
               ? HSDP_OK
               : model->space->ops->zero(model->space, factor, sizeof(model->factor), reterr);
}

static int32_t proof_run(struct proof *proof, struct hsdp_error *reterr)
{
    int32_t status = proof_grads(proof, PROOF_EVERY_RANK, reterr);

    if (status == HSDP_OK) {
        status = proof_grads(proof, PROOF_ONE_RANK, reterr);
    }
    if (status == HSDP_OK) {
        status = proof_params(proof, reterr);
    }
    return status;
}

int32_t verify_wrap(struct hsdp_model *model, struct hsdp_error *reterr)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct count *counts;
    struct proof proof;
    uint64_t n_counts;
    int32_t status;

    status = proof_init(&proof, model, &err);
    if (proof.gathered == NULL) { /* not even enough to tell the others */
        proof_fini(&proof);
        return error_set(reterr, status, "%s", err.message);
    }
    counts = counts_keep(model->job, &n_counts);
    if (status == HSDP_OK && counts == NULL) {
        status = error_set(&err, HSDP_ERR_NO_MEMORY, "model.create: no memory for verify=wrap");
    }
    proof.fault.status = status; /* nobody begins unless all can */
    snprintf(proof.fault.text, sizeof(proof.fault.text), "%.400s", err.message);
    status = proof_agree(&proof, reterr);
    if (status == HSDP_OK) {
        status = proof_run(&proof, reterr);
    }
    if (status == HSDP_OK) {
        status = model_restore(model, reterr);
        job_log(model->job, HSDP_LOG_INFO,
                "verify=wrap: gradients, norm and parameters of %" PRIu32 " units in %" PRIu32
                " classes are right",
                model->plan->n_units, model->plan->n_classes);
    }
    counts_restore(counts, n_counts);
    proof_fini(&proof);
    return status;
}
