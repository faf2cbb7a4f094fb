/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of hsdp-gpt: one table of keys, filled from a YAML file and from --set. */
#ifndef GPT_CONFIG_H
#define GPT_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "fault.h"

#define CONFIG_MAX_KEYS   48
#define CONFIG_TEXT_BYTES 1024

/* Whose a key is, and how its text is read. The plugin's keys are passed on as text, unread. */
enum config_type {
    CONFIG_JOB,  /* a setting of the plugin's job */
    CONFIG_PLAN, /* a setting of the plugin's plan */
    CONFIG_TEXT,
    CONFIG_INTEGER,
    CONFIG_NUMBER,
    CONFIG_CHOICE /* stored as the index of the word */
};

struct config_key {
    const char *name;
    enum config_type type;
    size_t offset;            /* of the value in struct config; unused for the plugin's keys */
    const char *default_text; /* NULL: the plugin's own default, or derived: the help says how */
    double least, most;       /* of integers and numbers */
    const char *choices;      /* words of a choice, "a|b" */
    const char *help;
};

/* What the user has given for a key. */
struct config_entry {
    char text[CONFIG_TEXT_BYTES];
    char where[CONFIG_TEXT_BYTES]; /* "FILE:LINE" or "--set"; "" = not given */
    int is_override;               /* 1 when it came from --set */
};

struct config {
    char plugin[CONFIG_TEXT_BYTES];
    char dataset[CONFIG_TEXT_BYTES];
    uint64_t sequence_length;
    uint64_t micro_batch_size;
    uint64_t global_batch_size;
    uint64_t max_steps;
    uint64_t schedule_steps;
    uint64_t warmup_steps;
    uint64_t validation_interval;
    uint64_t log_interval;
    uint64_t seed;
    uint64_t num_layers;
    uint64_t hidden_size;
    uint64_t num_attention_heads;
    uint64_t is_rotary;
    uint64_t is_cuda;
    uint64_t blas_threads;
    double learning_rate;
    double min_learning_rate;
    double max_grad_norm;
    double weight_decay;
    struct config_entry entries[CONFIG_MAX_KEYS]; /* in the order of the table */
};

/* Every key at its default. */
void config_init(struct config *config);
/*
 * Reads one value. `where` is "FILE:LINE" or, with is_override 1, "--set". The same key twice from
 * a file is a fault; --set wins over the file, and the last --set over those before it.
 */
int config_set(struct config *config, const char *key, const char *text, const char *where,
               int is_override, struct fault *ret_fault);
/* Reads "key=value". */
int config_override(struct config *config, const char *assignment, struct fault *ret_fault);
/* Reads a file that holds one YAML mapping of keys to plain values. */
int config_load(struct config *config, const char *path, struct fault *ret_fault);
/* Checks what concerns several keys, and derives what was left open; after the last value. */
int config_finish(struct config *config, struct fault *ret_fault);
/* Checks the global batch against the number of ranks that share it; microbatches of each. */
int config_microbatches(const struct config *config, uint32_t n_ranks, uint32_t *ret_microbatches,
                        struct fault *ret_fault);
/* Lists the given keys of the plugin, CONFIG_JOB or CONFIG_PLAN; returns how many. */
size_t config_settings(const struct config *config, enum config_type type,
                       const char *ret_keys[CONFIG_MAX_KEYS],
                       const char *ret_values[CONFIG_MAX_KEYS]);
/* Where the first given key of the plugin that a sentence names was given, or NULL. */
const char *config_origin(const struct config *config, const char *sentence);
/* The given text of a key of the plugin, or NULL. */
const char *config_text(const struct config *config, const char *key);
/*
 * Writes all keys with their defaults. Those of the plugin's keys are read from what its describe()
 * answers; with NULL they are "the plugin's".
 */
void config_help(FILE *out, const char *description);

/* The table; ends with a NULL name. */
extern const struct config_key config_keys[];

#endif
