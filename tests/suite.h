/* SPDX-License-Identifier: Apache-2.0 */
/* What a check_<module>.c gives to the common main of the suites. */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

/* The one suite of a test program; suite_main.c runs it. */
Suite *module_suite(void);

#endif /* TESTS_SUITE_H */
