/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the chapter "steps", by file. */
#ifndef CONFORM_STEPS_H
#define CONFORM_STEPS_H

#include "conform.h"

/* step_norm.c */
void step_norm_of_replicas(struct conform *conform);
void step_norm_of_classes(struct conform *conform);
void step_norm_is_exact(struct conform *conform);
void step_norm_of_small(struct conform *conform);
void step_norm_of_any_strategy(struct conform *conform);
void step_norm_p(struct conform *conform);
void step_clip(struct conform *conform);
void step_scale(struct conform *conform);
void step_weight(struct conform *conform);
void step_weight_of_zero(struct conform *conform);
void step_factor_view(struct conform *conform);
void step_not_finite(struct conform *conform);
void step_refuses_not_finite(struct conform *conform);

/* step_order.c */
void step_moves_values(struct conform *conform);
void step_publishes_to_all(struct conform *conform);
void step_publishes_to_the_late(struct conform *conform);
void step_discard(struct conform *conform);
void step_discard_of_written(struct conform *conform);
void step_drops_gradients(struct conform *conform);
void step_counts(struct conform *conform);
void step_unclosed_window(struct conform *conform);
void step_open_pass(struct conform *conform);
void step_unsharded_unit(struct conform *conform);
void step_wrong_weights(struct conform *conform);
void step_other_numbers(struct conform *conform);
void step_too_far_ahead(struct conform *conform);

/* step_adamw.c */
void step_adamw(struct conform *conform);
void step_adamw_groups(struct conform *conform);
void step_adamw_states(struct conform *conform);
void step_adamw_resumed(struct conform *conform);
void step_adamw_clipped(struct conform *conform);
void step_adamw_refusals(struct conform *conform);
void step_adamw_other_numbers(struct conform *conform);

#endif /* CONFORM_STEPS_H */
