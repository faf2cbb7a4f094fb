/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what a host says of a mesh. */
#ifndef REFERENCE_MESH_SPEC_H
#define REFERENCE_MESH_SPEC_H

#include "mesh.h"

/** Fills a mesh of zeros from a spec. Errors: those of mesh->create. */
int32_t mesh_spec_read(const struct call *call, const struct hsdp_mesh_spec *spec,
                       struct hsdp_mesh *mesh);

#endif /* REFERENCE_MESH_SPEC_H */
