# SPDX-License-Identifier: Apache-2.0
# Test Anything Protocol for the shell tests: source it, call tap_case, end with tap_done.
# shellcheck shell=sh

tap_cases=0
tap_failed=0

# tap_report STATUS NAME [FILE]: one case; FILE is shown as diagnostics when it failed.
tap_report() {
    tap_cases=$((tap_cases + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $tap_cases - $2"
        return
    fi
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_cases - $2"
    if [ -n "${3-}" ]; then
        sed 's/^/#   /' "$3"
    fi
}

# tap_skip NAME REASON
tap_skip() {
    tap_cases=$((tap_cases + 1))
    echo "ok $tap_cases - $1 # SKIP $2"
}

# tap_done: the plan; call it last, so that a script that dies early has none and fails.
tap_done() {
    echo "1..$tap_cases"
    [ "$tap_failed" -eq 0 ]
}
