/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: gradient norm, clipping, and publishing what an optimizer has written. */
#ifndef HSDP_STEP_H
#define HSDP_STEP_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 *     begin    starts one collective for norm, non-finite flag and token weight
 *     result   waits for it
 *     ...      the optimizer writes HSDP_FLAT_MASTER and states, from HSDP_FLAT_GRAD * factor
 *     end      publishes the new parameters            (or discard: nothing is published)
 *
 * What a host sees of gradients in a step, HSDP_FLAT_GRAD and what export_param writes, is divided.
 * The squared norm is the exact sum of the squares of the divided fp32 gradients, rounded once to
 * fp64; each logical element counts once, also what is tied over pipeline stages. It does not
 * depend on strategy, sharding or order. Other norm_p likewise: powers and root are good to 1e-15,
 * the sum of the powers is exact; they take some tens of times as long as p = 1 and 2.
 *
 *     factor = gradient_scale / weight * clip,  clip = min(1, max_norm / (norm + 1e-6))
 *
 * where norm is that of the gradients times gradient_scale / weight, and `weight` is the sum over
 * data ranks, or 1 unless the host gives one. A sum of 0 makes the norm NaN. A non-finite norm sets
 * the flag and makes clip 1; gradients stay as they are.
 *
 * With verify=step:N each step whose number is a multiple of N compares what replicas hold: the
 * parameters, the masters, and the states, as they are when the step begins; so it does with the
 * copies of parameters that are tied over other ranks. Every bit counts, but for padding. This
 * reads all of them once and adds a word to the step's collective. Only when something differs are
 * there more collectives, in the first call that waits for the step's result.
 *
 * On a device norm, clipping, hsdp.adamw and publishing are put there in order, and none of these
 * calls waits for the device or for other ranks: unless the host needs the step's numbers, which it
 * does in result, with error_if_nonfinite, and in a step that compares replicas. So a step may end
 * before its collective is over. What that one finds wrong is then an error of any later call, at
 * the latest of the next begin, which waits for it.
 */

/**
 * How to step. The numbers are equal on all ranks, but for `weight`.
 *
 * Since: 1.0
 */
struct hsdp_step_spec {
    size_t struct_size;    /* sizeof(struct hsdp_step_spec) */
    double max_norm;       /* 0 = do not clip */
    double norm_p;         /* 0 = 2; any number from 1 to 8; infinity = largest element */
    double gradient_scale; /* 0 = 1; for instance 1 / microbatches, or 1 / loss scale */
    double weight; /* this rank's tokens: gradients are divided by the sum over data ranks. Peers in
                      other dimensions pass equal weights, which count once. For gradient_op sum
                      only */
    void *stream;  /* where the host has written and will read */
    uint32_t error_if_nonfinite; /* 1: result answers HSDP_ERR_NONFINITE on every rank, and the
                                    step is still open, to be discarded */
    uint32_t has_weight;         /* 1: weight counts, also when it is 0; equal on all ranks */
};

/**
 * What a step found; the same bits on every rank.
 *
 * Since: 1.0
 */
struct hsdp_step_info {
    size_t struct_size; /* sizeof(struct hsdp_step_info) */
    double norm;   /* after gradient_scale and weight; NaN if an element is, else inf if one is */
    double clip;   /* 0 < clip <= 1 */
    double factor; /* what the optimizer multiplies gradients by */
    double weight; /* the sum over data ranks; 0 = none was given */
    uint64_t step; /* this step's number, from 1 */
    uint32_t is_nonfinite; /* 1 on every rank if any element of any rank is inf or NaN */
    uint32_t reserved;     /* zero */
};

/**
 * Functions on steps. begin, end and discard are collective over the job.
 *
 * Since: 1.0
 */
struct hsdp_step_ops {
    size_t struct_size;

    /**
     * Closes the window and opens a step.
     *
     * Errors: HSDP_ERR_STATE names the unit that is still in an open pass, unsharded, or has
     * gradients that no FULL pass took up; or says that a step is open already.
     * HSDP_ERR_INVALID for numbers that are negative or not finite, a weight where gradients are
     * divided as a mean, or without has_weight, a norm_p that is none of those above, and a flag
     * that is neither 0 nor 1.
     *
     * Blocks: until this rank's reductions are done; where parameters are tied over pipeline
     * stages, until the ranks of those that hold the same elements have begun; in a step that
     * compares replicas, also until the parameters of the last step have arrived. On a device until
     * reductions are put there, and the collective of the last step is done.
     */
    int32_t (*begin)(hsdp_model *model, const struct hsdp_step_spec *spec, uint64_t *ret_ticket,
                     struct hsdp_error *reterr);

    /**
     * Waits for the step's collective. May be asked again.
     *
     * Errors: HSDP_ERR_MISMATCH when ranks began with other numbers, or one has discarded a step
     * that another ended; HSDP_ERR_NONFINITE if the host asked for it; HSDP_ERR_STATE when no step
     * is open; HSDP_ERR_DRIFT on every rank, also of end and of hsdp.adamw, when replicas differ:
     * it names the unit, two ranks, and what; of tied copies the parameter and a rank of each. The
     * step is still open, to be discarded; model->sync in an edit makes replicas equal again.
     */
    int32_t (*result)(hsdp_model *model, struct hsdp_step_info *ret_result,
                      struct hsdp_error *reterr);

    /**
     * Gives fp32[2] where the device can read them: norm and factor, valid when begin's ticket is
     * done, so that a device optimizer never waits for the host. The address is fixed.
     */
    int32_t (*factor_view)(hsdp_model *model, struct hsdp_tensor *ret_view,
                           struct hsdp_error *reterr);

    /**
     * Publishes the parameters and closes the step; gradients are dropped. The next unshard of
     * each rank waits for what it needs.
     *
     * Errors: HSDP_ERR_STATE when no step is open, or HSDP_ERR_NONFINITE has refused this one;
     * HSDP_ERR_DRIFT as result.
     */
    int32_t (*end)(hsdp_model *model, void *stream, uint64_t *ret_ticket,
                   struct hsdp_error *reterr);

    /**
     * Closes the step without publishing; gradients are dropped. For a host that has written
     * nothing to HSDP_FLAT_MASTER in this step: where masters are the parameters themselves
     * (master_dtype is param_dtype), what was written there cannot be taken back.
     *
     * Errors: HSDP_ERR_STATE when no step is open, or after hsdp.adamw has updated. Where a peer
     * has ended the step, the next unshard or step of either is HSDP_ERR_MISMATCH.
     */
    int32_t (*discard)(hsdp_model *model, void *stream, struct hsdp_error *reterr);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_STEP_SPEC_INIT HSDP_INIT_(hsdp_step_spec)
#define HSDP_STEP_INFO_INIT HSDP_INIT_(hsdp_step_info)

#endif /* HSDP_STEP_H */
