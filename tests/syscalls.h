/* SPDX-License-Identifier: Apache-2.0 */
/* System calls of this thread, counted where they are made. */
#ifndef TESTS_SYSCALLS_H
#define TESTS_SYSCALLS_H

#include <stdbool.h>
#include <stdint.h>

#define SYSCALLS_MAX 1024

/**
 * Traps the system calls of this thread from here on, for good: each becomes a signal, whose
 * handler counts it and makes it. False where this machine, or a sanitizer, does not allow that.
 * Reading the clock is not seen: where it is a system call at all the machine is to blame.
 */
bool syscalls_trap(void);

/** Forgets what was counted, and counts from here on until syscalls_stop. */
void syscalls_start(void);
void syscalls_stop(void);

/** How often a call was made. */
uint32_t syscalls_count(long number);

/** The number of some call that was made, and is none of the n_allowed; -1 = there is none. */
long syscalls_other(const long *allowed, uint32_t n_allowed);

#endif /* TESTS_SYSCALLS_H */
