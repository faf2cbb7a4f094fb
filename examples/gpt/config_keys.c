/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of the configuration of hsdp-gpt, in the order of the help. */
#include "config.h"

#define PLUGIN_KEY(name, type, help)                                                               \
    {                                                                                              \
        name, type, 0, NULL, 0, 0, NULL, help                                                      \
    }
#define TEXT_KEY(name, value, help)                                                                \
    {                                                                                              \
#name, CONFIG_TEXT, offsetof(struct config, name), value, 0, 0, NULL, help                 \
    }
#define INTEGER_KEY(name, value, least, most, help)                                                \
    {                                                                                              \
#name, CONFIG_INTEGER, offsetof(struct config, name), value, least, most, NULL, help       \
    }
#define NUMBER_KEY(name, value, least, most, help)                                                 \
    {                                                                                              \
#name, CONFIG_NUMBER, offsetof(struct config, name), value, least, most, NULL, help        \
    }

const struct config_key config_keys[] = {
    TEXT_KEY(plugin, "", "the plugin's file; empty: HSDP_PLUGIN, then the search path"),
    PLUGIN_KEY("sharding_strategy", CONFIG_PLAN,
               "ddp, zero1, zero2, fsdp, hsdp, hsdp_zero2, hfsdp"),
    PLUGIN_KEY("shard_size", CONFIG_PLAN, "ranks that share one copy under the hybrid strategies"),
    PLUGIN_KEY("replicate_dims", CONFIG_PLAN, "dimensions that hold whole copies"),
    PLUGIN_KEY("param_dtype", CONFIG_PLAN, "of the unsharded parameters: fp32, bf16, fp16"),
    PLUGIN_KEY("master_dtype", CONFIG_PLAN, "of what the optimizer writes: fp32, bf16, fp16"),
    PLUGIN_KEY("reduce_dtype", CONFIG_PLAN, "of gradients on the wire: fp32, bf16, fp16"),
    PLUGIN_KEY("gradient_dtype", CONFIG_PLAN, "of the unsharded gradients"),
    PLUGIN_KEY("gradient_op", CONFIG_PLAN, "over the ranks: mean, sum"),
    PLUGIN_KEY("gradient_divisor", CONFIG_PLAN, "what a mean divides by"),
    PLUGIN_KEY("accumulation_scope", CONFIG_PLAN,
               "what a microbatch before the last reduces: none, inner, full"),
    PLUGIN_KEY("slots", CONFIG_PLAN, "units that may be unsharded at a time"),
    PLUGIN_KEY("verify", CONFIG_PLAN,
               "checks while running: off, or a list of access, wrap, step:N"),
    PLUGIN_KEY("backend", CONFIG_JOB, "how ranks communicate: auto, shm, mpi, nccl"),
    PLUGIN_KEY("nccl_timeout_seconds", CONFIG_JOB, "limit of every wait for another rank"),
    PLUGIN_KEY("init_timeout_seconds", CONFIG_JOB, "limit of the first meeting"),
    PLUGIN_KEY("heartbeat_timeout_seconds", CONFIG_JOB, "how long a rank may make no call"),
    PLUGIN_KEY("peer_silence_seconds", CONFIG_JOB, "after how long a silent host counts as lost"),
    PLUGIN_KEY("cpu_path", CONFIG_JOB, "instructions of kernels: auto, plain, avx2, avx512"),
    PLUGIN_KEY("cuda_library", CONFIG_JOB, "the CUDA driver, for this program too"),
    PLUGIN_KEY("nccl_library", CONFIG_JOB, "the NCCL of backend nccl"),
    {"device", CONFIG_CHOICE, offsetof(struct config, is_cuda), "cpu", 0, 0, "cpu|cuda",
     "where the model lies; it is computed on the host in either case"},
    TEXT_KEY(dataset, "/usr/share/common-licenses/GPL-3",
             "the file to train on, read as bytes; its last tenth is held out"),
    INTEGER_KEY(sequence_length, "128", 1, 65536, "positions of a sample"),
    INTEGER_KEY(micro_batch_size, "4", 1, 65536, "samples that a rank computes at a time"),
    INTEGER_KEY(global_batch_size, "16", 1, 16777216, "samples of a step, over all ranks"),
    INTEGER_KEY(max_steps, "300", 1, 1e9, "optimizer steps"),
    INTEGER_KEY(schedule_steps, NULL, 1, 1e9,
                "steps until the least learning rate; else max_steps"),
    NUMBER_KEY(learning_rate, "0.003", 0, 10, "after the warm-up"),
    NUMBER_KEY(min_learning_rate, NULL, 0, 10,
               "at the end of the schedule; else a tenth of learning_rate"),
    INTEGER_KEY(warmup_steps, "20", 0, 1e9, "steps of linear warm-up"),
    NUMBER_KEY(max_grad_norm, "1.0", 0, 1e12, "gradients are clipped to it; 0 = not"),
    NUMBER_KEY(weight_decay, "0.1", 0, 10, "of the matrices"),
    INTEGER_KEY(validation_interval, "50", 0, 1e9, "steps between validation losses; 0 = none"),
    INTEGER_KEY(log_interval, "1", 1, 1e9,
                "steps between printed lines; the first and the last are always printed"),
    INTEGER_KEY(seed, "1337", 0, 9007199254740992.0, "of the first weights and of the batches"),
    INTEGER_KEY(num_layers, "4", 1, 1024, "transformer blocks"),
    INTEGER_KEY(hidden_size, "128", 1, 16384, "channels"),
    INTEGER_KEY(num_attention_heads, "4", 1, 1024, "heads; they divide hidden_size"),
    {"position", CONFIG_CHOICE, offsetof(struct config, is_rotary), "rotary", 0, 0,
     "learned|rotary", "how a block knows positions"},
    INTEGER_KEY(blas_threads, "1", 1, 1024, "threads of matrix products on each rank"),
    {NULL, CONFIG_TEXT, 0, NULL, 0, 0, NULL, NULL},
};
