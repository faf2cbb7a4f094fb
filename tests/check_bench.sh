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

timeout 60 "$bench/bench-kernels" -n 5000 -r 2 -o "$scratch/kernels.part" >"$output" 2>&1 &&
    grep -q '^a sum of 2 *plain *[0-9.]* ' "$output" &&
    grep -q '^{"kernel":"sum_2","path":"plain","elems":5008,"ns_per_elem":[0-9.]*,' "$scratch/kernels.part" &&
    grep -q '^{"kernel":"adamw_copy",.*"limit_ns_per_elem":[0-9.]*}$' "$scratch/kernels.part"
tap_report $? "bench-kernels: every kernel is measured, and the part has all" "$output"

! timeout 60 "$bench/bench-kernels" -r 0 >"$output" 2>&1 && grep -q 'a number from 1' "$output"
tap_report $? "bench-kernels: no rounds are refused" "$output"

HSDP_PLUGIN=$HSDP_TEST_PLUGIN timeout 60 "$bench/bench-step" -n 5000 -s 200 -r 2 \
    -R "$scratch/rows-step.part" -o "$scratch/step.part" >"$output" 2>&1 &&
    grep -q '^ *reading and writing as many bytes  *[0-9]' "$output" &&
    grep -q '^{"op":"step","dtype":"fp32","ranks":1,"bytes":140000,"ours_us":[0-9.]*,' \
        "$scratch/rows-step.part" &&
    grep -q '"dtype":"bf16",.*"limit_us":[0-9.]*,"share_of_limit":[0-9.]*}$' \
        "$scratch/rows-step.part" &&
    grep -q '^{"params":200,"units":200,.*"step_us":[0-9.]*}$' "$scratch/step.part" &&
    grep -q '^{"params":200,"units":2,' "$scratch/step.part" &&
    grep -q '^{"norm":"plain","ns_per_elem":[0-9.]*}$' "$scratch/step.part"
tap_report $? "bench-step: large and small shards are stepped, and the parts say so" "$output"

! timeout 60 "$bench/bench-step" -n 1e6 >"$output" 2>&1 && grep -q 'a number from 1' "$output"
tap_report $? "bench-step: what is no number is refused" "$output"

rm -f "$scratch/flight.part" "$scratch/step.part" "$scratch/rows-step.part"
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

timeout 60 "$bench/bench-plan" -n 200 -r 2 -o "$scratch/plan.part" >"$output" 2>&1 &&
    [ "$(grep -c '^[a-z0-9]* *[0-9]* *\(none\|rows\|odd rows\) [ 0-9.]*$' "$output")" -eq 14 ] &&
    grep -q '^{"kind":"plan","strategy":"fsdp","params":200,"units":20,"blocks":"none","ranks":1000000,' \
        "$scratch/plan.part" &&
    grep -q '^{"kind":"mesh","ranks":1000000,.*"index_ns":[0-9.]*}$' "$scratch/plan.part"
tap_report $? "bench-plan: every kind is measured, and the part has all" "$output"
mkdir "$scratch/host"
mv "$scratch/plan.part" "$scratch/host"

! timeout 60 "$bench/bench-plan" -n 0 >"$output" 2>&1 && grep -q 'a number from 1' "$output"
tap_report $? "bench-plan: no parameters are refused" "$output"

# trainer_ends NAME PATTERN STATUS OPTION...: a small run ends with STATUS and says PATTERN.
trainer_ends() {
    name=$1
    pattern=$2
    wanted=$3
    shift 3
    HSDP_PLUGIN=$HSDP_TEST_PLUGIN timeout 120 "$here/../bench/trainer" "$@" >"$output" 2>&1
    [ $? -eq "$wanted" ] && grep -q -- "$pattern" "$output"
    tap_report $? "trainer: $name" "$output"
}

trainer_ends "no rounds are refused" 'a number from 1' 2 -r 0
env HSDP_GPT=/nowhere/hsdp-gpt "$here/../bench/trainer" -o "$scratch/trainer.object" >"$output" 2>&1 &&
    grep -qx '{"skipped":"hsdp-gpt is not built"}' "$scratch/trainer.object"
tap_report $? "trainer: without hsdp-gpt the object says why" "$output"
if [ -x "$HSDP_GPT" ]; then
    small='num_layers=1 hidden_size=16 num_attention_heads=2 sequence_length=16 micro_batch_size=2
        global_batch_size=4'
    # shellcheck disable=SC2086 # settings have no blanks
    trainer_ends "two rounds are measured" '^hsdp, 2 ranks ' 0 -r 2 -s 2 \
        -o "$scratch/trainer.object" $small
    tr -d '\n' <"$scratch/trainer.object" >"$output"
    grep -q '^{"speedup_2_ranks":[0-9.]*,.*"rounds":2,.*"hidden_size":16,.*"runs":\[{.*}\]}$' "$output"
    tap_report $? "trainer: the object has the speedup and what was run" "$output"
    [ "$(grep -o '"ranks":[12],"tokens_per_second":[0-9.]*,"[^}]*_share"' "$output" | wc -l)" -eq 3 ]
    tap_report $? "trainer: the object has every run" "$output"
    trainer_ends "a run that fails is told" 'hidden_size' 1 -r 1 -s 1 hidden_size=15
else
    tap_skip "trainer: a small run" "hsdp-gpt is not built"
fi

# log_write FILE LOSS: the log of two runs of three steps.
log_write() {
    for step in 1 2 3 1 2 3; do
        printf '{"step": %d, "cross_entropy_loss": %s, "step_seconds": 0.1, ' $step "$2"
        printf '"compute_seconds": 0.07, "communication_seconds": 0.02, "optimizer_seconds": 0.01, '
        printf '"tokens_per_second": %d}\n' $((step * 100))
    done >"$1"
}

# figures NAME STATUS PATTERN: trainer.awk on the logs of $scratch/logs ends with STATUS and says PATTERN.
figures() {
    (
        cd "$scratch/logs" &&
            awk -v n_warm_up=2 -f "$here/../bench/trainer.awk" gpt.yaml hsdp-1.json hsdp-2.json
    ) >"$output" 2>&1
    [ $? -eq "$2" ] && grep -q "$3" "$output"
    tap_report $? "trainer: $1" "$output"
}

mkdir "$scratch/logs"
echo 'num_layers: 1' >"$scratch/logs/gpt.yaml"
log_write "$scratch/logs/hsdp-1.json" 2.5
log_write "$scratch/logs/hsdp-2.json" 2.5000001
sed -i 's/"tokens_per_second": 300/"tokens_per_second": 600/' "$scratch/logs/hsdp-2.json"
figures "only steps after the warm-up count" 0 '^hsdp, 2 ranks *600 *600 to 600 *2\.000 .* 70.0% *20.0% *10.0%$'
cp "$scratch/logs/trainer.object" "$scratch/host"
log_write "$scratch/logs/hsdp-2.json" 2.6
figures "runs that learn something else are refused" 1 'hsdp-2.json learned something else'
head -n 3 "$scratch/logs/hsdp-1.json" >"$scratch/logs/hsdp-2.json"
figures "a run that is missing is told" 1 'hsdp-2.json has 1 runs'
sed 's/"compute_seconds"/"compute"/' "$scratch/logs/hsdp-1.json" >"$scratch/logs/hsdp-2.json"
figures "a figure that is missing is told" 1 'hsdp-2.json has no compute_seconds'

echo '{"op":"unshard","dtype":"fp32","ranks":2,"bytes":65536,"ours_us":1,"limit_us":null}' >"$scratch/host/rows.part"
cat >"$scratch/host/step.part" <<TEXT
{"params":10000,"units":100,"pass_us":1500.0,"begin_us":20.0,"adamw_us":300.0,"end_us":4.0,"step_us":324.0}
{"norm":"plain","ns_per_elem":0.471}
{"norm":"avx2","ns_per_elem":0.169}
TEXT
echo '{"kernel":"norm_2","path":"plain","ns_per_elem":0.5}' >"$scratch/host/kernels.part"
"$here/../bench/collect" "$scratch/host" >"$output" 2>&1 &&
    "$here/../bench/report" -m "$scratch/host/results.json" >"$output" 2>&1 &&
    grep -q '^| hsdp | 2 | 600 | 600 to 600 | 2.00 | 2.00 to 2.00 | 70.0 % | 20.0 % | 10.0 % |$' "$output" &&
    [ "$(grep -c '^| [a-z0-9]* | \(none\|rows\|odd rows\) | [0-9,]* | [0-9.]* ms |' "$output")" -eq 14 ] &&
    grep -q '^A mesh of 1,000,000 ranks ([0-9]* bytes) answers in [0-9.]* ns' "$output"
tap_report $? "report: training and planning are tables of the page" "$output"
grep -q '^| 10,000 | 100 | 1.50 ms | 20.0 us | 300 us | 4.00 us | 324 us |$' "$output" &&
    grep -q '^The exact norm takes, in ns an element: 0.47 plain, 0.17 avx2\.$' "$output"
tap_report $? "report: small parameters and the norm are on the page" "$output"

tap_done
