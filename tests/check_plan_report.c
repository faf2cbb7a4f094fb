/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: totals, notes, lines, reports, life and size. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

static struct hsdp_class_info class_of(const struct hsdp_plan *plan, uint32_t class_index)
{
    struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;

    ck_assert_int_eq(plan_class_info(plan, class_index, &info, NULL), HSDP_OK);
    return info;
}

/* ------------------------------------------------------------------- totals, accumulators */

static const struct {
    const char *settings;
    struct plan_accumulators sums;
    uint64_t param_bytes;
    uint64_t master_bytes;
} totals[] = {
    /* 12288 elements on dp 2 x cp 3; replicate over dp */
    {"sharding_strategy=ddp", {12288, 0, 12288, 0}, 49152, 0},
    {"sharding_strategy=ddp accumulation_scope=full", {0, 0, 12288, 0}, 49152, 0},
    {"sharding_strategy=ddp accumulation_scope=inner", {0, 12288, 12288, 0}, 49152, 0},
    {"sharding_strategy=zero1", {12288, 0, 2048, 0}, 49152, 0},
    {"sharding_strategy=zero1 accumulation_scope=inner", {0, 12288, 2048, 0}, 49152, 0},
    {"sharding_strategy=zero1 accumulation_scope=full", {0, 0, 2048, 0}, 49152, 0},
    {"sharding_strategy=zero2", {12288, 0, 2048, 0}, 49152, 0},
    {"sharding_strategy=zero2 accumulation_scope=inner", {0, 0, 2048, 0}, 49152, 0},
    {"sharding_strategy=fsdp", {12288, 0, 2048, 0}, 8192, 0},
    {"sharding_strategy=fsdp accumulation_scope=full", {0, 0, 2048, 0}, 8192, 0},
    {"sharding_strategy=hsdp", {12288, 4096, 4096, 0}, 16384, 0},
    {"sharding_strategy=hsdp accumulation_scope=inner", {0, 4096, 4096, 0}, 16384, 0},
    {"sharding_strategy=hsdp_zero2", {12288, 4096, 4096, 0}, 49152, 0},
    {"sharding_strategy=hfsdp", {12288, 4096, 2048, 0}, 16384, 0},
    {"sharding_strategy=hfsdp accumulation_scope=inner", {0, 4096, 2048, 0}, 16384, 0},
    {"sharding_strategy=fsdp param_dtype=bf16", {12288, 0, 2048, 0}, 4096, 8192},
    {"sharding_strategy=hfsdp param_dtype=bf16", {12288, 4096, 2048, 0}, 8192, 8192},
    /* masters of 2 bytes, in place where both are of one dtype */
    {"sharding_strategy=fsdp param_dtype=bf16 master_dtype=bf16", {12288, 0, 2048, 0}, 4096, 0},
    {"sharding_strategy=hfsdp param_dtype=fp16 master_dtype=fp16", {12288, 4096, 2048, 0}, 8192, 0},
    {"sharding_strategy=fsdp param_dtype=bf16 master_dtype=fp16", {12288, 0, 2048, 0}, 4096, 4096},
    {"sharding_strategy=fsdp param_dtype=fp16 master_dtype=bf16", {12288, 0, 2048, 0}, 4096, 4096},
    {"sharding_strategy=hfsdp param_dtype=fp32 master_dtype=bf16",
     {12288, 4096, 2048, 0},
     16384,
     4096},
    {"sharding_strategy=ddp param_dtype=fp32 master_dtype=fp16",
     {12288, 0, 12288, 0},
     49152,
     24576},
    {"sharding_strategy=ddp param_dtype=fp16", {12288, 0, 12288, 0}, 24576, 49152},
};

START_TEST(plan_info_adds_up)
{
    static const char *const shapes[] = {"[12200]", "[50]"}; /* the second begins at 12224 */
    struct hsdp_plan *plan = fixture_finished("dp=2,cp=3", 1, totals[_i].settings, shapes, 2);
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;
    struct plan_accumulators sums = plan_accumulators(plan, 0);
    uint64_t n_sums = sums.local_elems + sums.inner_elems + sums.step_elems;

    ck_assert_int_eq(plan_info(plan, &info, NULL), HSDP_OK);
    ck_assert_uint_eq(plan->units[0].buffers[0].n_elems, 12288);
    ck_assert_mem_eq(&sums, &totals[_i].sums, sizeof(sums));
    ck_assert_uint_eq(info.param_bytes, totals[_i].param_bytes);
    ck_assert_uint_eq(info.master_bytes, totals[_i].master_bytes);
    ck_assert(plan_steps_in_place(plan, 0) == (totals[_i].master_bytes == 0));
    ck_assert_uint_eq(info.grad_bytes, n_sums * 4);
    ck_assert_uint_eq(info.unsharded_bytes, 0);
    ck_assert_uint_eq(info.grad_slot_bytes, 12288 * 4);
    ck_assert_uint_eq(info.n_state_elems, sums.step_elems);
    ck_assert_uint_eq(info.peak_bytes, info.param_bytes + info.master_bytes + info.grad_bytes +
                                           info.grad_slot_bytes + 8 * info.n_state_elems);
    plan_destroy(plan);
}
END_TEST

/* Of all ranks together, the padding of one copy is what the buffer has. */
START_TEST(plan_info_counts_the_padding_of_its_rank)
{
    static const char *const shapes[] = {"[12200]", "[50]"};
    uint64_t n_bytes = 0;

    for (uint32_t rank = 0; rank < 6; rank++) {
        struct hsdp_plan *plan = fixture_finished("dp=2,cp=3", rank, "", shapes, 2);

        if (rank < 5) {
            ck_assert_uint_eq(plan->totals.padding_bytes, 0);
        }
        n_bytes += plan->totals.padding_bytes;
        plan_destroy(plan);
    }
    ck_assert_uint_eq(n_bytes, (12288 - 12200 - 50) * 4);
}
END_TEST

START_TEST(plan_info_of_frozen_parameters_has_no_gradients)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "param_dtype=bf16");
    struct hsdp_param_spec spec;
    struct plan_accumulators sums;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    spec = fixture_param_spec(0, "b", "[4096]", shape);
    spec.flags = HSDP_PARAM_FROZEN;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    fixture_finish(plan);
    sums = plan_accumulators(plan, 0);
    ck_assert_uint_eq(sums.local_elems + sums.inner_elems + sums.step_elems, 0);
    ck_assert_uint_eq(plan->totals.param_bytes, 4096);
    ck_assert_uint_eq(plan->totals.master_bytes, 8192);
    ck_assert_uint_eq(plan->totals.grad_bytes + plan->totals.grad_slot_bytes, 0);
    ck_assert_uint_eq(plan->totals.n_state_elems, 0);
    plan_destroy(plan);
}
END_TEST

/* -------------------------------------------------------------------------------- notes */

#define WHOLE " each rank keeps the whole fp32 gradient of class dense between microbatches"

static const struct {
    const char *dims;
    const char *settings;
    const char *notes[2];
} notes[] = {
    {"dp=4", "sharding_strategy=fsdp accumulation_scope=inner", {NULL, NULL}},
    {"dp=4", "sharding_strategy=hsdp accumulation_scope=inner", {NULL, NULL}},
    {"dp=2,cp=2", "sharding_strategy=hfsdp accumulation_scope=full", {NULL, NULL}},
    {"dp=4",
     "sharding_strategy=fsdp",
     {"accumulation_scope none:" WHOLE "; inner and full keep 1/4 of it", NULL}},
    {"dp=4", "sharding_strategy=ddp accumulation_scope=full", {"ddp:" WHOLE, NULL}},
    {"dp=4", "sharding_strategy=zero1", {"zero1:" WHOLE, NULL}},
    {"dp=2",
     "sharding_strategy=hsdp accumulation_scope=inner",
     {"hsdp: nothing is left to shard in class dense; behaves as ddp and still reduces over "
      "dp_replicate",
      "hsdp:" WHOLE}},
    {"dp=4,cp=1",
     "sharding_strategy=hsdp_zero2 replicate_dims=dp accumulation_scope=inner",
     {"hsdp_zero2: nothing is left to shard in class dense; behaves as ddp and still reduces over "
      "dp_replicate,dp_shard",
      "hsdp_zero2:" WHOLE}},
    {"dp=3",
     "sharding_strategy=hfsdp accumulation_scope=inner",
     {"hfsdp: class dense behaves as zero1 over dp_replicate: nothing is left to shard inside",
      "hfsdp:" WHOLE}},
    {"dp=1,cp=4",
     "sharding_strategy=hsdp accumulation_scope=inner",
     {"hsdp: class dense behaves as fsdp over cp: nothing is left to replicate over", NULL}},
    {"dp=1,cp=4",
     "sharding_strategy=hsdp_zero2 accumulation_scope=inner",
     {"hsdp_zero2: class dense behaves as zero2 over cp: nothing is left to replicate over", NULL}},
    {"dp=1,cp=4",
     "sharding_strategy=hfsdp accumulation_scope=inner",
     {"hfsdp: class dense behaves as fsdp over cp: nothing is left to replicate over", NULL}},
    {"dp=1",
     "sharding_strategy=fsdp",
     {"fsdp: class dense has no other rank to reduce over; behaves as ddp and exchanges nothing",
      NULL}},
    {"dp=1", "sharding_strategy=ddp", {NULL, NULL}},
    {"PP=2",
     "sharding_strategy=ddp",
     {"mesh: no dimension is data; a class that names none reduces over nothing", NULL}},
};

START_TEST(plan_notes_say_where_a_strategy_degenerates)
{
    static const char *const shape = "[4]";
    struct hsdp_plan *plan = fixture_finished(notes[_i].dims, 0, notes[_i].settings, &shape, 1);
    uint32_t n_notes = notes[_i].notes[0] == NULL ? 0 : notes[_i].notes[1] == NULL ? 1 : 2;

    ck_assert_uint_eq(plan->totals.n_notes, n_notes);
    for (uint32_t i = 0; i < n_notes; i++) {
        ck_assert_str_eq(plan->notes[i], notes[_i].notes[i]);
    }
    plan_destroy(plan);
}
END_TEST

/* ------------------------------------------------------------------------ lines and report */

static char *lines_of(const char *dims, uint32_t rank, const char *name)
{
    struct hsdp_plan *plan = fixture_plan(dims, rank, "sharding_strategy=hfsdp");
    struct text text = TEXT_INIT;

    fixture_class(plan, "dense", "reduce_dtype=bf16");
    fixture_unit(plan, "u");
    fixture_param(plan, 0, "w", "[3,5]");
    fixture_param(plan, 0, name, "[]");
    fixture_finish(plan);
    plan_write_lines(plan, &text);
    plan_destroy(plan);
    return text.chars;
}

START_TEST(plan_write_lines_says_everything_collective)
{
    char *lines = lines_of("dp=2,cp=2", 0, "a \"b\"\\\n");

    ck_assert_str_eq(
        lines,
        "mesh dp=2 cp=2 data_dims=dp,cp\n"
        "setting accumulation_scope=none\n"
        "setting slots=2\n"
        "class \"dense\" sharding_strategy=hfsdp replicated_over=dp,cp reduced_over=dp,cp "
        "replicate_dims=dp param_dims=cp grad_dims=cp step_dims=cp,dp param_dtype=fp32 "
        "master_dtype=fp32 reduce_dtype=bf16 gradient_dtype=bf16 gradient_op=mean "
        "gradient_divisor=4\n"
        "no more classes\n"
        "unit \"u\" class=\"dense\"\n"
        "no more units\n"
        "param \"w\" unit=\"u\" shape=[3,5] block_elems=0 hyper_group=0 frozen=0\n"
        "param \"a \\x22b\\x22\\x5c\\x0a\" unit=\"u\" shape=[] block_elems=0 hyper_group=0 "
        "frozen=0\n"
        "no more parameters\n"
        "layout \"u\" param_slot=0 grad_slot=0 grad_slot_offset=0 trainable=2048/1024/1024/512\n"
        "place \"w\" buffer=0 offset=0\n"
        "place \"a \\x22b\\x22\\x5c\\x0a\" buffer=0 offset=32\n");
    free(lines);
}
END_TEST

START_TEST(plan_write_lines_is_the_same_on_every_rank)
{
    char *first = lines_of("dp=2,cp=2", 0, "b");
    char *other = lines_of("dp=2,cp=2", 0, "c");

    for (uint32_t rank = 1; rank < 4; rank++) {
        char *lines = lines_of("dp=2,cp=2", rank, "b");

        ck_assert_str_eq(lines, first);
        free(lines);
    }
    ck_assert_str_ne(other, first);
    free(other);
    free(first);
}
END_TEST

START_TEST(plan_report_is_json_of_all_parts)
{
    static const char *const shape = "[1000]";
    static const char *const parts[] = {
        "{\"mesh\":{\"dims\":[{\"name\":\"dp\",\"ranks\":2},{\"name\":\"cp\",\"ranks\":3}]",
        "\"slots\":{\"value\":\"2\",\"source\":\"default\"}",
        "\"gradient_dtype\":{\"value\":\"bf16\",\"source\":\"derived from reduce_dtype\"}",
        "\"classes\":[{\"name\":\"dense\",\"sharding_strategy\":\"hfsdp\"",
        "\"step_dims\":\"cp,dp\"",
        "\"traffic_per_step\":[{\"phase\":\"unshard\",\"operation\":\"all_gather\",\"group\":"
        "\"cp\",\"group_ranks\":3,\"operations\":2,\"payload_bytes\":16384}",
        "\"units\":[{\"name\":\"u\",\"class\":\"dense\",\"params\":1,\"param_slot\":0,"
        "\"grad_slot\":0,\"grad_slot_offset_bytes\":0,\"buffers\":[{\"frozen\":false,\"elems\":"
        "3072",
        "\"memory\":{\"param_bytes\":4096,",
        "\"notes\":[",
        "\"n_params\":1}",
    };
    struct hsdp_plan *plan =
        fixture_finished("dp=2,cp=3", 0, "sharding_strategy=hfsdp reduce_dtype=bf16", &shape, 1);
    uint64_t n_bytes = 0;
    char report[8192];

    ck_assert_int_eq(plan_report(plan, report, sizeof(report), &n_bytes, NULL), HSDP_OK);
    ck_assert_uint_eq(n_bytes, strlen(report) + 1);
    for (int i = 0; i < N_OF(parts); i++) {
        ck_assert_msg(strstr(report, parts[i]) != NULL, "no %s in %s", parts[i], report);
    }
    plan_destroy(plan);
}
END_TEST

START_TEST(plan_report_in_a_small_buffer_tells_the_size)
{
    static const char *const shape = "[1000]";
    struct hsdp_plan *plan = fixture_finished("dp=2", 0, "", &shape, 1);
    uint64_t n_bytes = 0;
    char *report;

    ck_assert_int_eq(plan_report(plan, NULL, 0, &n_bytes, NULL), HSDP_ERR_BUFFER_TOO_SMALL);
    report = malloc(n_bytes);
    ck_assert_int_eq(plan_report(plan, report, n_bytes - 1, &n_bytes, NULL),
                     HSDP_ERR_BUFFER_TOO_SMALL);
    ck_assert_int_eq(plan_report(plan, report, n_bytes, &n_bytes, NULL), HSDP_OK);
    ck_assert_int_eq(plan_report(plan, NULL, 5, &n_bytes, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_report(plan, report, 5, NULL, NULL), HSDP_ERR_INVALID);
    free(report);
    plan_destroy(plan);
}
END_TEST

/* dp 2 x cp 3, 12288 elements: what one rank receives, by hand. */
static const struct {
    const char *settings;
    const char *traffic;
} traffics[] = {
    /* 5/6 of the contributions, then 5/6 of the sums */
    {"sharding_strategy=ddp", "reduce all_reduce dp,cp 1 81920"},
    {"sharding_strategy=ddp reduce_dtype=bf16", "reduce all_reduce dp,cp 1 61440"},
    {"sharding_strategy=zero1", "reduce reduce_scatter dp,cp 1 40960;publish all_gather dp,cp 1 "
                                "40960"},
    {"sharding_strategy=zero1 reduce_dtype=bf16 param_dtype=bf16",
     "reduce reduce_scatter dp,cp 1 20480;publish all_gather dp,cp 1 20480"},
    {"sharding_strategy=fsdp",
     "unshard all_gather dp,cp 2 81920;reduce reduce_scatter dp,cp 1 40960"},
    {"sharding_strategy=hsdp reduce_dtype=bf16",
     "unshard all_gather cp 2 65536;reduce reduce_scatter cp 1 16384;reduce all_reduce dp 1 16384"},
    {"sharding_strategy=hfsdp reduce_dtype=bf16",
     "unshard all_gather cp 2 65536;reduce reduce_scatter cp 1 16384;reduce reduce_scatter dp 1 "
     "8192;publish all_gather dp 1 8192"},
};

START_TEST(plan_report_counts_the_traffic)
{
    static const char *const shape = "[12288]";
    struct hsdp_plan *plan = fixture_finished("dp=2,cp=3", 0, traffics[_i].settings, &shape, 1);
    uint64_t n_bytes = 0;
    char report[8192];
    char rows[256];
    char *rest = NULL;

    ck_assert_int_eq(plan_report(plan, report, sizeof(report), &n_bytes, NULL), HSDP_OK);
    snprintf(rows, sizeof(rows), "%s", traffics[_i].traffic);
    for (char *row = strtok_r(rows, ";", &rest); row != NULL; row = strtok_r(NULL, ";", &rest)) {
        char phase[16];
        char operation[16];
        char group[16];
        char wanted[192];
        unsigned n_operations;
        unsigned payload;

        ck_assert_int_eq(
            sscanf(row, "%15s %15s %15s %u %u", phase, operation, group, &n_operations, &payload),
            5);
        snprintf(wanted, sizeof(wanted),
                 "{\"phase\":\"%s\",\"operation\":\"%s\",\"group\":\"%s\",\"group_ranks\":%d,"
                 "\"operations\":%u,\"payload_bytes\":%u}",
                 phase, operation, group,
                 strcmp(group, "dp,cp") == 0 ? 6
                 : group[0] == 'd'           ? 2
                                             : 3,
                 n_operations, payload);
        ck_assert_msg(strstr(report, wanted) != NULL, "no %s in %s", wanted, report);
    }
    plan_destroy(plan);
}
END_TEST

/* ---------------------------------------------------------------------------- life, size */

START_TEST(plan_share_keeps_a_plan_alive)
{
    static const char *const shape = "[4]";
    struct hsdp_plan *plan = fixture_finished("dp=2", 0, "", &shape, 1);
    struct hsdp_plan *shared = plan_share(plan);

    ck_assert_ptr_eq(shared, plan);
    plan_destroy(plan);
    ck_assert_str_eq(class_of(shared, 0).name, "dense");
    plan_destroy(shared);
}
END_TEST

START_TEST(plan_of_many_parameters_on_many_ranks_finishes)
{
    struct hsdp_plan *plan =
        fixture_plan("dp=1000,cp=1000", 999999, "sharding_strategy=hfsdp accumulation_scope=full");
    struct hsdp_segment segment;
    uint64_t n_segments = 0;
    uint32_t found = 0;
    char name[32];

    fixture_class(plan, "dense", "");
    for (uint32_t p = 0; p < 100000; p++) {
        if (p % 100 == 0) {
            snprintf(name, sizeof(name), "unit.%u", p / 100);
            fixture_unit(plan, name);
        }
        snprintf(name, sizeof(name), "param.%u", p);
        fixture_param(plan, p / 100, name, "[4096,61]");
    }
    fixture_finish(plan);
    ck_assert_int_eq(plan_param_find(plan, "param.99999", &found, NULL), HSDP_OK);
    ck_assert_uint_eq(found, 99999);
    ck_assert_int_eq(plan_segments(plan, 999, HSDP_SHARD_STEP, 0, &segment, sizeof(segment), 1,
                                   &n_segments, NULL),
                     HSDP_OK);
    ck_assert_uint_eq(segment.param, 99900);
    plan_destroy(plan);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("plan_report");
    TCase *tcase = tcase_create("plan_report");

    tcase_add_loop_test(tcase, plan_info_adds_up, 0, N_OF(totals));
    tcase_add_test(tcase, plan_info_counts_the_padding_of_its_rank);
    tcase_add_test(tcase, plan_info_of_frozen_parameters_has_no_gradients);
    tcase_add_loop_test(tcase, plan_notes_say_where_a_strategy_degenerates, 0, N_OF(notes));
    tcase_add_test(tcase, plan_write_lines_says_everything_collective);
    tcase_add_test(tcase, plan_write_lines_is_the_same_on_every_rank);
    tcase_add_test(tcase, plan_report_is_json_of_all_parts);
    tcase_add_test(tcase, plan_report_in_a_small_buffer_tells_the_size);
    tcase_add_loop_test(tcase, plan_report_counts_the_traffic, 0, N_OF(traffics));
    tcase_add_test(tcase, plan_share_keeps_a_plan_alive);
    tcase_add_test(tcase, plan_of_many_parameters_on_many_ranks_finishes);
    suite_add_tcase(suite, tcase);
    return suite;
}
