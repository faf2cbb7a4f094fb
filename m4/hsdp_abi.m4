# SPDX-License-Identifier: Apache-2.0
# HSDP_ABI: reads the ABI version out of the public header, its only home.

AC_DEFUN([HSDP_ABI_NUMBER],
    [sed -n 's/^@%:@define $1 \([[0-9]][[0-9]]*\)u.*/\1/p' "$srcdir/include/hsdp/abi.h"])

AC_DEFUN([HSDP_ABI], [
    AC_MSG_CHECKING([the ABI version])
    hsdp_abi_major=$(HSDP_ABI_NUMBER([HSDP_ABI_MAJOR]))
    hsdp_abi_minor=$(HSDP_ABI_NUMBER([HSDP_ABI_MINOR]))
    AS_IF([test -z "$hsdp_abi_major" || test -z "$hsdp_abi_minor"],
          [AC_MSG_ERROR([include/hsdp/abi.h does not define HSDP_ABI_MAJOR and HSDP_ABI_MINOR as plain numbers])])
    HSDP_ABI_VERSION=$hsdp_abi_major.$hsdp_abi_minor
    AC_MSG_RESULT([$HSDP_ABI_VERSION])
    AC_SUBST([HSDP_ABI_VERSION])
])
