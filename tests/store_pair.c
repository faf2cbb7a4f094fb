/* SPDX-License-Identifier: Apache-2.0 */
/* One model in two stores of one job: on the device, and over shared memory, which is right. */
#include "store_pair.h"

#include <check.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cast.h"
#include "device/space.h"
#include "hsdp/unit.h"
#include "jobs.h"
#include "plan_fixture.h"

static struct hsdp_error err;

static void ok(int32_t status)
{
    status_assert(status, HSDP_OK, &err);
}

/* Uniform in (-1, 1). */
static float random_value(uint64_t *state)
{
    return (float)fixture_random(state, 2000001u) / 1000000.0f - 1.0f;
}

/* ---------------------------------------------------------------------------------- the doubles */

/* On the device of its rank. */
static struct hsdp_job *job_open(void)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    const char *rank = getenv("LOCAL_RANK");
    struct hsdp_job *job = NULL;

    spec.device_type = HSDP_DEVICE_CUDA;
    spec.device_id = rank == NULL ? 0 : atoi(rank);
    ok(job_create(&spec, &job, &err));
    ok(job_enter(job, &err));
    ok(job_connect(job, &err));
    return job;
}

static const char *double_path(const char *name)
{
    static char path[4096];
    const char *folder = getenv("HSDP_TEST_DOUBLES");

    ck_assert_msg(folder != NULL, "HSDP_TEST_DOUBLES is not set: run make check");
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

void doubles_use(void)
{
    setenv("HSDP_BACKEND", "nccl", 1);
    setenv("HSDP_NCCL_TIMEOUT_SECONDS", "15", 1);
    setenv("HSDP_CUDA_LIBRARY", double_path("libcuda.so.1"), 1);
    setenv("HSDP_NCCL_LIBRARY", double_path("libnccl.so.2"), 1);
}

uint64_t doubles_n_races(void)
{
    void *library = dlopen(double_path("libcuda.so.1"), RTLD_NOW | RTLD_NOLOAD);
    uint64_t (*n_races)(void);
    void *found;

    ck_assert_msg(library != NULL, "%s", dlerror());
    found = dlsym(library, "double_n_races");
    ck_assert_ptr_nonnull(found);
    memcpy(&n_races, &found, sizeof(n_races));
    dlclose(library);
    return n_races();
}

/* --------------------------------------------------------------------------------- to and fro */

void pair_write(struct pair *pair, void *dst, const void *host, uint64_t n_bytes)
{
    ok(gpu_copy(pair->gpu, dst, host, n_bytes, pair->stream, &err));
}

void pair_wait(struct pair *pair)
{
    int32_t status;

    ok(gpu_event_record(pair->gpu, pair->event, pair->stream, &err));
    do {
        ok(job_progress(pair->job, &err));
        status = gpu_event_query(pair->gpu, pair->event, &err);
    } while (status == HSDP_PENDING);
    ok(status);
}

void pair_read(struct pair *pair, void *host, const void *src, uint64_t n_bytes)
{
    ok(gpu_copy(pair->gpu, host, src, n_bytes, pair->stream, &err));
    pair_wait(pair);
}

/* Behind what the store does in the space of the job. */
static void space_precede(struct pair *pair)
{
    ok(nccl_transport.settle(pair->nccl, &err));
    ok(job_space(pair->job)->ops->precede(job_space(pair->job), pair->stream, &err));
}

/* --------------------------------------------------------------------------------- opening */

static void expert_add(struct hsdp_plan *plan, const char *over)
{
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    uint32_t index;
    uint32_t unit;

    spec.name = "expert";
    spec.replicated_over = over;
    ok(plan_add_class(plan, &spec, &index, &err));
    for (int i = 0; i < 2; i++) {
        ok(plan_add_unit(plan, i == 0 ? "e0" : "e1", index, &unit, &err));
        fixture_param(plan, unit, i == 0 ? "e0w" : "e1w", "[33,7]");
    }
}

static void units_add(struct hsdp_plan *plan)
{
    static const char *const shapes[][2] = {
        {"[16,8]", "[5]"}, {"[100]", "[7,11]"}, {"[3]", "[1]"}, {"[64,20]", "[9]"}};
    char name[16];

    fixture_class(plan, "dense", "");
    for (uint32_t u = 0; u < 4; u++) {
        int64_t shape[8];
        struct hsdp_param_spec frozen;
        uint32_t unit;
        uint32_t param;

        snprintf(name, sizeof(name), "u%u", u);
        unit = fixture_unit(plan, name);
        for (uint32_t i = 0; i < 2; i++) {
            snprintf(name, sizeof(name), "u%up%u", u, i);
            fixture_param(plan, unit, name, shapes[u][i]);
        }
        if (u == 1) {
            frozen = fixture_param_spec(unit, "u1f", "[40]", shape);
            frozen.flags = HSDP_PARAM_FROZEN;
            ok(plan_add_param(plan, &frozen, &param, &err));
        }
    }
}

static void more_add(struct hsdp_plan *plan, const char *what)
{
    int64_t shape[8];
    struct hsdp_param_spec spec;
    uint32_t param;

    if (strcmp(what, "large") == 0) {
        fixture_param(plan, fixture_unit(plan, "large"), "large", "[1024,1024]");
    } else if (strcmp(what, "tie") == 0) {
        spec = fixture_param_spec(fixture_unit(plan, "t"), "t", "[1000]", shape);
        spec.tied_over = "pp";
        ok(plan_add_param(plan, &spec, &param, &err));
    } else if (what[0] != '\0') {
        expert_add(plan, what);
    }
}

void pair_open(struct pair *pair, const struct pair_case *row)
{
    memset(pair, 0, sizeof(*pair));
    pair->row = row;
    doubles_use();
    pair->job = job_open();
    pair->rank = job_rank(pair->job);
    pair->plan = fixture_plan(row->dims, pair->rank, row->settings);
    units_add(pair->plan);
    more_add(pair->plan, row->expert);
    fixture_finish(pair->plan);
    ck_assert_ptr_eq(transport_of(pair->job), &nccl_transport);
    ok(shm_transport.open(pair->job, pair->plan, &pair->shm, &err));
    ok(nccl_transport.open(pair->job, pair->plan, &pair->nccl, &err));
    pair->gpu = job_gpu(pair->job);
    ok(gpu_enter(pair->gpu, &err));
    ck_assert_int_eq(pair->gpu->cuda.stream_create(&pair->stream, CU_STREAM_NON_BLOCKING, 0),
                     CU_OK);
    gpu_leave(pair->gpu);
    ok(gpu_event_create(pair->gpu, &pair->event, &err));
}

void pair_close(struct pair *pair)
{
    pair_wait(pair);
    gpu_event_destroy(pair->gpu, pair->event);
    ok(gpu_enter(pair->gpu, &err));
    ck_assert_int_eq(pair->gpu->cuda.stream_destroy(pair->stream), CU_OK);
    gpu_leave(pair->gpu);
    nccl_transport.close(pair->nccl);
    shm_transport.close(pair->shm);
    plan_destroy(pair->plan);
    test_job_end(pair->job);
    ck_assert_uint_eq(doubles_n_races(), 0);
}

/* --------------------------------------------------------------------------------- parameters */

static enum dtype master_dtype(const struct pair *pair, uint32_t unit)
{
    return pair->plan->classes[pair->plan->units[unit].class_index].master_dtype;
}

static enum dtype param_dtype(const struct pair *pair, uint32_t unit)
{
    return pair->plan->classes[pair->plan->units[unit].class_index].param_dtype;
}

/* The replicas of a step shard get the same: values depend on where in the buffer they lie. */
static void master_fill(struct pair *pair, uint32_t unit, uint32_t buffer, uint64_t seed)
{
    uint64_t n_elems = pair->plan->units[unit].buffers[buffer].shard_elems[HSDP_SHARD_STEP];
    uint64_t first = plan_slice_offset(pair->plan, unit, buffer, HSDP_SHARD_STEP, pair->rank);
    enum dtype dtype = master_dtype(pair, unit);
    uint64_t n_bytes = n_elems * dtype_bytes(dtype);
    void *master = shm_transport.master(pair->shm, unit, buffer);
    float *values = calloc(n_elems + 1, sizeof(float));

    for (uint64_t i = 0; i < n_elems; i++) {
        uint64_t state = seed + (first + i) * 977 + unit * 131 + buffer;

        values[i] = random_value(&state);
    }
    cast_from_fp32(master, dtype, values, n_elems);
    pair_write(pair, nccl_transport.master(pair->nccl, unit, buffer), master, n_bytes);
    free(values);
}

void pair_fill(struct pair *pair, uint64_t seed)
{
    ok(job_exchange(pair->job, "edit", NULL, 0, NULL, &err)); /* nobody reads any more */
    for (uint32_t unit = 0; unit < pair->plan->n_units; unit++) {
        for (uint32_t b = 0; b < pair->plan->units[unit].n_buffers; b++) {
            master_fill(pair, unit, b, seed);
        }
    }
}

void pair_publish(struct pair *pair, enum published values)
{
    ok(shm_transport.publish(pair->shm, values, NULL, &err));
    ok(nccl_transport.publish(pair->nccl, values, pair->stream, &err));
}

static void buffer_compare(struct pair *pair, uint32_t unit, uint32_t buffer)
{
    uint64_t n_bytes =
        pair->plan->units[unit].buffers[buffer].n_elems * dtype_bytes(param_dtype(pair, unit));
    uint8_t *found = malloc(n_bytes + 1);

    pair_read(pair, found, nccl_transport.params(pair->nccl, unit, buffer), n_bytes);
    ck_assert_msg(memcmp(found, shm_transport.params(pair->shm, unit, buffer), n_bytes) == 0,
                  "%s %s: unit %u, buffer %u, rank %u", pair->row->dims, pair->row->settings, unit,
                  buffer, pair->rank);
    free(found);
}

static void unit_unshard(struct pair *pair, uint32_t unit)
{
    uint64_t ticket;

    ok(shm_transport.unshard(pair->shm, unit, NULL, &ticket, &err));
    ok(job_ticket_wait(pair->job, ticket, UINT64_MAX, &err));
    ok(nccl_transport.unshard(pair->nccl, unit, pair->stream, &ticket, &err));
    ok(job_ticket_order(pair->job, ticket, pair->stream, &err));
}

static void unit_reshard(struct pair *pair, uint32_t unit)
{
    shm_transport.reshard(pair->shm, unit, NULL);
    nccl_transport.reshard(pair->nccl, unit, pair->stream);
}

void pair_forward(struct pair *pair)
{
    for (uint32_t unit = 0; unit < pair->plan->n_units; unit++) {
        unit_unshard(pair, unit);
        for (uint32_t b = 0; b < pair->plan->units[unit].n_buffers; b++) {
            buffer_compare(pair, unit, b);
        }
        unit_reshard(pair, unit);
    }
}

/* --------------------------------------------------------------------------------- gradients */

/* Into the parameters alone where the rest is zeroed: padding is the store's. */
static void gradient_fill(struct pair *pair, uint32_t unit, bool is_zeroed, uint64_t seed)
{
    const struct plan_unit *row = &pair->plan->units[unit];
    enum dtype dtype = pair->plan->classes[row->class_index].gradient_dtype;

    for (uint32_t i = 0; i < row->n_params; i++) {
        const struct plan_param *param = &pair->plan->params[row->params[i]];
        uint64_t offset = param->offset_elems * dtype_bytes(dtype);
        uint8_t *slot = (uint8_t *)shm_transport.grads(pair->shm, unit) + offset;
        uint64_t state = seed * 7919 + pair->rank * 104729 + unit * 31 + i;
        float *values = calloc(param->n_elems + 1, sizeof(float));

        if (param->buffer != 0 || (is_zeroed && i == 1)) {
            free(values); /* frozen; or left as it is */
            continue;
        }
        for (uint64_t e = 0; e < param->n_elems; e++) {
            values[e] = random_value(&state);
        }
        cast_from_fp32(slot, dtype, values, param->n_elems);
        pair_write(pair, (uint8_t *)nccl_transport.grads(pair->nccl, unit) + offset, slot,
                   param->n_elems * dtype_bytes(dtype));
        free(values);
    }
}

static void late_add(struct pair *pair, uint32_t unit, uint64_t seed)
{
    float values[3] = {(float)seed + 0.25f, (float)pair->rank - 0.5f, 1.0f / 3.0f};
    struct store_addition addition = {.unit = unit, .dtype = DTYPE_FP32, .values = values};
    struct gpu_memory memory;

    addition.n_elems = 2;
    addition.offset_elems = 1;
    ok(gpu_alloc(pair->gpu, sizeof(values), HSDP_MEMORY_DEVICE, "a gradient", &memory, &err));
    pair_write(pair, memory.base, values, sizeof(values));
    ok(shm_transport.grads_add(pair->shm, &addition, &err));
    addition.values = memory.base;
    addition.stream = pair->stream;
    ok(nccl_transport.grads_add(pair->nccl, &addition, &err));
    pair_wait(pair);
    gpu_free(pair->gpu, &memory);
}

/* Hands a unit of the pass over; which is not its turn yet, where another comes before it. */
static void unit_reduce(struct pair *pair, uint32_t unit, uint64_t position, int32_t scope,
                        bool is_absent, uint64_t *ret_ticket)
{
    struct store_gradient gradient = {.unit = unit, .is_absent = is_absent, .scope = scope};
    uint64_t ticket;

    gradient.turn = &pair->turn;
    gradient.position = position;
    ok(shm_transport.reduce(pair->shm, &gradient, &ticket, &err));
    gradient.stream = pair->stream;
    ok(nccl_transport.reduce(pair->nccl, &gradient, ret_ticket, &err));
}

/*
 * Units from the last to the first. Some ranks have no gradient of some, some more has come late,
 * and the second unit is handed over before the first where there are slots for both.
 */
void pair_backward(struct pair *pair, int32_t scope, uint64_t seed)
{
    uint32_t n_units = pair->plan->n_units;
    bool is_swapped = pair->plan->n_slots > 1 && seed % 2 == 1;
    uint32_t units[8] = {0};
    uint64_t ticket = 0;

    pair->turn = 0;
    for (uint32_t i = 0; i < n_units; i++) {
        units[i] = n_units - 1 - i;
    }
    ok(shm_transport.pass_begin(pair->shm, units, n_units, scope, &err));
    ok(nccl_transport.pass_begin(pair->nccl, units, n_units, scope, &err));
    for (uint32_t i = 0; i < n_units; i++) {
        uint32_t unit = units[i];
        bool is_absent = (unit + pair->rank + seed) % 4 == 0;
        bool is_zeroed = (unit + seed) % 2 == 0;

        if ((unit + seed) % 3 == 0) {
            late_add(pair, unit, seed);
        }
        ok(nccl_transport.pass_reach(pair->nccl, unit, &err));
        if (!is_absent) {
            ok(shm_transport.grads_acquire(pair->shm, unit, is_zeroed, NULL, &err));
            ok(nccl_transport.grads_acquire(pair->nccl, unit, is_zeroed, pair->stream, &err));
            gradient_fill(pair, unit, is_zeroed, seed);
        }
        if (!is_swapped || i > 0) {
            pair->turn = i + 1;
        }
        if (is_swapped && i < 2) { /* positions 1 and 2, of which the second is handed over first */
            if (i == 1) {
                pair->turn = 0;
                unit_reduce(pair, unit, 2, scope, is_absent, &ticket);
                pair->turn = 2;
                unit_reduce(pair, units[0], 1, scope, (units[0] + pair->rank + seed) % 4 == 0,
                            &ticket);
            }
        } else {
            unit_reduce(pair, unit, i + 1, scope, is_absent, &ticket);
        }
        ok(job_progress(pair->job, &err)); /* as shard/ does, for the shm store's sake */
    }
    ok(nccl_transport.pass_end(pair->nccl, units, n_units, &err));
    ok(job_ticket_wait(pair->job, ticket, UINT64_MAX, &err));
}

static void sums_compare(struct pair *pair, uint32_t unit)
{
    uint64_t n_elems = pair->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    const float *expected = shm_transport.step_grads(pair->shm, unit);
    float *found = calloc(n_elems + 1, sizeof(float));

    ck_assert_int_eq(nccl_transport.has_leftover(pair->nccl, unit),
                     shm_transport.has_leftover(pair->shm, unit));
    ck_assert_int_eq(nccl_transport.has_step_grads(pair->nccl, unit),
                     shm_transport.has_step_grads(pair->shm, unit));
    pair_read(pair, found, nccl_transport.step_grads(pair->nccl, unit), n_elems * sizeof(float));
    for (uint64_t i = 0; i < n_elems; i++) {
        bool is_same = memcmp(&found[i], &expected[i], sizeof(float)) == 0;
        bool is_near = fabsf(found[i] - expected[i]) <= 1.0e-5f * (1.0f + fabsf(expected[i]));

        ck_assert_msg(pair->row->is_exact ? is_same : is_near,
                      "%s %s: unit %u, element %u of %u, rank %u: %.9g instead of %.9g",
                      pair->row->dims, pair->row->settings, unit, (unsigned)i, (unsigned)n_elems,
                      pair->rank, (double)found[i], (double)expected[i]);
    }
    free(found);
}

void pair_compare(struct pair *pair)
{
    ok(shm_transport.drain(pair->shm, &err));
    ok(nccl_transport.drain(pair->nccl, &err));
    space_precede(pair);
    for (uint32_t unit = 0; unit < pair->plan->n_units; unit++) {
        if (plan_is_trainable(pair->plan, unit)) {
            sums_compare(pair, unit);
        }
    }
}

/* ------------------------------------------------------------------------------------------ steps
 */

/* Each rank's part of the sums counts, where the rank counts at all. */
static void norms_add(struct pair *pair, struct step_words *words)
{
    struct space *space = job_space(pair->job);

    ok(space->ops->zero(space, space->norm, sizeof(*space->norm), &err));
    for (uint32_t unit = 0; unit < pair->plan->n_units; unit++) {
        const struct plan_class *class = &pair->plan->classes[pair->plan->units[unit].class_index];
        struct plan_part part = plan_step_part(pair->plan, unit);
        struct space_norm norm = {.n_elems = part.n_elems, .p = 2.0, .divisor = 1.0f};

        if (!placement_is_counted(&class->place, pair->plan->mesh, pair->rank)) {
            continue;
        }
        norm.values = nccl_transport.step_grads(pair->nccl, unit) + part.first_elem;
        ok(space->ops->norm(space, &norm, &err));
        norm_sum_add(&words->sum, shm_transport.step_grads(pair->shm, unit) + part.first_elem,
                     part.n_elems, 2.0);
    }
}

static void step_await(struct pair *pair, const struct transport_ops *ops, struct store *store)
{
    while (ops->step_blocker(store) != NULL) {
        ok(job_progress(pair->job, &err));
    }
}

void pair_step(struct pair *pair, double max_norm)
{
    struct step_words words = {.step = 1};
    struct step_words host;
    struct step_words device;
    float view[2];
    double norm;

    words.numbers[STEP_MAX_NORM] = max_norm;
    words.numbers[STEP_NORM_P] = 2.0;
    words.numbers[STEP_GRADIENT_SCALE] = 0.5;
    words.checksum = pair->rank;
    device = words;
    ok(nccl_transport.settle(pair->nccl, &err));
    norms_add(pair, &words);
    ok(shm_transport.step_start(pair->shm, &words, &err));
    ok(nccl_transport.step_start(pair->nccl, &device, &err));
    step_await(pair, &shm_transport, pair->shm);
    step_await(pair, &nccl_transport, pair->nccl);
    ok(shm_transport.step_words(pair->shm, &host, &err));
    ok(nccl_transport.step_words(pair->nccl, &device, &err));
    ck_assert_uint_eq(host.checksum, device.checksum);
    norm = norm_sum_value(&device.sum, 2.0);
    if (pair->row->is_exact) {
        ck_assert_mem_eq(&host.sum, &device.sum, sizeof(host.sum));
    } else {
        ck_assert_double_eq_tol(norm, norm_sum_value(&host.sum, 2.0), 1.0e-4 * norm);
    }
    space_precede(pair);
    pair_read(pair, view, nccl_transport.factor(pair->nccl), sizeof(view));
    ck_assert_float_eq(view[0], (float)(norm * 0.5));
    ck_assert_float_eq(view[1], (float)(0.5 * norm_clip_factor(norm * 0.5, max_norm)));
    shm_transport.step_grads_drop(pair->shm);
    nccl_transport.step_grads_drop(pair->nccl);
}
