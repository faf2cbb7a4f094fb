/* SPDX-License-Identifier: Apache-2.0 */
/* The main of every check_<module>.c: runs its suite; a suite that ran no case has failed. */
#include <check.h>
#include <stdlib.h>

#include "suite.h"

int main(void)
{
    SRunner *runner = srunner_create(module_suite());
    int n_run;
    int n_failed;

    srunner_run_all(runner, CK_NORMAL); /* scripts/test-summary reads the line it prints */
    n_run = srunner_ntests_run(runner);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_run > 0 && n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
