/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: what tells a run, and an attempt of it, from others. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings.h"
#include "comm/launch_internal.h"

#define BEGIN_MAX 40 /* bytes that are kept of a value that is too long */

/* The bit of a launcher. */
#define OF(kind) (1u << (kind))
#define OF_ALL   UINT32_MAX

/*
 * Only what is equal on all hosts of a run: under torchrun, say, the number of the step of srun
 * that started an agent is not. Slurm's job still tells runs of mpiexec apart, which has no number.
 */
static const struct {
    const char *name;
    uint32_t launchers; /* mask: under which it counts */
} fields[LAUNCH_N_FIELDS] = {
    [LAUNCH_RUN] = {"HSDP_RUN_ID", OF_ALL},
    [LAUNCH_TORCH_RUN] = {"TORCHELASTIC_RUN_ID", OF(LAUNCHER_TORCH)},
    [LAUNCH_ADDR] = {"MASTER_ADDR", OF_ALL},
    [LAUNCH_PORT] = {"MASTER_PORT", OF_ALL},
    [LAUNCH_OWN_PORT] = {"rendezvous_port", 0}, /* no variable */
    [LAUNCH_MPIRUN] = {"OMPI_MCA_orte_hnp_uri", OF(LAUNCHER_OPEN_MPI)},
    [LAUNCH_NAMESPACE] = {"PMIX_NAMESPACE", OF(LAUNCHER_OPEN_MPI)},
    [LAUNCH_SLURM_JOB] = {"SLURM_JOB_ID", OF(LAUNCHER_SLURM) | OF(LAUNCHER_PMI)},
    [LAUNCH_SLURM_STEP] = {"SLURM_STEP_ID", OF(LAUNCHER_SLURM)},
    [LAUNCH_ATTEMPT] = {"HSDP_ATTEMPT", OF_ALL},
    [LAUNCH_TORCH_ATTEMPT] = {"TORCHELASTIC_RESTART_COUNT", OF(LAUNCHER_TORCH)},
    [LAUNCH_SLURM_ATTEMPT] = {"SLURM_RESTART_COUNT", OF(LAUNCHER_SLURM)},
};

/* ---------------------------------------------------------------------------------- reading */

static void value_put(char ret_value[LAUNCH_VALUE_BYTES], const char *text)
{
    if (strlen(text) < LAUNCH_VALUE_BYTES) {
        snprintf(ret_value, LAUNCH_VALUE_BYTES, "%s", text);
    } else {
        snprintf(ret_value, LAUNCH_VALUE_BYTES, "%.*s...#%016" PRIx64, BEGIN_MAX, text,
                 text_hash(TEXT_HASH_BASIS, text));
    }
}

/* An attempt is a number, and the first where nothing is said. */
static int32_t attempt_read(const char *name, bool counts, char ret_value[LAUNCH_VALUE_BYTES],
                            struct hsdp_error *reterr)
{
    uint32_t attempt = 0;
    int32_t status = HSDP_OK;

    if (counts && getenv(name) != NULL) {
        status = launch_variable_read(name, 0, INT32_MAX, &attempt, reterr);
    }
    if (status == HSDP_OK) {
        snprintf(ret_value, LAUNCH_VALUE_BYTES, "%" PRIu32, attempt);
    }
    return status;
}

static int32_t field_read(uint32_t field, bool counts, char ret_value[LAUNCH_VALUE_BYTES],
                          struct hsdp_error *reterr)
{
    const char *name = fields[field].name;
    const char *text = counts ? getenv(name) : NULL;

    if (field >= LAUNCH_FIRST_ATTEMPT) {
        return attempt_read(name, counts, ret_value, reterr);
    }
    if (text != NULL && text[0] == '\0') {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: \"\" tells no run from others; give it a value, or unset it", name);
    }
    if (text != NULL) {
        value_put(ret_value, text);
    }
    return HSDP_OK;
}

int32_t launch_identity_read(const struct launch *launch, struct launch_identity *ret,
                             bool *ret_is_known, struct hsdp_error *reterr)
{
    struct launch_identity identity;
    bool is_known = false;

    memset(&identity, 0, sizeof(identity));
    for (uint32_t field = 0; field < LAUNCH_N_FIELDS; field++) {
        bool counts = (fields[field].launchers & OF(launch->launcher)) != 0;
        char *value = identity.values[field];
        int32_t status = field_read(field, counts, value, reterr);

        if (status != HSDP_OK) {
            return status;
        }
        if (field == LAUNCH_OWN_PORT && launch->place.is_fixed) {
            snprintf(value, LAUNCH_VALUE_BYTES, "%u", (unsigned)launch->place.ports[0]);
        }
        is_known = is_known || (field < LAUNCH_FIRST_ATTEMPT && value[0] != '\0');
    }
    *ret = identity;
    *ret_is_known = is_known;
    return HSDP_OK;
}

/* ---------------------------------------------------------------------------------- using */

void launch_identity_hash(const struct launch_identity *identity, char ret_hex[LAUNCH_HEX_BYTES])
{
    uint64_t low = TEXT_HASH_BASIS;
    uint64_t high = TEXT_HASH_BASIS ^ UINT64_C(0x9e3779b97f4a7c15);

    for (uint32_t field = 0; field < LAUNCH_N_FIELDS; field++) {
        low = text_hash(text_hash(low, identity->values[field]), "\n");
        high = text_hash(text_hash(high, "\n"), identity->values[field]);
    }
    snprintf(ret_hex, LAUNCH_HEX_BYTES, "%016" PRIx64 "%016" PRIx64, high, low);
}

void launch_meeting_key(const struct launch *launch, const struct launch_identity *identity,
                        struct text *text)
{
    for (uint32_t field = 0; field < LAUNCH_FIRST_ATTEMPT; field++) {
        if (identity->values[field][0] != '\0') {
            text_add(text, "%s=%s\n", fields[field].name, identity->values[field]);
        }
    }
    if (launch->node_key[0] != '\0') {
        text_add(text, "node=%s\n", launch->node_key);
    }
}

enum launch_field launch_identity_compare(const struct launch_identity *left,
                                          const struct launch_identity *right)
{
    uint32_t field = 0;

    while (field < LAUNCH_N_FIELDS &&
           strncmp(left->values[field], right->values[field], LAUNCH_VALUE_BYTES) == 0) {
        field++;
    }
    return (enum launch_field)field;
}

/* "x", or that it is not set; never reads past its bytes. */
static void value_write(const char value[LAUNCH_VALUE_BYTES], char *ret_text, size_t max_bytes)
{
    if (value[0] == '\0') {
        snprintf(ret_text, max_bytes, "not set");
    } else {
        snprintf(ret_text, max_bytes, "\"%.*s\"", (int)LAUNCH_VALUE_BYTES, value);
    }
}

int32_t launch_identity_check(const struct launch_identity *own, uint32_t own_rank,
                              const struct launch_identity *other, uint32_t other_rank,
                              struct hsdp_error *reterr)
{
    enum launch_field field = launch_identity_compare(own, other);
    char own_text[LAUNCH_VALUE_BYTES + 3];
    char other_text[LAUNCH_VALUE_BYTES + 3];

    if (field == LAUNCH_N_FIELDS) {
        return HSDP_OK;
    }
    value_write(own->values[field], own_text, sizeof(own_text));
    value_write(other->values[field], other_text, sizeof(other_text));
    if (field >= LAUNCH_FIRST_ATTEMPT) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "connect: rank %" PRIu32 " is of attempt %s, rank %" PRIu32
                         " of attempt %s (%s): a process of the earlier attempt is still there",
                         other_rank, other_text, own_rank, own_text, fields[field].name);
    }
    return error_set(reterr, HSDP_ERR_MISMATCH,
                     "connect: %s is %s on rank %" PRIu32 ", %s on rank %" PRIu32
                     ": they are of different runs",
                     fields[field].name, own_text, own_rank, other_text, other_rank);
}
