/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer as a list of units: what parameters each has, and its forward and backward. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "real.h"

#define MODEL_VOCABULARY     256u
#define MODEL_MAX_PARAMS     12u /* of one unit */
#define MODEL_NAME_BYTES     64u
#define MODEL_GROUP_DECAY    0u /* matrices */
#define MODEL_GROUP_NO_DECAY 1u /* norms, biases, embeddings */

struct model_shape {
    uint32_t n_layers;
    uint32_t n_channels;  /* C */
    uint32_t n_heads;     /* H */
    uint32_t n_positions; /* T */
    uint32_t n_batch;     /* B, sequences in a microbatch */
    uint32_t is_rotary;   /* 0: learned positions */
};

/* One parameter: its full name, shape, first values and the group of its optimizer constants. */
struct model_param {
    char name[MODEL_NAME_BYTES];
    int64_t shape[2];
    uint32_t n_dims;
    uint32_t hyper_group;
    double deviation; /* of the normal distribution it starts from; 0: it starts at `constant` */
    double constant;
};

/* Units in forward order: 0 the embedding, 1..n_layers the blocks, then the head. */
uint32_t model_n_units(const struct model_shape *shape);
void model_unit_name(const struct model_shape *shape, uint32_t unit, char *ret_name, size_t bytes);
/* Fills the unit's parameters in the order in which forward and backward take them. */
uint32_t model_unit_params(const struct model_shape *shape, uint32_t unit,
                           struct model_param ret_params[MODEL_MAX_PARAMS]);
uint64_t model_param_elems(const struct model_param *param);

/* Activations and scratch of one microbatch, in memory that the caller owns. */
struct model_arena {
    real *streams;   /* (n_layers + 1, B, T, C): output of the embedding and of every block */
    real *blocks;    /* what each block keeps for its backward pass */
    real *normed;    /* (B, T, C) of the head */
    real *stats;     /* (B, T, 2) of the head */
    real *logits;    /* (B, T, V), then probabilities, then their gradient */
    real *losses;    /* (B, T) */
    real *d_stream;  /* (B, T, C): gradient of the current unit's output, then of its input */
    real *d_channel; /* (B, T, C) */
    real *d_wide;    /* (B, T, 4C) */
    real *d_score;   /* (T, T) */
    real *turns;     /* (T, C / H): rotary cosines and sines */
};

size_t model_arena_elems(const struct model_shape *shape);
/* Lays the arena out in `base`, model_arena_elems long, and fills the constant tables. */
void model_arena_init(const struct model_shape *shape, real *base, struct model_arena *ret_arena);

/* One microbatch: inputs and targets are (B, T) bytes. */
struct model_pass {
    const struct model_shape *shape;
    const struct model_arena *arena;
    const uint8_t *inputs;
    const uint8_t *targets;
};

/* Runs one unit; units come in order, 0 to n_units - 1. */
void model_forward(const struct model_pass *pass, uint32_t unit, const real *const *params);
/* Sets every gradient of one unit for the mean loss; units come in reverse order, once each. */
void model_backward(const struct model_pass *pass, uint32_t unit, const real *const *params,
                    real *const *grads);
/* Mean loss of sequences 0..n_sequences-1 after the head's forward. */
double model_loss(const struct model_pass *pass, uint32_t n_sequences);

#endif
