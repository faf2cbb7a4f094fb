/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: settings of plans and classes, where they come from, and aliases. */
#include <stdlib.h>

#include <stdio.h>

#include "planning.h"

/* Names of strategies, and their rows. */
static const char *const aliases[][2] = {
    {"no_shard", "ddp"}, {"shard_grad_op", "zero2"}, {"full_shard", "fsdp"},
    {"zero3", "fsdp"},   {"hybrid_shard", "hsdp"},   {"hybrid_shard_zero2", "hsdp_zero2"},
    {"ddp", "ddp"},      {"zero1", "zero1"},         {"zero2", "zero2"},
    {"fsdp", "fsdp"},    {"hsdp", "hsdp"},           {"hsdp_zero2", "hsdp_zero2"},
    {"hfsdp", "hfsdp"},
};

/* A mesh of four data ranks on two stages. */
static hsdp_mesh *mesh_make(struct conform *conform)
{
    static const char *const names[] = {"pp", "dp"};
    static const int64_t sizes[] = {2, 4};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    hsdp_mesh *mesh = NULL;

    spec.dim_names = names;
    spec.dim_sizes = sizes;
    spec.n_dims = 2;
    conform_must(conform, conform->api->mesh->create(&spec, &mesh, &conform->err));
    return mesh;
}

static int32_t plan_try(struct conform *conform, const char *const *keys, const char *const *values,
                        uint64_t n_settings, hsdp_plan **ret_plan)
{
    struct hsdp_settings settings = {keys, values, n_settings};
    hsdp_mesh *mesh = mesh_make(conform);
    int32_t status;

    conform_enter(conform, "plan.create");
    status = conform->api->plan->create(mesh, &settings, ret_plan, &conform->err);
    conform->api->mesh->destroy(mesh);
    return status;
}

/* The name of a row, if it is an alias; else what was given. */
static const char *row_of(const char *strategy)
{
    for (uint32_t i = 0; i < NUMBERS_N(aliases); i++) {
        if (strcmp(strategy, aliases[i][0]) == 0) {
            return aliases[i][1];
        }
    }
    return strategy;
}

/* What a plan with this setting needs; an alias is there where its row is. */
static void plan_need(struct conform *conform, const char *key, const char *value)
{
    char text[128] = "";

    if (key != NULL) {
        bool is_row = strcmp(key, "sharding_strategy") == 0;

        snprintf(text, sizeof(text), "%s=%s", key, is_row ? row_of(value) : value);
    }
    conform_needs_plan(conform, text);
}

/* A plan with one setting, or none; finished, with a class and a unit. */
static hsdp_plan *plan_make(struct conform *conform, const char *key, const char *value)
{
    static const int64_t shape[] = {97};
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param_spec = HSDP_PARAM_SPEC_INIT;
    const struct hsdp_plan_ops *ops = conform->api->plan;
    hsdp_plan *plan = NULL;
    uint32_t index;

    plan_need(conform, key, value);
    conform_must(conform, plan_try(conform, &key, &value, key == NULL ? 0 : 1, &plan));
    class_spec.name = "dense";
    conform_must(conform, ops->add_class(plan, &class_spec, &index, &conform->err));
    conform_must(conform, ops->add_unit(plan, "a", 0, &index, &conform->err));
    param_spec.name = "w";
    param_spec.shape = shape;
    param_spec.n_dims = 1;
    conform_must(conform, ops->add_param(plan, &param_spec, &index, &conform->err));
    conform_must(conform, ops->finish(plan, &conform->err));
    return plan;
}

static void setting_expect(struct conform *conform, const hsdp_plan *plan, const char *key,
                           const char *value, const char *source)
{
    const char *found = "";
    const char *from = "";

    conform_must(conform, conform->api->plan->setting(plan, key, &found, &from, &conform->err));
    conform_expect(conform, strcmp(found, value) == 0, "%s reads back as \"%s\", not \"%s\"", key,
                   found, value);
    conform_expect(conform, source == NULL || strncmp(from, source, strlen(source)) == 0,
                   "%s \"%s\" comes from \"%s\", not \"%s\"", key, found, from, source);
}

/* ------------------------------------------------------------------------------------- defaults */

void plan_defaults(struct conform *conform)
{
    static const char *const rows[][2] = {
        {"sharding_strategy", "fsdp"},
        {"param_dtype", "fp32"},
        {"master_dtype", "fp32"},
        {"reduce_dtype", "fp32"},
        {"gradient_op", "mean"},
        {"accumulation_scope", "none"},
        {"slots", "2"},
        {"verify", "off"},
    };
    hsdp_plan *plan = plan_make(conform, NULL, NULL);

    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        setting_expect(conform, plan, rows[i][0], rows[i][1], "default");
    }
    setting_expect(conform, plan, "gradient_dtype", "fp32", NULL);
    setting_expect(conform, plan, "gradient_divisor", "4", NULL);
    conform->api->plan->destroy(plan);
    plan = plan_make(conform, "reduce_dtype", "bf16");
    setting_expect(conform, plan, "gradient_dtype", "bf16", NULL);
    conform->api->plan->destroy(plan);
}

void plan_read_back(struct conform *conform)
{
    static const char *const rows[][2] = {
        {"sharding_strategy", "hfsdp"},
        {"param_dtype", "bf16"},
        {"master_dtype", "fp16"},
        {"reduce_dtype", "bf16"},
        {"gradient_dtype", "fp16"},
        {"gradient_op", "sum"},
        {"gradient_divisor", "1"},
        {"gradient_divisor", "16777216"},
        {"slots", "1"},
        {"slots", "64"},
        {"accumulation_scope", "full"},
        {"shard_size", "2"},
        {"replicate_dims", "dp"},
    };
    const char *value;
    const char *source;

    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        hsdp_plan *plan = plan_make(conform, rows[i][0], rows[i][1]);

        setting_expect(conform, plan, rows[i][0], rows[i][1], "host");
        conform_must_refuse(
            conform, conform->api->plan->setting(plan, "slot", &value, &source, &conform->err),
            HSDP_ERR_INVALID);
        conform->api->plan->destroy(plan);
    }
}

void plan_environment(struct conform *conform)
{
    hsdp_plan *plan;

    setenv("HSDP_SHARDING_STRATEGY", "zero2", 1);
    setenv("HSDP_SLOTS", "3", 1);
    plan = plan_make(conform, "slots", "5");
    setting_expect(conform, plan, "sharding_strategy", "zero2", "environment");
    setting_expect(conform, plan, "slots", "5", "host");
    conform->api->plan->destroy(plan);
    plan = plan_make(conform, NULL, NULL);
    setting_expect(conform, plan, "slots", "3", "environment");
    conform->api->plan->destroy(plan);
    setenv("HSDP_SLOTS", "3 ", 1);
    conform_expect(conform, plan_try(conform, NULL, NULL, 0, &plan) == HSDP_ERR_INVALID,
                   "HSDP_SLOTS \"3 \" is not refused");
    unsetenv("HSDP_SLOTS");
    setenv("HSDP_SHARDING_STRATEGY", "zero", 1);
    conform_expect(conform, plan_try(conform, NULL, NULL, 0, &plan) == HSDP_ERR_INVALID,
                   "HSDP_SHARDING_STRATEGY \"zero\" is not refused");
    unsetenv("HSDP_SHARDING_STRATEGY");
}

/* -------------------------------------------------------------------------------------- classes */

static void class_expect(struct conform *conform, const hsdp_plan *plan, uint32_t index,
                         const char *key, const char *value, const char *source)
{
    const char *found = "";
    const char *from = "";

    conform_must(conform,
                 conform->api->plan->class_setting(plan, index, key, &found, &from, &conform->err));
    conform_expect(conform, strcmp(found, value) == 0 && strncmp(from, source, strlen(source)) == 0,
                   "%s of class %u is \"%s\" from \"%s\", not \"%s\" from \"%s\"", key, index,
                   found, from, value, source);
}

void plan_class_settings(struct conform *conform)
{
    struct host host;

    numbers_begin(conform);
    host_arrange(&host, 0, "dp=4");
    host_plan(&host, "sharding_strategy=hsdp reduce_dtype=bf16",
              "unit a: w[97]; class other sharding_strategy=ddp gradient_op=sum; unit b: x[97]");
    class_expect(conform, host.plan, 0, "sharding_strategy", "hsdp", "plan");
    class_expect(conform, host.plan, 0, "reduce_dtype", "bf16", "plan");
    class_expect(conform, host.plan, 1, "sharding_strategy", "ddp", "host");
    class_expect(conform, host.plan, 1, "gradient_op", "sum", "host");
    class_expect(conform, host.plan, 1, "reduce_dtype", "bf16", "plan");
    host_leave(&host);
}

void plan_aliases(struct conform *conform)
{
    numbers_begin(conform);
    numbers_need_strategy();
    for (uint32_t i = 0; i < NUMBERS_N(aliases); i++) {
        struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;
        hsdp_plan *plan;

        if (!conform_has_strategy(conform, aliases[i][1])) {
            continue;
        }
        plan = plan_make(conform, "sharding_strategy", aliases[i][0]);
        conform_must(conform, conform->api->plan->class_info(plan, 0, &info, &conform->err));
        conform_expect(conform, strcmp(info.strategy, aliases[i][1]) == 0, "%s is \"%s\", not %s",
                       aliases[i][0], info.strategy, aliases[i][1]);
        conform->api->plan->destroy(plan);
    }
}
