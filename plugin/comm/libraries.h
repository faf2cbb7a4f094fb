/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of others that transports need: what they are called, and where they would be found. */
#ifndef COMM_LIBRARIES_H
#define COMM_LIBRARIES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Nothing here loads a library or calls one. Whoever asks a plugin what it is may be a training
 * program in the middle of its work, and to load is to run code: Open MPI and MPICH bring along
 * libraries that install signal handlers, NCCL and the driver cannot be unloaded safely. To try
 * them out is for a process that has nothing to lose: hsdp-info.
 */

/** A function that only newer versions have. */
struct library_newer {
    const char *symbol;
    const char *since;   /* "2.28.7" */
    const char *instead; /* what is done without it, in words */
};

/** A library that a transport needs. */
struct library {
    const char *transport;
    const char *names;       /* sonames, the preferred one first: "a b" */
    const char *variable;    /* of the environment, with another name or path; NULL = none */
    const char *setting;     /* the same as a setting; NULL = none */
    const char *min_version; /* NULL = any, or what the device code needs */
    const char *symbols;     /* functions that have to be there: "a b" */
    const struct library_newer *newer; /* n_newer, used where they are there */
    uint32_t n_newer;
    bool loads_device_code; /* it is the driver */
};

#define LIBRARIES_COUNT 3
extern const struct library libraries[LIBRARIES_COUNT];

/** A library's file. */
struct library_file {
    char name[PATH_MAX]; /* the name that was looked for, or found if there are several */
    char path[PATH_MAX]; /* "" = not found */
    char version[64];    /* as the file is called: "2.28.9" of libnccl.so.2.28.9; "" = not told */
};

/** Writes the oldest version that serves; false where any does. */
bool library_min_version(const struct library *library, char *ret_text, size_t max_bytes);

/** Finds the file that dlopen would take, in the same places. */
void library_find(const struct library *library, struct library_file *ret);

/**
 * Looks a name up in the bytes of ld.so.cache. Any bytes may be given. *ret_path is then the n-th
 * path of that name, from 0, which lies in `cache`; false when there is none.
 */
bool library_cache_path(const void *cache, size_t n_bytes, const char *name, uint32_t n,
                        const char **ret_path);

/** Counts the NVIDIA devices that this process can open, by their files in `folder` ("/dev"). */
uint32_t library_count_devices(const char *folder);

#endif /* COMM_LIBRARIES_H */
