# SPDX-License-Identifier: Apache-2.0
# HSDP_WARNINGS: the warnings of this tree, and whether one of them stops the build.

# HSDP_CC_FLAG(VARIABLE, FLAG): append FLAG to VARIABLE if the compiler takes it without a word.
AC_DEFUN([HSDP_CC_FLAG], [
    AS_VAR_PUSHDEF([cache], [hsdp_cv_cc_flag_$2])
    AC_CACHE_CHECK([whether $CC accepts $2], [cache], [
        hsdp_saved_cflags=$CFLAGS
        CFLAGS="$CFLAGS -Werror $2"
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [AS_VAR_SET([cache], [yes])],
                          [AS_VAR_SET([cache], [no])])
        CFLAGS=$hsdp_saved_cflags
    ])
    AS_VAR_IF([cache], [yes], [$1="$$1 $2"])
    AS_VAR_POPDEF([cache])
])

# Sets HSDP_CFLAGS (every C file) and hsdp_werror (yes or no, for the summary).
AC_DEFUN([HSDP_WARNINGS], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror],
            [turn warnings into errors @<:@default: in a git checkout only@:>@])],
        [], [enable_werror=auto])
    AS_CASE([$enable_werror],
        [yes|no], [hsdp_werror=$enable_werror],
        [auto], [AS_IF([test -e "$srcdir/.git"], [hsdp_werror=yes], [hsdp_werror=no])],
        [AC_MSG_ERROR([--enable-werror takes yes, no or auto, not '$enable_werror'])])

    HSDP_CFLAGS=-std=c11
    m4_foreach_w([flag], [-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
                          -Wold-style-definition -Wvla -Wpointer-arith -Wundef -Wformat=2
                          -Wwrite-strings -Wdate-time],
                 [HSDP_CC_FLAG([HSDP_CFLAGS], flag)])
    AS_VAR_IF([hsdp_werror], [yes], [HSDP_CFLAGS="$HSDP_CFLAGS -Werror"])
    AC_SUBST([HSDP_CFLAGS])
])
