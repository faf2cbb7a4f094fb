/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: its host, how refusals are judged, and the list of its checks. */
#include "arguments.h"

#include <string.h>

#include "guard.h"

#define SHORT_BYTES 64u /* of an error, far below those of ABI 1.0 */

/* ------------------------------------------------------------------------------------ judging */

static void outputs_arm(struct outputs *out)
{
    memset(out, GUARD_FILLER, sizeof(*out));
    out->mesh_info.struct_size = sizeof(out->mesh_info);
    out->job_info.struct_size = sizeof(out->job_info);
    out->group_info.struct_size = sizeof(out->group_info);
    out->plan_info.struct_size = sizeof(out->plan_info);
    out->class_info.struct_size = sizeof(out->class_info);
    out->unit_info.struct_size = sizeof(out->unit_info);
    out->buffer_info.struct_size = sizeof(out->buffer_info);
    out->param_info.struct_size = sizeof(out->param_info);
    out->model_info.struct_size = sizeof(out->model_info);
    out->step_info.struct_size = sizeof(out->step_info);
}

void arguments_enter(struct arguments *arguments, const char *call, enum arguments_error kind)
{
    static const size_t n_short = SHORT_BYTES;

    memset(arguments->short_err, GUARD_FILLER, SHORT_BYTES);
    memcpy(arguments->short_err, &n_short, sizeof(n_short));
    outputs_arm(&arguments->out);
    conform_enter(arguments->conform, call);
    arguments->err = kind == ARGUMENTS_FULL   ? &arguments->conform->err
                     : kind == ARGUMENTS_NONE ? NULL
                                              : arguments->short_err;
}

static void short_error_check(const struct arguments *arguments, const char *call)
{
    const unsigned char *bytes = (const unsigned char *)arguments->short_err;
    size_t n_bytes;

    memcpy(&n_bytes, bytes, sizeof(n_bytes));
    conform_expect(
        arguments->conform,
        n_bytes == SHORT_BYTES &&
            guard_is_filled(bytes + sizeof(n_bytes), SHORT_BYTES - sizeof(n_bytes), GUARD_FILLER),
        "%s: has written to a reterr whose struct_size is below that of ABI 1.0", call);
}

void arguments_refused(struct arguments *arguments, const char *call, int32_t found,
                       int32_t expected)
{
    struct conform *conform = arguments->conform;
    struct outputs armed;

    if (arguments->err == &conform->err) {
        conform_check_refused(conform, call, found,
                              expected == ARGUMENTS_ANY_REFUSAL && found < 0 ? found : expected);
        memcpy(arguments->said, conform->err.message, sizeof(arguments->said));
    }
    conform_expect(conform, expected == ARGUMENTS_ANY_REFUSAL ? found < 0 : found == expected,
                   "%s: answers %s when reterr is %s, where %s is promised", call,
                   conform_status_name(found), arguments->err == NULL ? "NULL" : "too short",
                   expected == ARGUMENTS_ANY_REFUSAL ? "a refusal" : conform_status_name(expected));
    if (arguments->err == arguments->short_err) {
        short_error_check(arguments, call);
    }
    outputs_arm(&armed);
    conform_expect(conform, memcmp(&armed, &arguments->out, sizeof(armed)) == 0,
                   "%s: is refused, but has written to an output", call);
}

void arguments_expect_said(const struct arguments *arguments, const char *call, const char *text)
{
    conform_expect(arguments->conform, strstr(arguments->said, text) != NULL,
                   "%s: is refused with \"%s\", which does not name \"%s\"", call, arguments->said,
                   text);
}

/* --------------------------------------------------------------------------------------- host */

void arguments_init(struct arguments *ret, struct conform *conform)
{
    memset(ret, 0, sizeof(*ret));
    ret->conform = conform;
    ret->api = conform->api;
    ret->err = &conform->err;
    ret->short_err = guard_memory(conform, SHORT_BYTES);
}

hsdp_mesh *arguments_mesh(struct arguments *arguments)
{
    const int64_t sizes[] = {1};
    const char *names[] = {"dp"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    hsdp_mesh *mesh = NULL;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 1;
    arguments_accept(arguments, arguments->api->mesh->create(&spec, &mesh, arguments->err));
    conform_expect(arguments->conform, mesh != NULL, "mesh.create: answers HSDP_OK and gives NULL");
    return mesh;
}

hsdp_job *arguments_job(struct arguments *arguments)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    hsdp_job *job = NULL;

    conform_needs_transport(arguments->conform);
    device_place(&spec);
    arguments_accept(arguments, arguments->api->job->create(&spec, &job, arguments->err));
    conform_expect(arguments->conform, job != NULL, "job.create: answers HSDP_OK and gives NULL");
    return job;
}

hsdp_plan *arguments_plan(struct arguments *arguments, const hsdp_mesh *mesh)
{
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    hsdp_plan *plan = NULL;
    uint32_t index = 77;

    conform_needs_plan(arguments->conform, "");
    arguments_accept(arguments, arguments->api->plan->create(mesh, NULL, &plan, arguments->err));
    dense.name = "dense";
    arguments_accept(arguments,
                     arguments->api->plan->add_class(plan, &dense, &index, arguments->err));
    conform_expect(arguments->conform, index == 0, "plan.add_class: the first class is not 0");
    return plan;
}

static void param_add(struct arguments *arguments, hsdp_plan *plan,
                      const struct hsdp_param_spec *spec, uint32_t expected)
{
    uint32_t index = 77;

    arguments_accept(arguments,
                     arguments->api->plan->add_param(plan, spec, &index, arguments->err));
    conform_expect(arguments->conform, index == expected,
                   "plan.add_param: parameter %u gets the index %u", (unsigned)expected,
                   (unsigned)index);
}

void arguments_plan_fill(struct arguments *arguments, hsdp_plan *plan)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    const int64_t shapes[] = {2, 3, 4, 5};
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
    uint32_t units[2] = {77, 77};

    arguments_accept(arguments, ops->add_unit(plan, "u", 0, &units[0], arguments->err));
    arguments_accept(arguments, ops->add_unit(plan, "v", 0, &units[1], arguments->err));
    conform_expect(arguments->conform, units[0] == 0 && units[1] == 1,
                   "plan.add_unit: does not count from 0");
    spec.name = "p";
    spec.shape = shapes;
    spec.n_dims = 2;
    param_add(arguments, plan, &spec, 0);
    spec.name = "f";
    spec.shape = shapes + 2;
    spec.n_dims = 1;
    spec.flags = HSDP_PARAM_FROZEN;
    param_add(arguments, plan, &spec, 1);
    spec.name = "q";
    spec.shape = shapes + 3;
    spec.flags = 0;
    spec.unit = 1;
    param_add(arguments, plan, &spec, 2);
    arguments_accept(arguments, ops->finish(plan, arguments->err));
}

void arguments_open(struct arguments *ret, struct conform *conform)
{
    struct hsdp_group_spec group = HSDP_GROUP_SPEC_INIT;
    const void *adamw = NULL;

    arguments_init(ret, conform);
    ret->mesh = arguments_mesh(ret);
    ret->job = arguments_job(ret);
    arguments_accept(ret, ret->api->job->connect(ret->job, ret->err));
    group.selector = "dp";
    arguments_accept(ret,
                     ret->api->group->create(ret->job, ret->mesh, &group, &ret->group, ret->err));
    arguments_accept(ret, ret->api->group->connect(ret->job, ret->err));
    ret->plan = arguments_plan(ret, ret->mesh);
    arguments_plan_fill(ret, ret->plan);
    arguments_accept(ret, ret->api->model->create(ret->job, ret->plan, &ret->model, ret->err));
    if (ret->api->extension(HSDP_ADAMW_EXTENSION, &adamw, NULL) == HSDP_OK) {
        ret->adamw = adamw;
    }
}

void arguments_close(struct arguments *arguments)
{
    const struct hsdp_api *api = arguments->api;

    conform_enter(arguments->conform, "destroying one of everything");
    api->model->destroy(arguments->model);
    api->plan->destroy(arguments->plan);
    api->group->destroy(arguments->group);
    api->job->destroy(arguments->job);
    api->mesh->destroy(arguments->mesh);
}

void arguments_tensor_init(struct arguments_tensor *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->shape[0] = 2;
    ret->shape[1] = 3;
    ret->tensor.base = ret->values;
    ret->tensor.device_type = HSDP_DEVICE_CPU;
    ret->tensor.n_dims = 2;
    ret->tensor.dtype_code = HSDP_DTYPE_FLOAT;
    ret->tensor.dtype_bits = 32;
    ret->tensor.dtype_lanes = 1;
    ret->tensor.shape = ret->shape;
}

void arguments_step(struct arguments *arguments)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    arguments_accept(arguments,
                     arguments->api->step->begin(arguments->model, &spec, NULL, arguments->err));
}
