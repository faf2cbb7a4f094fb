/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin of the next minor version adds: compiled with its headers by check_abi_hosts.sh. */
#include <inttypes.h>

#include "base/error.h"
#include "plan/mesh.h"

#define LATER_KNOWN 5u /* the one value of the new field that means something */

int32_t next_mesh_create(const struct hsdp_mesh_spec *spec, struct hsdp_mesh **ret_mesh,
                         struct hsdp_error *reterr);
int32_t next_mesh_info(const struct hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                       struct hsdp_error *reterr);
int32_t next_later(uint64_t *ret_value, struct hsdp_error *reterr);

static uint64_t later; /* of the mesh made last; the hosts that ask have one */

/* In place of mesh_create in the table: a new field of an input, of which zero means "as before".
 */
int32_t next_mesh_create(const struct hsdp_mesh_spec *spec, struct hsdp_mesh **ret_mesh,
                         struct hsdp_error *reterr)
{
    if (spec->later != 0 && spec->later != LATER_KNOWN) {
        return error_set(reterr, HSDP_ERR_INVALID, "mesh: later is %" PRIu64, spec->later);
    }
    later = spec->later;
    return mesh_create(spec, ret_mesh, reterr);
}

/* In place of mesh_info in the table: a new field of an output. */
int32_t next_mesh_info(const struct hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                       struct hsdp_error *reterr)
{
    int32_t status = mesh_info(mesh, ret_info, reterr);

    if (status == HSDP_OK) {
        ret_info->later = later;
    }
    return status;
}

/* The function at the end of every table. */
int32_t next_later(uint64_t *ret_value, struct hsdp_error *reterr)
{
    if (ret_value == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "later: ret_value is NULL");
    }
    *ret_value = later;
    return HSDP_OK;
}
