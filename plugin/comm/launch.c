/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: reading the launcher's environment, strictly. */
#include "comm/launch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings.h"

/* One launcher's names for the same four numbers; the local two may be missing. */
struct launcher {
    const char *rank;
    const char *world_ranks;
    const char *local_rank;
    const char *local_ranks;
    const char *n_hosts;  /* NULL = it does not say */
    const char *required; /* counts only where this is set too; NULL = no such condition */
};

/* A batch script of Slurm has SLURM_PROCID=0 and SLURM_NTASKS without being a task: only srun sets
 * the number of a step. */
static const struct launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL, NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_NUM_NODES",
     "SLURM_STEP_ID"},
};

#define N_LAUNCHERS (sizeof(launchers) / sizeof(launchers[0]))

static const char *const identity_names[] = {
    "HSDP_RUN_ID",    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",    "MASTER_PORT",         "OMPI_MCA_orte_hnp_uri",
    "PMIX_NAMESPACE", "SLURM_JOB_ID",        "SLURM_STEP_ID",
};

#define N_IDENTITY_NAMES (sizeof(identity_names) / sizeof(identity_names[0]))

static int32_t variable_read(const char *name, int64_t min, int64_t max, uint32_t *ret_value,
                             struct hsdp_error *reterr)
{
    int64_t value;
    int32_t status = integer_parse(name, getenv(name), min, max, &value, reterr);

    if (status == HSDP_OK) {
        *ret_value = (uint32_t)value;
    }
    return status;
}

/* The first complete launcher; NULL without an error when there is none at all. */
static int32_t launcher_find(const struct launcher **ret, struct hsdp_error *reterr)
{
    const char *present = NULL;
    const char *missing = NULL;

    *ret = NULL;
    for (size_t i = 0; i < N_LAUNCHERS; i++) {
        const struct launcher *launcher = &launchers[i];
        const char *rank = getenv(launcher->rank);
        const char *world = getenv(launcher->world_ranks);

        if (launcher->required != NULL && getenv(launcher->required) == NULL) {
            continue;
        }
        if (rank != NULL && world != NULL) {
            *ret = launcher;
            return HSDP_OK;
        }
        if (present == NULL && (rank != NULL || world != NULL)) {
            present = rank != NULL ? launcher->rank : launcher->world_ranks;
            missing = rank != NULL ? launcher->world_ranks : launcher->rank;
        }
    }
    if (present != NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is set in the environment (\"%.64s\"), but %s is not", present,
                         getenv(present), missing);
    }
    return HSDP_OK;
}

static int32_t locals_read(const struct launcher *launcher, struct launch *ret,
                           struct hsdp_error *reterr)
{
    uint32_t n_hosts = 1;
    int32_t status = HSDP_OK;

    if (launcher->local_ranks != NULL && getenv(launcher->local_ranks) != NULL) {
        status =
            variable_read(launcher->local_ranks, 1, ret->world_ranks, &ret->local_ranks, reterr);
    }
    if (status == HSDP_OK && getenv(launcher->local_rank) != NULL) {
        status = variable_read(launcher->local_rank, 0, (int64_t)ret->local_ranks - 1,
                               &ret->local_rank, reterr);
    }
    if (status == HSDP_OK && launcher->n_hosts != NULL && getenv(launcher->n_hosts) != NULL) {
        status = variable_read(launcher->n_hosts, 1, INT32_MAX, &n_hosts, reterr);
    }
    if (status == HSDP_OK && n_hosts > 1) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "job: %s says %" PRIu32 " hosts; this version runs on one",
                         launcher->n_hosts, n_hosts);
    }
    return status;
}

static int32_t environment_read(const struct launcher *launcher, struct launch *ret,
                                struct hsdp_error *reterr)
{
    int32_t status;

    status = variable_read(launcher->world_ranks, 1, INT32_MAX, &ret->world_ranks, reterr);
    if (status == HSDP_OK) {
        status = variable_read(launcher->rank, 0, INT32_MAX, &ret->rank, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (ret->rank >= ret->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is %" PRIu32 ", but %s is %" PRIu32 ": ranks count from 0",
                         launcher->rank, ret->rank, launcher->world_ranks, ret->world_ranks);
    }
    ret->local_rank = ret->rank;
    ret->local_ranks = ret->world_ranks;
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

/* A port that is set has to be one, also where nobody will listen on it. */
static int32_t port_check(struct hsdp_error *reterr)
{
    const char *port = getenv("MASTER_PORT");
    int64_t value;

    return port == NULL ? HSDP_OK : integer_parse("MASTER_PORT", port, 1, 65535, &value, reterr);
}

static int32_t size_check(const struct launch *launch, struct hsdp_error *reterr)
{
    if (launch->local_ranks != launch->world_ranks) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "job: %" PRIu32 " of %" PRIu32
                         " ranks are on this host; this version runs on one host",
                         launch->local_ranks, launch->world_ranks);
    }
    if (launch->world_ranks > LAUNCH_MAX_RANKS) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "job: %" PRIu32 " ranks; one host holds at most %u", launch->world_ranks,
                         LAUNCH_MAX_RANKS);
    }
    return HSDP_OK;
}

int32_t launch_read(const struct hsdp_job_spec *spec, struct launch *ret, struct hsdp_error *reterr)
{
    const struct launcher *launcher = NULL;
    int32_t status = HSDP_OK;

    ret->rank = 0;
    ret->world_ranks = 1;
    ret->local_rank = 0;
    ret->local_ranks = 1;
    if (spec->kv_put == NULL) {
        status = port_check(reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (spec->world_ranks != 0) {
        status = spec_read(spec, ret, reterr);
    } else {
        status = launcher_find(&launcher, reterr);
        if (status == HSDP_OK && launcher != NULL) {
            status = environment_read(launcher, ret, reterr);
        }
    }
    return status == HSDP_OK ? size_check(ret, reterr) : status;
}

bool launch_identity(struct text *text)
{
    uint64_t n_bytes = text->n_bytes;

    for (size_t i = 0; i < N_IDENTITY_NAMES; i++) {
        const char *value = getenv(identity_names[i]);

        if (value != NULL) {
            text_add(text, "%s=%s\n", identity_names[i], value);
        }
    }
    return text->n_bytes > n_bytes;
}
