#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Old, current and future hosts on current and future plugins, as compiled programs.
#
# The future is made here: headers in which every struct and table has one more entry, and this plugin
# compiled with them. Old hosts are those of abi/baseline/, and the suites of this build.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/.." && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
export scratch top

# report NAME: one case, of the command before.
report() {
    tap_report $? "hosts: $1" "$output"
}

# A plugin loads wherever a host runs: what a transport needs is looked for when a job asks for it.
! readelf -d "$HSDP_TEST_PLUGIN" | grep -E 'NEEDED.*(nccl|cuda|mpi)' >"$output" 2>&1
report "this plugin needs no library of a transport"

# ------------------------------------------------------------------------------- the next release

next=$scratch/next
mkdir -p "$next/hsdp" "$scratch/export" "$scratch/objects"
for header in "$top"/include/hsdp/*.h; do
    awk -v mode=grow -f "$top/scripts/awk/headers.awk" "$header" >"$next/hsdp/${header##*/}"
done
# Its tables have the function at the end of each.
for source in "$top"/abi/export/*.c; do
    sed -E 's/^const struct hsdp_([a-z]+_ops|api) export_[a-z]+ = \{$/int32_t next_later(uint64_t *, struct hsdp_error *);\n&\n    .later = next_later,/' \
        "$source" >"$scratch/export/${source##*/}"
done
[ "$(cat "$scratch"/export/*.c | grep -c '^    \.later = next_later,$')" -eq 10 ] >"$output" 2>&1
report "each table of the next release gets a function"

# sources: those of the build, without the second copies of kernels, and the border with its additions.
sources() {
    for object in "$HSDP_TEST_BUILDDIR"/../plugin/*/.libs/*.o; do
        folder=$(basename "$(dirname "$(dirname "$object")")")
        source=$top/plugin/$folder/$(basename "$object" .o).c
        [ ! -f "$source" ] || echo "$source"
    done
    ls "$scratch"/export/*.c
    echo "$here/next/plugin.c"
}

cat >"$scratch/compile" <<'TEXT'
# compile FILE...: one object each, named after the folder and the file.
for source; do
    names=
    case $source in
    */export/mesh.c) names='-Dmesh_create=next_mesh_create -Dmesh_info=next_mesh_info' ;;
    esac
    object=$scratch/objects/$(basename "$(dirname "$source")")-$(basename "$source" .c).o
    # shellcheck disable=SC2086
    ${CC:-cc} -std=gnu11 -O0 -w -fPIC -fvisibility=hidden -ffp-contract=off -D_GNU_SOURCE \
        '-DPACKAGE_VERSION="next"' $names -I"$scratch/next" -I"$top/plugin" -I"$top/abi" \
        -I"$top/abi/export" $(pkg-config --cflags libsodium) $HSDP_TEST_SANITIZERS -c "$source" -o "$object" || exit 1
done
TEXT
# shellcheck disable=SC2046,SC2086
sources | xargs -n 12 -P "$(nproc)" sh "$scratch/compile" >"$output" 2>&1 &&
    ${CC:-cc} $HSDP_TEST_SANITIZERS -shared -o "$scratch/next.so" "$scratch"/objects/*.o \
        -Wl,--version-script="$top/abi/export/hsdp.map" $(pkg-config --libs libsodium) -lm -ldl \
        -lpthread >>"$output" 2>&1
report "the plugin compiles with the headers of the next release"

# host_make NAME HEADERS SOURCE...: a host with the loader, as others compile it.
host_make() {
    name=$1
    headers=$2
    shift 2
    # shellcheck disable=SC2086
    ${CC:-cc} -std=gnu11 -O0 -w $HSDP_TEST_SANITIZERS -I"$headers" -o "$scratch/$name" "$@" \
        "$top/abi/loader/loader.c" -lm -ldl >"$output" 2>&1
    report "$name compiles"
}
for release in "$top"/abi/baseline/*/; do
    version=$(basename "$release")
    host_make "host-$version" "$release" "$top/examples/minimal.c"
done
host_make host-next "$next" "$top/examples/minimal.c"
host_make additions "$next" "$here/next/host.c"

# trains NAME PLUGIN HOST RANKS: the example makes its step and finds the closed form.
trains() {
    HSDP_PLUGIN=$2 timeout 60 "$HSDP_RUN" -n "$4" "$scratch/$3" hsdp >"$output" 2>&1 &&
        grep -qx "ok: $4 ranks, hsdp" "$output"
    report "$1 on $4 ranks"
}
for release in "$top"/abi/baseline/*/; do
    version=$(basename "$release")
    trains "a host of $version trains with this plugin" "$HSDP_TEST_PLUGIN" "host-$version" 2
    trains "a host of $version trains with the next plugin" "$scratch/next.so" "host-$version" 1
    trains "a host of $version trains with the next plugin" "$scratch/next.so" "host-$version" 4
done
trains "a next host trains with this plugin" "$HSDP_TEST_PLUGIN" host-next 1
trains "a next host trains with this plugin" "$HSDP_TEST_PLUGIN" host-next 4
trains "a next host trains with the next plugin" "$scratch/next.so" host-next 2
# What all of these would look like if something had been inserted instead of appended.
cp -R "$top/include" "$scratch/wrong"
chmod -R u+w "$scratch/wrong"
sed 's/^    const char \*data_dims;/    uint64_t sooner;\n&/' "$top/include/hsdp/mesh.h" >"$scratch/wrong/hsdp/mesh.h"
host_make host-wrong "$scratch/wrong" "$top/examples/minimal.c"
! HSDP_PLUGIN=$HSDP_TEST_PLUGIN timeout 60 "$scratch/host-wrong" hsdp >"$output" 2>&1 &&
    grep -q '^minimal: mesh' "$output"
report "a host of headers with a field in the middle does not train"

# --------------------------------------------------------------------------- what was appended

# finds NAME PLUGIN older|newer
finds() {
    HSDP_PLUGIN=$2 timeout 60 "$scratch/additions" "$3" >"$output" 2>&1
    report "$1"
}
finds "a next host finds the additions absent in this plugin" "$HSDP_TEST_PLUGIN" older
finds "a next host uses them in the next plugin" "$scratch/next.so" newer
# What would be said of a plugin that is not what it is taken for.
! HSDP_PLUGIN=$scratch/next.so timeout 60 "$scratch/additions" older >"$output" 2>&1
report "a host that looks for none finds them in the next plugin"
! HSDP_PLUGIN=$HSDP_TEST_PLUGIN timeout 60 "$scratch/additions" newer >"$output" 2>&1
report "a host that looks for them finds none in this plugin"

# A C++ program may hold libraries that were compiled with headers of two releases: an initializer
# that the linker took for both would write past the shorter struct.
cat >"$scratch/size.cc" <<'TEXT'
#include <hsdp/hsdp.h>
extern "C" size_t SIZE_OF();
extern "C" size_t SIZE_OF()
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    return spec.struct_size;
}
TEXT
cat >"$scratch/sizes.cc" <<'TEXT'
#include <cstddef>
extern "C" size_t older();
extern "C" size_t newer();
int main() { return older() + 8 == newer() ? 0 : 1; }
TEXT
(cd "$scratch" && ${CXX:-c++} -O0 -DSIZE_OF=older -I"$top/include" -c size.cc -o older.o &&
    ${CXX:-c++} -O0 -DSIZE_OF=newer -I"$next" -c size.cc -o newer.o &&
    ${CXX:-c++} sizes.cc older.o newer.o -o sizes && ./sizes) >"$output" 2>&1
report "one C++ program can hold the headers of two releases"

# ------------------------------------------------------------------- suites across the releases

# passes NAME PLUGIN PROGRAM
passes() {
    HSDP_TEST_PLUGIN=$2 timeout 120 "$3" >"$output" 2>&1
    report "$1"
}
old_suites='check_abi_intake check_abi_null check_abi_stride check_abi_guard check_step check_calls'
for suite in $old_suites; do
    passes "$suite of this release passes on the next plugin" "$scratch/next.so" "./$suite"
done
for suite in check_abi_intake check_abi_null check_abi_stride; do
    # shellcheck disable=SC2046,SC2086
    ${CC:-cc} -std=gnu11 -O0 -w -D_GNU_SOURCE $HSDP_TEST_SANITIZERS -I"$next" -I"$top/plugin" -I"$here" \
        $(pkg-config --cflags check) -o "$scratch/$suite" "$here/$suite.c" "$here/abi_host.c" \
        "$here/ranks.c" "$here/suite_main.c" $(pkg-config --libs check) -ldl >"$output" 2>&1
    report "$suite compiles with the headers of the next release"
    passes "$suite of the next release passes on this plugin" "$HSDP_TEST_PLUGIN" "$scratch/$suite"
    passes "$suite of the next release passes on the next plugin" "$scratch/next.so" "$scratch/$suite"
done

tap_done
