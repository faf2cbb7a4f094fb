/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer as a list of units: activations, embedding, head; the blocks are in block.c. */
#include "model.h"

#include <string.h>

#include "layers.h"
#include "units.h"

static size_t shape_rows(const struct model_shape *shape)
{
    return (size_t)shape->n_batch * shape->n_positions;
}

static size_t stream_elems(const struct model_shape *shape)
{
    return shape_rows(shape) * shape->n_channels;
}

/* Takes n reals from the arena at *next; with a NULL base it only counts. */
static real *arena_take(real *base, size_t *next, size_t n_elems)
{
    real *at = base == NULL ? NULL : base + *next;

    *next += (n_elems + 15) / 16 * 16;
    return at;
}

static size_t arena_layout(const struct model_shape *shape, real *base,
                           struct model_arena *ret_arena)
{
    const size_t rows = shape_rows(shape), stream = stream_elems(shape);
    const size_t square = (size_t)shape->n_positions * shape->n_positions;
    const size_t turns = (size_t)shape->n_positions * (shape->n_channels / shape->n_heads);
    size_t next = 0;

    ret_arena->streams = arena_take(base, &next, (shape->n_layers + 1) * stream);
    ret_arena->blocks = arena_take(base, &next, shape->n_layers * block_elems(shape));
    ret_arena->normed = arena_take(base, &next, stream);
    ret_arena->stats = arena_take(base, &next, rows * 2);
    ret_arena->logits = arena_take(base, &next, rows * MODEL_VOCABULARY);
    ret_arena->losses = arena_take(base, &next, rows);
    ret_arena->d_stream = arena_take(base, &next, stream);
    ret_arena->d_channel = arena_take(base, &next, stream);
    ret_arena->d_wide = arena_take(base, &next, 4 * stream);
    ret_arena->d_score = arena_take(base, &next, square);
    ret_arena->turns = arena_take(base, &next, turns);
    return next;
}

size_t model_arena_elems(const struct model_shape *shape)
{
    struct model_arena arena;

    return arena_layout(shape, NULL, &arena);
}

void model_arena_init(const struct model_shape *shape, real *base, struct model_arena *ret_arena)
{
    arena_layout(shape, base, ret_arena);
    if (shape->is_rotary) {
        rotary_table(ret_arena->turns, shape->n_positions, shape->n_channels / shape->n_heads);
    }
}

static void embedding_forward(const struct model_pass *pass, const real *const *params)
{
    const size_t width = pass->shape->n_channels, n_positions = pass->shape->n_positions;

    for (size_t row = 0; row < shape_rows(pass->shape); row++) {
        const real *token = params[EMBEDDING_TOKEN] + pass->inputs[row] * width;
        real *out = pass->arena->streams + row * width;

        memcpy(out, token, width * sizeof(*out));
        if (!pass->shape->is_rotary) {
            const real *position = params[EMBEDDING_POSITION] + row % n_positions * width;

            for (size_t c = 0; c < width; c++) {
                out[c] += position[c];
            }
        }
    }
}

static void embedding_backward(const struct model_pass *pass, real *const *grads)
{
    const size_t width = pass->shape->n_channels, n_positions = pass->shape->n_positions;

    memset(grads[EMBEDDING_TOKEN], 0, MODEL_VOCABULARY * width * sizeof(real));
    if (!pass->shape->is_rotary) {
        memset(grads[EMBEDDING_POSITION], 0, n_positions * width * sizeof(real));
    }
    for (size_t row = 0; row < shape_rows(pass->shape); row++) {
        const real *d_out = pass->arena->d_stream + row * width;
        real *d_token = grads[EMBEDDING_TOKEN] + pass->inputs[row] * width;

        for (size_t c = 0; c < width; c++) {
            d_token[c] += d_out[c];
        }
        if (!pass->shape->is_rotary) {
            real *d_position = grads[EMBEDDING_POSITION] + row % n_positions * width;

            for (size_t c = 0; c < width; c++) {
                d_position[c] += d_out[c];
            }
        }
    }
}

static struct norm_state head_norm(const struct model_pass *pass, const real *const *params)
{
    const struct model_shape *shape = pass->shape;

    return (struct norm_state){
        .inp = pass->arena->streams + shape->n_layers * stream_elems(shape),
        .weight = params[HEAD_NORM_WEIGHT],
        .stats = pass->arena->stats,
        .n_rows = shape_rows(shape),
        .n_channels = shape->n_channels,
    };
}

static struct linear_size head_size(const struct model_shape *shape)
{
    return (struct linear_size){
        .n_rows = shape_rows(shape), .n_in = shape->n_channels, .n_out = MODEL_VOCABULARY};
}

static void head_forward(const struct model_pass *pass, const real *const *params)
{
    const struct model_arena *arena = pass->arena;
    const struct norm_state norm = head_norm(pass, params);

    norm_forward(arena->normed, params[HEAD_NORM_BIAS], &norm);
    linear_forward(arena->logits, arena->normed, params[HEAD_OUTPUT_WEIGHT], NULL,
                   head_size(pass->shape));
    entropy_forward(arena->losses, arena->logits, pass->targets, norm.n_rows, MODEL_VOCABULARY);
}

static void head_backward(const struct model_pass *pass, const real *const *params,
                          real *const *grads)
{
    const struct model_arena *arena = pass->arena;
    const struct norm_state norm = head_norm(pass, params);

    entropy_backward(arena->logits, pass->targets, norm.n_rows, MODEL_VOCABULARY);
    linear_backward_param(grads[HEAD_OUTPUT_WEIGHT], NULL, arena->logits, arena->normed,
                          head_size(pass->shape));
    linear_backward_input(arena->d_channel, arena->logits, params[HEAD_OUTPUT_WEIGHT],
                          head_size(pass->shape));
    memset(arena->d_stream, 0, stream_elems(pass->shape) * sizeof(real));
    norm_backward_add(arena->d_stream, grads[HEAD_NORM_WEIGHT], grads[HEAD_NORM_BIAS],
                      arena->d_channel, &norm);
}

void model_forward(const struct model_pass *pass, uint32_t unit, const real *const *params)
{
    if (unit == 0) {
        embedding_forward(pass, params);
    } else if (unit <= pass->shape->n_layers) {
        block_forward(pass, unit - 1, params);
    } else {
        head_forward(pass, params);
    }
}

void model_backward(const struct model_pass *pass, uint32_t unit, const real *const *params,
                    real *const *grads)
{
    if (unit == 0) {
        embedding_backward(pass, grads);
    } else if (unit <= pass->shape->n_layers) {
        block_backward(pass, unit - 1, params, grads);
    } else {
        head_backward(pass, params, grads);
    }
}

double model_loss(const struct model_pass *pass, uint32_t n_sequences)
{
    const size_t n_rows = (size_t)n_sequences * pass->shape->n_positions;
    double sum = 0;

    for (size_t row = 0; row < n_rows; row++) {
        sum += (double)pass->arena->losses[row];
    }
    return sum / (double)n_rows;
}
