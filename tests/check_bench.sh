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

timeout 60 "$bench/bench-flight" -n 50 -o "$scratch/flight.part" >"$output" 2>&1 &&
    grep -q '^a reading of the clock *[0-9.]*$' "$output" &&
    grep -q '^{"record_ns":[0-9.]*,.*"clock_ns":[0-9.]*}$' "$scratch/flight.part"
tap_report $? "bench-flight: every cost is measured, and the part has all" "$output"

! timeout 60 "$bench/bench-flight" -n 0 >"$output" 2>&1 && grep -q 'a number from 1' "$output"
tap_report $? "bench-flight: no records are refused" "$output"

rm -f "$scratch/flight.part"
echo '{"a":1}' >"$scratch/rows-first.part"
echo '{"a":2}' >"$scratch/rows-second.part"
echo '{"a":3}' >"$scratch/rows.part"
echo '{"a":4}' >>"$scratch/rows.part"
printf '{"speed":2,\n"of":[1,2]}\n' >"$scratch/trainer.object"
echo '{}' >"$scratch/machine.object"
"$here/../bench/collect" "$scratch" >"$output" 2>&1 &&
    tr -d ' \n' <"$scratch/results.json" >"$output"
grep -q '^{"joins":\[{"participants":50,.*}\],"rows":' "$output"
tap_report $? "collect: each part is a list of the results" "$output"
grep -q '"rows":\[{"a":1},{"a":2},{"a":3},{"a":4}\],' "$output"
tap_report $? "collect: several parts of one key are one list" "$output"
grep -q '\],"machine":{},"trainer":{"speed":2,"of":\[1,2\]}}$' "$output"
tap_report $? "collect: an object is one of the results" "$output"

mkdir "$scratch/empty"
! "$here/../bench/collect" "$scratch/empty" >"$output" 2>&1 && grep -q 'no part' "$output"
tap_report $? "collect: a folder without parts is refused" "$output"

tap_done
