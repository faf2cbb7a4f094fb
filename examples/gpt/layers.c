/* SPDX-License-Identifier: Apache-2.0 */
/* Linear maps, normalisation, GELU and cross-entropy, forward and backward. */
#include "layers.h"

#include <string.h>
#include <tgmath.h>

#define NORM_EPSILON ((real)1e-5)
#define GELU_SCALE   ((real)0.79788456080286535588) /* sqrt(2 / pi) */
#define GELU_CUBIC   ((real)0.044715)

void linear_forward(real *out, const real *inp, const real *weight, const real *bias,
                    struct linear_size size)
{
    const int n_rows = (int)size.n_rows, n_in = (int)size.n_in, n_out = (int)size.n_out;

    if (bias != NULL) {
        for (size_t row = 0; row < size.n_rows; row++) {
            memcpy(out + row * size.n_out, bias, size.n_out * sizeof(*out));
        }
    }
    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_out, n_in, 1, inp, n_in, weight,
              n_in, bias != NULL ? 1 : 0, out, n_out);
}

void linear_backward_input(real *d_inp, const real *d_out, const real *weight,
                           struct linear_size size)
{
    const int n_rows = (int)size.n_rows, n_in = (int)size.n_in, n_out = (int)size.n_out;

    real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n_rows, n_in, n_out, 1, d_out, n_out,
              weight, n_in, 0, d_inp, n_in);
}

void linear_backward_param(real *d_weight, real *d_bias, const real *d_out, const real *inp,
                           struct linear_size size)
{
    const int n_rows = (int)size.n_rows, n_in = (int)size.n_in, n_out = (int)size.n_out;

    real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, n_out, n_in, n_rows, 1, d_out, n_out, inp,
              n_in, 0, d_weight, n_in);
    if (d_bias == NULL) {
        return;
    }
    memset(d_bias, 0, size.n_out * sizeof(*d_bias));
    for (size_t row = 0; row < size.n_rows; row++) {
        for (size_t o = 0; o < size.n_out; o++) {
            d_bias[o] += d_out[row * size.n_out + o];
        }
    }
}

void norm_forward(real *out, const real *bias, const struct norm_state *norm)
{
    const size_t width = norm->n_channels;

    for (size_t row = 0; row < norm->n_rows; row++) {
        const real *x = norm->inp + row * width;
        real *y = out + row * width;
        real mean = 0, variance = 0;

        for (size_t c = 0; c < width; c++) {
            mean += x[c];
        }
        mean /= (real)width;
        for (size_t c = 0; c < width; c++) {
            variance += (x[c] - mean) * (x[c] - mean);
        }
        const real inverse = 1 / sqrt(variance / (real)width + NORM_EPSILON);
        for (size_t c = 0; c < width; c++) {
            y[c] = (x[c] - mean) * inverse * norm->weight[c] + bias[c];
        }
        norm->stats[2 * row] = mean;
        norm->stats[2 * row + 1] = inverse;
    }
}

void norm_backward_add(real *d_inp, real *d_weight, real *d_bias, const real *d_out,
                       const struct norm_state *norm)
{
    const size_t width = norm->n_channels;

    memset(d_weight, 0, width * sizeof(*d_weight));
    memset(d_bias, 0, width * sizeof(*d_bias));
    for (size_t row = 0; row < norm->n_rows; row++) {
        const real mean = norm->stats[2 * row], inverse = norm->stats[2 * row + 1];
        const real *x = norm->inp + row * width, *dy = d_out + row * width;
        real *dx = d_inp + row * width;
        real sum_scaled = 0, sum_projected = 0;

        for (size_t c = 0; c < width; c++) {
            const real normed = (x[c] - mean) * inverse, scaled = dy[c] * norm->weight[c];

            sum_scaled += scaled;
            sum_projected += scaled * normed;
            d_weight[c] += dy[c] * normed;
            d_bias[c] += dy[c];
        }
        sum_scaled /= (real)width;
        sum_projected /= (real)width;
        for (size_t c = 0; c < width; c++) {
            const real normed = (x[c] - mean) * inverse, scaled = dy[c] * norm->weight[c];

            dx[c] += (scaled - sum_scaled - normed * sum_projected) * inverse;
        }
    }
}

/* The argument of GELU's tanh. */
static real gelu_argument(real x)
{
    return GELU_SCALE * (x + GELU_CUBIC * x * x * x);
}

void gelu_forward(real *out, const real *inp, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        const real x = inp[i];

        /* x / (1 + exp(-2a)) is x (1 + tanh a) / 2 with one call of exp */
        out[i] = x / (1 + exp(-2 * gelu_argument(x)));
    }
}

void gelu_backward(real *d_grad, const real *inp, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        const real x = inp[i];
        const real share = 1 / (1 + exp(-2 * gelu_argument(x)));
        const real slope = 2 * GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x);

        d_grad[i] *= share + x * share * (1 - share) * slope;
    }
}

void entropy_forward(real *losses, real *logits, const uint8_t *targets, size_t n_rows,
                     size_t n_classes)
{
    for (size_t row = 0; row < n_rows; row++) {
        real *share = logits + row * n_classes;
        const real target = share[targets[row]];
        real largest = share[0], sum = 0;

        for (size_t v = 1; v < n_classes; v++) {
            largest = share[v] > largest ? share[v] : largest;
        }
        for (size_t v = 0; v < n_classes; v++) {
            share[v] = exp(share[v] - largest);
            sum += share[v];
        }
        for (size_t v = 0; v < n_classes; v++) {
            share[v] /= sum;
        }
        losses[row] = log(sum) + largest - target;
    }
}

void entropy_backward(real *probability, const uint8_t *targets, size_t n_rows, size_t n_classes)
{
    for (size_t row = 0; row < n_rows; row++) {
        real *grad = probability + row * n_classes;

        grad[targets[row]] -= 1;
        for (size_t v = 0; v < n_classes; v++) {
            grad[v] /= (real)n_rows;
        }
    }
}
