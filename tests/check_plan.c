/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: settings, how dp is split, and classes. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

static const char *setting_of(const struct hsdp_plan *plan, const char *key)
{
    const char *value = NULL;
    const char *source = NULL;

    ck_assert_int_eq(plan_setting(plan, key, &value, &source, NULL), HSDP_OK);
    return value;
}

static const char *source_of(const struct hsdp_plan *plan, const char *key)
{
    const char *value = NULL;
    const char *source = NULL;

    ck_assert_int_eq(plan_setting(plan, key, &value, &source, NULL), HSDP_OK);
    return source;
}

static struct hsdp_class_info class_of(const struct hsdp_plan *plan, uint32_t class_index)
{
    struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;

    ck_assert_int_eq(plan_class_info(plan, class_index, &info, NULL), HSDP_OK);
    return info;
}

/* ------------------------------------------------------------------------------- create */

START_TEST(plan_create_of_null_is_refused)
{
    struct hsdp_mesh *mesh = fixture_mesh("dp=2", 0);
    struct hsdp_plan *plan = NULL;

    fixture_clear_environment();
    ck_assert_int_eq(plan_create(NULL, NULL, &plan, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_create(mesh, NULL, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_create(mesh, NULL, &plan, NULL), HSDP_OK);
    plan_destroy(plan);
    plan_destroy(NULL);
    mesh_destroy(mesh);
}
END_TEST

static const struct {
    const char *dims;
    const char *settings;
    int32_t status;
    const char *sentence;
} bad_plans[] = {
    {"dp=8", "shard_size=3", HSDP_ERR_INVALID,
     "mesh: a shard_size of 3 does not divide the 8 ranks of dimension dp"},
    {"PP=2,cp=4", "shard_size=2", HSDP_ERR_INVALID,
     "shard_size: 2 ranks are to be split off dp, but the mesh has no dimension dp; it has: pp,cp"},
    {"dp=8", "shard_size=0", HSDP_ERR_INVALID,
     "shard_size: \"0\" is not a whole number from 1 to 2147483647"},
    {"dp=8", "replicate_dims=foo", HSDP_ERR_INVALID,
     "replicate_dims \"foo\": unknown dimension \"foo\"; known: dp"},
    {"PP=2,dp=4", "replicate_dims=pp[0]", HSDP_ERR_INVALID,
     "replicate_dims \"pp[0]\": coordinates are not allowed here, only whole dimensions"},
    {"dp=8", "verify=step:5,access,step:6", HSDP_ERR_INVALID,
     "verify: \"step:5,access,step:6\" says step:N twice"},
    {"dp=8", "verify=access,off", HSDP_ERR_INVALID,
     "verify: \"access,off\" says off and something else"},
    {"dp=8", "slots=65", HSDP_ERR_INVALID, "slots: \"65\" is not a whole number from 1 to 64"},
    {"dp=8", "sharding_strategy=hybrid", HSDP_ERR_INVALID,
     "sharding_strategy: \"hybrid\" is none of: ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp auto "
     "no_shard shard_grad_op full_shard zero3 hybrid_shard hybrid_shard_zero2"},
    {"dp=2,dp_shard=2", "shard_size=2", HSDP_ERR_INVALID,
     "mesh: dimension dp cannot be split: there is a dimension dp_shard already"},
    {"a=1,b=1,c=1,d=1,e=1,f=1,g=1,dp=4", "shard_size=1", HSDP_ERR_INVALID,
     "mesh: dimension dp cannot be split: there are 8 dimensions already"},
    {"A=1,B=1,C=1,D=1,E=1,F=1,G=1,dp=4", "sharding_strategy=hsdp", HSDP_ERR_INVALID,
     "mesh: dimension dp cannot be split: there are 8 dimensions already"},
};

START_TEST(plan_create_of_bad_settings_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(fixture_plan_refused(bad_plans[_i].dims, bad_plans[_i].settings, &err),
                     bad_plans[_i].status);
    ck_assert_str_eq(err.message, bad_plans[_i].sentence);
}
END_TEST

static const struct {
    const char *dims;
    uint32_t ranks_per_node;
    const char *settings;
    const char *mesh; /* the plan's dimensions and their sizes */
    const char *shard_size;
    const char *replicate_dims;
} splits[] = {
    {"dp=8", 0, "sharding_strategy=fsdp", "dp=8", "", "dp"},
    {"dp=8", 0, "sharding_strategy=fsdp shard_size=2", "dp_replicate=4,dp_shard=2", "2",
     "dp_replicate"},
    {"dp=8", 0, "sharding_strategy=ddp shard_size=8", "dp_replicate=1,dp_shard=8", "8",
     "dp_replicate"},
    {"PP=2,dp=4,TP=2", 0, "shard_size=2", "pp=2,dp_replicate=2,dp_shard=2,tp=2", "2",
     "dp_replicate"},
    /* the default: half of dp, but no more than a node */
    {"dp=8", 0, "sharding_strategy=hsdp", "dp_replicate=2,dp_shard=4", "4", "dp_replicate"},
    {"dp=8", 0, "sharding_strategy=hybrid_shard", "dp_replicate=2,dp_shard=4", "4", "dp_replicate"},
    {"dp=8", 0, "sharding_strategy=hfsdp", "dp_replicate=2,dp_shard=4", "4", "dp_replicate"},
    {"dp=8", 0, "sharding_strategy=hsdp_zero2", "dp_replicate=2,dp_shard=4", "4", "dp_replicate"},
    {"dp=8", 2, "sharding_strategy=hsdp", "dp_replicate=4,dp_shard=2", "2", "dp_replicate"},
    {"dp=12", 5, "sharding_strategy=hsdp", "dp_replicate=3,dp_shard=4", "4", "dp_replicate"},
    {"dp=12", 0, "sharding_strategy=hsdp", "dp_replicate=2,dp_shard=6", "6", "dp_replicate"},
    {"dp=9", 0, "sharding_strategy=hsdp", "dp_replicate=3,dp_shard=3", "3", "dp_replicate"},
    {"dp=7", 0, "sharding_strategy=hsdp", "dp_replicate=7,dp_shard=1", "1", "dp_replicate"},
    {"dp=2", 0, "sharding_strategy=hsdp", "dp_replicate=2,dp_shard=1", "1", "dp_replicate"},
    {"dp=1", 0, "sharding_strategy=hsdp", "dp_replicate=1,dp_shard=1", "1", "dp_replicate"},
    {"dp=8,cp=1,TP=2", 0, "sharding_strategy=hsdp", "dp_replicate=2,dp_shard=4,cp=1,tp=2", "4",
     "dp_replicate"},
    /* no default where there is more to reduce over than dp, or no dp */
    {"dp=8,cp=2", 0, "sharding_strategy=hsdp", "dp=8,cp=2", "", "dp"},
    {"cp=8", 0, "sharding_strategy=hsdp", "cp=8", "", ""},
    {"DP=8", 0, "sharding_strategy=hsdp", "dp=8", "", "dp"},
    {"dp_replicate=2,dp_shard=4", 0, "sharding_strategy=hsdp", "dp_replicate=2,dp_shard=4", "",
     "dp_replicate"},
    {"dp=8", 0, "sharding_strategy=hsdp replicate_dims=dp_shard", "dp_replicate=2,dp_shard=4", "4",
     "dp_shard"},
};

static struct hsdp_plan *split_plan(int row)
{
    struct hsdp_mesh *mesh = fixture_mesh(splits[row].dims, 0);
    char text[128];
    const char *keys[2];
    const char *values[2];
    struct hsdp_settings settings = {keys, values, 0};
    struct hsdp_plan *plan = NULL;
    char *rest = NULL;

    fixture_clear_environment();
    mesh->ranks_per_node = splits[row].ranks_per_node;
    snprintf(text, sizeof(text), "%s", splits[row].settings);
    for (char *word = strtok_r(text, " =", &rest); word != NULL;
         word = strtok_r(NULL, " =", &rest)) {
        keys[settings.n_settings] = word;
        values[settings.n_settings++] = strtok_r(NULL, " =", &rest);
    }
    ck_assert_int_eq(plan_create(mesh, &settings, &plan, NULL), HSDP_OK);
    mesh_destroy(mesh);
    return plan;
}

START_TEST(plan_create_splits_dp)
{
    struct hsdp_plan *plan = split_plan(_i);
    const struct hsdp_mesh *mesh = NULL;
    char dims[128] = "";

    fixture_finish(plan);
    ck_assert_int_eq(plan_mesh(plan, &mesh, NULL), HSDP_OK);
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        snprintf(dims + strlen(dims), sizeof(dims) - strlen(dims), "%s%s=%u", d == 0 ? "" : ",",
                 mesh->names[d], mesh->sizes[d]);
    }
    ck_assert_str_eq(dims, splits[_i].mesh);
    ck_assert_str_eq(setting_of(plan, "shard_size"), splits[_i].shard_size);
    ck_assert_str_eq(setting_of(plan, "replicate_dims"), splits[_i].replicate_dims);
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_setting_tells_value_and_source)
{
    struct hsdp_plan *plan =
        fixture_plan("dp=8,cp=3", 0, "reduce_dtype=bf16 sharding_strategy=zero3");
    const char *value = NULL;
    const char *source = NULL;
    struct hsdp_error err = HSDP_ERROR_INIT;

    fixture_finish(plan);
    ck_assert_str_eq(setting_of(plan, "sharding_strategy"), "zero3");
    ck_assert_str_eq(source_of(plan, "sharding_strategy"), "host");
    ck_assert_str_eq(setting_of(plan, "gradient_dtype"), "bf16");
    ck_assert_str_eq(source_of(plan, "gradient_dtype"), "derived from reduce_dtype");
    ck_assert_str_eq(setting_of(plan, "gradient_divisor"), "24");
    ck_assert_str_eq(source_of(plan, "gradient_divisor"), "derived from the mesh");
    ck_assert_str_eq(setting_of(plan, "slots"), "2");
    ck_assert_str_eq(source_of(plan, "slots"), "default");
    ck_assert_int_eq(plan_setting(plan, "backend", &value, &source, &err), HSDP_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "unknown key \"backend\" for a plan; known: "
                                              "sharding_strategy, replicate_dims"));
    ck_assert_int_eq(plan_setting(plan, NULL, &value, &source, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_setting(plan, "slots", NULL, &source, NULL), HSDP_ERR_INVALID);
    ck_assert_ptr_null(value);
    plan_destroy(plan);
}
END_TEST

/* ------------------------------------------------------------------------------ classes */

static const struct {
    const char *dims;
    const char *replicated_over;
    const char *reduced_over;
    const char *settings;
    const char *strategy;
    const char *texts[4]; /* P, G, S, R */
    uint32_t divisor;
} classes[] = {
    {"PP=2,dp=2,cp=3,ep=2",
     NULL,
     NULL,
     "",
     "fsdp",
     {"dp,cp,ep", "dp,cp,ep", "dp,cp,ep", "dp,cp,ep"},
     12},
    {"PP=2,dp=2,cp=3,ep=2", "dp,cp", NULL, "", "fsdp", {"dp,cp", "dp,cp", "dp,cp", "dp,cp"}, 12},
    {"dp=2,cp=3,ep=2",
     "dp,cp",
     NULL,
     "sharding_strategy=hsdp",
     "hsdp",
     {"cp", "cp", "cp", "dp,cp"},
     12},
    {"dp=2,cp=3,ep=2",
     NULL,
     NULL,
     "sharding_strategy=hfsdp",
     "hfsdp",
     {"cp,ep", "cp,ep", "cp,ep,dp", "dp,cp,ep"},
     12},
    {"dp=2,cp=3",
     NULL,
     NULL,
     "sharding_strategy=shard_grad_op",
     "zero2",
     {"", "dp,cp", "dp,cp", "dp,cp"},
     6},
    {"dp=2,cp=3",
     NULL,
     NULL,
     "sharding_strategy=hsdp replicate_dims=cp",
     "hsdp",
     {"dp", "dp", "dp", "dp,cp"},
     6},
    {"dp=2,cp=3",
     NULL,
     NULL,
     "sharding_strategy=hsdp replicate_dims=",
     "hsdp",
     {"dp,cp", "dp,cp", "dp,cp", "dp,cp"},
     6},
    {"dp=2,TP=2", "dp,tp", "dp", "", "fsdp", {"dp", "dp", "dp", "dp"}, 2},
    {"dp=2,TP=2", "dp,tp", NULL, "sharding_strategy=ddp", "ddp", {"", "", "", "dp,tp"}, 2},
    {"dp=2,cp=3", "", NULL, "", "fsdp", {"", "", "", ""}, 6},
    {"dp=2,cp=3", NULL, NULL, "gradient_op=sum", "fsdp", {"dp,cp", "dp,cp", "dp,cp", "dp,cp"}, 1},
    {"dp=2,cp=3",
     NULL,
     NULL,
     "gradient_divisor=300",
     "fsdp",
     {"dp,cp", "dp,cp", "dp,cp", "dp,cp"},
     300},
    {"dp=2,cp=3",
     NULL,
     NULL,
     "gradient_op=sum gradient_divisor=300",
     "fsdp",
     {"dp,cp", "dp,cp", "dp,cp", "dp,cp"},
     1},
};

START_TEST(plan_add_class_reads_dims_and_divisor)
{
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_plan *plan = fixture_plan(classes[_i].dims, 0, classes[_i].settings);
    struct hsdp_class_info info;
    uint32_t class_index = 77;

    spec.name = "c";
    spec.replicated_over = classes[_i].replicated_over;
    spec.reduced_over = classes[_i].reduced_over;
    ck_assert_int_eq(plan_add_class(plan, &spec, &class_index, NULL), HSDP_OK);
    ck_assert_uint_eq(class_index, 0);
    fixture_finish(plan);
    info = class_of(plan, 0);
    ck_assert_str_eq(info.name, "c");
    ck_assert_str_eq(info.strategy, classes[_i].strategy);
    ck_assert_str_eq(info.param_dims, classes[_i].texts[0]);
    ck_assert_str_eq(info.grad_dims, classes[_i].texts[1]);
    ck_assert_str_eq(info.step_dims, classes[_i].texts[2]);
    ck_assert_str_eq(info.reduce_dims, classes[_i].texts[3]);
    ck_assert_uint_eq(info.divisor, classes[_i].divisor);
    plan_destroy(plan);
}
END_TEST

/* As resolved: in mesh order, the data dimensions where nothing is said. */
START_TEST(plan_class_info_tells_what_it_is_replicated_over)
{
    static const char *const rows[][4] = {
        {NULL, NULL, "dp,cp", "dp,cp"},
        {"tp,dp", "dp", "dp,tp", "dp"},
        {"cp", NULL, "cp", "cp"},
        {"cp", "", "cp", ""},
        {"", NULL, "", ""},
    };
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_plan *plan = fixture_plan("PP=2,dp=2,cp=3,TP=2", 0, "");
    struct hsdp_class_info info;
    uint32_t class_index;

    spec.name = "c";
    spec.replicated_over = rows[_i][0];
    spec.reduced_over = rows[_i][1];
    ck_assert_int_eq(plan_add_class(plan, &spec, &class_index, NULL), HSDP_OK);
    fixture_finish(plan);
    info = class_of(plan, 0);
    ck_assert_str_eq(info.replicated_dims, rows[_i][2]);
    ck_assert_str_eq(info.reduce_dims, rows[_i][3]);
    plan_destroy(plan);
}
END_TEST

/* After a split, "dp" in a class goes on meaning all of dp. */
START_TEST(plan_add_class_understands_dp_after_a_split)
{
    struct hsdp_plan *plan = fixture_plan("dp=8,ep=2", 0, "shard_size=2");
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    uint32_t class_index;

    spec.name = "old";
    spec.replicated_over = "dp";
    ck_assert_int_eq(plan_add_class(plan, &spec, &class_index, NULL), HSDP_OK);
    spec.name = "new";
    spec.reduced_over = "dp_shard";
    ck_assert_int_eq(plan_add_class(plan, &spec, &class_index, NULL), HSDP_OK);
    fixture_finish(plan);
    ck_assert_str_eq(class_of(plan, 0).reduce_dims, "dp_replicate,dp_shard");
    ck_assert_str_eq(class_of(plan, 1).reduce_dims, "dp_shard");
    ck_assert_str_eq(class_of(plan, 1).replicated_dims, "dp_replicate,dp_shard");
    ck_assert_uint_eq(plan->classes[1].place.replicated, 3);
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_add_class_takes_settings_from_plan_and_own)
{
    struct hsdp_plan *plan =
        fixture_plan("dp=2,cp=2", 0, "sharding_strategy=zero1 param_dtype=bf16 slots=3");

    fixture_class(plan, "dense", "");
    fixture_class(plan, "expert", "sharding_strategy=hsdp reduce_dtype=fp16 gradient_op=sum");
    fixture_finish(plan);
    ck_assert_str_eq(class_of(plan, 0).strategy, "zero1");
    ck_assert_str_eq(class_of(plan, 1).strategy, "hsdp");
    ck_assert_int_eq(plan->classes[1].param_dtype, DTYPE_BF16);
    ck_assert_int_eq(plan->classes[0].gradient_dtype, DTYPE_FP32);
    ck_assert_int_eq(plan->classes[1].gradient_dtype, DTYPE_FP16); /* follows its reduce_dtype */
    ck_assert_uint_eq(class_of(plan, 0).divisor, 4);
    ck_assert_uint_eq(class_of(plan, 1).divisor, 1);
    plan_destroy(plan);
}
END_TEST

static const struct {
    const char *name;
    const char *replicated_over;
    const char *reduced_over;
    const char *key;
    const char *value;
    int32_t status;
    const char *sentence;
} bad_classes[] = {
    {NULL, NULL, NULL, NULL, NULL, HSDP_ERR_INVALID, "plan: a class has no name"},
    {"", NULL, NULL, NULL, NULL, HSDP_ERR_INVALID, "plan: a class has an empty name"},
    {"dense", NULL, NULL, NULL, NULL, HSDP_ERR_INVALID,
     "plan: class \"dense\" exists already, as number 0"},
    {"c", "dp", "dp,cp", NULL, NULL, HSDP_ERR_INVALID,
     "class c: reduced_over \"dp,cp\" is not within replicated_over \"dp\""},
    {"c", "dp,foo", NULL, NULL, NULL, HSDP_ERR_INVALID,
     "class c: replicated_over \"dp,foo\": unknown dimension \"foo\"; known: pp,dp,cp"},
    {"c", "pp[0,-1]", NULL, NULL, NULL, HSDP_ERR_INVALID,
     "class c: replicated_over \"pp[0,-1]\": coordinates are not allowed here, only whole "
     "dimensions"},
    {"c", NULL, "dp,dp", NULL, NULL, HSDP_ERR_INVALID,
     "class c: reduced_over \"dp,dp\": dimension dp is named twice"},
    {"c", NULL, NULL, "replicate_dims", "ep", HSDP_ERR_INVALID,
     "class c: replicate_dims \"ep\": unknown dimension \"ep\"; known: pp,dp,cp"},
    {"c", NULL, NULL, "sharding_strategy", "auto", HSDP_ERR_UNSUPPORTED,
     "sharding_strategy auto: needs the planner, not built in this version; name a strategy"},
    {"c", NULL, NULL, "sharding_strategy", "FSDP", HSDP_ERR_INVALID,
     "sharding_strategy: \"FSDP\" is none of: ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp auto "
     "no_shard shard_grad_op full_shard zero3 hybrid_shard hybrid_shard_zero2"},
    {"c", NULL, NULL, "param_dtype", "fp64", HSDP_ERR_INVALID,
     "param_dtype: \"fp64\" is none of: fp32 bf16 fp16"},
    {"c", NULL, NULL, "master_dtype", "fp64", HSDP_ERR_INVALID,
     "master_dtype: \"fp64\" is none of: fp32 bf16 fp16"},
    {"c", NULL, NULL, "gradient_divisor", "0", HSDP_ERR_INVALID,
     "gradient_divisor: \"0\" is not a whole number from 1 to 16777216"},
    {"c", NULL, NULL, "slots", "2", HSDP_ERR_INVALID,
     "settings: unknown key \"slots\" for a class; known: sharding_strategy, replicate_dims, "
     "param_dtype, master_dtype, reduce_dtype, gradient_dtype, gradient_op, gradient_divisor"},
};

START_TEST(plan_add_class_of_a_bad_spec_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("PP=2,dp=2,cp=2", 0, "");
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t class_index = 77;

    fixture_class(plan, "dense", "");
    spec.name = bad_classes[_i].name;
    spec.replicated_over = bad_classes[_i].replicated_over;
    spec.reduced_over = bad_classes[_i].reduced_over;
    spec.settings = (struct hsdp_settings){&bad_classes[_i].key, &bad_classes[_i].value,
                                           bad_classes[_i].key == NULL ? 0 : 1};
    ck_assert_int_eq(plan_add_class(plan, &spec, &class_index, &err), bad_classes[_i].status);
    ck_assert_str_eq(err.message, bad_classes[_i].sentence);
    ck_assert_uint_eq(class_index, 77);
    ck_assert_uint_eq(plan->n_classes, 1);
    ck_assert_int_eq(plan_add_class(plan, NULL, &class_index, NULL), HSDP_ERR_INVALID);
    plan_destroy(plan);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("plan");

    tcase_add_test(tcase, plan_create_of_null_is_refused);
    tcase_add_loop_test(tcase, plan_create_of_bad_settings_is_refused, 0, N_OF(bad_plans));
    tcase_add_loop_test(tcase, plan_create_splits_dp, 0, N_OF(splits));
    tcase_add_test(tcase, plan_setting_tells_value_and_source);
    tcase_add_loop_test(tcase, plan_add_class_reads_dims_and_divisor, 0, N_OF(classes));
    tcase_add_loop_test(tcase, plan_class_info_tells_what_it_is_replicated_over, 0, 5);
    tcase_add_test(tcase, plan_add_class_understands_dp_after_a_split);
    tcase_add_test(tcase, plan_add_class_takes_settings_from_plan_and_own);
    tcase_add_loop_test(tcase, plan_add_class_of_a_bad_spec_is_refused, 0, N_OF(bad_classes));
    suite_add_tcase(suite, tcase);
    return suite;
}
