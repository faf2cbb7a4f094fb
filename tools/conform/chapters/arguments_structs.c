/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: structs of older, current and newer hosts, at the edge of readable memory. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "guard.h"

#define TAIL 16u

/* ------------------------------------------------------------------------------------- inputs */

/* Each makes a call with a struct, undoes what it did, and answers the status. */
static int32_t call_mesh_create(struct arguments *a, const void *spec)
{
    hsdp_mesh *mesh = NULL;
    int32_t status = a->api->mesh->create(spec, &mesh, a->err);

    a->api->mesh->destroy(mesh);
    return status;
}

static int32_t call_job_create(struct arguments *a, const void *spec)
{
    hsdp_job *job = NULL;
    int32_t status = a->api->job->create(spec, &job, a->err);

    a->api->job->destroy(job);
    return status;
}

static int32_t call_group_create(struct arguments *a, const void *spec)
{
    hsdp_group *group = NULL;
    int32_t status = a->api->group->create(a->job, a->mesh, spec, &group, a->err);

    a->api->group->destroy(group);
    return status;
}

static int32_t call_group_start(struct arguments *a, const void *spec)
{
    size_t spec_bytes;

    memcpy(&spec_bytes, spec, sizeof(spec_bytes));
    if (spec_bytes < sizeof(struct hsdp_coll_spec)) {
        spec_bytes = sizeof(struct hsdp_coll_spec); /* one thing at a time is wrong */
    }
    return a->api->group->start(a->group, spec, spec_bytes, 1, NULL, NULL, a->err);
}

static int32_t call_add_class(struct arguments *a, const void *spec)
{
    const struct hsdp_plan_ops *ops = a->api->plan;
    hsdp_plan *plan = NULL;
    uint32_t index;
    int32_t status = ops->create(a->mesh, NULL, &plan, NULL);

    status = status == HSDP_OK ? ops->add_class(plan, spec, &index, a->err) : status;
    ops->destroy(plan);
    return status;
}

static int32_t call_add_param(struct arguments *a, const void *spec)
{
    const struct hsdp_plan_ops *ops = a->api->plan;
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    hsdp_plan *plan = NULL;
    uint32_t index;
    int32_t status = ops->create(a->mesh, NULL, &plan, NULL);

    dense.name = "dense";
    status = status == HSDP_OK ? ops->add_class(plan, &dense, &index, NULL) : status;
    status = status == HSDP_OK ? ops->add_unit(plan, "u", 0, &index, NULL) : status;
    status = status == HSDP_OK ? ops->add_param(plan, spec, &index, a->err) : status;
    ops->destroy(plan);
    return status;
}

static int32_t call_step_begin(struct arguments *a, const void *spec)
{
    int32_t status = a->api->step->begin(a->model, spec, NULL, a->err);

    if (status == HSDP_OK) {
        a->api->step->discard(a->model, NULL, NULL);
    }
    return status;
}

static int32_t call_adamw_step(struct arguments *a, const void *spec)
{
    struct hsdp_step_spec step = HSDP_STEP_SPEC_INIT;
    int32_t status = a->api->step->begin(a->model, &step, NULL, NULL);

    status = status == HSDP_OK ? a->adamw->step(a->model, spec, a->err) : status;
    if (status == HSDP_OK) { /* what is updated cannot be discarded */
        a->api->step->end(a->model, NULL, NULL, NULL);
    } else {
        a->api->step->discard(a->model, NULL, NULL);
    }
    return status;
}

/* What each may hold; the sizes are said later. */
static const int64_t one[] = {1};
static const char *const dp[] = {"dp"};
static const double rates[] = {0.5};
static const struct hsdp_mesh_spec mesh_spec = {
    .dim_sizes = one, .dim_names = dp, .n_dims = 1, .world_ranks = 1};
static const struct hsdp_job_spec job_spec = {.name = "other"};
static const struct hsdp_group_spec group_spec = {.selector = "dp"};
static const struct hsdp_coll_spec coll_spec = {.kind = HSDP_COLL_BARRIER};
static const struct hsdp_class_spec class_spec = {.name = "first"};
static const struct hsdp_param_spec param_spec = {.name = "q", .shape = one, .n_dims = 1};
static const struct hsdp_step_spec step_spec = {.max_norm = 1};
static const struct hsdp_adamw_spec adamw_spec = {.learning_rate = rates,
                                                  .weight_decay = rates,
                                                  .beta1 = 0.9,
                                                  .beta2 = 0.99,
                                                  .epsilon = 1e-8,
                                                  .n_hyper_groups = 1};

static const struct input {
    const char *name;
    int32_t (*call)(struct arguments *arguments, const void *spec);
    const void *spec;
    size_t n_bytes;
    size_t n_bytes_1_0;
    size_t reserved_offset; /* 0 = it has none */
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

#define N_INPUTS (sizeof(inputs) / sizeof(inputs[0]))

/* False for the extension that a plugin does not have. */
static int input_is_there(const struct arguments *arguments, const struct input *input)
{
    return input->call != call_adamw_step || arguments->adamw != NULL;
}

static void input_accept(struct arguments *arguments, const struct input *input, size_t n_bytes)
{
    const void *spec = guard_copy(arguments->conform, input->spec, input->n_bytes, n_bytes);
    char what[96];
    int32_t status;

    snprintf(what, sizeof(what), "%s with a struct_size of %zu", input->name, n_bytes);
    arguments_enter(arguments, what, ARGUMENTS_FULL);
    status = input->call(arguments, spec);
    conform_check_ok(arguments->conform, what, status);
}

void inputs_of_any_size(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    for (size_t i = 0; i < N_INPUTS; i++) {
        if (input_is_there(&a, &inputs[i])) {
            input_accept(&a, &inputs[i], inputs[i].n_bytes);
            input_accept(&a, &inputs[i], inputs[i].n_bytes_1_0);
            input_accept(&a, &inputs[i], inputs[i].n_bytes + TAIL);
            input_accept(&a, &inputs[i], inputs[i].n_bytes + 4096);
        }
    }
    arguments_close(&a);
}

static void input_refuse(struct arguments *arguments, const struct input *input, const void *spec,
                         const char *which, int32_t status)
{
    char what[128];

    snprintf(what, sizeof(what), "%s %s", input->name, which);
    arguments_refuse_as(arguments, what, input->call(arguments, spec), status);
}

void inputs_too_short(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    for (size_t i = 0; i < N_INPUTS; i++) {
        const size_t sizes[] = {inputs[i].n_bytes_1_0 - 1, inputs[i].n_bytes_1_0 - 8, 8, 1, 0};

        for (size_t k = 0; k < 5 && input_is_there(&a, &inputs[i]); k++) {
            char which[48];

            snprintf(which, sizeof(which), "with a struct_size of %zu", sizes[k]);
            input_refuse(&a, &inputs[i],
                         guard_copy(conform, inputs[i].spec, inputs[i].n_bytes, sizes[k]), which,
                         HSDP_ERR_VERSION);
        }
    }
    arguments_close(&a);
}

/* The first, the last and a middle byte behind what is known. */
void inputs_longer(struct conform *conform)
{
    static const size_t places[] = {0, 7, TAIL - 1};
    struct arguments a;

    arguments_open(&a, conform);
    for (size_t i = 0; i < N_INPUTS; i++) {
        for (size_t k = 0; k < 3 && input_is_there(&a, &inputs[i]); k++) {
            unsigned char *spec =
                guard_copy(conform, inputs[i].spec, inputs[i].n_bytes, inputs[i].n_bytes + TAIL);

            spec[inputs[i].n_bytes + places[k]] = 1;
            input_refuse(&a, &inputs[i], spec, "with a newer field that is set",
                         HSDP_ERR_UNSUPPORTED);
        }
    }
    arguments_close(&a);
}

void inputs_reserved(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    for (size_t i = 0; i < N_INPUTS; i++) {
        unsigned char *spec =
            guard_copy(conform, inputs[i].spec, inputs[i].n_bytes, inputs[i].n_bytes);

        if (inputs[i].reserved_offset != 0 && input_is_there(&a, &inputs[i])) {
            spec[inputs[i].reserved_offset] = 1;
            input_refuse(&a, &inputs[i], spec, "with a reserved field that is set",
                         HSDP_ERR_UNSUPPORTED);
        }
    }
    arguments_close(&a);
}

/* ------------------------------------------------------------------------------------ outputs */

static int32_t call_mesh_info(struct arguments *a, void *ret)
{
    return a->api->mesh->info(a->mesh, ret, a->err);
}

static int32_t call_job_info(struct arguments *a, void *ret)
{
    return a->api->job->info(a->job, ret, a->err);
}

static int32_t call_group_info(struct arguments *a, void *ret)
{
    return a->api->group->info(a->group, ret, a->err);
}

static int32_t call_plan_info(struct arguments *a, void *ret)
{
    return a->api->plan->info(a->plan, ret, a->err);
}

static int32_t call_class_info(struct arguments *a, void *ret)
{
    return a->api->plan->class_info(a->plan, 0, ret, a->err);
}

static int32_t call_unit_info(struct arguments *a, void *ret)
{
    return a->api->plan->unit_info(a->plan, 0, ret, a->err);
}

static int32_t call_buffer_info(struct arguments *a, void *ret)
{
    return a->api->plan->buffer_info(a->plan, 1, 0, ret, a->err);
}

static int32_t call_param_info(struct arguments *a, void *ret)
{
    return a->api->plan->param_info(a->plan, 0, ret, a->err);
}

static int32_t call_model_info(struct arguments *a, void *ret)
{
    return a->api->model->info(a->model, ret, a->err);
}

static int32_t call_step_result(struct arguments *a, void *ret)
{
    struct hsdp_step_spec step = HSDP_STEP_SPEC_INIT;
    int32_t status = a->api->step->begin(a->model, &step, NULL, NULL);

    status = status == HSDP_OK ? a->api->step->result(a->model, ret, a->err) : status;
    a->api->step->discard(a->model, NULL, NULL);
    return status;
}

/* In each, four bytes are known; they are none of the filler. */
static const struct output {
    const char *name;
    int32_t (*call)(struct arguments *arguments, void *ret);
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
     offsetof(struct hsdp_plan_info, n_params), 3},
    {"plan.class_info: ret_info", call_class_info, sizeof(struct hsdp_class_info), 72,
     offsetof(struct hsdp_class_info, divisor), 1},
    {"plan.unit_info: ret_info", call_unit_info, sizeof(struct hsdp_unit_info), 48,
     offsetof(struct hsdp_unit_info, n_params), 2},
    {"plan.buffer_info: ret_info", call_buffer_info, sizeof(struct hsdp_buffer_info), 56,
     offsetof(struct hsdp_buffer_info, is_frozen), 0},
    {"plan.param_info: ret_info", call_param_info, sizeof(struct hsdp_param_info), 80,
     offsetof(struct hsdp_param_info, n_dims), 2},
    {"model.info: ret_info", call_model_info, sizeof(struct hsdp_model_info), 80,
     offsetof(struct hsdp_model_info, n_states), 0},
    {"step.result: ret_result", call_step_result, sizeof(struct hsdp_step_info), 56,
     offsetof(struct hsdp_step_info, is_nonfinite), 0},
};

#define N_OUTPUTS (sizeof(outputs) / sizeof(outputs[0]))

static void output_accept(struct arguments *arguments, const struct output *output, size_t n_bytes)
{
    struct conform *conform = arguments->conform;
    unsigned char *room = guard_output(conform, n_bytes);
    char what[96];
    int32_t status;

    snprintf(what, sizeof(what), "%s with a struct_size of %zu", output->name, n_bytes);
    arguments_enter(arguments, what, ARGUMENTS_FULL);
    status = output->call(arguments, room);
    conform_check_ok(conform, what, status);
    conform_expect(conform, memcmp(room, &n_bytes, sizeof(n_bytes)) == 0,
                   "%s: struct_size was changed", what);
    conform_expect(conform,
                   memcmp(room + output->known_offset, &output->known, sizeof(uint32_t)) == 0,
                   "%s: the number at byte %zu is not %u", what, output->known_offset,
                   (unsigned)output->known);
    if (n_bytes > output->n_bytes) {
        conform_expect(conform,
                       guard_is_filled(room + output->n_bytes, n_bytes - output->n_bytes, 0),
                       "%s: what is behind the plugin's own struct is not zeroed", what);
    }
}

void outputs_of_any_size(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    for (size_t i = 0; i < N_OUTPUTS; i++) {
        output_accept(&a, &outputs[i], outputs[i].n_bytes);
        output_accept(&a, &outputs[i], outputs[i].n_bytes_1_0);
        output_accept(&a, &outputs[i], outputs[i].n_bytes + TAIL);
    }
    arguments_close(&a);
}

static void output_refuse(struct arguments *arguments, const struct output *output, size_t n_bytes)
{
    struct conform *conform = arguments->conform;
    unsigned char *room = guard_output(conform, n_bytes);
    size_t n_room = n_bytes < sizeof(n_bytes) ? sizeof(n_bytes) : n_bytes;
    char what[96];

    snprintf(what, sizeof(what), "%s with a struct_size of %zu", output->name, n_bytes);
    arguments_refuse_as(arguments, what, output->call(arguments, room), HSDP_ERR_VERSION);
    conform_expect(
        conform,
        memcmp(room, &n_bytes, sizeof(n_bytes)) == 0 &&
            guard_is_filled(room + sizeof(n_bytes), n_room - sizeof(n_bytes), GUARD_FILLER),
        "%s: is refused, but was written to", what);
}

void outputs_too_short(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    for (size_t i = 0; i < N_OUTPUTS; i++) {
        output_refuse(&a, &outputs[i], outputs[i].n_bytes_1_0 - 1);
        output_refuse(&a, &outputs[i], outputs[i].n_bytes_1_0 - 8);
        output_refuse(&a, &outputs[i], 8);
        output_refuse(&a, &outputs[i], 0);
    }
    arguments_close(&a);
}
