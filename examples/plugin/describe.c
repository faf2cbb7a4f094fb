/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin says of itself, as JSON: abi.h has the members. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "skeleton.h"

/* The settings of job.h and plan.h. Words are separated by spaces; those not needed are NULL. */
static const struct setting {
    const char *key;
    const char *homes;
    const char *type;
    const char *choices; /* of a choice or a list */
    int64_t min;         /* of an integer */
    int64_t max;
    const char *initial;      /* its default, */
    const char *initial_rule; /* or how that is found */
    const char *meaning;
} settings[] = {
    {"sharding_strategy", "plan class", "choice",
     "ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp auto no_shard shard_grad_op full_shard zero3 "
     "hybrid_shard hybrid_shard_zero2",
     0, 0, "fsdp", NULL, "what is sharded, and over which ranks"},
    {"replicate_dims", "plan class", "selector", NULL, 0, 0, NULL,
     "dp_replicate where dp is split, else dp", "the dimensions over which hsdp replicates"},
    {"shard_size", "plan", "integer", NULL, 1, 2147483647, NULL,
     "the largest divisor of dp that is at most min(ranks per node, dp / 2), at least 1",
     "ranks that share a replica; splits dp"},
    {"param_dtype", "plan class", "choice", "fp32 bf16 fp16", 0, 0, "fp32", NULL,
     "dtype of the unsharded parameters"},
    {"master_dtype", "plan class", "choice", "fp32 bf16 fp16", 0, 0, "fp32", NULL,
     "dtype of what the optimizer writes"},
    {"reduce_dtype", "plan class", "choice", "fp32 bf16 fp16", 0, 0, "fp32", NULL,
     "dtype of gradients on the wire"},
    {"gradient_dtype", "plan class", "choice", "fp32 bf16 fp16", 0, 0, NULL, "reduce_dtype",
     "dtype of the unsharded gradients"},
    {"gradient_op", "plan class", "choice", "mean sum", 0, 0, "mean", NULL,
     "whether gradients are divided"},
    {"gradient_divisor", "plan class", "integer", NULL, 1, 16777216, NULL,
     "the data ranks of the mesh", "what the mean is divided by"},
    {"accumulation_scope", "plan", "choice", "none inner full", 0, 0, "none", NULL,
     "how far gradients are reduced before the last pass of a window"},
    {"slots", "plan", "integer", NULL, 1, 64, "2", NULL,
     "units that may be unsharded, or hold gradients, at a time"},
    {"verify", "plan", "list", "off access wrap step:N", 0, 0, "off", NULL,
     "what is checked while training"},
    {"backend", "job", "choice", "auto shm mpi nccl", 0, 0, "auto", NULL, "the transport"},
    {"nccl_timeout_seconds", "job", "integer", NULL, 1, 2147483647, "180", NULL,
     "how long a wait may take"},
    {"init_timeout_seconds", "job", "integer", NULL, 1, 2147483647, NULL, "nccl_timeout_seconds",
     "how long connect may take"},
    {"heartbeat_timeout_seconds", "job", "integer", NULL, 1, 2147483647, NULL,
     "nccl_timeout_seconds", "how long a host may make no call"},
    {"peer_silence_seconds", "job", "integer", NULL, 1, 2147483647, NULL,
     "min(5, nccl_timeout_seconds)", "how long a node may be silent"},
    {"rendezvous_port", "job", "integer", NULL, 1, 65535, NULL, "MASTER_PORT, then probing",
     "where nodes meet"},
    {"token_file", "job", "path", NULL, 0, 0, NULL, "none: loopback only",
     "the secret that nodes prove to hold"},
    {"flight_records", "job", "integer", NULL, 16, 1000000, "2000", NULL,
     "operations that are remembered"},
    {"flight_dir", "job", "path", NULL, 0, 0, NULL, "none", "where they are written on a failure"},
    {"cpu_path", "job", "choice", "auto plain avx2 avx512", 0, 0, "auto", NULL,
     "the instructions of kernels"},
    {"nccl_library", "job", "path", NULL, 0, 0, "libnccl.so.2", NULL, "the library of nccl"},
    {"cuda_library", "job", "path", NULL, 0, 0, "libcuda.so.1", NULL, "the library of the driver"},
};

/* A text that grows; what does not fit any more is counted only. */
struct text {
    char *chars;
    uint64_t max_bytes;
    uint64_t n_bytes;
};

static void text_add(struct text *text, const char *format, ...)
{
    uint64_t at = text->n_bytes < text->max_bytes ? text->n_bytes : text->max_bytes;
    va_list arguments;
    int n_bytes;

    va_start(arguments, format);
    n_bytes = vsnprintf(text->max_bytes == 0 ? NULL : text->chars + at, text->max_bytes - at,
                        format, arguments);
    va_end(arguments);
    text->n_bytes += n_bytes > 0 ? (uint64_t)n_bytes : 0;
}

/* ,"homes":["plan","class"] */
static void words_add(struct text *text, const char *member, const char *words)
{
    const char *comma = "";

    if (words == NULL) {
        return;
    }
    text_add(text, ",\"%s\":[", member);
    while (*words != '\0') {
        int n_bytes = (int)strcspn(words, " ");

        text_add(text, "%s\"%.*s\"", comma, n_bytes, words);
        comma = ",";
        words += n_bytes;
        words += strspn(words, " ");
    }
    text_add(text, "]");
}

static void setting_add(struct text *text, const struct setting *setting)
{
    text_add(text, "{\"key\":\"%s\",\"type\":\"%s\"", setting->key, setting->type);
    words_add(text, "homes", setting->homes);
    words_add(text, "choices", setting->choices);
    if (setting->max != 0) {
        text_add(text, ",\"min\":%" PRId64 ",\"max\":%" PRId64, setting->min, setting->max);
    }
    text_add(text, ",\"%s\":\"%s\"", setting->initial != NULL ? "default" : "default_rule",
             setting->initial != NULL ? setting->initial : setting->initial_rule);
    text_add(text, ",\"meaning\":\"%s\"}", setting->meaning);
}

/* Name only what works: no strategy does without a model, and a transport says why it does not. */
static void plugin_add(struct text *text)
{
    text_add(text,
             "{\"plugin_name\":\"%s\",\"plugin_version\":\"%s\",\"abi_major\":%u,\"abi_minor\":%u,",
             SKELETON_NAME, SKELETON_VERSION, HSDP_ABI_MAJOR, HSDP_ABI_MINOR);
    text_add(text,
             "\"strategies\":[],\"extensions\":[],\"transports\":["
             "{\"name\":\"shm\",\"usable\":false,\"reason\":\"not made yet\"}],\"settings\":[");
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        text_add(text, "%s", i == 0 ? "" : ",");
        setting_add(text, &settings[i]);
    }
    text_add(text, "]}");
}

int32_t skeleton_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                          struct hsdp_error *reterr)
{
    struct text counted = {NULL, 0, 0};
    struct text written = {ret_text, max_bytes, 0};

    if (ret_bytes == NULL || (ret_text == NULL && max_bytes > 0)) {
        return skeleton_fail(reterr, "describe", HSDP_ERR_INVALID, "describe: %s is NULL",
                             ret_bytes == NULL ? "ret_bytes" : "ret_text");
    }
    plugin_add(&counted);
    *ret_bytes = counted.n_bytes + 1; /* with its NUL, also on failure */
    if (max_bytes <= counted.n_bytes) {
        return skeleton_fail(reterr, "describe", HSDP_ERR_BUFFER_TOO_SMALL,
                             "describe: needs %" PRIu64 " bytes, max_bytes is %" PRIu64,
                             counted.n_bytes + 1, max_bytes);
    }
    plugin_add(&written);
    return HSDP_OK;
}
