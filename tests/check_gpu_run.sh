#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run to its end: without a device, and with the doubles in place of the libraries.
#
# The environment names the folder of the doubles, HSDP_TEST_DOUBLES, and what was built,
# HSDP_TEST_BUILDDIR.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
build=$HSDP_TEST_BUILDDIR/..

# ends NAME STATUS PATTERN ARGUMENT...: a run ends with STATUS and prints a line like PATTERN.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    "$here/gpu/run" "$@" >"$output" 2>&1
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "gpu/run: $name" "$output"
}

# says NAME PATTERN: so does the last output.
says() {
    grep -qE -- "$2" "$output"
    tap_report $? "gpu/run: $1" "$output"
}

if ! command -v bash >/dev/null; then
    tap_skip "gpu/run" "there is no bash"
    tap_done
    exit
fi

ends "--help says what it runs" 0 '^usage: tests/gpu/run' --help
ends "an option that is none" 2 '^usage: ' --fast
ends "two folders" 2 '^usage: ' a b
export HSDP_CUDA_LIBRARY=/nowhere/libcuda.so.1
ends "without a device nothing is shown" 77 '^all +not here ' "$build"
for part in kernels gpt-1 gpt-n suites conform memcheck racecheck; do
    says "and $part says so" "^$part +not here +- s  no CUDA device$"
done
unset HSDP_CUDA_LIBRARY

doubles=${HSDP_TEST_DOUBLES-/nowhere}
if [ ! -f "$doubles/libcuda.so.1" ] || [ ! -f "$doubles/libnccl.so.2" ]; then
    tap_skip "gpu/run with the doubles" "they are not built"
    tap_done
    exit
fi

export HSDP_CUDA_LIBRARY="$doubles/libcuda.so.1" HSDP_NCCL_LIBRARY="$doubles/libnccl.so.2"
export HSDP_GPU_PARTS='gpt-1'
if [ -x "$build/examples/gpt/hsdp-gpt" ]; then
    ends "a part that passes has a figure" 0 '^gpt-1 +ok .* fsdp [0-9.e+-]+$' "$build"
    says "and so does the whole" '^all +ok '
    HSDP_DOUBLE_FAULTS=launch_fails=1
    export HSDP_DOUBLE_FAULTS
    ends "a part that fails is shown" 1 '^gpt-1 +FAILED ' "$build"
    says "with the end of its log" '^    .*hsdp-gpt: '
    HSDP_DOUBLE_FAULTS=slow_stream=100000 # each piece of work takes a tenth of a second
    HSDP_GPU_SECONDS=1 ends "a part that takes too long is ended" 1 '^gpt-1 +timed out ' "$build"
    unset HSDP_DOUBLE_FAULTS
else
    tap_skip "gpu/run trains" "hsdp-gpt is not built"
fi
export HSDP_GPU_PARTS='kernels' HSDP_GPU_SMALL=1
if [ -x "$build/tests/gpu/kernels" ]; then
    ends "the kernels" 0 '^kernels +ok ' "$build"
    says "their results are a figure" '^kernels +ok .* bits as on the CPU$'
    HSDP_DOUBLE_FAULTS=launch_fails=3 ends "a kernel that fails is shown" 1 '^kernels +FAILED ' "$build"
else
    tap_skip "gpu/run: the kernels" "they are not built"
fi
export HSDP_GPU_PARTS='nothing'
ends "parts that were not asked for are told" 77 '^conform +not here .*not among HSDP_GPU_PARTS' "$build"

tap_done
