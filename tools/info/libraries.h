/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries that a plugin's transports need, as they are here. */
#ifndef INFO_LIBRARIES_H
#define INFO_LIBRARIES_H

#include <jansson.h>
#include <stdint.h>

/** Loads each library of a description in a process of its own: a list, as in docs/info.md. */
json_t *libraries_ask(const json_t *description, int64_t timeout_ms);

#endif /* INFO_LIBRARIES_H */
