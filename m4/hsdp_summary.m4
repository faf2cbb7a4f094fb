# SPDX-License-Identifier: Apache-2.0
# HSDP_SUMMARY_*: the table printed at the end of configure.

# HSDP_SUMMARY_ROW(WHAT, STATE, DETAIL): add a row; the arguments are expanded by the shell.
AC_DEFUN([HSDP_SUMMARY_ROW], [
    hsdp_summary_line=$(printf '  %-18s %-5s %s' "$1" "$2" "$3")
    hsdp_summary="$hsdp_summary$hsdp_summary_line
"
])

AC_DEFUN([HSDP_SUMMARY_PRINT], [
    AC_MSG_NOTICE([summary])
    AS_ECHO(["
$PACKAGE_STRING, ABI $HSDP_ABI_VERSION, for $host

$hsdp_summary
  compiler           $CC
  CFLAGS             $CFLAGS
  prefix             $prefix
"])
])
