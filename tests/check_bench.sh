#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benches run, small, and what they leave is one JSON file; how fast they are is no test.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
bench=$HSDP_TEST_BUILDDIR/../bench
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output

timeout 60 "$bench/bench-join" -n 50 -p 3 -r 3 -o "$scratch/joins.part" >"$output" 2>&1 &&
    grep -q '^ *3 ' "$output" &&
    grep -q '^{"participants":50,"authenticated":true,' "$scratch/joins.part"
tap_report $? "bench-join: all participants join, and the part says so" "$output"

! timeout 60 "$bench/bench-join" -n 0 >"$output" 2>&1 && grep -q 'a number from 1' "$output"
tap_report $? "bench-join: no participants are refused" "$output"

echo '{"a":1}' >"$scratch/rows.part"
echo '{"a":2}' >>"$scratch/rows.part"
"$here/../bench/collect" "$scratch" >"$output" 2>&1 &&
    tr -d ' \n' <"$scratch/results.json" >"$output" &&
    grep -q '^{"joins":\[{"participants":50,.*}\],"rows":\[{"a":1},{"a":2}\]}$' "$output"
tap_report $? "collect: each part is a list of the results" "$output"

mkdir "$scratch/empty"
! "$here/../bench/collect" "$scratch/empty" >"$output" 2>&1 && grep -q 'no part' "$output"
tap_report $? "collect: a folder without parts is refused" "$output"

tap_done
