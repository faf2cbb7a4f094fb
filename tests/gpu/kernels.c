/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on a device: their results beside two others, their speed beside that of a copy. */
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "device/cast.h"
#include "device/norm.h"
#include "experiment.h"
#include "hsdp/abi.h"
#include "kernel_values.h"

enum {
    CHECKED_ELEMS = (1 << 18) + 37,
    SMALL_ELEMS = 10007,
    MAX_TIMED_ELEMS = 1 << 27,
    MIN_TIMED_ELEMS = 1 << 16,
    ROUNDS = 9,
    MAX_ROWS = 20, /* of an experiment, all arrays together, fp32 */
    EXIT_NO_DEVICE = 77,
};
#define LEAST_MS 0.15f /* that a copy must take, to be timed */
#define GOAL     0.85  /* of its bandwidth */

/* One run of this program. */
struct bench {
    struct gpu gpu;
    struct hsdp_error err;
    cu_event began;
    cu_event ended;
    uint64_t state; /* of the random numbers */
    uint64_t n_timed_elems;
    double copy_rate; /* bytes a second, read and written */
    double least_share;
    const char *slowest;
    uint32_t n_failed;
};

/* The arrays of an experiment: the host's inputs, what comes of them, and the device's. */
struct trial {
    const struct experiment *experiment;
    struct arrays_of inputs;
    struct arrays_of expected;
    struct arrays_of found;
    struct arrays_of device;
    struct gpu_memory memory[MAX_BUFFERS];
    uint64_t n_bytes[MAX_BUFFERS];
};

/* What no program of this kind goes on from. */
static void must(struct bench *bench, int32_t status)
{
    if (status != HSDP_OK) {
        fprintf(stderr, "kernels: %s\n", bench->err.message);
        exit(1);
    }
}

static void must_call(struct bench *bench, cu_result result, const char *call)
{
    must(bench, cuda_check(&bench->gpu.cuda, result, call, "kernels", &bench->err));
}

/* ---------------------------------------------------------------------------------- arrays */

static uint64_t elem_bytes(int32_t dtype)
{
    return dtype == DTYPE_FP32 ? 4 : 2;
}

/* Of a buffer's row; those of one follow each other at multiples of 16 bytes. */
static uint64_t row_bytes(const struct buffer *buffer, uint64_t n_elems)
{
    return (n_elems * elem_bytes(buffer->dtype) + 15) / 16 * 16;
}

static uint64_t buffer_bytes(const struct buffer *buffer, uint64_t n_elems)
{
    return buffer->is_fixed ? buffer->n_rows * elem_bytes(buffer->dtype)
                            : buffer->n_rows * row_bytes(buffer, n_elems);
}

static void *host_alloc(uint64_t n_bytes)
{
    void *base = aligned_alloc(64, (n_bytes + 63) / 64 * 64);

    if (base == NULL) {
        fprintf(stderr, "kernels: no %" PRIu64 " bytes of memory\n", n_bytes);
        exit(1);
    }
    return base;
}

static void arrays_describe(const struct experiment *e, uint64_t n_elems, struct arrays_of *arrays)
{
    const struct buffer *last = &e->buffers[e->n_buffers > 1 ? 1 : 0];

    arrays->n_elems = n_elems;
    arrays->stride_bytes = row_bytes(last, n_elems);
}

static void trial_open(struct bench *bench, const struct experiment *e, uint64_t n_elems,
                       struct trial *trial)
{
    memset(trial, 0, sizeof(*trial));
    trial->experiment = e;
    arrays_describe(e, n_elems, &trial->device);
    for (uint32_t k = 0; k < e->n_buffers; k++) {
        trial->n_bytes[k] = buffer_bytes(&e->buffers[k], n_elems);
        must(bench, gpu_alloc(&bench->gpu, trial->n_bytes[k], HSDP_MEMORY_DEVICE, e->name,
                              &trial->memory[k], &bench->err));
        trial->device.bases[k] = trial->memory[k].base;
    }
}

static void trial_open_host(struct trial *trial, uint64_t n_elems)
{
    struct arrays_of *all[] = {&trial->inputs, &trial->expected, &trial->found};

    for (uint32_t i = 0; i < 3; i++) {
        arrays_describe(trial->experiment, n_elems, all[i]);
        for (uint32_t k = 0; k < trial->experiment->n_buffers; k++) {
            all[i]->bases[k] = host_alloc(trial->n_bytes[k]);
        }
    }
}

static void trial_close(struct bench *bench, struct trial *trial)
{
    for (uint32_t k = 0; k < trial->experiment->n_buffers; k++) {
        gpu_free(&bench->gpu, &trial->memory[k]);
        free(trial->inputs.bases[k]);
        free(trial->expected.bases[k]);
        free(trial->found.bases[k]);
    }
}

/* Fresh inputs of a kind (kernel_values.h); poison, or zeros to add to, where results will be. */
static void inputs_fill(struct bench *bench, struct trial *trial, uint32_t kind)
{
    const struct experiment *e = trial->experiment;

    for (uint32_t k = 0; k < e->n_buffers; k++) {
        const struct buffer *buffer = &e->buffers[k];
        uint64_t n_values = trial->n_bytes[k] / elem_bytes(buffer->dtype);
        bool is_square = e->kernel == GPU_ADAMW && k == 2;

        memset(trial->inputs.bases[k], buffer->is_fixed ? 0 : 0xff, trial->n_bytes[k]);
        for (uint64_t i = 0; buffer->is_input && i < n_values; i++) {
            float value =
                values_kind(&bench->state, kind < VALUES_N_KINDS ? kind : (uint32_t)(i / 2 % 5));

            value = is_square ? fabsf(value) : value;
            cast_from_fp32((char *)trial->inputs.bases[k] + i * elem_bytes(buffer->dtype),
                           (enum dtype)buffer->dtype, &value, 1);
        }
    }
}

/* --------------------------------------------------------------------------------- results */

static float value_at(const void *values, int32_t dtype, uint64_t i)
{
    float value;

    cast_to_fp32(&value, (const char *)values + i * elem_bytes(dtype), (enum dtype)dtype, 1);
    return value;
}

/* Half a unit of the last place, and what additions and divisions of fp32 add. */
static double tolerance(int32_t dtype, double scale)
{
    switch (dtype) {
    case DTYPE_BF16:
        return scale * 0x1p-8 + 0x1p-130;
    case DTYPE_FP16:
        return scale * 0x1p-10 + 0x1p-24;
    default:
        return scale * 0x1p-19 + 0x1p-140;
    }
}

static void complain(struct bench *bench, const struct trial *trial, uint64_t i, double found,
                     double wanted)
{
    if (bench->n_failed++ < 20) {
        printf("%s: element %" PRIu64 " of %" PRIu64 " is %.9g, not %.9g\n",
               trial->experiment->name, i, trial->found.n_elems, found, wanted);
    }
}

/* Bit for bit what the CPU makes of the same inputs; NaNs need only be NaNs. */
static void bits_check(struct bench *bench, const struct trial *trial, uint32_t k)
{
    const struct buffer *buffer = &trial->experiment->buffers[k];
    uint64_t size = elem_bytes(buffer->dtype);
    uint64_t n_values = buffer->is_fixed ? buffer->n_rows : trial->found.n_elems;

    for (uint64_t i = 0; i < n_values; i++) {
        const char *found = (const char *)trial->found.bases[k] + i * size;
        const char *expected = (const char *)trial->expected.bases[k] + i * size;
        float f = value_at(trial->found.bases[k], buffer->dtype, i);
        float e = value_at(trial->expected.bases[k], buffer->dtype, i);

        if (memcmp(found, expected, size) != 0 && (buffer->is_fixed || !(isnan(f) && isnan(e)))) {
            complain(bench, trial, i, (double)f, (double)e);
            return;
        }
    }
}

static void reference_check(struct bench *bench, const struct trial *trial)
{
    const struct experiment *e = trial->experiment;
    int32_t dtype = e->buffers[0].dtype;

    for (uint64_t i = 0; i < trial->found.n_elems; i++) {
        struct reference wanted = e->reference(e, &trial->inputs, i);
        double found = (double)value_at(trial->found.bases[0], dtype, i);

        if (isfinite(wanted.scale) && isfinite(found) &&
            fabs(found - wanted.value) > tolerance(dtype, wanted.scale)) {
            complain(bench, trial, i, found, wanted.value);
            return;
        }
    }
}

/* Of values that are finite: beside a plain sum in long double. */
static void norm_check(struct bench *bench, const struct trial *trial)
{
    const struct experiment *e = trial->experiment;
    const struct gpu_norm *norm = trial->found.bases[0];
    struct norm_sum sum;
    long double wanted = 0.0L;
    double found;

    for (uint64_t i = 0; i < trial->found.n_elems; i++) {
        float quotient = value_at(trial->inputs.bases[1], DTYPE_FP32, i) / e->divisor;
        long double x = fabsl((long double)quotient);

        wanted = isinf(e->p) ? fmaxl(wanted, x) : wanted + powl(x, (long double)e->p);
    }
    wanted = isinf(e->p) ? wanted : powl(wanted, 1.0L / (long double)e->p);
    memcpy(sum.limbs, norm->limbs, sizeof(sum.limbs));
    sum.n_inf = norm->n_inf;
    sum.n_nan = norm->n_nan;
    found =
        isinf(e->p) ? (double)fp32_from_bits((uint32_t)norm->max_bits) : norm_sum_value(&sum, e->p);
    if (fabs(found - (double)wanted) > 1e-12 * (double)wanted) {
        complain(bench, trial, 0, found, (double)wanted);
    }
}

/* ---------------------------------------------------------------------------- on the device */

static void device_wait(struct bench *bench, cu_event event)
{
    int32_t status;

    while ((status = gpu_event_query(&bench->gpu, event, &bench->err)) == HSDP_PENDING) {
        sched_yield();
    }
    must(bench, status);
}

static void event_record(struct bench *bench, cu_event event)
{
    must(bench, gpu_event_record(&bench->gpu, event, bench->gpu.reduce_stream, &bench->err));
}

static void device_copy(struct bench *bench, void *dst, const void *src, uint64_t n_bytes)
{
    must(bench, gpu_copy(&bench->gpu, dst, src, n_bytes, bench->gpu.reduce_stream, &bench->err));
}

static void trial_launch(struct bench *bench, const struct trial *trial)
{
    const struct experiment *e = trial->experiment;
    union kernel_args args;

    memset(&args, 0, sizeof(args));
    e->args(e, &trial->device, &args);
    must(bench, gpu_launch(&bench->gpu, e->kernel, &args, trial->device.n_elems,
                           bench->gpu.reduce_stream, &bench->err));
}

/* Equal sums become equal structs; a NaN is a NaN. */
static void norm_settle(struct gpu_norm *norm)
{
    limbs_normalize(norm->limbs);
    norm->max_bits = norm->max_bits > 0x7f800000 ? 0x7fc00000 : norm->max_bits;
}

/* One kind of inputs, through the device and the CPU. */
static void kind_check(struct bench *bench, struct trial *trial, uint32_t kind)
{
    const struct experiment *e = trial->experiment;

    inputs_fill(bench, trial, kind);
    for (uint32_t k = 0; k < e->n_buffers; k++) {
        memcpy(trial->expected.bases[k], trial->inputs.bases[k], trial->n_bytes[k]);
        device_copy(bench, trial->device.bases[k], trial->inputs.bases[k], trial->n_bytes[k]);
    }
    trial_launch(bench, trial);
    for (uint32_t k = 0; k < e->n_buffers; k++) {
        device_copy(bench, trial->found.bases[k], trial->device.bases[k], trial->n_bytes[k]);
    }
    event_record(bench, bench->ended);
    e->cpu(e, &trial->expected);
    device_wait(bench, bench->ended);
    if (e->kernel == GPU_NORM) {
        norm_settle(trial->found.bases[0]);
        norm_settle(trial->expected.bases[0]);
    }
    for (uint32_t k = 0; k < e->n_buffers; k++) {
        bits_check(bench, trial, k);
    }
    if (e->reference != NULL && (kind < VALUES_N_KINDS || !e->is_of_gradients)) {
        reference_check(bench, trial);
    } else if (e->kernel == GPU_NORM && kind < VALUES_N_KINDS) {
        norm_check(bench, trial);
    }
}

static void experiment_check(struct bench *bench, const struct experiment *e, uint64_t n_elems)
{
    const uint32_t gradients = 3;
    struct trial trial;

    trial_open(bench, e, n_elems, &trial);
    trial_open_host(&trial, n_elems);
    kind_check(bench, &trial, gradients);
    kind_check(bench, &trial, VALUES_N_KINDS);
    trial_close(bench, &trial);
}

/* ------------------------------------------------------------------------------------ speed */

static int ms_compare(const void *left, const void *right)
{
    float l = *(const float *)left;
    float r = *(const float *)right;

    return (l > r) - (l < r);
}

/* The median of some rounds, in ms, of a kernel or, without one, of a copy. */
static float rounds_time(struct bench *bench, const struct trial *trial, uint64_t n_bytes)
{
    float ms[ROUNDS + 1];

    for (uint32_t round = 0; round <= ROUNDS; round++) { /* the first is none of them */
        event_record(bench, bench->began);
        if (n_bytes == 0) {
            trial_launch(bench, trial);
        } else {
            device_copy(bench, trial->device.bases[0], trial->device.bases[1], n_bytes);
        }
        event_record(bench, bench->ended);
        device_wait(bench, bench->ended);
        must(bench, gpu_enter(&bench->gpu, &bench->err));
        must_call(bench, bench->gpu.cuda.event_elapsed(&ms[round], bench->began, bench->ended),
                  "cuEventElapsedTime");
        gpu_leave(&bench->gpu);
    }
    qsort(ms + 1, ROUNDS, sizeof(*ms), ms_compare);
    return fmaxf(ms[1 + ROUNDS / 2], 1e-6f);
}

/* Gradients all over a buffer: some of the host's, doubled until it is full. */
static void buffer_spread(struct bench *bench, const struct trial *trial, uint32_t k)
{
    enum { FIRST_BYTES = 1 << 18 };
    static float values[FIRST_BYTES / sizeof(float)];
    const struct buffer *buffer = &trial->experiment->buffers[k];
    uint64_t n_filled = trial->n_bytes[k] < FIRST_BYTES ? trial->n_bytes[k] : FIRST_BYTES;
    char *base = trial->device.bases[k];

    memset(values, 0, sizeof(values));
    for (uint64_t i = 0; buffer->is_input && i < n_filled / elem_bytes(buffer->dtype); i++) {
        float value = fabsf(values_float(&bench->state, 110, 18));

        cast_from_fp32((char *)values + i * elem_bytes(buffer->dtype), (enum dtype)buffer->dtype,
                       &value, 1);
    }
    device_copy(bench, base, values, n_filled);
    event_record(bench, bench->ended);
    device_wait(bench, bench->ended);
    while (n_filled < trial->n_bytes[k]) {
        uint64_t n_left = trial->n_bytes[k] - n_filled;
        uint64_t n_more = n_filled < n_left ? n_filled : n_left;

        device_copy(bench, base + n_filled, base, n_more);
        n_filled += n_more;
    }
}

static void experiment_time(struct bench *bench, const struct experiment *e)
{
    double moved = (double)bench->n_timed_elems * e->moved_bytes;
    struct trial trial;
    double rate;
    double share;

    trial_open(bench, e, bench->n_timed_elems, &trial);
    for (uint32_t k = 0; k < e->n_buffers; k++) {
        buffer_spread(bench, &trial, k);
    }
    rate = moved / ((double)rounds_time(bench, &trial, 0) * 1e-3);
    trial_close(bench, &trial);
    share = rate / bench->copy_rate;
    printf("%-24s %10.1f %10.1f %7.0f %%%s\n", e->name, moved * 1e-6, rate * 1e-9, share * 100,
           share < GOAL && !e->is_arithmetic ? "  below the goal" : "");
    if (share < bench->least_share && !e->is_arithmetic) {
        bench->least_share = share;
        bench->slowest = e->name;
    }
}

/* A copy of so many elements of fp32 that it takes long enough, and that memory has room. */
static void copy_time(struct bench *bench)
{
    const struct experiment *e = &experiments[4]; /* two arrays of fp32 */
    size_t n_free = 0;
    size_t n_total = 0;
    float ms = 0.0f;

    must(bench, gpu_enter(&bench->gpu, &bench->err));
    must_call(bench, bench->gpu.cuda.memory_info(&n_free, &n_total), "cuMemGetInfo");
    gpu_leave(&bench->gpu);
    bench->n_timed_elems = MIN_TIMED_ELEMS / 2;
    do {
        struct trial trial;

        bench->n_timed_elems *= 2;
        trial_open(bench, e, bench->n_timed_elems, &trial);
        buffer_spread(bench, &trial, 1);
        ms = rounds_time(bench, &trial, bench->n_timed_elems * sizeof(float));
        trial_close(bench, &trial);
    } while (ms < LEAST_MS && bench->n_timed_elems < MAX_TIMED_ELEMS &&
             bench->n_timed_elems * 2 * sizeof(float) * MAX_ROWS < n_free);
    bench->copy_rate = (double)bench->n_timed_elems * 8.0 / ((double)ms * 1e-3);
    printf("\n%-24s %10s %10s %9s\n", "kernel", "MB", "GB/s", "of copy");
    printf("%-24s %10.1f %10.1f\n", "copy", (double)bench->n_timed_elems * 8e-6,
           bench->copy_rate * 1e-9);
}

static void experiments_time(struct bench *bench)
{
    copy_time(bench);
    bench->least_share = INFINITY;
    for (uint32_t i = 0; i < n_experiments; i++) {
        experiment_time(bench, &experiments[i]);
    }
}

/* ------------------------------------------------------------------------------------- main */

static void bench_open(struct bench *bench)
{
    const char *library = getenv("HSDP_CUDA_LIBRARY");
    int32_t status =
        gpu_open(library == NULL ? "libcuda.so.1" : library, 0, NULL, &bench->gpu, &bench->err);

    if (status == HSDP_ERR_UNAVAILABLE) {
        printf("%s\n", bench->err.message);
        exit(EXIT_NO_DEVICE);
    }
    must(bench, status);
    must(bench, gpu_enter(&bench->gpu, &bench->err));
    must_call(bench, bench->gpu.cuda.event_create(&bench->began, 0), "cuEventCreate");
    must_call(bench, bench->gpu.cuda.event_create(&bench->ended, 0), "cuEventCreate");
    gpu_leave(&bench->gpu);
}

static void bench_close(struct bench *bench)
{
    gpu_event_destroy(&bench->gpu, bench->began);
    gpu_event_destroy(&bench->gpu, bench->ended);
    gpu_close(&bench->gpu);
}

int main(int argc, char **argv)
{
    static struct bench bench = {.err = HSDP_ERROR_INIT};
    bool is_small = argc == 2 && strcmp(argv[1], "--small") == 0;
    const char *seed = getenv("HSDP_TEST_SEED");

    if (argc > 1 && !is_small) {
        fprintf(stderr, "usage: kernels [--small]\n"
                        "Checks the kernels on device 0, and without --small times them.\n"
                        "HSDP_TEST_SEED repeats a run's random inputs.\n");
        return 2;
    }
    bench.state = seed == NULL ? (uint64_t)time(NULL) : strtoull(seed, NULL, 10);
    bench_open(&bench);
    printf("sm_%d, %u multiprocessors, HSDP_TEST_SEED=%" PRIu64 "\n", (int)bench.gpu.capability,
           bench.gpu.n_multiprocessors, bench.state);
    for (uint32_t i = 0; i < n_experiments; i++) {
        experiment_check(&bench, &experiments[i], is_small ? SMALL_ELEMS : CHECKED_ELEMS);
    }
    if (bench.n_failed != 0) {
        printf("figure: %u results are wrong\n", bench.n_failed);
        bench_close(&bench);
        return 1;
    }
    printf("%u kernels, two kinds of values each: the bits of the CPU\n", n_experiments);
    if (!is_small) {
        experiments_time(&bench);
        printf("figure: bits as on the CPU; at least %.0f %% of a copy's bandwidth (%s)\n",
               bench.least_share * 100, bench.slowest);
    } else {
        printf("figure: bits as on the CPU\n");
    }
    bench_close(&bench);
    return 0;
}
