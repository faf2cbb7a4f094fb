#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The training demonstration of the example trainer, with a stand-in for hsdp-run that writes logs.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
calls=$scratch/calls
stage=$scratch/stage
demo=$here/../examples/gpt/train-demo
compare=$here/../examples/gpt/compare.awk
mkdir -p "$stage/bin"

# log_write FILE STEPS LAST SPEED BYTES: a JSON log; the loss falls in a line to LAST at step 60.
log_write() {
    awk -v steps="$2" -v last="$3" -v speed="$4" -v bytes="$5" 'BEGIN {
        for (i = 1; i <= steps; i++) {
            loss = i < 60 ? 5.5 - (5.5 - last) * i / 60 : last
            printf "{\"step\": %d, \"cross_entropy_loss\": %.17g, \"gradient_norm\": 1.5, ", i, loss
            printf "\"step_seconds\": 0.1, \"tokens_per_second\": %.1f, ", speed * i
            printf "\"peak_memory_bytes\": 4096, \"memory\": {\"parameters\": 1234567, "
            printf "\"gradients\": 22, \"optimizer\": 333, \"unsharded\": 0}, "
            printf "\"traffic\": {\"dp_shard\": %d, \"dp\": 8}}\n", bytes
        }
    }' >"$1"
}

# stage_make STATUS-OF-FSDP LAST: an hsdp-run that notes its arguments and writes the log.
stage_make() {
    log_write "$scratch/trained.json" 80 "$2" 100 500
    log_write "$scratch/hsdp.json" 60 "$2" 100 500
    log_write "$scratch/fsdp.json" 60 "$2" 90 900
    cat >"$stage/bin/hsdp-run" <<TEXT
#!/bin/sh
echo "\$*" >>"$calls"
name=hsdp
case "\$*" in *sharding_strategy=fsdp*) name=fsdp ;; esac
while [ "\$1" != --log-json ]; do shift; done
case "\$2" in */trained.json) name=trained ;; esac
cp "$scratch/\$name.json" "\$2"
echo "a line of \$name"
[ \$name != fsdp ] || exit $1
TEXT
    chmod +x "$stage/bin/hsdp-run"
    cp "$stage/bin/hsdp-run" "$stage/bin/hsdp-gpt"
    : >"$calls"
}

# ends NAME STATUS PATTERN COMMAND...: the command ends with STATUS and says PATTERN.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    "$@" >"$output" 2>&1
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "$name" "$output"
}

# says NAME PATTERN [FILE]: the last output, or FILE, has such a line.
says() {
    grep -qE -- "$2" "${3-$output}"
    tap_report $? "$1" "${3-$output}"
}

ends "train-demo: no argument is status 2" 2 '^usage: ' "$demo"
ends "train-demo: a folder that is no stage is status 2" 2 '^usage: ' "$demo" "$scratch"
ends "train-demo: --help is status 0" 0 '^usage: ' "$demo" --help

stage_make 0 2.0
ends "train-demo: a good run is status 0" 0 '^a line of trained' "$demo" "$stage"
says "train-demo: the table has a column for each" '^medians of steps 6 to 60 +fsdp +hsdp$'
says "train-demo: speeds are medians" '^tokens per second +2,970 +3,300$'
says "train-demo: traffic is summed over groups" '^bytes moved per step, rank 0 +908 +508$'
says "train-demo: traffic is told for each group" '^ +in group dp_shard +900 +500$'
says "train-demo: memory is told" '^bytes held, rank 0: parameters +1,234,567 +1,234,567$'
says "train-demo: the fall of the loss is told" '^trained: the loss fell from 5\.4417 to 2\.0000,'
says "train-demo: what a small text leads to is told" 'learn it by heart\.$'
says "train-demo: noise is told" '^On one host, speeds that differ by less than 10 % are equal'
says "train-demo: equal losses are told" '^The losses of steps 1 to 60 are the same, to the last bit'
says "train-demo: hsdp runs on four ranks" '^-n 4 .*/hsdp-gpt --config .*/gpt.yaml' "$calls"
says "train-demo: every tenth step is printed" 'shard_size=2 --set max_steps=300 --set log_interval=10' "$calls"
[ "$(sed 's/.*sharding_strategy=\([a-z]*\) .*/\1/' "$calls" | tr '\n' ' ')" = \
    'hsdp fsdp hsdp fsdp hsdp ' ]
tap_report $? "train-demo: fsdp and hsdp run in turn" "$calls"
says "train-demo: they are shorter" 'sharding_strategy=fsdp .* --set max_steps=60 --set schedule_steps=300' "$calls"

stage_make 0 2.5
ends "train-demo: a loss that stays high is status 1" 1 '^compare: the loss is not below 2.4' \
    "$demo" "$stage"
stage_make 3 2.0
ends "train-demo: a failure of fsdp is status 1, with its last lines" 1 '^a line of fsdp' \
    "$demo" "$stage"

log_write "$scratch/short.json" 5 2.0 100 500
ends "compare: five steps are too few" 1 '^compare: the logs have 5 steps in common; 6 are needed' \
    awk -f "$compare" "$scratch/hsdp.json" "$scratch/short.json"

log_write "$scratch/other.json" 60 2.006 100 500
ends "compare: losses that differ are told by how much" 0 \
    '^The losses of steps 1 to 60 differ by at most 3.0e-03 of their size' \
    awk -f "$compare" "$scratch/hsdp.json" "$scratch/other.json"

ends "compare: a trained run of few steps is refused" 1 'short.json has 5 steps; 20 are needed' \
    awk -v trained="$scratch/short.json" -v least=9 -f "$compare" "$scratch/hsdp.json" "$scratch/hsdp.json"

# Two runs in one file: the first five steps of both are left out, so the median is that of one.
cat "$scratch/hsdp.json" "$scratch/hsdp.json" >"$scratch/twice.json"
ends "compare: the first steps of every run are left out" 0 '^tokens per second +3,300 +3,300$' \
    awk -f "$compare" "$scratch/twice.json" "$scratch/twice.json"

sed '$s/"gradient_norm"/"validation_loss": 3.25, "gradient_norm"/' "$scratch/trained.json" >"$scratch/held.json"
ends "compare: the loss on the held-out text is told" 0 '^it is 3\.2500 on the text that was held out' \
    awk -v trained="$scratch/held.json" -f "$compare" "$scratch/hsdp.json" "$scratch/fsdp.json"

tap_done
