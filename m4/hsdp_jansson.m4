# SPDX-License-Identifier: Apache-2.0
# HSDP_JANSSON: JSON, which programs of tools read and write.

AC_DEFUN([HSDP_JANSSON],
    [HSDP_PKG_OPTIONAL([jansson], [jansson], [JANSSON], [libjansson-dev], [programs of tools])])
