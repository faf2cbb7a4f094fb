# SPDX-License-Identifier: Apache-2.0
# HSDP_ENGINE: how the engine and the border are compiled and linked.

# The same bits on every rank and machine: no contraction of a * b + c, no fast math of any kind.
# -fno-math-errno only lets sqrt be an instruction; it changes no value.
AC_DEFUN([HSDP_ENGINE], [
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#ifdef __FAST_MATH__
#error fast math
#endif
    ]])], [], [AC_MSG_ERROR([CFLAGS switch fast math on; libhsdp promises identical bits and cannot be built so])])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <float.h>
#if !defined(__linux__) || FLT_EVAL_METHOD != 0 || __SIZEOF_POINTER__ != 8
#error not supported
#endif
    ]])], [], [AC_MSG_ERROR([libhsdp needs 64-bit Linux on a processor that computes float in float (x86-64, aarch64); $host is not])])

    HSDP_ENGINE_CFLAGS=
    m4_foreach_w([flag], [-fvisibility=hidden -ffp-contract=off -fno-math-errno],
                 [HSDP_CC_FLAG([HSDP_ENGINE_CFLAGS], flag)])
    AS_CASE([$HSDP_ENGINE_CFLAGS], [*-ffp-contract=off*], [],
            [AC_MSG_ERROR([$CC does not know -ffp-contract=off; use gcc or clang])])
    AC_SUBST([HSDP_ENGINE_CFLAGS])

    # A sanitizer's runtime may live in the host program only; then symbols stay open here.
    HSDP_PLUGIN_LDFLAGS='-Wl,-z,now -Wl,-z,relro'
    AS_IF([test -z "$HSDP_SANITIZE_FLAGS"],
          [HSDP_PLUGIN_LDFLAGS="$HSDP_PLUGIN_LDFLAGS -Wl,-z,defs"])
    AC_SUBST([HSDP_PLUGIN_LDFLAGS])
])
