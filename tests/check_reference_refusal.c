/* SPDX-License-Identifier: Apache-2.0 */
/* What meshes and plans refuse: two plugins answer with the same status, and a sentence. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin_pair.h"
#include "suite.h"

static const struct hsdp_api *apis[2];
static struct hsdp_error err;

static void apis_load(void)
{
    pair_load(apis);
    err = (struct hsdp_error)HSDP_ERROR_INIT;
}

/* A call that is refused says so in each field that is always filled. */
static void status_expect(int plugin, int32_t status, int32_t expected, const char *what)
{
    ck_assert_msg(status == expected, "%s answers %d to \"%s\": %s", pair_names[plugin], status,
                  what, status == HSDP_OK ? "" : err.message);
    if (expected != HSDP_OK) {
        ck_assert_int_eq(err.status, expected);
        ck_assert_msg(err.message[0] != '\0' && err.operation[0] != '\0', "%s says nothing",
                      pair_names[plugin]);
    }
    err = (struct hsdp_error)HSDP_ERROR_INIT;
}

/* --------------------------------------------------------------------------------------- meshes */

struct mesh_row {
    const char *names[HSDP_MESH_MAX_DIMS + 1];
    int64_t sizes[HSDP_MESH_MAX_DIMS + 1];
    const char *data_dims;
    uint32_t n_dims, world_ranks, rank;
    int32_t status;
};

#define NAME_31 "abcdefghijklmnopqrstuvwxyz_1234"

static const struct mesh_row mesh_rows[] = {
    {{"dp", "cp"}, {2, 3}, NULL, 2, 0, 5, HSDP_OK},
    {{"dp", "cp"}, {2, 3}, NULL, 2, 6, 6, HSDP_ERR_INVALID},
    {{"dp", "cp"}, {-1, 3}, NULL, 2, 6, 0, HSDP_OK},
    {{"dp", "cp"}, {-1, 4}, NULL, 2, 6, 0, HSDP_ERR_INVALID},
    {{"dp", "cp"}, {-1, 3}, NULL, 2, 0, 0, HSDP_ERR_INVALID},
    {{"dp", "cp"}, {-1, -1}, NULL, 2, 4, 0, HSDP_ERR_INVALID},
    {{"dp"}, {0}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{"dp"}, {-2}, NULL, 1, 2, 0, HSDP_ERR_INVALID},
    {{"dp"}, {INT64_MIN}, NULL, 1, 2, 0, HSDP_ERR_INVALID},
    {{"dp", "cp"}, {2, 3}, NULL, 2, 8, 0, HSDP_ERR_INVALID},
    {{"dp", "dp"}, {2, 2}, NULL, 2, 0, 0, HSDP_ERR_INVALID},
    {{""}, {2}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{NULL}, {2}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{"1dp"}, {1}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{"d-p"}, {1}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{"d p"}, {1}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{NAME_31}, {1}, NULL, 1, 0, 0, HSDP_OK},
    {{NAME_31 "5"}, {1}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{"dp"}, {2}, NULL, 0, 0, 0, HSDP_ERR_INVALID},
    {{"a", "b", "c", "d", "e", "f", "g", "h"}, {1, 1, 1, 1, 1, 1, 1, 1}, NULL, 8, 0, 0, HSDP_OK},
    {{"a", "b", "c", "d", "e", "f", "g", "h", "i"},
     {1, 1, 1, 1, 1, 1, 1, 1, 1},
     NULL,
     9,
     0,
     0,
     HSDP_ERR_INVALID},
    {{"dp", "cp"}, {65536, 65536}, NULL, 2, 0, 0, HSDP_ERR_INVALID},
    {{"dp", "cp"}, {65536, 65535}, NULL, 2, 0, 4294901759u, HSDP_OK},
    {{"dp", "cp"}, {INT64_MAX, INT64_MAX}, NULL, 2, 0, 0, HSDP_ERR_INVALID},
    {{"sp"}, {2}, NULL, 1, 0, 0, HSDP_ERR_INVALID},
    {{"sp"}, {1}, NULL, 1, 0, 0, HSDP_OK},
    {{"sp"}, {2}, "sp", 1, 0, 0, HSDP_OK},
    {{"sp"}, {2}, "", 1, 0, 0, HSDP_OK},
    {{"sp"}, {2}, "dp", 1, 0, 0, HSDP_ERR_INVALID},
    {{"sp"}, {2}, "sp,sp", 1, 0, 0, HSDP_ERR_INVALID},
    {{"sp"}, {2}, "sp[0]", 1, 0, 0, HSDP_ERR_INVALID},
};

START_TEST(mesh_spec_gets_the_same_status_of_both)
{
    const struct mesh_row *row = &mesh_rows[_i];
    char what[32];

    snprintf(what, sizeof(what), "mesh row %d", _i);
    for (int p = 0; p < 2; p++) {
        struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
        hsdp_mesh *mesh = NULL;

        spec.dim_names = row->names;
        spec.dim_sizes = row->sizes;
        spec.data_dims = row->data_dims;
        spec.n_dims = row->n_dims;
        spec.world_ranks = row->world_ranks;
        spec.rank = row->rank;
        status_expect(p, apis[p]->mesh->create(&spec, &mesh, &err), row->status, what);
        ck_assert_int_eq(mesh != NULL, row->status == HSDP_OK);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

/* (pp 2, dp 3, cp 2), asked by rank 8: pp 1, dp 1, cp 0. */
static hsdp_mesh *mesh_make(int p)
{
    static const char *const names[] = {"pp", "dp", "cp"};
    static const int64_t sizes[] = {2, 3, 2};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    hsdp_mesh *mesh = NULL;

    spec.dim_names = names;
    spec.dim_sizes = sizes;
    spec.n_dims = 3;
    spec.rank = 8;
    ck_assert_int_eq(apis[p]->mesh->create(&spec, &mesh, &err), HSDP_OK);
    return mesh;
}

static const struct {
    const char *text;
    uint32_t rank;
    int32_t status;
} selector_rows[] = {
    {"", 8, HSDP_OK},
    {"dp", 8, HSDP_OK},
    {"cp,dp", 8, HSDP_OK},
    {"pp,dp,cp", 11, HSDP_OK},
    {"pp[0,-1]", 8, HSDP_OK},
    {"pp[1]", 8, HSDP_OK},
    {"pp[0]", 8, HSDP_ERR_NOT_MEMBER},
    {"dp[2,0,2]", 0, HSDP_OK},
    {"dp[-3]", 0, HSDP_OK},
    {"dp[-4]", 0, HSDP_ERR_INVALID},
    {"dp[3]", 0, HSDP_ERR_INVALID},
    {"dp[99999999999999999999999]", 0, HSDP_ERR_INVALID},
    {"dp", 12, HSDP_ERR_INVALID},
    {"foo", 0, HSDP_ERR_INVALID},
    {"dp,dp", 0, HSDP_ERR_INVALID},
    {"dp,", 0, HSDP_ERR_INVALID},
    {",dp", 0, HSDP_ERR_INVALID},
    {"dp cp", 0, HSDP_ERR_INVALID},
    {" dp", 0, HSDP_ERR_INVALID},
    {"dp[", 0, HSDP_ERR_INVALID},
    {"dp[]", 0, HSDP_ERR_INVALID},
    {"dp[0", 0, HSDP_ERR_INVALID},
    {"dp[0,]", 0, HSDP_ERR_INVALID},
    {"dp[0]x", 0, HSDP_ERR_INVALID},
    {"dp[0],cp", 0, HSDP_ERR_INVALID},
    {"dp,cp[0]", 0, HSDP_ERR_INVALID},
    {"dp[a]", 0, HSDP_ERR_INVALID},
    {"dp[+1]", 0, HSDP_ERR_INVALID},
    {"dp[-]", 0, HSDP_ERR_INVALID},
    {"[0]", 0, HSDP_ERR_INVALID},
    {"foo[0]", 0, HSDP_ERR_INVALID},
    {"dp_shard", 0, HSDP_ERR_INVALID},
    {"x", 0, HSDP_ERR_INVALID},
};

/* Of a dimension of 80, the text of "wide[0,0,1,1,...]" up to a coordinate. */
START_TEST(selector_of_many_coordinates_gets_the_same_status_of_both)
{
    static const int64_t sizes[] = {80, 1, 1};
    static const char *const names[] = {"wide", "x_shard", "x_replicate"};
    const int32_t expected = _i < 64 ? HSDP_OK : HSDP_ERR_INVALID;
    char text[1024] = "wide";
    uint64_t n_ranks;

    for (int c = _i; c >= 0; c--) { /* downwards, and each twice */
        sprintf(text + strlen(text), "%c%d,%d%s", c == _i ? '[' : ',', c, c, c == 0 ? "]" : "");
    }
    for (int p = 0; p < 2; p++) {
        struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
        uint32_t ranks[80];
        hsdp_mesh *mesh = NULL;

        spec.dim_names = names;
        spec.dim_sizes = sizes;
        spec.n_dims = 3;
        spec.data_dims = "x";
        ck_assert_int_eq(apis[p]->mesh->create(&spec, &mesh, &err), HSDP_OK);
        status_expect(p, apis[p]->mesh->members(mesh, text, 0, ranks, 80, &n_ranks, &err), expected,
                      text);
        ck_assert(expected != HSDP_OK ||
                  (n_ranks == (uint64_t)_i + 1 && ranks[_i] == (uint32_t)_i));
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

START_TEST(selector_gets_the_same_status_and_ranks_of_both)
{
    uint32_t ranks[2][12] = {{0}, {0}};
    uint64_t n_ranks[2] = {77, 77};

    for (int p = 0; p < 2; p++) {
        hsdp_mesh *mesh = mesh_make(p);

        status_expect(p,
                      apis[p]->mesh->members(mesh, selector_rows[_i].text, selector_rows[_i].rank,
                                             ranks[p], 12, &n_ranks[p], &err),
                      selector_rows[_i].status, selector_rows[_i].text);
        apis[p]->mesh->destroy(mesh);
    }
    ck_assert_uint_eq(n_ranks[0], n_ranks[1]);
    ck_assert_int_eq(n_ranks[0] == 77, selector_rows[_i].status != HSDP_OK);
    ck_assert_mem_eq(ranks[0], ranks[1], sizeof(ranks[0]));
}
END_TEST

/* ---------------------------------------------------------------------------------------- plans */

static const struct {
    const char *key;
    const char *value;
    int32_t status;          /* of a plan */
    int32_t status_of_class; /* that has it instead */
} setting_rows[] = {
    {"sharding_strategy", "hybrid_shard", HSDP_OK, HSDP_OK},
    {"sharding_strategy", "auto", HSDP_OK, HSDP_ERR_UNSUPPORTED},
    {"sharding_strategy", "HSDP", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"replicate_dims", "", HSDP_OK, HSDP_OK},
    {"replicate_dims", "dp,cp", HSDP_OK, HSDP_OK},
    {"replicate_dims", "pp", HSDP_OK, HSDP_OK},
    {"replicate_dims", "dp[0]", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"replicate_dims", "tp", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"shard_size", "3", HSDP_OK, HSDP_ERR_INVALID},
    {"shard_size", "2", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"shard_size", "0", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"param_dtype", "bf16", HSDP_OK, HSDP_OK},
    {"param_dtype", "fp64", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"gradient_divisor", "16777216", HSDP_OK, HSDP_OK},
    {"gradient_divisor", "16777217", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"gradient_op", "max", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"slots", "64", HSDP_OK, HSDP_ERR_INVALID},
    {"slots", "65", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"slots", "02", HSDP_OK, HSDP_ERR_INVALID},
    {"accumulation_scope", "all", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"verify", "access,wrap,step:10", HSDP_OK, HSDP_ERR_INVALID},
    {"verify", "step:0", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"verify", "step:", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"verify", "step:9999999999", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"verify", "step:1,step:2", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"verify", "off,wrap", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"verify", "wrap,", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"verify", "", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
    {"backend", "auto", HSDP_ERR_INVALID, HSDP_ERR_INVALID},
};

static int32_t class_add(int p, hsdp_plan *plan, const struct hsdp_settings *settings)
{
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    uint32_t index;

    spec.name = "a";
    if (settings != NULL) {
        spec.settings = *settings;
    }
    return apis[p]->plan->add_class(plan, &spec, &index, &err);
}

START_TEST(setting_gets_the_same_status_of_both)
{
    const struct hsdp_settings settings = {&setting_rows[_i].key, &setting_rows[_i].value, 1};

    for (int p = 0; p < 2; p++) {
        hsdp_mesh *mesh = mesh_make(p);
        hsdp_plan *plan = NULL;

        status_expect(p, apis[p]->plan->create(mesh, &settings, &plan, &err),
                      setting_rows[_i].status, setting_rows[_i].value);
        ck_assert_int_eq(plan != NULL, setting_rows[_i].status == HSDP_OK);
        apis[p]->plan->destroy(plan);
        ck_assert_int_eq(apis[p]->plan->create(mesh, NULL, &plan, &err), HSDP_OK);
        status_expect(p, class_add(p, plan, &settings), setting_rows[_i].status_of_class,
                      setting_rows[_i].value);
        apis[p]->plan->destroy(plan);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

/* A plan of class 0 "a" (all data dimensions) and class 1 "b" (dp), units "u" and "v", and "w" [4]
 * in u, of hyper group 1, with blocks of 2. */
static hsdp_plan *plan_make(int p, hsdp_mesh *mesh)
{
    static const int64_t shape[] = {4};
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    const struct hsdp_plan_ops *ops = apis[p]->plan;
    hsdp_plan *plan = NULL;
    uint32_t index;

    ck_assert_int_eq(ops->create(mesh, NULL, &plan, &err), HSDP_OK);
    ck_assert_int_eq(class_add(p, plan, NULL), HSDP_OK);
    spec.name = "b";
    spec.replicated_over = "dp";
    ck_assert_int_eq(ops->add_class(plan, &spec, &index, &err), HSDP_OK);
    ck_assert_int_eq(ops->add_unit(plan, "u", 0, &index, &err), HSDP_OK);
    ck_assert_int_eq(ops->add_unit(plan, "v", 1, &index, &err), HSDP_OK);
    param.name = "w";
    param.shape = shape;
    param.n_dims = 1;
    param.hyper_group = 1;
    param.block_elems = 2;
    ck_assert_int_eq(ops->add_param(plan, &param, &index, &err), HSDP_OK);
    return plan;
}

static const struct {
    const char *name, *replicated_over, *reduced_over;
    int32_t status;
} class_rows[] = {
    {"c", NULL, NULL, HSDP_OK},
    {"c", "dp,pp", "pp", HSDP_OK},
    {"c", "", NULL, HSDP_OK},
    {"c", "dp", "cp", HSDP_ERR_INVALID},
    {"c", "dp", "dp,cp", HSDP_ERR_INVALID},
    {"c", "tp", NULL, HSDP_ERR_INVALID},
    {"c", "dp[0]", NULL, HSDP_ERR_INVALID},
    {"c", NULL, "pp", HSDP_ERR_INVALID},
    {"a", NULL, NULL, HSDP_ERR_INVALID},
    {"", NULL, NULL, HSDP_ERR_INVALID},
    {NULL, NULL, NULL, HSDP_ERR_INVALID},
};

START_TEST(class_gets_the_same_status_of_both)
{
    for (int p = 0; p < 2; p++) {
        struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
        hsdp_mesh *mesh = mesh_make(p);
        hsdp_plan *plan = plan_make(p, mesh);
        uint32_t index = 77;

        spec.name = class_rows[_i].name;
        spec.replicated_over = class_rows[_i].replicated_over;
        spec.reduced_over = class_rows[_i].reduced_over;
        status_expect(p, apis[p]->plan->add_class(plan, &spec, &index, &err), class_rows[_i].status,
                      spec.name == NULL ? "" : spec.name);
        ck_assert_uint_eq(index, class_rows[_i].status == HSDP_OK ? 2 : 77);
        apis[p]->plan->destroy(plan);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

static const struct {
    struct hsdp_param_spec spec;
    int64_t shape[HSDP_PARAM_MAX_DIMS + 1];
    int32_t status;
} param_rows[] = {
#define PARAM(...)                                                                                 \
    {                                                                                              \
        .struct_size = sizeof(struct hsdp_param_spec), __VA_ARGS__                                 \
    }
    {PARAM(.name = "x", .n_dims = 2), {3, 5}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 0), {0}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 2), {0, INT64_MAX}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 8), {1, 1, 1, 1, 1, 1, 1, 1}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 9), {1, 1, 1, 1, 1, 1, 1, 1, 1}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1), {-1}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 2), {0, -1}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 2), {INT64_C(1) << 30, INT64_C(1) << 30}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 2), {INT64_C(1) << 31, INT64_C(1) << 30}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 3),
     {INT64_C(1) << 32, INT64_C(1) << 32, INT64_C(1) << 32},
     HSDP_ERR_INVALID},
    {PARAM(.name = "w", .n_dims = 1), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "", .n_dims = 1), {4}, HSDP_ERR_INVALID},
    {PARAM(.n_dims = 1), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .unit = 2), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .flags = HSDP_PARAM_FROZEN), {4}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 1, .flags = HSDP_PARAM_COPY), {4}, HSDP_ERR_UNSUPPORTED},
    {PARAM(.name = "x", .n_dims = 1, .flags = 0x80000001u), {4}, HSDP_ERR_UNSUPPORTED},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w", .hyper_group = 1, .block_elems = 2),
     {4},
     HSDP_OK},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w", .hyper_group = 1), {4}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w", .hyper_group = 1, .block_elems = 4),
     {4},
     HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w"), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w", .hyper_group = 1), {5}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 2, .tied_to = "w", .hyper_group = 1), {2, 2}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w", .hyper_group = 1, .unit = 1),
     {4},
     HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w", .hyper_group = 1, .flags = HSDP_PARAM_FROZEN),
     {4},
     HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "x"), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = ""), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_to = "w", .hyper_group = 1, .tied_over = "pp"),
     {4},
     HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "pp[0,-1]"), {4}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "pp[-1]"), {4}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "pp[0]"), {4}, HSDP_ERR_NOT_MEMBER},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "pp[2]"), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "dp"), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "cp"), {4}, HSDP_ERR_INVALID},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "cp", .unit = 1), {4}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = ""), {4}, HSDP_OK},
    {PARAM(.name = "x", .n_dims = 1, .tied_over = "tp"), {4}, HSDP_ERR_INVALID},
};

START_TEST(param_gets_the_same_status_of_both)
{
    struct hsdp_param_spec spec = param_rows[_i].spec;
    char what[32];

    spec.shape = param_rows[_i].shape;
    snprintf(what, sizeof(what), "parameter row %d", _i);
    for (int p = 0; p < 2; p++) {
        hsdp_mesh *mesh = mesh_make(p);
        hsdp_plan *plan = plan_make(p, mesh);
        uint32_t index = 77;

        status_expect(p, apis[p]->plan->add_param(plan, &spec, &index, &err), param_rows[_i].status,
                      what);
        ck_assert_uint_eq(index, param_rows[_i].status == HSDP_OK ? 1 : 77);
        apis[p]->plan->destroy(plan);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

START_TEST(unit_gets_the_same_status_of_both)
{
    static const char name_63[] = "123456789012345678901234567890123456789012345678901234567890123";
    static const char name_64[] =
        "1234567890123456789012345678901234567890123456789012345678901234";

    for (int p = 0; p < 2; p++) {
        const struct hsdp_plan_ops *ops = apis[p]->plan;
        hsdp_mesh *mesh = mesh_make(p);
        hsdp_plan *plan = plan_make(p, mesh);
        uint32_t unit;

        status_expect(p, ops->add_unit(plan, name_63, 0, &unit, &err), HSDP_OK, name_63);
        status_expect(p, ops->add_unit(plan, name_64, 0, &unit, &err), HSDP_ERR_INVALID, name_64);
        status_expect(p, ops->add_unit(plan, "", 0, &unit, &err), HSDP_ERR_INVALID, "");
        status_expect(p, ops->add_unit(plan, "u", 0, &unit, &err), HSDP_ERR_INVALID, "u");
        status_expect(p, ops->add_unit(plan, "x", 2, &unit, &err), HSDP_ERR_INVALID, "x");
        apis[p]->plan->destroy(plan);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

/* ------------------------------------------------------------------------------- finished plans */

static void param_add(int p, hsdp_plan *plan, uint32_t unit, const char *name, const char *tied_to)
{
    static const int64_t shape[] = {4};
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
    uint32_t index;

    spec.name = name;
    spec.tied_to = tied_to;
    spec.shape = shape;
    spec.n_dims = 1;
    spec.unit = unit;
    ck_assert_int_eq(apis[p]->plan->add_param(plan, &spec, &index, &err), HSDP_OK);
}

START_TEST(finish_refuses_a_unit_without_parameters_and_may_be_repeated)
{
    for (int p = 0; p < 2; p++) {
        const struct hsdp_plan_ops *ops = apis[p]->plan;
        hsdp_mesh *mesh = mesh_make(p);
        hsdp_plan *plan = plan_make(p, mesh);
        uint32_t param;

        status_expect(p, ops->param_find(plan, "w", &param, &err), HSDP_ERR_STATE, "param_find");
        status_expect(p, ops->finish(plan, &err), HSDP_ERR_INVALID, "finish, v is empty");
        param_add(p, plan, 1, "x", NULL);
        status_expect(p, ops->finish(plan, &err), HSDP_OK, "finish");
        status_expect(p, ops->finish(plan, &err), HSDP_ERR_STATE, "finish twice");
        status_expect(p, ops->add_unit(plan, "y", 0, &param, &err), HSDP_ERR_STATE, "add_unit");
        status_expect(p, ops->param_find(plan, "x", &param, &err), HSDP_OK, "param_find");
        status_expect(p, ops->param_find(plan, "y", &param, &err), HSDP_ERR_INVALID, "y");
        ops->destroy(plan);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

START_TEST(finish_refuses_units_that_are_storage_of_each_other)
{
    for (int p = 0; p < 2; p++) {
        const struct hsdp_plan_ops *ops = apis[p]->plan;
        hsdp_mesh *mesh = mesh_make(p);
        hsdp_plan *plan = NULL;
        uint32_t index;

        ck_assert_int_eq(ops->create(mesh, NULL, &plan, &err), HSDP_OK);
        ck_assert_int_eq(class_add(p, plan, NULL), HSDP_OK);
        ck_assert_int_eq(ops->add_unit(plan, "u", 0, &index, &err), HSDP_OK);
        ck_assert_int_eq(ops->add_unit(plan, "v", 0, &index, &err), HSDP_OK);
        param_add(p, plan, 0, "a", NULL);
        param_add(p, plan, 1, "b", "a");
        param_add(p, plan, 1, "c", NULL);
        param_add(p, plan, 0, "d", "c");
        status_expect(p, ops->finish(plan, &err), HSDP_ERR_INVALID, "finish");
        ops->destroy(plan);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

START_TEST(finish_refuses_what_is_larger_than_all_memory)
{
    static const int64_t shape[] = {INT64_C(1) << 59};

    for (int p = 0; p < 2; p++) {
        struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
        const struct hsdp_plan_ops *ops = apis[p]->plan;
        hsdp_mesh *mesh = mesh_make(p);
        hsdp_plan *plan = plan_make(p, mesh);
        uint32_t index;

        spec.name = "x";
        spec.shape = shape;
        spec.n_dims = 1;
        spec.unit = 1;
        ck_assert_int_eq(ops->add_param(plan, &spec, &index, &err), HSDP_OK);
        status_expect(p, ops->finish(plan, &err), HSDP_ERR_INVALID, "finish");
        ops->destroy(plan);
        apis[p]->mesh->destroy(mesh);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("reference_refusal");
    TCase *all = tcase_create("all");

    tcase_add_checked_fixture(all, apis_load, NULL);
    tcase_add_loop_test(all, mesh_spec_gets_the_same_status_of_both, 0, N_OF(mesh_rows));
    tcase_add_loop_test(all, selector_gets_the_same_status_and_ranks_of_both, 0,
                        N_OF(selector_rows));
    tcase_add_loop_test(all, selector_of_many_coordinates_gets_the_same_status_of_both, 62, 66);
    tcase_add_loop_test(all, setting_gets_the_same_status_of_both, 0, N_OF(setting_rows));
    tcase_add_loop_test(all, class_gets_the_same_status_of_both, 0, N_OF(class_rows));
    tcase_add_loop_test(all, param_gets_the_same_status_of_both, 0, N_OF(param_rows));
    tcase_add_test(all, unit_gets_the_same_status_of_both);
    tcase_add_test(all, finish_refuses_a_unit_without_parameters_and_may_be_repeated);
    tcase_add_test(all, finish_refuses_units_that_are_storage_of_each_other);
    tcase_add_test(all, finish_refuses_what_is_larger_than_all_memory);
    suite_add_tcase(suite, all);
    return suite;
}
