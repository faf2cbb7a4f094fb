#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The example trainer as its user meets it: what it prints, how it refuses, every kind of setting.
#
# The environment names the programs: HSDP_RUN, HSDP_GPT, HSDP_TEST_PLUGIN.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
log=$scratch/log.json
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "%c", 97 + i * i % 23 }' >"$scratch/text"
cat >"$scratch/gpt.yaml" <<TEXT
plugin: $HSDP_TEST_PLUGIN
dataset: $scratch/text
num_layers: 1
hidden_size: 16
num_attention_heads: 2
sequence_length: 16
micro_batch_size: 2
global_batch_size: 16
max_steps: 4
warmup_steps: 0
validation_interval: 2
TEXT

# gpt RANKS OPTION...: one run; RANKS 0 is without a launcher.
gpt() {
    ranks=$1
    shift
    set -- "$HSDP_GPT" --config "$scratch/gpt.yaml" "$@"
    if [ "$ranks" -gt 0 ]; then
        set -- "$HSDP_RUN" --quiet --timeout 30 -n "$ranks" "$@"
    fi
    "$@" >"$output" 2>&1
}

# ends NAME STATUS PATTERN RANKS OPTION...: a run ends with STATUS and says PATTERN.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    gpt "$@"
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "hsdp-gpt: $name" "$output"
}

# says NAME PATTERN COUNT [FILE]: COUNT lines of the last output, or of FILE, match.
says() {
    [ "$(grep -cE -- "$2" "${4-$output}")" -eq "$3" ]
    tap_report $? "hsdp-gpt: $1" "${4-$output}"
}

# parts FILE: on each line the three parts of a step are there, and together they are the step, but
# for what rounding to microseconds takes; communication and optimizer took some time.
parts() {
    awk '
    function number_of(key,    at) {
        at = index($0, "\"" key "\": ")
        return at == 0 ? -1 : substr($0, at + length(key) + 4) + 0
    }
    {
        whole = number_of("step_seconds")
        compute = number_of("compute_seconds")
        communication = number_of("communication_seconds")
        optimizer = number_of("optimizer_seconds")
        gap = whole - compute - communication - optimizer
        if (compute <= 0 || communication <= 0 || optimizer <= 0 || gap > 3e-6 || gap < -3e-6) {
            exit failed = 1
        }
    }
    END { exit failed || NR == 0 }' "$1"
}

# parts_add_up WHEN FILE
parts_add_up() {
    parts "$2"
    tap_report $? "hsdp-gpt: the parts of a step are all of it, $1" "$2"
}

if [ ! -x "$HSDP_GPT" ]; then
    tap_skip "the example trainer" "hsdp-gpt is not built"
    tap_done
    exit
fi

ends "--help lists the keys" 0 '^ +sequence_length +positions of a sample; 1 to 65536 \[128\]' 0 --help
export HSDP_PLUGIN="$HSDP_TEST_PLUGIN"
ends "--help has the plugin's defaults" 0 '^ +slots +units that may be unsharded at a time \[2\]' 0 --help
export HSDP_PLUGIN=/nowhere/hsdp.so
ends "--help says why it has none" 0 "^The plugin's defaults are not shown: .*/nowhere/hsdp.so" 0 --help
unset HSDP_PLUGIN
ends "--version is one line" 0 '^hsdp-gpt \(libhsdp\) [0-9]' 0 --version

stamp='^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} \| INFO'
ends "trains without a launcher" 0 "$stamp \| libhsdp .* \| ranks 1 " 0 --log-json "$log"
says "prints one line a step" \
    "$stamp \| step [0-9]{8}/00000004 \| step-time [0-9.]+ sec \| communication-time [0-9.]+ sec \| optimizer-time [0-9.]+ sec \| cross-entropy-loss [0-9.]+ \| learning-rate [0-9.e+-]+ \| gradient-norm [0-9.]+ \| tokens-per-second [0-9,]+ \| peak-memory [0-9.]+ GB\$" 4
says "prints validation losses" "$stamp \| step 0000000[24]/00000004 \| validation-loss [0-9.]+\$" 2
says "prints the digest of the last parameters" \
    "$stamp \| step 00000004/00000004 \| parameters-digest [0-9a-f]{16}\$" 1
says "logs it with the last step" '"step": 4, .*"parameters_digest": "[0-9a-f]{16}"' 1 "$log"
sed '3s/"communication_seconds": 0/"communication_seconds": 1/' "$log" >"$scratch/more.json"
! parts "$scratch/more.json"
tap_report $? "hsdp-gpt: parts that are more than the step are told apart" "$scratch/more.json"
sed '2s/"optimizer_seconds": [0-9.]*, //' "$log" >"$scratch/less.json"
! parts "$scratch/less.json"
tap_report $? "hsdp-gpt: a part that is missing is told apart" "$scratch/less.json"
says "logs one object a step" '^\{"step": [1-4], .*"traffic": \{.*\}\}$' 4 "$log"
parts_add_up "alone" "$log"
ends "trains on four ranks" 0 "$stamp \| libhsdp .* \| ranks 4 " 4 --log-json "$log"
parts_add_up "on four ranks" "$log"
says "prints on rank 0 only" 'cross-entropy-loss' 4

for setting in param_dtype=bf16 param_dtype=fp16 gradient_dtype=bf16 reduce_dtype=bf16 slots=1 \
    slots=3 verify=access verify=wrap,step:2 position=learned shard_size=1 max_grad_norm=0 \
    weight_decay=0 accumulation_scope=inner master_dtype=bf16 cpu_path=plain; do
    ends "trains with $setting" 0 'step 00000004/00000004 .*cross-entropy-loss [0-9]' 2 \
        --set sharding_strategy=hsdp --set $setting
done

ends "prints every n-th line, the first and the last" 0 "$stamp \| step 00000001/" 1 \
    --set log_interval=3 --log-json "$log"
says "prints no other line" 'cross-entropy-loss' 3
says "logs all steps nevertheless" '^\{"step": [1-4], ' 4 "$log"
ends "tells what the settings have become" 0 \
    '\| shard-size 2 \| param-dtype bf16 \| accumulation-scope full \| slots 3 \|' 4 \
    --set sharding_strategy=hsdp --set shard_size=2 --set param_dtype=bf16 --set slots=7 \
    --set accumulation_scope=full --set slots=3
says "puts what the plugin tells into its log" "$stamp \| job \"default\": rank 0 of 4 " 1

for strange in 'sharding_strategy=FSDP' 'sharding_strategy=hsdp ' 'sharding_strategy=' \
    'shard_size=3' 'shard_size=0' 'param_dtype=fp8' 'slots=65' 'replicate_dims=foo' 'backend=tcp' \
    'nccl_timeout_seconds=30s' 'accumulation_scope=outer' 'num_layers=0' \
    'hidden_size=15' 'seed' 'shardingstrategy=x'; do
    ends "refuses --set '$strange'" 2 '^hsdp-gpt: rank 0: .{20}' 4 --set "$strange"
    says "refuses --set '$strange' in one sentence" '^hsdp-gpt' 1
done
ends "refuses a kind of device that is none" 2 'device: "gpu" is not allowed; cpu\|cuda is' 1 --set device=gpu
ends "refuses a driver that is not there" 2 \
    '^hsdp-gpt: .*device cuda needs the driver /nowhere/libcuda.so.1: ' 1 \
    --set device=cuda --set cuda_library=/nowhere/libcuda.so.1
ends "refuses a driver that is none" 2 \
    '^hsdp-gpt: .*the driver libc.so.6 has no cu[A-Z]' 1 --set device=cuda --set cuda_library=libc.so.6
for strange in 'dataset=/nowhere/text' 'plugin=/nowhere/hsdp.so' 'global_batch_size=12'; do
    ends "refuses --set '$strange'" 2 '^hsdp-gpt: rank 0: .{20}' 4 --set "$strange"
    says "refuses --set '$strange' on every rank" '^hsdp-gpt: rank [0-3]: .*(/nowhere/|global_batch_size 12 )' 4
done
# a rank that fails alone says why, though it is not rank 0
# shellcheck disable=SC2016
for own in 'set -- "$@" --set dataset=/nowhere/text' 'set -- "$@" --set plugin=/nowhere/hsdp.so' \
    'export HSDP_SLOTS=0' 'export WORLD_SIZE=5 LOCAL_WORLD_SIZE=5' 'cd /; set -- "$1" --config nowhere.yaml'; do
    "$HSDP_RUN" --quiet --grace 1 --timeout 30 -n 4 sh -c "
        if [ \$RANK = 2 ]; then $own; fi; exec \"\$@\"" - \
        "$HSDP_GPT" --config "$scratch/gpt.yaml" >"$output" 2>&1
    [ $? -eq 2 ] && [ "$(grep -cE '^hsdp-gpt: rank 2: .{20}' "$output")" -eq 1 ]
    tap_report $? "hsdp-gpt: rank 2 alone says why it fails: $own" "$output"
done
echo 'slots: 0' >>"$scratch/gpt.yaml"
ends "names the line of a setting of the plugin" 2 '/gpt\.yaml:12: slots: "0" ' 4
sed -i '/^slots/d' "$scratch/gpt.yaml"
export HSDP_SLOTS=0
ends "names the variable of a setting of the plugin" 2 'HSDP_SLOTS' 4
unset HSDP_SLOTS
ends "refuses a log that cannot be written" 2 \
    '^hsdp-gpt: rank 0: --log-json /nowhere/log: cannot be written: No such file' 4 \
    --log-json /nowhere/log
says "refuses it in one sentence" '^hsdp-gpt' 1
ends "a log that becomes full ends the run" 1 'the JSON log cannot be written' 2 --log-json /dev/full
says "says in one sentence why the job failed" '^hsdp-gpt: rank 0: .*the JSON log cannot be written' 1
says "says so on the other rank, too" '^hsdp-gpt: rank 1: .*the JSON log cannot be written' 1
"$HSDP_RUN" --quiet -n 2 "$HSDP_GPT" --config "$here/../examples/gpt/gpt.yaml" \
    --set "plugin=$HSDP_TEST_PLUGIN" --set "dataset=$here/check_gpt_train.sh" --set sequence_length=8 \
    --set max_steps=1 >"$output" 2>&1
tap_report $? "hsdp-gpt: the example configuration runs on two ranks" "$output"
export RANK=2 WORLD_SIZE=2
ends "refuses a rank outside of the world" 2 '^hsdp-gpt: .*WORLD_SIZE' 0

tap_done
