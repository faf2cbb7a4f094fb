#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training with every strategy on 1 to 4 ranks: the same losses as on one rank, and the same bits
# where they are promised.
#
# The environment names the programs: HSDP_RUN, HSDP_GPT, HSDP_TEST_PLUGIN.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

n_steps=50
strategies='ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp'

# shellcheck source=tests/small_gpt.sh
. "$here/small_gpt.sh"

# train RANKS STRATEGY SCOPE: one run; its log is RANKS-STRATEGY-SCOPE.json.
train() {
    "$HSDP_RUN" --quiet --timeout 60 -n "$1" "$HSDP_GPT" --config "$scratch/gpt.yaml" \
        --set "plugin=$HSDP_TEST_PLUGIN" --set "sharding_strategy=$2" \
        --set "accumulation_scope=$3" --log-json "$scratch/$1-$2-$3.json" \
        >"$scratch/output" 2>&1
}

# losses_of NAME: what every rank must agree on, one step a line.
losses_of() {
    sed 's/.*"cross_entropy_loss": \([^,]*\), "gradient_norm": \([^,]*\),.*/\1 \2/' \
        "$scratch/$1.json"
}

# same NAME NAME: the losses and norms of two runs, compared as text.
same() {
    losses_of "$1" >"$scratch/first"
    losses_of "$2" >"$scratch/second"
    [ "$(wc -l <"$scratch/first")" -eq "$n_steps" ] && cmp "$scratch/first" "$scratch/second"
}

# near NAME NAME: every loss within 1e-5 of the other's, and all steps are there.
near() {
    losses_of "$1" >"$scratch/first"
    losses_of "$2" >"$scratch/second"
    paste -d' ' "$scratch/first" "$scratch/second" | awk -v steps="$n_steps" '
        { gap = ($1 - $3) / $3; if (gap > 1e-5 || gap < -1e-5) { print "step " NR ": " $1 ", " $3; bad = 1 } }
        END { exit !(NR == steps && !bad) }'
}

# falls NAME: the last loss is well below the first.
falls() {
    losses_of "$1" | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first * 0.8) }'
}

# case_of NAME COMMAND...: one test case.
case_of() {
    name=$1
    shift
    "$@" >"$scratch/said" 2>&1
    tap_report $? "$name" "$scratch/said"
}

if [ ! -x "$HSDP_GPT" ]; then
    tap_skip "training with every strategy" "hsdp-gpt is not built"
    tap_done
    exit
fi

case_of "one rank trains" train 1 ddp none
case_of "one rank learns" falls 1-ddp-none
for ranks in 2 3 4; do
    for strategy in $strategies; do
        train $ranks "$strategy" none
        tap_report $? "$strategy on $ranks ranks trains" "$scratch/output"
        case_of "$strategy on $ranks ranks has the losses of one" \
            near "$ranks-$strategy-none" 1-ddp-none
        case_of "$strategy on $ranks ranks has the bits of ddp" \
            same "$ranks-$strategy-none" "$ranks-ddp-none"
    done
done
for strategy in $strategies; do
    train 1 "$strategy" none
    case_of "$strategy on 1 rank has the bits of ddp" same "1-$strategy-none" 1-ddp-none
    train 4 "$strategy" full
    case_of "$strategy with scope full has the losses of one rank" near "4-$strategy-full" 1-ddp-none
    case_of "$strategy with scope full has the bits of ddp" same "4-$strategy-full" 4-ddp-full
    train 4 "$strategy" inner
    case_of "$strategy with scope inner has the losses of one rank" near "4-$strategy-inner" 1-ddp-none
done
# `inner` adds in another order: three classes, each with bits of its own.
case_of "scope inner: zero1 has the bits of ddp" same 4-zero1-inner 4-ddp-inner
case_of "scope inner: fsdp has the bits of zero2" same 4-fsdp-inner 4-zero2-inner
case_of "scope inner: hsdp_zero2 has the bits of hsdp" same 4-hsdp_zero2-inner 4-hsdp-inner
case_of "scope inner: hfsdp has the bits of hsdp" same 4-hfsdp-inner 4-hsdp-inner

# The comparisons can fail: a run that is a little different is told apart by both.
sed 's/"cross_entropy_loss": \([0-9]*\)\.\([0-9]\)/"cross_entropy_loss": \1.\2\2/' \
    "$scratch/4-ddp-none.json" >"$scratch/changed.json"
! same changed 4-ddp-none >"$scratch/said" 2>&1
tap_report $? "other bits are told apart" "$scratch/said"
! near changed 4-ddp-none >"$scratch/said" 2>&1
tap_report $? "other losses are told apart" "$scratch/said"
head -n 10 "$scratch/4-ddp-none.json" >"$scratch/short.json"
! near short 4-ddp-none >"$scratch/said" 2>&1
tap_report $? "a run that ended early is told apart" "$scratch/said"

tap_done
