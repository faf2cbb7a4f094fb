# SPDX-License-Identifier: Apache-2.0
# HSDP_BENCH_PEER: whether the bench of a peer is built; else make bench says why it is not.

# HSDP_BENCH_PEER(NAME, LIBRARY, REASON): the condition BENCH_NAME, and BENCH_NO_NAME, "" where it holds.
AC_DEFUN([HSDP_BENCH_PEER], [
    BENCH_NO_$1=
    AS_VAR_IF([hsdp_have_$2], [yes],
        [AS_IF([test -n "$HSDP_SANITIZE_FLAGS"],
               [BENCH_NO_$1="not measured in an instrumented build"])],
        [BENCH_NO_$1="$3"])
    AC_SUBST([BENCH_NO_$1])
    AM_CONDITIONAL([BENCH_$1], [test -z "$BENCH_NO_$1"])
])
