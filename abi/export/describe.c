/* SPDX-License-Identifier: Apache-2.0 */
/* Describing the plugin without a job: versions, strategies, transports, extensions, settings. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/settings.h"
#include "base/text.h"
#include "call.h"
#include "comm/launch.h"
#include "comm/libraries.h"
#include "device/gpu_image.h"
#include "device/kernels.h"
#include "plan/placement.h"
#include "plan/plan.h"
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
        return "inner";
    case 'R':
        return "all";
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

/* Why the shm transport cannot be used here, NULL if it can. */
static const char *shm_refusal(void)
{
    long page_bytes = sysconf(_SC_PAGESIZE);
    int fd;

    if (page_bytes <= 0 || PLAN_GRANULE_BYTES % (uint64_t)page_bytes != 0) {
        return "the pages of this system are larger than 4096 bytes";
    }
    fd = memfd_create("hsdp-describe", MFD_CLOEXEC);
    if (fd < 0) {
        return "memfd_create is not allowed here"; /* some sandboxes forbid it */
    }
    close(fd);
    return NULL;
}

/* Whether shared memory may come in huge pages: the word in brackets of "always [never]". */
static void huge_pages_write(struct text *text)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
    char line[128] = "";
    const char *word;

    if (file == NULL) {
        return;
    }
    if (fgets(line, sizeof(line), file) != NULL && (word = strchr(line, '[')) != NULL) {
        line[(size_t)(word - line) + strcspn(word, "]")] = '\0';
        json_string(text, "huge_pages", word + 1);
    }
    fclose(file);
}

static void newer_write(struct text *text, const struct library *library)
{
    json_open(text, "newer_symbols", '[');
    for (uint32_t i = 0; i < library->n_newer; i++) {
        json_open(text, NULL, '{');
        json_string(text, "name", library->newer[i].symbol);
        json_string(text, "since", library->newer[i].since);
        json_string(text, "instead", library->newer[i].instead);
        json_close(text, '}');
    }
    json_close(text, ']');
}

static void library_write(struct text *text, const struct library *library)
{
    struct library_file file;
    char min_version[32];

    library_find(library, &file);
    json_open(text, NULL, '{');
    json_string(text, "name", file.name);
    if (library->setting != NULL) {
        json_string(text, "setting", library->setting);
    }
    if (file.path[0] != '\0') {
        json_string(text, "path", file.path);
    }
    if (file.version[0] != '\0') {
        json_string(text, "file_version", file.version);
    }
    if (library_min_version(library, min_version, sizeof(min_version))) {
        json_string(text, "min_version", min_version);
    }
    words_write(text, "symbols", library->symbols);
    if (library->n_newer > 0) {
        newer_write(text, library);
    }
    json_close(text, '}');
}

/* Begins a transport; `refusal` says why it cannot be used here, NULL = it can. */
static void transport_open(struct text *text, const char *name, const char *refusal)
{
    json_open(text, NULL, '{');
    json_string(text, "name", name);
    json_bool(text, "usable", refusal == NULL);
    if (refusal != NULL) {
        json_string(text, "reason", refusal);
    }
}

static void transport_write_libraries(struct text *text, const char *name)
{
    json_open(text, "libraries", '[');
    for (int i = 0; i < LIBRARIES_COUNT; i++) {
        if (strcmp(libraries[i].transport, name) == 0) {
            library_write(text, &libraries[i]);
        }
    }
    json_close(text, ']');
}

/* Why the nccl transport cannot be used here, NULL if nothing speaks against it but a try. */
static const char *nccl_refusal(char *ret_text, size_t max_bytes)
{
    struct library_file file;

    for (int i = 0; i < LIBRARIES_COUNT; i++) {
        if (strcmp(libraries[i].transport, "nccl") != 0) {
            continue;
        }
        library_find(&libraries[i], &file);
        if (file.path[0] == '\0') {
            snprintf(ret_text, max_bytes, "%s is not found", file.name);
            return ret_text;
        }
    }
    return gpu_image_has_code ? NULL : "this build has no code for devices";
}

static void nccl_write(struct text *text)
{
    char refusal[PATH_MAX + 32];

    transport_open(text, "nccl", nccl_refusal(refusal, sizeof(refusal)));
    json_uint(text, "max_ranks", LAUNCH_MAX_RANKS);
    json_uint(text, "n_devices", library_count_devices("/dev"));
    json_string(text, "device_code", gpu_image_archs);
    transport_write_libraries(text, "nccl");
    json_close(text, '}');
}

static void transports_write(struct text *text)
{
    json_open(text, "transports", '[');
    transport_open(text, "shm", shm_refusal());
    json_uint(text, "max_ranks", LAUNCH_MAX_RANKS);
    huge_pages_write(text);
    json_close(text, '}');
    transport_open(text, "mpi", "not built into this plugin");
    transport_write_libraries(text, "mpi");
    json_close(text, '}');
    nccl_write(text);
    json_close(text, ']');
}

/* The instructions that kernels may use, as the setting cpu_path names them. */
static void cpu_paths_write(struct text *text)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    uint32_t n_usable = kernels_n_paths();

    json_open(text, "cpu_paths", '[');
    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_open(text, NULL, '{');
        json_string(text, "name", names[i]);
        json_bool(text, "usable", i < n_usable);
        if (i >= n_usable) {
            json_string(text, "reason", "not there, in this build on this processor");
        }
        json_close(text, '}');
    }
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
    cpu_paths_write(text);
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
