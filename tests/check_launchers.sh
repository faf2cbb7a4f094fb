#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two ranks of the smallest host meet in the environment that each launcher gives them.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

# run_ranks VARIABLE=VALUE...: two processes; "@" in a value is the rank.
run_ranks() {
    for rank in 0 1; do
        (
            for pair in "$@"; do
                value=$(echo "${pair#*=}" | sed "s/@/$rank/")
                export "${pair%%=*}=$value"
            done
            HSDP_PLUGIN=$HSDP_TEST_PLUGIN HSDP_NCCL_TIMEOUT_SECONDS=10 timeout 30 \
                "$HSDP_MINIMAL" hsdp >"$scratch/$rank" 2>&1
            echo "status $?" >>"$scratch/$rank"
        ) &
    done
    wait
    cat "$scratch/0" "$scratch/1" >"$scratch/output"
}

# meets NAME VARIABLE=VALUE...: both end well, and rank 0 counts two.
meets() {
    name=$1
    shift
    run_ranks "$@"
    printf 'ok: 2 ranks, hsdp\nstatus 0\nstatus 0\n' | cmp -s - "$scratch/output"
    tap_report $? "$name" "$scratch/output"
}

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT HSDP_RUN_ID
meets "torchrun" RANK=@ WORLD_SIZE=2 LOCAL_RANK=@ LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT=29400 "TORCHELASTIC_RUN_ID=launchers-$$" TORCHELASTIC_RESTART_COUNT=0 \
    TORCHELASTIC_USE_AGENT_STORE=True
meets "mpirun" OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=@ \
    OMPI_COMM_WORLD_LOCAL_SIZE=2 "PMIX_NAMESPACE=launchers-$$" PMIX_RANK=@
meets "srun" SLURM_PROCID=@ SLURM_NTASKS=2 SLURM_LOCALID=@ "SLURM_JOB_ID=$$" SLURM_STEP_ID=0 \
    SLURM_STEP_NUM_NODES=1
meets "a process manager of its own kind" PMI_RANK=@ PMI_SIZE=2 MASTER_ADDR=localhost \
    "MASTER_PORT=$((20000 + $$ % 10000))"

# real_meets NAME COMMAND...: the launcher itself, where it is installed, starts two ranks.
real_meets() {
    name=$1
    shift
    if ! command -v "$1" >/dev/null 2>&1; then
        tap_skip "$name" "there is no $1"
        return
    fi
    HSDP_PLUGIN=$HSDP_TEST_PLUGIN HSDP_NCCL_TIMEOUT_SECONDS=10 timeout 60 "$@" "$HSDP_MINIMAL" \
        hsdp >"$scratch/output" 2>&1
    grep -q '^ok: 2 ranks, hsdp$' "$scratch/output"
    tap_report $? "$name" "$scratch/output"
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
real_meets "mpirun of Open MPI itself" mpirun.openmpi --oversubscribe -n 2
real_meets "mpiexec.hydra itself" mpiexec.hydra -genv MASTER_ADDR localhost \
    -genv MASTER_PORT "$((20000 + $$ % 10000))" -n 2
real_meets "torchrun itself" torchrun --no-python --nproc-per-node 2 \
    --master-port "$((20000 + $$ % 10000))"

run_ranks OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=2
grep -q 'nothing in the environment tells this run of 2 ranks from others' "$scratch/output" &&
    [ "$(grep -c 'status 2' "$scratch/output")" -eq 2 ]
tap_report $? "ranks that nothing tells from other runs are refused" "$scratch/output"

tap_done
