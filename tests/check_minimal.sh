#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the smallest host, examples/minimal.c, with every strategy on one to four ranks.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
minimal=$HSDP_MINIMAL
output=$(mktemp)
trap 'rm -f "$output"' EXIT INT TERM
export HSDP_PLUGIN="$HSDP_TEST_PLUGIN"

# says NAME STATUS PATTERN COMMAND...: the exit status, and one line of output, all of it.
says() {
    name=$1
    status=$2
    pattern=$3
    shift 3
    "$@" >"$output" 2>&1
    found=$?
    [ $found -eq "$status" ] && [ "$(wc -l <"$output")" -eq 1 ] && grep -Eqx "$pattern" "$output"
    tap_report $? "$name" "$output"
}

for strategy in ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp; do
    says "minimal: $strategy alone" 0 "ok: 1 ranks, $strategy" "$minimal" "$strategy"
    for n in 2 3 4; do
        says "minimal: $strategy on $n ranks" 0 "ok: $n ranks, $strategy" \
            "$HSDP_RUN" -n $n "$minimal" "$strategy"
    done
done
for strategy in ddp fsdp hsdp hfsdp; do
    says "minimal: $strategy on 64 ranks" 0 "ok: 64 ranks, $strategy" \
        "$HSDP_RUN" -n 64 "$minimal" "$strategy"
done
says "minimal: hfsdp on 37 ranks" 0 "ok: 37 ranks, hfsdp" "$HSDP_RUN" -n 37 "$minimal" hfsdp
says "minimal: an unknown strategy is refused" 2 'minimal: .*sharding_strategy: "fdsp" is none of: .*' \
    "$minimal" fdsp
says "minimal: a missing plugin is named" 2 'minimal: .*/none.so: No such file .*' \
    env HSDP_PLUGIN=/none.so "$minimal"

tap_done
