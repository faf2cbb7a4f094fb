#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plugin of docs/abi.md: compiled as it says there, it loads, says what it is, and makes meshes.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/.." && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output

# report NAME: one case, of the command before.
report() {
    tap_report $? "skeleton: $1" "$output"
}

# The command of the document, with the warnings that a plugin should not have.
command=$(sed -n 's/^    \(cc -std=c11 .*-o skeleton\.so .*\)$/\1/p' "$top/docs/abi.md")
[ -n "$command" ] >"$output" 2>&1
report "docs/abi.md says how to compile it"
ln -s "$top/examples" "$top/include" "$scratch/"
(cd "$scratch" && eval "${CC:-cc} -g -Wall -Wextra -Wpedantic -Wshadow -Werror ${command#cc }") >"$output" 2>&1
report "it compiles so, without a warning"
"$top/scripts/check-exports" "$scratch/skeleton.so" >"$output" 2>&1
report "it exports the entry alone"

"$top/scripts/check-abi" --plugin "$scratch/skeleton.so" "$top" >"$output" 2>&1
status=$?
if [ $status -eq 77 ]; then
    tap_skip "skeleton: its types are those that were recorded" "$(cat "$output")"
else
    tap_report $status "skeleton: its types are those that were recorded" "$output"
fi

# Of meshes, right and wrong ones, it says what this plugin says.
# shellcheck disable=SC2086
${CC:-cc} -std=gnu11 $HSDP_TEST_SANITIZERS -I"$top/include" -o "$scratch/transcript" \
    "$here/mesh_transcript.c" "$top/abi/loader/loader.c" -ldl >"$output" 2>&1
report "the transcript compiles"
timeout 60 "$scratch/transcript" "$scratch/skeleton.so" >"$scratch/skeleton" 2>&1
timeout 60 "$scratch/transcript" "$HSDP_TEST_PLUGIN" >"$scratch/plugin" 2>&1
[ "$(wc -l <"$scratch/plugin")" -gt 3000 ] && diff "$scratch/plugin" "$scratch/skeleton" >"$output"
report "it says of meshes what this plugin says"
grep -q ' silent$' "$scratch/skeleton" "$scratch/plugin" >"$output" 2>&1
[ $? -eq 1 ]
report "no failure is without a sentence"

# What it does not do yet it says, by the name of the function.
! HSDP_PLUGIN=$scratch/skeleton.so timeout 60 "$HSDP_MINIMAL" fsdp >"$output" 2>&1 &&
    grep -q 'job.create: not made yet in skeleton' "$output"
report "a host is told what is not made yet"

timeout 120 "$HSDP_CONFORM" --plugin "$scratch/skeleton.so" --chapter negotiation >"$output" 2>&1
report "it passes the chapter negotiation of hsdp-conform"

tap_done
