/* SPDX-License-Identifier: Apache-2.0 */
/* All chapters of the kit, in the order in which they run. */
#ifndef CONFORM_CHAPTERS_H
#define CONFORM_CHAPTERS_H

#include <stdint.h>

#include "conform.h"

extern const struct conform_chapter *const chapters_all[];
extern const uint32_t chapters_n;

#endif /* CONFORM_CHAPTERS_H */
