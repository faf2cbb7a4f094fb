#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Feeds the conformance kit plugins that are wrong on purpose: the right check has to find each.
#
# A wrong plugin is one of
#   tests/wrong/*.c           one that passes calls on to a good one, but for a fault with a name
#   tests/wrong/mutants       the engine with a patch of tests/mutants/
#   tests/wrong/*.patch       the second plugin with a patch; "Caught by: CHAPTER: CHECK" says by what
#
# check_conform_wrong.sh [NAME...]: only those.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
conform=$HSDP_CONFORM
build=$HSDP_TEST_BUILDDIR
tab=$(printf '\t')
WRONG_PLUGIN=$HSDP_TEST_PLUGIN
export WRONG_PLUGIN

# objects FOLDER FILE: what the build has made of each source of a folder, but of FILE.
objects() {
    for source in "$here/../$1"/*.c; do
        [ "$source" = "$here/../$2" ] ||
            echo "$build/../$1/.libs/$(basename "$source" .c).o"
    done
}

# patched_build PATCH GOOD FOLDER [ARCHIVE]: a plugin of the patched file, the other objects of FOLDER,
# and what it needs of ARCHIVE; it is linked with the libraries of GOOD.
patched_build() {
    file=$(sed -n 's|^+++ b/||p' "$1")
    part=$(basename "$file" .c)
    patch --quiet --output="$place/$part.c" "$here/../$file" "$1" || return 1
    # shellcheck disable=SC2086 # flags are several words
    $CC -std=gnu11 -O1 -D_GNU_SOURCE -DPACKAGE_VERSION='"0"' -w -fPIC -fvisibility=hidden \
        -ffp-contract=off -fno-math-errno ${HSDP_TEST_SANITIZERS-} -I"$here/../include" \
        -I"$here/../plugin" -I"$here/../$(dirname "$file")" -c -o "$place/$part.o" \
        "$place/$part.c" || return 1
    needed=$(objdump -p "$2" | sed -n 's/^ *NEEDED */-l:/p')
    # shellcheck disable=SC2046,SC2086 # objects and libraries are several words
    $CC -shared ${HSDP_TEST_SANITIZERS-} -Wl,--version-script="$here/wrong/wrong.map" \
        -o "$place/wrong.so" "$place/$part.o" $(objects "$3" "$file") ${4-} $needed -lm
}

# plugin_build KIND NAME: $place/wrong.so.
plugin_build() {
    case $1 in
    fault) ln -s "$build/wrong/.libs/wrong.so" "$place/wrong.so" ;;
    mutant) patched_build "$here/mutants/$2.patch" "$HSDP_TEST_PLUGIN" abi/export \
        "$build/../plugin/.libs/libengine.a" ;;
    patch) patched_build "$here/wrong/$2.patch" "$HSDP_TEST_REFERENCE" tests/reference ;;
    esac
}

# wrong_try FOLDER "KIND NAME CHAPTER CHECK": builds one and runs its check; FOLDER/NAME is what came of
# it, and FOLDER/NAME.found is there if the check has failed, and nothing but the check.
wrong_try() {
    IFS=$tab read -r kind name chapter check <<LINE
$2
LINE
    place=$1/$name.d
    mkdir "$place"
    {
        plugin_build "$kind" "$name" || exit 0
        [ "$kind" != fault ] || export WRONG_FAULT="$name"
        timeout 60 "$conform" --tap --seed=1 --plugin="$place/wrong.so" --chapter="$chapter" \
            --check="$check"
        [ $? -eq 1 ] || exit 0
    } >"$1/$name" 2>&1
    if grep -q "^not ok [0-9]* - $chapter: $check" "$1/$name"; then
        touch "$1/$name.found"
    fi
}

if [ "${1-}" = --try ]; then
    wrong_try "$2" "$3"
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

# All of them, a line each: kind, name, chapter, check.
{
    "$build/wrong/list" | sed "s/^/fault$tab/" | cut -f 1-4
    grep -v '^#' "$here/wrong/mutants" | sed "s/^/mutant$tab/"
    for patch in "$here"/wrong/*.patch; do
        [ -e "$patch" ] || continue
        printf 'patch\t%s\t%s\n' "$(basename "$patch" .patch)" \
            "$(sed -n 's/^Caught by: \([a-z]*\): /\1\t/p' "$patch")"
    done
} >"$scratch/all"
for name in "$@"; do
    grep "^[a-z]*${tab}${name}${tab}" "$scratch/all"
done >"$scratch/chosen"
[ $# -gt 0 ] || cp "$scratch/all" "$scratch/chosen"

# Most of them wait for most of their time.
xargs -d '\n' -P 4 -n 1 sh "$0" --try "$scratch" <"$scratch/chosen"
while IFS=$tab read -r kind name chapter check; do
    [ -e "$scratch/$name.found" ]
    tap_report $? "$kind $name is caught by $chapter: $check" "$scratch/$name"
done <"$scratch/chosen"

# The same checks pass where nothing is wrong: by way of the plugin that passes calls on.
cut -f 3 "$scratch/chosen" | sort -u >"$scratch/chapters"
while read -r chapter; do
    grep "^[a-z]*${tab}[^${tab}]*${tab}${chapter}${tab}" "$scratch/chosen" | cut -f 4 | sort -u |
        sed 's/^/--check=/' >"$scratch/checks"
    xargs -d '\n' "$conform" --tap --jobs=4 --seed=1 --plugin="$build/wrong/.libs/wrong.so" \
        --chapter="$chapter" <"$scratch/checks" >"$scratch/output" 2>&1
    tap_report $? "the same checks of $chapter pass with a good plugin" "$scratch/output"
done <"$scratch/chapters"
tap_done
