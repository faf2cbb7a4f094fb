#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The host on the README's first screen compiles, loads the built plugin, and ends well.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$here/../README.md" \
    >"$scratch/host.c"
# shellcheck disable=SC2086 # flags are a list
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$here/../include" ${HSDP_TEST_SANITIZERS-} \
    -o "$scratch/host" "$scratch/host.c" "$HSDP_TEST_LOADER" -ldl >"$scratch/output" 2>&1
tap_report $? "the README's host compiles without a warning" "$scratch/output"

HSDP_PLUGIN=$HSDP_TEST_PLUGIN timeout 20 "$scratch/host" >"$scratch/output" 2>&1 &&
    [ ! -s "$scratch/output" ]
tap_report $? "it loads the plugin and joins a run of one" "$scratch/output"

HSDP_PLUGIN=/none.so timeout 20 "$scratch/host" >"$scratch/output" 2>&1
[ $? -eq 1 ] && grep -q '/none.so' "$scratch/output"
tap_report $? "without the plugin it fails and names the file" "$scratch/output"

! grep -n '[A-Z]_TABLE\|TODO\|FIXME' "$here/../README.md" >"$scratch/output"
tap_report $? "the README has no gap left to fill" "$scratch/output"

# shellcheck disable=SC2016
[ "$(sed -n '/^```c$/,/^```$/p' "$here/../README.md" | grep -c .)" -le 26 ]
tap_report $? "it still fits the first screen" /dev/null

tap_done
