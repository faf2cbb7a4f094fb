# SPDX-License-Identifier: Apache-2.0
# HSDP_CUDA, HSDP_NCCL: headers of the CUDA toolkit and of NCCL. Libraries are found at run time.

# HSDP_HEADER_PREFIX(VARIABLE, HEADER, PREFIXES...): the first prefix whose include/ holds HEADER.
AC_DEFUN([HSDP_HEADER_PREFIX], [
    $1=
    for hsdp_prefix in $3; do
        AS_IF([test -z "$$1" && test -r "$hsdp_prefix/include/$2"], [$1=$hsdp_prefix])
    done
])

# HSDP_HEADERS_OPTIONAL(NAME, LABEL, HEADER, VERSION MACRO, VERSION DIVISORS, SEARCHED, DEBIAN PACKAGE)
# Adds --with-NAME[=PREFIX], sets hsdp_have_NAME and hsdp_prefix_NAME, adds a row to the summary. Nothing
# is built with these headers: make check compares ours with them.
AC_DEFUN([HSDP_HEADERS_OPTIONAL], [
    AC_ARG_WITH([$1],
        [AS_HELP_STRING([--with-$1@<:@=PREFIX@:>@],
            [$2 headers in PREFIX/include @<:@default: auto@:>@])], [], [with_$1=auto])
    AS_CASE([$with_$1],
        [no], [hsdp_searched=],
        [yes|auto], [hsdp_searched="$6"],
        [hsdp_searched=$with_$1])
    AC_MSG_CHECKING([for $2 ($3)])
    HSDP_HEADER_PREFIX([hsdp_prefix_$1], [$3], [$hsdp_searched])
    AS_IF([test -n "$hsdp_prefix_$1"], [
        hsdp_have_$1=yes
        hsdp_version=$(sed -n 's/^@%:@define  *$4  *\([[0-9]][[0-9]]*\).*/\1/p' "$hsdp_prefix_$1/include/$3" |
                       $AWK '$5')
        AC_MSG_RESULT([$hsdp_prefix_$1/include, $hsdp_version])
        HSDP_SUMMARY_ROW([$2], [found], [$hsdp_version in $hsdp_prefix_$1; make check compares our declarations])
    ], [
        hsdp_have_$1=no
        AC_MSG_RESULT([no])
        AS_CASE([$with_$1],
            [no], [HSDP_SUMMARY_ROW([$2], [no], [switched off by --without-$1])],
            [auto], [HSDP_SUMMARY_ROW([$2], [no], [no include/$3 in $hsdp_searched (Debian: $7)])],
            [AC_MSG_ERROR([--with-$1 was given, but include/$3 is not in $hsdp_searched: install $7 (Debian) or give --with-$1=PREFIX])])
    ])
])

AC_DEFUN([HSDP_CUDA], [
    AC_PATH_PROG([hsdp_nvcc_on_path], [nvcc])
    hsdp_nvcc_prefix=${hsdp_nvcc_on_path%/bin/nvcc}
    HSDP_HEADERS_OPTIONAL([cuda], [CUDA], [cuda.h], [CUDA_VERSION],
        [{ printf "%d.%d", $][1 / 1000, $][1 % 1000 / 10 }],
        [$CUDA_HOME $hsdp_nvcc_prefix /usr/local/cuda /usr], [nvidia-cuda-toolkit])
    AC_SUBST([HSDP_CUDA_PREFIX], [$hsdp_prefix_cuda])
    HSDP_NVCC([$hsdp_prefix_cuda/bin$PATH_SEPARATOR$PATH])
])

AC_DEFUN([HSDP_NCCL], [
    HSDP_HEADERS_OPTIONAL([nccl], [NCCL], [nccl.h], [NCCL_VERSION_CODE],
        [{ printf "%d.%d.%d", $][1 / 10000, $][1 % 10000 / 100, $][1 % 100 }],
        [$NCCL_HOME $hsdp_prefix_cuda /usr/local /usr], [libnccl-dev])
    AC_SUBST([HSDP_NCCL_PREFIX], [$hsdp_prefix_nccl])
])
