#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Optional parts of configure: off when told so, an error when forced on and missing.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/.." && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
cd "$scratch" || exit 1

# A tree configured in place refuses to be configured elsewhere.
if [ -f "$top/config.status" ]; then
    tap_skip configure "the source tree is itself configured"
    tap_done
    exit
fi

configure() {
    "$top/configure" --cache-file="$scratch/cache" "$@" >"$output" 2>&1
}

# reports NAME PATTERN: the last run has such a line.
reports() {
    grep -qE -- "$2" "$output"
    tap_report $? "$1" "$output"
}

# refuses NAME PATTERN OPTION...: fails, with an error that holds PATTERN.
refuses() {
    name=$1
    pattern=$2
    shift 2
    if configure "$@"; then
        tap_report 1 "$name" "$output"
    else
        grep -q -- "error: .*$pattern" "$output"
        tap_report $? "$name" "$output"
    fi
}

configure --without-cuda --without-nccl --without-mpi --without-gloo --without-openblas
tap_report $? "configure: parts can be switched off" "$output"
reports "configure: what was switched off is reported so" '^ +CUDA +no +switched off by --without-cuda$'
reports "configure: so is the code of devices" '^ +device code +no +switched off by --without-cuda$'
reports "configure: a peer of the bench, too" '^ +gloo +no +switched off by --without-gloo$'
grep -q "^BENCH_NO_MPI = no Open MPI (mpicc) at configure$" bench/Makefile &&
    grep -q "^BENCH_NO_GLOO = no gloo at configure$" bench/Makefile
tap_report $? "configure: make bench will say why it has no peers" bench/Makefile
reports "configure: without a part of hsdp-gpt it is not built" '^ +hsdp-gpt +no +not built'
rm "$scratch/cache" # it holds what pkg-config said
refuses "configure: openblas forced on and missing" 'libopenblas-dev' \
    --with-openblas PKG_CONFIG_LIBDIR="$scratch"
refuses "configure: jansson forced on and missing" 'libjansson-dev' --with-jansson \
    PKG_CONFIG_LIBDIR="$scratch"
refuses "configure: yaml forced on and missing" 'libyaml-dev' --with-yaml PKG_CONFIG_LIBDIR="$scratch"
refuses "configure: check forced on and missing" 'install check ' \
    --with-check PKG_CONFIG_LIBDIR="$scratch"
refuses "configure: libsodium missing" 'libsodium-dev' --without-openblas --without-yaml \
    --without-check PKG_CONFIG_LIBDIR="$scratch"
rm "$scratch/cache"
refuses "configure: cuda forced on and missing" 'nvidia-cuda-toolkit' --with-cuda="$scratch"
configure --without-openblas --without-yaml NVCC=/bin/false
reports "configure: an nvcc that does not compile is left out" '^ +device code +no +/bin/false does not compile'
rm "$scratch/cache"
refuses "configure: nccl forced on and missing" 'libnccl-dev' --with-nccl="$scratch"
refuses "configure: mpi forced on and missing" 'libopenmpi-dev' --with-mpi="$scratch/mpicc"
refuses "configure: gloo forced on and missing" 'libgloo-dev' --with-gloo CXX=false
refuses "configure: a word that is no yes or no" "not 'maybe'" --with-yaml=maybe
refuses "configure: a sanitizer that is none" "'bogus' is none of" --enable-sanitizers=bogus
refuses "configure: sanitizers that exclude each other" 'exclude each other' \
    --enable-sanitizers=thread,address
rm "$scratch/cache"
refuses "configure: fast math" 'identical bits' CFLAGS='-O2 -ffast-math'

tap_done
