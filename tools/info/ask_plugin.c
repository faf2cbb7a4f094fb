/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a plugin, in a child: describe(), and what a job takes from the environment. */
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

#define MAX_DESCRIPTION_BYTES (16u << 20)

/* Tells an error's sentence, which may have no end, or not be there at all. */
static void refusal_tell(int out, const char *name, int32_t status, const struct hsdp_error *err)
{
    char text[sizeof(err->message) + 64];

    if (err->message[0] == '\0') {
        snprintf(text, sizeof(text), "answers %" PRId32 " without a reason", status);
    } else {
        snprintf(text, sizeof(text), "%.*s", (int)sizeof(err->message), err->message);
    }
    child_tell(out, name, text);
}

static void number_tell(int out, const char *name, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, number);
    child_tell(out, name, text);
}

/* --------------------------------------------------------------------------------- describe() */

static void description_refuse(int out, int32_t status, const struct hsdp_error *err)
{
    char text[sizeof(err->message) + 64];

    snprintf(text, sizeof(text), "answers %" PRId32 "%s%.*s", status,
             err->message[0] == '\0' ? " without a reason" : ": ", (int)sizeof(err->message),
             err->message);
    child_tell(out, "description_refusal", text);
}

/* Reads the text into *ret_text, to be freed; false when the plugin does not keep the rules. */
static bool description_read(int out, const struct hsdp_api *api, char **ret_text)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes = 0;
    int32_t status = api->describe(NULL, 0, &n_bytes, &err);
    char why[160];

    if (status != HSDP_ERR_BUFFER_TOO_SMALL) {
        description_refuse(out, status, &err);
        return false;
    }
    if (n_bytes == 0 || n_bytes > MAX_DESCRIPTION_BYTES) {
        snprintf(why, sizeof(why), "asks for %" PRIu64 " bytes; 1 to %u are taken", n_bytes,
                 MAX_DESCRIPTION_BYTES);
        child_tell(out, "description_refusal", why);
        return false;
    }
    *ret_text = calloc(1, (size_t)n_bytes + 1);
    if (*ret_text == NULL) {
        child_tell(out, "description_refusal", "no memory for its text");
        return false;
    }
    status = api->describe(*ret_text, n_bytes, &n_bytes, &err);
    if (status != HSDP_OK) {
        description_refuse(out, status, &err);
    }
    return status == HSDP_OK;
}

static void description_tell(int out, const struct hsdp_api *api)
{
    char *text = NULL;

    if (description_read(out, api, &text)) {
        child_tell(out, "description", text);
    }
    free(text);
}

/* -------------------------------------------------------- what a job makes of the environment */

/* The key of a variable "HSDP_<KEY>=VALUE"; false for others. */
static bool variable_key(const char *variable, char ret_key[64])
{
    const char *name = variable + strlen("HSDP_");
    size_t n = strcspn(variable, "=");

    if (strncmp(variable, "HSDP_", strlen("HSDP_")) != 0 || n >= 64 ||
        strncmp(variable, "HSDP_PLUGIN", strlen("HSDP_PLUGIN")) == 0) {
        return false;
    }
    n -= strlen("HSDP_");
    for (size_t i = 0; i < n; i++) {
        ret_key[i] = (char)tolower((unsigned char)name[i]);
    }
    ret_key[n] = '\0';
    return true;
}

static void setting_tell(int out, const struct hsdp_job_ops *ops, const hsdp_job *job,
                         const char *key)
{
    const char *value = NULL;
    const char *source = NULL;
    char name[80];

    if (ops->setting(job, key, &value, &source, NULL) != HSDP_OK || value == NULL ||
        source == NULL) {
        return; /* no setting of a job */
    }
    snprintf(name, sizeof(name), "value.%s", key);
    child_tell(out, name, value);
    snprintf(name, sizeof(name), "source.%s", key);
    child_tell(out, name, source);
}

/* A job of one rank, which opens nothing, reads the environment as every job does. */
static void job_tell(int out, const struct hsdp_job_ops *ops)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_job *job = NULL;
    char key[64];
    bool has_any = false;
    int32_t status;

    for (char **variable = environ; *variable != NULL; variable++) {
        has_any = has_any || variable_key(*variable, key);
    }
    if (!has_any || ops->create == NULL || ops->setting == NULL || ops->destroy == NULL) {
        return;
    }
    spec.world_ranks = 1;
    child_begin(out, "job->create");
    status = ops->create(&spec, &job, &err);
    if (status != HSDP_OK) {
        refusal_tell(out, "job_refusal", status, &err);
        return;
    }
    child_begin(out, "job->setting");
    for (char **variable = environ; *variable != NULL; variable++) {
        if (variable_key(*variable, key)) {
            setting_tell(out, ops, job, key);
        }
    }
    child_begin(out, "job->destroy");
    ops->destroy(job);
}

void ask_plugin(int out, const void *arg)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;
    const struct hsdp_api *api;
    int32_t status;

    spec.path = arg;
    child_begin(out, "loading");
    status = hsdp_plugin_load(&spec, &plugin, &err);
    if (status != HSDP_OK) {
        refusal_tell(out, "refusal", status, &err);
        return;
    }
    api = hsdp_plugin_api(plugin);
    child_tell(out, "file", hsdp_plugin_path(plugin));
    number_tell(out, "abi_major", api->abi_major);
    number_tell(out, "abi_minor", api->abi_minor);
    child_tell(out, "plugin_name", api->plugin_name);
    child_tell(out, "plugin_version", api->plugin_version);
    child_begin(out, "describe()");
    description_tell(out, api);
    job_tell(out, api->job);
    child_begin(out, "unloading");
    hsdp_plugin_unload(plugin);
}
