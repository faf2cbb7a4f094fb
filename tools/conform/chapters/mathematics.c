/* SPDX-License-Identifier: Apache-2.0 */
/* Mathematics: what the strategies compute, which is what one process would. */
#include "mathematics.h"

#define SUMS    "plan.h: reduced_over, gradient_op, gradient_divisor"
#define SCOPES  "unit.h: a window"
#define ABSENT  "unit.h: a unit that a rank never hands over counts as zeros"
#define DTYPES  "plan.h: param_dtype, master_dtype, reduce_dtype, gradient_dtype"
#define TIES    "plan.h: tied_to, tied_over"
#define LAYOUT  "plan.h: buffers, segments"
#define RANDOM  "plan.h: sharding_strategy; unit.h: scope; step.h: factor"
#define LONG_MS 60000u

static const struct conform_check checks[] = {
    {"the mean of gradients is applied once", SUMS, math_mean, 2, 0, 0},
    {"the mean is over all data dimensions", SUMS, math_mean_of_dims, 4, 0, 0},
    {"gradient_op=sum divides by nothing", SUMS, math_sum, 4, 0, 0},
    {"gradient_divisor is what the sum is divided by", SUMS, math_divisor, 4, 0, 0},
    {"gradients of experts are divided by all data ranks", SUMS, math_experts, 4, 0, 0},
    {"gradients are summed over reduced_over only", SUMS, math_reduced_over_a_part, 4, 0, 0},
    {"partial gradients beyond the data are summed", SUMS, math_reduced_beyond_data, 4, 0, 0},
    {"one rank alone gets every bit back", SUMS, math_one_rank, 1, 0, 0},
    {"gradients are summed over copies of a shard", "plan.h: sharding_strategy", math_outer, 2, 0,
     0},
    {"each element is reduced with itself", "plan.h: sharding_strategy", math_places, 4, 0, 0},
    {"segments say what lies in the flat views", "plan.h: segments", math_segments, 4, 0, 0},
    {"a unit that a rank skips counts as zeros", ABSENT, math_skipped, 2, 0, 0},
    {"a unit that a rank leaves out counts as zeros", ABSENT, math_left_out, 2, 0, 0},
    {"a gradient that is not written counts as zeros", ABSENT, math_unwritten, 2, 0, 0},
    {"a unit that all ranks skip has gradient zero", ABSENT, math_on_nobody, 2, 0, 0},
    {"a unit in no pass of the window has gradient zero", ABSENT, math_no_pass, 2, 0, 0},
    {"microbatches add under scope none", SCOPES, math_scope_none, 2, 0, 0},
    {"microbatches add under scope inner", SCOPES, math_scope_inner, 2, 0, 0},
    {"microbatches add under scope full", SCOPES, math_scope_full, 2, 0, 0},
    {"microbatches add over inner and outer ranks", SCOPES, math_scopes_of_two_levels, 4, 0, 0},
    {"nothing of a window is in the next one", SCOPES, math_windows_apart, 2, 0, 0},
    {"late and first seen gradients are taken up", "unit.h: grad_add", math_late, 2, 0, 0},
    {"foreign gradients join the next hand-over", "unit.h: grad_add", math_foreign, 2, 0, 0},
    {"each pass starts from a fresh gradient", "unit.h: HSDP_USE_BACKWARD", math_fresh, 2, 0, 0},
    {"as many gradients as slots are under way", "plan.h: slots", math_slots, 2, 0, 0},
    {"contributions are rounded to the wire once", DTYPES, math_wire, 4, 0, 0},
    {"the sum of a narrow wire does not overflow", DTYPES, math_wire_overflow, 4, 0, 0},
    {"a window of scope none is rounded as a whole", DTYPES, math_wire_of_windows, 2, 0, 0},
    {"microbatches of narrow views add in fp32", DTYPES, math_narrow_views, 2, 0, 0},
    {"views have the dtypes that were asked for", DTYPES, math_dtypes, 2, 0, 0},
    {"gradients of two names in a unit add", TIES, math_names_of_one_unit, 2, 0, 0},
    {"gradients of names in two units add", TIES, math_names_of_two_units, 2, 0, 0},
    {"gradients of copies on two stages add", TIES, math_stages, 4, 0, 0},
    {"a frozen parameter has no gradient and no step", LAYOUT, math_frozen, 2, 0, 0},
    {"a scalar comes back as it was", LAYOUT, math_scalar, 2, 0, 0},
    {"a model of nothing but empty parameters trains", LAYOUT, math_empty, 4, 0, 0},
    {"empty parameters beside others change nothing", LAYOUT, math_empty_beside, 4, 0, 0},
    {"padding is zero, and in no norm", LAYOUT, math_padding, 4, 0, 0},
    {"sizes that no number of ranks divides", LAYOUT, math_uneven, 3, 0, 0},
    {"parameters in blocks", LAYOUT, math_blocks, 3, 0, 0},
    {"random cases under ddp", RANDOM, math_random_ddp, 0, LONG_MS, 0},
    {"random cases under zero1", RANDOM, math_random_zero1, 0, LONG_MS, 0},
    {"random cases under zero2", RANDOM, math_random_zero2, 0, LONG_MS, 0},
    {"random cases under fsdp", RANDOM, math_random_fsdp, 0, LONG_MS, 0},
    {"random cases under hsdp", RANDOM, math_random_hsdp, 0, LONG_MS, 0},
    {"random cases under hsdp_zero2", RANDOM, math_random_hsdp_zero2, 0, LONG_MS, 0},
    {"random cases under hfsdp", RANDOM, math_random_hfsdp, 0, LONG_MS, 0},
};

const struct conform_chapter conform_mathematics = {"mathematics", "what training computes", checks,
                                                    sizeof(checks) / sizeof(checks[0])};
