/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a description has the members that hsdp/abi.h asks of it. */
#ifndef INFO_SHAPE_H
#define INFO_SHAPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** False, and why not, when a member is missing or of another type. */
bool shape_check(const json_t *description, char *ret_why, size_t max_bytes);

#endif /* INFO_SHAPE_H */
