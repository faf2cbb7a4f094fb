#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hsdp-conform: the plugin passes; each output; what is wrong with a plugin, with options, with files.
#
# The environment names the programs: HSDP_CONFORM, HSDP_TEST_PLUGIN, CC.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output

if [ ! -x "$HSDP_CONFORM" ]; then
    tap_skip "hsdp-conform" "it is not built"
    tap_done
    exit
fi

# ends NAME STATUS PATTERN OPTION...: the exit status, and a line of what it prints.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    "$HSDP_CONFORM" "$@" >"$output" 2>&1
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "hsdp-conform: $name" "$output"
}

# says NAME PATTERN: a line of the last output.
says() {
    grep -qE -- "$2" "$output"
    tap_report $? "hsdp-conform: $1" "$output"
}

# ------------------------------------------------------------------------------------ a good plugin

# All of it, once, with both plugins. ThreadSanitizer has a thread and mappings of its own, which the
# chapter hygiene takes for the plugin's.
chapters=
case ${HSDP_TEST_SANITIZERS-} in
*thread*) chapters=$("$HSDP_CONFORM" --list | sed -n 's/^\([a-z]*\): .*/--chapter \1/p' | sort -u | grep -v hygiene) ;;
esac
# shellcheck disable=SC2086
timeout 100 "$HSDP_CONFORM" --plugin "$HSDP_TEST_REFERENCE" --seed 11 --jobs 8 $chapters >"$output" 2>&1
tap_report $? "hsdp-conform: the second plugin passes every chapter" "$output"
# shellcheck disable=SC2086
timeout 100 "$HSDP_CONFORM" --plugin "$HSDP_TEST_PLUGIN" --seed 11 --jobs 8 $chapters >"$output" 2>&1
tap_report $? "hsdp-conform: our plugin passes every chapter" "$output"
says "the seed is printed at the beginning" '^libhsdp .*; 4 ranks, seed 11$'
says "and at the end" '^passed: [0-9]+ checks, seed 11$'
says "the time of all is by the clock" '^  all +\(its time is by the clock\) .* [0-9.]+ s$'
says "each chapter has a line" '^  arguments .* - +- +[0-9.]+ s$'

negotiation="--plugin $HSDP_TEST_PLUGIN --chapter negotiation"
# shellcheck disable=SC2086 # options are several words
ends "without --seed one is drawn and printed" 0 'seed [0-9]+$' $negotiation --check describe
# shellcheck disable=SC2086
ends "--tap has a plan" 0 '^1\.\.2$' $negotiation --tap --seed 5 --check extension
says "--tap has a line for each check" '^ok 1 - negotiation: an extension that it lists is found$'
says "--tap tells the seed" '^# seed 5$'
# shellcheck disable=SC2086
ends "-n is the number of ranks" 0 '; 1 rank, seed' $negotiation -n 1 --check describe
ends "several chapters and checks" 0 'passed: 2 checks' --plugin "$HSDP_TEST_PLUGIN" \
    --chapter negotiation --chapter arguments --check 'loader accepts' --check 'destroy accepts'
(cd "$(dirname "$HSDP_TEST_PLUGIN")" && "$HSDP_CONFORM" --plugin "$(basename "$HSDP_TEST_PLUGIN")" \
    --chapter negotiation --chapter hygiene --check 'loader accepts' --check 'leaves no file') \
    >"$output" 2>&1
tap_report $? "hsdp-conform: a file of the current folder needs no '/'" "$output"
HSDP_RUN_ID=x RANK=7 WORLD_SIZE=3 HSDP_SLOTS=none "$HSDP_CONFORM" --plugin "$HSDP_TEST_PLUGIN" \
    --chapter arguments --check 'job: NULL' --check 'plan: NULL' >"$output" 2>&1
tap_report $? "hsdp-conform: a launcher's environment and settings do not reach the ranks" "$output"

TMPDIR=$scratch/none "$HSDP_CONFORM" --plugin "$HSDP_TEST_PLUGIN" --chapter hygiene --check 'leaves no file' \
    >"$output" 2>&1
tap_report $? "hsdp-conform: what cannot be looked at for want of a folder is no fault of a plugin" "$output"
says "and is told" 'no folder .*/none/conform-'

ends "a setting reaches every job" 1 'variable HSDP_SLOTS: slots: "none" is not a' --plugin "$HSDP_TEST_PLUGIN" \
    --chapter views --check 'uses are counted' --set slots=none
says "and is in the command that repeats a failure" '^  again .* --set=slots=none$'
ends "without its driver a device has no checks" 0 'no device for this rank: .*/nowhere/libcuda.so.1' \
    --plugin "$HSDP_TEST_PLUGIN" --chapter views --device cuda --set cuda_library=/nowhere/libcuda.so.1
says "all of them skipped" '^passed: 0 checks, [0-9]+ skipped, seed [0-9]+$'

if command -v python3 >/dev/null; then
    # shellcheck disable=SC2086
    "$HSDP_CONFORM" $negotiation --json --seed 12 2>&1 | python3 -c 'import json, sys
run = json.load(sys.stdin)
assert run["seed"] == 12 and run["ranks"] == 4 and run["failed"] == 0, run
assert run["plugin_name"] == "libhsdp" and run["abi_major"] == 1, run
assert run["plugin"].endswith("hsdp.so") and run["version"], run
chapter, = run["chapters"]
assert chapter["name"] == "negotiation" and chapter["passed"] == len(chapter["checks"]), chapter
for check in chapter["checks"]:
    assert check["status"] == "passed" and check["message"] is None, check
    assert check["seconds"] >= 0 and check["promise"] and check["ranks"] == 1, check' >"$output" 2>&1
    tap_report $? "hsdp-conform: --json is an object with the promised members" "$output"
else
    tap_skip "hsdp-conform: --json is an object with the promised members" "there is no python3"
fi

ends "--list names chapters, checks and promises" 0 \
    '^negotiation: the loader accepts it \(loader.h: hsdp_plugin_load\)$' --list
! grep -qvE '^[a-z]+: .* \([^()]+\)$' "$output"
tap_report $? "hsdp-conform: each line of --list tells where it is promised" "$output"
[ "$(sort "$output" | uniq -d | wc -l)" -eq 0 ]
tap_report $? "hsdp-conform: no check is listed twice" "$output"

# promised LIST: the words of each promise, as "job.h: abort; abi.h: Errors", stand in its header.
promised() {
    python3 -c 'import re, sys
folder, name = sys.argv[2], None
def fold(text): # a comment of several lines is one sentence
    return re.sub(r"[\s*]+", " ", text).lower()
for line in open(sys.argv[1]):
    for words in re.split("[,;:] *", re.search(r"\(([^()]*)\)$", line).group(1)):
        name = words if words.endswith(".h") else name
        header = open(folder + "/" + name).read()
        if not words.endswith(".h") and fold(words) not in fold(header):
            sys.exit(line + "\"" + words + "\" does not stand in " + name)' "$1" "$here/../include/hsdp"
}

if command -v python3 >/dev/null; then
    cp "$output" "$scratch/list"
    promised "$scratch/list" >"$output" 2>&1
    tap_report $? "hsdp-conform: what is promised stands where the list says" "$output"
    echo 'deadlines: a wait never ends (job.h: waits that never end)' >"$scratch/list"
    ! promised "$scratch/list" >"$output" 2>&1
    tap_report $? "hsdp-conform: a promise that no header makes is found" "$output"
else
    tap_skip "hsdp-conform: what is promised stands where the list says" "there is no python3"
fi

# ----------------------------------------------------------------------------------- wrong plugins

# build NAME FLAG...: $scratch/NAME.so
build() {
    name=$1
    shift
    # shellcheck disable=SC2086 # flags are several words
    $CC -std=gnu11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -shared -I"$here/../include" \
        ${HSDP_TEST_SANITIZERS-} "$@" -o "$scratch/$name.so" "$here/conform_plugin.c" || exit 1
}

# finds HOW CHECK PATTERN OPTION...: the one check fails, and what it prints.
finds() {
    how=$1
    check=$2
    pattern=$3
    shift 3
    [ -f "$scratch/$how.so" ] || build "$how" -DHOW="$how"
    ends "a plugin that does $how fails" 1 "$pattern" --plugin "$scratch/$how.so" \
        --chapter negotiation --check "$check" "$@"
}

again='describe says the same'
finds CRASH "$again" '^  found    ended by SIGSEGV \(signal 11\) in conform->api->describe'
says "a failure has its place in the headers" '^  promise  abi.h: describe$'
command=$(sed -n 's/^  again    hsdp-conform//p' "$output")
eval "\"\$HSDP_CONFORM\" $command" >"$scratch/repeated" 2>&1
[ $? -eq 1 ] && [ "$(grep '^  found' "$scratch/repeated")" = "$(grep '^  found' "$output")" ]
tap_report $? "hsdp-conform: the command under a failure repeats it" "$scratch/repeated"
says "the last line counts failures" '^failed: 1 of 1 checks, seed [0-9]+$'
finds ABORT "$again" 'ended by SIGABRT \(signal 6\) in conform->api->describe'
finds EXIT "$again" 'ended with exit status 0 in conform->api->describe'
finds HANG "$again" 'not finished after 1 s: rank 0 was in conform->api->describe' --limit 1
finds LEAVE "$again" 'all ranks have ended, but not a process that one has started'
finds WRITE "$again" 'rank 0 wrote to stderr: "loud\\nloud'
finds BUFFER "$again" 'rank 0 wrote to stdout: "late'
finds FLOOD "$again" 'rank 0 wrote to stderr: "a flood of words.* and more$' --tap
finds INJECT "$again" 'a line\?ok 77 - \?\[31mred' --tap
finds DAEMON "$again" 'ended by SIGABRT \(signal 6\)'
left=0
for process in /proc/[0-9]*; do
    ! grep -qs "$scratch/DAEMON.so" "$process/maps" || left=1
done
[ "$left" -eq 0 ]
tap_report $? "hsdp-conform: what daemons a plugin has started end with the kit"
"$HSDP_CONFORM" --plugin "$scratch/BUFFER.so" --chapter negotiation --check "$again" <&- >"$output" 2>&1
[ $? -eq 1 ] && grep -q 'rank 0 wrote to stdout: "late' "$output"
tap_report $? "hsdp-conform: a closed standard input hides nothing" "$output"
lines="$scratch/two
ok 99"
ln -s "$scratch/INJECT.so" "$lines"
"$HSDP_CONFORM" --plugin "$lines" --chapter negotiation --check "$again" --tap >"$output" 2>&1
! grep -q '^ok 99' "$output" && grep -q 'two?ok 99$' "$output"
tap_report $? "hsdp-conform: --tap keeps a path of several lines on one" "$output"
finds SILENCE "$again" 'answers HSDP_OK \(0\), where$'
finds BEHAVE 'describe is JSON' 'describe has no text "plugin_name"'
finds BEHAVE 'hold no NULL' 'struct hsdp_mesh_ops of [0-9]+ bytes holds NULL at byte 8'
finds BEHAVE 'any other major' 'answers HSDP_ERR_VERSION \(-2\), but reterr->status is' --tap
says "--tap has a failure's promise" '^# promise: abi.h: hsdp_plugin_v1_fn, Errors$'
ends "what does not apply is skipped, with a reason" 0 'it lists no extension' \
    --plugin "$scratch/BEHAVE.so" --chapter negotiation --check 'that it lists'
says "and counted at the end" '^passed: 0 checks, 1 skipped, seed [0-9]+$'
ends "--tap skips with a reason" 0 '^ok 1 - .* # SKIP it lists no extension$' \
    --plugin "$scratch/BEHAVE.so" --chapter negotiation --check 'that it lists' --tap
ends "others run on behind a crash" 1 'passed 1, failed 1, skipped 0' --plugin "$scratch/CRASH.so" \
    --chapter negotiation --check "$again" --check 'name and version' --tap

ends "what fails in the same way is told once" 1 \
    '^  likewise describe has every setting of job.h and plan.h$' --plugin "$scratch/CRASH.so" \
    --chapter negotiation --check describe
build entry -DBROKEN_ENTRY
ends "an entry that crashes fails what calls it" 1 \
    'not ok . - negotiation: the loader accepts it' --plugin "$scratch/entry.so" --tap \
    --chapter negotiation
says "and the rest is skipped" '# SKIP loading the plugin: ended by SIGSEGV \(signal 11\)'

# ------------------------------------------------------------------------- what describe() claims

# skeleton_build NAME SED...: the plugin of examples/plugin, which makes meshes and nothing else, with
# another describe().
skeleton_build() {
    name=$1
    shift
    mkdir "$scratch/$name"
    cp "$here"/../examples/plugin/*.[ch] "$scratch/$name"
    sed "$@" "$here/../examples/plugin/describe.c" >"$scratch/$name/describe.c"
    # shellcheck disable=SC2086 # flags are several words
    $CC -std=c11 -fPIC -fvisibility=hidden -shared -I"$here/../include" ${HSDP_TEST_SANITIZERS-} \
        -o "$scratch/$name.so" "$scratch/$name"/*.c || exit 1
}

skeleton_build modest -e ''
timeout 120 "$HSDP_CONFORM" --plugin "$scratch/modest.so" --seed 1 >"$output" 2>&1
tap_report $? "hsdp-conform: of a plugin that claims nothing no check fails" "$output"
says "but most are skipped" '^passed: [0-9]{2} checks, [0-9]{3} skipped, seed 1$'
says "for want of a transport" '^ +describe\(\) lists no usable transport$'
says "or of a strategy" '^ +describe\(\) lists no strategy$'

skeleton_build boaster -e 's/\(strategies.":\[\)\]/\1{\\"name\\":\\"fsdp\\"}]/' \
    -e 's/\(extensions.":\[\)\]/\1\\"hsdp.adamw\\"]/' \
    -e 's/"usable.":false,."reason.":."not made yet."/"usable\\":true/'
boaster="--plugin $scratch/boaster.so --seed 1"
# shellcheck disable=SC2086 # options are several words
{
    ends "a strategy that is listed, but refused" 1 \
        '^# found: describe\(\) lists the strategy fsdp, but .*: answers HSDP_ERR_UNSUPPORTED' \
        $boaster --tap --chapter planning
    says "one that is not listed is skipped" '# SKIP describe\(\) does not list the strategy hfsdp$'
    says "what is optional is skipped" '# SKIP a dtype other than fp32 is optional: '
    for chapter in arguments mathematics collectives steps loading deadlines failures views hygiene; do
        ends "a transport that is listed, but refused: $chapter" 1 \
            '^# found: describe\(\) lists a usable transport: shm; but .*job->create' \
            $boaster --tap --chapter "$chapter"
        says "then none of $chapter is skipped" '^# passed [0-9]+, failed [0-9]+, skipped 0$'
    done
    ends "an extension that is listed, but refused" 1 'answers HSDP_ERR_UNSUPPORTED' \
        $boaster --chapter negotiation --check 'that it lists'
}

# A kit that is killed takes its ranks with it.
"$HSDP_CONFORM" --plugin "$scratch/HANG.so" --chapter negotiation --check "$again" >"$output" 2>&1 &
kit=$!
ranks=
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    sleep 0.25
    ranks=$(cat "/proc/$kit/task/$kit/children" 2>/dev/null)
    [ -z "$ranks" ] || break
done
kill -9 "$kit"
wait "$kit" 2>/dev/null
left=1
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=0
    for rank in $ranks; do
        ! grep -q conform "/proc/$rank/comm" 2>/dev/null || left=1
    done
    [ "$left" -eq 1 ] || break
    sleep 0.25
done
[ -n "$ranks" ] && [ "$left" -eq 0 ]
tap_report $? "hsdp-conform: a kit that is killed leaves no rank behind"

# --------------------------------------------------------------------------------- files and options

ends "a file that is not there" 2 '^hsdp-conform: loader: .*none\.so' --plugin "$scratch/none.so"
echo text >"$scratch/text.so"
ends "a file that is no shared object" 2 'is not a shared object' --plugin "$scratch/text.so"
echo 'int nothing; int nothing = 1;' >"$scratch/nothing.c"
# shellcheck disable=SC2086 # flags are several words
$CC -shared -fPIC ${HSDP_TEST_SANITIZERS-} -o "$scratch/nothing.so" "$scratch/nothing.c"
ends "a shared object that is no plugin" 2 'has no symbol hsdp_plugin_v1' \
    --plugin "$scratch/nothing.so"
ends "no plugin" 2 'no plugin is named; usage: '
ends "a word too many" 2 "'more' is no option" --plugin x.so more
ends "an unknown option" 2 "there is no option '--plugins'" --plugins x.so
ends "an unknown letter" 2 "there is no option '-z'" -z
ends "an option without its value" 2 "option '--plugin' needs a value" --plugin
ends "a value where none belongs" 2 "option '--list=x' takes no value" --list=x
ends "no ranks" 2 "--ranks is '0'; allowed is a number from 1 to 16" -n 0
ends "too many ranks" 2 "--ranks is '17'; allowed" -n 17
ends "a number that is none" 2 "--ranks is '2x'; allowed" -n 2x
ends "a negative seed" 2 "--seed is '-1'; allowed" --seed -1
ends "a seed beyond 63 bits" 2 "--seed is '9223372036854775808'" --seed 9223372036854775808
ends "no jobs" 2 "--jobs is '0'; allowed" -j 0
ends "no time" 2 "--limit is '0'; allowed is a number from 1 to 3600" --limit 0
ends "an unknown chapter" 2 "--chapter is 'foo'; allowed is one of negotiation, arguments" -c foo
ends "an empty name" 2 "--check is empty" --check ''
ends "a name that no check has" 2 "no check has 'nowhere' in its name" --plugin x.so --check nowhere
ends "names that no check of a chapter has" 2 \
    "no check of these chapters has 'nowhere' or 'nobody' in its name" \
    --plugin x.so --chapter views --check nowhere --check nobody
ends "a device that is none" 2 "--device is 'gpu'; allowed is one of cpu, cuda" --device gpu
ends "a setting without a value" 2 "--set is 'backend'; allowed is KEY=VALUE" --set backend
ends "a setting that is no word" 2 "--set is 'A=b'; allowed is KEY=VALUE" --set A=b
ends "two forms at once" 2 'exclude each other' --tap --json
ends "--help" 0 '^Usage: hsdp-conform --plugin=FILE' --help
ends "--version" 0 '^hsdp-conform \(libhsdp\) [0-9]' --version
if [ -w /dev/full ]; then
    "$HSDP_CONFORM" --help >/dev/full 2>"$output"
    [ $? -eq 2 ] && grep -q 'cannot write' "$output"
    tap_report $? "hsdp-conform: a full disk is an error" "$output"
fi

tap_done
