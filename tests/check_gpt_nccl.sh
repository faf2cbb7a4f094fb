#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hsdp-gpt on devices: the losses of 50 steps over NCCL are those over shared memory.
#
# The libraries are the doubles, whose folder is HSDP_TEST_DOUBLES. The environment names the programs:
# HSDP_RUN, HSDP_GPT, HSDP_TEST_PLUGIN.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

n_steps=50

# shellcheck source=tests/small_gpt.sh
. "$here/small_gpt.sh"
sed -i 's/^global_batch_size: .*/global_batch_size: 8/' "$scratch/gpt.yaml"

doubles=${HSDP_TEST_DOUBLES-/nowhere}
if [ ! -x "$HSDP_GPT" ]; then
    tap_skip "training on devices" "hsdp-gpt is not built"
    tap_done
    exit
fi
if [ ! -f "$doubles/libcuda.so.1" ] || [ ! -f "$doubles/libnccl.so.2" ]; then
    tap_skip "training on devices" "the doubles are not built"
    tap_done
    exit
fi
export HSDP_CUDA_LIBRARY="$doubles/libcuda.so.1" HSDP_NCCL_LIBRARY="$doubles/libnccl.so.2"

# train NAME RANKS SETTING...: one run; its log is NAME.json, what it says NAME.said.
train() {
    name=$1
    ranks=$2
    shift 2
    for setting in "$@"; do
        set -- "$@" --set "$setting"
        shift
    done
    "$HSDP_RUN" --quiet --timeout 60 -n "$ranks" "$HSDP_GPT" --config "$scratch/gpt.yaml" \
        --set "plugin=$HSDP_TEST_PLUGIN" --log-json "$scratch/$name.json" "$@" \
        >"$scratch/$name.said" 2>&1
}

# losses_of NAME: what every rank must agree on, one step a line.
losses_of() {
    sed 's/.*"cross_entropy_loss": \([^,]*\), "gradient_norm": \([^,]*\),.*/\1 \2/' \
        "$scratch/$1.json"
}

# near NAME NAME: each loss and each norm within 1e-5 of the other's, and all steps are there.
near() {
    losses_of "$1" >"$scratch/first"
    losses_of "$2" >"$scratch/second"
    paste -d' ' "$scratch/first" "$scratch/second" | awk -v steps="$n_steps" '
        function far(a, b) { return (a - b) / b > 1e-5 || (b - a) / b > 1e-5 }
        far($1, $3) || far($2, $4) { print "step " NR ": " $0; bad = 1 }
        END { exit !(NR == steps && !bad) }'
}

# compare RANKS STRATEGY SETTING...: on devices as in shared memory.
compare() {
    compare_ranks=$1
    compare_strategy=$2
    shift 2
    compare_name="$compare_ranks-$compare_strategy${1+-$1}"
    what="$compare_strategy, a world of $compare_ranks${1+, $*}"
    train "$compare_name-cpu" "$compare_ranks" device=cpu "sharding_strategy=$compare_strategy" "$@"
    train "$compare_name-cuda" "$compare_ranks" device=cuda backend=nccl \
        "sharding_strategy=$compare_strategy" "$@"
    tap_report $? "gpt: $what trains" "$scratch/$compare_name-cuda.said"
    near "$compare_name-cuda" "$compare_name-cpu" >"$scratch/said" 2>&1
    tap_report $? "gpt: $what has the losses of shared memory" "$scratch/said"
}

# Every strategy where each has groups of its own; of the other worlds what differs in them.
for strategy in ddp zero2 fsdp hsdp hfsdp; do
    compare 4 "$strategy"
done
compare 1 fsdp
compare 2 ddp
compare 2 fsdp
compare 8 hsdp
for strategy in fsdp hsdp; do
    compare 4 "$strategy" param_dtype=bf16 reduce_dtype=bf16
done
compare 4 hsdp accumulation_scope=full global_batch_size=16
compare 4 hfsdp accumulation_scope=inner global_batch_size=16

grep -q '| backend nccl |' "$scratch/4-fsdp-cuda.said"
tap_report $? "gpt: the backend is nccl" "$scratch/4-fsdp-cuda.said"
if grep -h 'race' "$scratch"/*-cuda.said >"$scratch/said"; then
    tap_report 1 "gpt: what streams do is ordered" "$scratch/said"
else
    tap_report 0 "gpt: what streams do is ordered"
fi

tap_done
