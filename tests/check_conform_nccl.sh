#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hsdp-conform on devices: our plugin keeps on them what the headers promise.
#
# The libraries are the doubles, whose folder is HSDP_TEST_DOUBLES. The environment names the programs:
# HSDP_CONFORM, HSDP_TEST_PLUGIN.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
output=$(mktemp)
trap 'rm -f "$output"' EXIT INT TERM

doubles=${HSDP_TEST_DOUBLES-/nowhere}
if [ ! -x "$HSDP_CONFORM" ]; then
    tap_skip "the kit on devices" "hsdp-conform is not built"
    tap_done
    exit
fi
if [ ! -f "$doubles/libcuda.so.1" ] || [ ! -f "$doubles/libnccl.so.2" ]; then
    tap_skip "the kit on devices" "the doubles are not built"
    tap_done
    exit
fi

# A chapter a case, so that a failure has a name.
chapters=$("$HSDP_CONFORM" --list | sed 's/: .*//' | uniq)
for chapter in $chapters; do
    timeout 200 "$HSDP_CONFORM" --plugin "$HSDP_TEST_PLUGIN" --seed 11 --device cuda \
        --set "cuda_library=$doubles/libcuda.so.1" \
        --set "nccl_library=$doubles/libnccl.so.2" --chapter "$chapter" --limit 60 --jobs 4 >"$output" 2>&1
    [ $? -eq 0 ] && ! grep -q 'no device for this rank' "$output"
    tap_report $? "hsdp-conform --device cuda: $chapter" "$output"
done

tap_done
