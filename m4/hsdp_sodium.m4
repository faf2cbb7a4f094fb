# SPDX-License-Identifier: Apache-2.0
# HSDP_SODIUM: libsodium, with which the ranks of several hosts know each other; it must be there.

AC_DEFUN([HSDP_SODIUM], [
    PKG_CHECK_MODULES([SODIUM], [libsodium >= 1.0.14], [],
        [AC_MSG_ERROR([libsodium 1.0.14 or newer is needed, and pkg-config does not find it: install libsodium-dev (Debian) or set PKG_CONFIG_PATH])])
    HSDP_SUMMARY_ROW([libsodium], [yes],
                     [$($PKG_CONFIG --modversion libsodium), connections between hosts])
])
