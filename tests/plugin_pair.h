/* SPDX-License-Identifier: Apache-2.0 */
/* Two plugins in one process: the one that is tested, and the reference. */
#ifndef TESTS_PLUGIN_PAIR_H
#define TESTS_PLUGIN_PAIR_H

#include "hsdp/hsdp.h"

#define PAIR_TESTED    0
#define PAIR_REFERENCE 1

extern const char *const pair_names[2];

/* The tables of HSDP_TEST_PLUGIN and HSDP_TEST_REFERENCE; fails the test if one cannot be loaded.
 * The environment of launchers and settings is removed first. */
void pair_load(const struct hsdp_api *ret_apis[2]);

#endif /* TESTS_PLUGIN_PAIR_H */
