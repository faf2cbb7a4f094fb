# SPDX-License-Identifier: Apache-2.0
# HSDP_KERNELS: sets HSDP_KERNEL_CFLAGS, what makes the loops of plugin/device fast.

# None of these changes a bit: loops are vectorised at -O2 as well, without care for floating-point
# traps, which are masked around kernels.
AC_DEFUN([HSDP_KERNELS], [
    HSDP_KERNEL_CFLAGS=
    m4_foreach_w([flag], [-fno-trapping-math -ftree-vectorize -fvect-cost-model=dynamic],
                 [HSDP_CC_FLAG([HSDP_KERNEL_CFLAGS], flag)])
    AC_SUBST([HSDP_KERNEL_CFLAGS])
])
