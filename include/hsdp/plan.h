/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: what is sharded how. Pure arithmetic; the runtime executes the very plan that is printed.
 */
#ifndef HSDP_PLAN_H
#define HSDP_PLAN_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A plan is built call by call (create, add_class, add_unit, add_param, finish) and then only
 * read. It holds
 *
 *   classes  what parameters have in common: over which ranks they are replicated, and settings;
 *   units    parameters of one class that are unsharded, released and reduced together, in the
 *            order of the forward pass; for instance one transformer block;
 *   buffers  a unit's parameters, flat: one buffer of the trainable ones, then one of the frozen
 *            ones, each where there are any. Parameters are aligned to 64 bytes; the padding is
 *            zero, and in no norm and no file. They stand in the order in which they were added
 *            or, where some have block_elems, in one that takes less padding: param_info() says
 *            where;
 *   shards   a buffer is padded and cut into equal parts, over three nested sets of ranks: of the
 *            parameter (what rests between uses), of the gradient (what rests between
 *            microbatches), and of the step (master weights and optimizer state). Each is a
 *            multiple of 64 bytes, or of whole pages where ranks share memory: then a unit smaller
 *            than a page lies on one of them, and the others hold padding. segments() says who owns
 *            what; nobody should compute it.
 *
 * With R = reduced_over, O = R and replicate_dims, I = R without O, `sharding_strategy` is a row:
 *
 *     name (aliases)                          parameter  gradient  step
 *     ddp (no_shard)                          -          -         -
 *     zero1                                   -          -         R
 *     zero2 (shard_grad_op)                   -          R         R
 *     fsdp (full_shard, zero3)                R          R         R
 *     hsdp (hybrid_shard)                     I          I         I
 *     hsdp_zero2 (hybrid_shard_zero2)         -          I         I
 *     hfsdp                                   I          I         R
 *     auto                                    the fastest row that fits
 *
 * Settings of a plan (P) and of a class (C). The value that a key has in the plan, wherever it
 * comes from, is the default of its classes.
 *
 *     sharding_strategy   P C  fsdp      a name of the table
 *     replicate_dims      P C  dp_replicate where dp is split, else dp   selector
 *     shard_size          P    splits dp into dp_replicate x dp_shard; a divisor of dp. Default
 *                              where the plan's own strategy is a row with I, and dp the only data
 *                              dimension of more than one rank: the largest divisor of dp that is
 *                              at most min(ranks per node, dp / 2), at least 1; ranks per node
 *                              count only if they are known. Else dp stays whole. "dp" in a
 *                              selector then means both halves. A mesh of HSDP_MESH_MAX_DIMS
 *                              dimensions cannot be split: HSDP_ERR_INVALID
 *     param_dtype         P C  fp32      of the unsharded parameters: fp32, bf16, fp16
 *     master_dtype        P C  fp32      of what the optimizer writes: fp32, bf16, fp16. Where
 *                              it is param_dtype, masters are the parameters themselves
 *     reduce_dtype        P C  fp32      on the wire: every contribution is rounded to it once
 *     gradient_dtype      P C  reduce_dtype   of the unsharded gradients
 *     gradient_op         P C  mean      mean, sum
 *     gradient_divisor    P C  the mesh's data ranks   1 to 16777216 (exact in fp32); of `mean`
 *     accumulation_scope  P    none      none, inner, full: what memory is planned for
 *     slots               P    2         1 to 64: gradients of so many units of a pass can be
 *                              under way at a time, and so many units unsharded where that copies
 *     verify              P    off       off, or a list of access (reading released parameters
 *                              and writing gradients handed over faults: unit.h), wrap
 *                              (model->create proves its arithmetic: model.h), step:N (every N-th
 *                              step compares replicas: step.h)
 */

/**
 * What the units of a class have in common.
 *
 * Since: 1.0
 */
struct hsdp_class_spec {
    size_t struct_size;          /* sizeof(struct hsdp_class_spec) */
    const char *name;            /* unique in the plan: "dense", "expert" */
    const char *replicated_over; /* selector: the ranks that hold equal values of each parameter,
                                    so the norm counts each once; NULL = all data dimensions */
    const char *reduced_over;    /* selector: the ranks whose gradients are partial and are summed;
                                    NULL = replicated_over, which must contain it */
    struct hsdp_settings settings; /* of a class: the list above; absent = the plan's */
};

#define HSDP_PARAM_FROZEN 1u /* has no gradient and no step */
#define HSDP_PARAM_COPY   2u /* in hsdp_param_info only: see tied_over */

/**
 * One parameter.
 *
 * Since: 1.0
 */
struct hsdp_param_spec {
    size_t struct_size;    /* sizeof(struct hsdp_param_spec) */
    const char *name;      /* unique in the plan */
    const int64_t *shape;  /* n_dims sizes >= 0 of the whole parameter on this rank's coordinates of
                              the dimensions it is not replicated over */
    const char *tied_to;   /* name of an earlier parameter with the same shape, also of another unit
                              of the class: one storage, two names, gradients add; NULL = none.
                              What a tie across units means stands at hsdp_param_info */
    const char *tied_over; /* selector of the pipeline stages that hold a copy under the same name,
                              "pp[0,-1]", outside of replicated_over: gradients are summed over
                              them, last, and not divided by their number. Shape, flags,
                              hyper_group, block_elems and what the class says are equal; the units
                              need not be. The host loads equal values, or calls model->sync. The
                              first holder's counts for norm and file; others are HSDP_PARAM_COPY.
                              NULL = none */
    uint64_t block_elems;  /* never cut inside a run of so many elements, counted from its first
                              one; the last run may be shorter. 0 = may be cut anywhere; of a tied
                              name, as that of its storage */
    uint32_t n_dims;       /* 0 = scalar, at most HSDP_PARAM_MAX_DIMS */
    uint32_t unit;         /* what add_unit returned */
    uint32_t hyper_group;  /* which of the optimizer's per-group values applies */
    uint32_t flags;        /* HSDP_PARAM_* */
};

#define HSDP_PARAM_MAX_DIMS 8u

/**
 * Totals of a finished plan, for the rank of its mesh. Bytes.
 *
 * Since: 1.0
 */
struct hsdp_plan_info {
    size_t struct_size;       /* sizeof(struct hsdp_plan_info) */
    uint64_t param_bytes;     /* resting parameter shards, in the compute dtype */
    uint64_t master_bytes;    /* step shards, where they are not the parameter shards themselves */
    uint64_t grad_bytes;      /* resting gradients, what names in other units add to them, and what
                                 other stages read of them */
    uint64_t unsharded_bytes; /* slots for unsharded parameters; 0 where unshard needs no copy */
    uint64_t grad_slot_bytes; /* slots for unsharded gradients */
    uint64_t n_state_elems;   /* elements of one optimizer state: the step shards */
    uint64_t padding_bytes;   /* within param_bytes */
    uint64_t peak_bytes;      /* all bytes above, padding once, and two fp32 optimizer states */
    uint32_t n_classes;
    uint32_t n_units;
    uint32_t n_params;
    uint32_t n_notes; /* remarks such as "hsdp: no dimension is left to shard", in the report */
};

/**
 * A class of a finished plan.
 *
 * Since: 1.0
 */
struct hsdp_class_info {
    size_t struct_size;     /* sizeof(struct hsdp_class_info) */
    const char *name;       /* this and the texts below live as long as the plan */
    const char *strategy;   /* the row's name, aliases and auto resolved */
    const char *param_dims; /* selectors over which parameters, resting gradients and the step */
    const char *grad_dims;  /* are sharded, in slice order; "" = whole */
    const char *step_dims;
    const char *reduce_dims;     /* R */
    const char *replicated_dims; /* replicated_over; the data dimensions where that is NULL */
    uint32_t divisor;            /* of `mean`, as applied; 1 for `sum` */
    uint32_t reserved;           /* zero */
};

#define HSDP_NO_SLOT 0xffffffffu /* also of a unit that has no gradient */

/**
 * A unit of a finished plan.
 *
 * Since: 1.0
 */
struct hsdp_unit_info {
    size_t struct_size; /* sizeof(struct hsdp_unit_info) */
    const char *name;   /* lives as long as the plan */
    uint32_t class_index;
    uint32_t first_param; /* its parameters need not be consecutive; this is the lowest index */
    uint32_t n_params;
    uint32_t n_buffers;  /* 1 or 2; 0 when all its names are tied to parameters of other units */
    uint32_t divisor;    /* of its class */
    uint32_t param_slot; /* units of one slot may not be live together, where a plugin has slots;
                            HSDP_NO_SLOT = any may */
    uint32_t grad_slot;  /* `slots` units in a row, in reduce order, may hold gradients together;
                            of others those whose bytes overlap may not, whatever their slot */
    uint32_t reserved;   /* zero */
};

/**
 * A buffer of a unit: the flat tensor that is cut into shards.
 *
 * Since: 1.0
 */
struct hsdp_buffer_info {
    size_t struct_size;         /* sizeof(struct hsdp_buffer_info) */
    uint64_t n_elems;           /* unsharded, padding included */
    uint64_t n_padding_elems;   /* of those */
    uint64_t param_shard_elems; /* of one rank, in each of the three cuts */
    uint64_t grad_shard_elems;
    uint64_t step_shard_elems;
    uint32_t is_frozen;
    uint32_t reserved; /* zero */
};

/**
 * A parameter of a finished plan.
 *
 * A name that is tied to a parameter of another unit is an alias: `storage` says of which, and
 * buffer and offset_elems are those of the storage, in the unit of the storage. To unshard the
 * alias's unit makes the storage's unit readable too, until the release; that one therefore takes
 * turns in no slot. The gradient of an alias is a view of its own, in the gradient slot of its own
 * unit; when that is handed over, it is added in fp32 to what this rank contributes to the storage.
 * So a pass lists units of aliases before the unit of their storage.
 *
 * Since: 1.0
 */
struct hsdp_param_info {
    size_t struct_size;    /* sizeof(struct hsdp_param_info) */
    const char *name;      /* this and what the next two point to live as long as the plan */
    const int64_t *shape;  /* n_dims sizes */
    const char *tied_over; /* as given, "" = none; of a tied name, as that of its storage */
    uint64_t n_elems;      /* product of the shape */
    uint64_t offset_elems; /* of its first element in the unsharded buffer */
    uint64_t block_elems;  /* as given; of a tied name, as that of its storage */
    uint32_t n_dims;
    uint32_t unit;
    uint32_t buffer;      /* within the unit; of an alias: within the storage's */
    uint32_t storage;     /* index of the parameter whose storage it is; itself unless tied */
    uint32_t hyper_group; /* as given */
    uint32_t flags;       /* as given, and HSDP_PARAM_COPY where another stage's copy is saved */
};

/* The three cuts: equal in fsdp and hsdp, different in zero1 and hfsdp. */
#define HSDP_SHARD_PARAM 0
#define HSDP_SHARD_GRAD  1
#define HSDP_SHARD_STEP  2

/**
 * A run of elements of one parameter within one shard. Tied names do not appear twice: `param` is
 * the storage.
 *
 * Since: 1.0
 */
struct hsdp_segment {
    uint32_t param;
    uint32_t buffer;
    uint64_t param_offset_elems; /* from the parameter's first element, row-major */
    uint64_t shard_offset_elems; /* from the shard's first element */
    uint64_t n_elems;
};

/**
 * Functions on plans. All are local. The number of a class, unit, buffer, parameter or rank that
 * there is not is HSDP_ERR_INVALID.
 *
 * Since: 1.0
 */
struct hsdp_plan_ops {
    size_t struct_size;

    /**
     * Starts a plan on a mesh. settings may be NULL.
     *
     * Ownership: the mesh may be destroyed afterwards.
     * Errors: HSDP_ERR_INVALID for settings, listing what is allowed.
     */
    int32_t (*create)(const hsdp_mesh *mesh, const struct hsdp_settings *settings,
                      hsdp_plan **ret_plan, struct hsdp_error *reterr);

    /**
     * Adds a class. *ret_class counts from 0.
     *
     * Errors: HSDP_ERR_INVALID names the class, of settings the key: repeated name, settings,
     * selectors, a reduced_over outside of replicated_over; HSDP_ERR_UNSUPPORTED for `auto`
     * without a planner; HSDP_ERR_STATE once finished, here and below.
     */
    int32_t (*add_class)(hsdp_plan *plan, const struct hsdp_class_spec *spec, uint32_t *ret_class,
                         struct hsdp_error *reterr);

    /**
     * Adds a unit, in the order of the forward pass. *ret_unit counts from 0.
     *
     * Errors: HSDP_ERR_INVALID names the unit: a name that is there already, or not of 1 to 63
     * bytes.
     */
    int32_t (*add_unit)(hsdp_plan *plan, const char *name, uint32_t class_index, uint32_t *ret_unit,
                        struct hsdp_error *reterr);

    /**
     * Adds a parameter; any order over units. *ret_param counts from 0.
     *
     * Errors: HSDP_ERR_INVALID names the parameter: repeated name, negative size, a size beyond
     * 2^62 bytes, an unknown unit, a tie to an unknown name, or to a parameter of another shape,
     * class, frozen flag, hyper_group or block_elems, or one that is tied over other ranks;
     * tied_over a dimension of replicated_over. HSDP_ERR_NOT_MEMBER where this rank is not among
     * those of tied_over; HSDP_ERR_UNSUPPORTED for ties that this plugin cannot execute.
     */
    int32_t (*add_param)(hsdp_plan *plan, const struct hsdp_param_spec *spec, uint32_t *ret_param,
                         struct hsdp_error *reterr);

    /**
     * Lays everything out; from here on the plan is only read.
     *
     * Errors: HSDP_ERR_INVALID names a unit without parameters, one of several that are storage of
     * each other's trainable names, or one whose padding makes the plan larger than 2^60 bytes. The
     * plan is still open then.
     */
    int32_t (*finish)(hsdp_plan *plan, struct hsdp_error *reterr);

    /** Tells the totals. This and the functions below need a finished plan, else HSDP_ERR_STATE. */
    int32_t (*info)(const hsdp_plan *plan, struct hsdp_plan_info *ret_info,
                    struct hsdp_error *reterr);

    /**
     * Tells the mesh of the plan, with dp split into dp_replicate and dp_shard where it is, so
     * that the new names can be selected.
     *
     * Ownership: *ret_mesh belongs to the plan and lives as long; do not destroy it.
     */
    int32_t (*mesh)(const hsdp_plan *plan, const hsdp_mesh **ret_mesh, struct hsdp_error *reterr);

    /**
     * Reads back a setting of the plan: the effective value, and its source as in job->setting;
     * "" where there is none, as of shard_size where dp is whole.
     *
     * Ownership: both texts live as long as the plan.
     * Errors: HSDP_ERR_INVALID for an unknown key, listing the known ones.
     */
    int32_t (*setting)(const hsdp_plan *plan, const char *key, const char **ret_value,
                       const char **ret_source, struct hsdp_error *reterr);

    /** Reads back a setting of a class, as `setting` does; a source may also begin with "plan". */
    int32_t (*class_setting)(const hsdp_plan *plan, uint32_t class_index, const char *key,
                             const char **ret_value, const char **ret_source,
                             struct hsdp_error *reterr);

    /** Tells a class. */
    int32_t (*class_info)(const hsdp_plan *plan, uint32_t class_index,
                          struct hsdp_class_info *ret_info, struct hsdp_error *reterr);

    /** Tells a unit. */
    int32_t (*unit_info)(const hsdp_plan *plan, uint32_t unit, struct hsdp_unit_info *ret_info,
                         struct hsdp_error *reterr);

    /** Tells a buffer of a unit. */
    int32_t (*buffer_info)(const hsdp_plan *plan, uint32_t unit, uint32_t buffer,
                           struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr);

    /** Tells a parameter. */
    int32_t (*param_info)(const hsdp_plan *plan, uint32_t param, struct hsdp_param_info *ret_info,
                          struct hsdp_error *reterr);

    /** Finds a parameter by name. Errors: HSDP_ERR_INVALID when there is none. */
    int32_t (*param_find)(const hsdp_plan *plan, const char *name, uint32_t *ret_param,
                          struct hsdp_error *reterr);

    /**
     * Lists what a rank owns of a unit in one of the three cuts: the only authority on it.
     *
     * Shapes: ret_segments is an array of max_segments with segment_bytes between its elements
     * (sizeof of the caller's struct, a multiple of 8), in order of buffer and offset; padding has
     * no segment. *ret_n_segments is how many there are, also on HSDP_ERR_BUFFER_TOO_SMALL. `rank`
     * is any of the world that holds this unit's parameters; of another one the answer means
     * nothing.
     * Errors: HSDP_ERR_VERSION for a segment_bytes below the size of ABI 1.0, HSDP_ERR_INVALID for
     * one that is no multiple of 8.
     */
    int32_t (*segments)(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                        struct hsdp_segment *ret_segments, uint64_t segment_bytes,
                        uint64_t max_segments, uint64_t *ret_n_segments, struct hsdp_error *reterr);

    /**
     * Tells which of the replicas of a rank's shard saves it: one rank per shard. Of a rank that
     * does not hold the unit the answer means nothing.
     */
    int32_t (*writer)(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                      uint32_t *ret_writer_rank, struct hsdp_error *reterr);

    /**
     * Writes the plan as JSON.
     *
     * Shapes: as describe() in abi.h; an object with the members mesh, settings, classes (each with
     * traffic_per_step, for one microbatch), units, padding, slots, memory and notes; others may be
     * added.
     */
    int32_t (*report)(const hsdp_plan *plan, char *ret_text, uint64_t max_bytes,
                      uint64_t *ret_bytes, struct hsdp_error *reterr);

    /** Gives a plan back; NULL is accepted. */
    void (*destroy)(hsdp_plan *plan);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_CLASS_SPEC_INIT  HSDP_INIT_(hsdp_class_spec)
#define HSDP_PARAM_SPEC_INIT  HSDP_INIT_(hsdp_param_spec)
#define HSDP_PLAN_INFO_INIT   HSDP_INIT_(hsdp_plan_info)
#define HSDP_CLASS_INFO_INIT  HSDP_INIT_(hsdp_class_info)
#define HSDP_UNIT_INFO_INIT   HSDP_INIT_(hsdp_unit_info)
#define HSDP_BUFFER_INFO_INIT HSDP_INIT_(hsdp_buffer_info)
#define HSDP_PARAM_INFO_INIT  HSDP_INIT_(hsdp_param_info)

#endif /* HSDP_PLAN_H */
