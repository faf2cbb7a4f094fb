/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: which units share memory, and that those in a row never do. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>

#include "plan/build.h"
#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

/* Units of random sizes, some frozen, in K slots. */
static struct hsdp_plan *slots_plan(uint64_t *state, uint32_t n_slots, uint32_t n_units)
{
    char settings[64];
    struct hsdp_plan *plan;

    snprintf(settings, sizeof(settings), "slots=%u gradient_dtype=bf16", n_slots);
    plan = fixture_plan("dp=2", 0, settings);
    fixture_class(plan, "dense", "");
    for (uint32_t u = 0; u < n_units; u++) {
        char name[16];
        char shape[16];
        int64_t sizes[8];
        struct hsdp_param_spec spec;
        uint32_t param;

        snprintf(name, sizeof(name), "u%u", u);
        snprintf(shape, sizeof(shape), "[%u]", fixture_random(state, 50000));
        fixture_unit(plan, name);
        spec = fixture_param_spec(u, name, shape, sizes);
        spec.flags = fixture_random(state, 5) == 0 ? HSDP_PARAM_FROZEN : 0;
        ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    }
    fixture_finish(plan);
    return plan;
}

static uint64_t unit_grad_bytes(const struct hsdp_plan *plan, uint32_t unit)
{
    uint64_t n_bytes = plan->units[unit].buffers[0].n_elems * 2;

    return (n_bytes + PLAN_GRANULE_BYTES - 1) / PLAN_GRANULE_BYTES * PLAN_GRANULE_BYTES;
}

/* Of K trainable units in a row no two share a byte, and all lie within the memory. */
static void expect_rows_apart(const struct hsdp_plan *plan, const uint32_t *trainable, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_unit *unit = &plan->units[trainable[i]];

        ck_assert_uint_eq(unit->grad_slot, i % plan->n_slots);
        ck_assert_uint_eq(unit->grad_slot_offset_bytes % PLAN_GRANULE_BYTES, 0);
        ck_assert_uint_le(unit->grad_slot_offset_bytes + unit_grad_bytes(plan, trainable[i]),
                          plan->grad_slots_bytes);
        ck_assert(plan_grads_overlap(plan, trainable[i], trainable[i]));
        for (uint32_t j = i + 1; j < n && j < i + plan->n_slots; j++) {
            ck_assert(!plan_grads_overlap(plan, trainable[i], trainable[j]));
            ck_assert(!plan_grads_overlap(plan, trainable[j], trainable[i]));
        }
    }
}

START_TEST(slots_of_units_in_a_row_do_not_overlap)
{
    uint64_t state = 6;

    for (int round = 0; round < 40; round++) {
        uint32_t trainable[12];
        uint32_t n = 0;
        uint32_t n_slots = 1 + fixture_random(&state, 5);
        struct hsdp_plan *plan = slots_plan(&state, n_slots, 1 + fixture_random(&state, 12));

        for (uint32_t u = plan->n_units; u-- > 0;) {
            if (!plan->units[u].buffers[0].is_frozen) {
                trainable[n++] = u;
            } else {
                ck_assert_uint_eq(plan->units[u].grad_slot, HSDP_NO_SLOT);
                ck_assert(!plan_grads_overlap(plan, u, u));
            }
        }
        expect_rows_apart(plan, trainable, n);
        plan_destroy(plan);
    }
}
END_TEST

/* For one and two slots the memory is the largest sum of neighbours, not a byte more. */
START_TEST(slots_of_one_and_two_are_as_small_as_can_be)
{
    uint64_t state = 7;

    for (int round = 0; round < 40; round++) {
        uint32_t n_slots = 1 + (uint32_t)round % 2;
        struct hsdp_plan *plan = slots_plan(&state, n_slots, 1 + fixture_random(&state, 12));
        uint64_t previous = 0;
        uint64_t most = 0;

        for (uint32_t u = plan->n_units; u-- > 0;) {
            if (!plan->units[u].buffers[0].is_frozen) {
                uint64_t own = unit_grad_bytes(plan, u);

                most = own + previous > most ? own + previous : most;
                previous = n_slots == 2 ? own : 0;
            }
        }
        ck_assert_uint_eq(plan->grad_slots_bytes, most);
        ck_assert_uint_eq(plan->totals.grad_slot_bytes, most);
        plan_destroy(plan);
    }
}
END_TEST

/* The largest sum of K in a row, added up anew for each; and the sum of the largest of each slot.
 */
static void sums_count(const struct hsdp_plan *plan, uint64_t *ret_least, uint64_t *ret_rooms)
{
    uint64_t rooms[8] = {0};

    *ret_least = *ret_rooms = 0;
    for (uint32_t u = 0; u < plan->n_units; u++) {
        uint32_t n_row = 0;
        uint64_t sum = 0;

        for (uint32_t v = u; v < plan->n_units && n_row < plan->n_slots; v++) {
            if (!plan->units[v].buffers[0].is_frozen) {
                sum += unit_grad_bytes(plan, v);
                n_row++;
            }
        }
        *ret_least = sum > *ret_least ? sum : *ret_least;
        if (!plan->units[u].buffers[0].is_frozen) {
            uint64_t *room = &rooms[plan->units[u].grad_slot];

            sum = unit_grad_bytes(plan, u);
            *ret_rooms += sum > *room ? sum - *room : 0;
            *room = sum > *room ? sum : *room;
        }
    }
}

/* For more than two it is never more than a room for each slot, and mostly the largest sum. */
START_TEST(slots_of_more_are_nearly_as_small_as_can_be)
{
    uint64_t state = 70 + (uint64_t)_i;
    uint64_t all = 0;
    uint64_t all_least = 0;
    uint64_t all_rooms = 0;

    for (int round = 0; round < 100; round++) {
        struct hsdp_plan *plan = slots_plan(&state, (uint32_t)_i, 1 + fixture_random(&state, 30));
        uint64_t least;
        uint64_t rooms;

        sums_count(plan, &least, &rooms);
        ck_assert_uint_ge(plan->grad_slots_bytes, least);
        ck_assert_uint_le(plan->grad_slots_bytes, rooms);
        ck_assert_uint_eq(plan->totals.grad_slot_bytes, plan->grad_slots_bytes);
        ck_assert_uint_eq(plan_least_slots_bytes(plan), least);
        all += plan->grad_slots_bytes;
        all_least += least;
        all_rooms += rooms;
        plan_destroy(plan);
    }
    ck_assert_uint_le(all, all_least + all_least / 16);
    ck_assert_uint_lt(all, all_rooms);
}
END_TEST

/* An embedding and a head lie in the same bytes, though their slots are not the same. */
START_TEST(slots_of_two_large_units_far_apart_are_one)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "slots=3");
    static const char *const names[] = {"emb", "a", "b", "c", "d", "e", "f", "head"};

    fixture_class(plan, "dense", "");
    for (uint32_t u = 0; u < 8; u++) {
        fixture_unit(plan, names[u]);
        fixture_param(plan, u, names[u], u == 0 || u == 7 ? "[20480]" : "[2048]");
    }
    fixture_finish(plan);
    ck_assert_uint_ne(plan->units[0].grad_slot, plan->units[7].grad_slot);
    ck_assert_uint_eq(plan->grad_slots_bytes, 4 * (20480 + 2 * 2048));
    ck_assert(plan_grads_overlap(plan, 0, 7));
    plan_destroy(plan);
}
END_TEST

/* Units whose sizes no strategy pads: transient memory does not depend on the strategy. */
START_TEST(slots_of_gradients_are_the_same_for_every_strategy)
{
    static const char *const names[] = {"a", "b", "c"};

    for (int s = 0; s < STRATEGY_COUNT; s++) {
        char settings[64];
        struct hsdp_plan *plan;

        snprintf(settings, sizeof(settings), "shard_size=2 sharding_strategy=%s",
                 strategies[s].name);
        plan = fixture_plan("dp=4", 0, settings);
        fixture_class(plan, "dense", "");
        for (uint32_t u = 0; u < 3; u++) {
            fixture_unit(plan, names[u]);
            fixture_param(plan, u, names[u], "[8,4096]");
        }
        fixture_finish(plan);
        ck_assert_uint_eq(plan->grad_slots_bytes, 2 * 8 * 4096 * sizeof(float));
        plan_destroy(plan);
    }
}
END_TEST

START_TEST(slots_of_whole_parameters_are_none)
{
    static const struct {
        const char *settings;
        uint32_t slots[3]; /* of units 0, 1, 2 */
    } cases[] = {
        {"sharding_strategy=fsdp", {0, 1, 0}},
        {"sharding_strategy=fsdp slots=3", {2, 1, 0}},
        {"sharding_strategy=zero2", {HSDP_NO_SLOT, HSDP_NO_SLOT, HSDP_NO_SLOT}},
    };

    for (int i = 0; i < N_OF(cases); i++) {
        struct hsdp_plan *plan = fixture_plan("dp=2", 0, cases[i].settings);
        static const char *const names[] = {"a", "b", "c"};

        fixture_class(plan, "dense", "");
        for (uint32_t u = 0; u < 3; u++) {
            fixture_unit(plan, names[u]);
            fixture_param(plan, u, names[u], "[3]");
        }
        fixture_finish(plan);
        for (uint32_t u = 0; u < 3; u++) {
            struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

            ck_assert_int_eq(plan_unit_info(plan, u, &info, NULL), HSDP_OK);
            ck_assert_uint_eq(info.param_slot, cases[i].slots[u]);
        }
        plan_destroy(plan);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("slots");
    TCase *tcase = tcase_create("slots");

    tcase_add_test(tcase, slots_of_units_in_a_row_do_not_overlap);
    tcase_add_test(tcase, slots_of_one_and_two_are_as_small_as_can_be);
    tcase_add_loop_test(tcase, slots_of_more_are_nearly_as_small_as_can_be, 3, 8);
    tcase_add_test(tcase, slots_of_two_large_units_far_apart_are_one);
    tcase_add_test(tcase, slots_of_gradients_are_the_same_for_every_strategy);
    tcase_add_test(tcase, slots_of_whole_parameters_are_none);
    suite_add_tcase(suite, tcase);
    return suite;
}
