/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: where do we meet? The host of rank 0 and the ports to try there. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings.h"
#include "comm/launch_internal.h"

#define PORT_MAX 65535u

/*
 * Where srun is not told a port, every step gets a block of its own, below the ports that systems
 * hand out by themselves (32768 and up).
 */
#define SLURM_FIRST_PORT 20000u
#define SLURM_N_BLOCKS   700u
#define SLURM_STEP_PACE  31u /* steps of one job are apart, and not beside the next job's */

/* Text of a host: a name or an address; what it means is asked elsewhere. */
static int32_t host_read(const char *text, char ret_host[LAUNCH_HOST_BYTES],
                         struct hsdp_error *reterr)
{
    size_t length = strlen(text);
    bool is_good = length > 0 && length < LAUNCH_HOST_BYTES;

    for (size_t i = 0; i < length; i++) {
        is_good = is_good && text[i] > ' ' && text[i] < 0x7f;
    }
    if (!is_good) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "MASTER_ADDR: \"%.64s\" is not the name or address of a host", text);
    }
    memcpy(ret_host, text, length + 1);
    return HSDP_OK;
}

/* The first host of a step is node 0, which has rank 0 unless tasks are placed by hand. */
static int32_t slurm_host_read(const struct launch *launch, char ret_host[LAUNCH_HOST_BYTES],
                               struct hsdp_error *reterr)
{
    const char *name =
        getenv("SLURM_STEP_NODELIST") != NULL ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    const char *list = getenv(name);
    uint32_t node = 0;
    int32_t status = HSDP_OK;

    if (list == NULL) {
        return HSDP_OK;
    }
    if (launch->rank == 0 && getenv("SLURM_NODEID") != NULL) {
        status = launch_variable_read("SLURM_NODEID", 0, INT32_MAX, &node, reterr);
    }
    if (status == HSDP_OK && node != 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "job: rank 0 is on node %" PRIu32
                         " (SLURM_NODEID), not on the first of %s: set MASTER_ADDR to its host",
                         node, name);
    }
    return status == HSDP_OK ? slurm_first_host(name, list, ret_host, reterr) : status;
}

/* --------------------------------------------------------------------------------- ports */

static void ports_fill(struct launch_place *place, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n && first + i <= PORT_MAX; i++) {
        place->ports[place->n_ports++] = (uint16_t)(first + i);
    }
}

/* Whether torchrun's agent listens at MASTER_PORT itself. */
static int32_t agent_read(const struct launch *launch, bool *ret_holds, struct hsdp_error *reterr)
{
    static const char *const name = "TORCHELASTIC_USE_AGENT_STORE";
    const char *text = launch->launcher == LAUNCHER_TORCH ? getenv(name) : NULL;

    *ret_holds = text != NULL && strcmp(text, "True") == 0;
    if (text != NULL && !*ret_holds && strcmp(text, "False") != 0) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: \"%.64s\" is neither True nor False", name,
                         text);
    }
    return HSDP_OK;
}

static int32_t master_ports_read(struct launch *launch, struct hsdp_error *reterr)
{
    bool is_held;
    uint32_t port;
    int32_t status = launch_variable_read("MASTER_PORT", 1, PORT_MAX, &port, reterr);

    if (status == HSDP_OK) {
        status = agent_read(launch, &is_held, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    ports_fill(&launch->place, port + is_held, LAUNCH_MAX_PORTS - is_held);
    if (launch->place.n_ports == 0 && !launch->is_one_host) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "job: MASTER_PORT is %" PRIu32
                         ", which torchrun's agent holds, and no port is above it: set "
                         "HSDP_RENDEZVOUS_PORT",
                         port);
    }
    return HSDP_OK;
}

static int32_t slurm_ports_make(struct launch_place *place, struct hsdp_error *reterr)
{
    uint32_t job = 0;
    uint32_t step = 0;
    uint64_t block;
    int32_t status = HSDP_OK;

    if (getenv("SLURM_JOB_ID") == NULL) {
        return HSDP_OK;
    }
    status = launch_variable_read("SLURM_JOB_ID", 0, UINT32_MAX, &job, reterr);
    if (status == HSDP_OK) {
        status = launch_variable_read("SLURM_STEP_ID", 0, UINT32_MAX, &step, reterr);
    }
    if (status == HSDP_OK) {
        block = (job + (uint64_t)SLURM_STEP_PACE * step) % SLURM_N_BLOCKS;
        ports_fill(place, SLURM_FIRST_PORT + (uint32_t)block * LAUNCH_MAX_PORTS, LAUNCH_MAX_PORTS);
    }
    return status;
}

static int32_t ports_read(struct launch *launch, uint16_t rendezvous_port,
                          struct hsdp_error *reterr)
{
    struct launch_place *place = &launch->place;
    uint32_t port;
    int32_t status = HSDP_OK;

    if (rendezvous_port != 0) { /* MASTER_PORT is not used, but what is set has to be a port */
        ports_fill(place, rendezvous_port, 1);
        place->is_fixed = true;
        return getenv("MASTER_PORT") == NULL
                   ? HSDP_OK
                   : launch_variable_read("MASTER_PORT", 1, PORT_MAX, &port, reterr);
    }
    if (getenv("MASTER_PORT") != NULL) {
        status = master_ports_read(launch, reterr);
    } else if (launch->launcher == LAUNCHER_SLURM && !launch->is_spec) {
        status = slurm_ports_make(place, reterr);
    }
    return status;
}

/* --------------------------------------------------------------------------------- both */

static int32_t place_check(const struct launch *launch, struct hsdp_error *reterr)
{
    bool has_host = launch->place.host[0] != '\0';
    const char *missing = !has_host ? "where rank 0 is: set MASTER_ADDR"
                                    : "at which port ranks meet: set MASTER_PORT";

    if (launch->is_one_host || (has_host && launch->place.n_ports > 0)) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                     "job: %" PRIu32 " of %" PRIu32
                     " ranks are on this host, and nothing says %s on all ranks%s, or give kv_put "
                     "and kv_get",
                     launch->local_ranks, launch->world_ranks, missing,
                     launch->launcher == LAUNCHER_OPEN_MPI ? " (mpirun -x MASTER_ADDR=HOST -x "
                                                             "MASTER_PORT=PORT)"
                     : launch->launcher == LAUNCHER_PMI ? " (mpiexec -genv MASTER_ADDR HOST -genv "
                                                          "MASTER_PORT PORT)"
                                                        : "");
}

int32_t launch_place_read(struct launch *launch, bool has_store, uint16_t rendezvous_port,
                          struct hsdp_error *reterr)
{
    struct launch_place *place = &launch->place;
    const char *host = getenv("MASTER_ADDR");
    int32_t status = HSDP_OK;

    memset(place, 0, sizeof(*place));
    if (has_store) {
        place->is_fixed = rendezvous_port != 0;
        ports_fill(place, rendezvous_port, rendezvous_port != 0);
        return HSDP_OK;
    }
    status = ports_read(launch, rendezvous_port, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (host != NULL) {
        status = host_read(host, place->host, reterr);
    } else if (launch->launcher == LAUNCHER_SLURM && !launch->is_spec && !launch->is_one_host) {
        status = slurm_host_read(launch, place->host, reterr);
    }
    return status == HSDP_OK ? place_check(launch, reterr) : status;
}
