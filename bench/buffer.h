/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for contenders that have none of their own: the best a program can have. */
#ifndef BENCH_BUFFER_H
#define BENCH_BUFFER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of this process: zeros, on huge pages where the system offers them, touched. */
void *buffer_create(size_t n_bytes);
/* The same of a file that ranks share, untouched; it is as long. */
void *buffer_map(int fd, size_t n_bytes);
void buffer_destroy(void *base, size_t n_bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
