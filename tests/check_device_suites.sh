#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Suites that were written for models in shared memory, run with models on devices: those of the doubles.
#
# The environment names the suites and the doubles: HSDP_TEST_BUILDDIR, HSDP_TEST_DOUBLES.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

# suite_run NAME FOLDER: one suite on the devices of the libraries in a folder.
suite_run() {
    HSDP_TEST_DEVICE=cuda HSDP_BACKEND=nccl HSDP_CUDA_LIBRARY=$2/libcuda.so.1 \
        HSDP_NCCL_LIBRARY=$2/libnccl.so.2 "$HSDP_TEST_BUILDDIR/$1" >"$scratch/said" 2>&1
}

# Not check_model_adamw: on a device one rank finds a mismatch of numbers while another is outside of
# calls, and so hears that the job has failed instead.
for suite in check_edit check_step check_checkpoint check_drift check_drift_ties check_loss_scale \
    check_ties_proof check_calls; do
    suite_run $suite "$HSDP_TEST_DOUBLES"
    tap_report $? "$suite" "$scratch/said"
done

# It can fail: the suites take the libraries that they are told.
! suite_run check_checkpoint "$scratch"
tap_report $? "libraries that are not there fail"

tap_done
