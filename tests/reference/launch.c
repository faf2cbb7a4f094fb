/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: the variables of torchrun, mpirun, mpiexec.hydra and srun, in the order of hsdp/job.h. */
#include "launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings.h"

/* What a launcher says. A rank without a size, or the other way round, is an error. */
struct launcher {
    const char *rank;
    const char *size;
    const char *local_rank;
    const char *local_size; /* NULL = it does not say in a plain number */
    const char *needs; /* another variable without which it is not this launcher; NULL = none */
};

static const struct launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID"},
    {"PMI_RANK", "PMI_SIZE", NULL, NULL, NULL},
};

static const char *const run_names[] = {
    "HSDP_RUN_ID",           "TORCHELASTIC_RUN_ID", "MASTER_ADDR",  "MASTER_PORT",
    "OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE",      "SLURM_JOB_ID", "SLURM_STEP_ID",
};

static const char *const attempt_names[] = {
    "HSDP_ATTEMPT",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_RESTART_COUNT",
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct launcher *launcher_find(void)
{
    for (size_t i = 0; i < N_OF(launchers); i++) {
        const struct launcher *l = &launchers[i];

        if ((l->needs == NULL || getenv(l->needs) != NULL) &&
            (getenv(l->rank) != NULL || getenv(l->size) != NULL)) {
            return l;
        }
    }
    return NULL;
}

static int32_t variable_read(const struct call *call, const char *name, int64_t least, int64_t most,
                             uint32_t *ret)
{
    const struct range range = {name, least, most};
    const char *text = getenv(name);
    int64_t number = 0;
    int32_t status;

    if (text == NULL) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: %s is not set", call->name, name);
    }
    status = number_read(call, &range, text, &number);
    *ret = (uint32_t)number;
    return status;
}

static int32_t environment_read(const struct call *call, struct launch *ret)
{
    const struct launcher *l = launcher_find();
    int32_t status;

    *ret = (struct launch){.world_ranks = 1, .local_ranks = 1};
    if (l == NULL) {
        return HSDP_OK;
    }
    status = variable_read(call, l->size, 1, INT32_MAX, &ret->world_ranks);
    if (status == HSDP_OK) {
        status = variable_read(call, l->rank, 0, (int64_t)ret->world_ranks - 1, &ret->rank);
    }
    ret->local_rank = ret->rank;
    ret->local_ranks = ret->world_ranks;
    if (status == HSDP_OK && l->local_size != NULL && getenv(l->local_size) != NULL) {
        status = variable_read(call, l->local_size, 1, ret->world_ranks, &ret->local_ranks);
    }
    if (status == HSDP_OK && l->local_rank != NULL && getenv(l->local_rank) != NULL) {
        status =
            variable_read(call, l->local_rank, 0, (int64_t)ret->local_ranks - 1, &ret->local_rank);
    }
    return status;
}

static int32_t spec_read(const struct call *call, const struct hsdp_job_spec *spec,
                         struct launch *ret)
{
    *ret = (struct launch){.rank = spec->rank, .world_ranks = spec->world_ranks};
    ret->local_ranks = spec->local_ranks != 0 ? spec->local_ranks : spec->world_ranks;
    ret->local_rank = spec->local_ranks != 0 ? spec->local_rank : spec->rank;
    if (spec->rank >= spec->world_ranks || ret->local_ranks > spec->world_ranks ||
        ret->local_rank >= ret->local_ranks) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: rank %" PRIu32 " of %" PRIu32 ", local rank %" PRIu32 " of %" PRIu32
                           ": a rank is below the number of ranks",
                           call->name, spec->rank, spec->world_ranks, ret->local_rank,
                           ret->local_ranks);
    }
    return HSDP_OK;
}

/* FNV-1a: the name of a socket is short, what tells runs apart is not. */
static uint64_t hash_add(uint64_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    } while (*text++ != '\0');
    return hash;
}

static void place_make(const struct hsdp_job_spec *spec, const char *port, struct launch *launch)
{
    uint64_t hash = hash_add(14695981039346656037u, spec->name != NULL ? spec->name : "default");
    bool is_known = port[0] != '\0';

    hash = hash_add(hash, port);
    for (size_t i = 0; i < N_OF(run_names); i++) {
        const char *value = getenv(run_names[i]);

        hash = hash_add(hash, value != NULL ? value : "");
        is_known = is_known || value != NULL;
    }
    if (is_known) {
        snprintf(launch->place, sizeof(launch->place), "hsdp-reference-%u-%016" PRIx64,
                 (unsigned)geteuid(), hash);
    }
    for (size_t i = 0; i < N_OF(attempt_names); i++) {
        const char *value = getenv(attempt_names[i]);
        size_t n = strlen(launch->attempt);

        if (value != NULL) {
            snprintf(launch->attempt + n, sizeof(launch->attempt) - n, "%s=%.20s ",
                     attempt_names[i], value);
        }
    }
}

int32_t launch_read(const struct call *call, const struct hsdp_job_spec *spec, const char *port,
                    struct launch *ret)
{
    int32_t status =
        spec->world_ranks != 0 ? spec_read(call, spec, ret) : environment_read(call, ret);

    if (status != HSDP_OK) {
        return status;
    }
    if (ret->world_ranks > MOST_RANKS) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED,
                           "%s: this plugin serves %u ranks, the world has %" PRIu32, call->name,
                           MOST_RANKS, ret->world_ranks);
    }
    if (ret->local_ranks != ret->world_ranks) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED,
                           "%s: %" PRIu32 " of %" PRIu32
                           " ranks are on this machine; this plugin needs all on one",
                           call->name, ret->local_ranks, ret->world_ranks);
    }
    place_make(spec, port, ret);
    if (ret->world_ranks > 1 && ret->place[0] == '\0' && spec->kv_put == NULL) {
        return error_raise(call, HSDP_ERR_UNAVAILABLE,
                           "%s: nothing tells this run from others; HSDP_RUN_ID, MASTER_ADDR and "
                           "MASTER_PORT, or kv_put and kv_get would",
                           call->name);
    }
    return HSDP_OK;
}
