/* SPDX-License-Identifier: Apache-2.0 */
/* A host whose locale writes 0,5: what the plugin says and reads is the same as in any other. */
#include <check.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* ---------------------------------------------------------------------------------- the locale */

static char folder[512];

static void file_write(const char *name, const char *text)
{
    char path[600];
    FILE *out;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    out = fopen(path, "we");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_ge(fputs(text, out), 0);
    ck_assert_int_eq(fclose(out), 0);
}

/* One that needs nothing but localedef, which comes with the C library. It warns of all that such a
 * locale lacks. */
static void locale_make(void)
{
    char command[2048];

    snprintf(folder, sizeof(folder), "%s/locale.XXXXXX", getenv("HSDP_TEST_BUILDDIR"));
    ck_assert_ptr_nonnull(mkdtemp(folder));
    file_write("comma", "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\n"
                        "END LC_NUMERIC\n");
    file_write("ascii", "<code_set_name> ASCII\n<comment_char> %\n<escape_char> /\n<mb_cur_min> 1\n"
                        "<mb_cur_max> 1\nCHARMAP\n<U0000>..<U007F> /x00 ASCII\nEND CHARMAP\n");
    snprintf(command, sizeof(command),
             "cd '%s' && { localedef -c --no-archive -f ./ascii -i ./comma ./xx_XX 2>log; "
             "test -f xx_XX/LC_NUMERIC || { cat log >&2; exit 1; }; }",
             folder);
    ck_assert_int_eq(system(command), 0);
    setenv("LOCPATH", folder, 1);
}

static void locale_remove(void)
{
    char command[600];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static void comma_expect(void)
{
    char text[16];

    snprintf(text, sizeof(text), "%g", 0.5);
    ck_assert_str_eq(text, "0,5");
}

static void comma_set(void)
{
    ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, "xx_XX"));
    comma_expect();
}

/* ------------------------------------------------------------------------------------ the tests */

static double half(struct host_at at)
{
    (void)at;
    return 0.5;
}

static void refusal_expect(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    spec.max_norm = -0.5;
    host_must_refuse(host, host->api->step->begin(host->model, &spec, NULL, &host->err),
                     HSDP_ERR_INVALID, "max_norm -0.5 is");
    comma_expect();
}

static void sentence_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    comma_set();
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[64]");
    refusal_expect(&host);
    host_close(&host);
}

START_TEST(sentences_have_points_where_the_locale_has_commas)
{
    host_settings_set(4, "verify=wrap");
    ranks_run(2, RANKS_LIMIT_MS, sentence_rank, NULL);
}
END_TEST

static void thread_locale_rank(uint32_t rank, void *shared)
{
    struct host host;
    locale_t comma;

    (void)shared;
    comma_set();
    comma = duplocale(LC_GLOBAL_LOCALE); /* newlocale leaks what LOCPATH says */
    ck_assert(comma != (locale_t)0);
    ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, "C"));
    host_open(&host, rank, "dp=1", host_settings, "unit a: w[64]");
    uselocale(comma);
    refusal_expect(&host);
    ck_assert(uselocale((locale_t)0) == comma);
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(comma);
    host_close(&host);
}

START_TEST(sentences_have_points_where_the_thread_has_commas)
{
    host_settings_set(3, "");
    ranks_run(1, RANKS_LIMIT_MS, thread_locale_rank, NULL);
}
END_TEST

static char texts[2][65536];

static void reports_take(struct host *host, char *ret_text)
{
    uint64_t n_bytes = 0;
    uint64_t n_more = 0;

    host_must(host, host->api->describe(ret_text, sizeof(texts[0]), &n_bytes, &host->err));
    host_must(host, host->api->plan->report(host->plan, ret_text + n_bytes - 1,
                                            sizeof(texts[0]) - n_bytes, &n_more, &host->err));
    n_bytes += n_more - 1;
    host_must(host, host->api->diag->report(host->job, "memory", ret_text + n_bytes - 1,
                                            sizeof(texts[0]) - n_bytes, &n_more, &host->err));
}

static void report_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=1", "gradient_divisor=12345",
              "unit a: w[1234567]/1000; unit b: x[5]");
    host_load(&host, half);
    reports_take(&host, texts[0]);
    comma_set();
    reports_take(&host, texts[1]);
    ck_assert_str_eq(texts[0], texts[1]);
    ck_assert_ptr_nonnull(strstr(texts[1], "12345"));
    host_close(&host);
}

START_TEST(reports_are_the_same_in_every_locale)
{
    ranks_run(1, RANKS_LIMIT_MS, report_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_locale");
    TCase *tcase = tcase_create("locale");

    tcase_set_timeout(tcase, 30);
    tcase_add_unchecked_fixture(tcase, locale_make, locale_remove);
    tcase_add_test(tcase, sentences_have_points_where_the_locale_has_commas);
    tcase_add_test(tcase, sentences_have_points_where_the_thread_has_commas);
    tcase_add_test(tcase, reports_are_the_same_in_every_locale);
    suite_add_tcase(suite, tcase);
    return suite;
}
