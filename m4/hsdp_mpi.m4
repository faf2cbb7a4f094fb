# SPDX-License-Identifier: Apache-2.0
# HSDP_MPI: an MPI compiler wrapper that compiles and links a program; make bench has it as a peer.

AC_DEFUN([HSDP_MPI], [
    AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--with-mpi@<:@=MPICC@:>@],
            [MPI by its compiler wrapper @<:@default: auto@:>@])], [], [with_mpi=auto])
    AC_ARG_VAR([MPICC], [the MPI compiler wrapper])
    AS_CASE([$with_mpi], [yes|no|auto], [], [MPICC=$with_mpi])
    hsdp_have_mpi=no
    AS_IF([test "x$with_mpi" != xno], [
        AC_PATH_PROGS([MPICC], [mpicc])
        AS_IF([test -n "$MPICC"], [HSDP_MPI_TRY])
    ])
    AS_CASE([$hsdp_have_mpi:$with_mpi],
        [yes:*], [HSDP_SUMMARY_ROW([MPI], [yes], [MPI $hsdp_mpi_version by $MPICC, a peer in make bench])],
        [no:no], [HSDP_SUMMARY_ROW([MPI], [no], [switched off by --without-mpi])],
        [no:auto], [HSDP_SUMMARY_ROW([MPI], [no], [no working mpicc (Debian: libopenmpi-dev)])],
        [AC_MSG_ERROR([--with-mpi was given, but '${MPICC:-mpicc}' is not there or cannot link an MPI program: install libopenmpi-dev (Debian) or give --with-mpi=/path/of/mpicc])])
])

# Sets hsdp_have_mpi, hsdp_mpi_version and MPI_CPPFLAGS, where its headers are: the wrapper only links,
# so that its sources are compiled as all others are.
AC_DEFUN([HSDP_MPI_TRY], [
    AC_MSG_CHECKING([whether $MPICC links an MPI program])
    hsdp_saved_cc=$CC
    CC=$MPICC
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[@%:@include <mpi.h>]], [[return MPI_Init(0, 0);]])],
                   [hsdp_have_mpi=yes])
    AS_VAR_IF([hsdp_have_mpi], [yes], [
        AS_ECHO(['#include <mpi.h>
hsdp_version MPI_VERSION.MPI_SUBVERSION']) >conftest.c
        hsdp_mpi_version=$($MPICC -E conftest.c 2>/dev/null | sed -n 's/^hsdp_version //p' | tr -d ' ')
        rm -f conftest.c
        MPI_CPPFLAGS=$($MPICC -show 2>/dev/null | tr ' ' '\n' | sed -n 's/^-I/-isystem /p' | tr '\n' ' ')
        AC_SUBST([MPI_CPPFLAGS])
    ])
    CC=$hsdp_saved_cc
    AC_MSG_RESULT([$hsdp_have_mpi])
])
