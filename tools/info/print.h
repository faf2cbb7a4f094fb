/* SPDX-License-Identifier: Apache-2.0 */
/* A report for people. */
#ifndef INFO_PRINT_H
#define INFO_PRINT_H

#include <jansson.h>

#include "page.h"

/** Prints what report_make has found; its faults are the caller's business. */
void report_print(const struct page *page, const json_t *report);

#endif /* INFO_PRINT_H */
