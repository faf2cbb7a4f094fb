/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: functions on models. */
#include <string.h>

#include "arguments.h"

static void edit_open(struct arguments *arguments)
{
    arguments_accept(arguments,
                     arguments->api->model->edit_begin(arguments->model, NULL, arguments->err));
}

static void edit_close(struct arguments *arguments)
{
    arguments_accept(arguments,
                     arguments->api->model->edit_end(arguments->model, NULL, arguments->err));
}

static void states_refuse_nulls(struct arguments *arguments)
{
    const struct hsdp_model_ops *ops = arguments->api->model;
    struct arguments *a = arguments;
    struct outputs *out = &arguments->out;
    uint32_t state = 77;

    arguments_refuse(a, ops->state_create(NULL, "m", "fp32", out->numbers, a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->state_create(a->model, NULL, "fp32", out->numbers, a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->state_create(a->model, "m", NULL, out->numbers, a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->state_create(a->model, "m", "fp32", NULL, a->err), HSDP_ERR_INVALID);
    arguments_accept(a, ops->state_create(a->model, "m", "fp32", &state, a->err));
    arguments_refuse(a, ops->state_info(NULL, state, &out->texts[0], &out->texts[1], a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->state_info(a->model, state, NULL, &out->texts[1], a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->state_info(a->model, state, &out->texts[0], NULL, a->err),
                     HSDP_ERR_INVALID);
}

void model_nulls(struct conform *conform)
{
    const struct hsdp_model_ops *ops = conform->api->model;
    struct arguments a;
    struct outputs *out = &a.out;
    struct arguments_tensor full;

    arguments_open(&a, conform);
    arguments_tensor_init(&full);
    arguments_refuse(&a, ops->create(NULL, a.plan, &out->model, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(a.job, NULL, &out->model, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(a.job, a.plan, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(NULL, &out->model_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(a.model, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_view(NULL, 0, HSDP_VIEW_PARAM, &out->view, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_view(a.model, 0, HSDP_VIEW_PARAM, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->flat_view(NULL, 0, 0, HSDP_FLAT_MASTER, &out->view, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->flat_view(a.model, 0, 0, HSDP_FLAT_MASTER, NULL, a.err),
                     HSDP_ERR_INVALID);
    states_refuse_nulls(&a);
    arguments_refuse(&a, ops->edit_begin(NULL, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->edit_end(NULL, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->sync(NULL, NULL, a.err), HSDP_ERR_INVALID);
    edit_open(&a);
    arguments_refuse(&a, ops->import_param(NULL, 0, 0, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->import_param(a.model, 0, 0, NULL, HSDP_ALL_RANKS, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->export_param(NULL, 0, 0, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->export_param(a.model, 0, 0, NULL, HSDP_ALL_RANKS, NULL, a.err),
                     HSDP_ERR_INVALID);
    edit_close(&a);
    arguments_close(&a);
}

/* The buffer of unit 0 that is frozen, or that is not. */
static uint32_t buffer_find(struct arguments *arguments, uint32_t is_frozen)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;

    for (uint32_t buffer = 0; buffer < 2; buffer++) {
        struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;

        arguments_accept(arguments,
                         ops->buffer_info(arguments->plan, 0, buffer, &info, arguments->err));
        if (info.is_frozen == is_frozen) {
            return buffer;
        }
    }
    conform_fail(arguments->conform, "plan.buffer_info: a unit with a trainable and a frozen "
                                     "parameter has not one buffer of each");
}

void model_indices(struct conform *conform)
{
    const struct hsdp_model_ops *ops = conform->api->model;
    struct arguments a;
    struct hsdp_tensor *view = &a.out.view;
    uint32_t frozen;
    uint32_t trained;

    arguments_open(&a, conform);
    frozen = buffer_find(&a, 1);
    trained = buffer_find(&a, 0);
    arguments_refuse(&a, ops->param_view(a.model, 3, HSDP_VIEW_PARAM, view, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_view(a.model, 0, 2, view, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_view(a.model, 0, -1, view, a.err), HSDP_ERR_INVALID);
    arguments_refuse_as(&a, "model.param_view: the gradient of a frozen parameter",
                        ops->param_view(a.model, 1, HSDP_VIEW_GRAD, view, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->flat_view(a.model, 2, 0, HSDP_FLAT_MASTER, view, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->flat_view(a.model, 0, 2, HSDP_FLAT_MASTER, view, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->flat_view(a.model, 1, 1, HSDP_FLAT_MASTER, view, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->flat_view(a.model, 0, trained, 2, view, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->flat_view(a.model, 0, trained, -1, view, a.err), HSDP_ERR_INVALID);
    arguments_refuse_as(&a, "model.flat_view: an unknown state",
                        ops->flat_view(a.model, 0, trained, HSDP_FLAT_STATE, view, a.err),
                        HSDP_ERR_INVALID);
    arguments_refuse_as(&a, "model.flat_view: the gradient of a frozen buffer",
                        ops->flat_view(a.model, 0, frozen, HSDP_FLAT_GRAD, view, a.err),
                        HSDP_ERR_INVALID);
    arguments_accept(&a, ops->param_view(a.model, 0, HSDP_VIEW_PARAM, view, a.err));
    conform_expect(conform,
                   view->n_dims == 2 && view->shape[0] == 2 && view->shape[1] == 3 &&
                       view->strides != NULL && view->strides[0] == 3 && view->strides[1] == 1 &&
                       view->dtype_code == HSDP_DTYPE_FLOAT && view->dtype_bits == 32 &&
                       view->dtype_lanes == 1,
                   "model.param_view: is no row-major fp32 view of shape 2,3 with its strides");
    arguments_close(&a);
}

void model_states(struct conform *conform)
{
    const struct hsdp_model_ops *ops = conform->api->model;
    struct arguments a;
    struct outputs *out = &a.out;
    uint32_t state = 77;
    uint32_t again = 78;
    char name[65];

    arguments_open(&a, conform);
    memset(name, 'n', 64);
    name[64] = '\0';
    arguments_accept(&a, ops->state_create(a.model, "exp_avg", "fp32", &state, a.err));
    arguments_accept(&a, ops->state_create(a.model, "exp_avg", "fp32", &again, a.err));
    conform_expect(conform, state == again,
                   "model.state_create: the same name and dtype answers "
                   "another index");
    arguments_refuse(&a, ops->state_create(a.model, "exp_avg", "bf16", out->numbers, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->state_create(a.model, "", "fp32", out->numbers, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->state_create(a.model, name, "fp32", out->numbers, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->state_create(a.model, "m", "fp8", out->numbers, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->state_create(a.model, "m", "fp64", out->numbers, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->state_create(a.model, "m", "", out->numbers, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->state_info(a.model, state + 1, &out->texts[0], &out->texts[1], a.err),
                     HSDP_ERR_INVALID);
    arguments_accept(&a, ops->state_info(a.model, state, &out->texts[0], &out->texts[1], a.err));
    conform_expect(conform,
                   strcmp(out->texts[0], "exp_avg") == 0 && strcmp(out->texts[1], "fp32") == 0,
                   "model.state_info: tells of \"%s\", %s", out->texts[0], out->texts[1]);
    name[63] = '\0'; /* of 63 bytes it is allowed */
    arguments_accept(&a, ops->state_create(a.model, name, "bf16", &state, a.err));
    for (int i = 2; i < 64; i++) {
        name[0] = (char)('0' + i / 10);
        name[1] = (char)('0' + i % 10);
        name[2] = '\0';
        arguments_accept(&a, ops->state_create(a.model, name, "fp16", &state, a.err));
    }
    arguments_refuse_as(&a, "model.state_create: the 65th state",
                        ops->state_create(a.model, "more", "fp32", out->numbers, a.err),
                        HSDP_ERR_UNSUPPORTED);
    arguments_close(&a);
}

/* -------------------------------------------------------------------------------------- edits */

static void import_refuse(struct arguments *arguments, const char *what,
                          const struct arguments_tensor *full, int32_t status)
{
    const struct hsdp_model_ops *ops = arguments->api->model;

    arguments_refuse_as(arguments, what,
                        ops->import_param(arguments->model, 0, HSDP_FLAT_MASTER, &full->tensor,
                                          HSDP_ALL_RANKS, NULL, arguments->err),
                        status);
    arguments_refuse_as(arguments, what,
                        ops->export_param(arguments->model, 0, HSDP_FLAT_MASTER, &full->tensor,
                                          HSDP_ALL_RANKS, NULL, arguments->err),
                        status);
}

static void tensors_refuse(struct arguments *arguments)
{
    static int64_t apart[] = {6, 2};
    struct arguments_tensor full;

    arguments_tensor_init(&full);
    full.shape[1] = 2;
    import_refuse(arguments, "import or export of a tensor of shape 2,2", &full, HSDP_ERR_INVALID);
    arguments_tensor_init(&full);
    full.tensor.n_dims = 1;
    full.shape[0] = 6;
    import_refuse(arguments, "import or export of a tensor of shape 6", &full, HSDP_ERR_INVALID);
    arguments_tensor_init(&full);
    full.tensor.dtype_code = HSDP_DTYPE_INT;
    import_refuse(arguments, "import or export of integers", &full, HSDP_ERR_INVALID);
    arguments_tensor_init(&full);
    full.tensor.dtype_bits = 64;
    import_refuse(arguments, "import or export of fp64", &full, HSDP_ERR_INVALID);
    arguments_tensor_init(&full);
    full.tensor.strides = apart;
    import_refuse(arguments, "import or export of a tensor with gaps", &full, HSDP_ERR_UNSUPPORTED);
    if (!device_is_used()) {
        arguments_tensor_init(&full);
        full.tensor.device_type = HSDP_DEVICE_CUDA;
        import_refuse(arguments, "import or export of a tensor on a device", &full,
                      HSDP_ERR_UNSUPPORTED);
    }
    arguments_tensor_init(&full);
    full.tensor.base = NULL;
    import_refuse(arguments, "import or export of a tensor at NULL", &full, HSDP_ERR_INVALID);
}

void model_edits(struct conform *conform)
{
    const struct hsdp_model_ops *ops = conform->api->model;
    struct arguments a;
    struct arguments_tensor full;

    arguments_open(&a, conform);
    arguments_tensor_init(&full);
    edit_open(&a);
    tensors_refuse(&a);
    arguments_refuse(&a, ops->import_param(a.model, 3, 0, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->import_param(a.model, 0, 7, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->import_param(a.model, 0, 16, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->import_param(a.model, 0, 0, &full.tensor, 1, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse_stream(&a, "model.import_param on a stream of a CPU",
                            ops->import_param(a.model, 0, 0, &full.tensor, 0, &a, a.err));
    arguments_refuse(&a, ops->export_param(a.model, 3, 0, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->export_param(a.model, 0, 7, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->export_param(a.model, 0, 0, &full.tensor, 1, NULL, a.err),
                     HSDP_ERR_INVALID);
    for (int i = 0; i < 6; i++) {
        full.values[i] = (float)i;
    }
    arguments_accept(&a, ops->import_param(a.model, 0, 0, &full.tensor, 0, NULL, a.err));
    arguments_accept(&a, ops->sync(a.model, NULL, a.err));
    memset(full.values, 0, sizeof(full.values));
    arguments_accept(&a, ops->export_param(a.model, 0, 0, &full.tensor, 0, NULL, a.err));
    conform_expect(conform, full.values[0] == 0.0f && full.values[5] == 5.0f,
                   "model.export_param: is not what was imported");
    edit_close(&a);
    arguments_close(&a);
}

void model_moments(struct conform *conform)
{
    const struct hsdp_model_ops *ops = conform->api->model;
    struct arguments a;
    struct arguments_tensor full;

    arguments_open(&a, conform);
    arguments_tensor_init(&full);
    arguments_refuse(&a, ops->edit_end(a.model, NULL, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->sync(a.model, NULL, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->import_param(a.model, 0, 0, &full.tensor, 0, NULL, a.err),
                     HSDP_ERR_STATE);
    arguments_refuse_as(&a, "model.export_param of a gradient outside of a step",
                        ops->export_param(a.model, 0, HSDP_FLAT_GRAD, &full.tensor, 0, NULL, a.err),
                        HSDP_ERR_STATE);
    arguments_accept(&a, ops->export_param(a.model, 0, 0, &full.tensor, 0, NULL, a.err));
    edit_open(&a);
    arguments_refuse(&a, ops->edit_begin(a.model, NULL, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, ops->info(a.model, &a.out.model_info, a.err));
    conform_expect(conform, a.out.model_info.is_editing == 1 && a.out.model_info.is_stepping == 0,
                   "model.info: does not tell of an open edit");
    edit_close(&a);
    arguments_accept(&a, a.api->unit->unshard(a.model, 0, HSDP_USE_FORWARD, NULL, NULL, a.err));
    arguments_refuse_as(&a, "model.edit_begin with a unit unsharded",
                        ops->edit_begin(a.model, NULL, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, a.api->unit->release(a.model, 0, NULL, a.err));
    arguments_step(&a);
    arguments_refuse_as(&a, "model.edit_begin in a step", ops->edit_begin(a.model, NULL, a.err),
                        HSDP_ERR_STATE);
    arguments_accept(&a, ops->info(a.model, &a.out.model_info, a.err));
    conform_expect(conform, a.out.model_info.is_editing == 0 && a.out.model_info.is_stepping == 1,
                   "model.info: does not tell of an open step");
    arguments_accept(&a, a.api->step->discard(a.model, NULL, a.err));
    arguments_refuse_stream(&a, "model.edit_begin on a stream of a CPU",
                            ops->edit_begin(a.model, &a, a.err));
    arguments_close(&a);
}

void model_creation(struct conform *conform)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    const int64_t sizes[] = {2};
    const char *names[] = {"dp"};
    struct arguments a;
    hsdp_mesh *mesh = NULL;
    hsdp_plan *plan;

    arguments_open(&a, conform);
    plan = arguments_plan(&a, a.mesh);
    arguments_refuse_as(&a, "model.create of a plan that is not finished",
                        a.api->model->create(a.job, plan, &a.out.model, a.err), HSDP_ERR_STATE);
    a.api->plan->destroy(plan);
    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 1;
    arguments_accept(&a, a.api->mesh->create(&spec, &mesh, a.err));
    plan = arguments_plan(&a, mesh);
    arguments_plan_fill(&a, plan);
    arguments_refuse_as(&a, "model.create of a plan for 2 ranks in a job of 1",
                        a.api->model->create(a.job, plan, &a.out.model, a.err), HSDP_ERR_INVALID);
    a.api->plan->destroy(plan);
    a.api->mesh->destroy(mesh);
    arguments_accept(&a, a.api->job->status(a.job, a.err));
    arguments_close(&a);
}
