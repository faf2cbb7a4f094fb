/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of bus.h, for the vectors of one set of instructions. */
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bus.h"

#if defined(__AVX512F__)
#define BUS_SUM       bus_sum_avx512
#define VECTOR_BYTES  64
#define STREAM(to, v) _mm512_stream_ps(to, (__m512)(v))
#elif defined(__AVX2__)
#define BUS_SUM       bus_sum_avx2
#define VECTOR_BYTES  32
#define STREAM(to, v) _mm256_stream_ps(to, (__m256)(v))
#else
#define BUS_SUM      bus_sum_plain
#define VECTOR_BYTES 16
#if defined(__x86_64__)
#define STREAM(to, v) _mm_stream_ps(to, (__m128)(v))
#else
#define STREAM(to, v) memcpy(to, &(v), sizeof(v))
#endif
#endif

#define LANES  (VECTOR_BYTES / sizeof(float))
#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES / 2)));

INLINE floats load(const void *source, enum dtype dtype, size_t i)
{
    halves narrow;
    floats value;

    if (dtype == DTYPE_FP32) {
        memcpy(&value, (const float *)source + i, sizeof(value));
        return value;
    }
    memcpy(&narrow, (const uint16_t *)source + i, sizeof(narrow));
    return (floats)(__builtin_convertvector(narrow, words) << 16);
}

/* With numbers that the compiler knows, so that it unrolls what is inside. */
INLINE void sum(const struct bus_work *work, enum dtype dtype, unsigned n_sources,
                unsigned n_outputs, bool is_streamed)
{
    for (size_t i = 0; i < work->n_elems; i += LANES) {
        floats total = load(work->sources[0], dtype, i);

        for (unsigned k = 1; k < n_sources; k++) {
            total += load(work->sources[k], dtype, i);
        }
        for (unsigned k = 0; k < n_outputs; k++) {
            if (is_streamed) {
                STREAM(work->outputs[k] + i, total);
            } else {
                memcpy(work->outputs[k] + i, &total, sizeof(total));
            }
        }
    }
}

INLINE void sum_ranks(const struct bus_work *work, enum dtype dtype, bool is_streamed)
{
    if (work->n_sources == 2) {
        sum(work, dtype, 2, work->n_outputs == 1 ? 1 : 2, is_streamed);
    } else if (work->n_sources == 4 && work->n_outputs == 1) {
        sum(work, dtype, 4, 1, is_streamed);
    } else if (work->n_sources == 4) {
        sum(work, dtype, 4, 4, is_streamed);
    } else {
        sum(work, dtype, work->n_sources, work->n_outputs, is_streamed);
    }
}

INLINE void sum_dtype(const struct bus_work *work, bool is_streamed)
{
    if (work->dtype == DTYPE_FP32) {
        sum_ranks(work, DTYPE_FP32, is_streamed);
    } else {
        sum_ranks(work, DTYPE_BF16, is_streamed);
    }
}

void BUS_SUM(const struct bus_work *work)
{
    if (work->is_streamed) {
        sum_dtype(work, true);
#if defined(__x86_64__)
        _mm_sfence();
#endif
    } else {
        sum_dtype(work, false);
    }
}
