/* SPDX-License-Identifier: Apache-2.0 */
/* Elements: conversions by the definition of each format. */
#include "element.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"fp32", "fp16", "bf16"};

uint32_t dtype_bytes(enum dtype dtype)
{
    return dtype == DTYPE_FP32 ? 4 : 2;
}

const char *dtype_name(enum dtype dtype)
{
    return names[dtype];
}

bool dtype_find(const char *name, enum dtype *ret)
{
    for (enum dtype d = DTYPE_FP32; d <= DTYPE_BF16; d++) {
        if (strcmp(names[d], name) == 0) {
            *ret = d;
            return true;
        }
    }
    return false;
}

bool dtype_of(const struct hsdp_tensor *tensor, enum dtype *ret)
{
    if (tensor->dtype_lanes != 1) {
        return false;
    }
    if (tensor->dtype_code == HSDP_DTYPE_FLOAT && tensor->dtype_bits == 32) {
        *ret = DTYPE_FP32;
    } else if (tensor->dtype_code == HSDP_DTYPE_FLOAT && tensor->dtype_bits == 16) {
        *ret = DTYPE_FP16;
    } else if (tensor->dtype_code == HSDP_DTYPE_BFLOAT && tensor->dtype_bits == 16) {
        *ret = DTYPE_BF16;
    } else {
        return false;
    }
    return true;
}

bool tensor_is_contiguous(const struct hsdp_tensor *tensor)
{
    int64_t expected = 1;

    for (int32_t d = tensor->n_dims - 1; tensor->strides != NULL && d >= 0; d--) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != expected) {
            return false;
        }
        expected *= tensor->shape[d];
    }
    return true;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* bf16 is the upper half of a float. */
static uint16_t bf16_round(float value)
{
    uint32_t bits = bits_of(value);

    if (isnan(value)) {
        return (uint16_t)((bits >> 16) | 0x40); /* it stays a NaN */
    }
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* fp16: 5 bits of exponent, bias 15, and 10 of fraction. */
static float fp16_value(uint16_t bits)
{
    float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
    int exponent = (bits >> 10) & 31;
    int fraction = bits & 1023;

    if (exponent == 31) {
        return fraction != 0 ? float_of(((uint32_t)(bits & 0x8000) << 16) | 0x7fc00000u |
                                        ((uint32_t)fraction << 13))
                             : sign * INFINITY;
    }
    return sign * (exponent == 0 ? ldexpf((float)fraction, -24)
                                 : ldexpf((float)(1024 + fraction), exponent - 25));
}

static uint16_t fp16_round(float value)
{
    uint16_t sign = (uint16_t)((bits_of(value) >> 16) & 0x8000);
    double size = fabs((double)value);
    int exponent;
    double units;

    if (isnan(value)) {
        return (uint16_t)(sign | 0x7e00 | ((bits_of(value) >> 13) & 0x3ff));
    }
    if (size >= 65520.0) { /* half a unit above the largest */
        return (uint16_t)(sign | 0x7c00);
    }
    if (size == 0.0) {
        return sign;
    }
    frexp(size, &exponent); /* size = 0.5..1 * 2^exponent */
    exponent = exponent < -13 ? -13 : exponent;
    units = nearbyint(ldexp(size, 11 - exponent)); /* 1024..2048, below 1024 where denormal */
    return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + (int)units));
}

float element_read(const void *array, enum dtype dtype, uint64_t index)
{
    uint16_t half;
    float value;

    if (dtype == DTYPE_FP32) {
        memcpy(&value, (const char *)array + 4 * index, 4);
        return value;
    }
    memcpy(&half, (const char *)array + 2 * index, 2);
    return dtype == DTYPE_BF16 ? float_of((uint32_t)half << 16) : fp16_value(half);
}

void element_write(void *array, enum dtype dtype, uint64_t index, float value)
{
    uint16_t half;

    if (dtype == DTYPE_FP32) {
        memcpy((char *)array + 4 * index, &value, 4);
        return;
    }
    half = dtype == DTYPE_BF16 ? bf16_round(value) : fp16_round(value);
    memcpy((char *)array + 2 * index, &half, 2);
}

float element_round(float value, enum dtype dtype)
{
    uint16_t half;

    if (dtype == DTYPE_FP32) {
        return value;
    }
    element_write(&half, dtype, 0, value);
    return element_read(&half, dtype, 0);
}
