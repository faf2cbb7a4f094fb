/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a text is JSON, for the suites that read reports. */
#ifndef TESTS_JSON_H
#define TESTS_JSON_H

/* NULL for one JSON value and nothing behind it; else where the text stops being that. */
const char *json_fault(const char *text);

#endif /* TESTS_JSON_H */
