/* SPDX-License-Identifier: Apache-2.0 */
/* A short fault campaign: nothing is found in it. docs/faults.md says what is looked for. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>

#include "faults/campaign.h"
#include "suite.h"

#define N_TRIALS 100
#define SEED     4

START_TEST(campaign_of_a_hundred_trials_finds_nothing)
{
    struct campaign campaign;
    struct campaign_result result;

    campaign_init(&campaign, SEED, N_TRIALS);
    campaign_run(&campaign, &result);
    ck_assert_msg(result.n_failed == 0, "%" PRIu32 " trials of seed %" PRIu64 " have failed",
                  result.n_failed, campaign.seed);
    ck_assert_uint_gt(result.n_happened, campaign.n_trials / 2);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("faults");
    TCase *tcase = tcase_create("faults");

    tcase_set_timeout(tcase, 220);
    tcase_add_test(tcase, campaign_of_a_hundred_trials_finds_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
