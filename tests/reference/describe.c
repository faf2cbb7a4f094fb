/* SPDX-License-Identifier: Apache-2.0 */
/* Describing the plugin without a job. */
#include <inttypes.h>
#include <string.h>

#include "reference.h"
#include "settings.h"
#include "strategy.h"
#include "text.h"

static const char *const span_words[] = {
    [SPAN_NONE] = "nothing",
    [SPAN_INNER] = "inner",
    [SPAN_ALL] = "all",
};

static const char *const type_words[] = {
    [KEY_WORD] = "choice",       [KEY_LIST] = "list", [KEY_NUMBER] = "integer",
    [KEY_SELECTOR] = "selector", [KEY_PATH] = "path",
};

static void member_write(FILE *file, const char *name, const char *value)
{
    if (value != NULL) {
        fprintf(file, ",\"%s\":", name);
        text_quote(file, value);
    }
}

static void strategies_write(FILE *file)
{
    for (int s = 0; s < N_STRATEGIES; s++) {
        const struct strategy *row = &strategies[s];

        fprintf(file, "%s{\"name\":\"%s\",\"aliases\":[", s == 0 ? "" : ",", row->name);
        for (int a = 0; a < 2 && row->aliases[a] != NULL; a++) {
            fprintf(file, "%s\"%s\"", a == 0 ? "" : ",", row->aliases[a]);
        }
        fprintf(file, "]");
        member_write(file, "parameters_sharded_over", span_words[row->cuts[0]]);
        member_write(file, "gradients_sharded_over", span_words[row->cuts[1]]);
        member_write(file, "optimizer_sharded_over", span_words[row->cuts[2]]);
        fprintf(file, "}");
    }
}

/* The words of a text, as strings. */
static void words_write(FILE *file, const char *words)
{
    fprintf(file, ",\"choices\":[\"");
    for (const char *c = words; *c != '\0'; c++) {
        if (*c == ' ') {
            fprintf(file, "\",\"");
        } else {
            fprintf(file, "%c%s", *c, *c == ':' ? "N" : "");
        }
    }
    fprintf(file, "\"]");
}

static void key_write(FILE *file, const struct key *key)
{
    fprintf(file, "{\"key\":\"%s\",\"homes\":[%s%s%s]", key->name,
            (key->homes & HOME_JOB) != 0 ? "\"job\"" : "",
            (key->homes & HOME_PLAN) != 0 ? "\"plan\"" : "",
            (key->homes & HOME_CLASS) != 0 ? ",\"class\"" : "");
    member_write(file, "type", type_words[key->type]);
    if (key->words != NULL) {
        words_write(file, key->words);
    }
    if (key->type == KEY_NUMBER) {
        fprintf(file, ",\"min\":%" PRId64 ",\"max\":%" PRId64, key->least, key->most);
    }
    member_write(file, "default", key->initial);
    member_write(file, "default_rule", key->rule);
    member_write(file, "meaning", key->meaning);
    fprintf(file, "}");
}

static void plugin_write(FILE *file)
{
    fprintf(file, "{\"plugin_name\":\"%s\",\"plugin_version\":\"%s\"", REFERENCE_NAME,
            REFERENCE_VERSION);
    fprintf(file, ",\"abi_major\":%u,\"abi_minor\":%u,\"strategies\":[", HSDP_ABI_MAJOR,
            HSDP_ABI_MINOR);
    strategies_write(file);
    fprintf(file, "],\"transports\":[{\"name\":\"socket\",\"usable\":true}");
    fprintf(file, "],\"extensions\":[\"%s\"],\"settings\":[", HSDP_ADAMW_EXTENSION);
    for (int k = 0; k < N_KEYS; k++) {
        fprintf(file, "%s", k == 0 ? "" : ",");
        key_write(file, &keys[k]);
    }
    fprintf(file, "]}");
}

int32_t reference_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                           struct hsdp_error *reterr)
{
    const struct call call = {"describe", reterr};
    struct text text;

    if (!call_has_array(&call, "ret_text", ret_text, max_bytes) ||
        !call_has(&call, "ret_bytes", ret_bytes)) {
        return HSDP_ERR_INVALID;
    }
    if (text_open(&text)) {
        plugin_write(text.file);
    }
    return text_close(&call, &text, ret_text, max_bytes, ret_bytes);
}
