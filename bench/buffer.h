/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for contenders that have none of their own: the best a program can have. */
#ifndef BENCH_BUFFER_H
#define BENCH_BUFFER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros, on huge pages where the system offers them, touched. */
void *buffer_create(size_t n_bytes);
void buffer_destroy(void *base, size_t n_bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
