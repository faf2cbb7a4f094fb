/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the chapter "loading", by file; and what they share. */
#ifndef CONFORM_LOADING_H
#define CONFORM_LOADING_H

#include "conform.h"
#include "numbers.h"

void load_edit_begin(struct host *host);
void load_edit_end(struct host *host);
int32_t load_import(struct host *host, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t source_rank);
int32_t load_export(struct host *host, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t target_rank);

/** A parameter, unsharded and exported, has these values. */
void load_expect(struct host *host, uint32_t param, host_value value);

/* load_params.c */
void load_begins_with_zeros(struct conform *conform);
void load_then_save(struct conform *conform);
void load_from_one_rank(struct conform *conform);
void load_to_one_rank(struct conform *conform);
void load_dtypes(struct conform *conform);
void load_rounds_to_nearest(struct conform *conform);
void load_tensors_with_offsets(struct conform *conform);
void load_own_slices(struct conform *conform);
void load_names(struct conform *conform);
void load_frozen(struct conform *conform);
void load_experts(struct conform *conform);
void load_large(struct conform *conform);
void load_again_while_training(struct conform *conform);
void load_of_a_stranger(struct conform *conform);
void load_other_params(struct conform *conform);

/* load_states.c */
void load_state(struct conform *conform);
void load_state_dtypes(struct conform *conform);
void load_state_names(struct conform *conform);
void load_state_through_steps(struct conform *conform);
void load_sync(struct conform *conform);
void load_sync_of_import(struct conform *conform);
void load_sync_of_states(struct conform *conform);
void load_sync_of_stages(struct conform *conform);
void load_plans_that_differ(struct conform *conform);
void load_model_of_other_world(struct conform *conform);

#endif /* CONFORM_LOADING_H */
