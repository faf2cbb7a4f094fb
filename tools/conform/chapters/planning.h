/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the chapter "planning", by file; and what they share. */
#ifndef CONFORM_PLANNING_H
#define CONFORM_PLANNING_H

#include "conform.h"
#include "numbers.h"

/* plan_mesh.c */
void plan_mesh_row_major(struct conform *conform);
void plan_mesh_inferred(struct conform *conform);
void plan_mesh_info(struct conform *conform);
void plan_mesh_data_dims(struct conform *conform);
void plan_mesh_members(struct conform *conform);
void plan_mesh_halves(struct conform *conform);
void plan_mesh_random_members(struct conform *conform);
void plan_mesh_coordinates(struct conform *conform);
void plan_mesh_small_buffer(struct conform *conform);

/* plan_settings.c */
void plan_defaults(struct conform *conform);
void plan_read_back(struct conform *conform);
void plan_environment(struct conform *conform);
void plan_class_settings(struct conform *conform);
void plan_aliases(struct conform *conform);

/* plan_rows.c */
void plan_rows(struct conform *conform);
void plan_replicate_dims(struct conform *conform);
void plan_divisors(struct conform *conform);
void plan_split(struct conform *conform);
void plan_no_split(struct conform *conform);
void plan_default_split(struct conform *conform);

/* plan_build.c */
void plan_finish_refusals(struct conform *conform);
void plan_outlives_mesh(struct conform *conform);
void plan_report_text(struct conform *conform);

/* plan_layout.c */
void plan_covers(struct conform *conform);
void plan_slices(struct conform *conform);
void plan_nests(struct conform *conform);
void plan_blocks(struct conform *conform);

/* plan_buffers.c */
void plan_aligned(struct conform *conform);
void plan_buffers(struct conform *conform);
void plan_writers(struct conform *conform);
void plan_names(struct conform *conform);
void plan_infos(struct conform *conform);
void plan_given(struct conform *conform);
void plan_totals(struct conform *conform);
void plan_same_on_all(struct conform *conform);

#endif /* CONFORM_PLANNING_H */
