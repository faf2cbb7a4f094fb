/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention with one pair of matrix products per head, and rotary positions. */
#include "layers.h"

#include <tgmath.h>

#define ROTARY_BASE 10000.0

/* Rows of one head inside (B, T, 3C): `part` 0 queries, 1 keys, 2 values. */
static real *head_rows(real *qkv, const struct attention_state *a, size_t batch, size_t head,
                       size_t part)
{
    const size_t head_channels = a->n_channels / a->n_heads;

    return qkv + batch * a->n_positions * 3 * a->n_channels + part * a->n_channels +
           head * head_channels;
}

static real *head_probability(const struct attention_state *a, size_t batch, size_t head)
{
    return a->probability + (batch * a->n_heads + head) * a->n_positions * a->n_positions;
}

/* Softmax over positions 0..t of each row t of score (T, T); later positions become zero. */
static void softmax_causal(real *score, size_t n_positions)
{
    for (size_t t = 0; t < n_positions; t++) {
        real *row = score + t * n_positions;
        real largest = row[0], sum = 0;

        for (size_t s = 1; s <= t; s++) {
            largest = row[s] > largest ? row[s] : largest;
        }
        for (size_t s = 0; s <= t; s++) {
            row[s] = exp(row[s] - largest);
            sum += row[s];
        }
        for (size_t s = 0; s <= t; s++) {
            row[s] /= sum;
        }
        for (size_t s = t + 1; s < n_positions; s++) {
            row[s] = 0;
        }
    }
}

/* d_score (T, T) holds the gradient of the softmax's output and becomes that of its input. */
static void softmax_backward(real *d_score, const real *probability, size_t n_positions)
{
    for (size_t t = 0; t < n_positions; t++) {
        const real *share = probability + t * n_positions;
        real *grad = d_score + t * n_positions;
        real sum = 0;

        for (size_t s = 0; s <= t; s++) {
            sum += share[s] * grad[s];
        }
        for (size_t s = 0; s <= t; s++) {
            grad[s] = share[s] * (grad[s] - sum);
        }
        for (size_t s = t + 1; s < n_positions; s++) {
            grad[s] = 0;
        }
    }
}

static void head_forward(real *out, const struct attention_state *a, size_t batch, size_t head)
{
    const int n = (int)a->n_positions, wide = 3 * (int)a->n_channels, width = (int)a->n_channels;
    const size_t head_channels = a->n_channels / a->n_heads;
    const real scale = 1 / sqrt((real)head_channels);
    real *score = head_probability(a, batch, head);

    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, (int)head_channels, scale,
              head_rows(a->qkv, a, batch, head, 0), wide, head_rows(a->qkv, a, batch, head, 1),
              wide, 0, score, n);
    softmax_causal(score, a->n_positions);
    real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, (int)head_channels, n, 1, score, n,
              head_rows(a->qkv, a, batch, head, 2), wide, 0,
              out + batch * a->n_positions * a->n_channels + head * head_channels, width);
}

void attention_forward(real *out, const struct attention_state *attention)
{
    for (size_t batch = 0; batch < attention->n_batch; batch++) {
        for (size_t head = 0; head < attention->n_heads; head++) {
            head_forward(out, attention, batch, head);
        }
    }
}

static void head_backward(real *d_qkv, real *d_score, const real *d_head,
                          const struct attention_state *a, const size_t at[2])
{
    const int n = (int)a->n_positions, wide = 3 * (int)a->n_channels, width = (int)a->n_channels;
    const int depth = (int)(a->n_channels / a->n_heads);
    const real scale = 1 / sqrt((real)depth);
    const real *probability = head_probability(a, at[0], at[1]);

    /* values: dV = P^T dO; probabilities: dP = dO V^T */
    real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, depth, n, 1, probability, n, d_head,
              width, 0, head_rows(d_qkv, a, at[0], at[1], 2), wide);
    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, depth, 1, d_head, width,
              head_rows(a->qkv, a, at[0], at[1], 2), wide, 0, d_score, n);
    softmax_backward(d_score, probability, a->n_positions);
    /* queries: dQ = dS K; keys: dK = dS^T Q */
    real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, depth, n, scale, d_score, n,
              head_rows(a->qkv, a, at[0], at[1], 1), wide, 0, head_rows(d_qkv, a, at[0], at[1], 0),
              wide);
    real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, depth, n, scale, d_score, n,
              head_rows(a->qkv, a, at[0], at[1], 0), wide, 0, head_rows(d_qkv, a, at[0], at[1], 1),
              wide);
}

void attention_backward(real *d_qkv, real *scratch, const real *d_out,
                        const struct attention_state *attention)
{
    const size_t head_channels = attention->n_channels / attention->n_heads;

    for (size_t batch = 0; batch < attention->n_batch; batch++) {
        for (size_t head = 0; head < attention->n_heads; head++) {
            const real *d_head = d_out + batch * attention->n_positions * attention->n_channels +
                                 head * head_channels;
            const size_t at[2] = {batch, head};

            head_backward(d_qkv, scratch, d_head, attention, at);
        }
    }
}

void rotary_table(real *table, size_t n_positions, size_t head_channels)
{
    for (size_t t = 0; t < n_positions; t++) {
        for (size_t pair = 0; pair < head_channels / 2; pair++) {
            const double exponent = -2.0 * (double)pair / (double)head_channels;
            const double angle = (double)t * pow(ROTARY_BASE, exponent);

            table[t * head_channels + 2 * pair] = (real)cos(angle);
            table[t * head_channels + 2 * pair + 1] = (real)sin(angle);
        }
    }
}

/* Turns the pairs of one head's channels at one position. */
static void pairs_turn(real *x, const real *turn, real direction, size_t head_channels)
{
    for (size_t c = 0; c + 1 < head_channels; c += 2) {
        const real cosine = turn[c], sine = direction * turn[c + 1];
        const real first = x[c], second = x[c + 1];

        x[c] = first * cosine - second * sine;
        x[c + 1] = first * sine + second * cosine;
    }
}

void rotary_turn(real *qkv, const real *table, int direction,
                 const struct attention_state *attention)
{
    const size_t width = attention->n_channels, head_channels = width / attention->n_heads;
    const size_t n_rows = attention->n_batch * attention->n_positions;

    for (size_t row = 0; row < n_rows; row++) {
        const real *turn = table + row % attention->n_positions * head_channels;

        /* queries and keys lie side by side: 2C channels are turned, the values are not */
        for (size_t c = 0; c < 2 * width; c += head_channels) {
            pairs_turn(qkv + row * 3 * width + c, turn, (real)direction, head_channels);
        }
    }
}
