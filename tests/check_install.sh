#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What make install leaves behind, and that a host can be built from it alone, in C and in C++.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
stage=$scratch/stage
unset MAKEFLAGS MFLAGS MAKELEVEL

make -C "$HSDP_TEST_BUILDDIR/.." install DESTDIR="$stage" >"$output" 2>&1
tap_report $? "install: make install succeeds" "$output"

# The prefix of the build, seen under the stage.
pc=$(find "$stage" -name hsdp.pc)
prefix=$stage$(sed -n 's/^prefix=//p' "$pc")
PKG_CONFIG_PATH=$(dirname "$pc")
PKG_CONFIG_SYSROOT_DIR=$stage
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
plugin=$stage$(pkg-config --variable=plugindir hsdp | sed "s,^$stage,,")/hsdp.so

# holds NAME FILE
holds() {
    [ -f "$2" ]
    tap_report $? "install: holds $1"
}

holds hsdp.so "$plugin"
holds hsdp.h "$prefix/include/hsdp/hsdp.h"
holds loader.c "$prefix/share/hsdp/loader.c"
holds hsdp-run "$prefix/bin/hsdp-run"
holds hsdp-run.1 "$prefix/share/man/man1/hsdp-run.1"
if [ -x "$HSDP_FLIGHT" ]; then
    holds hsdp-flight "$prefix/bin/hsdp-flight"
    holds hsdp-conform "$prefix/bin/hsdp-conform"
    holds hsdp-info "$prefix/bin/hsdp-info"
    holds hsdp-info.1 "$prefix/share/man/man1/hsdp-info.1"
fi
holds "hsdp.py" "$(find "$prefix/share/doc" -path '*/examples/python/hsdp.py')"
holds "minimal.py" "$(find "$prefix/share/doc" -path '*/examples/python/minimal.py')"
holds "minimal.c" "$(find "$prefix/share/doc" -path '*/examples/minimal.c')"
find "$stage" -name '*.la' >"$output"
[ ! -s "$output" ]
tap_report $? "install: holds no libtool file" "$output"

if [ -x "$HSDP_INFO" ]; then
    (unset HSDP_PLUGIN HSDP_PLUGIN_PATH; "$prefix/bin/hsdp-info") >"$output" 2>&1 &&
        grep -qE '^  in (the folder of plugins of this installation|\.\./lib/hsdp beside this program)$' "$output"
    tap_report $? "install: hsdp-info finds the plugin by itself" "$output"
fi

cat >"$scratch/host.c" <<'TEXT'
#include <hsdp/hsdp.h>
#include <hsdp/loader.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;

    spec.path = argc > 1 ? argv[1] : NULL;
    if (hsdp_plugin_load(&spec, &plugin, &err) != HSDP_OK) {
        puts(err.message);
        return 1;
    }
    printf("ABI %u.%u\n", hsdp_plugin_api(plugin)->abi_major, hsdp_plugin_api(plugin)->abi_minor);
    hsdp_plugin_unload(plugin);
    return 0;
}
TEXT
cp "$scratch/host.c" "$scratch/host.cc"

# loads NAME COMPILER ARGUMENT...: builds a host and lets it load the installed plugin.
loads() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$@" $HSDP_TEST_SANITIZERS -o "$scratch/host" >"$output" 2>&1 &&
        "$scratch/host" "$plugin" >"$output" 2>&1 &&
        [ "$(cat "$output")" = "ABI $(pkg-config --variable=abi_version hsdp)" ]
    tap_report $? "install: $name" "$output"
}

# shellcheck disable=SC2046
loads "a C host builds by pkg-config and loads the plugin" \
    "${CC:-cc}" "$scratch/host.c" $(pkg-config --cflags --libs hsdp)
if [ -n "$HSDP_TEST_SANITIZERS" ]; then
    tap_skip "install: a C++ host does as well" "its compiler may bring another sanitizer"
else
    # shellcheck disable=SC2046
    loads "a C++ host does as well" "${CXX:-c++}" "$scratch/host.cc" $(pkg-config --cflags --libs hsdp)
fi
# shellcheck disable=SC2046
loads "a host that copied loader.c in does as well" \
    "${CC:-cc}" "$scratch/host.c" "$prefix/share/hsdp/loader.c" $(pkg-config --cflags hsdp) -ldl

"$scratch/host" "$scratch/missing.so" >"$output" 2>&1
[ $? -eq 1 ] && grep -q missing.so "$output"
tap_report $? "install: a host that finds no plugin says where it looked" "$output"

tap_done
