/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that stand in for NCCL and the CUDA driver, made while a suite runs. */
#ifndef TESTS_STAND_IN_H
#define TESTS_STAND_IN_H

#include <stddef.h>
#include <stdint.h>

/*
 * For what libraries may lack: they have every function, and do nothing. What they do is the
 * business of the doubles.
 */

/** Makes a folder for them; stand_in_end removes it. Around each case. */
void stand_in_begin(void);
void stand_in_end(void);

/** Where a file of that name is in the folder; until the next call. */
const char *stand_in_path(const char *name);

/** Compiles info_library.c as a library of that name; its options are said there. */
const char *stand_in_build(const char *name, const char *options);

/** A double by its soname, "libcuda.so.1"; HSDP_TEST_DOUBLES says where they are. */
const char *double_path(const char *name);

/** How many races the double of the driver has seen in this process, which has loaded it. */
uint64_t double_races(void);

/** Writes a file of that name. */
const char *stand_in_write(const char *name, const void *bytes, size_t n_bytes);

#endif /* TESTS_STAND_IN_H */
