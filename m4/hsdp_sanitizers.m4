# SPDX-License-Identifier: Apache-2.0
# HSDP_SANITIZERS: --enable-sanitizers=LIST and --enable-coverage instrument all that is built.

# Sets HSDP_SANITIZE_FLAGS (compile and link) and hsdp_sanitizers (a list, or no).
AC_DEFUN([HSDP_SANITIZERS], [
    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers=LIST],
            [build with address,undefined or thread,undefined or one of them; yes means
             address,undefined @<:@default: no@:>@])],
        [], [enable_sanitizers=no])
    hsdp_sanitizers=$enable_sanitizers
    AS_CASE([,$hsdp_sanitizers,],
        [,yes,], [hsdp_sanitizers=address,undefined],
        [*,address,*thread,*|*,thread,*address,*],
            [AC_MSG_ERROR([--enable-sanitizers: address and thread exclude each other])])
    HSDP_SANITIZE_FLAGS=
    AS_VAR_IF([hsdp_sanitizers], [no],
        [HSDP_SUMMARY_ROW([sanitizers], [no], [not asked for (--enable-sanitizers=LIST)])],
        [for hsdp_sanitizer in $(AS_ECHO(["$hsdp_sanitizers"]) | tr ',' ' '); do
             AS_CASE([$hsdp_sanitizer], [address|undefined|thread], [],
                     [AC_MSG_ERROR([--enable-sanitizers: '$hsdp_sanitizer' is none of address, undefined, thread])])
         done
         HSDP_SANITIZE_FLAGS="-fsanitize=$hsdp_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
         HSDP_SANITIZERS_TRY
         HSDP_SUMMARY_ROW([sanitizers], [yes], [$hsdp_sanitizers])])
    AC_ARG_ENABLE([coverage],
        [AS_HELP_STRING([--enable-coverage], [count the lines that tests reach @<:@default: no@:>@])],
        [], [enable_coverage=no])
    AS_VAR_IF([enable_coverage], [no], [],
        [HSDP_SANITIZE_FLAGS="$HSDP_SANITIZE_FLAGS --coverage"
         HSDP_SUMMARY_ROW([coverage], [yes], [lines that are reached are counted])])
    AC_SUBST([HSDP_SANITIZE_FLAGS])
])

AC_DEFUN([HSDP_SANITIZERS_TRY], [
    AC_MSG_CHECKING([whether $CC links with -fsanitize=$hsdp_sanitizers])
    hsdp_saved_cflags=$CFLAGS
    CFLAGS="$CFLAGS $HSDP_SANITIZE_FLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM()],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([--enable-sanitizers=$hsdp_sanitizers was given, but $CC cannot link with it: install the compiler's sanitizer runtime (Debian: libgcc-12-dev for gcc, libclang-rt-14-dev for clang, or the versions of your compiler)])])
    CFLAGS=$hsdp_saved_cflags
])
