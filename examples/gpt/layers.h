/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the transformer, forward and backward, on row-major arrays that the caller owns. */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "real.h"

/*
 * Shapes: B sequences, T positions, C channels, H heads, N = B * T rows, V vocabulary.
 * A gradient of a parameter is set, every element of it; a gradient of an input is set unless the
 * name says `add`. All results depend only on the values, not on addresses.
 */

struct linear_size {
    size_t n_rows; /* N */
    size_t n_in;   /* I */
    size_t n_out;  /* O */
};

/* out (N, O) = inp (N, I) weight (O, I)^T + bias (O); no bias where it is NULL. */
void linear_forward(real *out, const real *inp, const real *weight, const real *bias,
                    struct linear_size size);
/* d_inp (N, I) = d_out (N, O) weight (O, I). */
void linear_backward_input(real *d_inp, const real *d_out, const real *weight,
                           struct linear_size size);
/* d_weight (O, I) = d_out (N, O)^T inp (N, I), d_bias (O) = sum of d_out over rows; NULL = none. */
void linear_backward_param(real *d_weight, real *d_bias, const real *d_out, const real *inp,
                           struct linear_size size);

/* One layer normalisation over the channels; `stats` (N, 2) keeps mean and 1 / deviation. */
struct norm_state {
    const real *inp;    /* (N, C) */
    const real *weight; /* (C) */
    real *stats;        /* (N, 2) */
    size_t n_rows;
    size_t n_channels;
};

void norm_forward(real *out, const real *bias, const struct norm_state *norm);
/* Adds to d_inp (N, C), which holds the gradient of the residual path; sets d_weight, d_bias (C).
 */
void norm_backward_add(real *d_inp, real *d_weight, real *d_bias, const real *d_out,
                       const struct norm_state *norm);

/* GELU in its tanh form, over n elements. */
void gelu_forward(real *out, const real *inp, size_t n_elems);
/* d_grad (n) holds the gradient of the output and becomes that of the input. */
void gelu_backward(real *d_grad, const real *inp, size_t n_elems);

struct attention_state {
    real *qkv;         /* (B, T, 3C): queries, keys, values, heads side by side */
    real *probability; /* (B, H, T, T) */
    size_t n_batch;
    size_t n_positions;
    size_t n_channels;
    size_t n_heads;
};

/* out (B, T, C) = causal softmax(q k^T / sqrt(C / H)) v. */
void attention_forward(real *out, const struct attention_state *attention);
/* Sets d_qkv (B, T, 3C); scratch (T, T) is the caller's. */
void attention_backward(real *d_qkv, real *scratch, const real *d_out,
                        const struct attention_state *attention);

/*
 * Turns pairs of query and key channels by the angle of their position; direction 1 forward,
 * -1 backward. `table` (T, C / H) from rotary_table: cosine and sine of each pair.
 */
void rotary_table(real *table, size_t n_positions, size_t head_channels);
void rotary_turn(real *qkv, const real *table, int direction,
                 const struct attention_state *attention);

/* Softmax of each row of logits (N, V) in place; losses (N) = -log of the target's share. */
void entropy_forward(real *losses, real *logits, const uint8_t *targets, size_t n_rows,
                     size_t n_classes);
/* probability (N, V) becomes the gradient of the mean loss over the rows. */
void entropy_backward(real *probability, const uint8_t *targets, size_t n_rows, size_t n_classes);

#endif
