/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of older, current and newer hosts, for every function that takes or fills one. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "abi_host.h"
#include "suite.h"

#define TAIL 16u

/* Sizes in ABI 1.0. They are written out: this suite stands for hosts that were compiled then. */
#define ERROR_1_0 776u

static struct abi_host host;

static void host_open(void)
{
    abi_host_init(&host);
}

static void host_close(void)
{
    abi_host_fini(&host);
}

/* --------------------------------------------------------------------------------------- inputs */

static int32_t call_mesh_create(const void *spec, struct hsdp_error *reterr)
{
    hsdp_mesh *mesh = NULL;
    int32_t status = host.api->mesh->create(spec, &mesh, reterr);

    ck_assert_int_eq(status == HSDP_OK, mesh != NULL);
    host.api->mesh->destroy(mesh);
    return status;
}

static int32_t call_job_create(const void *spec, struct hsdp_error *reterr)
{
    hsdp_job *job = NULL;
    int32_t status = host.api->job->create(spec, &job, reterr);

    ck_assert_int_eq(status == HSDP_OK, job != NULL);
    host.api->job->destroy(job);
    return status;
}

static int32_t call_group_create(const void *spec, struct hsdp_error *reterr)
{
    hsdp_group *group = NULL;
    int32_t status = host.api->group->create(host.job, host.mesh, spec, &group, reterr);

    ck_assert_int_eq(status == HSDP_OK, group != NULL);
    host.api->group->destroy(group);
    return status;
}

static int32_t call_group_start(const void *spec, struct hsdp_error *reterr)
{
    uint64_t ticket = 77;
    size_t spec_bytes;
    int32_t status;

    memcpy(&spec_bytes, spec, sizeof(spec_bytes));
    status = host.api->group->start(host.group, spec, spec_bytes, 1, NULL, &ticket, reterr);
    ck_assert_int_eq(status == HSDP_OK, ticket != 77);
    return status;
}

static int32_t call_add_class(const void *spec, struct hsdp_error *reterr)
{
    hsdp_plan *plan = abi_plan(host.api, host.mesh);
    uint32_t index = 77;
    int32_t status = host.api->plan->add_class(plan, spec, &index, reterr);

    ck_assert_uint_eq(index, status == HSDP_OK ? 1 : 77);
    host.api->plan->destroy(plan);
    return status;
}

static int32_t call_add_param(const void *spec, struct hsdp_error *reterr)
{
    hsdp_plan *plan = abi_plan(host.api, host.mesh);
    uint32_t index = 77;
    uint32_t unit;
    int32_t status;

    ck_assert_int_eq(host.api->plan->add_unit(plan, "u", 0, &unit, NULL), HSDP_OK);
    status = host.api->plan->add_param(plan, spec, &index, reterr);
    ck_assert_uint_eq(index, status == HSDP_OK ? 0 : 77);
    host.api->plan->destroy(plan);
    return status;
}

static int32_t call_step_begin(const void *spec, struct hsdp_error *reterr)
{
    uint64_t ticket = 77;
    int32_t status = host.api->step->begin(host.model, spec, &ticket, reterr);

    ck_assert_int_eq(status == HSDP_OK, ticket != 77);
    if (status == HSDP_OK) {
        ck_assert_int_eq(host.api->step->discard(host.model, NULL, NULL), HSDP_OK);
    }
    return status;
}

static int32_t call_adamw_step(const void *spec, struct hsdp_error *reterr)
{
    int32_t status;

    abi_step_begin(&host);
    status = abi_adamw(host.api)->step(host.model, spec, reterr);
    if (status == HSDP_OK) { /* what is updated cannot be discarded */
        ck_assert_int_eq(host.api->step->end(host.model, NULL, NULL, NULL), HSDP_OK);
    } else {
        ck_assert_int_eq(host.api->step->discard(host.model, NULL, NULL), HSDP_OK);
    }
    return status;
}

/* What every one of these may hold; initialised by hand, for the layout is frozen. */
static const int64_t one[] = {1};
static const char *const dp[] = {"dp"};
static const double rates[] = {0.5};
static const struct hsdp_mesh_spec mesh_spec = {
    .dim_sizes = one, .dim_names = dp, .n_dims = 1, .world_ranks = 1};
static const struct hsdp_job_spec job_spec = {.name = "other"};
static const struct hsdp_group_spec group_spec = {.selector = "dp"};
static const struct hsdp_coll_spec coll_spec = {.kind = HSDP_COLL_BARRIER};
static const struct hsdp_class_spec class_spec = {.name = "second"};
static const struct hsdp_param_spec param_spec = {.name = "q", .shape = one, .n_dims = 1};
static const struct hsdp_step_spec step_spec = {.max_norm = 1};
static const struct hsdp_adamw_spec adamw_spec = {.learning_rate = rates,
                                                  .weight_decay = rates,
                                                  .beta1 = 0.9,
                                                  .beta2 = 0.99,
                                                  .epsilon = 1e-8,
                                                  .n_hyper_groups = 1};

static const struct input {
    const char *name; /* how an error calls it */
    int32_t (*call)(const void *spec, struct hsdp_error *reterr);
    const void *spec;
    size_t n_bytes;
    size_t n_bytes_1_0;
    size_t reserved_offset;
} inputs[] = {
    {"mesh.create: spec", call_mesh_create, &mesh_spec, sizeof(mesh_spec), 48, 0},
    {"job.create: spec", call_job_create, &job_spec, sizeof(job_spec), 120, 0},
    {"group.create: spec", call_group_create, &group_spec, sizeof(group_spec), 24, 0},
    {"group.start: specs[0]", call_group_start, &coll_spec, sizeof(coll_spec), 64, 60},
    {"plan.add_class: spec", call_add_class, &class_spec, sizeof(class_spec), 56, 0},
    {"plan.add_param: spec", call_add_param, &param_spec, sizeof(param_spec), 64, 0},
    {"step.begin: spec", call_step_begin, &step_spec, sizeof(step_spec), 56, 0},
    {"adamw.step: spec", call_adamw_step, &adamw_spec, sizeof(adamw_spec), 72, 68},
};

#define N_INPUTS ((int)(sizeof(inputs) / sizeof(inputs[0])))

/* Expects a refusal whose sentence names the struct. */
static void expect_refused(const struct input *input, const void *spec, int32_t status)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(input->call(spec, &err), status);
    ck_assert_int_eq(err.status, status);
    ck_assert_msg(strncmp(err.message, input->name, strlen(input->name)) == 0, "%s", err.message);
}

/* Case E1 of tests/cases/README.md. */
START_TEST(input_of_known_size_is_accepted)
{
    const struct input *input = &inputs[_i];
    struct hsdp_error err = HSDP_ERROR_INIT;

    abi_must(input->call(abi_guarded_copy(input->spec, input->n_bytes, input->n_bytes), &err),
             &err);
}
END_TEST

/* Case E1 of tests/cases/README.md. */
START_TEST(input_of_the_first_version_is_accepted)
{
    const struct input *input = &inputs[_i];
    struct hsdp_error err = HSDP_ERROR_INIT;

    abi_must(input->call(abi_guarded_copy(input->spec, input->n_bytes, input->n_bytes_1_0), &err),
             &err);
}
END_TEST

START_TEST(input_longer_with_zeros_is_accepted)
{
    const struct input *input = &inputs[_i];
    struct hsdp_error err = HSDP_ERROR_INIT;

    abi_must(
        input->call(abi_guarded_copy(input->spec, input->n_bytes, input->n_bytes + TAIL), &err),
        &err);
}
END_TEST

/* The first and the last byte behind what is known. */
START_TEST(input_longer_with_a_value_is_unsupported)
{
    const struct input *input = &inputs[_i];

    if (host.api->abi_minor > HSDP_ABI_MINOR) {
        return; /* a plugin that is newer than this suite may know these bytes */
    }
    for (size_t at = 0; at < TAIL; at += TAIL - 1) {
        unsigned char *spec = abi_guarded_copy(input->spec, input->n_bytes, input->n_bytes + TAIL);

        spec[input->n_bytes + at] = 1;
        expect_refused(input, spec, HSDP_ERR_UNSUPPORTED);
    }
}
END_TEST

/* One byte less than the first version, eight less, only a size, none, and garbage. */
START_TEST(input_of_impossible_size_is_a_version_error_with_both_sizes)
{
    const struct input *input = &inputs[_i];
    size_t sizes[] = {input->n_bytes_1_0 - 1, input->n_bytes_1_0 - 8, 8, 0, SIZE_MAX};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct hsdp_error err = HSDP_ERROR_INIT;
        size_t n_room = sizes[i] == SIZE_MAX ? input->n_bytes : sizes[i];
        size_t *spec = abi_guarded_copy(input->spec, input->n_bytes, n_room);
        char both[96];

        *spec = sizes[i];
        ck_assert_int_eq(input->call(spec, &err), HSDP_ERR_VERSION);
        snprintf(both, sizeof(both), " is %zu; ABI 1.0 has %zu,", sizes[i], input->n_bytes_1_0);
        ck_assert_msg(strstr(err.message, both) != NULL, "%s", err.message);
    }
}
END_TEST

START_TEST(input_with_a_reserved_value_is_unsupported)
{
    const struct input *input = &inputs[_i];
    unsigned char *spec = abi_guarded_copy(input->spec, input->n_bytes, input->n_bytes);

    if (input->reserved_offset == 0) {
        return;
    }
    spec[input->reserved_offset] = 1;
    expect_refused(input, spec, HSDP_ERR_UNSUPPORTED);
}
END_TEST

/* -------------------------------------------------------------------------------------- outputs */

static int32_t call_mesh_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->mesh->info(host.mesh, ret, reterr);
}

static int32_t call_job_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->job->info(host.job, ret, reterr);
}

static int32_t call_group_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->group->info(host.group, ret, reterr);
}

static int32_t call_plan_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->plan->info(host.plan, ret, reterr);
}

static int32_t call_class_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->plan->class_info(host.plan, 0, ret, reterr);
}

static int32_t call_unit_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->plan->unit_info(host.plan, 0, ret, reterr);
}

static int32_t call_buffer_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->plan->buffer_info(host.plan, 0, 0, ret, reterr);
}

static int32_t call_param_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->plan->param_info(host.plan, 0, ret, reterr);
}

static int32_t call_model_info(void *ret, struct hsdp_error *reterr)
{
    return host.api->model->info(host.model, ret, reterr);
}

static int32_t call_step_result(void *ret, struct hsdp_error *reterr)
{
    int32_t status;

    abi_step_begin(&host);
    status = host.api->step->result(host.model, ret, reterr);
    ck_assert_int_eq(host.api->step->discard(host.model, NULL, NULL), HSDP_OK);
    return status;
}

/* In each, some four bytes are known to become another number than 0xaaaaaaaa. */
static const struct output {
    const char *name;
    int32_t (*call)(void *ret, struct hsdp_error *reterr);
    size_t n_bytes;
    size_t n_bytes_1_0;
    size_t known_offset;
    uint32_t known;
} outputs[] = {
    {"mesh.info: ret_info", call_mesh_info, sizeof(struct hsdp_mesh_info), 32,
     offsetof(struct hsdp_mesh_info, n_dims), 1},
    {"job.info: ret_info", call_job_info, sizeof(struct hsdp_job_info), 56,
     offsetof(struct hsdp_job_info, world_ranks), 1},
    {"group.info: ret_info", call_group_info, sizeof(struct hsdp_group_info), 56,
     offsetof(struct hsdp_group_info, n_ranks), 1},
    {"plan.info: ret_info", call_plan_info, sizeof(struct hsdp_plan_info), 88,
     offsetof(struct hsdp_plan_info, n_params), 1},
    {"plan.class_info: ret_info", call_class_info, sizeof(struct hsdp_class_info), 72,
     offsetof(struct hsdp_class_info, divisor), 1},
    {"plan.unit_info: ret_info", call_unit_info, sizeof(struct hsdp_unit_info), 48,
     offsetof(struct hsdp_unit_info, n_params), 1},
    {"plan.buffer_info: ret_info", call_buffer_info, sizeof(struct hsdp_buffer_info), 56,
     offsetof(struct hsdp_buffer_info, is_frozen), 0},
    {"plan.param_info: ret_info", call_param_info, sizeof(struct hsdp_param_info), 80,
     offsetof(struct hsdp_param_info, n_dims), 2},
    {"model.info: ret_info", call_model_info, sizeof(struct hsdp_model_info), 80,
     offsetof(struct hsdp_model_info, n_states), 0},
    {"step.result: ret_result", call_step_result, sizeof(struct hsdp_step_info), 56,
     offsetof(struct hsdp_step_info, step), 1},
};

#define N_OUTPUTS ((int)(sizeof(outputs) / sizeof(outputs[0])))

/* A struct of the caller, all 0xaa but for its size, that ends at the end of the world. */
static unsigned char *output_room(size_t n_bytes)
{
    unsigned char *room = abi_guarded(n_bytes < sizeof(size_t) ? sizeof(size_t) : n_bytes, 0xaa);

    memcpy(room, &n_bytes, sizeof(n_bytes));
    return room;
}

static void expect_filled(const struct output *output, size_t n_bytes)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    unsigned char *room = output_room(n_bytes);

    abi_must(output->call(room, &err), &err);
    ck_assert_mem_eq(room, &n_bytes, sizeof(n_bytes));
    ck_assert_mem_eq(room + output->known_offset, &output->known, sizeof(output->known));
    if (n_bytes > output->n_bytes) {
        ck_assert(abi_is_filled(room + output->n_bytes, n_bytes - output->n_bytes, 0));
    }
}

START_TEST(output_of_known_size_is_filled)
{
    expect_filled(&outputs[_i], outputs[_i].n_bytes);
}
END_TEST

START_TEST(output_of_the_first_version_is_filled)
{
    expect_filled(&outputs[_i], outputs[_i].n_bytes_1_0);
}
END_TEST

START_TEST(output_longer_is_filled_and_its_tail_zeroed)
{
    expect_filled(&outputs[_i], outputs[_i].n_bytes + TAIL);
}
END_TEST

START_TEST(output_of_impossible_size_is_a_version_error_and_untouched)
{
    const struct output *output = &outputs[_i];
    size_t sizes[] = {output->n_bytes_1_0 - 1, output->n_bytes_1_0 - 8, 8, 0};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct hsdp_error err = HSDP_ERROR_INIT;
        unsigned char *room = output_room(sizes[i]);

        ck_assert_int_eq(output->call(room, &err), HSDP_ERR_VERSION);
        ck_assert_msg(strncmp(err.message, output->name, strlen(output->name)) == 0, "%s",
                      err.message);
        ck_assert_mem_eq(room, &sizes[i], sizeof(sizes[i]));
        ck_assert(sizes[i] <= sizeof(size_t) ||
                  abi_is_filled(room + sizeof(size_t), sizes[i] - sizeof(size_t), 0xaa));
    }
}
END_TEST

START_TEST(output_null_is_invalid)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    char sentence[96];

    ck_assert_int_eq(outputs[_i].call(NULL, &err), HSDP_ERR_INVALID);
    snprintf(sentence, sizeof(sentence), "%s is NULL", outputs[_i].name);
    ck_assert_str_eq(err.message, sentence);
}
END_TEST

/* An old host's error, through a function of the engine rather than the border's own. */
START_TEST(error_of_the_first_version_is_filled_within_its_size)
{
    struct hsdp_error *err = abi_guarded(ERROR_1_0, 0xaa);
    hsdp_mesh *mesh = NULL;
    struct hsdp_mesh_spec spec = mesh_spec;

    spec.struct_size = sizeof(spec);
    spec.n_dims = 0;
    err->struct_size = ERROR_1_0;
    ck_assert_int_eq(host.api->mesh->create(&spec, &mesh, err), HSDP_ERR_INVALID);
    ck_assert_int_eq(err->status, HSDP_ERR_INVALID);
    ck_assert_uint_eq(err->struct_size, ERROR_1_0);
    ck_assert_uint_gt(strlen(err->message), 10);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_intake");
    TCase *in = tcase_create("inputs");
    TCase *out = tcase_create("outputs");

    tcase_add_checked_fixture(in, host_open, host_close);
    tcase_add_loop_test(in, input_of_known_size_is_accepted, 0, N_INPUTS);
    tcase_add_loop_test(in, input_of_the_first_version_is_accepted, 0, N_INPUTS);
    tcase_add_loop_test(in, input_longer_with_zeros_is_accepted, 0, N_INPUTS);
    tcase_add_loop_test(in, input_longer_with_a_value_is_unsupported, 0, N_INPUTS);
    tcase_add_loop_test(in, input_of_impossible_size_is_a_version_error_with_both_sizes, 0,
                        N_INPUTS);
    tcase_add_loop_test(in, input_with_a_reserved_value_is_unsupported, 0, N_INPUTS);
    suite_add_tcase(suite, in);
    tcase_add_checked_fixture(out, host_open, host_close);
    tcase_add_loop_test(out, output_of_known_size_is_filled, 0, N_OUTPUTS);
    tcase_add_loop_test(out, output_of_the_first_version_is_filled, 0, N_OUTPUTS);
    tcase_add_loop_test(out, output_longer_is_filled_and_its_tail_zeroed, 0, N_OUTPUTS);
    tcase_add_loop_test(out, output_of_impossible_size_is_a_version_error_and_untouched, 0,
                        N_OUTPUTS);
    tcase_add_loop_test(out, output_null_is_invalid, 0, N_OUTPUTS);
    tcase_add_test(out, error_of_the_first_version_is_filled_within_its_size);
    suite_add_tcase(suite, out);
    return suite;
}
