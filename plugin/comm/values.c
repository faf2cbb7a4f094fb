/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of the host's collectives, and reductions over them. */
#include "comm/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device/kernels.h"

enum {
    SUM_ELEMS = 512, /* of fp32, on the way to a 16-bit type */
    ROW_ELEMS = 64,
    MAX_ROWS = REDUCE_MAX_SOURCES,
};

/* Everything but sums of fp32 is done in one of two wide types, which hold the others exactly. */
union wide {
    double f;
    int64_t i;
    uint64_t u;
};

static bool is_type(struct element element, uint8_t code, uint8_t bits)
{
    return element.code == code && element.bits == bits;
}

static bool is_integer(struct element element)
{
    return element.code == HSDP_DTYPE_INT || element.code == HSDP_DTYPE_UINT;
}

/* Those of device/: summed in fp32. */
static bool is_fp32_or_half(struct element element, enum dtype *ret_dtype)
{
    if (is_type(element, HSDP_DTYPE_FLOAT, 32)) {
        *ret_dtype = DTYPE_FP32;
    } else if (is_type(element, HSDP_DTYPE_FLOAT, 16)) {
        *ret_dtype = DTYPE_FP16;
    } else if (is_type(element, HSDP_DTYPE_BFLOAT, 16)) {
        *ret_dtype = DTYPE_BF16;
    } else {
        return false;
    }
    return true;
}

bool element_moves(struct element element)
{
    return element.bits == 8 || element.bits == 16 || element.bits == 32 || element.bits == 64 ||
           element.bits == 128;
}

bool element_reduces(struct element element, int32_t reduce)
{
    enum dtype dtype;

    if (is_fp32_or_half(element, &dtype) || is_type(element, HSDP_DTYPE_FLOAT, 64)) {
        return true;
    }
    if (reduce == HSDP_REDUCE_MEAN) {
        return false;
    }
    return is_type(element, HSDP_DTYPE_UINT, 8) || is_type(element, HSDP_DTYPE_INT, 8) ||
           is_type(element, HSDP_DTYPE_INT, 16) || is_type(element, HSDP_DTYPE_INT, 32) ||
           is_type(element, HSDP_DTYPE_INT, 64);
}

bool element_equals(struct element left, struct element right)
{
    return left.code == right.code && left.bits == right.bits;
}

uint64_t element_bytes(struct element element)
{
    return element.bits / 8u;
}

void element_name(struct element element, char *ret_text, uint64_t max_bytes)
{
    const char *name = NULL;

    switch (element.code) {
    case HSDP_DTYPE_INT:
        name = "int";
        break;
    case HSDP_DTYPE_UINT:
        name = "uint";
        break;
    case HSDP_DTYPE_FLOAT:
        name = "fp";
        break;
    case HSDP_DTYPE_BFLOAT:
        name = "bf";
        break;
    default:
        snprintf(ret_text, max_bytes, "type %u of %u bits", element.code, element.bits);
        return;
    }
    snprintf(ret_text, max_bytes, "%s%u", name, element.bits);
}

/* ---------------------------------------------------------------------- sums of fp32 and halves */

static void sum_fp32(const struct values_spec *spec, enum dtype dtype)
{
    uint64_t elem_bytes = element_bytes(spec->element);
    const void *sources[MAX_ROWS];
    uint32_t n_sources = spec->n_sources;
    struct reduce_spec sum = {.sources = sources, .dim_sizes = &n_sources, .n_dims = 1};
    float block[SUM_ELEMS];

    sum.dst = block;
    sum.source_dtype = dtype;
    sum.wire_dtype = dtype;
    for (uint64_t first = 0; first < spec->n_elems; first += SUM_ELEMS) {
        uint64_t n_rest = spec->n_elems - first;

        sum.n_elems = n_rest < SUM_ELEMS ? n_rest : SUM_ELEMS;
        for (uint32_t i = 0; i < n_sources; i++) {
            sources[i] = (const uint8_t *)spec->sources[i] + first * elem_bytes;
        }
        spec->kernels->tree(&sum);
        if (spec->reduce == HSDP_REDUCE_MEAN) {
            spec->kernels->divide(block, (float)n_sources, sum.n_elems);
        }
        spec->kernels->from_fp32((uint8_t *)spec->dst + first * elem_bytes, dtype, block,
                                 sum.n_elems);
    }
}

/* ------------------------------------------------------------------------ everything else, wide */

static void floats_load(union wide *row, const uint8_t *src, struct element element, uint64_t n)
{
    enum dtype dtype;
    float block[ROW_ELEMS];

    if (!is_fp32_or_half(element, &dtype)) {
        for (uint64_t i = 0; i < n; i++) {
            memcpy(&row[i].f, src + i * sizeof(double), sizeof(double));
        }
        return;
    }
    cast_to_fp32(block, src, dtype, n);
    for (uint64_t i = 0; i < n; i++) {
        row[i].f = block[i];
    }
}

static void floats_store(uint8_t *dst, const union wide *row, struct element element, uint64_t n)
{
    enum dtype dtype;
    float block[ROW_ELEMS];

    if (!is_fp32_or_half(element, &dtype)) {
        for (uint64_t i = 0; i < n; i++) {
            memcpy(dst + i * sizeof(double), &row[i].f, sizeof(double));
        }
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        block[i] = (float)row[i].f; /* exact: it was one of these */
    }
    cast_from_fp32(dst, dtype, block, n);
}

static int64_t integer_load(const uint8_t *src, struct element element)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;

    switch (element.bits) {
    case 8:
        memcpy(&i8, src, sizeof(i8));
        return element.code == HSDP_DTYPE_UINT ? (int64_t)(uint8_t)i8 : i8;
    case 16:
        memcpy(&i16, src, sizeof(i16));
        return i16;
    case 32:
        memcpy(&i32, src, sizeof(i32));
        return i32;
    default:
        memcpy(&i64, src, sizeof(i64));
        return i64;
    }
}

/* The low bits, whatever the sign: as the narrow type itself would have wrapped. */
static void integer_store(uint8_t *dst, uint64_t value, struct element element)
{
    uint8_t u8 = (uint8_t)value;
    uint16_t u16 = (uint16_t)value;
    uint32_t u32 = (uint32_t)value;

    switch (element.bits) {
    case 8:
        memcpy(dst, &u8, sizeof(u8));
        break;
    case 16:
        memcpy(dst, &u16, sizeof(u16));
        break;
    case 32:
        memcpy(dst, &u32, sizeof(u32));
        break;
    default:
        memcpy(dst, &value, sizeof(value));
        break;
    }
}

static void row_load(union wide *row, const uint8_t *src, struct element element, uint64_t n)
{
    if (!is_integer(element)) {
        floats_load(row, src, element, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        row[i].i = integer_load(src + i * element_bytes(element), element);
    }
}

static void row_store(uint8_t *dst, const union wide *row, struct element element, uint64_t n)
{
    if (!is_integer(element)) {
        floats_store(dst, row, element, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        integer_store(dst + i * element_bytes(element), row[i].u, element);
    }
}

/* left = left (reduce) right. */
static void floats_combine(union wide *left, const union wide *right, int32_t reduce, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        double a = left[i].f;
        double b = right[i].f;

        if (reduce == HSDP_REDUCE_MAX) {
            left[i].f = a > b || a != a ? a : b;
        } else if (reduce == HSDP_REDUCE_MIN) {
            left[i].f = a < b || a != a ? a : b;
        } else {
            left[i].f = a + b;
        }
    }
}

static void integers_combine(union wide *left, const union wide *right, int32_t reduce, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (reduce == HSDP_REDUCE_MAX) {
            left[i].i = left[i].i > right[i].i ? left[i].i : right[i].i;
        } else if (reduce == HSDP_REDUCE_MIN) {
            left[i].i = left[i].i < right[i].i ? left[i].i : right[i].i;
        } else {
            left[i].u += right[i].u;
        }
    }
}

static void rows_reduce(union wide (*rows)[ROW_ELEMS], const struct values_spec *spec, uint64_t n)
{
    bool is_int = is_integer(spec->element);

    for (uint32_t step = 1; step < spec->n_sources; step *= 2) {
        for (uint32_t i = 0; i + step < spec->n_sources; i += 2 * step) {
            if (is_int) {
                integers_combine(rows[i], rows[i + step], spec->reduce, n);
            } else {
                floats_combine(rows[i], rows[i + step], spec->reduce, n);
            }
        }
    }
    for (uint64_t i = 0; spec->reduce == HSDP_REDUCE_MEAN && i < n; i++) {
        rows[0][i].f /= spec->n_sources;
    }
}

void values_reduce(const struct values_spec *spec)
{
    union wide rows[MAX_ROWS][ROW_ELEMS];
    uint64_t elem_bytes = element_bytes(spec->element);
    bool is_sum = spec->reduce == HSDP_REDUCE_SUM || spec->reduce == HSDP_REDUCE_MEAN;
    enum dtype dtype;

    if (is_sum && is_fp32_or_half(spec->element, &dtype)) {
        sum_fp32(spec, dtype);
        return;
    }
    for (uint64_t first = 0; first < spec->n_elems; first += ROW_ELEMS) {
        uint64_t n = spec->n_elems - first < ROW_ELEMS ? spec->n_elems - first : ROW_ELEMS;

        for (uint32_t i = 0; i < spec->n_sources; i++) {
            row_load(rows[i], (const uint8_t *)spec->sources[i] + first * elem_bytes, spec->element,
                     n);
        }
        rows_reduce(rows, spec, n);
        row_store((uint8_t *)spec->dst + first * elem_bytes, rows[0], spec->element, n);
    }
}
