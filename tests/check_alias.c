/* SPDX-License-Identifier: Apache-2.0 */
/* Aliases in a plan: names for parameters of other units, their slots, room and accounting. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"
#include "plan/build.h"
#include "plan_fixture.h"
#include "suite.h"

static void tie_add(struct hsdp_plan *plan, uint32_t unit, const char *name, const char *shape,
                    const char *tied_to)
{
    int64_t sizes[8];
    struct hsdp_param_spec spec = fixture_param_spec(unit, name, shape, sizes);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t param;

    spec.tied_to = tied_to;
    ck_assert_msg(plan_add_param(plan, &spec, &param, &err) == HSDP_OK, "%s", err.message);
}

/* An embedding, a block, a head that is tied to the embedding and has a norm. */
static struct hsdp_plan *gpt_plan(const char *settings, bool has_norm)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, settings);

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "emb");
    fixture_unit(plan, "block");
    fixture_unit(plan, "head");
    fixture_param(plan, 0, "wte", "[50,10]");
    fixture_param(plan, 1, "w", "[100]");
    tie_add(plan, 2, "out", "[50,10]", "wte");
    if (has_norm) {
        fixture_param(plan, 2, "ln", "[10]");
    }
    fixture_finish(plan);
    return plan;
}

START_TEST(param_info_of_an_alias_tells_its_storage)
{
    struct hsdp_plan *plan = gpt_plan("", true);
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;

    ck_assert_int_eq(plan_param_info(plan, 2, &info, NULL), HSDP_OK);
    ck_assert_uint_eq(info.storage, 0);
    ck_assert_uint_eq(info.unit, 2);
    ck_assert_uint_eq(info.buffer, 0);
    ck_assert_uint_eq(info.offset_elems, 0);
    ck_assert(plan_param_is_alias(plan, 2));
    ck_assert(!plan_param_is_alias(plan, 3));
    ck_assert_uint_eq(plan->units[2].params[0], 3); /* its own first */
    ck_assert_uint_eq(plan->units[2].params[1], 2);
    ck_assert_uint_eq(plan->units[2].n_aliases, 1);
    plan_destroy(plan);
}
END_TEST

/* A storage that is added before, but lies in a later unit, which is laid out later. */
START_TEST(param_info_of_an_alias_of_a_later_unit_has_its_place)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "first");
    fixture_unit(plan, "last");
    fixture_param(plan, 1, "a", "[7]");
    fixture_param(plan, 1, "b", "[9]");
    tie_add(plan, 0, "c", "[9]", "b");
    fixture_param(plan, 0, "d", "[3]");
    fixture_finish(plan);
    ck_assert_uint_eq(plan->params[2].offset_elems, 32);
    ck_assert_uint_eq(plan->params[1].offset_elems, 32);
    plan_destroy(plan);
}
END_TEST

START_TEST(segments_do_not_list_aliases)
{
    struct hsdp_plan *plan = gpt_plan("", true);
    struct hsdp_segment segments[4];
    uint64_t n_segments = 0;

    ck_assert_int_eq(plan_segments(plan, 2, HSDP_SHARD_STEP, 0, segments, sizeof(segments[0]), 4,
                                   &n_segments, NULL),
                     HSDP_OK);
    ck_assert_uint_eq(n_segments, 1);
    ck_assert_uint_eq(segments[0].param, 3);
    plan_destroy(plan);
}
END_TEST

/* The gradient of the alias lies behind the buffer that is reduced, in the slot. */
START_TEST(slots_have_room_for_gradients_of_aliases)
{
    struct hsdp_plan *plan = gpt_plan("slots=1", true);

    ck_assert_uint_eq(plan->units[2].buffers[0].n_elems, 2048);
    ck_assert_uint_eq(plan->params[2].alias_offset_elems, 2048);
    ck_assert_uint_eq(plan->units[2].n_alias_elems, 512);
    ck_assert_uint_eq(plan_grad_elems(plan, 2), 2560);
    ck_assert_uint_eq(plan->grad_slots_bytes, 12288); /* 2560 fp32, in whole granules */
    ck_assert(plan_grads_overlap(plan, 1, 2));
    plan_destroy(plan);
}
END_TEST

/* All names of the last unit are of other units: it has gradients to add, and nothing to reduce. */
START_TEST(unit_of_aliases_alone_has_no_buffer_and_a_slot)
{
    struct hsdp_plan *plan = gpt_plan("", false);
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

    ck_assert_int_eq(plan_unit_info(plan, 2, &info, NULL), HSDP_OK);
    ck_assert_uint_eq(info.n_buffers, 0);
    ck_assert_uint_eq(info.grad_slot, 0);
    ck_assert(!plan_is_trainable(plan, 2));
    ck_assert_uint_eq(plan->params[2].alias_offset_elems, 0);
    ck_assert_uint_eq(plan_grad_elems(plan, 2), 512);
    plan_destroy(plan);
}
END_TEST

START_TEST(storage_of_other_units_takes_turns_in_no_slot)
{
    struct hsdp_plan *plan = gpt_plan("", true);

    ck_assert_uint_eq(plan->units[0].param_slot, HSDP_NO_SLOT);
    ck_assert_uint_eq(plan->units[1].param_slot, 1);
    ck_assert_uint_eq(plan->units[2].param_slot, 0);
    ck_assert_uint_eq(plan->totals.unsharded_bytes, 0);
    ck_assert_str_eq(plan->notes[plan->n_notes - 1],
                     "unit emb is storage of names in other units: its parameters take turns in no "
                     "slot, and 16384 bytes are kept for the gradients that those units add");
    plan_destroy(plan);
}
END_TEST

/* Two buffers where the local sum takes them up; a third that peers read where there is none. */
START_TEST(accounting_counts_what_aliases_add)
{
    static const char *const settings[] = {"accumulation_scope=none", "accumulation_scope=inner",
                                           "accumulation_scope=full"};
    struct hsdp_plan *plan = gpt_plan(settings[_i], true);
    struct plan_accumulators sums = plan_accumulators(plan, 0);
    uint64_t n_elems = 0;

    ck_assert_uint_eq(sums.late_elems, (_i == 0 ? 2 : 3) * 2048);
    ck_assert_uint_eq(plan_accumulators(plan, 1).late_elems, 0);
    ck_assert_uint_eq(plan_accumulators(plan, 2).late_elems, 0);
    for (uint32_t u = 0; u < 3; u++) {
        sums = plan_accumulators(plan, u);
        n_elems += plan_accumulator_elems(&sums);
    }
    ck_assert_uint_eq(plan->totals.grad_bytes, n_elems * sizeof(float));
    plan_destroy(plan);
}
END_TEST

START_TEST(frozen_alias_has_no_gradient_and_no_room)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    int64_t sizes[8];
    struct hsdp_param_spec spec = fixture_param_spec(0, "w", "[9]", sizes);
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "a");
    fixture_unit(plan, "b");
    spec.flags = HSDP_PARAM_FROZEN;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    spec.unit = 1;
    spec.name = "x";
    spec.tied_to = "w";
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    fixture_finish(plan);
    ck_assert_uint_eq(plan->units[1].grad_slot, HSDP_NO_SLOT);
    ck_assert_uint_eq(plan->grad_slots_bytes, 0);
    ck_assert_uint_eq(plan->totals.grad_bytes, 0);
    ck_assert_uint_eq(plan->units[0].param_slot, HSDP_NO_SLOT);
    plan_destroy(plan);
}
END_TEST

/* What ranks compare: the same layout, and two parameters to be tied to. */
START_TEST(lines_tell_ties_apart)
{
    static const char *const tied_to[] = {"a", "b"};
    struct text texts[2] = {TEXT_INIT, TEXT_INIT};

    for (int i = 0; i < 2; i++) {
        struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");

        fixture_class(plan, "dense", "");
        fixture_unit(plan, "u");
        fixture_unit(plan, "v");
        fixture_param(plan, 0, "a", "[0]");
        fixture_param(plan, 0, "b", "[0]");
        tie_add(plan, 1, "c", "[0]", tied_to[i]);
        fixture_finish(plan);
        plan_write_lines(plan, &texts[i]);
        plan_destroy(plan);
    }
    ck_assert_str_ne(texts[0].chars, texts[1].chars);
    ck_assert_ptr_nonnull(strstr(texts[0].chars, "tied_to=\"a\""));
    text_fini(&texts[0]);
    text_fini(&texts[1]);
}
END_TEST

START_TEST(report_tells_of_aliases)
{
    struct hsdp_plan *plan = gpt_plan("", true);
    struct text text = TEXT_INIT;

    plan_write_json(plan, &text, NULL);
    ck_assert_ptr_nonnull(strstr(text.chars, "\"aliases\":1,\"alias_grad_elems\":512"));
    ck_assert_ptr_nonnull(strstr(text.chars, "\"is_storage_of_other_units\":true"));
    text_fini(&text);
    plan_destroy(plan);
}
END_TEST

/* Each would have to be handed over before the other. */
START_TEST(finish_of_units_that_store_each_other_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("dp=1", 0, "");
    struct hsdp_error err = HSDP_ERROR_INIT;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "a");
    fixture_unit(plan, "b");
    fixture_unit(plan, "c");
    fixture_param(plan, 0, "w", "[7]");
    fixture_param(plan, 2, "x", "[7]");
    tie_add(plan, 1, "y", "[7]", "w");
    fixture_param(plan, 1, "z", "[7]");
    tie_add(plan, 2, "w2", "[7]", "z");
    tie_add(plan, 0, "x2", "[7]", "x");
    ck_assert_int_eq(plan_finish(plan, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: unit a stores names of units that store names of it; no "
                                  "backward pass has each before its storage");
    plan_destroy(plan);
}
END_TEST

START_TEST(finish_of_too_many_alias_gradients_is_refused)
{
    struct hsdp_plan *plan = fixture_plan("dp=1", 0, "");
    struct hsdp_error err = HSDP_ERROR_INIT;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "a");
    fixture_unit(plan, "b");
    fixture_param(plan, 0, "w", "[144115188075855872]"); /* 2^57 */
    tie_add(plan, 1, "x", "[144115188075855872]", "w");
    tie_add(plan, 1, "y", "[144115188075855872]", "w");
    tie_add(plan, 1, "z", "[144115188075855872]", "w");
    ck_assert_int_eq(plan_finish(plan, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: the gradients of unit b's names for parameters of other "
                                  "units are larger than 2^60 bytes");
    plan_destroy(plan);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("alias");
    TCase *tcase = tcase_create("alias");

    tcase_add_test(tcase, param_info_of_an_alias_tells_its_storage);
    tcase_add_test(tcase, param_info_of_an_alias_of_a_later_unit_has_its_place);
    tcase_add_test(tcase, segments_do_not_list_aliases);
    tcase_add_test(tcase, slots_have_room_for_gradients_of_aliases);
    tcase_add_test(tcase, unit_of_aliases_alone_has_no_buffer_and_a_slot);
    tcase_add_test(tcase, storage_of_other_units_takes_turns_in_no_slot);
    tcase_add_loop_test(tcase, accounting_counts_what_aliases_add, 0, 3);
    tcase_add_test(tcase, frozen_alias_has_no_gradient_and_no_room);
    tcase_add_test(tcase, lines_tell_ties_apart);
    tcase_add_test(tcase, report_tells_of_aliases);
    tcase_add_test(tcase, finish_of_units_that_store_each_other_is_refused);
    tcase_add_test(tcase, finish_of_too_many_alias_gradients_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
