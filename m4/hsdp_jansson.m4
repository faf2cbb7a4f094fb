# SPDX-License-Identifier: Apache-2.0
# HSDP_JANSSON: reading the files of the flight recorder in hsdp-flight.

AC_DEFUN([HSDP_JANSSON],
    [HSDP_PKG_OPTIONAL([jansson], [jansson], [JANSSON], [libjansson-dev], [files of hsdp-flight])])
