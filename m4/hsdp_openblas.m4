# SPDX-License-Identifier: Apache-2.0
# HSDP_OPENBLAS: matrix products for the example trainer hsdp-gpt.

AC_DEFUN([HSDP_OPENBLAS],
    [HSDP_PKG_OPTIONAL([openblas], [openblas], [OPENBLAS], [libopenblas-dev],
                       [matrix products of hsdp-gpt])])
