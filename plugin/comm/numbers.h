/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a step: what all ranks bring is compared, and merged into the same on every rank. */
#ifndef COMM_NUMBERS_H
#define COMM_NUMBERS_H

#include "comm/transport.h"

/* Where a transport has what each rank has brought. */
struct numbers_source {
    const struct hsdp_plan *plan;
    const struct step_words *(*words)(void *user, uint32_t rank);
    void *user;
};

/**
 * Sums and maxima over all ranks; the weight over this rank's data peers, in order of rank.
 *
 * Errors: HSDP_ERR_MISMATCH where numbers differ from those of rank 0, or what the optimizer was
 * told from a rank with the same units.
 */
int32_t numbers_merge(const struct numbers_source *source, struct step_words *ret_all,
                      struct hsdp_error *reterr);

#endif /* COMM_NUMBERS_H */
