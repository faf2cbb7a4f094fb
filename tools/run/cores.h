/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing the allowed cores out among the ranks (--bind-cores). */
#ifndef RUN_CORES_H
#define RUN_CORES_H

/*
 * Binds the calling process to the share of one rank: a run of neighbouring cores while there are
 * as many cores as ranks, one core in turn otherwise. Answers 0 or -1 with errno.
 */
int cores_bind(int rank, int n_ranks);

#endif /* RUN_CORES_H */
