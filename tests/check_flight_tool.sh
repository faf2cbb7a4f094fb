#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hsdp-flight on what a failed run has left, on folders without a use, and on broken files.
#
# The environment names the programs: HSDP_RUN, HSDP_GPT, HSDP_FLIGHT, HSDP_TEST_PLUGIN.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
files=$scratch/files
unset HSDP_FLIGHT_DIR

if [ ! -x "$HSDP_FLIGHT" ]; then
    tap_skip "hsdp-flight" "it is not built"
    tap_done
    exit
fi

# ends NAME STATUS PATTERN OPTION...: the exit status, and a line of what it prints.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    "$HSDP_FLIGHT" "$@" >"$output" 2>&1
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "hsdp-flight: $name" "$output"
}

# says NAME PATTERN: a line of the last output.
says() {
    grep -qE -- "$2" "$output"
    tap_report $? "hsdp-flight: $1" "$output"
}

# -------------------------------------------------------------------------------- by hand

# op NUMBER STATE OPERATION GROUP UNIT SEQUENCE ISSUE END: an operation, as a rank writes it.
op() {
    printf '{"number":%s,"state":"%s","operation":"%s","group":"%s","unit":"%s","sequence":%s,' \
        "$1" "$2" "$3" "$4" "$5" "$6"
    printf '"ticket":%s,"bytes":8,"issue_ns":%s,"start_ns":%s,"end_ns":%s}' "$1" "$7" "$7" "$8"
}

# file RANK STATE WHERE OPERATIONS [JOB [IDENTITY [HOST [OFFSET]]]]
file() {
    cat <<TEXT
{"format":"hsdp-flight","version":1,"job":"${5-default}","identity":"${6-1}","host":"${7-here}",
"world_ranks":3,"written_by":$1,"state":"$2","wall_offset_ns":${8-1000000},
"failure":{"has_failed":true,"status":"TIMEOUT","reported_by":0,"message":"no sign of rank 2",
"operation":"barrier","group":"dp","unit":"","sequence":2,"ticket":2,"waited_ms":9,
"n_missing_ranks":1,"missing_ranks":[2]},
"groups":[{"name":"dp","ranks":[0,1,2]}],"rank":$1,"now_ns":90000,"position":$3,
"n_operations":2,"operations":[$4]}
TEXT
}

outside='{"where":"outside","call":"","phase":"compile"}'
waits='{"where":"waits","call":"job.ticket_wait","phase":"","operation":"barrier","group":"dp",
"unit":"","sequence":2,"since_ns":20000,"waits_for":[2]}'
first=$(op 1 done barrier dp "" 1 10000 15000)
second=$(op 2 started barrier dp "" 2 20000 0)

# folder: three files of a barrier that rank 2 does not come to.
folder() {
    rm -rf "$files"
    mkdir "$files"
    file 0 alive "$waits" "$first,$second" >"$files/flight-default-0.json"
    file 1 alive "$waits" "$first,$second" >"$files/flight-default-1.json"
    file 2 stopped "$outside" "$first" >"$files/flight-default-2.json"
}

folder
ends "a timeout has its sentence" 0 '^  no sign of rank 2$' "$files"
says "it names the operation" '^barrier of group "dp", sequence 2$'
says "it says who arrived" '^  arrived: 0, 1$'
says "it says who did not" '^  did not arrive: 2$'
says "a rank that waits is in the table" '^0 .* alive .* waits in barrier of group "dp", sequence 2 for rank 2 '
says "so is a stopped one" '^2 .* stopped .* outside of calls, phase "compile" .* barrier of group "dp", sequence 1  *-$'
[ "$(grep -c difference "$output")" -eq 0 ]
tap_report $? "hsdp-flight: ranks that agree differ in nothing" "$output"

other=$(op 2 started all_reduce dp "" 2 20000 0)
file 1 alive "$waits" "$first,$other" >"$files/flight-default-1.json"
ends "ranks that disagree are named" 0 '^first difference in the collectives of group "dp", sequence 2:$' "$files"
says "with what the first did" '^  rank 0: barrier of group "dp", sequence 2$'
says "and what the other did" '^  rank 1: all_reduce of group "dp", sequence 2$'

folder
ends "JSON has the same" 0 '"not_arrived": \[$' --json "$files"
if command -v python3 >/dev/null; then
    "$HSDP_FLIGHT" --json "$files" | python3 -c 'import json, sys
summary = json.load(sys.stdin)
assert summary["arrived"] == [0, 1] and summary["not_arrived"] == [2], summary
assert [rank["state"] for rank in summary["ranks"]] == ["alive", "alive", "stopped"], summary
assert summary["n_files"] == 3 and summary["n_skipped"] == 0, summary' >"$output" 2>&1
    tap_report $? "hsdp-flight: and is JSON" "$output"
else
    tap_skip "hsdp-flight: and is JSON" "no python3"
fi

# Two operations of one group that cross, and a rank whose clock is another.
crossing=$(op 2 done reduce dp b.1 1 20000 40000),$(op 3 done reduce dp b.0 2 30000 50000)
file 1 alive "$waits" "$first,$crossing" default 2 there -4000 >"$files/flight-default-1.json"
ends "a trace is written" 0 '^job "default"' --trace="$scratch/trace" "$files"
if command -v python3 >/dev/null; then
    python3 - "$scratch/trace" >"$output" 2>&1 <<'PYTHON'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
complete = [event for event in events if event["ph"] == "X"]
assert {event["pid"] for event in complete} == {0, 1, 2}, complete
names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
         if event["name"] == "thread_name"}
assert names == {(0, 1): "dp", (1, 1): "dp", (1, 2): "dp (2)", (2, 1): "dp"}, names
for one in complete:
    assert one["ts"] >= 0 and one["dur"] >= 0 and one["cat"], one
    for other in complete:
        if one is not other and (one["pid"], one["tid"]) == (other["pid"], other["tid"]):
            assert one["ts"] + one["dur"] <= other["ts"] or other["ts"] + other["dur"] <= one["ts"]
barriers = {event["pid"]: event for event in complete if event["args"]["number"] == 1}
assert barriers[1]["ts"] == 0 and barriers[0]["ts"] == 1004, barriers
assert barriers[0]["dur"] == 5, barriers
opened = [event for event in complete if event["args"]["state"] == "started"]
assert [event["dur"] for event in opened] == [70], opened
PYTHON
    tap_report $? "hsdp-flight: it has tracks, clocks and times" "$output"
else
    tap_skip "hsdp-flight: it has tracks, clocks and times" "no python3"
fi
ends "a trace that cannot be written is an error" 1 'cannot write /nowhere/trace: No such file' \
    --trace=/nowhere/trace "$files"

# ----------------------------------------------------------------------------- bad inputs

folder
ends "a folder that is not there" 1 'cannot read the folder /nowhere: No such file' /nowhere
ends "a file in place of a folder" 1 'cannot read the folder .*: Not a directory' "$files/flight-default-0.json"
mkdir "$scratch/empty"
ends "an empty folder" 1 'has no flight file that can be used' "$scratch/empty"
ends "no folder at all" 2 'no folder is given'
ends "two folders" 2 'more than one folder' "$files" "$files"
ends "an unknown option" 2 'hsdp-flight --help tells more' --fly "$files"
ends "a job that is not there" 1 'no flight file of a job "other"' --job=other "$files"

# broken NAME PATTERN: rank 1's file is what lies in $made; it is skipped, the rest is told.
made=$scratch/made
broken() {
    folder
    cp "$made" "$files/flight-default-1.json"
    ends "$1" 3 "skipping .*/flight-default-1.json: $2" "$files"
    says "$1: the others are read" '^job "default": 2 of 3 ranks left a file$'
    says "$1: its rank is without a file" '^  without a file: 1$'
}

file 1 alive "$waits" "$first" >"$scratch/whole"
head -c 300 "$scratch/whole" >"$made"
broken "a file that is cut off" 'premature end of input'
: >"$made"
broken "an empty file" "'\[' or '\{' expected near end of file"
echo '{"rank": 1, "operations": []}' >"$made"
broken "a file of something else" 'no flight file: "format"'
sed 's/"version":1/"version":2/' "$scratch/whole" >"$made"
broken "a file of another version" 'of another version'
sed 's/"rank":1/"rank":3/' "$scratch/whole" >"$made"
broken "a rank beyond the world" 'no flight file: rank, world_ranks'
file 1 alive "$waits" '{"number":"one"}' >"$made"
broken "an operation without a number" 'no flight file: an operation'
file 1 alive "$waits" "$first" default 7 | sed 's/"now_ns":90000/"now_ns":80000/' >"$scratch/old"
folder
cp "$scratch/old" "$files/flight-default-1.json"
ends "a file of an earlier run is skipped" 3 'skipping rank 1: its file is of an earlier run' "$files"

folder
file 0 alive "$waits" "$first" other >"$files/flight-other-0.json"
ends "files of two jobs ask for one" 2 'choose one with --job' "$files"
ends "one of them can be chosen" 0 '^job "other": 1 of 3 ranks left a file$' --job=other "$files"
head -c 100000 /dev/urandom >"$files/flight-x-1.json"
ends "garbage is skipped" 3 'skipping .*flight-x-1.json: ' --job=default "$files"
folder
file 2 died "$outside" "$first,{\"number\":2,\"state\":\"torn\"}" >"$files/flight-default-2.json"
ends "a torn record is no operation" 0 '^2 .* died .* a torn record \(torn\)$' --trace="$scratch/trace" "$files"
ends "help" 0 '^Exit status: 0 when all files were read' --help
ends "version" 0 '^hsdp-flight \(libhsdp\) [0-9]' --version

# ---------------------------------------------------------------------------- a real run

if [ ! -x "$HSDP_GPT" ]; then
    tap_skip "hsdp-flight: a run with a stopped rank" "hsdp-gpt is not built"
    tap_done
    exit
fi
rm -rf "$files"
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "%c", 97 + i * i % 23 }' >"$scratch/text"
cat >"$scratch/gpt.yaml" <<TEXT
plugin: $HSDP_TEST_PLUGIN
dataset: $scratch/text
num_layers: 1
hidden_size: 16
num_attention_heads: 2
sequence_length: 16
micro_batch_size: 2
global_batch_size: 6
max_steps: 1000000
validation_interval: 1000000
TEXT
HSDP_FLIGHT_DIR="$files" HSDP_NCCL_TIMEOUT_SECONDS=2 "$HSDP_RUN" --quiet --timeout 60 -n 3 \
    sh -c "echo \$\$ >'$scratch/pid.'\$RANK; exec \"\$0\" --config '$scratch/gpt.yaml'" "$HSDP_GPT" \
    >"$scratch/gpt" 2>&1 &
run=$!
for _ in $(seq 300); do
    grep -q '| step 0' "$scratch/gpt" && break
    sleep 0.1
done
kill -STOP "$(cat "$scratch/pid.1")"
wait $run
ends "a run with a stopped rank" 0 '^TIMEOUT, reported by rank [02]:$' "$files"
says "all ranks are there" '^job "default": 3 of 3 ranks left a file$'
says "the sentence says that it is stopped" 'rank 1, which is stopped$'
says "the table, too" '^1 .* stopped '
ends "its trace" 0 '^job' --trace="$scratch/trace" "$files"
grep -q '"name":"reduce ' "$scratch/trace" && grep -q '"name":"unshard ' "$scratch/trace"
tap_report $? "hsdp-flight: its trace has reductions and unshards" "$output"

tap_done
