/* SPDX-License-Identifier: Apache-2.0 */
/* Extension hsdp.adamw: clip, AdamW and publish in one pass over the flat shards. */
#ifndef HSDP_ADAMW_H
#define HSDP_ADAMW_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HSDP_ADAMW_EXTENSION "hsdp.adamw"

/**
 * Hyperparameters of one step; the host passes the same on all ranks. Those that share units
 * compare them in the next step: HSDP_ERR_MISMATCH names the first that differs.
 *
 * Since: 1.0
 */
struct hsdp_adamw_spec {
    size_t struct_size;          /* sizeof(struct hsdp_adamw_spec) */
    const double *learning_rate; /* n_hyper_groups values, finite, >= 0 */
    const double *weight_decay;  /* likewise; decoupled: p -= lr * decay * p */
    uint64_t step;               /* of the bias correction, from 1; 0 = one more than last time.
                                    After loading states say it: a new model begins with 1 */
    double beta1;                /* 0 <= beta < 1 */
    double beta2;
    double epsilon;          /* finite, > 0 */
    void *stream;            /* in its order the update is made */
    uint32_t n_hyper_groups; /* more than every parameter's hyper_group */
    uint32_t reserved;       /* zero */
};

/**
 * Functions of the extension.
 *
 * Since: 1.0
 */
struct hsdp_adamw_ops {
    size_t struct_size;

    /**
     * Updates all trainable parameters from the step's gradients times its factor, in fp32, with
     * states "exp_avg" and "exp_avg_sq" (fp32) that it creates at first use. Between step begin
     * and end; it comes behind the step's collective by itself. With g = gradient * factor, t =
     * step, m = exp_avg, v = exp_avg_sq, and lr and decay of the parameter's hyper_group,
     *
     *     m = beta1 m + (1 - beta1) g,    v = beta2 v + (1 - beta2) g^2
     *     p = p - lr decay p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
     *
     * Masters of bf16 and fp16 are rounded when they are stored, to the nearest: an update below
     * half a unit of their last place is lost.
     *
     * Where the norm is not finite the update is made nonetheless, with clip 1, unless the step has
     * error_if_nonfinite.
     *
     * Blocks: on a CPU, until the step's collective is done.
     * Errors: HSDP_ERR_STATE outside of a step or when called twice in one; HSDP_ERR_NONFINITE and
     * HSDP_ERR_DRIFT as step.result; HSDP_ERR_INVALID for numbers out of range, and a parameter
     * whose hyper_group is not below n_hyper_groups.
     */
    int32_t (*step)(hsdp_model *model, const struct hsdp_adamw_spec *spec,
                    struct hsdp_error *reterr);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_ADAMW_SPEC_INIT HSDP_INIT_(hsdp_adamw_spec)

#endif /* HSDP_ADAMW_H */
