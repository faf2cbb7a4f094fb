/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, as hsdp/plan.h and hsdp/job.h list them. */
#include <stddef.h>

#include "settings.h"

#define PLAN_CLASS   (HOME_PLAN | HOME_CLASS)
#define DTYPES       "fp32 bf16 fp16"
#define MOST_SECONDS INT32_MAX

#define STRATEGIES                                                                                 \
    "ddp no_shard zero1 zero2 shard_grad_op fsdp full_shard zero3 hsdp hybrid_shard hsdp_zero2 "   \
    "hybrid_shard_zero2 hfsdp auto"

const struct key keys[N_KEYS] = {
    {"sharding_strategy", PLAN_CLASS, KEY_WORD, STRATEGIES, 0, 0, "fsdp", NULL,
     "over which ranks parameters, gradients and optimizer are sharded"},
    {"replicate_dims", PLAN_CLASS, KEY_SELECTOR, NULL, 0, 0, NULL,
     "dp_replicate where dp is split, else dp", "over which ranks hsdp and hfsdp replicate"},
    {"shard_size", HOME_PLAN, KEY_NUMBER, NULL, 1, INT32_MAX, NULL,
     "under hsdp and hfsdp, where dp is the only data dimension, the largest divisor of dp that "
     "is at most min(ranks per node, dp / 2)",
     "splits dp into dp_replicate and dp_shard"},
    {"param_dtype", PLAN_CLASS, KEY_WORD, DTYPES, 0, 0, "fp32", NULL,
     "dtype of unsharded parameters"},
    {"master_dtype", PLAN_CLASS, KEY_WORD, DTYPES, 0, 0, "fp32", NULL,
     "dtype of what the optimizer writes"},
    {"reduce_dtype", PLAN_CLASS, KEY_WORD, DTYPES, 0, 0, "fp32", NULL,
     "to what each contribution to a gradient is rounded"},
    {"gradient_dtype", PLAN_CLASS, KEY_WORD, DTYPES, 0, 0, NULL, "reduce_dtype",
     "dtype of unsharded gradients"},
    {"gradient_op", PLAN_CLASS, KEY_WORD, "mean sum", 0, 0, "mean", NULL,
     "whether gradients are divided"},
    {"gradient_divisor", PLAN_CLASS, KEY_NUMBER, NULL, 1, 16777216, NULL,
     "the data ranks of the mesh", "by what a mean is divided"},
    {"accumulation_scope", HOME_PLAN, KEY_WORD, "none inner full", 0, 0, "none", NULL,
     "how far gradients are reduced before the last microbatch"},
    {"slots", HOME_PLAN, KEY_NUMBER, NULL, 1, 64, "2", NULL,
     "of how many units of a pass gradients can be under way"},
    {"verify", HOME_PLAN, KEY_LIST, "off access wrap step:", 0, 0, "off", NULL,
     "checks while running"},
    {"backend", HOME_JOB, KEY_WORD, "auto shm mpi nccl", 0, 0, "auto", NULL, "the transport"},
    {"nccl_timeout_seconds", HOME_JOB, KEY_NUMBER, NULL, 1, MOST_SECONDS, "180", NULL,
     "how long an operation may take"},
    {"init_timeout_seconds", HOME_JOB, KEY_NUMBER, NULL, 1, MOST_SECONDS, NULL,
     "nccl_timeout_seconds", "how long connect may take"},
    {"heartbeat_timeout_seconds", HOME_JOB, KEY_NUMBER, NULL, 1, MOST_SECONDS, NULL,
     "nccl_timeout_seconds", "how long the host may make no call"},
    {"peer_silence_seconds", HOME_JOB, KEY_NUMBER, NULL, 1, MOST_SECONDS, NULL,
     "min(5, nccl_timeout_seconds)", "how long another node may be silent"},
    {"rendezvous_port", HOME_JOB, KEY_NUMBER, NULL, 1, 65535, NULL, "MASTER_PORT, then probing",
     "where ranks meet"},
    {"token_file", HOME_JOB, KEY_PATH, NULL, 0, 0, NULL, "none", "a secret that all ranks share"},
    {"flight_records", HOME_JOB, KEY_NUMBER, NULL, 16, 1000000, "2000", NULL,
     "how many past operations are kept"},
    {"flight_dir", HOME_JOB, KEY_PATH, NULL, 0, 0, NULL, "none",
     "where the last operations of a failed job are written"},
    {"cpu_path", HOME_JOB, KEY_WORD, "auto plain avx2 avx512", 0, 0, "auto", NULL,
     "the instructions to compute with"},
    {"nccl_library", HOME_JOB, KEY_PATH, NULL, 0, 0, "libnccl.so.2", NULL, "the NCCL library"},
    {"cuda_library", HOME_JOB, KEY_PATH, NULL, 0, 0, "libcuda.so.1", NULL, "the CUDA library"},
};
