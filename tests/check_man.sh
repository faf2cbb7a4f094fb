#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each program of tools/ has a manual page with the options of its --help; others are refused.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
check_man=$here/../scripts/check-man
pages=$here/../docs/man

n_programs=0
for program in "$HSDP_TEST_BUILDDIR"/../tools/*/hsdp-*; do
    if [ -f "$program" ] && [ -x "$program" ]; then
        name=${program##*/}
        "$check_man" "$pages/$name.1" "$program" >"$output" 2>&1
        tap_report $? "man: $name.1 has the options of $name --help" "$output"
        n_programs=$((n_programs + 1))
    fi
done
[ $n_programs -gt 0 ]
tap_report $? "man: there are programs to compare with"

# refuses NAME STATUS PATTERN SED: a page of hsdp-run, changed, is refused.
refuses() {
    sed "$4" "$pages/hsdp-run.1" >"$scratch/page.1"
    "$check_man" "$scratch/page.1" "$HSDP_RUN" >"$output" 2>&1
    [ $? -eq "$2" ] && grep -qE -- "$3" "$output"
    tap_report $? "man: $1" "$output"
}

refuses "an option that is missing" 1 'page\.1: --keep-going of hsdp-run --help is missing' '/keep..going/d'
refuses "an option that the program has not" 1 'page\.1: --keep-gone is no option of hsdp-run' 's/keep..going/keep\\-gone/'
refuses "a short one that is missing" 1 'page\.1: -q of hsdp-run --help is missing' 's/^.fB.-q.fR, //'
refuses "another argument" 1 'page\.1: --grace=MINUTES is no option' 's/^\(.*grace=.fI\)SECONDS/\1MINUTES/'
refuses "an option outside of OPTIONS" 1 'page\.1: -n of hsdp-run --help is missing' 's/^\.SH OPTIONS/.SH OTHERS/'
if command -v groff >/dev/null; then
    refuses "a macro that is not there" 1 'XYZ' 's/^\.SH FILES/.XYZ/; s/^\.SH EXAMPLES/.XYZ a/'
else
    tap_skip "man: a macro that is not there" "groff is not installed"
fi

! "$check_man" "$pages/hsdp-run.1" "$HSDP_TEST_BUILDDIR/../tools/flight/hsdp-flight" >"$output" 2>&1
tap_report $? "man: the help of another program" "$output"
"$check_man" "$scratch/nothing.1" "$HSDP_RUN" >"$output" 2>&1
[ $? -eq 2 ]
tap_report $? "man: a page that is not there is status 2" "$output"

tap_done
