/* SPDX-License-Identifier: Apache-2.0 */
/* Threads with all signals blocked. */
#include "thread.h"

#include <signal.h>
#include <time.h>

#define STACK_BYTES (512 * 1024)

uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int thread_start(pthread_t *ret_thread, void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);

    if (error != 0) {
        return error;
    }
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread begins with its maker's mask */
    error = pthread_create(ret_thread, &attributes, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}
