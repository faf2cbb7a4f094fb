/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across stages in a plan: selectors, copies, room, and what holders compare. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"
#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

static int32_t tied_add(struct hsdp_plan *plan, const char *name, const char *tied_to,
                        const char *tied_over, struct hsdp_error *reterr)
{
    int64_t sizes[8];
    struct hsdp_param_spec spec = fixture_param_spec(0, name, "[50,3]", sizes);
    uint32_t param;

    spec.tied_to = tied_to;
    spec.tied_over = tied_over;
    return plan_add_param(plan, &spec, &param, reterr);
}

static struct hsdp_plan *stage_open(uint32_t rank, const char *settings)
{
    struct hsdp_plan *plan = fixture_plan("PP=4,dp=2", rank, settings);

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    return plan;
}

/* A stage of four with a parameter that it holds with others. */
static struct hsdp_plan *stage_plan(uint32_t rank, const char *tied_over)
{
    struct hsdp_plan *plan = stage_open(rank, "");
    struct hsdp_error err = HSDP_ERROR_INIT;

    fixture_param(plan, 0, "w", "[7]");
    ck_assert_msg(tied_add(plan, "emb", NULL, tied_over, &err) == HSDP_OK, "%s", err.message);
    fixture_finish(plan);
    return plan;
}

static uint32_t flags_of(const struct hsdp_plan *plan, uint32_t param)
{
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;

    ck_assert_int_eq(plan_param_info(plan, param, &info, NULL), HSDP_OK);
    return info.flags;
}

START_TEST(param_info_marks_all_but_the_first_holder_as_copies)
{
    static const uint32_t ranks[] = {1, 4, 7}; /* of stages 0, 2, 3 */
    struct hsdp_plan *plan = stage_plan(ranks[_i], "pp[-1,0,2]");

    ck_assert_uint_eq(flags_of(plan, 0), 0);
    ck_assert_uint_eq(flags_of(plan, 1), _i == 0 ? 0 : HSDP_PARAM_COPY);
    ck_assert_uint_eq(plan->n_ties, 1);
    ck_assert_uint_eq(plan->ties[0].own, (uint32_t)_i);
    ck_assert_uint_eq(plan->ties[0].n_holders, 3);
    plan_destroy(plan);
}
END_TEST

/* On this stage the head is the embedding; the copies are on others. */
START_TEST(tie_of_two_names_and_over_stages_belongs_to_the_storage)
{
    struct hsdp_plan *plan = stage_open(6, "");
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(tied_add(plan, "emb", NULL, "pp[0,-1]", &err), HSDP_OK);
    ck_assert_int_eq(tied_add(plan, "head", "emb", "pp[0,3]", &err), HSDP_OK);
    ck_assert_int_eq(tied_add(plan, "third", "head", NULL, &err), HSDP_OK);
    ck_assert_int_eq(tied_add(plan, "fourth", "emb", "pp[2,3]", &err), HSDP_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "which is not tied over the same ranks"));
    fixture_finish(plan);
    ck_assert_uint_eq(plan->n_ties, 1);
    for (uint32_t param = 0; param < 3; param++) {
        ck_assert_uint_eq(flags_of(plan, param), HSDP_PARAM_COPY);
    }
    plan_destroy(plan);
}
END_TEST

/* One stage: "pp[0,-1]" is this rank alone, and both names may say so. */
START_TEST(tie_over_a_dimension_of_one_rank_is_none)
{
    struct hsdp_plan *plan = fixture_plan("PP=1,dp=2", 1, "");
    struct hsdp_error err = HSDP_ERROR_INIT;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    ck_assert_int_eq(tied_add(plan, "emb", NULL, "pp[0,-1]", &err), HSDP_OK);
    ck_assert_int_eq(tied_add(plan, "head", "emb", "pp[0,-1]", &err), HSDP_OK);
    fixture_finish(plan);
    ck_assert_uint_eq(plan->n_ties, 0);
    ck_assert_uint_eq(plan->ties_elems, 0);
    ck_assert_uint_eq(flags_of(plan, 1), 0);
    plan_destroy(plan);
}
END_TEST

START_TEST(accounting_counts_what_holders_read)
{
    struct hsdp_plan *plan = stage_open(0, "sharding_strategy=ddp");
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct plan_accumulators sums;

    ck_assert_int_eq(tied_add(plan, "emb", NULL, "pp", &err), HSDP_OK);
    ck_assert_int_eq(tied_add(plan, "pos", NULL, "pp[0,1]", &err), HSDP_OK);
    fixture_finish(plan);
    ck_assert_uint_eq(plan->ties[1].place_elems, 160);
    ck_assert_uint_eq(plan->ties_elems, 320);
    ck_assert_uint_eq(plan_ties_bytes(plan), 2 * 150 * sizeof(float));
    sums = plan_accumulators(plan, 0);
    ck_assert_uint_eq(plan->totals.grad_bytes,
                      (plan_accumulator_elems(&sums) + 2 * 150) * sizeof(float));
    plan_destroy(plan);
}
END_TEST

START_TEST(tied_elements_of_all_ranks_add_up)
{
    static const char *const strategies_of[] = {"ddp", "fsdp"};
    uint64_t n_elems = 0;

    for (uint32_t rank = 0; rank < 2; rank++) {
        char settings[64] = "sharding_strategy=";
        struct hsdp_plan *plan = stage_open(rank, strcat(settings, strategies_of[_i]));

        fixture_param(plan, 0, "w", "[4000]");
        ck_assert_int_eq(tied_add(plan, "emb", NULL, "pp", NULL), HSDP_OK);
        fixture_finish(plan);
        n_elems += plan_tie_elems(plan, 0);
        plan_destroy(plan);
    }
    ck_assert_uint_eq(n_elems, _i == 0 ? 2 * 150 : 150);
}
END_TEST

START_TEST(ranks_in_reach_are_those_of_the_holders)
{
    struct hsdp_plan *plan = stage_plan(0, "pp[0,3]"); /* ranks = 2 * pp + dp */
    static const bool expected[] = {true, true, false, false, false, false, true, true};

    for (uint32_t rank = 0; rank < 8; rank++) { /* fsdp: slices over dp */
        ck_assert_int_eq(plan_ties_reach(plan, rank), expected[rank]);
    }
    plan_destroy(plan);
}
END_TEST

/* Texts that select the same are the same; unit and offset do not matter. */
START_TEST(words_of_a_tie_are_those_of_parameter_and_class)
{
    struct hsdp_plan *plans[2] = {stage_plan(0, "pp[0,-1]"), stage_open(6, "")};
    struct text texts[2] = {TEXT_INIT, TEXT_INIT};
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(tied_add(plans[1], "emb", NULL, "pp[3,0]", &err), HSDP_OK);
    fixture_finish(plans[1]);
    for (int i = 0; i < 2; i++) {
        plan_write_tie(plans[i], 0, &texts[i]);
        plan_destroy(plans[i]);
    }
    ck_assert_str_eq(texts[0].chars, texts[1].chars);
    ck_assert_ptr_nonnull(strstr(texts[0].chars, " tied_over=pp[0,3] shape=[50,3] "));
    text_fini(&texts[0]);
    text_fini(&texts[1]);
}
END_TEST

START_TEST(report_and_lines_tell_of_ties_over_stages)
{
    struct hsdp_plan *plan = stage_plan(7, "pp[0,-1]");
    struct text json = TEXT_INIT;
    struct text lines = TEXT_INIT;

    plan_write_json(plan, &json, NULL);
    plan_write_lines(plan, &lines);
    ck_assert_ptr_nonnull(strstr(json.chars,
                                 "\"ties\":[{\"param\":\"emb\",\"tied_over\":\"pp[0,3]\","
                                 "\"holders\":2,\"is_copy\":true,\"payload_bytes\":0}]"));
    ck_assert_ptr_nonnull(strstr(lines.chars, "tied_over=pp[0,3]"));
    text_fini(&json);
    text_fini(&lines);
    plan_destroy(plan);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("tie");
    TCase *tcase = tcase_create("tie");

    tcase_add_loop_test(tcase, param_info_marks_all_but_the_first_holder_as_copies, 0, 3);
    tcase_add_test(tcase, tie_of_two_names_and_over_stages_belongs_to_the_storage);
    tcase_add_test(tcase, tie_over_a_dimension_of_one_rank_is_none);
    tcase_add_test(tcase, accounting_counts_what_holders_read);
    tcase_add_loop_test(tcase, tied_elements_of_all_ranks_add_up, 0, 2);
    tcase_add_test(tcase, ranks_in_reach_are_those_of_the_holders);
    tcase_add_test(tcase, words_of_a_tie_are_those_of_parameter_and_class);
    tcase_add_test(tcase, report_and_lines_tell_of_ties_over_stages);
    suite_add_tcase(suite, tcase);
    return suite;
}
