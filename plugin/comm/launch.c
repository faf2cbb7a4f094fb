/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: who am I? Reads the launcher's environment, strictly. */
#include "comm/launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings.h"
#include "comm/launch_internal.h"

/* One launcher's names for the same numbers; NULL = it does not say. */
struct launcher {
    enum launcher_kind kind;
    const char *rank;
    const char *world_ranks;
    const char *local_rank;
    const char *local_ranks;
    const char *n_hosts;
    const char *node;     /* the number of this host among them */
    const char *required; /* counts only where this is set too; NULL = no such condition */
};

/*
 * In order. A batch script of Slurm has SLURM_PROCID=0 and SLURM_NTASKS without being a task: only
 * srun sets the number of a step. PMI variables that do not tell local ranks are srun's own where
 * there is a step, and srun's say more.
 */
static const struct launcher launchers[] = {
    {LAUNCHER_TORCH, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
     "GROUP_RANK", NULL},
    {LAUNCHER_OPEN_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, NULL},
    {LAUNCHER_PMI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL,
     "MPI_LOCALRANKID"},
    {LAUNCHER_PMI, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", NULL, NULL,
     "PMI_LOCAL_RANK"},
    {LAUNCHER_SLURM, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_NUM_NODES",
     "SLURM_NODEID", "SLURM_STEP_ID"},
    {LAUNCHER_PMI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL, NULL},
};

#define N_LAUNCHERS (sizeof(launchers) / sizeof(launchers[0]))

/* Ours: tells nodes apart under any launcher, also several on one machine. */
#define NODE_VARIABLE "HSDP_NODE_RANK"

int32_t launch_variable_read(const char *name, int64_t min, int64_t max, uint32_t *ret_value,
                             struct hsdp_error *reterr)
{
    int64_t value;
    int32_t status = integer_parse(name, getenv(name), min, max, &value, reterr);

    if (status == HSDP_OK) {
        *ret_value = (uint32_t)value;
    }
    return status;
}

static bool is_set(const char *name)
{
    return name != NULL && getenv(name) != NULL;
}

/* The first complete launcher; NULL without an error when there is none at all. */
static int32_t launcher_find(const struct launcher **ret, struct hsdp_error *reterr)
{
    const char *present = NULL;
    const char *missing = NULL;

    *ret = NULL;
    for (size_t i = 0; i < N_LAUNCHERS; i++) {
        const struct launcher *launcher = &launchers[i];
        bool has_rank = is_set(launcher->rank);
        bool has_world = is_set(launcher->world_ranks);

        if (launcher->required != NULL && !is_set(launcher->required)) {
            continue;
        }
        if (has_rank && has_world) {
            *ret = launcher;
            return HSDP_OK;
        }
        if (present == NULL && (has_rank || has_world)) {
            present = has_rank ? launcher->rank : launcher->world_ranks;
            missing = has_rank ? launcher->world_ranks : launcher->rank;
        }
    }
    if (present != NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is set in the environment (\"%.64s\"), but %s is not", present,
                         getenv(present), missing);
    }
    return HSDP_OK;
}

/* -------------------------------------------------------------------------- among the hosts */

/* Nothing says how many ranks are local: all of them, unless something else shows several hosts. */
static int32_t locals_assume(const struct launcher *launcher, struct launch *ret,
                             struct hsdp_error *reterr)
{
    const char *names =
        launcher->local_ranks == NULL ? "the ranks of this host" : launcher->local_ranks;

    if (ret->n_hosts > 1) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s says %" PRIu32 " hosts, but %s is not "
                         "set",
                         launcher->n_hosts, ret->n_hosts, names);
    }
    ret->local_ranks = ret->world_ranks;
    if (is_set(launcher->local_rank) && ret->local_rank != ret->rank) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is %" PRIu32 " and %s is %" PRIu32
                         ", so there are several hosts, but %s is not set",
                         launcher->local_rank, ret->local_rank, launcher->rank, ret->rank, names);
    }
    ret->local_rank = ret->rank;
    return HSDP_OK;
}

static int32_t locals_count(const struct launcher *launcher, struct launch *ret,
                            struct hsdp_error *reterr)
{
    if (launcher->kind == LAUNCHER_SLURM) {
        return slurm_locals_read(ret, reterr);
    }
    if (is_set(launcher->local_ranks)) {
        return launch_variable_read(launcher->local_ranks, 1, ret->world_ranks, &ret->local_ranks,
                                    reterr);
    }
    return HSDP_OK;
}

static int32_t locals_read(const struct launcher *launcher, struct launch *ret,
                           struct hsdp_error *reterr)
{
    int64_t local_max;
    int32_t status = HSDP_OK;

    ret->local_ranks = 0; /* not known */
    if (is_set(launcher->n_hosts)) {
        status =
            launch_variable_read(launcher->n_hosts, 1, ret->world_ranks, &ret->n_hosts, reterr);
    }
    if (status == HSDP_OK) {
        status = locals_count(launcher, ret, reterr);
    }
    local_max = (ret->local_ranks == 0 ? ret->world_ranks : ret->local_ranks) - INT64_C(1);
    if (status == HSDP_OK && is_set(launcher->local_rank)) {
        status = launch_variable_read(launcher->local_rank, 0, local_max, &ret->local_rank, reterr);
    }
    if (status != HSDP_OK || ret->local_ranks == 0) {
        return status != HSDP_OK ? status : locals_assume(launcher, ret, reterr);
    }
    if (is_set(launcher->local_rank)) {
        return HSDP_OK;
    }
    if (ret->local_ranks != ret->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %" PRIu32 " of %" PRIu32
                         " ranks are on this host, but %s is not set",
                         ret->local_ranks, ret->world_ranks, launcher->local_rank);
    }
    ret->local_rank = ret->rank;
    return HSDP_OK;
}

static int32_t environment_read(const struct launcher *launcher, struct launch *ret,
                                struct hsdp_error *reterr)
{
    int32_t status;

    status = launch_variable_read(launcher->world_ranks, 1, INT32_MAX, &ret->world_ranks, reterr);
    if (status == HSDP_OK) {
        status = launch_variable_read(launcher->rank, 0, INT32_MAX, &ret->rank, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (ret->rank >= ret->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is %" PRIu32 ", but %s is %" PRIu32 ": ranks count from 0",
                         launcher->rank, ret->rank, launcher->world_ranks, ret->world_ranks);
    }
    return locals_read(launcher, ret, reterr);
}

static int32_t spec_read(const struct hsdp_job_spec *spec, struct launch *ret,
                         struct hsdp_error *reterr)
{
    if (spec->rank >= spec->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: rank %" PRIu32 " is outside of a world of %" PRIu32 " ranks",
                         spec->rank, spec->world_ranks);
    }
    ret->rank = spec->rank;
    ret->world_ranks = spec->world_ranks;
    ret->local_ranks = spec->local_ranks == 0 ? spec->world_ranks : spec->local_ranks;
    ret->local_rank = spec->local_ranks == 0 ? spec->rank : spec->local_rank;
    if (ret->local_ranks > ret->world_ranks || ret->local_rank >= ret->local_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: local rank %" PRIu32 " of %" PRIu32
                         " local ranks does not fit a world of %" PRIu32,
                         ret->local_rank, ret->local_ranks, ret->world_ranks);
    }
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------- do they fit */

/* Which host this is: what tells two of them on one machine apart. */
static int32_t node_read(const struct launcher *launcher, struct launch *ret,
                         struct hsdp_error *reterr)
{
    const char *name = is_set(NODE_VARIABLE) ? NODE_VARIABLE
                       : launcher == NULL    ? NULL
                                             : launcher->node;
    uint32_t node;
    int32_t status;

    if (!is_set(name)) {
        return HSDP_OK;
    }
    status = launch_variable_read(name, 0, INT32_MAX, &node, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (ret->n_hosts != 0 && node >= ret->n_hosts) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is %" PRIu32 ", but %s says %" PRIu32 " hosts: they count from 0",
                         name, node, launcher->n_hosts, ret->n_hosts);
    }
    if (ret->local_ranks != ret->world_ranks) {
        snprintf(ret->node_key, sizeof(ret->node_key), "%" PRIu32, node);
    }
    return HSDP_OK;
}

/* Rank 0 leads its host, and where there is one host nobody else does. */
static int32_t leader_check(const struct launch *launch, struct hsdp_error *reterr)
{
    if (launch->rank == 0 && launch->local_rank != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: rank 0 has local rank %" PRIu32
                         "; rank 0 has to be local rank 0 of its host",
                         launch->local_rank);
    }
    if (launch->is_one_host && launch->rank != 0 && launch->local_rank == 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: rank %" PRIu32 " has local rank 0, but all %" PRIu32
                         " ranks are on this host, where that is rank 0",
                         launch->rank, launch->world_ranks);
    }
    return HSDP_OK;
}

static int32_t hosts_check(const struct launch *launch, struct hsdp_error *reterr)
{
    if (launch->n_hosts != 0 && (launch->n_hosts == 1) != launch->is_one_host) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %" PRIu32 " of %" PRIu32
                         " ranks are on this host, but the launcher says %" PRIu32 " host%s",
                         launch->local_ranks, launch->world_ranks, launch->n_hosts,
                         launch->n_hosts == 1 ? "" : "s");
    }
    if (launch->local_ranks > LAUNCH_MAX_RANKS) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "job: %" PRIu32 " ranks on this host; one host holds at most %u",
                         launch->local_ranks, LAUNCH_MAX_RANKS);
    }
    return leader_check(launch, reterr);
}

int32_t launch_read(const struct hsdp_job_spec *spec, struct launch *ret, struct hsdp_error *reterr)
{
    const struct launcher *launcher = NULL;
    int32_t status;

    memset(ret, 0, sizeof(*ret));
    ret->world_ranks = 1;
    ret->local_ranks = 1;
    if (spec->world_ranks != 0) {
        status = spec_read(spec, ret, reterr);
        ret->is_spec = true;
        launcher_find(&launcher, NULL); /* it may still tell runs and nodes apart */
    } else {
        status = launcher_find(&launcher, reterr);
        if (status == HSDP_OK && launcher != NULL) {
            status = environment_read(launcher, ret, reterr);
        }
    }
    if (status == HSDP_OK) {
        status = node_read(launcher, ret, reterr);
    }
    ret->launcher = launcher == NULL ? LAUNCHER_NONE : launcher->kind;
    ret->is_leader = ret->local_rank == 0;
    ret->is_one_host = ret->local_ranks == ret->world_ranks;
    return status == HSDP_OK ? hosts_check(ret, reterr) : status;
}
