/* SPDX-License-Identifier: Apache-2.0 */
/* The list of chapters: a new one is a line here. */
#include "chapters.h"

const struct conform_chapter *const chapters_all[] = {
    &conform_negotiation, &conform_arguments, &conform_planning, &conform_mathematics,
    &conform_collectives, &conform_steps,     &conform_loading,  &conform_deadlines,
    &conform_failures,    &conform_views,     &conform_hygiene,
};

const uint32_t chapters_n = sizeof(chapters_all) / sizeof(chapters_all[0]);
