/* SPDX-License-Identifier: Apache-2.0 */
/* The table of every setting: key, home, type, range, default, meaning. */
#include "base/settings.h"

#include <stddef.h>

#define DTYPES      "fp32 bf16 fp16"
#define MAX_SECONDS INT32_MAX
#define MAX_DIVISOR 16777216 /* whole numbers are exact in fp32 up to here */
#define PLAN_CLASS  (SETTING_PLAN | SETTING_CLASS)

#define STRATEGIES                                                                                 \
    "ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp auto no_shard shard_grad_op full_shard zero3 "     \
    "hybrid_shard hybrid_shard_zero2"

const struct setting_def setting_defs[SETTINGS_COUNT] = {
    {"sharding_strategy", PLAN_CLASS, SETTING_CHOICE, STRATEGIES, 0, 0, "fsdp", NULL,
     "over which ranks parameters, gradients and optimizer are sharded"},
    {"replicate_dims", PLAN_CLASS, SETTING_SELECTOR, NULL, 0, 0, NULL,
     "dp_replicate where dp is split, else dp",
     "the dimensions that hsdp and hfsdp replicate over"},
    {"shard_size", SETTING_PLAN, SETTING_INTEGER, NULL, 1, INT32_MAX, NULL,
     "under hsdp and hfsdp over dp alone: the largest divisor of dp that is at most "
     "min(ranks per node, dp / 2), at least 1; else dp is not split",
     "ranks per shard group: splits dp into dp_replicate x dp_shard"},
    {"param_dtype", PLAN_CLASS, SETTING_CHOICE, DTYPES, 0, 0, "fp32", NULL,
     "dtype of the unsharded parameters"},
    {"master_dtype", PLAN_CLASS, SETTING_CHOICE, DTYPES, 0, 0, "fp32", NULL,
     "dtype of the parameters that the optimizer writes"},
    {"reduce_dtype", PLAN_CLASS, SETTING_CHOICE, DTYPES, 0, 0, "fp32", NULL,
     "dtype on the wire: each contribution to a gradient is rounded to it once"},
    {"gradient_dtype", PLAN_CLASS, SETTING_CHOICE, DTYPES, 0, 0, NULL, "reduce_dtype",
     "dtype of the unsharded gradients that the host writes"},
    {"gradient_op", PLAN_CLASS, SETTING_CHOICE, "mean sum", 0, 0, "mean", NULL,
     "whether gradients are divided by gradient_divisor"},
    {"gradient_divisor", PLAN_CLASS, SETTING_INTEGER, NULL, 1, MAX_DIVISOR, NULL,
     "the number of data ranks of the mesh", "what a mean is divided by"},
    {"accumulation_scope", SETTING_PLAN, SETTING_CHOICE, "none inner full", 0, 0, "none", NULL,
     "how far gradients are reduced before the last microbatch; memory is planned for it"},
    {"slots", SETTING_PLAN, SETTING_INTEGER, NULL, 1, 64, "2", NULL,
     "how many consecutive units may be unsharded, or hold gradients, at one time"},
    {"verify", SETTING_PLAN, SETTING_LIST, "off access wrap step:N", 0, 0, "off", NULL,
     "checks while running: use after release, the mathematics at wrap, drift every N steps"},
    {"backend", SETTING_JOB, SETTING_CHOICE, "auto shm mpi nccl", 0, 0, "auto", NULL,
     "the transport; auto = nccl with a CUDA device, shm on one host, else mpi"},
    {"nccl_timeout_seconds", SETTING_JOB, SETTING_INTEGER, NULL, 1, MAX_SECONDS, "180", NULL,
     "how long any wait may take"},
    {"init_timeout_seconds", SETTING_JOB, SETTING_INTEGER, NULL, 1, MAX_SECONDS, NULL,
     "nccl_timeout_seconds", "how long connect may take; at least nccl_timeout_seconds"},
    {"heartbeat_timeout_seconds", SETTING_JOB, SETTING_INTEGER, NULL, 1, MAX_SECONDS, NULL,
     "nccl_timeout_seconds", "how long the host may make no call, outside of a phase"},
    {"peer_silence_seconds", SETTING_JOB, SETTING_INTEGER, NULL, 1, MAX_SECONDS, NULL,
     "min(5, nccl_timeout_seconds)",
     "how long another node may be silent before it counts as lost"},
    {"rendezvous_port", SETTING_JOB, SETTING_INTEGER, NULL, 1, 65535, NULL,
     "MASTER_PORT, then probing", "where the nodes of a job meet"},
    {"token_file", SETTING_JOB, SETTING_PATH, NULL, 0, 0, NULL, "none: loopback only",
     "file of the secret that nodes prove to hold: 32 bytes, or 64 hexadecimal digits"},
    {"flight_records", SETTING_JOB, SETTING_INTEGER, NULL, 16, 1000000, "2000", NULL,
     "how many past operations the flight recorder keeps"},
    {"flight_dir", SETTING_JOB, SETTING_PATH, NULL, 0, 0, NULL, "none: nothing is written",
     "where each rank writes its last operations when the job has failed"},
    {"cpu_path", SETTING_JOB, SETTING_CHOICE, "auto plain avx2 avx512", 0, 0, "auto", NULL,
     "the instructions that kernels use; auto = the widest; the bits are the same"},
    {"nccl_library", SETTING_JOB, SETTING_PATH, NULL, 0, 0, "libnccl.so.2", NULL,
     "the NCCL library to load"},
    {"cuda_library", SETTING_JOB, SETTING_PATH, NULL, 0, 0, "libcuda.so.1", NULL,
     "the CUDA driver library to load"},
};
