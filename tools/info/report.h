/* SPDX-License-Identifier: Apache-2.0 */
/* The report about one plugin, as JSON; docs/info.md says what its members mean. */
#ifndef INFO_REPORT_H
#define INFO_REPORT_H

#include <jansson.h>
#include <stdint.h>

/**
 * Asks a plugin (NULL = the one that the loader finds) and the libraries that it names, each in a
 * child that may take timeout_ms. What goes wrong is a sentence in the member "faults".
 *
 * Ownership: json_decref.
 */
json_t *report_make(const char *plugin, int64_t timeout_ms);

/** A text in JSON; bytes that are no UTF-8 become '?'. NULL stays NULL. */
json_t *report_text(const char *text);

/** Sets a member; NULL sets none. */
void text_set(json_t *object, const char *name, const char *text);
void number_set(json_t *object, const char *name, const char *digits);

/** A member's text, "" where there is none. */
const char *member_text(const json_t *object, const char *name);

#endif /* INFO_REPORT_H */
