/* SPDX-License-Identifier: Apache-2.0 */
/* The double of the CUDA driver, loaded as a plugin loads it, with the calls that tests repeat. */
#ifndef TESTS_DOUBLE_FIXTURE_H
#define TESTS_DOUBLE_FIXTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/cuda.h"
#include "doubles/double.h"

/* What double.h declares, found by name: this program is not linked with the library. */
struct double_calls {
    void *(*shadow)(const void *address, uint64_t n_bytes);
    cu_result (*enqueue)(cu_stream stream, const char *name, void (*work)(void *arg), void *arg,
                         void (*discard)(void *arg), const struct double_access *accesses,
                         uint32_t n_accesses);
    uint64_t (*n_races)(void);
    void (*host_access)(const void *address, uint64_t n_bytes, bool is_write);
    cu_result (*capture)(cu_stream stream, bool is_captured);
    bool (*fault)(const char *name, int64_t *ret_number);
};

/* Of the test's process, which is its own. */
extern struct cuda cuda;
extern struct double_calls doubled;

/** Loads the library; nothing is initialised. */
void double_load(void);
/** Loads and initialises it; device 0's context is current. */
cu_context double_start(void);

/* A driver call that must answer CU_OK. */
#define DRIVER(call) ck_assert_int_eq(cuda.call, CU_OK)

cu_address device_memory(size_t n_bytes);
void *pinned_memory(size_t n_bytes);
cu_stream stream_make(void); /* non-blocking */
cu_event event_make(void);
/** Polls until it is done. */
void stream_finish(cu_stream stream);
void event_finish(cu_event event);

/* Work that waits for the test to open it. */
struct gate {
    atomic_bool is_open;
    atomic_uint n_passed; /* works that have waited, and gone */
    atomic_uint n_waiting;
    atomic_uint n_discarded;
};

/** Enqueues a piece that waits at the gate and touches `accesses`. */
void gate_enqueue(struct gate *gate, cu_stream stream, const struct double_access *accesses,
                  uint32_t n_accesses);
void gate_open(struct gate *gate);

/** Enqueues a piece that does nothing but to read or write these bytes. */
void touch(cu_stream stream, const char *name, cu_address address, uint64_t n_bytes, bool is_write);

/** Runs in a child; checks that abort ends it and that stderr has `words`. */
void double_check_dies(void (*run)(void), const char *words);

#endif /* TESTS_DOUBLE_FIXTURE_H */
