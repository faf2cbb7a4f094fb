#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One file serves nodes with GPUs and without: what is not there, is incomplete or too old is told.
#
# Case E3 of tests/cases/README.md. The environment names what is tested: HSDP_TEST_PLUGIN,
# HSDP_TEST_BUILDDIR, HSDP_RUN, HSDP_MINIMAL, HSDP_INFO.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
unset HSDP_NCCL_LIBRARY HSDP_CUDA_LIBRARY
export HSDP_PLUGIN="$HSDP_TEST_PLUGIN"

# library NAME OPTION...: builds tests/info_library.c as a library of that name, at $made.
library() {
    made=$scratch/$1
    shift
    "${CC:-cc}" -shared -fPIC -w "$@" -I"$here/../plugin" -I"$here/../include" -o "$made" \
        "$here/info_library.c" >"$output" 2>&1 || tap_report 1 "${made##*/} is built" "$output"
}

# --------------------------------------------------------------------------------- what is needed

# needs_vendor FILE: whether it is linked with a library of CUDA, or with NCCL.
needs_vendor() {
    LC_ALL=C readelf -d "$1" | grep NEEDED | grep -qE 'lib(cuda|cudart|nccl|nv)'
}

if command -v readelf >/dev/null; then
    readelf -d "$HSDP_TEST_PLUGIN" >"$output" 2>&1 && ! needs_vendor "$HSDP_TEST_PLUGIN"
    tap_report $? "the plugin needs no library of CUDA or NCCL to be loaded" "$output"
    library libnccl.so.2 -DCODE=22809 -Wl,-soname,libnccl.so.2
    echo 'extern int ncclGetVersion(int *); int f(int *v) { return ncclGetVersion(v); }' >"$scratch/f.c"
    "${CC:-cc}" -shared -fPIC -w -o "$scratch/needy.so" "$scratch/f.c" "$made" && needs_vendor "$scratch/needy.so"
    tap_report $? "one that does is found"
else
    tap_skip "the plugin needs no library of CUDA or NCCL to be loaded" "no readelf"
fi

# ------------------------------------------------------------------------- jobs without a GPU, E3

# tells NAME PATTERN: jobs of two ranks on the CPU work before and after; that of a device ends with a
# sentence, on both.
tells() {
    timeout 60 "$HSDP_RUN" -n 2 "$HSDP_TEST_BUILDDIR/devices_host" >"$output" 2>&1 </dev/null &&
        [ "$(grep -cx 'cpu: 0 shm' "$output")" -eq 2 ] &&
        [ "$(grep -cx 'again: 0 shm' "$output")" -eq 2 ] &&
        [ "$(grep -cxE "cuda: $2" "$output")" -eq 2 ]
    tap_report $? "$1" "$output"
}

absent='cannot be loaded: cannot open shared object file: No such file or directory'

export HSDP_CUDA_LIBRARY=/nowhere/libcuda.so.1 HSDP_NCCL_LIBRARY=/nowhere/libnccl.so.2
tells "nothing is there" "-10 (cuda|nccl)_library: /nowhere/lib(cuda|nccl)\\.so\\.[12] $absent"
"$HSDP_MINIMAL" hsdp >"$output" 2>&1
tap_report $? "training on the CPU works there" "$output"

library libcuda.so.1 -DDEVICES=1
export HSDP_CUDA_LIBRARY="$made"
tells "no NCCL" "-10 nccl_library: /nowhere/libnccl\\.so\\.2 $absent"
echo 'no library' >"$scratch/text.so"
export HSDP_NCCL_LIBRARY="$scratch/text.so"
tells "an NCCL that is a file of another kind" \
    "-10 nccl_library: $scratch/text\\.so cannot be loaded: (file too short|invalid ELF header)"
library libnccl.so.2 -DCODE=21705
export HSDP_NCCL_LIBRARY="$made"
tells "an old NCCL" "-10 nccl_library: $made is NCCL 2\\.17\\.5; this plugin needs 2\\.18\\.0 or newer"
library libnccl.so.2 -DCODE=22809 -DncclRecv=ncclNobodyAsks
tells "an incomplete NCCL" "-10 nccl_library: $made, NCCL 2\\.28\\.9, lacks ncclRecv"
"$HSDP_MINIMAL" hsdp >"$output" 2>&1
tap_report $? "training on the CPU works there, too" "$output"

library libnccl.so.2 -DCODE=22809
export HSDP_CUDA_LIBRARY=/nowhere/libcuda.so.1
tells "no driver" "-10 cuda_library: /nowhere/libcuda\\.so\\.1 $absent"
library libcuda.so.1 -DDEVICES=-1
export HSDP_CUDA_LIBRARY="$made"
tells "a driver without a device" \
    '-10 cuInit: CUDA_ERROR_NO_DEVICE \(no CUDA device that this process may use\)'
library libcuda.so.1 -DDEVICES=1 -DcuStreamWaitEvent=cuNobodyAsks
tells "an incomplete driver" "-10 cuda_library: $made, driver 13\\.0 \\(R580\\), lacks cuStreamWaitEvent"
library libcuda.so.1 -DDEVICES=0
tells "a driver that has a device less" \
    '-10 gpu: there is no device 0; this process may use 0, from 0'
unset HSDP_CUDA_LIBRARY HSDP_NCCL_LIBRARY

# ---------------------------------------------------------------------------- the real libraries

# fact NAME EXPRESSION: of the libraries as hsdp-info tells of them; in Python, `of` by their names.
fact() {
    python3 -c 'import json, sys
of = {l["name"]: l for l in json.load(open(sys.argv[1]))["plugins"][-1]["libraries"]}
print('"$1"')' "$scratch/info.json"
}

if [ ! -x "$HSDP_INFO" ] || ! command -v python3 >/dev/null; then
    tap_skip "the installed NCCL" "needs hsdp-info and python3"
    tap_done
    exit
fi
timeout 120 "$HSDP_INFO" --json "$HSDP_TEST_PLUGIN" >"$scratch/info.json" 2>"$output"
tap_report $? "hsdp-info tells of the installed libraries" "$output"
version=$(fact 'of["libnccl.so.2"].get("version", "")')
fact 'of["libnccl.so.2"]' >"$output"
if [ -n "$version" ]; then
    [ "$(fact 'of["libnccl.so.2"]["works"]')" = True ]
    tap_report $? "the installed NCCL, $version, has every function" "$output"
else
    tap_skip "the installed NCCL has every function" "there is none: $(fact 'of["libnccl.so.2"]["reason"]')"
fi
if [ "$(fact 'of["libcuda.so.1"]["works"]')" = True ]; then
    tap_skip "a job of a device without one" "this machine has one"
else
    tells "a job of a device without one says so, by the installed libraries" \
        "-10 (cuda_library: libcuda\\.so\\.1 $absent|cuInit: CUDA_ERROR_NO_DEVICE .*|nccl_library: .*)"
    # A driver that is one to us alone: the real NCCL is loaded and asked, and finds none by itself.
    library stand-in.so -DDEVICES=1
    export HSDP_CUDA_LIBRARY="$made"
    if [ -n "$version" ]; then
        tells "the installed NCCL without a driver fails by name, and at once" \
            '-12 ncclCommInitRankConfig of group "world" on rank [01]: .*'
    else
        tells "without an NCCL its absence is told" "-10 nccl_library: libnccl\\.so\\.2 $absent"
    fi
fi

tap_done
