/* SPDX-License-Identifier: Apache-2.0 */
/* Launch, inside: the launchers that are known, and how their variables are read. */
#ifndef COMM_LAUNCH_INTERNAL_H
#define COMM_LAUNCH_INTERNAL_H

#include "comm/launch.h"

/* launch.launcher: whose variables hold. */
enum launcher_kind {
    LAUNCHER_NONE,
    LAUNCHER_TORCH, /* torchrun, hsdp-run and whatever else sets RANK and WORLD_SIZE */
    LAUNCHER_OPEN_MPI,
    LAUNCHER_PMI, /* mpiexec.hydra of MPICH and Intel MPI, PALS */
    LAUNCHER_SLURM,
};

/** Reads a variable that is set as a whole number; HSDP_ERR_INVALID names it and its text. */
int32_t launch_variable_read(const char *name, int64_t min, int64_t max, uint32_t *ret_value,
                             struct hsdp_error *reterr);

/* launch_slurm.c */

/** The tasks of one node in "2(x3),1"; HSDP_ERR_INVALID names the variable and its text. */
struct slurm_tasks {
    uint32_t n_nodes;
    uint64_t n_tasks;       /* on all nodes */
    uint32_t n_local_tasks; /* on the node that was asked for; 0 = there is no such node */
};
int32_t slurm_tasks_parse(const char *name, const char *list, uint32_t node,
                          struct slurm_tasks *ret, struct hsdp_error *reterr);

/** The first host of "node[01-03,7],login"; the whole list is checked. */
int32_t slurm_first_host(const char *name, const char *list, char ret_host[LAUNCH_HOST_BYTES],
                         struct hsdp_error *reterr);

/** The tasks of this step on this host, and *n_hosts where it is 0. ret->world_ranks is set. */
int32_t slurm_locals_read(struct launch *ret, struct hsdp_error *reterr);

#endif /* COMM_LAUNCH_INTERNAL_H */
