/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that kernels_table.c becomes. */
#ifndef DEVICE_KERNELS_TABLE_H
#define DEVICE_KERNELS_TABLE_H

#include "device/kernels.h"

extern const struct kernels kernels_table; /* of the plain path; under DEVICE_PATH, of that one */

#ifdef HSDP_X86_PATHS
extern const struct kernels kernels_table_avx2;
extern const struct kernels kernels_table_avx512;
#endif

#endif
