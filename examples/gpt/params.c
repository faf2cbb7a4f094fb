/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter table of the transformer: names, shapes, first values. */
#include <math.h>
#include <stdio.h>

#include "model.h"
#include "units.h"

#define INIT_DEVIATION 0.02

uint32_t model_n_units(const struct model_shape *shape)
{
    return shape->n_layers + 2;
}

void model_unit_name(const struct model_shape *shape, uint32_t unit, char *ret_name, size_t bytes)
{
    if (unit == 0) {
        snprintf(ret_name, bytes, "embedding");
    } else if (unit <= shape->n_layers) {
        snprintf(ret_name, bytes, "block.%u", unit - 1);
    } else {
        snprintf(ret_name, bytes, "head");
    }
}

/* One row of a unit's parameters; rows = 0 makes it a vector. */
static void param_matrix(struct model_param *ret_param, const char *name, uint32_t rows,
                         uint32_t columns, double deviation)
{
    snprintf(ret_param->name, sizeof(ret_param->name), "%s", name);
    ret_param->shape[0] = rows;
    ret_param->shape[1] = columns;
    ret_param->n_dims = 2;
    ret_param->hyper_group = MODEL_GROUP_DECAY;
    ret_param->deviation = deviation;
    ret_param->constant = 0;
}

static void param_vector(struct model_param *ret_param, const char *name, uint32_t n,
                         double constant)
{
    snprintf(ret_param->name, sizeof(ret_param->name), "%s", name);
    ret_param->shape[0] = n;
    ret_param->shape[1] = 1;
    ret_param->n_dims = 1;
    ret_param->hyper_group = MODEL_GROUP_NO_DECAY;
    ret_param->deviation = 0;
    ret_param->constant = constant;
}

static uint32_t embedding_params(const struct model_shape *shape, struct model_param *ret_params)
{
    const uint32_t width = shape->n_channels;

    param_matrix(&ret_params[EMBEDDING_TOKEN], "token", MODEL_VOCABULARY, width, INIT_DEVIATION);
    ret_params[EMBEDDING_TOKEN].hyper_group = MODEL_GROUP_NO_DECAY;
    if (shape->is_rotary) {
        return 1;
    }
    param_matrix(&ret_params[EMBEDDING_POSITION], "position", shape->n_positions, width,
                 INIT_DEVIATION);
    ret_params[EMBEDDING_POSITION].hyper_group = MODEL_GROUP_NO_DECAY;
    return 2;
}

static uint32_t block_params(const struct model_shape *shape, struct model_param *ret_params)
{
    const uint32_t width = shape->n_channels;
    /* what is added to the stream 2 n_layers times starts smaller, so that the stream does not grow
     */
    const double residual = INIT_DEVIATION / sqrt(2.0 * shape->n_layers);

    param_vector(&ret_params[BLOCK_NORM1_WEIGHT], "norm1.weight", width, 1);
    param_vector(&ret_params[BLOCK_NORM1_BIAS], "norm1.bias", width, 0);
    param_matrix(&ret_params[BLOCK_QKV_WEIGHT], "qkv.weight", 3 * width, width, INIT_DEVIATION);
    param_vector(&ret_params[BLOCK_QKV_BIAS], "qkv.bias", 3 * width, 0);
    param_matrix(&ret_params[BLOCK_MIX_WEIGHT], "mix.weight", width, width, residual);
    param_vector(&ret_params[BLOCK_MIX_BIAS], "mix.bias", width, 0);
    param_vector(&ret_params[BLOCK_NORM2_WEIGHT], "norm2.weight", width, 1);
    param_vector(&ret_params[BLOCK_NORM2_BIAS], "norm2.bias", width, 0);
    param_matrix(&ret_params[BLOCK_UP_WEIGHT], "up.weight", 4 * width, width, INIT_DEVIATION);
    param_vector(&ret_params[BLOCK_UP_BIAS], "up.bias", 4 * width, 0);
    param_matrix(&ret_params[BLOCK_DOWN_WEIGHT], "down.weight", width, 4 * width, residual);
    param_vector(&ret_params[BLOCK_DOWN_BIAS], "down.bias", width, 0);
    return BLOCK_N_PARAMS;
}

static uint32_t head_params(const struct model_shape *shape, struct model_param *ret_params)
{
    param_vector(&ret_params[HEAD_NORM_WEIGHT], "norm.weight", shape->n_channels, 1);
    param_vector(&ret_params[HEAD_NORM_BIAS], "norm.bias", shape->n_channels, 0);
    param_matrix(&ret_params[HEAD_OUTPUT_WEIGHT], "output.weight", MODEL_VOCABULARY,
                 shape->n_channels, INIT_DEVIATION);
    return HEAD_N_PARAMS;
}

uint32_t model_unit_params(const struct model_shape *shape, uint32_t unit,
                           struct model_param ret_params[MODEL_MAX_PARAMS])
{
    char unit_name[MODEL_NAME_BYTES / 2], own_name[MODEL_NAME_BYTES / 2];
    uint32_t n_params;

    if (unit == 0) {
        n_params = embedding_params(shape, ret_params);
    } else if (unit <= shape->n_layers) {
        n_params = block_params(shape, ret_params);
    } else {
        n_params = head_params(shape, ret_params);
    }
    model_unit_name(shape, unit, unit_name, sizeof(unit_name));
    for (uint32_t i = 0; i < n_params; i++) {
        snprintf(own_name, sizeof(own_name), "%.31s", ret_params[i].name);
        snprintf(ret_params[i].name, sizeof(ret_params[i].name), "%s.%s", unit_name, own_name);
    }
    return n_params;
}

uint64_t model_param_elems(const struct model_param *param)
{
    return (uint64_t)param->shape[0] * (uint64_t)param->shape[1];
}
