/* SPDX-License-Identifier: Apache-2.0 */
/* Models: a finished plan on a connected job; the memory, its views, loading and saving. */
#ifndef HSDP_MODEL_H
#define HSDP_MODEL_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every address is fixed from create to destroy. A view is in the memory of the job's device. What
 * changes is when its content is valid:
 *
 *     view                 dtype           valid                                  host may write
 *     HSDP_VIEW_PARAM      param_dtype     between unshard and release            no (undefined)
 *     HSDP_VIEW_GRAD       gradient_dtype  between unshard(BACKWARD*) and reduce  yes
 *     HSDP_FLAT_MASTER     master_dtype    in a step (*), and in an edit          yes
 *     HSDP_FLAT_GRAD       fp32            in a step (*)                          yes
 *     HSDP_FLAT_STATE + i  of the state    in a step (*), and in an edit          yes
 *
 * (*) once the ticket of step.begin is done; step.result waits for it.
 *
 * On a CPU parameter views are mapped read-only, so that writing to one faults at the line that
 * does it; with verify=access so does reading one that is released, and writing a gradient
 * that is handed over. A debugger shows the line.
 *
 * A parameter view is the whole parameter. A flat view is this rank's step shard of one buffer
 * (plan->segments with HSDP_SHARD_STEP says what lies where), padding included; keep padding zero.
 */

#define HSDP_VIEW_PARAM 0
#define HSDP_VIEW_GRAD  1

#define HSDP_FLAT_MASTER 0
#define HSDP_FLAT_GRAD   1
#define HSDP_FLAT_STATE  16 /* plus the index that state_create returned */

#define HSDP_ALL_RANKS 0xffffffffu

/**
 * What a model is.
 *
 * Since: 1.0
 */
struct hsdp_model_info {
    size_t struct_size;   /* sizeof(struct hsdp_model_info) */
    uint64_t step;        /* steps ended or discarded so far */
    uint64_t param_bytes; /* this rank's share of each kind, as allocated; see hsdp_plan_info */
    uint64_t master_bytes;
    uint64_t grad_bytes;
    uint64_t grad_slot_bytes;
    uint64_t unsharded_bytes;
    uint64_t state_bytes; /* of all states */
    uint32_t n_states;
    uint32_t is_stepping; /* 1 between step begin and end or discard */
    uint32_t is_editing;  /* 1 between edit_begin and edit_end */
    uint32_t reserved;    /* zero */
};

/**
 * Functions on models. Calls marked collective are so over the job.
 *
 * Since: 1.0
 */
struct hsdp_model_ops {
    size_t struct_size;

    /**
     * Compares the plan across ranks and allocates. All values are zero until they are edited, and
     * on a CPU take no memory before: a model larger than memory may be created, and each rank fill
     * what it can hold. Collective over the job.
     *
     * With verify=wrap it then proves the model: known gradients go through the slots, the wire
     * dtype, the reduction, the divisor and the norm, known masters through publish and unshard,
     * and each element of every unit must come out counted once, as the class and the mesh say.
     * That takes two steps of the model's communication, writes all of its memory, and leaves no
     * trace: values are zero again, the next step is step 1, and counters of steps, operations and
     * traffic are as before.
     *
     * Ownership: the plan may be destroyed afterwards; the job stays alive as long as the model.
     * Errors: HSDP_ERR_MISMATCH names the first differing entry of the plan and the rank, or says
     * that `verify` differs (but for access, which is each rank's own choice); HSDP_ERR_STATE when
     * the job is not connected or the plan not finished; HSDP_ERR_INVALID when the plan's world or
     * rank is not the job's; HSDP_ERR_UNSUPPORTED for what this plugin cannot execute, with a
     * sentence. HSDP_ERR_DEFECT, on every rank, when the proof fails: the sentence names class,
     * unit, the parameter if it is one that is wrong, how often gradients are counted and how often
     * they should be. The job goes on: a host may try another strategy.
     */
    int32_t (*create)(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model,
                      struct hsdp_error *reterr);

    /** Tells what a model is. */
    int32_t (*info)(const hsdp_model *model, struct hsdp_model_info *ret_info,
                    struct hsdp_error *reterr);

    /**
     * Gives the address of a parameter or of its gradient; may be asked once and kept.
     *
     * Shapes: the parameter's, row-major. A tied name answers with the storage it is tied to; but
     * the gradient of one that is tied across units is its own, in its own unit.
     * Errors: HSDP_ERR_INVALID for the gradient of a frozen parameter.
     */
    int32_t (*param_view)(hsdp_model *model, uint32_t param, int32_t view,
                          struct hsdp_tensor *ret_view, struct hsdp_error *reterr);

    /**
     * Gives the address of this rank's step shard of a buffer; may be asked once and kept.
     *
     * Shapes: (step_shard_elems).
     * Errors: HSDP_ERR_INVALID for gradient or state of a frozen buffer, or an unknown state.
     */
    int32_t (*flat_view)(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                         struct hsdp_tensor *ret_view, struct hsdp_error *reterr);

    /**
     * Creates an optimizer state, for example "exp_avg": one element per trainable element of the
     * step shards, zero when the call returns. It lives here, whoever steps, so that it is
     * counted, saved and resharded. The same name and dtype again answers the same index. All
     * ranks create the same states in the same order.
     *
     * Errors: HSDP_ERR_INVALID for a dtype other than fp32, bf16, fp16, a name that is not of 1 to
     * 63 bytes, or one with another dtype; HSDP_ERR_UNSUPPORTED beyond 64 states.
     */
    int32_t (*state_create)(hsdp_model *model, const char *name, const char *dtype,
                            uint32_t *ret_state, struct hsdp_error *reterr);

    /**
     * Tells a state, by its index from 0.
     *
     * Ownership: both texts live as long as the model.
     * Errors: HSDP_ERR_INVALID past the last one.
     */
    int32_t (*state_info)(const hsdp_model *model, uint32_t state, const char **ret_name,
                          const char **ret_dtype, struct hsdp_error *reterr);

    /**
     * Opens the flat views of master and states for writing: loading, initialisation of the own
     * slice only, averaging. Collective over the job.
     *
     * Errors: HSDP_ERR_STATE when a unit is unsharded or in an open pass, or a step or an edit is
     * open.
     */
    int32_t (*edit_begin)(hsdp_model *model, void *stream, struct hsdp_error *reterr);

    /**
     * Publishes what was written, so that every rank's next unshard sees it. Collective over the
     * job.
     *
     * Errors: HSDP_ERR_STATE outside of an edit.
     */
    int32_t (*edit_end)(hsdp_model *model, void *stream, struct hsdp_error *reterr);

    /**
     * Fills one parameter, or a state of it, from a full tensor, inside an edit. Collective over
     * the ranks of one plan: those that differ only in dimensions over which a class is replicated
     * or reduced. With HSDP_ALL_RANKS local. A tied name is its storage, here and in export_param:
     * one of the names will do, and the last import counts.
     *
     * Shapes: the parameter's; dtype fp32, bf16 or fp16, converted; on the job's device or the
     * host. source_rank = HSDP_ALL_RANKS: every rank passes the same values and nothing is sent;
     * else a rank of the parameter's own reduced_over, the same for all of them: only its tensor
     * counts, and the others may pass NULL.
     *
     * Errors: HSDP_ERR_STATE outside of an edit; HSDP_ERR_INVALID for another shape or dtype, a
     * gradient (unit->grad_add takes those), a rank that does not share the parameter, or a tensor
     * on another device than the job's; HSDP_ERR_UNSUPPORTED for one that is not contiguous, or,
     * where the job has no device, not on a CPU; HSDP_ERR_MISMATCH, which fails the job, when ranks
     * name different parameters, states or sources, or one of them makes another call. Where one
     * rank has another error, an argument or memory, all get it, with that rank's number, and
     * nothing is moved.
     */
    int32_t (*import_param)(hsdp_model *model, uint32_t param, int32_t flat,
                            const struct hsdp_tensor *full, uint32_t source_rank, void *stream,
                            struct hsdp_error *reterr);

    /**
     * Writes one parameter, its gradient (inside a step), or a state of it, to the memory of a full
     * tensor of the host. Masters and states can be read at any time, not only in an edit.
     * Collective as import_param is with a source. target_rank = HSDP_ALL_RANKS: all receive it;
     * else one does, a rank of the parameter's own reduced_over, and the others may pass NULL.
     *
     * Errors: as import_param; HSDP_ERR_STATE for a gradient outside of a step.
     */
    int32_t (*export_param)(hsdp_model *model, uint32_t param, int32_t flat,
                            const struct hsdp_tensor *full, uint32_t target_rank, void *stream,
                            struct hsdp_error *reterr);

    /**
     * Gives all replicas of each step shard the values of the first one, inside an edit: masters
     * and states. Then copies on other pipeline stages (tied_over) get those of the first holder.
     * Collective over the job.
     *
     * Errors: HSDP_ERR_STATE outside of an edit; HSDP_ERR_INVALID on all ranks when they have made
     * different states, naming both.
     */
    int32_t (*sync)(hsdp_model *model, void *stream, struct hsdp_error *reterr);

    /** Gives a model back; NULL is accepted. Local. Its views are gone. */
    void (*destroy)(hsdp_model *model);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_MODEL_INFO_INIT HSDP_INIT_(hsdp_model_info)

#endif /* HSDP_MODEL_H */
