/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic that kernels need, whatever the host has set for its own. */
#ifndef DEVICE_FPMODE_H
#define DEVICE_FPMODE_H

#include <stdint.h>

/* What the calling thread had set: rounding, flushing of denormals, traps, sticky flags. */
struct fp_mode {
    uint64_t saved;
};

/*
 * Around every sequence of kernels: round to nearest even, denormals kept on input and output, no
 * traps. Of the calling thread only. Pairs nest; leave the inner one first.
 */
struct fp_mode fp_mode_enter(void);

/* Puts back all that fp_mode_enter found, so kernels leave no sticky flag behind either. */
void fp_mode_leave(struct fp_mode mode);

#endif
