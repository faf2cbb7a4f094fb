/* SPDX-License-Identifier: Apache-2.0 */
/* All faults. */
#include "wrong.h"

struct wrong wrong;

const struct wrong_faults *const wrong_lists[WRONG_N_LISTS] = {
    &wrong_border,  &wrong_waits,   &wrong_failures,    &wrong_views,
    &wrong_process, &wrong_numbers, &wrong_collectives, &wrong_steps,
};
