/* SPDX-License-Identifier: Apache-2.0 */
/* Building a plan: the steps that plan.c puts together, each in a file of its own. */
#ifndef PLAN_BUILD_H
#define PLAN_BUILD_H

#include "plan/plan.h"

/* Elements of one parameter (4 bytes each, as masters), and bytes of all buffers of a plan: small
 * enough that no sum of the accounting can wrap. */
#define PLAN_MAX_PARAM_ELEMS (UINT64_C(1) << 60)
#define PLAN_MAX_BYTES       (UINT64_C(1) << 60)

/** HSDP_ERR_STATE unless the plan is finished (is_finished) or still open (otherwise). */
int32_t plan_check_state(const struct hsdp_plan *plan, bool is_finished, struct hsdp_error *reterr);

/**
 * Makes room for one more row behind n rows of row_bytes each; *max_rows doubles.
 *
 * Errors: HSDP_ERR_NO_MEMORY, also at UINT32_MAX rows.
 */
int32_t plan_grow(void **rows, uint64_t row_bytes, uint32_t n_rows, uint32_t *max_rows,
                  struct hsdp_error *reterr);

/**
 * Checks a new name and copies it. `what` is "class", "unit" or "param".
 *
 * Errors: HSDP_ERR_INVALID when missing, empty, longer than max_bytes or taken.
 */
int32_t plan_copy_name(const struct names *names, const char *what, const char *name,
                       uint64_t max_bytes, char **ret_name, struct hsdp_error *reterr);

/** class.c: reads settings and dimensions into a class; *ret is untouched on failure. */
int32_t plan_class_init(const struct hsdp_plan *plan, const struct hsdp_class_spec *spec,
                        struct plan_class *ret, struct hsdp_error *reterr);
void plan_class_fini(struct plan_class *klass);

/** split.c: the plan's own mesh, and the settings that follow from it. */
int32_t plan_adopt_mesh(struct hsdp_plan *plan, const struct hsdp_mesh *mesh,
                        struct hsdp_error *reterr);

/** layout.c: offsets, padding and shards; needs the units' lists of parameters. */
int32_t plan_lay_out(struct hsdp_plan *plan, struct hsdp_error *reterr);

/** alias.c: which units are storage of others; then a unit's room for gradients of aliases. */
void plan_storages_mark(struct hsdp_plan *plan);
/** HSDP_ERR_INVALID when that is too large. Needs the unit's buffers. */
int32_t plan_aliases_place(struct hsdp_plan *plan, struct plan_unit *unit,
                           struct hsdp_error *reterr);

/**
 * tie.c: reads tied_over of a parameter whose storage is known; n_holders is 1 without a tie.
 *
 * Errors: HSDP_ERR_NOT_MEMBER; HSDP_ERR_INVALID over dimensions of the class, or when the storage
 * is tied over other ranks.
 */
int32_t plan_tie_read(const struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                      const struct plan_param *param, struct plan_tie *ret,
                      struct hsdp_error *reterr);
void plan_ties_place(struct hsdp_plan *plan);

/** slots.c: slots, and where their memory lies. */
int32_t plan_assign_slots(struct hsdp_plan *plan, struct hsdp_error *reterr);

/**
 * slot_fit.c: moves gradient buffers closer together than the slots they are in, where that takes
 * less memory.
 */
int32_t plan_fit_slots(struct hsdp_plan *plan, struct hsdp_error *reterr);

/** The largest sum of gradient buffers of K units in a row: no slots can be smaller. */
uint64_t plan_least_slots_bytes(const struct hsdp_plan *plan);

/** accounting.c: the totals of a plan that is laid out. */
void plan_add_up(struct hsdp_plan *plan);

/** notes.c: remarks on what a strategy comes to on this mesh. */
int32_t plan_write_notes(struct hsdp_plan *plan, struct hsdp_error *reterr);

/** The trainable buffer of a unit; NULL when all of it is frozen. */
const struct plan_buffer *plan_trainable(const struct plan_unit *unit);

/** A walk over the segments of one buffer: visit is called in order of offset. */
struct segment_walk {
    const struct hsdp_plan *plan;
    uint32_t unit;
    uint32_t buffer;
    int cut;
    uint32_t rank;
};
uint64_t plan_walk_segments(const struct segment_walk *walk,
                            void (*visit)(void *user, const struct hsdp_segment *segment),
                            void *user);

/* ---------------------------------------------------------------------------- accounting.c */

/** One kind of collective of a class, summed over its units: per step, one microbatch. */
struct traffic_row {
    const char *phase;     /* unshard, reduce, publish */
    const char *operation; /* all_gather, reduce_scatter, all_reduce */
    uint32_t dims;         /* the group */
    uint64_t n_operations;
    uint64_t payload_bytes; /* that one rank receives */
};
#define TRAFFIC_MAX_ROWS 5u
uint32_t plan_traffic(const struct hsdp_plan *plan, uint32_t class_index,
                      struct traffic_row ret_rows[TRAFFIC_MAX_ROWS]);

#endif /* PLAN_BUILD_H */
