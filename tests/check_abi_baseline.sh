#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The ABI is the recorded one; and every way to break it is found, by each gate that can see it.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$here/..
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
tree=$scratch/tree
output=$scratch/output

# tree_fresh: a tree of public headers, their recording and the asserts on them.
tree_fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/abi/export"
    cp -R "$top/include" "$tree/include"
    cp -R "$top/abi/baseline" "$tree/abi/baseline"
    cp "$top/abi/export/layout.c" "$top/abi/export/layout.h" "$tree/abi/export/"
    chmod -R u+w "$tree"
}

# tree_grow: its headers become those of the next minor version, with something more in every struct.
tree_grow() {
    for header in "$top"/include/hsdp/*.h; do
        awk -v mode=grow -f "$top/scripts/awk/headers.awk" "$header" >"$tree/include/hsdp/${header##*/}"
    done
}

# edit FILE SED: changes a header; one that stays as it was is a mistake of this test.
edit() {
    sed -E "$2" "$tree/include/hsdp/$1" >"$scratch/edited"
    if cmp -s "$scratch/edited" "$tree/include/hsdp/$1"; then
        tap_report 1 "this test: $2 changes nothing in $1"
    fi
    cp "$scratch/edited" "$tree/include/hsdp/$1"
}

# layout: the frozen asserts hold.
layout() {
    # shellcheck disable=SC2086
    ${CC:-cc} -std=gnu11 -fsyntax-only -I"$tree/include" "$tree/abi/export/layout.c"
}

# gates_that_refuse: which of the gates see a difference in the tree, by their words.
gates_that_refuse() {
    CC=${CC:-cc} "$top/scripts/check-abi" "$tree" >"$output" 2>&1
    check_status=$?
    ! grep -q '^names differ from' "$output" || echo names
    ! grep -qE '^the headers, as of| is older than what stands before it' "$output" || echo text
    ! grep -qE '^what the headers declare differs|^the surface .* does not compile' "$output" || echo types
    ! grep -qE '^what a plugin exports differs|^the plugin .* does not compile' "$output" || echo plugin
    layout >>"$output" 2>&1 || echo layout
    [ $check_status -eq 1 ] || echo "status $check_status"
}

# breaks NAME GATES FILE SED: the change is refused, by exactly these gates.
breaks() {
    tree_fresh
    edit "$3" "$4"
    gates_that_refuse >"$scratch/gates"
    [ "$(tr '\n' ' ' <"$scratch/gates")" = "$2 " ]
    tap_report $? "abi: $1 is refused by $2" "$scratch/gates"
}

# says NAME STATUS PATTERN ARGUMENT...: what check-abi says of the tree.
says() {
    name=$1
    status=$2
    pattern=$3
    shift 3
    CC=${CC:-cc} "$top/scripts/check-abi" "$@" "$tree" >"$output" 2>&1
    found=$?
    [ $found -eq "$status" ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$output"; }
    tap_report $? "abi: $name" "$output"
}

# plugin_make FLAG...: a plugin of the tree's headers, into the scratch folder.
plugin_make() {
    # shellcheck disable=SC2086
    ${CC:-cc} -std=gnu11 -shared -fPIC -fvisibility=hidden -DFAKE=0 \
        '-Dhsdp_plugin_v1=__attribute__((visibility("default"))) hsdp_plugin_v1' \
        -I"$tree/include" "$@" -o "$scratch/plugin.so" "$here/fake_plugin.c"
}

CC=${CC:-cc} "$top/scripts/check-abi" --plugin "$HSDP_TEST_PLUGIN" "$top" >"$output" 2>&1
status=$?
if [ $status -eq 77 ]; then
    tap_report 0 "abi: names and headers are the recorded ones"
    tap_skip "abi: the types are the recorded ones" "$(cat "$output")"
    tap_done
    exit
fi
tap_report $status "abi: headers, types and plugin are the recorded ones" "$output"
! grep -E "path='/" "$top"/abi/baseline/*/*.xml >"$output"
tap_report $? "abi: the recording holds no folder of a machine" "$output"

# What each gate sees. Types are what abidiff reads in an object of the headers, plugin in its entry.
breaks "a field in the middle" "names text types plugin layout" mesh.h \
    's/^( +)const char \*data_dims;/\1uint64_t later;\n&/'
breaks "a field at the end, not recorded" "names types plugin layout" mesh.h \
    's/^( +)uint32_t ranks_per_node; +.*unknown.*$/&\n\1uint64_t later;/'
breaks "a field of another type" "text types plugin" job.h 's/int32_t device_id; /uint32_t device_id;/'
breaks "two fields in another order" "text types plugin layout" mesh.h \
    's/^    uint32_t n_dims;   /    uint32_t world_x;/; s/uint32_t world_ranks; /uint32_t n_dims;/; s/world_x/world_ranks/'
breaks "a field of another name" "names text types plugin layout" step.h 's/double clip;/double clap;/'
breaks "an array of another size" "text types plugin layout" abi.h 's/message\[512\]/message[504]/'
breaks "a function less" "names text types plugin layout" diag.h '/\(\*counter_name\)/,/;/d'
breaks "a parameter of another type" "text types" adamw.h 's/\(\*step\)\(hsdp_model/(*step)(hsdp_job/'
breaks "a parameter more" "text types plugin" mesh.h 's/uint32_t rank, uint32_t \*ret_coords/uint32_t at, &/'
breaks "a parameter that is not const" "text types plugin" mesh.h 's/const char \*selector, /char *selector, /'
breaks "a result of another type" "text types plugin" mesh.h 's/int32_t \(\*coords\)/uint32_t (*coords)/'
breaks "a void that is not const, which abidiff does not see" "text" abi.h 's/const void \*\*ret/void **ret/'
breaks "a number of another value" "names text layout" plan.h 's/(HSDP_NO_SLOT) 0xf/\1 0xe/'
breaks "a status of another value" "names text layout" abi.h 's/(HSDP_ERR_BUSY +)\(-14\)/\1(-41)/'
breaks "a text of another value" "names text" adamw.h 's/"hsdp.adamw"/"hsdp.adam"/'
breaks "a macro less" "names text layout" job.h '/define HSDP_LOG_DEBUG/d'
breaks "a function of the loader of another type" "text types" loader.h \
    's/^const char \*hsdp_plugin_path/const void *hsdp_plugin_path/'

# hides NAME FILE: a value is changed where no gate looks; that it is included is seen.
hides() {
    tree_fresh
    mkdir -p "$(dirname "$tree/include/hsdp/$2")"
    printf '#undef HSDP_ADAMW_EXTENSION\n#define HSDP_ADAMW_EXTENSION "hsdp.adam"\n' >"$tree/include/hsdp/$2"
    edit hsdp.h "s,^#include \"hsdp/unit.h\",&\n#include \"$3$2\","
    gates_that_refuse >"$scratch/gates"
    [ "$(tr '\n' ' ' <"$scratch/gates")" = "text " ]
    tap_report $? "abi: $1 is refused by text" "$scratch/gates"
}
hides "a header in a folder of its own" detail/other.h hsdp/
hides "a header of another folder" ../other/other.h hsdp/
hides "a header by another name" other.inc hsdp/
hides "a header beside it" detail/other.h ''

tree_fresh
edit mesh.h 's,^#define HSDP_MESH_MAX_DIMS,/* More\n * words. */\n&,'
says "a comment more is none of it" 0 ''
layout >"$output" 2>&1
tap_report $? "abi: the asserts hold on the headers" "$output"

# From here on a release that is yet to come: appended to every struct and table.
tree_fresh
tree_grow
says "an addition that is not recorded says how to" 1 'If this is a wanted addition: raise HSDP_ABI_MINOR'
layout >"$output" 2>&1
tap_report $? "abi: the asserts allow additions by a new minor" "$output"
says "an addition is recorded" 0 '^recorded ABI 1\.1 ' --record
diff -r "$top/abi/baseline/1.0" "$tree/abi/baseline/1.0" >"$output" 2>&1 &&
    grep -q '^hsdp_mesh_ops\.later function 1\.1$' "$tree/abi/baseline/symbols" &&
    grep -q '^hsdp_mesh_ops\.create function 1\.0$' "$tree/abi/baseline/symbols"
tap_report $? "abi: what was recorded before stays, and names tell their release" "$output"
says "what is recorded is accepted" 0 ''
says "a release is recorded once" 1 '1\.1 is there already' --record
edit step.h 's/double clip;/double clap;/'
says "an older release is looked at, too" 1 '^the headers, as of ABI 1\.0, differ'
says "of a recorded plugin the next minor is another" 1 'what a plugin exports differs'

# records NAME PATTERN FILE SED: a next minor that breaks the first one is not recorded.
records() {
    tree_fresh
    tree_grow
    edit "$3" "$4"
    says "$1 cannot be recorded" 1 "$2" --record
    [ ! -e "$tree/abi/baseline/1.1" ]
    tap_report $? "abi: $1 leaves no recording"
}
records "a field in the middle" 'hsdp_mesh_spec.data_dims is older than what stands before it' mesh.h \
    's/^( +)const char \*data_dims;/\1uint64_t sooner;\n&/'
records "a field of another type" '^\+ +uint32_t device_id;' job.h 's/int32_t device_id; /uint32_t device_id;/'
records "a number of another value" 'HSDP_ERR_BUSY is "macro \(-41\)", but was recorded as "macro \(-14\)"' abi.h \
    's/(HSDP_ERR_BUSY +)\(-14\)/\1(-41)/'
records "a function less" 'hsdp_diag_ops.counter_name is recorded, but no longer there' diag.h \
    '/\(\*counter_name\)/,/;/d'

tree_fresh
sed 's/double clip;/double clap;/' "$top/abi/baseline/1.0/hsdp/step.h" >"$tree/abi/baseline/1.0/hsdp/step.h"
says "a recorded header that was edited is found" 1 '^-    double clap;'
tree_fresh
sed "s/name='clip'/name='clap'/" "$top/abi/baseline/1.0/surface.xml" >"$tree/abi/baseline/1.0/surface.xml"
says "a recorded type that was edited is found" 1 'surface.xml'
tree_fresh
sed '/^HSDP_LOG_DEBUG /d' "$top/abi/baseline/symbols" >"$tree/abi/baseline/symbols"
says "a name that was removed from the list is found" 1 '^HSDP_LOG_DEBUG \(macro\) is not recorded'
rm -r "$tree/abi/baseline"
says "a tree without a recording is refused" 1 '^ABI 1\.0 is not recorded'

# Plugins are compared as they are built.
tree_fresh
plugin_make -g
says "another plugin of the same headers is the same" 0 '' --plugin "$scratch/plugin.so"
plugin_make -s
says "a plugin without debug information is left out" 0 '^left out: ' --plugin "$scratch/plugin.so"
edit mesh.h 's/^( +)const char \*data_dims;/\1uint64_t later;\n&/'
plugin_make -g
tree_fresh
says "a plugin of other headers is refused" 1 'plugin.so differs from .*plugin.xml' --plugin "$scratch/plugin.so"
says "a plugin that is not there" 2 'none.so: no such file' --plugin "$scratch/none.so"

tap_done
