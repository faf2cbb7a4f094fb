/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: the norm, clipping, publishing, what a step waits for, and the AdamW extension. */
#include "steps.h"

#define NORM   "step.h: the norm"
#define FACTOR "step.h: factor = gradient_scale / weight * clip"
#define BEGIN  "step.h: begin"
#define ADAMW  "adamw.h: step"

static const struct conform_check checks[] = {
    {"replicas count once in the norm", NORM, step_norm_of_replicas, 4, 0, 0},
    {"experts, parts and norms of layers count once each", NORM, step_norm_of_classes, 4, 0, 0},
    {"the norm is that of the gradients", NORM, step_norm_is_exact, 4, 0, 0},
    {"small gradients count beside a large one", NORM, step_norm_of_small, 4, 0, 0},
    {"the norm does not depend on strategy", NORM, step_norm_of_any_strategy, 4, 0, 0},
    {"norm_p of 1, 2, 2.5, 8 and HUGE_VAL", NORM, step_norm_p, 2, 0, 0},
    {"clip is max_norm by the norm, and at most 1", FACTOR, step_clip, 2, 0, 0},
    {"gradient_scale counts in norm and factor", FACTOR, step_scale, 2, 0, 0},
    {"weights are summed over data ranks, and count once", FACTOR, step_weight, 4, 0, 0},
    {"a sum of weights of 0 makes the norm NaN", FACTOR, step_weight_of_zero, 2, 0, 0},
    {"factor_view has norm and factor", "step.h: factor_view", step_factor_view, 2, 0, 0},
    {"a gradient that is not finite is flagged on all ranks", NORM, step_not_finite, 2, 0, 0},
    {"error_if_nonfinite refuses the step on all ranks", "step.h: error_if_nonfinite",
     step_refuses_not_finite, 4, 0, 0},
    {"what is written is what is unsharded", "step.h: end", step_moves_values, 2, 0, 0},
    {"a step reaches each rank's next unshard", "step.h: end", step_publishes_to_all, 4, 0, 0},
    {"a step reaches ranks that are late, or wait", "step.h: end", step_publishes_to_the_late, 4, 0,
     0},
    {"discard leaves values as they were", "step.h: discard", step_discard, 2, 0, 0},
    {"discard publishes nothing that was written", "step.h: discard", step_discard_of_written, 2, 0,
     0},
    {"end and discard drop gradients", "step.h: end, discard", step_drops_gradients, 2, 0, 0},
    {"steps are numbered from 1", "step.h: hsdp_step_info; model.h: info", step_counts, 2, 0, 0},
    {"a window without a pass of scope full is named", BEGIN, step_unclosed_window, 2, 0, 0},
    {"a unit in an open pass is named", BEGIN, step_open_pass, 2, 0, 0},
    {"a unit that is unsharded is named", BEGIN, step_unsharded_unit, 2, 0, 0},
    {"weights that cannot be are refused", "step.h: begin: HSDP_ERR_INVALID", step_wrong_weights, 2,
     0, 0},
    {"ranks that begin with other numbers mismatch", "step.h: result: HSDP_ERR_MISMATCH",
     step_other_numbers, 2, 0, 0},
    {"a unit that is slots ahead is refused", "unit.h: unshard: HSDP_ERR_STATE", step_too_far_ahead,
     2, 0, 0},
    {"adamw moves parameters by the formula", ADAMW, step_adamw, 2, 0, 0},
    {"adamw has rates and decays of each hyper group", ADAMW, step_adamw_groups, 2, 0, 0},
    {"adamw keeps its states in the model", ADAMW, step_adamw_states, 2, 0, 0},
    {"adamw goes on from a step that is said", ADAMW, step_adamw_resumed, 2, 0, 0},
    {"adamw multiplies gradients by the factor", ADAMW, step_adamw_clipped, 2, 0, 0},
    {"adamw refuses missing groups, and what is not finite", ADAMW, step_adamw_refusals, 2, 0, 0},
    {"adamw with other numbers on a rank mismatches", ADAMW, step_adamw_other_numbers, 2, 0, 0},
};

const struct conform_chapter conform_steps = {"steps", "norm, clipping, publishing, adamw", checks,
                                              sizeof(checks) / sizeof(checks[0])};
