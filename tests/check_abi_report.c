/* SPDX-License-Identifier: Apache-2.0 */
/* Every text that the plugin writes as JSON is JSON, and says its size first. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "abi_host.h"
#include "json.h"
#include "suite.h"

static struct abi_host host;

static void host_open(void)
{
    abi_host_init(&host);
}

static void host_close(void)
{
    abi_host_fini(&host);
}

/* -------------------------------------------------------------------------- the checker of JSON */

START_TEST(fault_of_json_is_none)
{
    static const char *const good[] = {"{}",
                                       "[]",
                                       " [ 1 , -2.5e+3, 0, true, null ] ",
                                       "\"\"",
                                       "{\"a\":{\"b\":[[]]},\"c\":\"\\u00e4\\n\\\"\"}",
                                       "-0.1E-2"};

    ck_assert_ptr_null(json_fault(good[_i]));
}
END_TEST

START_TEST(fault_of_what_is_not_json_is_found)
{
    static const char *const bad[] = {"",       "{",  "{}{}",       "[1,]", "[1 2]",    "{\"a\"}",
                                      "{a:1}",  "01", "1.",         "nul",  "\"a",      "\"\\x\"",
                                      "\"\n\"", "[}", "{\"a\":1,}", "-",    "\"\\u12\""};

    ck_assert_ptr_nonnull(json_fault(bad[_i]));
}
END_TEST

/* -------------------------------------------------------------------------------------- reports */

typedef int32_t (*report_fn)(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                             struct hsdp_error *reterr);

/* Asks for the size, then for the text in memory of just that size, which is the caller's. */
static char *report_get(report_fn ask)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes = 0;
    uint64_t n_again = 0;
    char *text;

    ck_assert_int_eq(ask(NULL, 0, &n_bytes, &err), HSDP_ERR_BUFFER_TOO_SMALL);
    text = abi_guarded(n_bytes, 0xaa);
    abi_must(ask(text, n_bytes, &n_again, &err), &err);
    ck_assert_uint_eq(n_again, n_bytes);
    ck_assert_uint_eq(strlen(text) + 1, n_bytes);
    return text;
}

static void expect_json(const char *text)
{
    const char *fault = json_fault(text);

    ck_assert_msg(fault == NULL, "no JSON from here on: %s", fault);
}

static const char *what; /* the report that diag_ask asks for */

static int32_t diag_ask(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                        struct hsdp_error *reterr)
{
    return host.api->diag->report(host.job, what, ret_text, max_bytes, ret_bytes, reterr);
}

static int32_t plan_ask(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                        struct hsdp_error *reterr)
{
    return host.api->plan->report(host.plan, ret_text, max_bytes, ret_bytes, reterr);
}

START_TEST(describe_is_json)
{
    expect_json(report_get(host.api->describe));
}
END_TEST

START_TEST(plan_report_is_json)
{
    expect_json(report_get(plan_ask));
}
END_TEST

static const char *const reports[] = {"settings", "ledger", "memory", "traffic",
                                      "flight",   "plan",   "error"};

START_TEST(diag_report_is_json)
{
    what = reports[_i];
    expect_json(report_get(diag_ask));
}
END_TEST

/* The reason is a host's text: quotes and line ends in it must not leave the string. */
START_TEST(diag_report_of_a_failed_job_is_json)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    abi_must(host.api->job->abort(host.job, "a \"quote\", a \\ and\na line\x01", &err), &err);
    what = reports[_i];
    expect_json(report_get(diag_ask));
}
END_TEST

START_TEST(diag_report_unknown_name_is_refused_and_the_known_listed)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes = 77;

    what = "Settings";
    ck_assert_int_eq(diag_ask(NULL, 0, &n_bytes, &err), HSDP_ERR_INVALID);
    ck_assert_uint_eq(n_bytes, 77);
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        ck_assert_msg(strstr(err.message, reports[i]) != NULL, "%s", err.message);
    }
}
END_TEST

START_TEST(plan_report_of_odd_names_is_json)
{
    hsdp_plan *plan = abi_plan(host.api, host.mesh);
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;

    param.name = "a \"name\"\\\n\t\x7f\xc3\xa4";
    abi_must(host.api->plan->add_unit(plan, param.name, 0, &param.unit, &err), &err);
    abi_must(host.api->plan->add_param(plan, &param, &(uint32_t){0}, &err), &err);
    abi_must(host.api->plan->finish(plan, &err), &err);
    host.api->plan->destroy(host.plan);
    host.plan = plan;
    expect_json(report_get(plan_ask));
}
END_TEST

START_TEST(counter_each_that_is_listed_can_be_read)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const char *name = NULL;
    uint64_t n = 0;

    while (host.api->diag->counter_name(host.job, n, &name, &err) == HSDP_OK) {
        uint64_t value = UINT64_MAX;

        abi_must(host.api->diag->counter(host.job, name, &value, &err), &err);
        ck_assert_uint_ne(value, UINT64_MAX);
        n++;
    }
    ck_assert_uint_ge(n, 6);
    ck_assert_int_eq(err.status, HSDP_ERR_INVALID);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_report");
    TCase *checker = tcase_create("checker");
    TCase *all = tcase_create("reports");

    tcase_add_loop_test(checker, fault_of_json_is_none, 0, 6);
    tcase_add_loop_test(checker, fault_of_what_is_not_json_is_found, 0, 17);
    suite_add_tcase(suite, checker);
    tcase_add_checked_fixture(all, host_open, host_close);
    tcase_add_test(all, describe_is_json);
    tcase_add_test(all, plan_report_is_json);
    tcase_add_loop_test(all, diag_report_is_json, 0, 7);
    tcase_add_loop_test(all, diag_report_of_a_failed_job_is_json, 0, 7);
    tcase_add_test(all, diag_report_unknown_name_is_refused_and_the_known_listed);
    tcase_add_test(all, plan_report_of_odd_names_is_json);
    tcase_add_test(all, counter_each_that_is_listed_can_be_read);
    suite_add_tcase(suite, all);
    return suite;
}
