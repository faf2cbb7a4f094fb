#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The headers render without a warning, with all that they say; and what is wrong is not rendered.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
make_docs=$here/../scripts/make-docs

# ends NAME STATUS PATTERN ARGUMENT...: the exit status, and a line of what it says.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    "$make_docs" "$@" >"$output" 2>&1
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "docs: $name" "$output"
}

ends "no folder is status 2" 2 '^usage: make-docs'
if ! command -v doxygen >/dev/null; then
    tap_skip "docs: the headers render" "doxygen is not installed"
    tap_done
    exit
fi

"$make_docs" "$scratch/docs" >"$output" 2>&1
tap_report $? "docs: the headers render" "$output"
[ ! -s "$output" ]
tap_report $? "docs: without a word" "$output"

# shows NAME PAGE PATTERN: a page, without its tags, holds a text.
shows() {
    sed 's/<[^>]*>//g; s/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&#160;/ /g' "$scratch/docs/html/$2.html" >"$output"
    grep -qE -- "$3" "$output"
    tap_report $? "docs: $1"
}

shows "the sentence of a file" abi_8h 'The border: version, status, error'
shows "the rules of the ABI, each an item" abi_8h '^Collective "Collective over X" means that'
shows "what a constant means" abi_8h 'a deadline passed; the missing ranks are named'
shows "what a member means" structhsdp__error '^one sentence with the values, never empty'
shows "what a function does" structhsdp__job__ops 'Meets the other ranks and agrees on settings'
shows "what it can answer" structhsdp__job__ops 'HSDP_ERR_TIMEOUT names who did not come'
shows "tables keep their columns" plan_8h '^ddp \(no_shard\)  +-  +-  +-$'
grep -q '<dt>Errors</dt>' "$scratch/docs/html/structhsdp__job__ops.html"
tap_report $? "docs: under a title"

# broken NAME FILE SED PATTERN: a copy of the tree with one comment made wrong is refused.
broken() {
    rm -rf "$scratch/tree"
    mkdir "$scratch/tree"
    cp -r "$here/../include" "$scratch/tree/include"
    mkdir "$scratch/tree/docs" "$scratch/tree/scripts"
    cp "$here/../docs/Doxyfile" "$scratch/tree/docs"
    cp -r "$here/../scripts/awk" "$scratch/tree/scripts/awk"
    chmod -R u+w "$scratch/tree"
    sed -i "$3" "$scratch/tree/include/hsdp/$2"
    ends "$1" 1 "include/hsdp/$2:[0-9]+: (warning|error): .*$4" "$scratch/other" "$scratch/tree"
}

broken "an unknown command" job.h 's/Meets the other ranks/@meets the other ranks/' 'unknown command .*meets'
broken "a reference to nothing" unit.h '0,/Errors: /s//Errors: @ref nothing_at_all /' 'nothing_at_all'
broken "a tag that is not closed" abi.h 's/What went wrong\. /What <b>went wrong. @endcode /' 'endcode'
line=$(grep -n 'Meets the other ranks' "$here/../include/hsdp/job.h" | cut -d: -f1)
broken "the line is that of the header" job.h 's/Meets the other ranks/@meets the other ranks/' 'unknown command'
grep -q "job.h:$line:" "$output"
tap_report $? "docs: it is line $line" "$output"

ends "a tree without headers is status 2" 2 'holds no include/hsdp/abi.h' "$scratch/other" "$scratch"

tap_done
