/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the plugin: small, and deaf to signals, which are the host's. */
#ifndef REFERENCE_THREAD_H
#define REFERENCE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/** Returns 0 or an errno. */
int thread_start(pthread_t *ret_thread, void *(*function)(void *), void *argument);

/** Milliseconds of CLOCK_MONOTONIC. */
uint64_t now_ms(void);

#endif /* REFERENCE_THREAD_H */
