#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hsdp-info on our plugin, on one of somebody else, and on plugins and libraries that are wrong.
#
# The environment names what is tested: HSDP_INFO, HSDP_TEST_PLUGIN.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
unset HSDP_PLUGIN HSDP_PLUGIN_PATH HSDP_NCCL_LIBRARY HSDP_CUDA_LIBRARY COLUMNS
include=$here/../include

if [ ! -x "$HSDP_INFO" ]; then
    tap_skip "hsdp-info" "it is not built"
    tap_done
    exit
fi

# ends NAME STATUS PATTERN ARGUMENT...: the exit status, and a line of what it prints.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    timeout 60 "$HSDP_INFO" "$@" >"$output" 2>&1 </dev/null
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "hsdp-info: $name" "$output"
}

# says NAME PATTERN: a line of the last output.
says() {
    grep -qE -- "$2" "$output"
    tap_report $? "hsdp-info: $1" "$output"
}

# given VARIABLE=VALUE CHECK...: one of the others, with a variable of the environment.
given() {
    export "${1?}"
    variable=${1%%=*}
    shift
    "$@"
    unset "$variable"
}

# holds NAME TEST: a condition in Python on `one`, the report of the last plugin in $output.
holds() {
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys
all = json.load(open(sys.argv[1]))
one = all["plugins"][-1]
assert ('"$2"'), one' "$output" >"$scratch/python" 2>&1
        tap_report $? "hsdp-info: $1" "$scratch/python"
    else
        tap_skip "hsdp-info: $1" "no python3"
    fi
}

# ------------------------------------------------------------------------------------ our plugin

# The same on every machine, with a GPU or without.
export HSDP_CUDA_LIBRARY=/nowhere/libcuda.so.1 HSDP_NCCL_LIBRARY=/nowhere/libnccl.so.2
ends "our plugin is described" 0 '^libhsdp .*, ABI 1\.0$' "$HSDP_TEST_PLUGIN"
says "where it is" "/hsdp\\.so$"
says "why it is that one" '^  named on the command line$'
says "strategies, by what they shard" '^  zero2  +nothing +all +all +shard_grad_op$'
says "a transport that works" '^  shm +usable +max_ranks 64'
says "one that does not, and why" '^  nccl +not usable +/nowhere/libnccl\.so\.2 is not found, max_ranks 64,'
says "what backend auto becomes, and why nothing else" \
    '^  backend auto becomes shm here; not mpi \(not built into this plugin\), nccl$'
says "paths of the CPU" '^  plain +usable$'
says "extensions" '^  hsdp\.adamw$'
says "settings by their home" '^Settings of: plan, class '
says "with default and range" '^  nccl_timeout_seconds +180 +1 to 2147483647$'
says "with their meaning" '^      how long any wait may take$'
says "with choices" '^  gradient_op +mean +mean, sum$'
says "with a default in words" '^      default: dp_replicate where dp is split, else dp$'
! grep -qE '^.{81}' "$output"
tap_report $? "hsdp-info: no line is wider than 80 columns" "$output"
COLUMNS=100 "$HSDP_INFO" "$HSDP_TEST_PLUGIN" >"$output" 2>&1
! grep -qE '^.{101}' "$output" && grep -qE '^.{81}' "$output"
tap_report $? "hsdp-info: COLUMNS makes them wider" "$output"

ends "JSON of our plugin" 0 '^  "plugins": \[$' --json "$HSDP_TEST_PLUGIN"
holds "it has versions" 'all["abi_major"] == 1 and one["abi_minor"] == 0 and one["plugin_name"] == "libhsdp"'
holds "it has what describe() says" 'len(one["description"]["settings"]) > 20 and one["faults"] == []'
holds "it has what backend auto becomes" \
    'one["backend_auto"].startswith("backend auto becomes shm here; not mpi (not built")'
holds "each library is there" \
    '[l["name"] for l in one["libraries"]] ==
     ["libmpi.so.40", "/nowhere/libnccl.so.2", "/nowhere/libcuda.so.1"]'
holds "functions are those that are bound, each once" \
    '[(len(set(l["symbols"])) == len(l["symbols"])) and len(l["symbols"]) > 16
      for l in one["description"]["transports"][2]["libraries"]] == [True, True]'
unset HSDP_CUDA_LIBRARY HSDP_NCCL_LIBRARY

# ------------------------------------------------------------------------------- the environment

HSDP_NCCL_TIMEOUT_SECONDS=30 HSDP_SLOTS=99 HSDP_VERIFY=wrap,step:5 HSDP_BACKEND=shm
export HSDP_NCCL_TIMEOUT_SECONDS HSDP_SLOTS HSDP_VERIFY HSDP_BACKEND
ends "what the environment sets is told" 0 '^   -> 30, by HSDP_NCCL_TIMEOUT_SECONDS$' "$HSDP_TEST_PLUGIN"
says "so is a value that is not allowed" '^   -> 99, by HSDP_SLOTS, WHICH IS NOT ALLOWED$'
says "a list is looked at word by word" '^   -> wrap,step:5, by HSDP_VERIFY$'
ends "in JSON as well" 0 . --json "$HSDP_TEST_PLUGIN"
holds "with value and source" \
    '{"key": "nccl_timeout_seconds", "variable": "HSDP_NCCL_TIMEOUT_SECONDS", "is_allowed": True,
      "value": "30", "source": "environment"} in one["environment"]'
holds "and whether it is allowed" \
    '[s["key"] for s in one["environment"] if not s["is_allowed"]] == ["slots"]'
given HSDP_INIT_TIMEOUT_SECONDS=29 ends "what no job accepts has the sentence of the plugin" 0 \
    '^     init_timeout_seconds: 29 is less than nccl_timeout_seconds, 30$' "$HSDP_TEST_PLUGIN"
given HSDP_NCCL_TIMEOUT_SECONDS=30s ends "also where it is no number" 0 \
    '^   -> 30s, by HSDP_NCCL_TIMEOUT_SECONDS, WHICH IS NOT ALLOWED$' "$HSDP_TEST_PLUGIN"
given HSDP_VERIFY=wrap,steps ends "or a wrong word" 0 'HSDP_VERIFY, WHICH IS NOT ALLOWED$' "$HSDP_TEST_PLUGIN"
unset HSDP_NCCL_TIMEOUT_SECONDS HSDP_SLOTS HSDP_VERIFY HSDP_BACKEND

given HSDP_SLOT=3 ends "a variable that nobody reads" 0 '[ ]HSDP_SLOT(,|$)' "$HSDP_TEST_PLUGIN"
says "with what that may be" '^Variables HSDP_\* that nobody reads: misspelled\?$'
given HSDP_SLOT=3 ends "in JSON" 0 . --json "$HSDP_TEST_PLUGIN"
holds "it is listed" '"HSDP_SLOT" in one["unknown_variables"]'
given HSDP_RUN_ID=3 ends "one of the launcher" 0 . --json "$HSDP_TEST_PLUGIN"
holds "is not" '"HSDP_RUN_ID" not in one["unknown_variables"]'

# --------------------------------------------------------------------------------------- finding

mkdir "$scratch/folder"
cp "$HSDP_TEST_PLUGIN" "$scratch/folder/hsdp.so"
given "HSDP_PLUGIN=$HSDP_TEST_PLUGIN" ends "the plugin of HSDP_PLUGIN" 0 '^  named by HSDP_PLUGIN$'
given "HSDP_PLUGIN_PATH=/nowhere:$scratch/folder" ends "the plugin of HSDP_PLUGIN_PATH" 0 \
    '^  the first hsdp.so in the folders of HSDP_PLUGIN_PATH$'
says "it is the file of that folder" "^  $scratch/folder/hsdp.so\$"
given "HSDP_PLUGIN=$scratch/nothing.so" ends "where none is found the loader says so" 1 \
    '^hsdp-info: loader: .*nothing\.so: No such file or directory \(named by HSDP_PLUGIN\)$'
ends "several plugins, one of them not there" 1 '^hsdp-info: loader: .*nothing\.so: No such file' \
    "$scratch/nothing.so" "$HSDP_TEST_PLUGIN"
says "the other is described" '^libhsdp .*, ABI 1\.0$'
echo 'no plugin' >"$scratch/text.so"
ends "a file that is no plugin" 1 'is not a shared object' "$scratch/text.so"
ends "JSON has the sentence, too" 1 '"loader: .*text\.so: is not a shared object' --json "$scratch/text.so"

# ------------------------------------------------------------------------- plugins of other people

# plugin KIND: builds one way of tests/info_plugin.c, at $made.
plugin() {
    made=$scratch/$1.so
    "${CC:-cc}" -shared -fPIC -w "-DKIND=$1" -I"$include" -o "$made" "$here/info_plugin.c" >"$output" 2>&1 ||
        tap_report 1 "hsdp-info: $1 is built" "$output"
}

plugin OTHER
ends "a plugin of somebody else" 0 '^other 7, ABI 1\.0$' "$made"
says "a transport with a member of its own" '^  pigeon  usable  speed 3$'
says "a library that nobody has" '^      libpigeon-nobody-has\.so: cannot open shared object file'
says "homes that nobody knows" '^Settings of: plan, planet '
says "a member that nobody knows" '^  weather$'
given HSDP_DEPTH=12 ends "its settings, too" 0 '^   -> 12, by HSDP_DEPTH, WHICH IS NOT ALLOWED$' "$made"
ends "JSON has what is not known" 0 . --json "$made"
holds "as it is" 'one["description"]["weather"] == [1, 2]'
plugin TWO_WAYS
ends "where two transports are usable the plugin says which it takes" 0 \
    '^  backend auto becomes pigeon or owl here \(owls at night\); not swan \(it sings\)$' "$made"
plugin LACKS
ends "without a transport nothing is said of one" 1 . "$made"
! grep -q 'backend auto' "$output"
tap_report $? "hsdp-info: there is no such line" "$output"

ends "the reference plugin" 0 '^reference .*, ABI 1\.0$' "$HSDP_TEST_BUILDDIR/reference/.libs/reference.so"
says "with its transport" '^  socket +usable$'

# wrong KIND STATUS PATTERN: a plugin that does not keep the rules is told about in a sentence.
wrong() {
    plugin "$1"
    case $1 in HANGS* | SCREAMS) seconds=1 ;; *) seconds=30 ;; esac
    ends "$1" "$2" "^hsdp-info: $made: $3" --timeout=$seconds "$made"
}

wrong HANGS_LOADED 1 'hangs in loading: killed after 1 s$'
wrong HANGS 1 'hangs in describe\(\): killed after 1 s$'
wrong CRASHES_LOADED 1 'crashes in loading \(signal 6, Aborted\)$'
wrong CRASHES 1 'crashes in describe\(\) \(signal 6, Aborted\)$'
says "what was known until then is told" '^other 7, ABI 1\.0$'
wrong EXITS_LOADED 1 'ends the process in loading \(exit status 3\)$'
wrong EXITS 1 'ends the process in describe\(\) \(exit status 0\)$'
wrong PRINTS 1 'writes to standard output, which belongs to the host: "hello, I am here" \.\.\.$'
says "PRINTS: it is described" '^  pigeon  usable'
wrong SCREAMS 1 'hangs in describe\(\): killed after 1 s$'
wrong NO_JSON 1 'describe\(\) is no JSON: line 1: '
wrong NO_OBJECT 1 'describe\(\): is no object$'
wrong LACKS 1 'describe\(\): has no "settings"$'
[ "$(sed -n '/^Strategies/{n;p;}' "$output")" = "  none" ]
tap_report $? "hsdp-info: LACKS: a list of nothing says so" "$output"
wrong WRONG_TYPE 1 'describe\(\): has a "strategies" that is no list$'
wrong WRONG_ROW 1 'describe\(\): strategies\[1\] has no "name"$'
wrong ASKS_TOO_MUCH 1 'describe\(\) asks for 18446744073709551615 bytes; 1 to 16777216 are taken$'
wrong GROWS 1 'describe\(\) answers -17 without a reason$'
wrong REFUSES 1 'describe\(\) answers -3: has no words$'
wrong CRASHES_AT_END 1 'crashes in unloading \(signal 6, Aborted\)$'
says "CRASHES_AT_END: it is described" '^  pigeon  usable'
wrong OTHER_NAME 1 'describe\(\) says another plugin_name than the table of the plugin$'
given HSDP_DEPTH=2 wrong CRASHES_IN_JOB 1 'crashes in job->create \(signal 6, Aborted\)$'
says "CRASHES_IN_JOB: it is described" '^   -> 2, by HSDP_DEPTH$'
plugin CLOSES_ALL
ends "CLOSES_ALL" 1 'ends the process in describe\(\) \(exit status 0\)$' "$made"
plugin LEAVES_CHILD
ends "a plugin that leaves a process is described" 0 '^  pigeon  usable' "$made"
plugin ESCAPES
ends "commands for a terminal are not passed on" 0 '^  \?\[31mred\?7m$' "$made"

# ------------------------------------------------------------------------------------- libraries

# library NAME OPTION...: builds tests/info_library.c as a library of that name.
mkdir "$scratch/lib"
library() {
    name=$1
    shift
    "${CC:-cc}" -shared -fPIC -w "$@" -I"$here/../plugin" -I"$include" -o "$scratch/lib/$name" \
        "$here/info_library.c" >"$output" 2>&1 || tap_report 1 "hsdp-info: $name is built" "$output"
}

LD_LIBRARY_PATH=$scratch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
library libnccl.so.2 -DCODE=22809 -DNEWER
library libcuda.so.1 -DDEVICES=2
library libmpi.so.40 -DMPI
ends "libraries that work" 0 '^      libnccl\.so\.2 2\.28\.9: works$' "$HSDP_TEST_PLUGIN"
says "with their place" "^        $scratch/lib/libnccl.so.2\$"
says "what a newer version has" '^        ncclCommRevoke \(since 2\.28\.7\): found$'
says "a driver with devices" '^      libcuda\.so\.1 13\.0: works, 2 devices$'
says "their names and architectures" '^        device 1: Some Device, sm_90, (which|WHICH) '
ends "in JSON" 0 . --json "$HSDP_TEST_PLUGIN"
holds "NCCL" 'one["libraries"][1]["version"] == "2.28.9" and one["libraries"][1]["works"]'
holds "describe() has found the same file without loading it" \
    'one["description"]["transports"][2]["libraries"][0]["path"] == one["libraries"][1]["path"]'
holds "the driver" \
    '(one["libraries"][2]["version"], one["libraries"][2]["n_devices"]) == ("13.0", 2)'
holds "its devices" '[d["name"] for d in one["libraries"][2]["devices"]] == ["Some Device, sm_90"] * 2'
holds "the function of newer versions" \
    '[(n["name"], n["is_found"]) for n in one["libraries"][1]["newer"]] == [("ncclCommRevoke", True)]'
holds "nccl is usable where this build has code for devices" \
    'one["description"]["transports"][2]["usable"] or
     one["description"]["transports"][2]["reason"] == "this build has no code for devices"'
holds "whether there is code for a device is what the plugin says" \
    'one["libraries"][2]["devices"][0]["is_served"] ==
     ("sm_90" in one["description"]["transports"][2]["device_code"])'
holds "MPI, by its own words" 'one["libraries"][0]["version"] == "Some MPI v4.1"'

library libcuda.so.1 -DDEVICES=1 -DARCHITECTURE=70
ends "a device that is too old for any code" 0 \
    '^        device 0: Some Device, sm_70, WHICH THIS PLUGIN HAS NO CODE FOR$' "$HSDP_TEST_PLUGIN"
library libcuda.so.1 -DDEVICES=1 -DDRIVER=11040
ends "a driver that is too old for the code" 0 . --json "$HSDP_TEST_PLUGIN"
holds "is told so, if there is code" \
    'one["libraries"][2].get("reason", "") ==
     ("is too old, %s is needed" % one["description"]["transports"][2]["libraries"][1]["min_version"]
      if "min_version" in one["description"]["transports"][2]["libraries"][1] else "")'

library libcuda.so.1 -DDEVICES=2 -Wl,-soname,libcuda.so.1
library libnccl.so.2 -DCODE=22809 -Wl,--no-as-needed "$scratch/lib/libcuda.so.1"
ends "an NCCL that is linked with the driver is no driver" 0 '^      libnccl\.so\.2 2\.28\.9: works$' \
    "$HSDP_TEST_PLUGIN"
library libnccl.so.2 -DCODE=22703
ends "a version without the newer function" 0 '^      libnccl\.so\.2 2\.27\.3: works$' "$HSDP_TEST_PLUGIN"
says "with what is done instead" '^        ncclCommRevoke \(since 2\.28\.7\): not there; instead'
library libnccl.so.2 -DCODE=21003
ends "an old NCCL" 0 '^      libnccl\.so\.2 2\.10\.3: is too old, 2\.18 is needed$' "$HSDP_TEST_PLUGIN"
library libnccl.so.2 -DCODE=2804
ends "one whose versions were counted otherwise" 0 'libnccl\.so\.2 2\.8\.4: is too old' "$HSDP_TEST_PLUGIN"
library libnccl.so.2 -DCODE=22809 -DncclSend=ncclNobodyAsks
ends "a function that is missing" 0 '^      libnccl\.so\.2 2\.28\.9: lacks ncclSend$' "$HSDP_TEST_PLUGIN"
echo 'no library' >"$scratch/lib/libnccl.so.2"
ends "a file that is no library" 0 '^      libnccl\.so\.2: .*(file too short|invalid ELF header)$' "$HSDP_TEST_PLUGIN"
rm "$scratch/lib/libnccl.so.2"
library other.so -DCODE=22703
given "HSDP_NCCL_LIBRARY=$scratch/lib/other.so" ends "another file by its setting" 0 \
    "^      $scratch/lib/other.so 2\\.27\\.3: works\$" "$HSDP_TEST_PLUGIN"

library libcuda.so.1 -DDEVICES=1
ends "a driver with a device" 0 '^      libcuda\.so\.1 13\.0: works, 1 device$' "$HSDP_TEST_PLUGIN"
library libcuda.so.1 -DDEVICES=-1
ends "a driver without one" 0 'libcuda\.so\.1 13\.0: cuInit answers CUDA_ERROR_NO_DEVICE$' "$HSDP_TEST_PLUGIN"
library libcuda.so.1 -DDEVICES=1 -DcuLaunchKernel=cuNobodyAsks
ends "a driver that lacks a function" 0 'libcuda\.so\.1 13\.0: lacks cuLaunchKernel, 1 device$' "$HSDP_TEST_PLUGIN"
library libcuda.so.1 -DDEVICES=-2
ends "a driver that crashes" 0 'libcuda\.so\.1 13\.0: crashes in cuInit \(signal 6, Aborted\)$' "$HSDP_TEST_PLUGIN"
library libcuda.so.1 -DDEVICES=-3
ends "a driver that hangs" 0 'libcuda\.so\.1 13\.0: hangs in cuInit: killed after 1 s$' --timeout=1 "$HSDP_TEST_PLUGIN"
says "the rest is told" '^  flight_records '

# --------------------------------------------------------------------------------------- options

ends "help" 0 '^Exit status: 0 when all plugins were described' --help
ends "version" 0 '^hsdp-info \(libhsdp\) [0-9].*, ABI 1\.0$' --version
ends "an unknown option" 2 '^hsdp-info: there is no option --inform; hsdp-info --help tells more$' \
    --inform
[ "$(wc -l <"$output")" -eq 1 ]
tap_report $? "hsdp-info: that is one line" "$output"
ends "an unknown letter" 2 '^hsdp-info: there is no option -z; ' -zh
ends "an option without its value" 2 '^hsdp-info: a value is missing behind --timeout; ' --timeout
ends "a value where none belongs" 2 '^hsdp-info: no value belongs to --json=x; ' --json=x
ends "a time that is none" 2 '--timeout wants whole seconds from 1 to 3600, not 0' --timeout=0
ends "a time that is no number" 2 'not 1x' --timeout=1x
if [ -w /dev/full ]; then
    "$HSDP_INFO" "$HSDP_TEST_PLUGIN" >/dev/full 2>"$output"
    [ $? -eq 1 ] && grep -q 'cannot write all of the output' "$output"
    tap_report $? "hsdp-info: output that cannot be written" "$output"
fi

tap_done
