/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: numbers of a step that are equal on ranks, or the job fails. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/shm_store.h"

int32_t shm_numbers_compare(uint32_t rank, const struct step_words *theirs,
                            const struct step_words *root, struct hsdp_error *reterr)
{
    static const char *const names[STEP_N_NUMBERS] = {
        "max_norm",           "norm_p",
        "gradient_scale",     "has_weight",
        "error_if_nonfinite", "the number of steps discarded before"};

    for (int i = 0; i < STEP_N_NUMBERS; i++) {
        if (theirs->numbers[i] != root->numbers[i]) {
            error_set(reterr, HSDP_ERR_MISMATCH,
                      "step.begin: step %" PRIu64 ": %s is %.17g on rank 0, %.17g on rank %" PRIu32,
                      root->step, names[i], root->numbers[i], theirs->numbers[i], rank);
            error_where(reterr, "step.begin", NULL, NULL);
            return HSDP_ERR_MISMATCH;
        }
    }
    return HSDP_OK;
}

/* "beta1", "learning_rate of hyper group 2" */
static void optimizer_name(uint32_t number, char *ret_text, size_t max_bytes)
{
    static const char *const names[OPTIMIZER_LEARNING_RATES] = {
        "the number of its calls", "step", "beta1", "beta2", "epsilon", "n_hyper_groups"};

    if (number < OPTIMIZER_LEARNING_RATES) {
        snprintf(ret_text, max_bytes, "%s", names[number]);
    } else if (number < OPTIMIZER_WEIGHT_DECAYS) {
        snprintf(ret_text, max_bytes, "learning_rate of hyper group %" PRIu32,
                 number - OPTIMIZER_LEARNING_RATES);
    } else {
        snprintf(ret_text, max_bytes, "weight_decay of hyper group %" PRIu32,
                 number - OPTIMIZER_WEIGHT_DECAYS);
    }
}

/* Two ranks that share units, the lower one first. */
static int32_t optimizers_compare(const struct step_words *words[2], const uint32_t ranks[2],
                                  struct hsdp_error *reterr)
{
    const struct optimizer_words *a = &words[0]->optimizer;
    const struct optimizer_words *b = &words[1]->optimizer;
    char name[64];

    for (uint32_t i = 0; i < OPTIMIZER_N_NUMBERS; i++) {
        if (a->numbers[i] == b->numbers[i]) {
            continue;
        }
        optimizer_name(i, name, sizeof(name));
        error_set(reterr, HSDP_ERR_MISMATCH,
                  "adamw.step: last before step %" PRIu64 ": %s is %.17g on rank %" PRIu32
                  ", %.17g on rank %" PRIu32,
                  words[0]->step, name, a->numbers[i], ranks[0], b->numbers[i], ranks[1]);
        error_where(reterr, "adamw.step", NULL, NULL);
        return HSDP_ERR_MISMATCH;
    }
    if (a->hash == b->hash) {
        return HSDP_OK;
    }
    error_set(reterr, HSDP_ERR_MISMATCH,
              "adamw.step: last before step %" PRIu64 ": learning_rate or weight_decay of a hyper "
              "group from %u on differ between rank %" PRIu32 " and rank %" PRIu32,
              words[0]->step, STEP_MAX_HYPER_GROUPS, ranks[0], ranks[1]);
    error_where(reterr, "adamw.step", NULL, NULL);
    return HSDP_ERR_MISMATCH;
}

int32_t shm_optimizers_compare(const struct store *store, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t dims = plan_shared_dims(store->plan);
    uint32_t first = mesh_peer(mesh, dims, store->rank, 0);
    const struct step_words *words[2] = {&shm_header(store, first)->words[store->step % 2], NULL};
    int32_t status = HSDP_OK;

    for (uint32_t i = 1; i < mesh_span(mesh, dims) && status == HSDP_OK; i++) {
        uint32_t ranks[2] = {first, mesh_peer(mesh, dims, store->rank, i)};

        words[1] = &shm_header(store, ranks[1])->words[store->step % 2];
        status = optimizers_compare(words, ranks, reterr);
    }
    return status;
}
