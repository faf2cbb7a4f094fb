#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A host in Python, examples/python: the module fits the headers, and trains.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
if ! command -v python3 >/dev/null; then
    tap_skip "python: a host in Python" "python3 is not installed"
    tap_done
    exit
fi
if ! python3 -c 'import ctypes, sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
    tap_skip "python: a host in Python" "python3 is older than 3.8, or has no ctypes"
    tap_done
    exit
fi
examples=$here/../examples/python
include=$here/../include
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

# ------------------------------------------------------------------------------ the module's layout

# agrees FOLDER: its hsdp.py is that of the headers.
agrees() {
    # shellcheck disable=SC2086
    python3 "$here/python_abi.py" "$1" "$include" ${CC:-cc} >"$output" 2>&1
}

agrees "$examples"
tap_report $? "python: structs, functions and numbers are those of the headers" "$output"

# differs NAME PATTERN EXPRESSION: a module that sed has changed so is refused with such a line.
differs() {
    sed "$3" "$examples/hsdp.py" >"$scratch/hsdp.py"
    agrees "$scratch"
    [ $? -eq 1 ] && grep -q "$2" "$output" && ! cmp -s "$scratch/hsdp.py" "$examples/hsdp.py"
    tap_report $? "python: $1 is noticed" "$output"
}

differs "another type" 'hsdp_step_spec: max_norm has another type' \
    's/"max_norm", c_double/"max_norm", c_int64/'
differs "another size" 'hsdp_tensor: dtype_lanes has another type' \
    's/"dtype_lanes", c_uint16/"dtype_lanes", c_uint32/'
differs "a shorter text" 'hsdp_error: operation has another type' \
    's/"operation", c_char . 32/"operation", c_char * 31/'
differs "a field that is missing" 'hsdp_mesh_info: hsdp.MeshInfo has other fields' \
    '/"n_data_ranks"/d'
differs "another name" 'hsdp_group_spec: hsdp.GroupSpec has other fields' 's/"selector"/"select"/'
differs "a struct that is missing" 'there is no hsdp.PlanInfo' 's/PlanInfo/PlanTotals/'
differs "another parameter" 'hsdp_unit_ops: grad_add has another type' \
    's/grad_add=Function(Model, c_uint32/grad_add=Function(Model, c_uint64/'
differs "a parameter that is missing" 'hsdp_model_ops: sync has another type' \
    's/sync=Function(Model, Stream())/sync=Function(Model)/'
differs "another handle" 'hsdp_group_ops: connect has another type' \
    's/connect=Function(Job)/connect=Function(Plan)/'
differs "a function that is missing" 'hsdp_step_ops: hsdp.StepOps has other fields' \
    '/^    discard=/d'
differs "another callback" 'hsdp_job_spec: log has another type' \
    's/CFUNCTYPE(None, c_void_p, c_int32, c_char_p)/CFUNCTYPE(None, c_void_p, c_char_p)/'
differs "another number" 'HSDP_ERR_BUSY: is -14, not -24' 's/^ERR_BUSY = -14/ERR_BUSY = -24/'
differs "a number that is missing" 'HSDP_ERR_DRIFT: there is no' '/^ERR_DRIFT/d'
differs "another text" 'HSDP_ADAMW_EXTENSION: is ' 's/"hsdp.adamw"$/"hsdp.adam"/'

# ------------------------------------------------------------------------------------- what it does

if [ -n "$HSDP_TEST_SANITIZERS" ]; then
    tap_skip "python: what it does" "the interpreter is not instrumented"
    tap_done
    exit
fi

# says NAME STATUS PATTERN COMMAND...: the exit status, and one line of output, all of it.
says() {
    name=$1
    status=$2
    pattern=$3
    shift 3
    "$@" >"$output" 2>&1
    found=$?
    [ $found -eq "$status" ] && [ "$(wc -l <"$output")" -eq 1 ] &&
        grep -Eqx -e "$pattern" "$output"
    tap_report $? "python: $name" "$output"
}

minimal=$examples/minimal.py
HSDP_PLUGIN=$HSDP_TEST_PLUGIN
export HSDP_PLUGIN
for strategy in ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp; do
    says "minimal.py: $strategy on 4 ranks" 0 "ok: 4 ranks, $strategy" \
        "$HSDP_RUN" -n 4 python3 "$minimal" $strategy
done
says "minimal.py: fsdp alone" 0 "ok: 1 ranks, fsdp" python3 "$minimal"
says "minimal.py: hsdp on 3 ranks" 0 "ok: 3 ranks, hsdp" "$HSDP_RUN" -n 3 python3 "$minimal" hsdp
says "minimal.py: an unknown strategy is refused" 2 \
    'minimal.py: .*sharding_strategy: "fdsp" is none of: .*' python3 "$minimal" fdsp

# use.py imports the module of the examples.
PYTHONPATH=$examples
export PYTHONPATH
says "the other functions, and failures, alone" 0 'ok' python3 "$here/python_use.py"
says "the other functions on 3 ranks" 0 'ok' "$HSDP_RUN" -n 3 python3 "$here/python_use.py"

# --------------------------------------------------------------------------------------- its loader

# object NAME TEXT: a shared object.
object() {
    mkdir -p "$scratch/$1"
    echo "$2" >"$scratch/$1/hsdp.c"
    ${CC:-cc} -shared -fPIC -o "$scratch/$1/hsdp.so" "$scratch/$1/hsdp.c"
}

object other 'int hsdp_plugin_v2(void); int hsdp_plugin_v2(void) { return 0; }'
object empty 'int hsdp_plugin_v1(void); int hsdp_plugin_v1(void) { return 0; }'
object open 'int x;'
chmod o+w "$scratch/open/hsdp.so"
mkdir "$scratch/text" "$scratch/own"
echo text >"$scratch/text/hsdp.so"
ln -s "$HSDP_TEST_PLUGIN" "$scratch/own/hsdp_zero1.so"
loads='import hsdp, os, sys
try: print(hsdp.load(os.environ.get("HSDP_PATH"), "zero1").path)
except hsdp.Error as error: print(error.status, error)'

# finds NAME PATTERN [VARIABLE=VALUE...]
finds() {
    name=$1
    pattern=$2
    shift 2
    says "$name" 0 "$pattern" env -u HSDP_PLUGIN "$@" python3 -c "$loads"
}

finds "HSDP_PLUGIN_PATH is searched in its order" "$scratch/own/hsdp_zero1.so" \
    "HSDP_PLUGIN_PATH=:$scratch:$scratch/own:$scratch/text"
finds "an explicit path comes before all" "$scratch/own/hsdp_zero1.so" \
    "HSDP_PATH=$scratch/own/hsdp_zero1.so" HSDP_PLUGIN=/none.so HSDP_PLUGIN_PATH=/none
finds "no plugin at all is told with the places" \
    '-10 loader: found no hsdp_zero1.so or hsdp.so; .*/none, .*' \
    HSDP_PLUGIN_PATH=/none
finds "a file that is missing is named" '-10 /none.so: No such file or directory' HSDP_PLUGIN=/none.so
finds "a file that is no plugin is refused" '-10 .*/text/hsdp.so: .*' "HSDP_PLUGIN_PATH=$scratch/text"
finds "another major version is refused" '-10 .*/other/hsdp.so: is no plugin of ABI 1: .*' \
    "HSDP_PLUGIN_PATH=$scratch/other"
finds "a plugin without a table is refused" \
    '-2 .*/empty/hsdp.so: accepted ABI 1, but has no such table' \
    "HSDP_PLUGIN_PATH=$scratch/empty"
finds "a file that anybody may change is refused" '-10 .*/open/hsdp.so: anybody can change it: .*' \
    "HSDP_PLUGIN_PATH=$scratch/open"

tap_done
