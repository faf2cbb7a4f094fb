/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer states of a model, and the bytes that it has allocated. */
#include <check.h>
#include <stdatomic.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static const char units[] = "unit a: w[5,3] k[3]!; unit b: x[1031] s[]; unit f: g[2]!";

static int32_t flat_view(struct host *host, uint32_t unit, uint32_t buffer, int32_t flat,
                         struct hsdp_tensor *ret_view)
{
    return host->api->model->flat_view(host->model, unit, buffer, flat, ret_view, &host->err);
}

/* ---------------------------------------------------------------------------------- states */

static int32_t state_create(struct host *host, const char *name, const char *dtype,
                            uint32_t *ret_state)
{
    return host->api->model->state_create(host->model, name, dtype, ret_state, &host->err);
}

static void states_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    uint32_t momentum = 9;
    uint32_t variance = 9;
    struct host host;
    const char *name;
    const char *dtype;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, units);
    host_must(&host, state_create(&host, "momentum", "bf16", &momentum));
    host_must(&host, state_create(&host, "variance", "fp32", &variance));
    ck_assert_uint_eq(momentum, 0);
    ck_assert_uint_eq(variance, 1);
    host_must(&host, state_create(&host, "momentum", "bf16", &variance));
    ck_assert_uint_eq(variance, 0);
    host_must_refuse(&host, state_create(&host, "momentum", "fp32", &variance), HSDP_ERR_INVALID,
                     "\"momentum\" exists as bf16");
    host_must_refuse(&host, state_create(&host, "other", "int8", &variance), HSDP_ERR_INVALID,
                     "int8");
    host_must(&host, host.api->model->state_info(host.model, 0, &name, &dtype, &host.err));
    ck_assert_str_eq(name, "momentum");
    ck_assert_str_eq(dtype, "bf16");
    host_must_refuse(&host, host.api->model->state_info(host.model, 2, &name, &dtype, &host.err),
                     HSDP_ERR_INVALID, "state 2 of 2");
    host_must(&host, flat_view(&host, 1, 0, HSDP_FLAT_STATE, &view));
    ck_assert_uint_eq(view.dtype_code, HSDP_DTYPE_BFLOAT);
    ck_assert_uint_eq(view.dtype_bits, 16);
    for (uint64_t elem = 0; elem < (uint64_t)view.shape[0]; elem++) {
        host_expect_number(&host, "state", elem, host_read(&view, elem), 0.0);
    }
    host_must_refuse(&host, flat_view(&host, 0, 1, HSDP_FLAT_STATE, &view), HSDP_ERR_INVALID,
                     "frozen");
    host_close(&host);
}

static void told_rank(uint32_t rank, void *shared)
{
    struct host host;
    uint32_t state;
    const char *name;
    const char *dtype;

    (void)shared;
    host_open(&host, rank, "dp=1", "", units);
    host_must(&host, state_create(&host, "momentum", "bf16", &state));
    host_must(&host, host.api->job->abort(host.job, "enough", &host.err));
    host_must(&host, host.api->model->state_info(host.model, state, &name, &dtype, &host.err));
    ck_assert_str_eq(name, "momentum");
    host_leave(&host);
}

START_TEST(state_info_of_a_failed_job_still_answers)
{
    ranks_run(1, RANKS_LIMIT_MS, told_rank, NULL);
}
END_TEST

START_TEST(states_are_zero_and_known_by_name)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, states_rank, NULL);
}
END_TEST

/* How many elements one state has when it is not sharded, padding included. */
static uint64_t unsharded_elems(struct host *host)
{
    uint64_t n_elems = 0;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;

        host_must(host, host->api->plan->buffer_info(host->plan, unit, 0, &info, &host->err));
        n_elems += info.is_frozen ? 0 : info.n_elems;
    }
    return n_elems;
}

static uint64_t step_ranks(struct host *host)
{
    struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;
    const hsdp_mesh *mesh;
    uint64_t n_ranks = 0;
    int32_t status;

    host_must(host, host->api->plan->class_info(host->plan, 0, &info, &host->err));
    host_must(host, host->api->plan->mesh(host->plan, &mesh, &host->err));
    status =
        host->api->mesh->members(mesh, info.step_dims, host->rank, NULL, 0, &n_ranks, &host->err);
    ck_assert_int_eq(status, HSDP_ERR_BUFFER_TOO_SMALL);
    return n_ranks;
}

/* Two states in fp32 and one in 16 bits. */
static void state_bytes_rank(uint32_t rank, void *shared)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct hsdp_plan_info plan = HSDP_PLAN_INFO_INIT;
    _Atomic uint64_t *n_bytes = shared;
    uint32_t state;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, units);
    host_step(&host, 0.0);
    host_must(&host, host_adamw(&host, 0.1, 0.1));
    host_step_end(&host);
    host_must(&host, state_create(&host, "third", "bf16", &state));
    host_must(&host, host.api->model->info(host.model, &info, &host.err));
    host_must(&host, host.api->plan->info(host.plan, &plan, &host.err));
    ck_assert_uint_eq(info.n_states, 3);
    ck_assert_uint_eq(info.state_bytes, plan.n_state_elems * (4 + 4 + 2));
    ck_assert_uint_eq(plan.n_state_elems * step_ranks(&host), unsharded_elems(&host));
    atomic_fetch_add(&n_bytes[0], info.state_bytes);
    atomic_store(&n_bytes[1], unsharded_elems(&host) * (4 + 4 + 2) * 4 / step_ranks(&host));
    host_close(&host);
}

START_TEST(states_of_a_step_group_have_the_bytes_of_one_unsharded_state)
{
    _Atomic uint64_t *n_bytes = ranks_memory(2 * sizeof(*n_bytes));

    host_settings_set(_i, "shard_size=2");
    ranks_run(4, RANKS_LIMIT_MS, state_bytes_rank, (void *)n_bytes);
    ck_assert_uint_gt(n_bytes[1], 0);
    ck_assert_uint_eq(n_bytes[0], n_bytes[1]);
}
END_TEST

/* ------------------------------------------------------------------------------------ info */

static uint64_t counter(struct host *host, const char *name)
{
    uint64_t value = 0;

    host_must(host, host->api->diag->counter(host->job, name, &value, &host->err));
    return value;
}

static void info_rank(uint32_t rank, void *shared)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct hsdp_plan_info plan = HSDP_PLAN_INFO_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, units);
    host_must(&host, host.api->model->info(host.model, &info, &host.err));
    host_must(&host, host.api->plan->info(host.plan, &plan, &host.err));
    ck_assert_uint_eq(info.param_bytes, plan.param_bytes);
    ck_assert_uint_eq(info.master_bytes, plan.master_bytes);
    ck_assert_uint_eq(info.grad_bytes, plan.grad_bytes);
    ck_assert_uint_eq(info.grad_slot_bytes, plan.grad_slot_bytes);
    ck_assert_uint_eq(info.unsharded_bytes, plan.unsharded_bytes);
    ck_assert_uint_eq(info.state_bytes + info.n_states + info.step, 0);
    ck_assert_uint_eq(counter(&host, "memory.parameters"), info.param_bytes + info.master_bytes);
    ck_assert_uint_eq(counter(&host, "memory.gradients"), info.grad_bytes + info.grad_slot_bytes);
    host.api->model->destroy(host.model);
    host.model = NULL;
    ck_assert_uint_eq(counter(&host, "memory.parameters"), 0);
    ck_assert_uint_eq(counter(&host, "memory.gradients"), 0);
    host_close(&host);
}

START_TEST(info_of_a_model_is_what_the_plan_promised)
{
    static const char *const more[] = {"",
                                       "param_dtype=bf16",
                                       "accumulation_scope=inner slots=3",
                                       "accumulation_scope=full gradient_dtype=bf16 shard_size=2",
                                       "param_dtype=bf16 master_dtype=bf16",
                                       "master_dtype=fp16"};

    host_settings_set(_i / 6, more[_i % 6]);
    ranks_run(4, RANKS_LIMIT_MS, info_rank, NULL);
}
END_TEST

/* A state that only one replica has is not called a difference of values. */
static void alone_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct hsdp_tensor view;
    struct host host;
    uint32_t state;

    (void)shared;
    host_open(&host, rank, "dp=2", "sharding_strategy=ddp verify=step:1", "unit a: w[70]");
    if (rank == 1) {
        host_must(&host, host.api->model->state_create(host.model, "s", "fp32", &state, &host.err));
        host_must(&host,
                  host.api->model->flat_view(host.model, 0, 0, HSDP_FLAT_STATE, &view, &host.err));
        host_write(&view, 3, 1.0);
    }
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must_refuse(&host, host.api->step->result(host.model, &result, &host.err), HSDP_ERR_DRIFT,
                     "unit \"a\": state \"s\" was created on rank 1, not on rank 0");
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_close(&host);
}

START_TEST(step_with_a_state_of_one_replica_names_it)
{
    ranks_run(2, RANKS_LIMIT_MS, alone_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("states");
    TCase *tcase = tcase_create("states");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, states_are_zero_and_known_by_name, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, states_of_a_step_group_have_the_bytes_of_one_unsharded_state, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, info_of_a_model_is_what_the_plan_promised, 0, 6 * HOST_N_STRATEGIES);
    tcase_add_test(tcase, state_info_of_a_failed_job_still_answers);
    tcase_add_test(tcase, step_with_a_state_of_one_replica_names_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
