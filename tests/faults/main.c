/* SPDX-License-Identifier: Apache-2.0 */
/* The program behind make check-faults: a campaign from the environment; see docs/faults.md. */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "faults/campaign.h"

#define DEFAULT_TRIALS 1000u

int main(void)
{
    struct campaign campaign;
    struct campaign_result result;

    campaign_init(&campaign, (uint64_t)time(NULL), DEFAULT_TRIALS);
    printf("%" PRIu32 " trials from HSDP_TEST_SEED=%" PRIu64 "\n", campaign.n_trials,
           campaign.seed);
    campaign_run(&campaign, &result);
    return result.n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
