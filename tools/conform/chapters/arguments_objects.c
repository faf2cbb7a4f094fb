/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: what is borrowed, what keeps alive, what is given back in which order. */
#include <string.h>

#include "arguments.h"
#include "guard.h"

void objects_null(struct conform *conform)
{
    const struct hsdp_api *api = conform->api;

    conform_enter(conform, "mesh.destroy(NULL)");
    api->mesh->destroy(NULL);
    conform_enter(conform, "job.destroy(NULL)");
    api->job->destroy(NULL);
    conform_enter(conform, "group.destroy(NULL)");
    api->group->destroy(NULL);
    conform_enter(conform, "plan.destroy(NULL)");
    api->plan->destroy(NULL);
    conform_enter(conform, "model.destroy(NULL)");
    api->model->destroy(NULL);
}

/* Gives back the which-th of five objects, in the order of struct arguments. */
static void object_destroy(struct arguments *arguments, int which)
{
    const struct hsdp_api *api = arguments->api;

    switch (which) {
    case 0:
        api->mesh->destroy(arguments->mesh);
        break;
    case 1:
        api->job->destroy(arguments->job);
        break;
    case 2:
        api->group->destroy(arguments->group);
        break;
    case 3:
        api->plan->destroy(arguments->plan);
        break;
    default:
        api->model->destroy(arguments->model);
        break;
    }
}

/* All rotations of two orders, so that each object is the first, and the last, to go. */
void objects_any_order(struct conform *conform)
{
    static const int orders[][5] = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {1, 3, 0, 4, 2}};

    for (int i = 0; i < 15; i++) {
        struct arguments a;

        arguments_open(&a, conform);
        conform_enter(conform, "destroying one of everything, in another order");
        for (int k = 0; k < 5; k++) {
            object_destroy(&a, orders[i / 5][(i + k) % 5]);
        }
    }
}

/* An object keeps alive what it was made from, and goes on without its host's handle. */
void objects_parents_gone(struct conform *conform)
{
    struct arguments a;
    struct hsdp_coll_spec barrier = HSDP_COLL_SPEC_INIT;
    uint64_t ticket = 0;

    arguments_open(&a, conform);
    barrier.kind = HSDP_COLL_BARRIER;
    a.api->mesh->destroy(a.mesh);
    a.mesh = NULL;
    arguments_accept(&a, a.api->plan->param_find(a.plan, "q", &a.out.numbers[0], a.err));
    arguments_accept(&a, a.api->plan->mesh(a.plan, &a.out.plan_mesh, a.err));
    a.api->plan->destroy(a.plan);
    a.plan = NULL;
    arguments_accept(
        &a, a.api->group->start(a.group, &barrier, sizeof(barrier), 1, NULL, &ticket, a.err));
    arguments_accept(&a, a.api->job->ticket_wait(a.job, ticket, UINT64_MAX, a.err));
    a.api->group->destroy(a.group);
    a.group = NULL;
    arguments_accept(&a, a.api->unit->unshard(a.model, 0, HSDP_USE_FORWARD, NULL, NULL, a.err));
    arguments_accept(&a, a.api->model->param_view(a.model, 0, HSDP_VIEW_PARAM, &a.out.view, a.err));
    conform_expect(conform, a.out.view.n_dims == 2 && a.out.view.shape[1] == 3,
                   "model.param_view: has forgotten the shape when the plan was destroyed");
    arguments_accept(&a, a.api->unit->release(a.model, 0, NULL, a.err));
    arguments_step(&a);
    arguments_accept(&a, a.api->step->end(a.model, NULL, NULL, a.err));
    a.api->job->destroy(a.job); /* the model keeps its memory alive */
    a.job = NULL;
    arguments_close(&a);
}

/* ---------------------------------------------------------------------------------- borrowing */

/* Texts and arrays of the host, all of which are spoilt after each call. */
struct lent {
    char texts[4][32];
    const char *keys[1];
    const char *values[1];
    int64_t sizes[2];
};

static void lent_fill(struct lent *lent, const char *first, const char *second)
{
    memset(lent, 0, sizeof(*lent));
    strncpy(lent->texts[0], first, sizeof(lent->texts[0]) - 1);
    strncpy(lent->texts[1], second, sizeof(lent->texts[1]) - 1);
    lent->keys[0] = lent->texts[0];
    lent->values[0] = lent->texts[1];
}

static void lent_spoil(struct lent *lent)
{
    memset(lent, 'x', sizeof(*lent));
}

static void borrowed_mesh(struct arguments *arguments)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct arguments *a = arguments;
    struct lent lent;

    lent_fill(&lent, "dp", "");
    lent.sizes[0] = 1;
    spec.dim_sizes = lent.sizes;
    spec.dim_names = lent.keys;
    spec.n_dims = 1;
    arguments_accept(a, a->api->mesh->create(&spec, &a->mesh, a->err));
    lent_spoil(&lent);
    memset(&spec, 'x', sizeof(spec));
    arguments_accept(a,
                     a->api->mesh->dim(a->mesh, 0, &a->out.texts[0], &a->out.numbers[0], a->err));
    conform_expect(a->conform, strcmp(a->out.texts[0], "dp") == 0 && a->out.numbers[0] == 1,
                   "mesh.create: has not copied names and sizes, which are lent for the call only");
}

static void borrowed_job(struct arguments *arguments)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct arguments *a = arguments;
    struct lent lent;

    lent_fill(&lent, "flight_records", "77");
    strncpy(lent.texts[2], "job", sizeof(lent.texts[2]) - 1);
    spec.name = lent.texts[2];
    spec.settings = (struct hsdp_settings){lent.keys, lent.values, 1};
    conform_needs_transport(a->conform);
    device_place(&spec);
    arguments_accept(a, a->api->job->create(&spec, &a->job, a->err));
    lent_spoil(&lent);
    memset(&spec, 'x', sizeof(spec));
    arguments_accept(a, a->api->job->setting(a->job, "flight_records", &a->out.texts[0],
                                             &a->out.texts[1], a->err));
    conform_expect(a->conform, strcmp(a->out.texts[0], "77") == 0,
                   "job.create: has not copied settings, which are lent for the call only");
    arguments_accept(a, a->api->job->connect(a->job, a->err));
}

static void borrowed_group(struct arguments *arguments)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct arguments *a = arguments;
    struct lent lent;

    lent_fill(&lent, "dp", "");
    spec.selector = lent.texts[0];
    arguments_accept(a, a->api->group->create(a->job, a->mesh, &spec, &a->group, a->err));
    lent_spoil(&lent);
    arguments_accept(a, a->api->group->connect(a->job, a->err));
    arguments_accept(a, a->api->group->info(a->group, &a->out.group_info, a->err));
    conform_expect(a->conform, strcmp(a->out.group_info.name, "dp") == 0,
                   "group.create: has not copied the selector, which is lent for the call only");
}

static void borrowed_plan(struct arguments *arguments)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    struct hsdp_settings settings;
    struct arguments *a = arguments;
    struct lent lent;

    lent_fill(&lent, "slots", "3");
    settings = (struct hsdp_settings){lent.keys, lent.values, 1};
    conform_needs_plan(a->conform, "param_dtype=bf16"); /* of the class below */
    arguments_accept(a, ops->create(a->mesh, &settings, &a->plan, a->err));
    lent_spoil(&lent);
    lent_fill(&lent, "param_dtype", "bf16");
    strncpy(lent.texts[2], "dense", sizeof(lent.texts[2]) - 1);
    dense.name = lent.texts[2];
    dense.settings = (struct hsdp_settings){lent.keys, lent.values, 1};
    arguments_accept(a, ops->add_class(a->plan, &dense, &a->out.numbers[0], a->err));
    lent_spoil(&lent);
    lent_fill(&lent, "unit", "param");
    lent.sizes[0] = 2;
    lent.sizes[1] = 3;
    arguments_accept(a, ops->add_unit(a->plan, lent.texts[0], 0, &a->out.numbers[0], a->err));
    param.name = lent.texts[1];
    param.shape = lent.sizes;
    param.n_dims = 2;
    arguments_accept(a, ops->add_param(a->plan, &param, &a->out.numbers[0], a->err));
    lent_spoil(&lent);
    arguments_accept(a, ops->finish(a->plan, a->err));
}

static void borrowed_plan_expect(struct arguments *arguments)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    struct conform *conform = arguments->conform;
    struct arguments *a = arguments;
    struct outputs *out = &arguments->out;

    arguments_accept(a, ops->setting(a->plan, "slots", &out->texts[0], &out->texts[1], a->err));
    conform_expect(conform, strcmp(out->texts[0], "3") == 0,
                   "plan.create: has not copied settings, which are lent for the call only");
    arguments_accept(
        a, ops->class_setting(a->plan, 0, "param_dtype", &out->texts[0], &out->texts[1], a->err));
    conform_expect(conform, strcmp(out->texts[0], "bf16") == 0,
                   "plan.add_class: has not copied settings, which are lent for the call only");
    arguments_accept(a, ops->class_info(a->plan, 0, &out->class_info, a->err));
    conform_expect(conform, strcmp(out->class_info.name, "dense") == 0,
                   "plan.add_class: has not copied the name, which is lent for the call only");
    arguments_accept(a, ops->unit_info(a->plan, 0, &out->unit_info, a->err));
    conform_expect(conform, strcmp(out->unit_info.name, "unit") == 0,
                   "plan.add_unit: has not copied the name, which is lent for the call only");
    arguments_accept(a, ops->param_info(a->plan, 0, &out->param_info, a->err));
    conform_expect(conform,
                   strcmp(out->param_info.name, "param") == 0 && out->param_info.shape[0] == 2 &&
                       out->param_info.shape[1] == 3,
                   "plan.add_param: has not copied name and shape, which are lent for the call "
                   "only");
}

void objects_borrowed(struct conform *conform)
{
    struct arguments a;
    struct lent lent;
    uint32_t state = 77;

    arguments_init(&a, conform);
    borrowed_mesh(&a);
    borrowed_job(&a);
    borrowed_group(&a);
    borrowed_plan(&a);
    borrowed_plan_expect(&a);
    arguments_accept(&a, a.api->model->create(a.job, a.plan, &a.model, a.err));
    lent_fill(&lent, "moment", "fp32");
    arguments_accept(
        &a, a.api->model->state_create(a.model, lent.texts[0], lent.texts[1], &state, a.err));
    lent_spoil(&lent);
    arguments_accept(
        &a, a.api->model->state_info(a.model, state, &a.out.texts[0], &a.out.texts[1], a.err));
    conform_expect(
        conform, strcmp(a.out.texts[0], "moment") == 0 && strcmp(a.out.texts[1], "fp32") == 0,
        "model.state_create: has not copied its texts, which are lent for the call only");
    arguments_close(&a);
}
