#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bench of collectives: each contender runs, what is wrong is found, and figures become tables.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
programs=$(cd "$HSDP_TEST_BUILDDIR/../bench" && pwd)
scripts=$here/../bench
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
output=$scratch/output
HSDP_PLUGIN=$HSDP_TEST_PLUGIN
export HSDP_PLUGIN

# json_is_whole NAME FILE
json_is_whole() {
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$2" >"$output" 2>&1
        tap_report $? "$1" "$output"
    else
        tap_skip "$1" "python3 is not there"
    fi
}

# ------------------------------------------------------------------------------- contenders

mpi_launcher() {
    echo "mpirun --oversubscribe --bind-to none -n 2"
    [ "$(id -u)" -ne 0 ] || echo --allow-run-as-root
}

mpi_try() {
    # shellcheck disable=SC2046 # words of a command
    timeout 60 $(mpi_launcher) true </dev/null >"$output" 2>&1
}

# contend NAME OPTION...: a small run on 2 ranks; its lines are in $scratch/lines.
contend() {
    contender=$1
    shift
    rm -rf "$scratch/run" "$scratch/lines"
    mkdir "$scratch/run"
    : >"$scratch/run/meeting"
    launcher="$HSDP_RUN --quiet -n 2 --"
    if [ "$contender" = mpi ]; then
        launcher=$(mpi_launcher)
    fi
    # shellcheck disable=SC2086 # the launcher's options
    timeout 60 $launcher "$programs/bench-$contender" -m "$scratch/run/meeting" -b 65536 -t 1 \
        -o "$scratch/lines" "$@" </dev/null >"$output" 2>&1
}

# contender_check NAME N_LINES N_ROWS: lines of all rows, some in several ways; what is wrong is found.
contender_check() {
    contend "$1" && [ "$(wc -l <"$scratch/lines")" -eq "$2" ] &&
        [ "$(cut -f 3-6 "$scratch/lines" | sort -u | wc -l)" -eq "$3" ]
    tap_report $? "$1: every row is measured" "$output"
    ! contend "$1" -x && grep -q '^bench-[a-z]*: wrong elements: 1, the first is' "$output"
    tap_report $? "$1: an element that is wrong is found" "$output"
    [ ! -s "$scratch/lines" ]
    tap_report $? "$1: and is no measurement" "$scratch/lines"
}

contender_check ours 10 6
n_ways=1
if grep -q avx2 /proc/cpuinfo; then
    n_ways=2
fi
if grep -q avx512vl /proc/cpuinfo && grep -q avx512dq /proc/cpuinfo; then
    n_ways=4
fi
contender_check bus $((4 * n_ways)) 4
if [ ! -x "$programs/bench-mpi" ] || ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    tap_skip "mpi: every row is measured" "without Open MPI"
elif ! mpi_try; then
    tap_skip "mpi: every row is measured" "mpirun starts nothing here"
else
    contender_check mpi 10 6
fi
if [ -x "$programs/bench-gloo" ]; then
    contender_check gloo 6 6
else
    tap_skip "gloo: every row is measured" "without gloo"
fi

# refuses NAME PATTERN COMMAND...: fails, with a sentence.
refuses() {
    name=$1
    pattern=$2
    shift 2
    ! "$@" >"$output" 2>&1 && grep -q -- "$pattern" "$output"
    tap_report $? "$name" "$output"
}

contend bus -c 1
tap_report $? "bus: ranks that share a core" "$output"
refuses "harness: what is no number" 'a number up to' contend bus -t soon
refuses "harness: an option that is none" 'usage: -m file' contend bus -q
refuses "harness: no file to meet in" '-m says no file' "$programs/bench-bus" -t 1
refuses "harness: no cores" 'or -c no cores' contend bus -c 0
refuses "harness: no launcher" 'neither RANK nor' env -u RANK "$programs/bench-bus" -m "$scratch/none"
refuses "harness: ranks that cannot share" 'cannot share a power of two' timeout 60 "$HSDP_RUN" -q \
    -n 3 -- "$programs/bench-bus" -m "$scratch/run/meeting"

# ---------------------------------------------------------------------------- all of them

# A folder with ours and the bus alone, and peers that are played.
mkdir "$scratch/build" "$scratch/bin"
ln -s "$programs/bench-ours" "$programs/bench-bus" "$scratch/build"

# measure OPTION...: one small round, on 2 ranks.
measure() {
    timeout 200 "$scripts/collectives" -r 1 -n 2 -b 65536 -t 1 -f reduce_scatter "$@" \
        "$scratch/build" </dev/null >"$output" 2>&1
}

BENCH_NO_MPI='no Open MPI (mpicc) at configure' BENCH_NO_GLOO='no gloo at configure' measure
tap_report $? "collectives: without peers they are measured" "$output"
grep -qx 'skipped: mpi: no Open MPI (mpicc) at configure' "$output"
tap_report $? "collectives: it is said why a peer is left out" "$output"
part=$scratch/build/rows-collectives.part
grep -q '"peer":"openmpi","peer_us":null,"ratio":null,"skipped":"no Open MPI (mpicc) at configure"}$' \
    "$part" && grep -q '"peer":"gloo",.*"skipped":"no gloo at configure"}$' "$part"
tap_report $? "collectives: the rows say it, too" "$part"
[ "$(grep -c '"ours_us":[0-9.]*,"with_norm_us":[0-9.]*,"limit_us":[0-9.]*,"limit":"[a-z0-9 ]*","share_of_limit":[0-9.]*,' \
    "$part")" -eq 4 ]
tap_report $? "collectives: what is ours, and the bus, is in every row" "$part"
! ls -d "$scratch/build"/collectives.* >"$output" 2>&1
tap_report $? "collectives: nothing else is left" "$output"

# An mpirun that runs what it is given, and a peer that is as PLAYED says.
cat >"$scratch/bin/mpirun" <<'TEXT'
#!/bin/sh
if [ "$1" = --version ]; then
    echo 'mpirun (Open MPI) 4'
    exit
fi
while [ "$1" != ./bench-mpi ]; do
    options="$options $1"
    shift
done
OPTIONS=$options exec "$@"
TEXT
cat >"$scratch/build/bench-mpi" <<'TEXT'
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    -o) lines=$2 ;;
    -s) setting=$2 ;;
    esac
    shift
done
case $PLAYED:$setting in
slow:*) echo $$ >slow.pid && exec sleep 100 ;;
wrong:*) echo 'bench-mpi: wrong elements: 1, the first is 7: 1 instead of 2' && exit 1 ;;
*:ucx) echo 'pml ucx is not there' && exit 1 ;;
*:ring) time=0.5 ;;
*) time=800 ;;
esac
case $GLIBC_TUNABLES in
*mmap_max=0*hugetlb=1*) printf 'mpi\t%s\treduce_scatter\tfp32\t2\t65536\t%s\t%s\n' "$setting" $time $time >"$lines" ;;
esac
TEXT
chmod +x "$scratch/bin/mpirun" "$scratch/build/bench-mpi"
PATH=$scratch/bin:$PATH
export PATH PLAYED

PLAYED=right
measure -o "$scratch/other.part"
tap_report $? "collectives: a setting that does not run is no failure" "$output"
grep -qx 'skipped: mpi: ucx on 2 ranks: pml ucx is not there' "$output"
tap_report $? "collectives: but is told" "$output"
grep -q '"peer":"openmpi (ring)","peer_us":0.500,' "$scratch/other.part"
tap_report $? "collectives: of a peer's settings the fastest counts" "$scratch/other.part"
grep -q '"settings":{"default":800.000,"ring":0.500,"halving":800.000,' "$scratch/other.part"
tap_report $? "collectives: and all are in the row" "$scratch/other.part"
PLAYED=wrong
refuses "collectives: a wrong result ends it" 'mpi (default) on 2 ranks has failed' measure

# In a group of its own, as a terminal has it; a shell would have what it starts behind ignore SIGINT.
PLAYED=slow
rm -f "$scratch/build/slow.pid"
timeout 100 "$scripts/collectives" -r 1 -n 2 -b 65536 -t 1 -f reduce_scatter "$scratch/build" \
    </dev/null >"$output" 2>&1 &
measuring=$!
within() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || return 1
        sleep 0.1
    done
}
gone() {
    ! kill -0 "$1" 2>/dev/null
}
within [ -s "$scratch/build/slow.pid" ] && kill $measuring && within gone $measuring &&
    within gone "$(cat "$scratch/build/slow.pid")"
tap_report $? "collectives: a run that is stopped takes its processes along" "$output"
! ls -d "$scratch/build"/collectives.* >"$output" 2>&1
tap_report $? "collectives: and leaves nothing" "$output"
PLAYED=right

refuses "collectives: ours has to run" 'ours on 2 ranks has failed' \
    env HSDP_PLUGIN="$scratch/none.so" "$scripts/collectives" -r 1 -n 2 -b 65536 "$scratch/build"
refuses "collectives: rounds that are no number" '-r 2e1: a number' "$scripts/collectives" -r 2e1 \
    "$scratch/build"
refuses "collectives: a folder without programs" 'usage: collectives' "$scripts/collectives" "$scratch"

# ---------------------------------------------------------------------------------- figures

known=$scratch/known
mkdir "$known"

# Two rounds: 4 and 6 of ours (less with the norm: it still does not count), 20 and 24 of the better setting, 2 and 4 of the bus.
printf 'gloo\tit is "away"\n' >"$known/skipped"
for line in 1,ours,,unshard,4,5 2,ours,,unshard,6,7 1,mpi,a,unshard,20,30 2,mpi,a,unshard,24,32 \
    1,mpi,b,unshard,30,31 2,mpi,b,unshard,31,31 1,ours,,all_reduce,4,4 2,ours,,all_reduce,6,6 \
    1,bus,x,all_reduce,2,2 2,bus,x,all_reduce,4,4 \
    1,ours,norm,all_reduce,1,1 2,ours,norm,all_reduce,3,3; do
    echo "$line" | awk -F , -v OFS='\t' '{ print $1, $2, $3, $4, "fp32", 2, 65536, $5, $6 }'
done >"$known/lines"
awk -f "$scripts/rows.awk" "$known/skipped" "$known/lines" >"$known/rows.part"
cat >"$scratch/wanted" <<'TEXT'
{"op":"unshard","dtype":"fp32","ranks":2,"bytes":65536,"rounds":2,"ours_us":5.000,"first_read_us":6.000,"limit_us":null,"limit":null,"share_of_limit":null,"peer":"openmpi (a)","peer_us":22.000,"ratio":4.400,"ratio_min":4.000,"ratio_max":5.000,"peer_first_read_us":31.000,"settings":{"a":22.000,"b":30.500}}
{"op":"unshard","dtype":"fp32","ranks":2,"bytes":65536,"rounds":2,"ours_us":5.000,"first_read_us":6.000,"limit_us":null,"limit":null,"share_of_limit":null,"peer":"gloo","peer_us":null,"ratio":null,"skipped":"it is \"away\""}
{"op":"all_reduce","dtype":"fp32","ranks":2,"bytes":65536,"rounds":2,"ours_us":5.000,"with_norm_us":2.000,"limit_us":3.000,"limit":"x","share_of_limit":0.600,"peer":"openmpi","peer_us":null,"ratio":null}
{"op":"all_reduce","dtype":"fp32","ranks":2,"bytes":65536,"rounds":2,"ours_us":5.000,"with_norm_us":2.000,"limit_us":3.000,"limit":"x","share_of_limit":0.600,"peer":"gloo","peer_us":null,"ratio":null,"skipped":"it is \"away\""}
TEXT
diff "$scratch/wanted" "$known/rows.part" >"$output"
tap_report $? "rows: medians, ratios and the best setting" "$output"

busy=$("$scripts/busy" 2>"$output") && [ "$busy" -ge 0 ] && [ "$busy" -le 100 ]
tap_report $? "busy: percent" "$output"
CC=${CC:-cc} CFLAGS='-O2 -D"A b"' "$scripts/machine" "$known" >"$output" 2>&1
tap_report $? "machine: it is told" "$output"
json_is_whole "machine: in JSON" "$known/machine.object"
echo '{"op":"step","dtype":"bf16","ranks":1,"bytes":30000000,"ours_us":1500.0,"peer":null,"peer_us":null,"ratio":null,"limit_us":1200.0,"share_of_limit":0.800}' \
    >"$known/rows-step.part"
echo '{"op":"plan","ranks":1000000}' >"$known/plan.part"
echo '{"speedup_2_ranks":1.9}' >"$known/trainer.object"
"$scripts/collect" "$known"
json_is_whole "results: in JSON" "$known/results.json"

cat >"$scratch/wanted" <<'TEXT'

medians of 2 rounds; ratio: how many times as long as ours the other takes

step           dtype      size      ours       bus  share
1 rank         bf16     29 MiB   1.50 ms   1.20 ms   80 %

unshard        dtype      size      ours  Open MPI   ratio          of rounds  ours + read  MPI + read
2 ranks        fp32     64 KiB   5.00 us   22.0 us    4.40       4.00 to 5.00      6.00 us     31.0 us

all_reduce     dtype      size      ours       bus  share with norm
2 ranks        fp32     64 KiB   5.00 us   3.00 us   60 %   2.00 us

left out: gloo: it is "away"
hsdp-gpt on 2 ranks: 1.90 times the tokens per second of one
TEXT
"$scripts/report" "$known/results.json" | diff "$scratch/wanted" - >"$output" 2>&1
tap_report $? "report: tables of known results" "$output"
"$scripts/report" -m "$known/results.json" >"$output" &&
    grep -qF '| 2 | fp32 | 64 KiB | 5.00 us | 22.0 us | 4.40 | 4.00 to 5.00 | 6.00 us | 31.0 us | a |' "$output" &&
    grep -qF '| compiler | ' "$output"
tap_report $? "report: and in Markdown, with the machine" "$output"
refuses "report: nothing to report" 'has no rows' "$scripts/report" "$known/trainer.object"

"$scripts/plot" "$known/results.json" >"$scratch/plot.svg" &&
    [ "$(grep -c '^<polyline' "$scratch/plot.svg")" -eq 4 ]
tap_report $? "plot: a line for each contender of each panel" "$scratch/plot.svg"
if command -v python3 >/dev/null; then
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$scratch/plot.svg" \
        >"$output" 2>&1
    tap_report $? "plot: it is XML" "$output"
else
    tap_skip "plot: it is XML" "python3 is not there"
fi
refuses "plot: nothing to plot" 'has no rows' "$scripts/plot" "$known/trainer.object"
refuses "plot: steps alone" 'has no rows of collectives' "$scripts/plot" "$known/rows-step.part"
mkdir "$scratch/single"
echo '{"op":"unshard","dtype":"fp32","ranks":2,"bytes":65536,"ours_us":10.000,"limit_us":null}' \
    >"$scratch/single/rows.part"
"$scripts/collect" "$scratch/single" && "$scripts/plot" "$scratch/single/results.json" >"$output" 2>&1 &&
    [ "$(grep -c '^<polyline' "$output")" -eq 1 ] && ! grep -q 'nan\|inf' "$output"
tap_report $? "plot: a single time, without a machine" "$output"

# Both peers left out, for the same reason.
sed 's/"ours_us"/"skipped":"it is away","peer":"openmpi","ours_us"/' "$scratch/single/rows.part" \
    >"$scratch/single/rows-mpi.part"
sed 's/"openmpi"/"gloo"/' "$scratch/single/rows-mpi.part" >"$scratch/single/rows-gloo.part"
"$scripts/collect" "$scratch/single" && "$scripts/report" "$scratch/single/results.json" >"$output" 2>&1 &&
    grep -qx 'left out: openmpi: it is away' "$output" && grep -qx 'left out: gloo: it is away' "$output"
tap_report $? "report: each peer is left out by itself" "$output"

mkdir "$scratch/docs"
printf 'before\n<!-- figures: here -->\nold\n<!-- end of figures -->\nbehind\n' >"$scratch/docs/performance.md"
"$scripts/docs" "$known" "$scratch/docs" >"$output" 2>&1 &&
    "$scripts/docs" "$known" "$scratch/docs" >"$output" 2>&1 &&
    [ "$(grep -c '^| 2 | fp32 | 64 KiB |' "$scratch/docs/performance.md")" -eq 2 ] &&
    ! grep -q '^old' "$scratch/docs/performance.md" && grep -q '^before' "$scratch/docs/performance.md" &&
    [ "$(tail -n 1 "$scratch/docs/performance.md")" = behind ] && [ -s "$scratch/docs/performance.svg" ]
tap_report $? "docs: figures take the place of those before" "$scratch/docs/performance.md"
echo 'no place' >"$scratch/docs/performance.md"
refuses "docs: a page without a place for them" 'has no place' "$scripts/docs" "$known" "$scratch/docs"
printf 'no place\n<!-- end of figures -->\n' >"$scratch/docs/performance.md"
refuses "docs: an end without a beginning" 'has no place' "$scripts/docs" "$known" "$scratch/docs"
grep -qx 'no place' "$scratch/docs/performance.md"
tap_report $? "docs: it stays as it was" "$scratch/docs/performance.md"

tap_done
