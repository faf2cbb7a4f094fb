#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the checks of scripts/ on this tree and on what was built from it.
set -u

here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../scripts
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
output=$(mktemp)
trap 'rm -f "$output"' EXIT INT TERM

# check NAME ARGUMENT...
check() {
    name=$1
    shift
    "$scripts/check-$name" "$@" >"$output" 2>&1
    check_status=$?
    if [ $check_status -eq 77 ]; then
        tap_skip "$name" "$(cat "$output")"
    else
        tap_report $check_status "$name" "$output"
    fi
}

check includes
check length
check braces
check format
check headers
check layout
check paths
check licenses
check clauses
if [ -n "$HSDP_TEST_SANITIZERS" ]; then
    tap_skip exports "an instrumented build has symbols of its own"
else
    check exports "$HSDP_TEST_PLUGIN" "$HSDP_TEST_LOADER"
fi

tap_done
