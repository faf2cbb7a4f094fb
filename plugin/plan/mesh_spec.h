/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a mesh's spec: every check that a host's numbers and names have to pass. */
#ifndef PLAN_MESH_SPEC_H
#define PLAN_MESH_SPEC_H

#include "plan/mesh.h"

/** Fills names, sizes, world, rank and node of a zeroed mesh; what is -1 is inferred. */
int32_t mesh_spec_read(const struct hsdp_mesh_spec *spec, struct hsdp_mesh *mesh,
                       struct hsdp_error *reterr);

/** Fills data_dims of a mesh that has the rest, strides included. */
int32_t mesh_spec_read_data_dims(const struct hsdp_mesh_spec *spec, struct hsdp_mesh *mesh,
                                 struct hsdp_error *reterr);

#endif /* PLAN_MESH_SPEC_H */
