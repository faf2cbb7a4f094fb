/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing the allowed cores out among the ranks. */
#include "cores.h"

#include <errno.h>
#include <sched.h>

#define CORES_MAX 8192

int cores_bind(int rank, int n_ranks)
{
    size_t n_bytes = CPU_ALLOC_SIZE(CORES_MAX);
    cpu_set_t *allowed = CPU_ALLOC(CORES_MAX);
    cpu_set_t *share = CPU_ALLOC(CORES_MAX);
    int n_cores;
    int first;
    int last;
    int nth = 0;
    int core;
    int result = -1;

    if (allowed == NULL || share == NULL || sched_getaffinity(0, n_bytes, allowed) != 0) {
        goto out;
    }
    CPU_ZERO_S(n_bytes, share);
    n_cores = CPU_COUNT_S(n_bytes, allowed);
    first = n_ranks <= n_cores ? rank * n_cores / n_ranks : rank % n_cores;
    last = n_ranks <= n_cores ? (rank + 1) * n_cores / n_ranks - 1 : first;
    for (core = 0; core < CORES_MAX; core++) {
        if (!CPU_ISSET_S((size_t)core, n_bytes, allowed)) {
            continue;
        }
        if (nth >= first && nth <= last) {
            CPU_SET_S((size_t)core, n_bytes, share);
        }
        nth++;
    }
    result = sched_setaffinity(0, n_bytes, share);

out:
    CPU_FREE(allowed); /* free, which accepts NULL */
    CPU_FREE(share);
    return result;
}
