/* SPDX-License-Identifier: Apache-2.0 */
/* Units at work: unshard, release, backward passes, reduction. The hot path. */
#ifndef HSDP_UNIT_H
#define HSDP_UNIT_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One microbatch:
 *
 *     for each unit, in order:         unshard(FORWARD) ... compute ... release
 *     backward_begin(units in reverse order, scope)
 *     for each unit, in that order:    unshard(BACKWARD) ... compute, write gradients ...
 *                                      reduce, release
 *     backward_end
 *
 * The passes from one step to the next are a window. The last pass of every unit in a window has
 * the scope FULL; before it
 *
 *     NONE   gradients are added up on this rank, in fp32;
 *     INNER  they are reduced to the resting shard, and added up there;
 *     FULL   they are reduced over all of R to the step shard, and added up there.
 *
 * Each pass starts from a fresh gradient: BACKWARD_SET and BACKWARD never see what an earlier pass
 * has left. Nothing is divided before the step, and then by the ranks, not by the passes: the mean
 * over microbatches is the step's gradient_scale. A unit that a rank never hands over counts as
 * zeros, and so does one that is in no pass of the window. Units without trainable parameters need
 * no pass.
 *
 * On a network unshard is an all-gather and a reduction a reduce-scatter. So all ranks of a class
 * make the same unshard calls in the same order, those without tokens too; and they open and close
 * the same passes. A unit of which a rank has no gradient is unsharded there for HSDP_USE_FORWARD,
 * and skipped instead of reduced: that takes no slot, however many units follow. One that is
 * neither reduced nor skipped holds up those behind it, of which the `slots`-th cannot be acquired;
 * backward_end skips what is left.
 *
 * Ranks compare both, also over shared memory where nobody would wait: the units that are made
 * whole, among the ranks that share their parameters (releases count, since after the last one the
 * next unshard is an all-gather; a use beside another one is not), and the passes, among the ranks
 * that reduce them. A difference is HSDP_ERR_MISMATCH on all ranks: of a pass while it is open, of
 * an unshard at the next pass, wait or step. It names the first place that differs, counted from
 * the creation of the model, and both ranks and units.
 *
 * On devices gathers and reductions have one order, the same on all ranks. A reduction takes its
 * place before the unshard that needs its slot, or is of a unit `slots` behind it in the pass, or
 * at the end of the pass; so when a unit is handed over is each rank's own affair. But who waits
 * for the ticket of a reduction, or makes a stream wait, begins it there: all ranks do so at the
 * same places among their unshards, else HSDP_ERR_MISMATCH.
 */

#define HSDP_USE_FORWARD      0
#define HSDP_USE_BACKWARD     1 /* also acquires the gradient buffer, filled with zeros */
#define HSDP_USE_BACKWARD_SET 2 /* the same, unfilled: the host writes every parameter */

#define HSDP_SCOPE_NONE  0
#define HSDP_SCOPE_INNER 1
#define HSDP_SCOPE_FULL  2

/**
 * Functions on the units of a model. `unit` is the plan's index.
 *
 * Since: 1.0
 */
struct hsdp_unit_ops {
    size_t struct_size;

    /**
     * Makes a unit's parameters whole, and for a backward use acquires its gradient buffer. Uses
     * are counted: forward, recomputation and backward may overlap, each with its own release. A
     * backward use needs an open pass that holds the unit, once per pass.
     *
     * stream is where the host will read; *ret_ticket is done when it may. NULL for ret_ticket
     * orders `stream` behind it; on a CPU the call waits.
     * Blocks: a backward use, until peers have read what was in the gradient slot before.
     * Errors: HSDP_ERR_STATE names both units when another one still occupies the slot, and for a
     * backward use without an open pass that holds the unit, twice in a pass, `slots` or more
     * ahead of a unit that was not handed over (both are named), or in a step or an edit;
     * HSDP_ERR_INVALID for a use that is none.
     */
    int32_t (*unshard)(hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                       uint64_t *ret_ticket, struct hsdp_error *reterr);

    /**
     * Ends one use. After the last one the content of the views is undefined. `stream` is where
     * the host has read: the memory is not reused before that is done.
     *
     * Errors: HSDP_ERR_STATE without a use, or with a gradient not handed over by reduce.
     */
    int32_t (*release)(hsdp_model *model, uint32_t unit, void *stream, struct hsdp_error *reterr);

    /**
     * Adds a foreign or late gradient of one parameter: this rank's contribution, fp32, bf16 or
     * fp16, summed in fp32. It joins the reduction of the next hand-over, also where the unit is
     * skipped, or left out until backward_end. A window that ends before is an error of step.begin.
     *
     * Shapes: the parameter's.
     * Errors: HSDP_ERR_INVALID for another shape or dtype, a frozen parameter, or a tensor that
     * lies elsewhere than the job's device; HSDP_ERR_UNSUPPORTED for one that is not contiguous,
     * or, where the job has no device, not on a CPU.
     */
    int32_t (*grad_add)(hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad,
                        void *stream, struct hsdp_error *reterr);

    /**
     * Opens a backward pass over n_units units, in the order in which they will be reduced, with
     * one scope. Open passes have disjoint units (pipeline chunks). All ranks of a unit's class
     * declare the same units in the same order.
     *
     * Errors: HSDP_ERR_MISMATCH when a peer has declared something else;
     * HSDP_ERR_INVALID for a unit twice, or one with a name for a parameter of another unit
     * that is listed before it (both are named); HSDP_ERR_STATE for one that an open pass holds,
     * or a scope that needs more memory than `accumulation_scope` has planned.
     */
    int32_t (*backward_begin)(hsdp_model *model, const uint32_t *units, uint64_t n_units,
                              int32_t scope, uint64_t *ret_pass, struct hsdp_error *reterr);

    /**
     * Hands over the gradients of a unit. It is reduced when all units before it in the pass have
     * been handed over, so the sequence of collectives is the same on every rank. From here on
     * the host may not touch the gradient view: with verify=access a write faults at the line
     * that does it, unless another unit has acquired the slot. Does not release the parameters.
     * Gradients of names for parameters of other units join the next hand-over of those, as with
     * grad_add; in the same pass also one that was made already, within the slots.
     *
     * *ret_ticket is done when the reduction is, which the host need not await.
     *
     * Blocks: until the unit's reduction of the pass before is done.
     * Errors: HSDP_ERR_STATE when the unit has no gradient buffer, is not in the pass, or was
     * handed over or skipped already, and when the pass has ended, here and below;
     * HSDP_ERR_INVALID for one that never was.
     */
    int32_t (*reduce)(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                      uint64_t *ret_ticket, struct hsdp_error *reterr);

    /**
     * Hands over a unit of which this rank has no gradient in a pass: zeros, and what grad_add has
     * brought. Its place in the order is the same as with reduce. Needs no gradient buffer.
     *
     * *ret_ticket is done when the reduction is, which the host need not await.
     *
     * Blocks: until the unit's reduction of the pass before is done.
     * Errors: HSDP_ERR_STATE when the unit is not in the pass, was handed over or skipped already,
     * or has acquired its gradient buffer, which only reduce hands over.
     */
    int32_t (*skip)(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                    uint64_t *ret_ticket, struct hsdp_error *reterr);

    /**
     * Closes a pass; units neither handed over nor skipped count as zeros on this rank.
     *
     * Errors: HSDP_ERR_STATE when a unit's gradient buffer was acquired and not handed over.
     */
    int32_t (*backward_end)(hsdp_model *model, uint64_t pass, void *stream, uint64_t *ret_ticket,
                            struct hsdp_error *reterr);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HSDP_UNIT_H */
