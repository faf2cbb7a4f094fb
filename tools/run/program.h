/* SPDX-License-Identifier: Apache-2.0 */
/* Where the program is that the ranks shall run. */
#ifndef RUN_PROGRAM_H
#define RUN_PROGRAM_H

#include <stddef.h>

/* Finds name as a shell would. Answers 0, or complains and answers 126 or 127. */
int program_find(const char *name, char *ret_path, size_t path_bytes);

#endif /* RUN_PROGRAM_H */
