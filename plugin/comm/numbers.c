/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a step: what all ranks bring is compared, and merged into the same on every rank. */
#include "comm/numbers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Of a rank, and of rank 0. */
static int32_t numbers_compare(uint32_t rank, const struct step_words *theirs,
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

/* Of all ranks that share units with this one. */
static int32_t sharers_compare(const struct numbers_source *source, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = source->plan->mesh;
    uint32_t dims = plan_shared_dims(source->plan);
    uint32_t first = mesh_peer(mesh, dims, mesh->rank, 0);
    const struct step_words *words[2] = {source->words(source->user, first), NULL};
    int32_t status = HSDP_OK;

    for (uint32_t i = 1; i < mesh_span(mesh, dims) && status == HSDP_OK; i++) {
        uint32_t ranks[2] = {first, mesh_peer(mesh, dims, mesh->rank, i)};

        words[1] = source->words(source->user, ranks[1]);
        status = optimizers_compare(words, ranks, reterr);
    }
    return status;
}

/* The weight is summed over this rank's data peers, in order, so that every rank gets the same. */
static double weight_sum(const struct numbers_source *source)
{
    const struct hsdp_mesh *mesh = source->plan->mesh;
    double weight = 0.0;

    for (uint32_t i = 0; i < mesh->n_data_ranks; i++) {
        uint32_t rank = mesh_peer(mesh, mesh->data_dims, mesh->rank, i);

        weight += source->words(source->user, rank)->weight;
    }
    return weight;
}

int32_t numbers_merge(const struct numbers_source *source, struct step_words *ret_all,
                      struct hsdp_error *reterr)
{
    const struct step_words *root = source->words(source->user, 0);
    struct step_words all;
    int32_t status;

    memset(&all, 0, sizeof(all));
    memcpy(all.numbers, root->numbers, sizeof(all.numbers));
    for (uint32_t rank = 0; rank < source->plan->mesh->world_ranks; rank++) {
        const struct step_words *words = source->words(source->user, rank);

        status = numbers_compare(rank, words, root, reterr);
        if (status != HSDP_OK) {
            return status;
        }
        norm_sum_merge(&all.sum, &words->sum);
        all.max_bits = words->max_bits > all.max_bits ? words->max_bits : all.max_bits;
        all.checksum += words->checksum;
    }
    all.weight = weight_sum(source);
    *ret_all = all;
    return sharers_compare(source, reterr);
}
