/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: units and parameters, what is refused, and when. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

/* -------------------------------------------------------------------- units and parameters */

START_TEST(plan_add_unit_of_bad_arguments_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t unit = 77;
    char name[65];

    ck_assert_int_eq(plan_add_unit(plan, "u", 0, &unit, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: unit \"u\" wants class 0 of 0 classes");
    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    ck_assert_int_eq(plan_add_unit(plan, "u", 0, &unit, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: unit \"u\" exists already, as number 0");
    ck_assert_int_eq(plan_add_unit(plan, NULL, 0, &unit, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_add_unit(plan, "", 0, &unit, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_add_unit(NULL, "v", 0, &unit, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_add_unit(plan, "v", 0, NULL, NULL), HSDP_ERR_INVALID);
    memset(name, 'x', 64);
    name[64] = '\0';
    ck_assert_int_eq(plan_add_unit(plan, name, 0, &unit, &err), HSDP_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "has 64 bytes, at most 63 are allowed"));
    ck_assert_uint_eq(unit, 77);
    name[63] = '\0';
    ck_assert_int_eq(plan_add_unit(plan, name, 0, &unit, NULL), HSDP_OK);
    ck_assert_uint_eq(unit, 1);
    plan_destroy(plan);
}
END_TEST

static const struct {
    const char *name;
    const char *shape;
    const char *tied_to;
    const char *tied_over;
    uint32_t unit;
    uint32_t flags;
    uint32_t hyper_group;
    int32_t status;
    const char *sentence;
} bad_params[] = {
    {NULL, "[2]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID, "plan: a param has no name"},
    {"", "[2]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID, "plan: a param has an empty name"},
    {"w", "[2]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"w\" exists already, as number 0"},
    {"p", "[2]", NULL, NULL, 3, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" wants unit 3 of 3 units"},
    {"p", "[2,-3]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" has size -3 in dimension 1"},
    {"p", "[0,-3]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" has size -3 in dimension 1"},
    {"p", "[1152921504606846977]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is larger than 2^62 bytes"},
    {"p", "[4294967296,4294967296]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is larger than 2^62 bytes"},
    {"p", "[9223372036854775807,2,2]", NULL, NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is larger than 2^62 bytes"},
    {"p", "[2]", NULL, NULL, 0, 2, 0, HSDP_ERR_UNSUPPORTED,
     "plan: param \"p\" has unknown flags 0x2"},
    {"p", "[2]", "x", NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is tied to \"x\", and no earlier one has that name"},
    {"p", "[2]", "p", NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is tied to \"p\", and no earlier one has that name"},
    {"p", "[2]", "w", NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" has 1 dimensions, \"w\", to which it is tied, has 2"},
    {"p", "[2,3]", "w", NULL, 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" has size 2 in dimension 0, \"w\", to which it is tied, has 3"},
    {"p", "[3,2]", "w", NULL, 0, 1, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is tied to \"w\", which differs in being frozen"},
    {"p", "[3,2]", "w", NULL, 0, 0, 4, HSDP_ERR_INVALID,
     "plan: param \"p\" is tied to \"w\", which has another hyper_group"},
    {"p", "[3,2]", "w", NULL, 2, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is tied to \"w\", which is of another class"},
    {"p", "[2]", NULL, "dp", 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is tied over \"dp\", where class dense holds equal values already"},
    {"p", "[3,2]", "w", "pp[0,-1]", 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\" is tied over \"pp[0,-1]\" and to \"w\", which is not tied over the same "
     "ranks"},
    {"p", "[2]", NULL, "pp[1]", 0, 0, 0, HSDP_ERR_NOT_MEMBER,
     "plan: param \"p\" is tied over \"pp[1]\", where this rank 0 is not"},
    {"p", "[2]", NULL, "xx[0]", 0, 0, 0, HSDP_ERR_INVALID,
     "plan: param \"p\": tied_over \"xx[0]\": unknown dimension \"xx\"; known: pp,dp"},
};

START_TEST(plan_add_param_of_a_bad_spec_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("PP=2,dp=2", 0, "");
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_param_spec spec;
    uint32_t param = 77;
    int64_t shape[8];

    fixture_class(plan, "dense", "");
    fixture_class(plan, "expert", "");
    fixture_unit(plan, "u");
    fixture_unit(plan, "v");
    ck_assert_int_eq(plan_add_unit(plan, "x", 1, &param, NULL), HSDP_OK);
    fixture_param(plan, 0, "w", "[3,2]");
    param = 77;
    spec =
        fixture_param_spec(bad_params[_i].unit, bad_params[_i].name, bad_params[_i].shape, shape);
    spec.tied_to = bad_params[_i].tied_to;
    spec.tied_over = bad_params[_i].tied_over;
    spec.flags = bad_params[_i].flags;
    spec.hyper_group = bad_params[_i].hyper_group;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, &err), bad_params[_i].status);
    ck_assert_str_eq(err.message, bad_params[_i].sentence);
    ck_assert_uint_eq(param, 77);
    ck_assert_uint_eq(plan->n_params, 1);
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_add_param_of_a_bad_shape_pointer_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    spec.name = "p";
    spec.n_dims = 1;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: param \"p\" has 1 dimensions, but no shape");
    spec.shape = shape;
    spec.n_dims = 9;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: param \"p\" has 9 dimensions, at most 8 are allowed");
    ck_assert_int_eq(plan_add_param(plan, NULL, &param, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_add_param(NULL, &spec, &param, NULL), HSDP_ERR_INVALID);
    spec.n_dims = 8;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    plan_destroy(plan);
}
END_TEST

/* A tie over stages is fine where it is this rank alone; sizes up to the limit are. */
START_TEST(plan_add_param_at_the_limits_is_taken)
{
    struct hsdp_plan *plan = fixture_plan("PP=1,dp=2", 1, "");
    struct hsdp_param_spec spec;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    spec = fixture_param_spec(0, "tied", "[2]", shape);
    spec.tied_over = "pp[0,-1]";
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    fixture_param(plan, 0, "largest", "[1073741824,1073741824]");
    fixture_param(plan, 0, "empty", "[9223372036854775807,0,9223372036854775807]");
    ck_assert_uint_eq(plan->params[1].n_elems, UINT64_C(1) << 60);
    ck_assert_uint_eq(plan->params[2].n_elems, 0);
    plan_destroy(plan);
}
END_TEST

/* Of one that is tied, what its storage was given. */
START_TEST(plan_param_info_tells_blocks_and_ties_as_given)
{
    static const struct {
        const char *name, *tied_to, *tied_over;
        uint64_t block_elems;
        const char *told_over;
        uint64_t told_elems;
    } rows[] = {
        {"w", NULL, NULL, 7, "", 7},
        {"plain", NULL, NULL, 0, "", 0},
        {"tied", "w", NULL, 0, "", 7},
        {"emb", NULL, "pp[0,-1]", 0, "pp[0,-1]", 0},
        {"head", "emb", NULL, 0, "pp[0,-1]", 0},
        {"again", "emb", "pp", 0, "pp[0,-1]", 0},
    };
    struct hsdp_plan *plan = fixture_plan("PP=2,dp=2", 0, "");
    struct hsdp_param_spec spec;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[16] = "";

        strcpy(text, rows[i].tied_over == NULL ? "" : rows[i].tied_over);
        spec = fixture_param_spec(0, rows[i].name, "[50]", shape);
        spec.tied_to = rows[i].tied_to;
        spec.tied_over = rows[i].tied_over == NULL ? NULL : text;
        spec.block_elems = rows[i].block_elems;
        ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
        memset(text, 'x', sizeof(text) - 1); /* it was copied */
    }
    fixture_finish(plan);
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;

        ck_assert_int_eq(plan_param_info(plan, i, &info, NULL), HSDP_OK);
        ck_assert_str_eq(info.tied_over, rows[i].told_over);
        ck_assert_uint_eq(info.block_elems, rows[i].told_elems);
    }
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_param_info_tells_what_was_given)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_param_spec spec;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    spec = fixture_param_spec(0, "w", "[5,3]", shape);
    spec.hyper_group = 9;
    spec.flags = HSDP_PARAM_FROZEN;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    shape[0] = 77; /* it was copied */
    fixture_finish(plan);
    ck_assert_int_eq(plan_param_info(plan, 0, &info, NULL), HSDP_OK);
    ck_assert_str_eq(info.name, "w");
    ck_assert_int_eq(info.shape[0], 5);
    ck_assert_int_eq(info.shape[1], 3);
    ck_assert_uint_eq(info.n_dims, 2);
    ck_assert_uint_eq(info.n_elems, 15);
    ck_assert_uint_eq(info.hyper_group, 9);
    ck_assert_uint_eq(info.flags, HSDP_PARAM_FROZEN);
    ck_assert_uint_eq(info.storage, 0);
    ck_assert_int_eq(plan_param_find(plan, "x", &param, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: none of the 1 parameters has the name \"x\"");
    ck_assert_int_eq(plan_param_find(plan, NULL, &param, NULL), HSDP_ERR_INVALID);
    plan_destroy(plan);
}
END_TEST

/* A unit's parameters need not follow each other, and the first need not lie first. */
START_TEST(plan_unit_info_tells_what_it_holds)
{
    struct hsdp_plan *plan = fixture_plan("dp=4", 0, "gradient_divisor=9");
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
    struct hsdp_param_spec spec;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    fixture_unit(plan, "v");
    fixture_param(plan, 0, "u.w", "[2]");
    spec = fixture_param_spec(1, "v.frozen", "[2]", shape);
    spec.flags = HSDP_PARAM_FROZEN;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    fixture_param(plan, 0, "u.b", "[2]");
    fixture_param(plan, 1, "v.w", "[2]");
    fixture_finish(plan);
    ck_assert_int_eq(plan_unit_info(plan, 1, &info, NULL), HSDP_OK);
    ck_assert_str_eq(info.name, "v");
    ck_assert_uint_eq(info.class_index, 0);
    ck_assert_uint_eq(info.first_param, 1);
    ck_assert_uint_eq(info.n_params, 2);
    ck_assert_uint_eq(info.n_buffers, 2);
    ck_assert_uint_eq(info.divisor, 9);
    plan_destroy(plan);
}
END_TEST

/* ------------------------------------------------------------------------------- finish */

START_TEST(plan_finish_of_a_unit_without_parameters_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_error err = HSDP_ERROR_INIT;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    fixture_unit(plan, "v");
    fixture_param(plan, 0, "w", "[2]");
    ck_assert_int_eq(plan_finish(plan, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: unit v has no parameters");
    fixture_param(plan, 1, "x", "[2]"); /* and goes on from there */
    fixture_finish(plan);
    ck_assert_uint_eq(plan->units[0].n_params, 1);
    ck_assert_int_eq(plan_finish(NULL, NULL), HSDP_ERR_INVALID);
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_finish_of_more_than_can_be_counted_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_error err = HSDP_ERROR_INIT;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    fixture_unit(plan, "v");
    fixture_param(plan, 0, "w", "[144115188075855872]"); /* 2^57 elements, 2^59 bytes */
    fixture_param(plan, 1, "x", "[144115188075855873]");
    ck_assert_int_eq(plan_finish(plan, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: with the padding of unit v the buffers are larger than "
                                  "2^60 bytes");
    fixture_param(plan, 0, "y", "[1152921504606846976]");
    ck_assert_int_eq(plan_finish(plan, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: with the padding of unit u the buffers are larger than "
                                  "2^60 bytes");
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_adding_to_a_finished_one_is_refused)
{
    static const char *const shape = "[2]";
    struct hsdp_plan *plan = fixture_finished("dp=2", 0, "", &shape, 1);
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param_spec = HSDP_PARAM_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t index;

    class_spec.name = "other";
    param_spec.name = "other";
    ck_assert_int_eq(plan_add_class(plan, &class_spec, &index, &err), HSDP_ERR_STATE);
    ck_assert_str_eq(err.message, "plan: it is finished, nothing can be added");
    ck_assert_int_eq(plan_add_unit(plan, "other", 0, &index, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_add_param(plan, &param_spec, &index, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_finish(plan, NULL), HSDP_ERR_STATE);
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_queries_before_finish_are_refused)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_plan_info info;
    struct hsdp_class_info class_info;
    struct hsdp_unit_info unit_info;
    struct hsdp_buffer_info buffer_info;
    struct hsdp_param_info param_info;
    struct hsdp_segment segment;
    struct hsdp_error err = HSDP_ERROR_INIT;
    const struct hsdp_mesh *mesh;
    const char *text;
    char report[8];
    uint32_t index;
    uint64_t n;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    fixture_param(plan, 0, "p", "[2]");
    ck_assert_int_eq(plan_info(plan, &info, &err), HSDP_ERR_STATE);
    ck_assert_str_eq(err.message, "plan: finish was not called yet, there is nothing to read");
    ck_assert_int_eq(plan_mesh(plan, &mesh, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_setting(plan, "slots", &text, &text, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_class_info(plan, 0, &class_info, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_unit_info(plan, 0, &unit_info, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_buffer_info(plan, 0, 0, &buffer_info, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_param_info(plan, 0, &param_info, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_param_find(plan, "p", &index, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_segments(plan, 0, 0, 0, &segment, sizeof(segment), 1, &n, NULL),
                     HSDP_ERR_STATE);
    ck_assert_int_eq(plan_writer(plan, 0, 0, 0, &index, NULL), HSDP_ERR_STATE);
    ck_assert_int_eq(plan_report(plan, report, sizeof(report), &n, NULL), HSDP_ERR_STATE);
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_queries_out_of_range_are_refused)
{
    static const char *const shape = "[2]";
    struct hsdp_plan *plan = fixture_finished("dp=2", 0, "", &shape, 1);
    struct hsdp_class_info class_info;
    struct hsdp_unit_info unit_info;
    struct hsdp_buffer_info buffer_info;
    struct hsdp_param_info param_info;
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(plan_class_info(plan, 1, &class_info, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: class 1 does not exist, there are 1");
    ck_assert_int_eq(plan_unit_info(plan, 1, &unit_info, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: unit 1 does not exist, there are 1");
    ck_assert_int_eq(plan_buffer_info(plan, 0, 1, &buffer_info, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_buffer_info(plan, 1, 0, &buffer_info, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_param_info(plan, 1, &param_info, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_info(plan, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_info(NULL, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_unit_info(plan, 0, NULL, NULL), HSDP_ERR_INVALID);
    plan_destroy(plan);
}
END_TEST

/* An empty plan is a stage of a pipeline that holds nothing. */
START_TEST(plan_finish_of_nothing_is_an_empty_plan)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;

    fixture_finish(plan);
    ck_assert_int_eq(plan_info(plan, &info, NULL), HSDP_OK);
    ck_assert_uint_eq(info.n_units, 0);
    ck_assert_uint_eq(info.peak_bytes, 0);
    plan_destroy(plan);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("plan_build");
    TCase *tcase = tcase_create("plan_build");

    tcase_add_test(tcase, plan_add_unit_of_bad_arguments_is_refused);
    tcase_add_loop_test(tcase, plan_add_param_of_a_bad_spec_is_refused, 0, N_OF(bad_params));
    tcase_add_test(tcase, plan_add_param_of_a_bad_shape_pointer_is_refused);
    tcase_add_test(tcase, plan_add_param_at_the_limits_is_taken);
    tcase_add_test(tcase, plan_param_info_tells_blocks_and_ties_as_given);
    tcase_add_test(tcase, plan_param_info_tells_what_was_given);
    tcase_add_test(tcase, plan_unit_info_tells_what_it_holds);
    tcase_add_test(tcase, plan_finish_of_a_unit_without_parameters_is_refused);
    tcase_add_test(tcase, plan_finish_of_more_than_can_be_counted_is_refused);
    tcase_add_test(tcase, plan_adding_to_a_finished_one_is_refused);
    tcase_add_test(tcase, plan_queries_before_finish_are_refused);
    tcase_add_test(tcase, plan_queries_out_of_range_are_refused);
    tcase_add_test(tcase, plan_finish_of_nothing_is_an_empty_plan);
    suite_add_tcase(suite, tcase);
    return suite;
}
