#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Suites that were written for hsdp.so, run with reference.so: what they ask for is in the headers.
#
# The environment names them: HSDP_TEST_REFERENCE, HSDP_TEST_BUILDDIR.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

# suite_run NAME PLUGIN: one suite with a plugin.
suite_run() {
    HSDP_TEST_PLUGIN=$2 HSDP_TEST_CASES=100 "$HSDP_TEST_BUILDDIR/$1" >"$scratch/said" 2>&1
}

for suite in check_random check_reduce_cases check_passes check_norm_p check_checkpoint \
    check_loss_scale check_on_abort; do
    suite_run $suite "$HSDP_TEST_REFERENCE"
    tap_report $? "$suite" "$scratch/said"
done

# It can fail: the suites load the plugin that they are told.
! suite_run check_checkpoint "$scratch/none.so"
tap_report $? "a plugin that is not there fails"

tap_done
