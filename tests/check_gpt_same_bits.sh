#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Full training runs on 8 ranks: identical losses, norms and final parameters under every strategy
# and every split into replicas and shards, for each wire dtype and scope; and run after run under load.
#
# The environment names the programs: HSDP_RUN, HSDP_GPT, HSDP_TEST_PLUGIN.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
load=
trap '[ -z "$load" ] || kill "$load"; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

n_steps=200
n_short=20 # steps where parameters are narrow
n_ranks=8
strategies='ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp'
shard_sizes='4 2 1 8' # 2x4, 4x2, 8x1 and 1x8 replicas x shards
if [ -n "${HSDP_TEST_SANITIZERS-}" ]; then
    n_steps=20 # instrumented code is many times slower
fi

# The text to train on: some order for the model to learn, and some disorder.
awk 'BEGIN {
    for (i = 0; i < 4000; i++) {
        x = (x * 69069 + 12345) % 65536
        printf "%s", substr("the quick brown fox jumps over a lazy dog. ", 1 + i % 41, 1 + x % 3)
    }
}' >"$scratch/text"

# Blocks of more than 8 pages, so that every rank has a shard of its own; two microbatches.
cat >"$scratch/gpt.yaml" <<TEXT
dataset: $scratch/text
num_layers: 2
hidden_size: 32
num_attention_heads: 2
sequence_length: 4
micro_batch_size: 1
global_batch_size: 16
max_steps: $n_steps
learning_rate: 0.003
warmup_steps: 5
validation_interval: 0
log_interval: $n_steps
nccl_timeout_seconds: 60
TEXT

# train NAME KEY=VALUE...: one run; what it says is NAME.output, its log NAME.json.
train() {
    train_name=$1
    shift
    for setting; do
        set -- "$@" --set "$setting"
        shift
    done
    "$HSDP_RUN" --quiet --timeout 100 -n $n_ranks "$HSDP_GPT" --config "$scratch/gpt.yaml" \
        --set "plugin=$HSDP_TEST_PLUGIN" "$@" --log-json "$scratch/$train_name.json" \
        >"$scratch/$train_name.output" 2>&1
}

# queue NAME KEY=VALUE...: a run beside another one; "flush" waits for those that run.
running=
n_running=0
queue() {
    train "$@" &
    running="$running $!"
    n_running=$((n_running + 1))
    if [ $n_running -eq 2 ]; then
        flush
    fi
}

flush() {
    for pid in $running; do
        wait "$pid"
    done
    running=
    n_running=0
}

# result_of NAME: what must be identical: loss and norm of each step, and the final parameters.
result_of() {
    sed 's/.*"cross_entropy_loss": \([^,]*\), "gradient_norm": \([^,]*\),.*/\1 \2/' \
        "$scratch/$1.json"
    sed -n 's/.*"parameters_digest": "\([0-9a-f]*\)".*/\1/p' "$scratch/$1.json"
}

# same NAME NAME: two runs of all steps and a digest, compared as text.
n_wanted=$n_steps
same() {
    result_of "$1" >"$scratch/first" && result_of "$2" >"$scratch/second" || return
    [ "$(wc -l <"$scratch/first")" -eq $((n_wanted + 1)) ] && cmp "$scratch/first" "$scratch/second"
}

# expect NAME FIRST SECOND: one test case; SECOND has the bits of FIRST.
expect() {
    same "$2" "$3" >"$scratch/said" 2>&1
    said=$?
    tail -n 3 "$scratch/$3.output" >>"$scratch/said"
    tap_report $said "$1" "$scratch/said"
}

# expect_other NAME FIRST SECOND: one test case; both have trained, and the bits differ.
expect_other() {
    same "$3" "$3" >"$scratch/said" 2>&1 && ! same "$2" "$3" >>"$scratch/said" 2>&1
    tap_report $? "$1" "$scratch/said"
}

if [ ! -x "$HSDP_GPT" ]; then
    tap_skip "training with the same bits" "hsdp-gpt is not built"
    tap_done
    exit
fi

# Every strategy on every split, two runs at a time.
for wire in fp32 bf16; do
    for scope in none full; do
        for shard_size in $shard_sizes; do
            for strategy in $strategies; do
                queue "$wire-$scope-$shard_size-$strategy" "reduce_dtype=$wire" \
                    "accumulation_scope=$scope" "shard_size=$shard_size" \
                    "sharding_strategy=$strategy"
            done
        done
    done
done
flush
for wire in fp32 bf16; do
    for scope in none full; do
        for shard_size in $shard_sizes; do
            for strategy in $strategies; do
                expect "$strategy on $((n_ranks / shard_size))x$shard_size, wire $wire, scope $scope" \
                    "$wire-$scope-4-ddp" "$wire-$scope-$shard_size-$strategy"
            done
        done
    done
done

# The same once more, beside a process that never sleeps.
while :; do :; done &
load=$!
for strategy in $strategies; do
    queue "again-full-$strategy" reduce_dtype=bf16 accumulation_scope=full shard_size=2 \
        "sharding_strategy=$strategy"
    queue "again-none-$strategy" reduce_dtype=fp32 accumulation_scope=none shard_size=4 \
        "sharding_strategy=$strategy"
done
flush
kill "$load"
load=
for strategy in $strategies; do
    expect "$strategy again under load, scope full" bf16-full-4-ddp "again-full-$strategy"
    expect "$strategy again under load, scope none" fp32-none-4-ddp "again-none-$strategy"
done

# Parameters that are computed with in fewer bits: master weights and shards are memory of their own.
for dtype in bf16 fp16; do
    for strategy in $strategies; do
        queue "$dtype-$strategy" "param_dtype=$dtype" shard_size=4 "max_steps=$n_short" \
            "sharding_strategy=$strategy"
    done
done
flush
n_wanted=$n_short
for dtype in bf16 fp16; do
    for strategy in $strategies; do
        expect "$strategy with parameters in $dtype" "$dtype-ddp" "$dtype-$strategy"
    done
done
expect_other "narrow parameters have other bits" bf16-ddp fp16-ddp
n_wanted=$n_steps

# The comparison can fail: what is not promised to be the same is not.
expect_other "another wire has other bits" fp32-full-4-ddp bf16-full-4-ddp
expect_other "another scope has other bits on a narrow wire" bf16-none-4-ddp bf16-full-4-ddp
queue inner reduce_dtype=fp32 accumulation_scope=inner shard_size=4 sharding_strategy=hsdp
queue seed seed=1338 reduce_dtype=fp32 accumulation_scope=none shard_size=4 sharding_strategy=ddp
flush
expect_other "scope inner has other bits" fp32-full-4-hsdp inner
expect_other "another seed has other bits" fp32-none-4-ddp seed
sed '$s/"parameters_digest": "./"parameters_digest": "x/' "$scratch/fp32-none-4-ddp.json" \
    >"$scratch/digest.json"
! same fp32-none-4-ddp digest >"$scratch/said" 2>&1
tap_report $? "other final parameters are told apart" "$scratch/said"
head -n 10 "$scratch/fp32-none-4-ddp.json" >"$scratch/short.json"
! same short short >"$scratch/said" 2>&1
tap_report $? "a run that ended early is told apart" "$scratch/said"

tap_done
