# SPDX-License-Identifier: Apache-2.0
# HSDP_KERNELS: how the loops of plugin/device are compiled, and for which instructions besides
# those that every CPU has.

# HSDP_KERNEL_CFLAGS is what makes them fast. None of these changes a bit: loops are vectorised at
# -O2 as well, without care for floating-point traps, which are masked around kernels.
#
# HSDP_AVX2_CFLAGS and HSDP_AVX512_CFLAGS add the instructions of a path; X86_PATHS tells whether
# the paths are built. None of them switches fused multiply-add on.
AC_DEFUN([HSDP_KERNELS], [
    HSDP_KERNEL_CFLAGS=
    m4_foreach_w([flag], [-fno-trapping-math -ftree-vectorize -fvect-cost-model=dynamic],
                 [HSDP_CC_FLAG([HSDP_KERNEL_CFLAGS], flag)])
    AC_SUBST([HSDP_KERNEL_CFLAGS])

    HSDP_AVX2_CFLAGS=
    HSDP_AVX512_CFLAGS=
    HSDP_KERNEL_CPPFLAGS=
    hsdp_paths=plain
    AS_CASE([$host_cpu], [x86_64|amd64], [
        HSDP_CC_FLAG([HSDP_AVX2_CFLAGS], [-mavx2])
        m4_foreach_w([flag], [-mavx512f -mavx512bw -mavx512dq -mavx512vl],
                     [HSDP_CC_FLAG([HSDP_AVX512_CFLAGS], flag)])
        AS_CASE(["$HSDP_AVX2_CFLAGS$HSDP_AVX512_CFLAGS"],
            [*-mavx2*-mavx512f*-mavx512bw*-mavx512dq*-mavx512vl],
            [hsdp_paths="plain, avx2, avx512"
             HSDP_KERNEL_CPPFLAGS=-DHSDP_X86_PATHS
             HSDP_CC_FLAG([HSDP_AVX512_CFLAGS], [-mprefer-vector-width=512])])
    ])
    AC_SUBST([HSDP_AVX2_CFLAGS])
    AC_SUBST([HSDP_AVX512_CFLAGS])
    AC_SUBST([HSDP_KERNEL_CPPFLAGS])
    AM_CONDITIONAL([X86_PATHS], [test -n "$HSDP_KERNEL_CPPFLAGS"])
    HSDP_SUMMARY_ROW([CPU paths], [yes], [$hsdp_paths; chosen when a job is created])
])
