/* SPDX-License-Identifier: Apache-2.0 */
/* One transformer block: x + attention(norm(x)), then x + mlp(norm(x)). */
#include "layers.h"
#include "units.h"

/* What a block keeps; N = B * T. */
struct block_state {
    real *normed1;     /* (N, C) */
    real *stats1;      /* (N, 2) */
    real *qkv;         /* (N, 3C) */
    real *probability; /* (B, H, T, T) */
    real *mixed;       /* (N, C) */
    real *middle;      /* (N, C): the stream between attention and MLP */
    real *normed2;     /* (N, C) */
    real *stats2;      /* (N, 2) */
    real *raised;      /* (N, 4C) */
    real *active;      /* (N, 4C) */
};

static size_t shape_rows(const struct model_shape *shape)
{
    return (size_t)shape->n_batch * shape->n_positions;
}

/* Elements of each field of a block_state, in order. */
static void state_sizes(const struct model_shape *shape, size_t ret_sizes[10])
{
    const size_t rows = shape_rows(shape), width = shape->n_channels;

    ret_sizes[0] = rows * width;
    ret_sizes[1] = rows * 2;
    ret_sizes[2] = rows * 3 * width;
    ret_sizes[3] = rows * shape->n_heads * shape->n_positions;
    ret_sizes[4] = rows * width;
    ret_sizes[5] = rows * width;
    ret_sizes[6] = rows * width;
    ret_sizes[7] = rows * 2;
    ret_sizes[8] = rows * 4 * width;
    ret_sizes[9] = rows * 4 * width;
}

size_t block_elems(const struct model_shape *shape)
{
    size_t sizes[10], sum = 0;

    state_sizes(shape, sizes);
    for (size_t i = 0; i < 10; i++) {
        sum += sizes[i];
    }
    return sum;
}

static struct block_state state_of(const struct model_pass *pass, uint32_t layer)
{
    struct block_state state;
    real **fields[10] = {&state.normed1, &state.stats1, &state.qkv,     &state.probability,
                         &state.mixed,   &state.middle, &state.normed2, &state.stats2,
                         &state.raised,  &state.active};
    real *next = pass->arena->blocks + layer * block_elems(pass->shape);
    size_t sizes[10];

    state_sizes(pass->shape, sizes);
    for (size_t i = 0; i < 10; i++) {
        *fields[i] = next;
        next += sizes[i];
    }
    return state;
}

static struct attention_state attention_of(const struct model_shape *shape,
                                           const struct block_state *state)
{
    return (struct attention_state){.qkv = state->qkv,
                                    .probability = state->probability,
                                    .n_batch = shape->n_batch,
                                    .n_positions = shape->n_positions,
                                    .n_channels = shape->n_channels,
                                    .n_heads = shape->n_heads};
}

static struct norm_state norm_of(const struct model_shape *shape, const real *inp,
                                 const real *weight, real *stats)
{
    return (struct norm_state){.inp = inp,
                               .weight = weight,
                               .stats = stats,
                               .n_rows = shape_rows(shape),
                               .n_channels = shape->n_channels};
}

static struct linear_size size_of(const struct model_shape *shape, size_t n_in, size_t n_out)
{
    return (struct linear_size){.n_rows = shape_rows(shape),
                                .n_in = n_in * shape->n_channels,
                                .n_out = n_out * shape->n_channels};
}

static void stream_add(real *out, const real *addend, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        out[i] += addend[i];
    }
}

void block_forward(const struct model_pass *pass, uint32_t layer, const real *const *params)
{
    const struct model_shape *shape = pass->shape;
    const struct block_state state = state_of(pass, layer);
    const struct attention_state attention = attention_of(shape, &state);
    const size_t n_elems = shape_rows(shape) * shape->n_channels;
    const real *inp = pass->arena->streams + layer * n_elems;
    real *out = pass->arena->streams + (layer + 1) * n_elems;
    struct norm_state norm = norm_of(shape, inp, params[BLOCK_NORM1_WEIGHT], state.stats1);

    norm_forward(state.normed1, params[BLOCK_NORM1_BIAS], &norm);
    linear_forward(state.qkv, state.normed1, params[BLOCK_QKV_WEIGHT], params[BLOCK_QKV_BIAS],
                   size_of(shape, 1, 3));
    if (shape->is_rotary) {
        rotary_turn(state.qkv, pass->arena->turns, 1, &attention);
    }
    attention_forward(state.mixed, &attention);
    linear_forward(state.middle, state.mixed, params[BLOCK_MIX_WEIGHT], params[BLOCK_MIX_BIAS],
                   size_of(shape, 1, 1));
    stream_add(state.middle, inp, n_elems);

    norm = norm_of(shape, state.middle, params[BLOCK_NORM2_WEIGHT], state.stats2);
    norm_forward(state.normed2, params[BLOCK_NORM2_BIAS], &norm);
    linear_forward(state.raised, state.normed2, params[BLOCK_UP_WEIGHT], params[BLOCK_UP_BIAS],
                   size_of(shape, 1, 4));
    gelu_forward(state.active, state.raised, 4 * n_elems);
    linear_forward(out, state.active, params[BLOCK_DOWN_WEIGHT], params[BLOCK_DOWN_BIAS],
                   size_of(shape, 4, 1));
    stream_add(out, state.middle, n_elems);
}

/* d_stream holds the gradient of the block's output and becomes that of `middle`. */
static void mlp_backward(const struct model_pass *pass, const struct block_state *state,
                         const real *const *params, real *const *grads)
{
    const struct model_shape *shape = pass->shape;
    const struct model_arena *arena = pass->arena;
    const struct norm_state norm =
        norm_of(shape, state->middle, params[BLOCK_NORM2_WEIGHT], state->stats2);

    linear_backward_param(grads[BLOCK_DOWN_WEIGHT], grads[BLOCK_DOWN_BIAS], arena->d_stream,
                          state->active, size_of(shape, 4, 1));
    linear_backward_input(arena->d_wide, arena->d_stream, params[BLOCK_DOWN_WEIGHT],
                          size_of(shape, 4, 1));
    gelu_backward(arena->d_wide, state->raised, 4 * norm.n_rows * norm.n_channels);
    linear_backward_param(grads[BLOCK_UP_WEIGHT], grads[BLOCK_UP_BIAS], arena->d_wide,
                          state->normed2, size_of(shape, 1, 4));
    linear_backward_input(arena->d_channel, arena->d_wide, params[BLOCK_UP_WEIGHT],
                          size_of(shape, 1, 4));
    norm_backward_add(arena->d_stream, grads[BLOCK_NORM2_WEIGHT], grads[BLOCK_NORM2_BIAS],
                      arena->d_channel, &norm);
}

/* d_stream holds the gradient of `middle` and becomes that of the block's input. */
static void mix_backward(const struct model_pass *pass, uint32_t layer,
                         const struct block_state *state, const real *const *params,
                         real *const *grads)
{
    const struct model_shape *shape = pass->shape;
    const struct model_arena *arena = pass->arena;
    const struct attention_state attention = attention_of(shape, state);
    const size_t n_elems = shape_rows(shape) * shape->n_channels;
    const struct norm_state norm =
        norm_of(shape, arena->streams + layer * n_elems, params[BLOCK_NORM1_WEIGHT], state->stats1);

    linear_backward_param(grads[BLOCK_MIX_WEIGHT], grads[BLOCK_MIX_BIAS], arena->d_stream,
                          state->mixed, size_of(shape, 1, 1));
    linear_backward_input(arena->d_channel, arena->d_stream, params[BLOCK_MIX_WEIGHT],
                          size_of(shape, 1, 1));
    attention_backward(arena->d_wide, arena->d_score, arena->d_channel, &attention);
    if (shape->is_rotary) {
        rotary_turn(arena->d_wide, arena->turns, -1, &attention);
    }
    linear_backward_param(grads[BLOCK_QKV_WEIGHT], grads[BLOCK_QKV_BIAS], arena->d_wide,
                          state->normed1, size_of(shape, 1, 3));
    linear_backward_input(arena->d_channel, arena->d_wide, params[BLOCK_QKV_WEIGHT],
                          size_of(shape, 1, 3));
    norm_backward_add(arena->d_stream, grads[BLOCK_NORM1_WEIGHT], grads[BLOCK_NORM1_BIAS],
                      arena->d_channel, &norm);
}

void block_backward(const struct model_pass *pass, uint32_t layer, const real *const *params,
                    real *const *grads)
{
    const struct block_state state = state_of(pass, layer);

    mlp_backward(pass, &state, params, grads);
    mix_backward(pass, layer, &state, params, grads);
}
