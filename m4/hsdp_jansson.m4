# SPDX-License-Identifier: Apache-2.0
# HSDP_JANSSON: JSON, which hsdp-flight and hsdp-info read.

AC_DEFUN([HSDP_JANSSON],
    [HSDP_PKG_OPTIONAL([jansson], [jansson], [JANSSON], [libjansson-dev], [hsdp-flight and hsdp-info])])
