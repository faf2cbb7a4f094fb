# SPDX-License-Identifier: Apache-2.0
# HSDP_YAML: the configuration files of the example trainer hsdp-gpt.

AC_DEFUN([HSDP_YAML],
    [HSDP_PKG_OPTIONAL([yaml], [yaml-0.1], [YAML], [libyaml-dev], [configuration of hsdp-gpt])])
