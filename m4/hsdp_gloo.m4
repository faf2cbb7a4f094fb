# SPDX-License-Identifier: Apache-2.0
# HSDP_GLOO: gloo and a C++ compiler, for a peer in make bench.

# Sets hsdp_have_gloo, GLOO_CPPFLAGS and GLOO_LIBS.
AC_DEFUN([HSDP_GLOO], [
    AC_ARG_WITH([gloo],
        [AS_HELP_STRING([--with-gloo@<:@=PREFIX@:>@],
            [gloo, a peer in make bench @<:@default: auto@:>@])], [], [with_gloo=auto])
    AC_ARG_VAR([CXX], [the C++ compiler, for the bench of gloo])
    GLOO_CPPFLAGS=
    GLOO_LIBS=-lgloo
    AS_CASE([$with_gloo], [yes|no|auto], [],
        [GLOO_CPPFLAGS="-isystem $with_gloo/include"
         GLOO_LIBS="-L$with_gloo/lib -Wl,-rpath,$with_gloo/lib -lgloo"])
    AC_SUBST([GLOO_CPPFLAGS])
    AC_SUBST([GLOO_LIBS])
    hsdp_have_gloo=no
    AS_IF([test "x$with_gloo" != xno], [
        AC_CHECK_PROGS([CXX], [c++ g++ clang++])
        AS_IF([test -n "$CXX"], [HSDP_GLOO_TRY])
    ])
    AS_CASE([$hsdp_have_gloo:$with_gloo],
        [yes:*], [HSDP_SUMMARY_ROW([gloo], [yes], [by $CXX, a peer in make bench])],
        [no:no], [HSDP_SUMMARY_ROW([gloo], [no], [switched off by --without-gloo])],
        [no:auto], [HSDP_SUMMARY_ROW([gloo], [no], [no C++ program links it (Debian: g++, libgloo-dev)])],
        [AC_MSG_ERROR([--with-gloo was given, but '${CXX:-c++}' does not link a program with it: install g++ and libgloo-dev (Debian) or give --with-gloo=PREFIX])])
])

# Without libtool's and automake's C++, which would take longer to configure than gloo to measure.
AC_DEFUN([HSDP_GLOO_TRY], [
    AC_MSG_CHECKING([whether $CXX links a program with gloo])
    AS_ECHO(['#include <gloo/rendezvous/context.h>
int main() { return gloo::rendezvous::Context(0, 1).size - 1; }']) >conftest.cc
    AS_IF([$CXX $GLOO_CPPFLAGS conftest.cc -o conftest$EXEEXT $GLOO_LIBS >&AS_MESSAGE_LOG_FD 2>&1],
          [hsdp_have_gloo=yes])
    rm -f conftest.cc conftest$EXEEXT
    AC_MSG_RESULT([$hsdp_have_gloo])
])
