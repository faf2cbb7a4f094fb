/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the chapter "mathematics", by file. */
#ifndef CONFORM_MATHEMATICS_H
#define CONFORM_MATHEMATICS_H

#include "conform.h"

/* math_sums.c */
void math_mean(struct conform *conform);
void math_mean_of_dims(struct conform *conform);
void math_sum(struct conform *conform);
void math_divisor(struct conform *conform);
void math_experts(struct conform *conform);
void math_reduced_over_a_part(struct conform *conform);
void math_reduced_beyond_data(struct conform *conform);
void math_outer(struct conform *conform);
void math_places(struct conform *conform);
void math_segments(struct conform *conform);
void math_skipped(struct conform *conform);
void math_left_out(struct conform *conform);
void math_unwritten(struct conform *conform);
void math_on_nobody(struct conform *conform);
void math_no_pass(struct conform *conform);
void math_one_rank(struct conform *conform);

/* math_windows.c */
void math_scope_none(struct conform *conform);
void math_scope_inner(struct conform *conform);
void math_scope_full(struct conform *conform);
void math_scopes_of_two_levels(struct conform *conform);
void math_windows_apart(struct conform *conform);
void math_late(struct conform *conform);
void math_foreign(struct conform *conform);
void math_wire(struct conform *conform);
void math_wire_overflow(struct conform *conform);
void math_wire_of_windows(struct conform *conform);
void math_narrow_views(struct conform *conform);
void math_dtypes(struct conform *conform);
void math_fresh(struct conform *conform);
void math_slots(struct conform *conform);

/* math_layout.c */
void math_names_of_one_unit(struct conform *conform);
void math_names_of_two_units(struct conform *conform);
void math_stages(struct conform *conform);
void math_frozen(struct conform *conform);
void math_scalar(struct conform *conform);
void math_empty(struct conform *conform);
void math_empty_beside(struct conform *conform);
void math_padding(struct conform *conform);
void math_uneven(struct conform *conform);
void math_blocks(struct conform *conform);

/* math_random.c: cases by the number that the kit was given, of each strategy */
void math_random_ddp(struct conform *conform);
void math_random_zero1(struct conform *conform);
void math_random_zero2(struct conform *conform);
void math_random_fsdp(struct conform *conform);
void math_random_hsdp(struct conform *conform);
void math_random_hsdp_zero2(struct conform *conform);
void math_random_hfsdp(struct conform *conform);

#endif /* CONFORM_MATHEMATICS_H */
