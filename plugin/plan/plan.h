/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: classes, units, parameters; finished into a layout that the runtime executes as it is. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/settings.h"
#include "base/text.h"
#include "hsdp/plan.h"
#include "plan/mesh.h"
#include "plan/placement.h"
#include "plan/selector.h"

/* Parameters start on a multiple of this many elements: 64 bytes in the narrowest dtype. */
#define PLAN_ALIGN_ELEMS 32u
/* Parameter shards are a multiple of this many bytes, so that shared memory can map them back to
 * back; step shards are a multiple of PLAN_ALIGN_ELEMS. */
#define PLAN_GRANULE_BYTES 4096u

/* Trainable first, frozen second, each only where it has parameters. */
#define PLAN_MAX_BUFFERS 2u

#define PLAN_DIMS_TEXT_BYTES (HSDP_MESH_MAX_DIMS * (HSDP_DIM_NAME_MAX + 1))

struct names;

struct plan_class {
    char *name;
    struct settings settings;
    const struct strategy *strategy;
    struct placement place;
    enum dtype param_dtype;
    enum dtype master_dtype;
    enum dtype reduce_dtype;
    enum dtype gradient_dtype;
    bool is_mean;
    uint32_t divisor;                                      /* 1 for a sum */
    char cut_dims[PLACEMENT_N_CUTS][PLAN_DIMS_TEXT_BYTES]; /* selectors, in slice order */
    char reduce_dims[PLAN_DIMS_TEXT_BYTES];
    char replicated_dims[PLAN_DIMS_TEXT_BYTES];
};

struct plan_param {
    char *name;
    char *tied_to;   /* NULL = none */
    char *tied_over; /* as the host has said it; NULL = none */
    int64_t shape[HSDP_PARAM_MAX_DIMS];
    uint64_t n_elems;
    uint64_t offset_elems;       /* in its unsharded buffer; of an alias: that of its storage */
    uint64_t alias_offset_elems; /* of an alias: of its gradient, in its own unit's slot */
    uint64_t block_elems;
    uint32_t n_dims;
    uint32_t unit;
    uint32_t buffer;
    uint32_t storage; /* itself unless tied; an alias is tied to a parameter of another unit */
    uint32_t tie;     /* of a storage, over stages; PLAN_NO_TIE = none */
    uint32_t hyper_group;
    uint32_t flags;
};

#define PLAN_NO_TIE UINT32_MAX

/* A parameter of which other stages hold copies: the ranks of a selector, in its order. */
struct plan_tie {
    struct selector selector;
    uint32_t param; /* a storage */
    uint32_t n_holders;
    uint32_t dim_sizes[HSDP_MESH_MAX_DIMS]; /* for the tree of their sum, outermost first */
    uint32_t n_dims;
    uint32_t own;         /* which of them this rank is; the first one's copy is saved */
    uint64_t place_elems; /* once finished: where it begins in what ranks share for all ties */
};

struct plan_buffer {
    bool is_frozen;
    uint64_t n_elems; /* with padding; a multiple of every cut, never 0 */
    uint64_t n_padding_elems;
    uint64_t n_block_padding_elems; /* of those, what there would not be without block_elems */
    uint64_t shard_elems[PLACEMENT_N_CUTS]; /* of one rank: P, G, S */
};

struct plan_unit {
    char *name;
    uint32_t class_index;
    uint32_t n_buffers;
    struct plan_buffer buffers[PLAN_MAX_BUFFERS];
    uint32_t n_params;      /* all names, tied ones too */
    uint32_t *params;       /* indices, in order of offset within buffer, then aliases; owned */
    uint32_t n_aliases;     /* of those: names of other units' parameters */
    uint64_t n_alias_elems; /* room for their gradients, in its slot behind the trainable buffer */
    bool is_storage;        /* other units have names for its parameters */
    bool is_grad_storage;   /* and gradients to add to its own */
    uint32_t param_slot;
    uint32_t grad_slot;              /* HSDP_NO_SLOT without gradients */
    uint64_t grad_slot_offset_bytes; /* of its gradient buffer within the gradient slots' memory */
};

/* The setting `verify`. */
struct plan_verify {
    bool is_access;
    bool is_wrap;
    uint32_t n_steps; /* replicas are compared every so many steps; 0 = never */
};

struct hsdp_plan {
    struct hsdp_mesh *mesh; /* with dp split where it is; owned */
    struct settings settings;
    struct plan_class *classes;
    struct plan_unit *units;
    struct plan_param *params;
    struct plan_tie *ties;
    uint32_t n_classes, n_units, n_params, n_ties;
    uint32_t max_classes, max_units, max_params, max_ties; /* allocated */
    uint64_t ties_elems; /* what a rank shares for all ties, each parameter whole */
    uint32_t n_slots;    /* the setting `slots` */
    int32_t scope;       /* HSDP_SCOPE_*: what memory is planned for */
    struct plan_verify verify;
    uint64_t grad_slots_bytes; /* memory of all gradient slots of this rank */
    bool is_finished;
    struct hsdp_plan_info totals; /* once finished */
    char **notes;
    uint32_t n_notes;
    struct names *class_names; /* from name to index; names.h */
    struct names *unit_names;
    struct names *param_names;
    atomic_uint n_references;
};

/* The functions of the public table; see hsdp/plan.h. */
int32_t plan_create(const struct hsdp_mesh *mesh, const struct hsdp_settings *settings,
                    struct hsdp_plan **ret_plan, struct hsdp_error *reterr);
int32_t plan_add_class(struct hsdp_plan *plan, const struct hsdp_class_spec *spec,
                       uint32_t *ret_class, struct hsdp_error *reterr);
int32_t plan_add_unit(struct hsdp_plan *plan, const char *name, uint32_t class_index,
                      uint32_t *ret_unit, struct hsdp_error *reterr);
int32_t plan_add_param(struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                       uint32_t *ret_param, struct hsdp_error *reterr);
int32_t plan_finish(struct hsdp_plan *plan, struct hsdp_error *reterr);
int32_t plan_info(const struct hsdp_plan *plan, struct hsdp_plan_info *ret_info,
                  struct hsdp_error *reterr);
int32_t plan_mesh(const struct hsdp_plan *plan, const struct hsdp_mesh **ret_mesh,
                  struct hsdp_error *reterr);
int32_t plan_setting(const struct hsdp_plan *plan, const char *key, const char **ret_value,
                     const char **ret_source, struct hsdp_error *reterr);
int32_t plan_class_setting(const struct hsdp_plan *plan, uint32_t class_index, const char *key,
                           const char **ret_value, const char **ret_source,
                           struct hsdp_error *reterr);
int32_t plan_class_info(const struct hsdp_plan *plan, uint32_t class_index,
                        struct hsdp_class_info *ret_info, struct hsdp_error *reterr);
int32_t plan_unit_info(const struct hsdp_plan *plan, uint32_t unit, struct hsdp_unit_info *ret_info,
                       struct hsdp_error *reterr);
int32_t plan_buffer_info(const struct hsdp_plan *plan, uint32_t unit, uint32_t buffer,
                         struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr);
int32_t plan_param_info(const struct hsdp_plan *plan, uint32_t param,
                        struct hsdp_param_info *ret_info, struct hsdp_error *reterr);
int32_t plan_param_find(const struct hsdp_plan *plan, const char *name, uint32_t *ret_param,
                        struct hsdp_error *reterr);
/** segment_bytes is the stride of the array: the engine's own sizeof, or a caller's. */
int32_t plan_segments(const struct hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                      struct hsdp_segment *ret_segments, uint64_t segment_bytes,
                      uint64_t max_segments, uint64_t *ret_n_segments, struct hsdp_error *reterr);
int32_t plan_writer(const struct hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                    uint32_t *ret_writer_rank, struct hsdp_error *reterr);
int32_t plan_report(const struct hsdp_plan *plan, char *ret_text, uint64_t max_bytes,
                    uint64_t *ret_bytes, struct hsdp_error *reterr);
void plan_destroy(struct hsdp_plan *plan);

/** Takes another reference to a finished plan; each is given back with plan_destroy. */
struct hsdp_plan *plan_share(const struct hsdp_plan *plan);

/* ------------------------------------------------------------------------- for the runtime */

/** Adds the report as one JSON value under `key`. */
void plan_write_json(const struct hsdp_plan *plan, struct text *text, const char *key);

/**
 * The plan in lines, one per setting, class, unit and parameter, each complete in itself: what
 * ranks compare when a model is created. Ranks that differ only in data dimensions agree on all.
 */
void plan_write_lines(const struct hsdp_plan *plan, struct text *text);

/**
 * The dimensions over which some class is replicated or reduced: ranks that differ only in them
 * share parameters or sum gradients, and have the same plan.
 */
uint32_t plan_shared_dims(const struct hsdp_plan *plan);

/** True for a unit with parameters that have gradients: its buffer 0 is theirs. */
bool plan_is_trainable(const struct hsdp_plan *plan, uint32_t unit);
/** True for a class with such a unit. */
bool plan_class_is_trainable(const struct hsdp_plan *plan, uint32_t class_index);

/** True for a name of another unit's parameter. */
bool plan_param_is_alias(const struct hsdp_plan *plan, uint32_t param);

/**
 * All units in an order in which one backward pass may have them: from the last to the first, those
 * with names for parameters of others before these. ret_units has room for n_units.
 *
 * Errors: HSDP_ERR_INVALID, naming one, when units are storage of each other's names.
 */
int32_t plan_pass_order(const struct hsdp_plan *plan, uint32_t *ret_units,
                        struct hsdp_error *reterr);

/**
 * Elements of a unit's gradient in its slot: of the trainable buffer, which is reduced, and behind
 * it of aliases, which are added to what their storages contribute. 0 = it has no gradients.
 */
uint64_t plan_grad_elems(const struct hsdp_plan *plan, uint32_t unit);

/** True for a parameter tied over stages whose first holder is another stage, and its names. */
bool plan_param_is_copy(const struct hsdp_plan *plan, uint32_t param);

/** Elements of this rank's step shard that a tie has; and bytes of all ties, as fp32. */
uint64_t plan_tie_elems(const struct hsdp_plan *plan, uint32_t tie);
uint64_t plan_ties_bytes(const struct hsdp_plan *plan);

/** True for a rank that may hold, on another stage, elements of this rank's ties. */
bool plan_ties_reach(const struct hsdp_plan *plan, uint32_t rank);

/**
 * What holders of a tie have to agree on, as words "key=value": of parameter, class and mesh, but
 * not of the unit that it lies in.
 */
void plan_write_tie(const struct hsdp_plan *plan, uint32_t tie, struct text *text);

/** Where a rank's slice of a cut starts in a unit's unsharded buffer, in elements. */
uint64_t plan_slice_offset(const struct hsdp_plan *plan, uint32_t unit, uint32_t buffer, int cut,
                           uint32_t rank);

/**
 * True when the gradient buffers of two units lie in the same bytes of the gradient slots, so that
 * both may not be live. Units within n_slots of each other in reduce order never do; others may,
 * also in different slots. A unit without gradients overlaps with none.
 */
bool plan_grads_overlap(const struct hsdp_plan *plan, uint32_t unit, uint32_t other);

/** Bytes of a unit's gradient buffer in the slots, whole granules; 0 without gradients. */
uint64_t plan_grad_slot_bytes(const struct hsdp_plan *plan, uint32_t unit);

/** True when the step shard is the parameter memory itself: compute dtype equals master dtype. */
bool plan_steps_in_place(const struct hsdp_plan *plan, uint32_t unit);

/*
 * The fp32 accumulators that the runtime keeps for a unit's trainable buffer, in elements; 0 = not
 * kept apart. A local accumulator holds this rank's whole gradient (scope none). An inner one holds
 * the gradient shard, summed over G. The step shard is fully reduced.
 *
 *   local  n_elems when scope none is planned
 *   inner  the G shard when R spans more ranks than G, and G more than one; and where G spans one
 *          when scope inner is planned. Elsewhere contributions are summed right into the step one.
 *   step   always the S shard
 *   late   of a unit whose parameters have gradients in other units too: what those add, twice (of
 *          the next reduction and of the one that waits for peers), and a third time, where there
 *          is no local one, for peers to read
 */
struct plan_accumulators {
    uint64_t local_elems;
    uint64_t inner_elems;
    uint64_t step_elems;
    uint64_t late_elems;
};
struct plan_accumulators plan_accumulators(const struct hsdp_plan *plan, uint32_t unit);
/** The sum of all of them. */
uint64_t plan_accumulator_elems(const struct plan_accumulators *sums);

/*
 * Ranks that differ only in R\S hold the same step shard. In an all-reduce each of them sums up one
 * part of it for all, a run of whole PLAN_ALIGN_ELEMS, and counts that part in the norm. Parts of
 * small shards may be empty; where R and S span the same ranks the part is the shard.
 */
struct plan_part {
    uint64_t first_elem; /* in the step shard of the trainable buffer */
    uint64_t n_elems;
};
struct plan_part plan_step_part(const struct hsdp_plan *plan, uint32_t unit);

#endif /* PLAN_PLAN_H */
