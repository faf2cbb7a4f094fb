/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_mesh_ops. */
#include "plan/mesh.h"

#include "call.h"
#include "tables.h"

static int32_t entry_create(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh,
                            struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_mesh_spec own;
    struct hsdp_mesh *mesh = NULL;

    call_begin(&call, "mesh.create", reterr);
    call_needs(&call, "ret_mesh", ret_mesh);
    call_takes(&call, "spec", &intake_mesh_spec, spec, &own);
    if (call_is_ok(&call)) {
        call.status = mesh_create(&own, &mesh, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_mesh = mesh;
    }
    return call_end(&call);
}

static int32_t entry_info(const hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                          struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;

    call_begin(&call, "mesh.info", reterr);
    call_needs(&call, "mesh", mesh);
    call_needs_struct(&call, "ret_info", &intake_mesh_info, ret_info);
    if (call_is_ok(&call)) {
        call.status = mesh_info(mesh, &info, &call.err);
    }
    call_gives(&call, &intake_mesh_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_dim(const hsdp_mesh *mesh, uint32_t dim_index, const char **ret_name,
                         uint32_t *ret_ranks, struct hsdp_error *reterr)
{
    struct call call;
    const char *name = NULL;
    uint32_t n_ranks = 0;

    call_begin(&call, "mesh.dim", reterr);
    call_needs(&call, "mesh", mesh);
    call_needs(&call, "ret_name", ret_name);
    call_needs(&call, "ret_ranks", ret_ranks);
    if (call_is_ok(&call)) {
        call.status = mesh_dim(mesh, dim_index, &name, &n_ranks, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_name = name;
        *ret_ranks = n_ranks;
    }
    return call_end(&call);
}

static int32_t entry_coords(const hsdp_mesh *mesh, uint32_t rank, uint32_t *ret_coords,
                            uint64_t max_coords, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "mesh.coords", reterr);
    call_needs(&call, "mesh", mesh);
    call_needs_array(&call, "ret_coords", ret_coords, max_coords);
    if (call_is_ok(&call)) {
        call.status = mesh_coords(mesh, rank, ret_coords, max_coords, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_members(const hsdp_mesh *mesh, const char *selector, uint32_t rank,
                             uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks,
                             struct hsdp_error *reterr)
{
    struct call call;
    uint64_t n_ranks = 0;

    call_begin(&call, "mesh.members", reterr);
    call_needs(&call, "mesh", mesh);
    call_needs(&call, "selector", selector);
    call_needs_array(&call, "ret_ranks", ret_ranks, max_ranks);
    call_needs(&call, "ret_n_ranks", ret_n_ranks);
    if (call_is_ok(&call)) {
        call.status = mesh_members(mesh, selector, rank, ret_ranks, max_ranks, &n_ranks, &call.err);
        call_gives_size(&call, n_ranks, ret_n_ranks);
    }
    return call_end(&call);
}

const struct hsdp_mesh_ops export_mesh = {
    .struct_size = sizeof(struct hsdp_mesh_ops),
    .create = entry_create,
    .info = entry_info,
    .dim = entry_dim,
    .coords = entry_coords,
    .members = entry_members,
    .destroy = mesh_destroy,
};
