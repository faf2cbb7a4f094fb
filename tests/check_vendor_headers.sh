#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What we declare of the CUDA driver and of NCCL, beside their own headers, where those are.
#
# The environment names what is tested: HSDP_TEST_CUDA_PREFIX, HSDP_TEST_NCCL_PREFIX, the folders
# whose include/ has the headers, as configure has found them, and CXX, the C++ compiler.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
cxx=${CXX:-c++}

# compiles NAME OURS: the comparison NAME, of their header and the tree of ours.
compiles() {
    # shellcheck disable=SC2086
    $cxx -std=c++17 -fsyntax-only -Wall -Wextra -isystem "$prefix/include" -I"$2" \
        -I"$here/../include" "$here/vendor/$1_header.cc" >"$scratch/output" 2>&1
}

# finds NAME PATTERN PLACE: with one thing changed in our header it does not compile, and says PLACE.
finds() {
    rm -rf "$scratch/ours"
    mkdir -p "$scratch/ours/comm" "$scratch/ours/device"
    cp "$here/../plugin/device/cuda.h" "$scratch/ours/device"
    cp "$here/../plugin/comm/nccl.h" "$scratch/ours/comm"
    file=$(ls "$scratch/ours/"*"/$1.h")
    cp "$file" "$scratch/before"
    sed "$2" "$scratch/before" >"$file"
    if cmp -s "$scratch/before" "$file"; then
        echo "changes nothing: $2" >"$scratch/output"
        tap_report 1 "$1: $3 is changed" "$scratch/output"
        return
    fi
    ! compiles "$1" "$scratch/ours" && grep -q "static assertion failed.*$3\\|static_assert failed.*$3" "$scratch/output"
    tap_report $? "$1: a wrong $3 is found" "$scratch/output"
}

# compared NAME PREFIX: whether there is something to compare; else a case is skipped.
compared() {
    prefix=$2
    if [ ! -r "$prefix/include/$1.h" ]; then
        tap_skip "$1: ours beside theirs" "configure found no $1.h"
        return 1
    fi
    if ! echo 'int main() { if constexpr (true) { return 0; } }' >"$scratch/try.cc" ||
        ! $cxx -std=c++17 -fsyntax-only "$scratch/try.cc" >"$scratch/output" 2>&1; then
        tap_skip "$1: ours beside theirs" "no C++17 compiler ($cxx)"
        return 1
    fi
    compiles "$1" "$here/../plugin"
    tap_report $? "$1: numbers, types and functions are those of $prefix/include/$1.h" "$scratch/output"
}

if compared cuda "${HSDP_TEST_CUDA_PREFIX-}"; then
    finds cuda 's/\(NO_BINARY_FOR_GPU\) 209/\1 208/' CU_ERROR_NO_BINARY_FOR_GPU
    finds cuda 's/\(CU_STREAM_NON_BLOCKING *\)1u/\12u/' CU_STREAM_NON_BLOCKING
    finds cuda 's/char bytes.16.;/char bytes[32];/' cu_uuid
    finds cuda 's/typedef uint64_t cu_address/typedef uint32_t cu_address/' cu_address
    finds cuda 's/cu_stream stream, cu_event event, uint32_t flags/cu_stream stream, cu_event event/' cuStreamWaitEvent
    finds cuda 's/(cu_address dst, uint8_t value, size_t n_bytes/(cu_address dst, uint8_t value, uint32_t n_bytes/' cuMemsetD8Async
    finds cuda 's/(float \*ret_ms/(double *ret_ms/' cuEventElapsedTime
    finds cuda 's/(cu_context \* ret_context, cu_device device)/(cu_context ret_context, cu_device device)/' cuDevicePrimaryCtxRetain
fi
if compared nccl "${HSDP_TEST_NCCL_PREFIX-}"; then
    finds nccl 's/\(NCCL_BFLOAT16 \)9/\110/' NCCL_BFLOAT16
    finds nccl 's/0xcafebeefu/0xcafebeeeu/' NCCL_CONFIG_MAGIC
    finds nccl 's/char bytes.128.;/char bytes[64];/' nccl_unique_id
    finds nccl 's/int32_t split_share;/int64_t split_share;/' split_share
    finds nccl 's/struct nccl_unique_id id, int32_t rank,/const struct nccl_unique_id *id, int32_t rank,/' ncclCommInitRankConfig
    finds nccl 's/nccl_comm comm, nccl_result \* ret_error/nccl_comm comm/' ncclCommGetAsyncError
fi

tap_done
