/* SPDX-License-Identifier: Apache-2.0 */
/* Between fp32 and the dtype of a view of the plugin. */
#include "convert.h"

#include <stdint.h>
#include <string.h>

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

static uint16_t bf16_from(float value)
{
    const uint32_t bits = bits_of(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u); /* a NaN stays one */
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* n / 2^shift, to nearest even. */
static uint32_t shift_even(uint32_t n, uint32_t shift)
{
    const uint32_t half = 1u << (shift - 1);

    return (n + half - 1 + (n >> shift & 1u)) >> shift;
}

static uint16_t fp16_from(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;

    if (size > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (size >= 0x477ff000u) { /* 65520, from where the nearest is infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (size >= 0x38800000u) { /* 2^-14, the least normal number */
        return (uint16_t)(sign | shift_even(size - 0x38000000u, 13));
    }
    if (size < 0x33000000u) { /* below 2^-25, half of the least number */
        return (uint16_t)sign;
    }
    const uint32_t mantissa = (size & 0x7fffffu) | 0x800000u;

    return (uint16_t)(sign | shift_even(mantissa, 126 - (size >> 23)));
}

static float fp16_to(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, size = half & 0x7fffu;

    if (size >= 0x7c00u) {
        return float_of(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    }
    if (size >= 0x400u) {
        return float_of(sign | ((size << 13) + 0x38000000u));
    }
    return sign == 0 ? (float)size * 0x1p-24f : -(float)size * 0x1p-24f;
}

int convert_is_fp32(const struct hsdp_tensor *view)
{
    return view->dtype_code == HSDP_DTYPE_FLOAT && view->dtype_bits == 32;
}

int convert_is_known(const struct hsdp_tensor *view)
{
    return convert_is_fp32(view) ||
           ((view->dtype_code == HSDP_DTYPE_FLOAT || view->dtype_code == HSDP_DTYPE_BFLOAT) &&
            view->dtype_bits == 16);
}

void *convert_base(const struct hsdp_tensor *view)
{
    return (char *)view->base + view->byte_offset;
}

void convert_load(float *out, const struct hsdp_tensor *view, size_t n_elems)
{
    const uint16_t *halves = convert_base(view);

    if (convert_is_fp32(view)) {
        memcpy(out, convert_base(view), n_elems * sizeof(*out));
        return;
    }
    for (size_t i = 0; i < n_elems; i++) {
        out[i] = view->dtype_code == HSDP_DTYPE_BFLOAT ? float_of((uint32_t)halves[i] << 16)
                                                       : fp16_to(halves[i]);
    }
}

void convert_store(const struct hsdp_tensor *view, size_t offset, const float *inp, size_t n_elems)
{
    uint16_t *halves = convert_base(view);

    if (convert_is_fp32(view)) {
        memcpy((float *)convert_base(view) + offset, inp, n_elems * sizeof(*inp));
        return;
    }
    for (size_t i = 0; i < n_elems; i++) {
        halves[offset + i] =
            view->dtype_code == HSDP_DTYPE_BFLOAT ? bf16_from(inp[i]) : fp16_from(inp[i]);
    }
}
