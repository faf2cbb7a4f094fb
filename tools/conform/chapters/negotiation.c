/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter negotiation: the entry, versions, errors, tables, loading again; what comes first. */
#include "negotiation.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "guard.h"
#include "process.h"

#define TAIL       16u
#define ERROR_1_0  776u /* bytes of struct hsdp_error in ABI 1.0 */
#define THREADS_MS 2000u
#define FAR_MAJOR  4000000001u /* numbers that stand in no sentence by chance */
#define FAR_MINOR  4000000002u
#define N_LOADS    3

static void *library_open(struct conform *conform)
{
    void *library;

    conform_enter(conform, "dlopen");
    library = dlopen(conform->plugin_path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        conform_fail(conform, "dlopen: %s", dlerror());
    }
    return library;
}

static hsdp_plugin_v1_fn entry_find(struct conform *conform)
{
    void *symbol = dlsym(library_open(conform), HSDP_ENTRY_SYMBOL);
    hsdp_plugin_v1_fn entry;

    conform_expect(conform, symbol != NULL, "dlsym finds no symbol %s", HSDP_ENTRY_SYMBOL);
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from data to function */
    return entry;
}

static const struct hsdp_api *api_ask(struct conform *conform, hsdp_plugin_v1_fn entry)
{
    const struct hsdp_api *api = NULL;

    conform_must(conform, entry(HSDP_ABI_MAJOR, HSDP_ABI_MINOR, &api, &conform->err));
    conform_expect(conform, api != NULL, "the entry answers HSDP_OK, but *ret_api is NULL");
    return api;
}

/* ----------------------------------------------------------------------------------- versions */

static void loader_accepts(struct conform *conform)
{
    hsdp_plugin *plugin = process_load(conform, conform->plugin_path);

    conform_expect(conform, hsdp_plugin_api(plugin) != NULL, "it has no tables");
    conform_enter(conform, "hsdp_plugin_unload");
    hsdp_plugin_unload(plugin);
}

static void any_minor(struct conform *conform)
{
    static const uint32_t minors[] = {0, 1, 2, 77, UINT32_MAX};
    hsdp_plugin_v1_fn entry = entry_find(conform);

    for (size_t i = 0; i < sizeof(minors) / sizeof(minors[0]); i++) {
        const struct hsdp_api *api = NULL;
        char call[64];
        int32_t status;

        snprintf(call, sizeof(call), "hsdp_plugin_v1(1, %u, ...)", (unsigned)minors[i]);
        conform_enter(conform, call);
        status = entry(HSDP_ABI_MAJOR, minors[i], &api, &conform->err);
        conform_check_ok(conform, call, status);
        conform_expect(conform, api != NULL, "%s: answers HSDP_OK, but *ret_api is NULL", call);
        conform_expect(conform, entry(HSDP_ABI_MAJOR, minors[i], &api, NULL) == HSDP_OK,
                       "%s: is refused when reterr is NULL", call);
    }
}

static void other_major(struct conform *conform)
{
    static const uint32_t majors[] = {0, 2, 3, FAR_MAJOR, UINT32_MAX};
    static const uint32_t minors[] = {0, 1, UINT32_MAX};
    hsdp_plugin_v1_fn entry = entry_find(conform);
    const struct hsdp_api *const before = (const void *)conform;

    for (size_t i = 0; i < 15; i++) {
        const struct hsdp_api *api = before;
        char call[64];
        int32_t status;

        snprintf(call, sizeof(call), "hsdp_plugin_v1(%u, %u, ...)", (unsigned)majors[i / 3],
                 (unsigned)minors[i % 3]);
        conform_enter(conform, call);
        status = entry(majors[i / 3], minors[i % 3], &api, &conform->err);
        conform_check_refused(conform, call, status, HSDP_ERR_VERSION);
        conform_expect(conform, api == before, "%s: is refused, but has written to *ret_api", call);
        conform_expect(conform, entry(majors[i / 3], minors[i % 3], &api, NULL) == HSDP_ERR_VERSION,
                       "%s: answers something else when reterr is NULL", call);
    }
}

static void both_versions(struct conform *conform)
{
    hsdp_plugin_v1_fn entry = entry_find(conform);
    const struct hsdp_api *api = api_ask(conform, entry);
    char host[32];
    char own[32];

    snprintf(host, sizeof(host), "%u.%u", FAR_MAJOR, FAR_MINOR);
    snprintf(own, sizeof(own), "%u.%u", (unsigned)api->abi_major, (unsigned)api->abi_minor);
    conform_must_refuse(conform, entry(FAR_MAJOR, FAR_MINOR, &api, &conform->err),
                        HSDP_ERR_VERSION);
    conform_expect(conform,
                   strstr(conform->err.message, host) != NULL &&
                       strstr(conform->err.message, own) != NULL,
                   "a host of ABI %s is refused by a plugin of ABI %s; both stand in the message, "
                   "which is \"%s\"",
                   host, own, conform->err.message);
}

static void no_result(struct conform *conform)
{
    hsdp_plugin_v1_fn entry = entry_find(conform);

    conform_must_refuse(conform, entry(HSDP_ABI_MAJOR, 0, NULL, &conform->err), HSDP_ERR_INVALID);
    conform_must_refuse(conform, entry(HSDP_ABI_MAJOR, UINT32_MAX, NULL, &conform->err),
                        HSDP_ERR_INVALID);
    conform_expect(conform, entry(HSDP_ABI_MAJOR, 0, NULL, NULL) == HSDP_ERR_INVALID,
                   "it is not refused when reterr is NULL, too");
    conform_expect(conform, entry(2, 0, NULL, NULL) < 0, "a host of ABI 2.0 is accepted");
}

/* The first call is the one that may come before anything is set up. */
static void first_call(struct conform *conform)
{
    hsdp_plugin_v1_fn entry = entry_find(conform);

    conform_enter(conform, "hsdp_plugin_v1(4294967295, 4294967295, NULL, NULL)");
    conform_expect(conform, entry(UINT32_MAX, UINT32_MAX, NULL, NULL) < 0,
                   "hsdp_plugin_v1(4294967295, 4294967295, NULL, NULL) is accepted");
    api_ask(conform, entry);
}

/* ------------------------------------------------------------------------------------- errors */

static void error_short(struct conform *conform)
{
    static const size_t sizes[] = {ERROR_1_0 - 1, ERROR_1_0 - 8, 64, 16, 8, 1, 0};
    hsdp_plugin_v1_fn entry = entry_find(conform);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *err = guard_output(conform, sizes[i]);
        size_t n_room = sizes[i] < sizeof(size_t) ? sizeof(size_t) : sizes[i];

        conform_enter(conform, "hsdp_plugin_v1(2, 0, ...) with a short reterr");
        conform_expect(conform, entry(2, 0, NULL, (void *)err) < 0,
                       "a host of ABI 2.0 is accepted");
        conform_expect(
            conform,
            memcmp(err, &sizes[i], sizeof(size_t)) == 0 &&
                guard_is_filled(err + sizeof(size_t), n_room - sizeof(size_t), GUARD_FILLER),
            "a reterr with a struct_size of %zu, below the %u of ABI 1.0, is left "
            "alone; it was written to",
            sizes[i], ERROR_1_0);
    }
}

static void error_long(struct conform *conform)
{
    hsdp_plugin_v1_fn entry = entry_find(conform);
    size_t n_bytes = sizeof(struct hsdp_error) + TAIL;
    unsigned char *bytes = guard_output(conform, n_bytes);
    struct hsdp_error *err = (void *)bytes;

    conform_enter(conform, "hsdp_plugin_v1(2, 0, ...) with a longer reterr");
    conform_expect(conform, entry(2, 0, NULL, err) == HSDP_ERR_VERSION,
                   "a host of ABI 2.0 is not refused with HSDP_ERR_VERSION");
    conform_expect(conform,
                   err->struct_size == n_bytes && err->status == HSDP_ERR_VERSION &&
                       memchr(err->message, '\0', sizeof(err->message)) != NULL &&
                       err->message[0] != '\0',
                   "a reterr that is 16 bytes longer than the plugin's is filled; it was not");
    conform_expect(conform, guard_is_filled(bytes + sizeof(*err), TAIL, 0),
                   "a reterr that is longer than the plugin's is zeroed behind what it knows; it "
                   "was not");
}

/* An error of exactly 1.0, at the edge of what may be written. */
static void error_exact(struct conform *conform)
{
    hsdp_plugin_v1_fn entry = entry_find(conform);
    struct hsdp_error *err = guard_output(conform, ERROR_1_0);

    conform_enter(conform, "hsdp_plugin_v1(2, 0, ...) with the reterr of ABI 1.0");
    conform_expect(conform,
                   entry(2, 0, NULL, err) == HSDP_ERR_VERSION && err->status == HSDP_ERR_VERSION,
                   "a reterr of ABI 1.0 is filled; it was not");
}

/* ------------------------------------------------------------------------------------- tables */

/* All of them; the root is the first. */
#define N_TABLES 9

static void tables_list(const struct hsdp_api *api, struct table ret[N_TABLES])
{
    const struct table tables[N_TABLES] = {
        {"hsdp_api", api, 112, sizeof(*api)},
        {"hsdp_mesh_ops", api->mesh, 56, sizeof(*api->mesh)},
        {"hsdp_job_ops", api->job, 112, sizeof(*api->job)},
        {"hsdp_group_ops", api->group, 56, sizeof(*api->group)},
        {"hsdp_plan_ops", api->plan, 152, sizeof(*api->plan)},
        {"hsdp_model_ops", api->model, 104, sizeof(*api->model)},
        {"hsdp_unit_ops", api->unit, 64, sizeof(*api->unit)},
        {"hsdp_step_ops", api->step, 48, sizeof(*api->step)},
        {"hsdp_diag_ops", api->diag, 32, sizeof(*api->diag)},
    };

    memcpy(ret, tables, sizeof(tables));
}

/* A table is its size and then pointers, up to that size; the root's two numbers count as one. */
void table_check(struct conform *conform, const struct table *table, size_t least_bytes)
{
    const unsigned char *bytes = table->table;
    size_t n_bytes;

    conform_expect(conform, bytes != NULL, "there is no table %s", table->name);
    memcpy(&n_bytes, bytes, sizeof(n_bytes));
    conform_expect(conform, n_bytes >= least_bytes,
                   "struct %s has a struct_size of %zu; at least %zu are promised", table->name,
                   n_bytes, least_bytes);
    for (size_t i = sizeof(n_bytes); i + sizeof(void *) <= n_bytes; i += sizeof(void *)) {
        void *entry;

        memcpy(&entry, bytes + i, sizeof(entry));
        conform_expect(conform, entry != NULL,
                       "struct %s of %zu bytes holds NULL at byte %zu; what is not built answers "
                       "HSDP_ERR_UNSUPPORTED",
                       table->name, n_bytes, i);
    }
}

static void tables_are_whole(struct conform *conform)
{
    const struct hsdp_api *api = api_ask(conform, entry_find(conform));
    struct table tables[N_TABLES];

    table_check(conform, &(struct table){"hsdp_api", api, 112, sizeof(*api)}, 112);
    tables_list(api, tables);
    for (int i = 1; i < N_TABLES; i++) {
        table_check(conform, &tables[i], tables[i].n_bytes_1_0);
    }
}

static bool is_as_new(uint32_t minor, uint32_t than)
{
    return minor >= than;
}

/* Who says that its minor is that of this kit, or newer, has all that the kit knows. */
static void tables_fit_the_minor(struct conform *conform)
{
    const struct hsdp_api *api = api_ask(conform, entry_find(conform));
    struct table tables[N_TABLES];

    conform_expect(conform, api->abi_major == HSDP_ABI_MAJOR,
                   "hsdp_plugin_v1 is the entry of ABI 1; abi_major is %u",
                   (unsigned)api->abi_major);
    tables_list(api, tables);
    for (int i = 0; i < N_TABLES && is_as_new(api->abi_minor, HSDP_ABI_MINOR); i++) {
        size_t n_bytes;

        memcpy(&n_bytes, tables[i].table, sizeof(n_bytes));
        conform_expect(conform, n_bytes >= tables[i].n_bytes,
                       "in ABI 1.%u struct %s has %zu bytes; that of a plugin of ABI 1.%u has %zu",
                       HSDP_ABI_MINOR, tables[i].name, tables[i].n_bytes, (unsigned)api->abi_minor,
                       n_bytes);
    }
}

static void name_and_version(struct conform *conform)
{
    const struct hsdp_api *api = api_ask(conform, entry_find(conform));

    conform_expect(conform, api->plugin_name != NULL && api->plugin_name[0] != '\0',
                   "plugin_name is empty");
    conform_expect(conform, api->plugin_version != NULL && api->plugin_version[0] != '\0',
                   "plugin_version is empty");
}

/* It lives as long as the plugin, whoever asks again. */
static void table_stays(struct conform *conform)
{
    hsdp_plugin_v1_fn entry = entry_find(conform);
    const struct hsdp_api *first = api_ask(conform, entry);
    const struct hsdp_api *other = NULL;
    struct hsdp_api before = *first;

    for (uint32_t minor = 0; minor < 5; minor++) {
        conform_must(conform, entry(HSDP_ABI_MAJOR, minor, &other, &conform->err));
        conform_expect(conform, entry(2, minor, &other, NULL) < 0, "a host of ABI 2 is accepted");
        conform_expect(
            conform, memcmp(first, &before, sizeof(before)) == 0,
            "the table that the first call gave has changed when it was asked for again");
    }
    other = api_ask(conform, entry);
    conform_expect(conform, memcmp(other, first, sizeof(before)) == 0,
                   "the entry gives two tables that differ");
}

/* ------------------------------------------------------------------------------ loading again */

/* Something that needs the code and the data of a plugin. */
static void plugin_use(struct conform *conform, const hsdp_plugin *plugin)
{
    uint64_t n_bytes = 0;

    conform_enter(conform, "describe(NULL, 0, ...)");
    conform_expect(conform,
                   hsdp_plugin_api(plugin)->describe(NULL, 0, &n_bytes, NULL) ==
                           HSDP_ERR_BUFFER_TOO_SMALL &&
                       n_bytes > 0,
                   "describe does not tell its size");
}

static void loaded_twice(struct conform *conform)
{
    hsdp_plugin *first = process_load(conform, conform->plugin_path);
    hsdp_plugin *second = process_load(conform, conform->plugin_path);

    plugin_use(conform, first);
    plugin_use(conform, second);
    conform_enter(conform, "hsdp_plugin_unload of the first of two");
    hsdp_plugin_unload(first);
    plugin_use(conform, second);
    conform_enter(conform, "hsdp_plugin_unload of the second of two");
    hsdp_plugin_unload(second);
}

static void loaded_again(struct conform *conform)
{
    uint32_t n_threads = process_count_entries(conform, "/proc/self/task");
    uint32_t n_open = process_count_entries(conform, "/proc/self/fd");
    uint64_t deadline_ms;

    for (int i = 0; i < N_LOADS; i++) {
        hsdp_plugin *plugin = process_load(conform, conform->plugin_path);

        plugin_use(conform, plugin);
        conform_enter(conform, "hsdp_plugin_unload");
        hsdp_plugin_unload(plugin);
    }
    deadline_ms = conform_now_ms() + THREADS_MS; /* a thread that is ending may take a moment */
    while (process_count_entries(conform, "/proc/self/task") > n_threads &&
           conform_now_ms() < deadline_ms) {
        conform_sleep_ms(5);
    }
    conform_expect(conform, process_count_entries(conform, "/proc/self/task") <= n_threads,
                   "loaded and unloaded three times, it has left threads behind");
    conform_expect(conform, process_count_entries(conform, "/proc/self/fd") <= n_open,
                   "loaded and unloaded three times, it has left files open");
}

static const struct conform_check checks[] = {
    {"the loader accepts it", "loader.h: hsdp_plugin_load", loader_accepts, 1, 0, CONFORM_UNLOADED},
    {"one symbol is exported", "abi.h: a shared object that exports one function",
     exports_one_symbol, 1, 0, CONFORM_UNLOADED},
    {"any minor version of the host is accepted", "abi.h: hsdp_plugin_v1_fn", any_minor, 1, 0,
     CONFORM_UNLOADED},
    {"any other major version of the host is refused", "abi.h: hsdp_plugin_v1_fn, Errors",
     other_major, 1, 0, CONFORM_UNLOADED},
    {"the refusal of a major version tells both versions", "abi.h: hsdp_plugin_v1_fn, Errors",
     both_versions, 1, 0, CONFORM_UNLOADED},
    {"the first call never crashes", "abi.h: hsdp_plugin_v1_fn", first_call, 1, 0,
     CONFORM_UNLOADED},
    {"an entry without a place for the table is refused", "abi.h: hsdp_plugin_v1_fn, Errors",
     no_result, 1, 0, CONFORM_UNLOADED},
    {"an error below the size of ABI 1.0 is left alone", "abi.h: Errors", error_short, 1, 0,
     CONFORM_UNLOADED},
    {"an error of the size of ABI 1.0 is filled", "abi.h: Errors", error_exact, 1, 0,
     CONFORM_UNLOADED},
    {"an error of a newer host is filled and its tail zeroed", "abi.h: Versions", error_long, 1, 0,
     CONFORM_UNLOADED},
    {"tables are as long as in ABI 1.0 and hold no NULL", "abi.h: struct hsdp_api",
     tables_are_whole, 1, 0, CONFORM_UNLOADED},
    {"tables are as long as their minor version says", "abi.h: struct hsdp_api",
     tables_fit_the_minor, 1, 0, CONFORM_UNLOADED},
    {"name and version are told", "abi.h: struct hsdp_api", name_and_version, 1, 0,
     CONFORM_UNLOADED},
    {"the table lives as long as the plugin", "abi.h: struct hsdp_api", table_stays, 1, 0,
     CONFORM_UNLOADED},
    {"describe tells its size and keeps to the buffer", "abi.h: describe", describe_sizes, 1, 0, 0},
    {"describe is JSON with the promised members", "abi.h: describe", describe_document, 1, 0, 0},
    {"describe has every setting of job.h and plan.h", "abi.h: describe", describe_settings, 1, 0,
     0},
    {"describe says the same when asked again", "abi.h: describe", describe_again, 1, 0, 0},
    {"an extension that it lists is found", "abi.h: extension", extension_known, 1, 0, 0},
    {"an extension that it does not know is refused", "abi.h: extension, Errors", extension_unknown,
     1, 0, 0},
    {"it can be loaded twice at a time", "loader.h: hsdp_plugin_load", loaded_twice, 1, 0,
     CONFORM_UNLOADED},
    {"it can be loaded and unloaded again and again", "loader.h: hsdp_plugin_unload", loaded_again,
     1, 0, CONFORM_UNLOADED},
};

const struct conform_chapter conform_negotiation = {
    .name = "negotiation",
    .title = "the entry, versions, tables, describe",
    .checks = checks,
    .n_checks = sizeof(checks) / sizeof(checks[0]),
};
