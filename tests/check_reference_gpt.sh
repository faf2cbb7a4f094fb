#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The swap: hsdp-gpt trains with either plugin, one setting apart, and the losses are the same.
#
# The environment names the programs and plugins: HSDP_RUN, HSDP_GPT, HSDP_TEST_PLUGIN,
# HSDP_TEST_REFERENCE.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

n_steps=50

# shellcheck source=tests/small_gpt.sh
. "$here/small_gpt.sh"

# train NAME PLUGIN STRATEGY: 50 steps on four ranks; the log is NAME-STRATEGY.json.
train() {
    "$HSDP_RUN" --quiet --timeout 60 -n 4 "$HSDP_GPT" --config "$scratch/gpt.yaml" \
        --set "plugin=$2" --set "sharding_strategy=$3" --log-json "$scratch/$1-$3.json" \
        >"$scratch/output" 2>&1
}

# losses_of NAME: loss and norm of the gradients, one step a line.
losses_of() {
    sed 's/.*"cross_entropy_loss": \([^,]*\), "gradient_norm": \([^,]*\),.*/\1 \2/' \
        "$scratch/$1.json"
}

# near NAME NAME: each loss and each norm within 1e-5 of the other's, and all steps are there.
near() {
    losses_of "$1" >"$scratch/first"
    losses_of "$2" >"$scratch/second"
    paste -d' ' "$scratch/first" "$scratch/second" | awk -v steps="$n_steps" '
        function is_far(a, b) { return a == "" || b == "" || a - b > 1e-5 * b || b - a > 1e-5 * b }
        is_far($1, $3) || is_far($2, $4) { print "step " NR ": " $0; bad = 1 }
        END { exit !(NR == steps && !bad) }' >"$scratch/said" 2>&1
}

if [ ! -x "$HSDP_GPT" ]; then
    tap_skip "training with either plugin" "hsdp-gpt is not built"
    tap_done
    exit
fi

for strategy in hsdp fsdp; do
    train ours "$HSDP_TEST_PLUGIN" $strategy
    tap_report $? "$strategy trains with hsdp.so" "$scratch/output"
    train reference "$HSDP_TEST_REFERENCE" $strategy
    tap_report $? "$strategy trains with reference.so" "$scratch/output"
    near reference-$strategy ours-$strategy
    tap_report $? "$strategy has the same $n_steps losses with both" "$scratch/said"
done

# Both plugins have really run: their last bits are not the same.
losses_of reference-fsdp >"$scratch/first"
losses_of ours-fsdp >"$scratch/second"
! cmp -s "$scratch/first" "$scratch/second"
tap_report $? "the two runs are of two plugins"

# The comparison can fail: a loss that is a little different, and a run that ended early.
sed '30s/"cross_entropy_loss": \([0-9]*\)\.\([0-9]\)/"cross_entropy_loss": \1.\2\2/' \
    "$scratch/ours-fsdp.json" >"$scratch/changed.json"
! near changed ours-fsdp
tap_report $? "one other loss is told apart"
head -n 49 "$scratch/ours-fsdp.json" >"$scratch/short.json"
! near short ours-fsdp
tap_report $? "a run that ended early is told apart"

tap_done
