/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: settings of plans and classes, where they come from, and what is refused. */
#include <stdio.h>
#include <stdlib.h>

#include "planning.h"

static const char *const numbers_wrong[] = {"",    "true", "30s", "0x1f",
                                            " 30", "30 ",  "1.5", "99999999999999999999",
                                            "-5",  "1e2",  "3 0", "0"};

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

/* A plan with one setting, or none; finished, with a class and a unit. */
static hsdp_plan *plan_make(struct conform *conform, const char *key, const char *value)
{
    static const int64_t shape[] = {97};
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param_spec = HSDP_PARAM_SPEC_INIT;
    const struct hsdp_plan_ops *ops = conform->api->plan;
    hsdp_plan *plan = NULL;
    uint32_t index;

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

static void setting_refused(struct conform *conform, const char *key, const char *value)
{
    hsdp_plan *plan = NULL;
    int32_t status = plan_try(conform, &key, &value, 1, &plan);

    conform_expect(conform, status == HSDP_ERR_INVALID && plan == NULL,
                   "%s \"%s\" is answered with %s", key, value, conform_status_name(status));
    conform_expect(conform, strstr(conform->err.message, key) != NULL,
                   "\"%s\" does not name the key %s", conform->err.message, key);
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
    static const char *const rows[][2] = {
        {"no_shard", "ddp"}, {"shard_grad_op", "zero2"}, {"full_shard", "fsdp"},
        {"zero3", "fsdp"},   {"hybrid_shard", "hsdp"},   {"hybrid_shard_zero2", "hsdp_zero2"},
        {"ddp", "ddp"},      {"zero1", "zero1"},         {"zero2", "zero2"},
        {"fsdp", "fsdp"},    {"hsdp", "hsdp"},           {"hsdp_zero2", "hsdp_zero2"},
        {"hfsdp", "hfsdp"},
    };

    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;
        hsdp_plan *plan = plan_make(conform, "sharding_strategy", rows[i][0]);

        conform_must(conform, conform->api->plan->class_info(plan, 0, &info, &conform->err));
        conform_expect(conform, strcmp(info.strategy, rows[i][1]) == 0, "%s is \"%s\", not %s",
                       rows[i][0], info.strategy, rows[i][1]);
        conform->api->plan->destroy(plan);
    }
}

/* ------------------------------------------------------------------------------------- refusals */

void plan_unknown_key(struct conform *conform)
{
    static const char *const keys[] = {"shardingstrategy", "Slots", "slots ", "", "HSDP_SLOTS"};

    for (uint32_t i = 0; i < NUMBERS_N(keys); i++) {
        setting_refused(conform, keys[i], "2");
        conform_expect(conform, strstr(conform->err.message, "sharding_strategy") != NULL,
                       "\"%s\" does not list the known keys", conform->err.message);
    }
    setting_refused(conform, "nccl_timeout_seconds", "30"); /* a job's */
}

void plan_repeated_key(struct conform *conform)
{
    static const char *const keys[] = {"slots", "verify", "slots"};
    static const char *const values[] = {"2", "off", "2"};
    hsdp_plan *plan = NULL;

    conform_must_refuse(conform, plan_try(conform, keys, values, 3, &plan), HSDP_ERR_INVALID);
    conform_expect(conform, strstr(conform->err.message, "slots") != NULL,
                   "\"%s\" does not name the key", conform->err.message);
}

void plan_wrong_strategy(struct conform *conform)
{
    static const char *const values[] = {"FSDP", "hsdp ", " hsdp", "hybrid", "0", "", "fsdp,hsdp"};

    for (uint32_t i = 0; i < NUMBERS_N(values); i++) {
        setting_refused(conform, "sharding_strategy", values[i]);
        conform_expect(conform, strstr(conform->err.message, "hsdp_zero2") != NULL,
                       "\"%s\" does not list the names", conform->err.message);
    }
}

void plan_wrong_values(struct conform *conform)
{
    static const char *const rows[][2] = {
        {"param_dtype", "float32"},
        {"param_dtype", "fp8"},
        {"master_dtype", "FP32"},
        {"reduce_dtype", ""},
        {"gradient_dtype", "fp64"},
        {"gradient_op", "max"},
        {"accumulation_scope", "outer"},
        {"accumulation_scope", "FULL"},
        {"verify", "on"},
        {"verify", "step:0"},
        {"verify", "step:x"},
        {"verify", "access,foo"},
    };

    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        setting_refused(conform, rows[i][0], rows[i][1]);
    }
}

void plan_wrong_numbers(struct conform *conform)
{
    static const char *const keys[] = {"slots", "gradient_divisor", "shard_size"};

    for (uint32_t k = 0; k < NUMBERS_N(keys); k++) {
        for (uint32_t i = 0; i < NUMBERS_N(numbers_wrong); i++) {
            setting_refused(conform, keys[k], numbers_wrong[i]);
        }
    }
    setting_refused(conform, "slots", "65");
    setting_refused(conform, "gradient_divisor", "16777217");
    setting_refused(conform, "shard_size", "3"); /* no divisor of dp */
    setting_refused(conform, "shard_size", "8");
}

void plan_key_of_plan_in_class(struct conform *conform)
{
    static const char *const keys[] = {"slots", "shard_size", "accumulation_scope", "verify"};
    static const char *const values[] = {"2", "2", "none", "off"};
    hsdp_plan *plan = NULL;

    conform_must(conform, plan_try(conform, NULL, NULL, 0, &plan));
    for (uint32_t i = 0; i < NUMBERS_N(keys); i++) {
        struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
        uint32_t index = UINT32_MAX;

        spec.name = "dense";
        spec.settings = (struct hsdp_settings){&keys[i], &values[i], 1};
        conform_must_refuse(conform,
                            conform->api->plan->add_class(plan, &spec, &index, &conform->err),
                            HSDP_ERR_INVALID);
    }
    conform->api->plan->destroy(plan);
}
