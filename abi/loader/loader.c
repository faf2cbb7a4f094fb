/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: this file and hsdp/loader.h, hsdp/abi.h are all that a host needs to copy. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif

#include "hsdp/loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sizes in ABI 1.0: what callers and plugins have at least. No struct of any version is longer than
 * STRUCT_MAX_BYTES, so a size beyond is garbage. */
#define API_BYTES_1_0         112u
#define ERROR_BYTES_1_0       776u
#define PLUGIN_SPEC_BYTES_1_0 24u
#define STRUCT_MAX_BYTES      65536u

#define ABSENT 1 /* of file_load: nothing is there, so the search may go on */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_NONE /* dlopen will tell */
#endif

struct hsdp_plugin {
    void *library;
    const struct hsdp_api *api;
    char *path;
};

/* --------------------------------------------------------------------------------------- errors */

/* The sentence of an error, as it grows; what does not fit is cut, with dots in its place. */
struct sentence {
    char text[sizeof(((struct hsdp_error *)0)->message)];
    size_t n_bytes;
};

static void sentence_add(struct sentence *sentence, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void sentence_add_list(struct sentence *sentence, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static int32_t refuse(struct sentence *why, int32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void sentence_add_list(struct sentence *sentence, const char *format, va_list args)
{
    size_t room = sizeof(sentence->text) - sentence->n_bytes;
    size_t end = sizeof(sentence->text) - sizeof(" ...");
    int n_bytes = vsnprintf(sentence->text + sentence->n_bytes, room, format, args);

    if (n_bytes >= 0 && (size_t)n_bytes < room) {
        sentence->n_bytes += (size_t)n_bytes;
        return;
    }
    while (end > 0 && ((unsigned char)sentence->text[end] & 0xc0) == 0x80) {
        end--; /* not inside of a character */
    }
    memcpy(sentence->text + end, " ...", sizeof(" ..."));
    sentence->n_bytes = sizeof(sentence->text) - 1; /* full: nothing is added any more */
}

static void sentence_add(struct sentence *sentence, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    sentence_add_list(sentence, format, args);
    va_end(args);
}

/* Writes the whole sentence and returns the status, so that a fault is one statement. */
static int32_t refuse(struct sentence *why, int32_t status, const char *format, ...)
{
    va_list args;

    why->n_bytes = 0;
    sentence_add(why, "loader: ");
    va_start(args, format);
    sentence_add_list(why, format, args);
    va_end(args);
    return status;
}

static int32_t error_give(struct hsdp_error *reterr, int32_t status, const struct sentence *why)
{
    struct hsdp_error own;
    size_t n_bytes;

    if (reterr == NULL || reterr->struct_size < ERROR_BYTES_1_0 ||
        reterr->struct_size > STRUCT_MAX_BYTES) {
        return status;
    }
    n_bytes = reterr->struct_size;
    memset(&own, 0, sizeof(own));
    own.struct_size = n_bytes;
    own.status = status;
    memcpy(own.operation, "load", sizeof("load"));
    memcpy(own.message, why->text, sizeof(own.message));
    memset(reterr, 0, n_bytes);
    memcpy(reterr, &own, n_bytes < sizeof(own) ? n_bytes : sizeof(own));
    return status;
}

/* ---------------------------------------------------------------------------------------- trust */

/* Whoever may change the program, or is the user, or is root, may as well change the plugin. */
static int owner_is_trusted(uid_t owner)
{
    struct stat program;

    return owner == 0 || owner == geteuid() ||
           (stat("/proc/self/exe", &program) == 0 && program.st_uid == owner);
}

/* `place` is the plugin's file or a folder that decides what its name means. */
static int32_t place_check(const char *path, const char *place, struct sentence *why)
{
    struct stat file;

    if (stat(place, &file) != 0) {
        return refuse(why, HSDP_ERR_UNAVAILABLE, "%s: %s: %s", path, place, strerror(errno));
    }
    if ((file.st_mode & S_IWOTH) != 0 && !(S_ISDIR(file.st_mode) && (file.st_mode & S_ISVTX))) {
        return refuse(why, HSDP_ERR_UNAVAILABLE,
                      "%s: anybody can change it: %s is writable by others (chmod o-w)", path,
                      place);
    }
    if (!owner_is_trusted(file.st_uid)) {
        return refuse(
            why, HSDP_ERR_UNAVAILABLE,
            "%s: %s belongs to user %lu, who is neither root nor you nor the owner of the "
            "program",
            path, place, (unsigned long)file.st_uid);
    }
    return HSDP_OK;
}

static int32_t parent_check(const char *path, struct sentence *why)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";

    if (slash == path) {
        folder[0] = '/';
    } else if (slash != NULL && (size_t)(slash - path) < sizeof(folder)) {
        memcpy(folder, path, (size_t)(slash - path));
        folder[slash - path] = '\0';
    }
    return place_check(path, folder, why);
}

/* ------------------------------------------------------------------------------------------ ELF */

static const char *machine_name(unsigned machine)
{
    static const struct {
        unsigned machine;
        const char *name;
    } machines[] = {
        {EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"}, {EM_386, "i386"},    {EM_ARM, "arm"},
        {EM_PPC64, "ppc64"},   {EM_S390, "s390"},       {EM_RISCV, "riscv"},
    };

    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        if (machines[i].machine == machine) {
            return machines[i].name;
        }
    }
    return "another machine";
}

static int32_t machine_check(const char *path, const ElfW(Ehdr) * header, struct sentence *why)
{
    const uint16_t one = 1;
    unsigned char own_order = *(const unsigned char *)&one == 1 ? ELFDATA2LSB : ELFDATA2MSB;
    unsigned char own_class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    unsigned machine = header->e_machine;

    if (header->e_ident[EI_DATA] != own_order) {
        machine = (machine & 0xff) << 8 | machine >> 8;
    }
    if (header->e_ident[EI_DATA] == own_order && header->e_ident[EI_CLASS] == own_class &&
        (OWN_MACHINE == EM_NONE || machine == OWN_MACHINE)) {
        return HSDP_OK;
    }
    return refuse(
        why, HSDP_ERR_UNAVAILABLE,
        "%s: wrong architecture: it is for %s (ELF machine %u, %d bits), this program for "
        "%s (%d bits)",
        path, machine_name(machine), machine, header->e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32,
        machine_name(OWN_MACHINE), (int)sizeof(void *) * 8);
}

/* A file that was cut short while it was copied would crash in dlopen. */
static int32_t segments_check(const char *path, int fd, const ElfW(Ehdr) * header,
                              struct sentence *why)
{
    uint64_t n_bytes = (uint64_t)lseek(fd, 0, SEEK_END);

    for (unsigned i = 0; i < header->e_phnum; i++) {
        uint64_t offset = header->e_phoff + (uint64_t)i * sizeof(ElfW(Phdr));
        ElfW(Phdr) segment;

        if (offset > n_bytes ||
            pread(fd, &segment, sizeof(segment), (off_t)offset) != (ssize_t)sizeof(segment) ||
            segment.p_offset > n_bytes || segment.p_filesz > n_bytes - segment.p_offset) {
            return refuse(why, HSDP_ERR_UNAVAILABLE,
                          "%s: is cut short: it has %llu bytes, its header tells of more", path,
                          (unsigned long long)n_bytes);
        }
    }
    return HSDP_OK;
}

static int32_t elf_check(const char *path, int fd, struct sentence *why)
{
    ElfW(Ehdr) header;
    int32_t status;

    if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        return refuse(why, HSDP_ERR_UNAVAILABLE, "%s: is not a shared object (no ELF file)", path);
    }
    status = machine_check(path, &header, why);
    if (status != HSDP_OK) {
        return status;
    }
    if (header.e_type != ET_DYN || header.e_phentsize != sizeof(ElfW(Phdr))) {
        return refuse(why, HSDP_ERR_UNAVAILABLE,
                      "%s: is not a shared object (an ELF file of another type)", path);
    }
    return segments_check(path, fd, &header, why);
}

/* Everything that can be said about a file before code from it runs. */
static int32_t file_check(const char *path, struct sentence *why)
{
    struct stat file;
    int32_t status;
    int fd;

    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode)) {
        return refuse(why, HSDP_ERR_UNAVAILABLE, "%s: is %s, not a plugin", path,
                      S_ISDIR(file.st_mode) ? "a folder" : "not a regular file");
    }
    status = place_check(path, path, why);
    if (status != HSDP_OK) {
        return status;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return refuse(why, HSDP_ERR_UNAVAILABLE, "%s: %s", path, strerror(errno));
    }
    status = elf_check(path, fd, why);
    close(fd);
    return status;
}

/* ------------------------------------------------------------------------------ what was loaded */

/* A plugin without our entry may have that of another major version. */
static int32_t entry_refuse(const char *path, void *library, struct sentence *why)
{
    for (unsigned major = 0; major < 10; major++) {
        char symbol[32];

        snprintf(symbol, sizeof(symbol), "hsdp_plugin_v%u", major);
        if (dlsym(library, symbol) != NULL) {
            return refuse(why, HSDP_ERR_VERSION, "%s: has ABI %u, the host wants %u.%u", path,
                          major, HSDP_ABI_MAJOR, HSDP_ABI_MINOR);
        }
    }
    return refuse(why, HSDP_ERR_UNAVAILABLE, "%s: is not a plugin: it has no symbol %s", path,
                  HSDP_ENTRY_SYMBOL);
}

/* The first member that is NULL; NULL = none is. */
static const char *api_hole(const struct hsdp_api *api)
{
    return api->plugin_name == NULL      ? "plugin_name"
           : api->plugin_version == NULL ? "plugin_version"
           : api->mesh == NULL           ? "mesh"
           : api->job == NULL            ? "job"
           : api->group == NULL          ? "group"
           : api->plan == NULL           ? "plan"
           : api->model == NULL          ? "model"
           : api->unit == NULL           ? "unit"
           : api->step == NULL           ? "step"
           : api->diag == NULL           ? "diag"
           : api->describe == NULL       ? "describe"
           : api->extension == NULL      ? "extension"
                                         : NULL;
}

/* Agrees with a loaded library on a version. */
static int32_t library_ask(const char *path, void *library, const struct hsdp_api **ret_api,
                           struct sentence *why)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    void *symbol = dlsym(library, HSDP_ENTRY_SYMBOL);
    const struct hsdp_api *api = NULL;
    hsdp_plugin_v1_fn entry;
    const char *hole;
    int32_t status;

    if (symbol == NULL) {
        return entry_refuse(path, library, why);
    }
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from data to function */
    status = entry(HSDP_ABI_MAJOR, HSDP_ABI_MINOR, &api, &err);
    if (status > 0 || (status < 0 && err.message[0] == '\0')) {
        return refuse(why, HSDP_ERR_UNAVAILABLE, "%s: answers %d without a reason", path,
                      (int)status);
    }
    if (status != HSDP_OK) {
        return refuse(why, status, "%s: %.*s", path, (int)sizeof(err.message), err.message);
    }
    if (api == NULL || api->struct_size < API_BYTES_1_0 || api->abi_major != HSDP_ABI_MAJOR) {
        return refuse(why, HSDP_ERR_VERSION, "%s: accepted ABI %u, but has no such table", path,
                      HSDP_ABI_MAJOR);
    }
    hole = api_hole(api);
    if (hole != NULL) {
        return refuse(why, HSDP_ERR_UNAVAILABLE, "%s: the member %s of its root table is NULL",
                      path, hole);
    }
    *ret_api = api;
    return HSDP_OK;
}

static int32_t library_load(const char *path, struct hsdp_plugin **ret_plugin, struct sentence *why)
{
    struct hsdp_plugin *plugin = calloc(1, sizeof(*plugin));
    int32_t status;

    if (plugin == NULL || (plugin->path = strdup(path)) == NULL) {
        status = refuse(why, HSDP_ERR_NO_MEMORY, "%s: no memory to load it", path);
        goto out;
    }
    plugin->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin->library == NULL) {
        status = refuse(why, HSDP_ERR_UNAVAILABLE, "%s: cannot be loaded: %s", path, dlerror());
        goto out;
    }
    status = library_ask(path, plugin->library, &plugin->api, why);
    if (status == HSDP_OK) {
        *ret_plugin = plugin;
        plugin = NULL; /* handed over */
    }

out:
    hsdp_plugin_unload(plugin);
    return status;
}

/* Loads a file by name, or answers ABSENT, with errno, when nothing is there. */
static int32_t file_load(const char *name, struct hsdp_plugin **ret_plugin, struct sentence *why)
{
    char *path = realpath(name, NULL); /* dlopen shall see a '/', and load what was checked */
    int32_t status;

    if (path == NULL) {
        return ABSENT;
    }
    status = parent_check(name, why);
    if (status == HSDP_OK) {
        status = parent_check(path, why);
    }
    if (status == HSDP_OK) {
        status = file_check(path, why);
    }
    if (status == HSDP_OK) {
        status = library_load(path, ret_plugin, why);
    }
    free(path);
    return status;
}

/* --------------------------------------------------------------------------------------- search */

struct search {
    char names[2][96]; /* files to look for, the preferred one first; "" = none */
    struct hsdp_plugin *found;
    struct sentence why;    /* of the file that ended the search */
    struct sentence places; /* where nothing was */
};

/* A strategy becomes part of a file's name only if it cannot lead out of the folder. */
static int strategy_is_name(const char *strategy)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t n_bytes = strategy == NULL ? 0 : strlen(strategy);

    return n_bytes > 0 && n_bytes <= 64 && strspn(strategy, letters) == n_bytes;
}

static int32_t folder_try(struct search *search, const char *folder)
{
    const char *reason = "not there";

    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        int32_t status;

        if (search->names[i][0] == '\0') {
            continue;
        }
        if (snprintf(path, sizeof(path), "%s/%s", folder, search->names[i]) >= (int)sizeof(path)) {
            reason = "the path is too long";
            continue;
        }
        status = file_load(path, &search->found, &search->why);
        if (status != ABSENT) {
            return status;
        }
        if (access(folder, X_OK) != 0) {
            reason = strerror(errno); /* of the folder rather than of the file */
        }
    }
    sentence_add(&search->places, "%s %s (%s)", search->places.n_bytes == 0 ? "" : ",", folder,
                 reason);
    return ABSENT;
}

/* The folders of HSDP_PLUGIN_PATH; empty ones are skipped. */
static int32_t path_try(struct search *search, const char *path)
{
    while (path != NULL && *path != '\0') {
        size_t n_bytes = strcspn(path, ":");
        char folder[PATH_MAX];
        int32_t status = ABSENT;

        if (n_bytes > 0 && n_bytes < sizeof(folder)) {
            memcpy(folder, path, n_bytes);
            folder[n_bytes] = '\0';
            status = folder_try(search, folder);
        }
        if (status != ABSENT) {
            return status;
        }
        path += n_bytes;
        path += strspn(path, ":");
    }
    return ABSENT;
}

/* ../lib/hsdp beside the program: an installation that was moved as a whole. */
static int32_t beside_try(struct search *search)
{
    char program[PATH_MAX];
    char folder[PATH_MAX + sizeof("/../lib/hsdp")];
    ssize_t n_bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (n_bytes <= 0) {
        return ABSENT;
    }
    while (n_bytes > 0 && program[n_bytes - 1] != '/') {
        n_bytes--;
    }
    snprintf(folder, sizeof(folder), "%.*s../lib/hsdp", (int)n_bytes, program);
    return folder_try(search, folder);
}

static int32_t plugin_search(const char *strategy, struct search *search)
{
    int32_t status;

    if (strategy_is_name(strategy)) {
        snprintf(search->names[0], sizeof(search->names[0]), "hsdp_%s.so", strategy);
    }
    snprintf(search->names[1], sizeof(search->names[1]), "hsdp.so");
    status = path_try(search, secure_getenv("HSDP_PLUGIN_PATH"));
#ifdef HSDP_PLUGIN_DIR
    if (status == ABSENT) {
        status = folder_try(search, HSDP_PLUGIN_DIR);
    }
#endif
    if (status == ABSENT) {
        status = beside_try(search);
    }
    if (status == ABSENT) {
        sentence_add(
            &search->why,
            "loader: found no %s%shsdp.so; set HSDP_PLUGIN to its path or HSDP_PLUGIN_PATH "
            "to its folder; looked in%s",
            search->names[0], search->names[0][0] == '\0' ? "" : " or ", search->places.text);
        status = HSDP_ERR_UNAVAILABLE;
    }
    return status;
}

/* A file that was named is the only candidate. */
static int32_t plugin_open(const char *name, const char *by_whom, struct search *search)
{
    int32_t status = file_load(name, &search->found, &search->why);

    if (status == ABSENT) {
        status = refuse(&search->why, HSDP_ERR_UNAVAILABLE, "%s: %s", name, strerror(errno));
    }
    if (status != HSDP_OK) {
        sentence_add(&search->why, " (%s)", by_whom);
    }
    return status;
}

/* ----------------------------------------------------------------------------- public functions */

static int32_t spec_take(const struct hsdp_plugin_spec *spec, struct hsdp_plugin_spec *ret_own,
                         struct sentence *why)
{
    size_t n_bytes = spec == NULL ? 0 : spec->struct_size;
    const unsigned char *bytes = (const unsigned char *)spec;

    memset(ret_own, 0, sizeof(*ret_own));
    if (spec == NULL) {
        return HSDP_OK;
    }
    if (n_bytes < PLUGIN_SPEC_BYTES_1_0 || n_bytes > STRUCT_MAX_BYTES) {
        return refuse(why, HSDP_ERR_VERSION,
                      "spec.struct_size is %zu; ABI 1.0 has %u, this loader %zu", n_bytes,
                      PLUGIN_SPEC_BYTES_1_0, sizeof(*ret_own));
    }
    for (size_t i = sizeof(*ret_own); i < n_bytes; i++) {
        if (bytes[i] != 0) {
            return refuse(why, HSDP_ERR_UNSUPPORTED,
                          "spec sets a field at byte %zu; this loader knows %zu", i,
                          sizeof(*ret_own));
        }
    }
    memcpy(ret_own, spec, n_bytes < sizeof(*ret_own) ? n_bytes : sizeof(*ret_own));
    return HSDP_OK;
}

int32_t hsdp_plugin_load(const struct hsdp_plugin_spec *spec, hsdp_plugin **ret_plugin,
                         struct hsdp_error *reterr)
{
    struct search search;
    struct hsdp_plugin_spec own;
    const char *variable = secure_getenv("HSDP_PLUGIN");
    int32_t status;

    memset(&search, 0, sizeof(search));
    status = spec_take(spec, &own, &search.why);
    if (status == HSDP_OK && ret_plugin == NULL) {
        status = refuse(&search.why, HSDP_ERR_INVALID, "ret_plugin is NULL");
    }
    if (status != HSDP_OK) {
        return error_give(reterr, status, &search.why);
    }
    if (own.path != NULL && own.path[0] != '\0') {
        status = plugin_open(own.path, "given by the caller", &search);
    } else if (variable != NULL && variable[0] != '\0') {
        status = plugin_open(variable, "named by HSDP_PLUGIN", &search);
    } else {
        status = plugin_search(own.strategy, &search);
    }
    if (status != HSDP_OK) {
        return error_give(reterr, status, &search.why);
    }
    *ret_plugin = search.found;
    return HSDP_OK;
}

const struct hsdp_api *hsdp_plugin_api(const hsdp_plugin *plugin)
{
    return plugin->api;
}

const char *hsdp_plugin_path(const hsdp_plugin *plugin)
{
    return plugin->path;
}

void hsdp_plugin_unload(hsdp_plugin *plugin)
{
    if (plugin == NULL) {
        return;
    }
    if (plugin->library != NULL) {
        dlclose(plugin->library);
    }
    free(plugin->path);
    free(plugin);
}
