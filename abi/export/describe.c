/* SPDX-License-Identifier: Apache-2.0 */
/* Describing the plugin without a job: versions, strategies, transports, extensions, settings. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/settings.h"
#include "base/text.h"
#include "call.h"
#include "plan/placement.h"
#include "tables.h"

/* Adds the words of a space-separated list as an array of strings. */
static void words_write(struct text *text, const char *key, const char *words)
{
    json_open(text, key, '[');
    while (words != NULL && *words != '\0') {
        size_t n = strcspn(words, " ");
        char word[64] = "";

        memcpy(word, words, n < sizeof(word) ? n : sizeof(word) - 1);
        json_string(text, NULL, word);
        words += n;
        words += strspn(words, " ");
    }
    json_close(text, ']');
}

static const char *cut_words(char cut)
{
    switch (cut) {
    case 'I':
        return "inner dimensions";
    case 'R':
        return "all reduced dimensions";
    default:
        return "nothing";
    }
}

static void strategies_write(struct text *text)
{
    json_open(text, "strategies", '[');
    for (int i = 0; i < STRATEGY_COUNT; i++) {
        const struct strategy *strategy = &strategies[i];

        json_open(text, NULL, '{');
        json_string(text, "name", strategy->name);
        words_write(text, "aliases", strategy->aliases);
        json_string(text, "parameters_sharded_over", cut_words(strategy->cuts[0]));
        json_string(text, "gradients_sharded_over", cut_words(strategy->cuts[1]));
        json_string(text, "optimizer_sharded_over", cut_words(strategy->cuts[2]));
        json_close(text, '}');
    }
    json_close(text, ']');
}

/* The shm transport needs memory without a name; some sandboxes forbid it. */
static bool shm_is_usable(void)
{
    int fd = memfd_create("hsdp-describe", MFD_CLOEXEC);

    if (fd < 0) {
        return false;
    }
    close(fd);
    return true;
}

static void transport_write(struct text *text, const char *name, bool is_usable, const char *reason)
{
    json_open(text, NULL, '{');
    json_string(text, "name", name);
    json_bool(text, "usable", is_usable);
    if (!is_usable) {
        json_string(text, "reason", reason);
    }
    json_close(text, '}');
}

static void transports_write(struct text *text)
{
    json_open(text, "transports", '[');
    transport_write(text, "shm", shm_is_usable(), "memfd_create is not allowed here");
    transport_write(text, "mpi", false, "not built into this plugin");
    transport_write(text, "nccl", false, "not built into this plugin");
    json_close(text, ']');
}

static void homes_write(struct text *text, uint32_t homes)
{
    json_open(text, "homes", '[');
    if ((homes & SETTING_JOB) != 0) {
        json_string(text, NULL, "job");
    }
    if ((homes & SETTING_PLAN) != 0) {
        json_string(text, NULL, "plan");
    }
    if ((homes & SETTING_CLASS) != 0) {
        json_string(text, NULL, "class");
    }
    json_close(text, ']');
}

static const char *type_name(enum setting_type type)
{
    switch (type) {
    case SETTING_CHOICE:
        return "choice";
    case SETTING_INTEGER:
        return "integer";
    case SETTING_SELECTOR:
        return "selector";
    case SETTING_PATH:
        return "path";
    case SETTING_LIST:
        return "list";
    }
    return "text";
}

static void setting_write(struct text *text, const struct setting_def *def)
{
    json_open(text, NULL, '{');
    json_string(text, "key", def->key);
    homes_write(text, def->homes);
    json_string(text, "type", type_name(def->type));
    if (def->choices != NULL) {
        words_write(text, "choices", def->choices);
    }
    if (def->type == SETTING_INTEGER) {
        json_int(text, "min", def->min);
        json_int(text, "max", def->max);
    }
    if (def->initial != NULL) {
        json_string(text, "default", def->initial);
    }
    if (def->initial_words != NULL) {
        json_string(text, "default_rule", def->initial_words);
    }
    json_string(text, "meaning", def->meaning);
    json_close(text, '}');
}

static void plugin_write(struct text *text)
{
    json_open(text, NULL, '{');
    json_string(text, "plugin_name", export_api.plugin_name);
    json_string(text, "plugin_version", export_api.plugin_version);
    json_uint(text, "abi_major", export_api.abi_major);
    json_uint(text, "abi_minor", export_api.abi_minor);
    strategies_write(text);
    transports_write(text);
    json_open(text, "extensions", '[');
    for (int i = 0; i < EXTENSION_COUNT; i++) {
        json_string(text, NULL, export_extensions[i].name);
    }
    json_close(text, ']');
    json_open(text, "settings", '[');
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        setting_write(text, &setting_defs[i]);
    }
    json_close(text, ']');
    json_close(text, '}');
}

int32_t export_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                        struct hsdp_error *reterr)
{
    struct call call;
    struct text text = TEXT_INIT;
    uint64_t n_bytes = 0;

    call_begin(&call, "describe", reterr);
    call_needs_array(&call, "ret_text", ret_text, max_bytes);
    call_needs(&call, "ret_bytes", ret_bytes);
    if (call_is_ok(&call)) {
        plugin_write(&text);
        call.status = text_export(&text, ret_text, max_bytes, &n_bytes, &call.err);
        call_gives_size(&call, n_bytes, ret_bytes);
    }
    text_fini(&text);
    return call_end(&call);
}
