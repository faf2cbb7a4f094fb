# SPDX-License-Identifier: Apache-2.0
# HSDP_PKG_OPTIONAL: an optional library that pkg-config knows.

m4_ifndef([PKG_CHECK_MODULES],
          [m4_fatal([pkg.m4 is missing: install pkgconf (or pkg-config) and run autoreconf again])])

# HSDP_PKG_OPTIONAL(NAME, MODULE, VARIABLE, DEBIAN PACKAGE, PURPOSE, [MINIMUM VERSION])
# Adds --with-NAME (default auto), sets hsdp_have_NAME to yes or no, VARIABLE_CFLAGS and
# VARIABLE_LIBS, and adds a row to the summary. Forced on and missing is an error.
AC_DEFUN([HSDP_PKG_OPTIONAL], [
    AC_ARG_WITH([$1],
        [AS_HELP_STRING([--with-$1], [$5 @<:@default: auto@:>@])], [], [with_$1=auto])
    AS_CASE([$with_$1], [yes|no|auto], [],
            [AC_MSG_ERROR([--with-$1 takes yes, no or auto, not '$with_$1'])])
    hsdp_have_$1=no
    AS_IF([test "x$with_$1" = xno],
          [HSDP_SUMMARY_ROW([$1], [no], [switched off by --without-$1])],
          [PKG_CHECK_MODULES([$3], [$2 m4_ifnblank([$6], [>= $6])], [hsdp_have_$1=yes], [hsdp_have_$1=no])
           AS_VAR_IF([hsdp_have_$1], [yes],
               [hsdp_pkg_version=$($PKG_CONFIG --modversion $2)
                HSDP_SUMMARY_ROW([$1], [yes], [$hsdp_pkg_version, $5])],
               [AS_VAR_IF([with_$1], [yes],
                   [AC_MSG_ERROR([--with-$1 was given, but pkg-config does not find '$2 m4_ifnblank([$6], [>= $6])': install $4 (Debian) or set PKG_CONFIG_PATH])])
                HSDP_SUMMARY_ROW([$1], [no], [pkg-config does not find '$2 m4_ifnblank([$6], [>= $6])' (Debian: $4)])])])
])
