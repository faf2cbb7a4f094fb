# SPDX-License-Identifier: Apache-2.0
# HSDP_CHECK: the unit test framework; only `make check` needs it.

AC_DEFUN([HSDP_CHECK],
    [HSDP_PKG_OPTIONAL([check], [check], [CHECK], [check],
                       [the suites of make check], [0.11])
     AM_CONDITIONAL([HAVE_CHECK], [test "x$hsdp_have_check" = xyes])])
