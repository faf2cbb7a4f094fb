/* SPDX-License-Identifier: Apache-2.0 */
/* The settings for people. */
#ifndef INFO_PRINT_SETTINGS_H
#define INFO_PRINT_SETTINGS_H

#include <jansson.h>

#include "page.h"

/** Prints a table of settings for each home, with what the environment sets of them. */
void settings_print(const struct page *page, const json_t *report, const json_t *settings);

#endif /* INFO_PRINT_SETTINGS_H */
