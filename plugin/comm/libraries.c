/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the file of a library as dlopen would, without loading it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, dlinfo, memmem */
#endif

#include "comm/libraries.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/nccl.h"
#include "device/cuda.h"
#include "device/gpu_image.h"

/* One word of a list of symbols. */
#define CUDA_SYMBOL(field, symbol, parameters)         #symbol " "
#define NCCL_SYMBOL(field, symbol, result, parameters) #symbol " "

static const struct library_newer nccl_newer[] = {
    {"ncclCommRevoke", "2.28.7", "ncclCommAbort, which waits for captured graphs"},
};

/* What nccl.h binds where it is there is said to those who ask, function by function. */
#define NCCL_COUNT(field, symbol, result, parameters) +1
_Static_assert(sizeof(nccl_newer) / sizeof(nccl_newer[0]) == 0 NCCL_NEWER_FUNCTIONS(NCCL_COUNT),
               "a row for each");

const struct library libraries[LIBRARIES_COUNT] = {
    {.transport = "mpi",
     .names = "libmpi.so.40 libmpi.so.12",
     .symbols = "MPI_Get_library_version MPI_Init_thread MPI_Comm_split MPI_Comm_free MPI_Test "
                "MPI_Finalize"},
    {.transport = "nccl",
     .names = "libnccl.so.2",
     .variable = "HSDP_NCCL_LIBRARY",
     .setting = "nccl_library",
     .min_version = "2.18",
     .symbols = NCCL_FUNCTIONS(NCCL_SYMBOL),
     .newer = nccl_newer,
     .n_newer = sizeof(nccl_newer) / sizeof(nccl_newer[0])},
    {.transport = "nccl",
     .names = "libcuda.so.1",
     .variable = "HSDP_CUDA_LIBRARY",
     .setting = "cuda_library",
     .loads_device_code = true,
     .symbols = CUDA_FUNCTIONS(CUDA_SYMBOL)},
};

bool library_min_version(const struct library *library, char *ret_text, size_t max_bytes)
{
    if (library->loads_device_code && gpu_image_has_code) {
        snprintf(ret_text, max_bytes, "%" PRId32 ".%" PRId32, gpu_image_min_driver / 1000,
                 gpu_image_min_driver % 1000 / 10);
        return true;
    }
    if (library->min_version != NULL) {
        snprintf(ret_text, max_bytes, "%s", library->min_version);
    }
    return library->min_version != NULL;
}

/* ---------------------------------------------------------------------------------------- files */

/* A file of another machine does not count: the linker passes over it as well. */
static bool file_serves(const char *path)
{
    ElfW(Ehdr) header;
    Dl_info own;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool serves;

    if (fd < 0) {
        return false;
    }
    serves = read(fd, &header, sizeof(header)) == (ssize_t)sizeof(header) &&
             memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
    close(fd);
    if (serves && dladdr((const void *)&libraries, &own) != 0) {
        const ElfW(Ehdr) *ours = own.dli_fbase;

        serves = header.e_ident[EI_CLASS] == ours->e_ident[EI_CLASS] &&
                 header.e_ident[EI_DATA] == ours->e_ident[EI_DATA] &&
                 header.e_machine == ours->e_machine;
    }
    return serves;
}

static bool file_take(const char *path, struct library_file *ret)
{
    if (strlen(path) >= sizeof(ret->path) || !file_serves(path)) {
        return false;
    }
    memcpy(ret->path, path, strlen(path) + 1);
    return true;
}

static bool folder_try(const char *folder, const char *name, struct library_file *ret)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
           file_take(path, ret);
}

/* What stands behind ".so." in the name of the file that links lead to. */
static void version_take(struct library_file *file)
{
    char *real = realpath(file->path, NULL);
    const char *base = real == NULL ? NULL : strrchr(real, '/');
    const char *so = base == NULL ? NULL : strstr(base, ".so.");

    if (so != NULL && isdigit((unsigned char)so[4]) && strchr(so + 4, '.') != NULL &&
        strlen(so + 4) < sizeof(file->version)) {
        memcpy(file->version, so + 4, strlen(so + 4) + 1);
    }
    free(real);
}

/* --------------------------------------------------------------------- where the linker looks */

/* One that the process has already is the one that it would get again. */
static bool loaded_try(const char *name, struct library_file *ret)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    struct link_map *map = NULL;
    bool is_found;

    if (handle == NULL) {
        return false;
    }
    is_found = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && file_take(map->l_name, ret);
    dlclose(handle); /* counts back: it was there before */
    return is_found;
}

/* The folders of RPATH, RUNPATH, LD_LIBRARY_PATH and the system; NULL on failure. */
static Dl_serinfo *folders_read(void)
{
    Dl_info own;
    Dl_serinfo size;
    Dl_serinfo *folders = NULL;
    void *handle = NULL;

    if (dladdr((const void *)&libraries, &own) != 0) {
        handle = dlopen(own.dli_fname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    }
    if (handle == NULL) {
        handle = dlopen(NULL, RTLD_LAZY); /* we are part of the program */
    }
    if (handle != NULL && dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) == 0) {
        folders = malloc(size.dls_size);
    }
    if (folders != NULL) {
        folders->dls_size = size.dls_size;
        folders->dls_cnt = size.dls_cnt;
        if (dlinfo(handle, RTLD_DI_SERINFO, folders) != 0) {
            free(folders);
            folders = NULL;
        }
    }
    if (handle != NULL) {
        dlclose(handle);
    }
    return folders;
}

static bool folders_try(const Dl_serinfo *folders, bool is_of_system, const char *name,
                        struct library_file *ret)
{
    for (unsigned i = 0; folders != NULL && i < folders->dls_cnt; i++) {
        const Dl_serpath *folder = &folders->dls_serpath[i];

        if (((folder->dls_flags & LA_SER_DEFAULT) != 0) == is_of_system &&
            folder_try(folder->dls_name, name, ret)) {
            return true;
        }
    }
    return false;
}

/* The cache of glibc 2.2 and newer; the strings' places count from its beginning. */
#define CACHE_MAGIC "glibc-ld.so.cache1.1"

struct cache_head {
    char magic[sizeof(CACHE_MAGIC) - 1];
    uint32_t n_entries;
    uint32_t n_string_bytes;
    uint32_t unused[5];
};

struct cache_entry {
    int32_t flags;
    uint32_t name;
    uint32_t path;
    uint32_t system;
    uint64_t hardware;
};

/* A string of the cache that ends within it, else NULL. */
static const char *cache_string(const char *cache, size_t n_bytes, uint32_t at)
{
    return at < n_bytes && memchr(cache + at, '\0', n_bytes - at) != NULL ? cache + at : NULL;
}

bool library_cache_path(const void *cache, size_t n_bytes, const char *name, uint32_t n,
                        const char **ret_path)
{
    /* an older cache, for older programs, may stand before it */
    const char *start = memmem(cache, n_bytes, CACHE_MAGIC, sizeof(CACHE_MAGIC) - 1);
    struct cache_head head;

    if (start == NULL || n_bytes - (size_t)(start - (const char *)cache) < sizeof(head)) {
        return false;
    }
    n_bytes -= (size_t)(start - (const char *)cache);
    memcpy(&head, start, sizeof(head));
    for (uint64_t i = 0; i < head.n_entries; i++) {
        uint64_t at = sizeof(head) + i * sizeof(struct cache_entry);
        struct cache_entry entry;
        const char *found;

        if (n_bytes < sizeof(entry) || at > n_bytes - sizeof(entry)) {
            return false;
        }
        memcpy(&entry, start + at, sizeof(entry));
        found = cache_string(start, n_bytes, entry.name);
        if (found != NULL && strcmp(found, name) == 0 && n-- == 0) {
            *ret_path = cache_string(start, n_bytes, entry.path);
            return *ret_path != NULL;
        }
    }
    return false;
}

static bool cache_try(const char *name, struct library_file *ret)
{
    int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    struct stat file;
    const char *path;
    void *cache;
    bool is_found = false;

    if (fd < 0 || fstat(fd, &file) != 0 || file.st_size <= 0) {
        goto out;
    }
    cache = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (cache == MAP_FAILED) {
        goto out;
    }
    for (uint32_t n = 0;
         !is_found && library_cache_path(cache, (size_t)file.st_size, name, n, &path); n++) {
        is_found = file_take(path, ret);
    }
    munmap(cache, (size_t)file.st_size);

out:
    if (fd >= 0) {
        close(fd);
    }
    return is_found;
}

static bool name_find(const Dl_serinfo *folders, const char *name, struct library_file *ret)
{
    snprintf(ret->name, sizeof(ret->name), "%s", name);
    if (strchr(name, '/') != NULL) {
        return file_take(name, ret);
    }
    return loaded_try(name, ret) || folders_try(folders, false, name, ret) ||
           cache_try(name, ret) || folders_try(folders, true, name, ret);
}

void library_find(const struct library *library, struct library_file *ret)
{
    const char *given = library->variable == NULL ? NULL : getenv(library->variable);
    Dl_serinfo *folders = folders_read();
    const char *word = library->names;
    bool is_found = false;

    memset(ret, 0, sizeof(*ret));
    if (given != NULL && given[0] != '\0') {
        is_found = name_find(folders, given, ret);
        word = "";
    }
    while (!is_found && *word != '\0') {
        size_t n = strcspn(word, " ");
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)n, word);
        is_found = name_find(folders, name, ret);
        word += n;
        word += strspn(word, " ");
    }
    if (!is_found && (given == NULL || given[0] == '\0')) {
        snprintf(ret->name, sizeof(ret->name), "%.*s", (int)strcspn(library->names, " "),
                 library->names);
    }
    if (is_found) {
        version_take(ret);
    }
    free(folders);
}

uint32_t library_count_devices(const char *folder)
{
    DIR *files = opendir(folder);
    const struct dirent *file;
    uint32_t n_devices = 0;

    while (files != NULL && (file = readdir(files)) != NULL) {
        const char *digits = file->d_name + strlen("nvidia");

        if (strncmp(file->d_name, "nvidia", strlen("nvidia")) == 0 && digits[0] != '\0' &&
            strspn(digits, "0123456789") == strlen(digits)) {
            n_devices++;
        }
    }
    if (files != NULL) {
        closedir(files);
    }
    return n_devices;
}
