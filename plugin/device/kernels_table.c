/* SPDX-License-Identifier: Apache-2.0 */
/* The table of one path: compiled once for each, beside the kernels (path.h). */
#include "device/kernels_table.h"

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

#ifndef DEVICE_PATH
#define DEVICE_PATH plain
#endif

const struct kernels kernels_table = {
    .path = TEXT(DEVICE_PATH),
    .to_fp32 = cast_to_fp32,
    .from_fp32 = cast_from_fp32,
    .convert = cast_convert,
    .round = cast_round,
    .tree = reduce_tree,
    .add = reduce_add,
    .divide = reduce_divide,
    .norm_add = norm_sum_add,
    .norm_divide_add = norm_sum_divide_add,
    .max_abs = norm_max_abs,
    .adamw = adamw_update,
};
