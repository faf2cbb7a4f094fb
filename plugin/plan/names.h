/* SPDX-License-Identifier: Apache-2.0 */
/* Names: numbered in the order in which they come, and from a name to its number. */
#ifndef PLAN_NAMES_H
#define PLAN_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "hsdp/abi.h"

struct names;

int32_t names_create(struct names **ret_names, struct hsdp_error *reterr);
void names_destroy(struct names *names);

/**
 * Makes room for one more, so that the next names_add cannot fail.
 *
 * Errors: HSDP_ERR_NO_MEMORY.
 */
int32_t names_reserve(struct names *names, struct hsdp_error *reterr);

/**
 * Adds a new name after names_reserve: the first has number 0, the next 1, as the rows of a plan
 * have. The text is borrowed for as long as the table lives.
 */
void names_add(struct names *names, const char *name);

bool names_find(const struct names *names, const char *name, uint32_t *ret_number);

#endif /* PLAN_NAMES_H */
