/* SPDX-License-Identifier: Apache-2.0 */
/* What a check_<module>.c gives to the common main of the suites. */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

/* How many rows a table has: for loop tests, which count in int. */
#define N_OF(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

/* The one suite of a test program; suite_main.c runs it. */
Suite *module_suite(void);

#endif /* TESTS_SUITE_H */
