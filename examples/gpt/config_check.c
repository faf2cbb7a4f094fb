/* SPDX-License-Identifier: Apache-2.0 */
/* What the keys of the configuration demand of each other. */
#include "config.h"

#include <ctype.h>
#include <string.h>

/* Where a key was given, for a sentence about two keys. */
static const char *origin_of(const struct config *config, const char *name)
{
    size_t i = 0;

    while (strcmp(config_keys[i].name, name) != 0) {
        i++;
    }
    return config->entries[i].where[0] == '\0' ? "default" : config->entries[i].where;
}

/* Where `word` stands in the sentence, not as a part of a longer one; NULL = nowhere. */
static const char *word_find(const char *sentence, const char *word)
{
    const size_t length = strlen(word);
    const char *at = sentence;

    while ((at = strstr(at, word)) != NULL) {
        const int begins = at == sentence || (!isalnum((unsigned char)at[-1]) && at[-1] != '_');

        if (begins && !isalnum((unsigned char)at[length]) && at[length] != '_') {
            return at;
        }
        at += length;
    }
    return NULL;
}

const char *config_origin(const struct config *config, const char *sentence)
{
    const char *first = NULL, *origin = NULL;

    for (size_t i = 0; config_keys[i].name != NULL; i++) {
        const int is_plugins =
            config_keys[i].type == CONFIG_JOB || config_keys[i].type == CONFIG_PLAN;
        const char *at = is_plugins ? word_find(sentence, config_keys[i].name) : NULL;

        if (at != NULL && config->entries[i].where[0] != '\0' && (first == NULL || at < first)) {
            first = at;
            origin = config->entries[i].where;
        }
    }
    return origin;
}

static int heads_check(const struct config *config, struct fault *ret_fault)
{
    if (config->hidden_size % config->num_attention_heads != 0) {
        return fault_set(ret_fault, FAULT_CONFIG,
                         "hidden_size %ju (%s) is not a multiple of num_attention_heads %ju (%s); "
                         "it must be",
                         (uintmax_t)config->hidden_size, origin_of(config, "hidden_size"),
                         (uintmax_t)config->num_attention_heads,
                         origin_of(config, "num_attention_heads"));
    }
    if (config->is_rotary && config->hidden_size / config->num_attention_heads % 2 != 0) {
        return fault_set(ret_fault, FAULT_CONFIG,
                         "position rotary (%s) needs an even number of channels per head, and "
                         "hidden_size %ju over num_attention_heads %ju is %ju",
                         origin_of(config, "position"), (uintmax_t)config->hidden_size,
                         (uintmax_t)config->num_attention_heads,
                         (uintmax_t)(config->hidden_size / config->num_attention_heads));
    }
    return 0;
}

int config_finish(struct config *config, struct fault *ret_fault)
{
    if (config_text(config, "schedule_steps") == NULL) {
        config->schedule_steps = config->max_steps;
    }
    if (config_text(config, "min_learning_rate") == NULL) {
        config->min_learning_rate = config->learning_rate / 10;
    }
    if (config->min_learning_rate > config->learning_rate) {
        return fault_set(ret_fault, FAULT_CONFIG,
                         "min_learning_rate %g (%s) is above learning_rate %g (%s); allowed is up "
                         "to that",
                         config->min_learning_rate, origin_of(config, "min_learning_rate"),
                         config->learning_rate, origin_of(config, "learning_rate"));
    }
    return heads_check(config, ret_fault);
}

int config_microbatches(const struct config *config, uint32_t n_ranks, uint32_t *ret_microbatches,
                        struct fault *ret_fault)
{
    const uint64_t together = config->micro_batch_size * n_ranks;

    if (config->global_batch_size % together != 0) {
        return fault_set(
            ret_fault, FAULT_PLACE, /* the number of ranks is the environment's */
            "global_batch_size %ju (%s) is not a multiple of micro_batch_size %ju (%s) "
            "times %u ranks; a multiple of %ju is allowed",
            (uintmax_t)config->global_batch_size, origin_of(config, "global_batch_size"),
            (uintmax_t)config->micro_batch_size, origin_of(config, "micro_batch_size"), n_ranks,
            (uintmax_t)together);
    }
    *ret_microbatches = (uint32_t)(config->global_batch_size / together);
    return 0;
}
