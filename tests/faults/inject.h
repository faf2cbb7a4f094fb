/* SPDX-License-Identifier: Apache-2.0 */
/* Injection: allocations of this program that fail on demand. */
#ifndef FAULTS_INJECT_H
#define FAULTS_INJECT_H

#include <stdbool.h>
#include <stdint.h>

enum inject_what {
    INJECT_MEMORY,  /* malloc and its kin */
    INJECT_MAPPING, /* mmap, memfd_create, ftruncate */
};

/** False where a sanitizer has taken malloc over, or the C library does not let itself be asked. */
bool inject_is_possible(enum inject_what what);

/**
 * From here on the nth of them on this thread fails, and if it lasts all after it. Whatever loads
 * this program's plugin is served by it too.
 */
void inject_arm(enum inject_what what, uint32_t nth, bool is_lasting);

/** None fails any more. */
void inject_disarm(void);
/** How many have failed on this thread. */
uint32_t inject_n_failed(void);
/** When the first of them failed on this thread, by the monotonic clock; 0 = none has. */
uint64_t inject_failed_ns(void);

#endif /* FAULTS_INJECT_H */
