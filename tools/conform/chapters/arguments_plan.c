/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: building plans. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"

void plan_nulls(struct conform *conform)
{
    const struct hsdp_plan_ops *ops = conform->api->plan;
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param_spec = HSDP_PARAM_SPEC_INIT;
    struct arguments a;
    struct outputs *out = &a.out;
    uint32_t unit = 77;

    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    a.plan = arguments_plan(&a, a.mesh);
    class_spec.name = "second";
    param_spec.name = "p"; /* a scalar */
    arguments_accept(&a, ops->add_unit(a.plan, "u", 0, &unit, a.err));
    arguments_refuse(&a, ops->create(NULL, NULL, &out->plan, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(a.mesh, NULL, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_class(NULL, &class_spec, &out->numbers[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_class(a.plan, NULL, &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_class(a.plan, &class_spec, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_unit(NULL, "v", 0, &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_unit(a.plan, NULL, 0, &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_unit(a.plan, "v", 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_param(NULL, &param_spec, &out->numbers[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_param(a.plan, NULL, &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_param(a.plan, &param_spec, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->finish(NULL, a.err), HSDP_ERR_INVALID);
    ops->destroy(a.plan);
    a.api->mesh->destroy(a.mesh);
}

/* ----------------------------------------------------------------------------------- settings */

/* Values that no plan takes, and no class. */
static const char *const wrong_values[][2] = {
    {"sharding_strategy", "FSDP"},
    {"sharding_strategy", "hsdp "},
    {"sharding_strategy", " hsdp"},
    {"sharding_strategy", "hybrid"},
    {"sharding_strategy", "0"},
    {"sharding_strategy", ""},
    {"sharding_strategy", "fsdp,hsdp"},
    {"shardingstrategy", "fsdp"},
    {"Slots", "2"},
    {"slots ", "2"},
    {"HSDP_SLOTS", "2"},
    {"", "fsdp"},
    {"replicate_dims", "dp,dp"},
    {"shard_size", "2"}, /* no divisor of dp, which is 1 */
    {"param_dtype", "fp64"},
    {"param_dtype", "fp8"},
    {"param_dtype", "float32"},
    {"master_dtype", ""},
    {"master_dtype", "FP32"},
    {"reduce_dtype", "int8"},
    {"gradient_dtype", "BF16"},
    {"gradient_op", "max"},
    {"gradient_divisor", "16777217"},
    {"accumulation_scope", "outer"},
    {"accumulation_scope", "FULL"},
    {"slots", "65"},
    {"verify", "on"},
    {"verify", "step:0"},
    {"verify", "step:x"},
    {"verify", "access,off"},
    {"verify", "access,foo"},
    {"verify", ""},
    {"nccl_timeout_seconds", "30"}, /* of jobs */
    {"backend", "auto"},
    {NULL, "fsdp"},
    {"sharding_strategy", NULL},
};

/* Texts that are no number, or one that is too small or too large for any setting. */
static const char *const wrong_numbers[] = {
    "",    "true", "two", "30s", "0x1f", " 30", "30 ",
    "1.5", "0",    "-1",  "-5",  "1e2",  "3 0", "99999999999999999999",
};

static void class_value_refuse(struct arguments *arguments, const char *what, const char *key,
                               const char *value)
{
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;

    spec.name = "second";
    spec.settings = (struct hsdp_settings){&key, &value, 1};
    arguments_refuse_as(arguments, what,
                        arguments->api->plan->add_class(arguments->plan, &spec,
                                                        &arguments->out.numbers[0], arguments->err),
                        HSDP_ERR_INVALID);
}

static void plan_value_refuse(struct arguments *arguments, const char *what, const char *key,
                              const char *value)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    struct hsdp_settings settings = {&key, &value, 1};

    arguments_refuse_as(
        arguments, what,
        ops->create(arguments->mesh, &settings, &arguments->out.plan, arguments->err),
        HSDP_ERR_INVALID);
}

/* Neither a plan nor a class takes it. */
static void value_refuse(struct arguments *arguments, const char *key, const char *value)
{
    const char *key_text = key == NULL ? "NULL" : key;
    const char *value_text = value == NULL ? "NULL" : value;
    char what[96];

    snprintf(what, sizeof(what), "plan.create with %s = \"%s\"", key_text, value_text);
    plan_value_refuse(arguments, what, key, value);
    arguments_expect_said(arguments, what, key == NULL || value == NULL ? "" : key);
    snprintf(what, sizeof(what), "plan.add_class with %s = \"%s\"", key_text, value_text);
    class_value_refuse(arguments, what, key, value);
}

void plan_values(struct conform *conform)
{
    static const char *const numbers[] = {"slots", "gradient_divisor", "shard_size"};
    struct arguments a;

    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    a.plan = arguments_plan(&a, a.mesh);
    for (size_t i = 0; i < sizeof(wrong_values) / sizeof(wrong_values[0]); i++) {
        value_refuse(&a, wrong_values[i][0], wrong_values[i][1]);
    }
    for (size_t i = 0; i < sizeof(wrong_numbers) / sizeof(wrong_numbers[0]); i++) {
        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
            value_refuse(&a, numbers[k], wrong_numbers[i]);
        }
    }
    class_value_refuse(&a, "plan.add_class with shard_size, which is the plan's", "shard_size",
                       "1");
    class_value_refuse(&a, "plan.add_class with slots, which is the plan's", "slots", "2");
    class_value_refuse(&a, "plan.add_class with verify, which is the plan's", "verify", "off");
    class_value_refuse(&a, "plan.add_class with accumulation_scope, which is the plan's",
                       "accumulation_scope", "none");
    plan_value_refuse(&a, "plan.create with an unknown key", "shardingstrategy", "fsdp");
    arguments_expect_said(&a, "plan.create with an unknown key", "sharding_strategy");
    plan_value_refuse(&a, "plan.create with an unknown strategy", "sharding_strategy", "hybrid");
    arguments_expect_said(&a, "plan.create with an unknown strategy", "hsdp_zero2");
    a.api->plan->destroy(a.plan);
    a.api->mesh->destroy(a.mesh);
}

void plan_settings(struct conform *conform)
{
    const char *keys[] = {"slots", "slots"};
    const char *values[] = {"3", "3"};
    struct hsdp_settings twice = {keys, values, 2};
    struct hsdp_settings no_keys = {NULL, values, 1};
    struct hsdp_settings no_values = {keys, NULL, 1};
    struct arguments a;

    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    conform_needs_plan(conform, "");
    arguments_refuse(&a, a.api->plan->create(a.mesh, &twice, &a.out.plan, a.err), HSDP_ERR_INVALID);
    arguments_expect_said(&a, "plan.create with a key twice", "slots");
    arguments_refuse(&a, a.api->plan->create(a.mesh, &no_keys, &a.out.plan, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, a.api->plan->create(a.mesh, &no_values, &a.out.plan, a.err),
                     HSDP_ERR_INVALID);
    a.api->mesh->destroy(a.mesh);
}

/* --------------------------------------------------------------------- classes and parameters */

static const struct {
    const char *what;
    const char *name;
    const char *replicated_over;
    const char *reduced_over;
} wrong_classes[] = {
    {"plan.add_class: a name twice", "dense", NULL, NULL},
    {"plan.add_class: no name", NULL, NULL, NULL},
    {"plan.add_class: an empty name", "", NULL, NULL},
    {"plan.add_class: replicated_over of an unknown name", "third", "foo", NULL},
    {"plan.add_class: replicated_over of a name twice", "third", "dp,dp", NULL},
    {"plan.add_class: reduced_over of an unknown name", "third", NULL, "foo"},
    {"plan.add_class: a reduced_over outside of replicated_over", "third", "ep", "dp"},
    {"plan.add_class: a reduced_over half outside of replicated_over", "third", "dp", "dp,ep"},
};

/* pp 4, dp 2, ep 2 of rank 0: plans are arithmetic, so one process will do. */
static hsdp_mesh *mesh_of_sixteen(struct arguments *arguments)
{
    const int64_t sizes[] = {4, 2, 2};
    const char *names[] = {"pp", "dp", "ep"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    hsdp_mesh *mesh = NULL;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 3;
    arguments_accept(arguments, arguments->api->mesh->create(&spec, &mesh, arguments->err));
    return mesh;
}

void plan_classes(struct conform *conform)
{
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct arguments a;

    arguments_init(&a, conform);
    a.mesh = mesh_of_sixteen(&a);
    a.plan = arguments_plan(&a, a.mesh);
    for (size_t i = 0; i < sizeof(wrong_classes) / sizeof(wrong_classes[0]); i++) {
        spec.name = wrong_classes[i].name;
        spec.replicated_over = wrong_classes[i].replicated_over;
        spec.reduced_over = wrong_classes[i].reduced_over;
        arguments_refuse_as(&a, wrong_classes[i].what,
                            a.api->plan->add_class(a.plan, &spec, &a.out.numbers[0], a.err),
                            HSDP_ERR_INVALID);
        arguments_expect_said(&a, wrong_classes[i].what, spec.name == NULL ? "" : spec.name);
    }
    spec = (struct hsdp_class_spec)HSDP_CLASS_SPEC_INIT;
    spec.name = "expert";
    spec.replicated_over = "dp";
    arguments_accept(&a, a.api->plan->add_class(a.plan, &spec, &a.out.numbers[0], a.err));
    conform_expect(conform, a.out.numbers[0] == 1, "plan.add_class: the second class is not 1");
    a.api->plan->destroy(a.plan);
    a.api->mesh->destroy(a.mesh);
}

static void param_refuse(struct arguments *arguments, const char *what,
                         const struct hsdp_param_spec *spec, int32_t status)
{
    arguments_refuse_as(arguments, what,
                        arguments->api->plan->add_param(arguments->plan, spec,
                                                        &arguments->out.numbers[0], arguments->err),
                        status);
    if (status == HSDP_ERR_INVALID && spec->name != NULL) {
        arguments_expect_said(arguments, what, spec->name);
    }
}

static void shapes_refuse(struct arguments *arguments)
{
    static const int64_t negative[] = {2, -1};
    static const int64_t huge[] = {INT64_C(1) << 31, INT64_C(1) << 31};
    static const int64_t beyond[] = {INT64_MAX, INT64_MAX, INT64_MAX};
    static const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;

    spec.name = "shapeless";
    spec.shape = negative;
    spec.n_dims = 2;
    param_refuse(arguments, "plan.add_param: a size of -1", &spec, HSDP_ERR_INVALID);
    spec.shape = huge;
    param_refuse(arguments, "plan.add_param: 2^62 elements", &spec, HSDP_ERR_INVALID);
    spec.shape = beyond;
    spec.n_dims = 3;
    param_refuse(arguments, "plan.add_param: 2^189 elements", &spec, HSDP_ERR_INVALID);
    spec.shape = ones;
    spec.n_dims = HSDP_PARAM_MAX_DIMS + 1;
    param_refuse(arguments, "plan.add_param: nine dimensions", &spec, HSDP_ERR_INVALID);
    spec.shape = NULL;
    spec.n_dims = 1;
    param_refuse(arguments, "plan.add_param: a shape that is NULL", &spec, HSDP_ERR_INVALID);
}

void plan_units_and_params(struct conform *conform)
{
    static const int64_t shape[] = {4};
    const struct hsdp_plan_ops *ops = conform->api->plan;
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
    struct arguments a;
    uint32_t index = 77;
    char name[65];

    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    a.plan = arguments_plan(&a, a.mesh);
    memset(name, 'n', 64);
    name[64] = '\0';
    arguments_accept(&a, ops->add_unit(a.plan, "u", 0, &index, a.err));
    arguments_refuse(&a, ops->add_unit(a.plan, "u", 0, &a.out.numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_unit(a.plan, "", 0, &a.out.numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_unit(a.plan, name, 0, &a.out.numbers[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->add_unit(a.plan, "v", 1, &a.out.numbers[0], a.err), HSDP_ERR_INVALID);
    shapes_refuse(&a);
    spec.name = "first";
    spec.shape = shape;
    spec.n_dims = 1;
    arguments_accept(&a, ops->add_param(a.plan, &spec, &index, a.err));
    param_refuse(&a, "plan.add_param: a name twice", &spec, HSDP_ERR_INVALID);
    spec.name = NULL;
    param_refuse(&a, "plan.add_param: no name", &spec, HSDP_ERR_INVALID);
    spec.name = "";
    param_refuse(&a, "plan.add_param: an empty name", &spec, HSDP_ERR_INVALID);
    spec.name = "second";
    spec.unit = 1;
    param_refuse(&a, "plan.add_param: an unknown unit", &spec, HSDP_ERR_INVALID);
    spec.unit = 0;
    spec.flags = 0x80000000u;
    param_refuse(&a, "plan.add_param: an unknown flag", &spec, HSDP_ERR_UNSUPPORTED);
    spec.flags = 0;
    arguments_accept(&a, ops->add_param(a.plan, &spec, &index, a.err));
    conform_expect(conform, index == 1, "plan.add_param: the second parameter is not 1");
    ops->destroy(a.plan);
    a.api->mesh->destroy(a.mesh);
}

static const struct {
    const char *what;
    const char *tied_to;
    const char *tied_over;
    int64_t size;
    uint64_t block_elems;
    uint32_t flags;
    uint32_t hyper_group;
} wrong_ties[] = {
    {"plan.add_param: tied to an unknown name", "none", NULL, 4, 0, 0, 0},
    {"plan.add_param: tied to itself", "tied", NULL, 4, 0, 0, 0},
    {"plan.add_param: tied to another shape", "p", NULL, 5, 0, 0, 0},
    {"plan.add_param: tied to one that is not frozen", "p", NULL, 4, 0, HSDP_PARAM_FROZEN, 0},
    {"plan.add_param: tied to one of another hyper_group", "p", NULL, 4, 0, 0, 1},
    {"plan.add_param: tied to one of another block_elems", "p", NULL, 4, 2, 0, 0},
    {"plan.add_param: tied over a coordinate that is none", NULL, "pp[0,9]", 4, 0, 0, 0},
    {"plan.add_param: tied over an unknown name", NULL, "foo[0,-1]", 4, 0, 0, 0},
    {"plan.add_param: tied over what it is replicated over", NULL, "dp", 4, 0, 0, 0},
};

void plan_ties(struct conform *conform)
{
    const struct hsdp_plan_ops *ops = conform->api->plan;
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
    struct arguments a;
    int64_t size = 4;
    uint32_t index = 77;

    arguments_init(&a, conform);
    a.mesh = mesh_of_sixteen(&a);
    a.plan = arguments_plan(&a, a.mesh);
    arguments_accept(&a, ops->add_unit(a.plan, "u", 0, &spec.unit, a.err));
    spec.name = "p";
    spec.shape = &size;
    spec.n_dims = 1;
    arguments_accept(&a, ops->add_param(a.plan, &spec, &index, a.err));
    spec.name = "tied";
    for (size_t i = 0; i < sizeof(wrong_ties) / sizeof(wrong_ties[0]); i++) {
        size = wrong_ties[i].size;
        spec.tied_to = wrong_ties[i].tied_to;
        spec.tied_over = wrong_ties[i].tied_over;
        spec.block_elems = wrong_ties[i].block_elems;
        spec.flags = wrong_ties[i].flags;
        spec.hyper_group = wrong_ties[i].hyper_group;
        param_refuse(&a, wrong_ties[i].what, &spec, HSDP_ERR_INVALID);
    }
    spec.tied_over = "pp[1,-1]";
    param_refuse(&a, "plan.add_param: tied over others", &spec, HSDP_ERR_NOT_MEMBER);
    ops->destroy(a.plan);
    a.api->mesh->destroy(a.mesh);
}

/* ------------------------------------------------------------------------------------ moments */

void plan_unfinished(struct conform *conform)
{
    const struct hsdp_plan_ops *ops = conform->api->plan;
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    a.plan = arguments_plan(&a, a.mesh);
    arguments_refuse(&a, ops->info(a.plan, &out->plan_info, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->mesh(a.plan, &out->plan_mesh, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->setting(a.plan, "slots", &out->texts[0], &out->texts[1], a.err),
                     HSDP_ERR_STATE);
    arguments_refuse(
        &a, ops->class_setting(a.plan, 0, "param_dtype", &out->texts[0], &out->texts[1], a.err),
        HSDP_ERR_STATE);
    arguments_refuse(&a, ops->class_info(a.plan, 0, &out->class_info, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->unit_info(a.plan, 0, &out->unit_info, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->buffer_info(a.plan, 0, 0, &out->buffer_info, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->param_info(a.plan, 0, &out->param_info, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->param_find(a.plan, "p", &out->numbers[0], a.err), HSDP_ERR_STATE);
    arguments_refuse(&a,
                     ops->segments(a.plan, 0, HSDP_SHARD_STEP, 0, out->segments,
                                   sizeof(out->segments[0]), 2, &out->longs[0], a.err),
                     HSDP_ERR_STATE);
    arguments_refuse(&a, ops->writer(a.plan, 0, HSDP_SHARD_STEP, 0, &out->numbers[0], a.err),
                     HSDP_ERR_STATE);
    arguments_refuse(&a, ops->report(a.plan, out->text, sizeof(out->text), &out->longs[0], a.err),
                     HSDP_ERR_STATE);
    ops->destroy(a.plan);
    a.api->mesh->destroy(a.mesh);
}

void plan_finished(struct conform *conform)
{
    const struct hsdp_plan_ops *ops = conform->api->plan;
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param_spec = HSDP_PARAM_SPEC_INIT;
    struct arguments a;

    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    a.plan = arguments_plan(&a, a.mesh);
    arguments_plan_fill(&a, a.plan);
    class_spec.name = "second";
    param_spec.name = "r";
    arguments_refuse(&a, ops->add_class(a.plan, &class_spec, &a.out.numbers[0], a.err),
                     HSDP_ERR_STATE);
    arguments_refuse(&a, ops->add_unit(a.plan, "w", 0, &a.out.numbers[0], a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->add_param(a.plan, &param_spec, &a.out.numbers[0], a.err),
                     HSDP_ERR_STATE);
    arguments_refuse(&a, ops->finish(a.plan, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, ops->info(a.plan, &a.out.plan_info, a.err));
    conform_expect(conform,
                   a.out.plan_info.n_classes == 1 && a.out.plan_info.n_units == 2 &&
                       a.out.plan_info.n_params == 3,
                   "plan.info: tells of %u classes, %u units and %u parameters; they are 1, 2, 3",
                   (unsigned)a.out.plan_info.n_classes, (unsigned)a.out.plan_info.n_units,
                   (unsigned)a.out.plan_info.n_params);
    ops->destroy(a.plan);
    a.api->mesh->destroy(a.mesh);
}
