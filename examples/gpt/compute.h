/* SPDX-License-Identifier: Apache-2.0 */
/* One microbatch over the units of a session: unshard, compute, reduce, release. */
#ifndef GPT_COMPUTE_H
#define GPT_COMPUTE_H

#include "session.h"

struct compute {
    struct session *session; /* borrowed */
    float *arena_base;
    struct model_arena arena;
    float
        *values;  /* one unit in fp32, where the views of the plugin are narrower, or on a device */
    float *grads; /* likewise its gradients */
    uint8_t *inputs;     /* (B, T) */
    uint8_t *targets;    /* (B, T) */
    uint64_t *tickets;   /* of each unit's unshard */
    uint8_t *is_started; /* 1: the unit's unshard was issued ahead */
    uint32_t *backward;  /* the units in reverse */
};

int compute_init(struct compute *compute, struct session *session, struct fault *ret_fault);
void compute_fini(struct compute *compute);

/*
 * Forward of the sequences in `inputs` and `targets`. With keep_head 1 the last unit stays
 * unsharded for compute_backward, which must follow.
 */
int compute_forward(struct compute *compute, int keep_head, struct fault *ret_fault);
/* Backward of what compute_forward has kept; scope is HSDP_SCOPE_*. */
int compute_backward(struct compute *compute, int32_t scope, struct fault *ret_fault);
/* Sum of the mean losses of the first n_sequences. */
double compute_loss(const struct compute *compute, uint32_t n_sequences);

#endif
