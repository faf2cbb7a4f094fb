# SPDX-License-Identifier: Apache-2.0
# HSDP_NVCC: the compiler of device code, for which devices it compiles, and which driver that needs.

# Devices of a major version run what is compiled for a lower minor one, so the lowest of each will do. The
# least and the last are added as PTX, too, which drivers compile for devices that come later.
m4_define([HSDP_GPU_ARCHS], [80 90 100 120])

# HSDP_NVCC_TRY: sets hsdp_nvcc_works, and leaves in hsdp_nvcc_why why not.
AC_DEFUN([HSDP_NVCC_TRY], [
    hsdp_nvcc_works=no
    AC_MSG_CHECKING([whether nvcc compiles])
    AS_ECHO(['extern "C" __global__ void kernel(float *x) { *x += 1.0f; }']) >conftest.cu
    AS_IF([$NVCC -std=c++17 -cubin -arch=sm_80 -o conftest.cubin conftest.cu >conftest.err 2>&1],
          [hsdp_nvcc_works=yes])
    AS_ECHO(["$as_me:$LINENO: $NVCC:"]) >&AS_MESSAGE_LOG_FD
    cat conftest.err >&AS_MESSAGE_LOG_FD
    rm -f conftest.cu conftest.cubin conftest.err
    AC_MSG_RESULT([$hsdp_nvcc_works])
])

# HSDP_NVCC_ARCHS: sets GPU_ARCHS, "sm_80 ptx_80", and GPU_GENCODE, the options for them.
AC_DEFUN([HSDP_NVCC_ARCHS], [
    hsdp_nvcc_list=" $($NVCC --list-gpu-code 2>/dev/null | tr '\n' ' ') "
    GPU_ARCHS=
    GPU_GENCODE=
    hsdp_arch_first=
    hsdp_arch_last=
    for hsdp_arch in HSDP_GPU_ARCHS; do
        AS_CASE([$hsdp_nvcc_list], [*" sm_$hsdp_arch "*], [
            GPU_ARCHS="$GPU_ARCHS${GPU_ARCHS:+ }sm_$hsdp_arch"
            GPU_GENCODE="$GPU_GENCODE -gencode=arch=compute_$hsdp_arch,code=sm_$hsdp_arch"
            hsdp_arch_first=${hsdp_arch_first:-$hsdp_arch}
            hsdp_arch_last=$hsdp_arch
        ])
    done
    for hsdp_arch in $(AS_ECHO(["$hsdp_arch_first $hsdp_arch_last"]) | tr ' ' '\n' | uniq); do
        GPU_ARCHS="$GPU_ARCHS ptx_$hsdp_arch"
        GPU_GENCODE="$GPU_GENCODE -gencode=arch=compute_$hsdp_arch,code=compute_$hsdp_arch"
    done
])

# Drivers of a major version run code of each minor one, as long as it is not compressed in newer ways.
AC_DEFUN([HSDP_NVCC_DRIVER], [
    hsdp_nvcc_version=$($NVCC --version | sed -n 's/.*release \([[0-9]]*\.[[0-9]]*\).*/\1/p')
    GPU_MIN_DRIVER=${hsdp_nvcc_version%%.*}000
])

# Sets NVCC, NVCCFLAGS and what is above; CUDA_CODE tells whether there is device code.
AC_DEFUN([HSDP_NVCC], [
    AC_ARG_VAR([NVCC], [compiler of device code])
    AC_ARG_VAR([NVCCFLAGS], [flags for it])
    AS_IF([test "$with_cuda" = no], [NVCC=no], [AC_PATH_PROG([NVCC], [nvcc], [no], [$1])])
    NVCCFLAGS=${NVCCFLAGS--O3}
    hsdp_cuda_code=no
    AS_IF([test "$NVCC" != no], [
        HSDP_NVCC_TRY
        HSDP_NVCC_ARCHS
        HSDP_NVCC_DRIVER
        AS_IF([test $hsdp_nvcc_works = yes && test -n "$hsdp_arch_first"], [hsdp_cuda_code=yes])
    ])
    AC_SUBST([GPU_ARCHS])
    AC_SUBST([GPU_GENCODE])
    AC_SUBST([GPU_MIN_DRIVER])
    AM_CONDITIONAL([CUDA_CODE], [test $hsdp_cuda_code = yes])
    AS_IF([test $hsdp_cuda_code = yes],
          [HSDP_SUMMARY_ROW([device code], [yes], [$GPU_ARCHS (nvcc $hsdp_nvcc_version)])],
          [test "$with_cuda" = no],
          [HSDP_SUMMARY_ROW([device code], [no], [switched off by --without-cuda])],
          [test "$NVCC" = no],
          [HSDP_SUMMARY_ROW([device code], [no], [no nvcc (Debian: nvidia-cuda-toolkit); no training on GPUs])],
          [HSDP_SUMMARY_ROW([device code], [no], [$NVCC does not compile: see config.log])])
])
