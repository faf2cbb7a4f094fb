/* SPDX-License-Identifier: Apache-2.0 */
/* Control and status of the floating-point unit: MXCSR on x86-64, FPCR and FPSR on aarch64. */
#include "device/fpmode.h"

#include <float.h>

#ifdef __FAST_MATH__
#error "kernels promise bits: they cannot be built with -ffast-math"
#endif

_Static_assert(FLT_EVAL_METHOD == 0, "kernels promise bits: fp32 is evaluated as fp32");

/*
 * The "memory" clobbers keep the compiler from moving a kernel's loads and stores, and with them
 * its arithmetic, across the switch.
 */

#if defined(__x86_64__)

enum { CONTROL_DEFAULT = 0x1f80 }; /* all exceptions masked, nearest, FTZ and DAZ off */

static uint64_t control_get(void)
{
    uint32_t control;

    __asm__ volatile("stmxcsr %0" : "=m"(control) : : "memory");
    return control;
}

static void control_set(uint64_t value)
{
    uint32_t control = (uint32_t)value;

    __asm__ volatile("ldmxcsr %0" : : "m"(control) : "memory");
}

#elif defined(__aarch64__)

enum { CONTROL_DEFAULT = 0 }; /* no traps, nearest, FZ off, NaNs propagate; no sticky flag */

/* Both registers have 32 bits in use: status above, control below. */
static uint64_t control_get(void)
{
    uint64_t control;
    uint64_t status;

    __asm__ volatile("mrs %0, fpcr" : "=r"(control) : : "memory");
    __asm__ volatile("mrs %0, fpsr" : "=r"(status) : : "memory");
    return (status << 32) | (control & UINT32_MAX);
}

static void control_set(uint64_t value)
{
    uint64_t control = value & UINT32_MAX;
    uint64_t status = value >> 32;

    __asm__ volatile("msr fpsr, %0" : : "r"(status) : "memory");
    __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}

#else
#error "fpmode: no control word known for this processor"
#endif

struct fp_mode fp_mode_enter(void)
{
    struct fp_mode mode = {control_get()};

    control_set(CONTROL_DEFAULT);
    return mode;
}

void fp_mode_leave(struct fp_mode mode)
{
    control_set(mode.saved);
}
