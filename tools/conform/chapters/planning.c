/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: meshes, selectors, settings, and what a plan lays out. */
#include "planning.h"

#define MESH     "mesh.h: create"
#define SELECTOR "mesh.h: a selector"
#define SETTINGS "abi.h: hsdp_settings; plan.h: settings of a plan"
#define TABLE    "plan.h: sharding_strategy"
#define LAYOUT   "plan.h: buffers, shards"

static const struct conform_check checks[] = {
    {"the last dimension varies fastest", "mesh.h: ranks fill a mesh row-major",
     plan_mesh_row_major, 1, 0, 0},
    {"a size of -1 is inferred", MESH, plan_mesh_inferred, 1, 0, 0},
    {"a mesh tells what was given", "mesh.h: info, dim", plan_mesh_info, 1, 0, 0},
    {"data dimensions are known by name, or told", "mesh.h: data_dims", plan_mesh_data_dims, 1, 0,
     0},
    {"members of dimensions are in mesh order", SELECTOR, plan_mesh_members, 1, 0, 0},
    {"a name means its two halves where it is split", SELECTOR, plan_mesh_halves, 1, 0, 0},
    {"members in random meshes", SELECTOR, plan_mesh_random_members, 1, 0, 0},
    {"members at coordinates, also from the end", SELECTOR, plan_mesh_coordinates, 1, 0, 0},
    {"a small buffer learns how many there are", SELECTOR, plan_mesh_small_buffer, 1, 0, 0},
    {"settings have the documented defaults", SETTINGS, plan_defaults, 1, 0, 0},
    {"settings are read back with their source", SETTINGS, plan_read_back, 1, 0, 0},
    {"the environment counts where the host is silent", SETTINGS, plan_environment, 1, 0, 0},
    {"a class has its own settings, else its plan's", SETTINGS, plan_class_settings, 1, 0, 0},
    {"aliases of strategies are resolved", TABLE, plan_aliases, 1, 0, 0},
    {"each strategy cuts over what its row says", TABLE, plan_rows, 1, 0, 0},
    {"replicate_dims are whom shards are copied over", TABLE, plan_replicate_dims, 1, 0, 0},
    {"the divisor is the mesh's data ranks unless given", "plan.h: gradient_divisor", plan_divisors,
     1, 0, 0},
    {"shard_size splits dp in two", "plan.h: shard_size", plan_split, 1, 0, 0},
    {"a mesh of all dimensions cannot be split", "plan.h: shard_size", plan_no_split, 1, 0, 0},
    {"shard_size follows the ranks of a node", "plan.h: shard_size", plan_default_split, 1, 0, 0},
    {"a plan that cannot be is not finished", "plan.h: finish", plan_finish_refusals, 1, 0, 0},
    {"a plan outlives its mesh and its texts", "plan.h: create", plan_outlives_mesh, 1, 0, 0},
    {"a report is JSON with what it promises", "plan.h: report", plan_report_text, 1, 0, 0},
    {"segments cover each element exactly once", LAYOUT, plan_covers, 1, 0, 0},
    {"segments are the slices of a buffer in order", LAYOUT, plan_slices, 1, 0, 0},
    {"the cuts of parameter, gradient and step nest", LAYOUT, plan_nests, 1, 0, 0},
    {"blocks are never cut", "plan.h: block_elems", plan_blocks, 1, 0, 0},
    {"parameters are aligned, and lie apart", LAYOUT, plan_aligned, 1, 0, 0},
    {"shards are equal, and padding is what is left", LAYOUT, plan_buffers, 1, 0, 0},
    {"one rank writes each shard", "plan.h: writer", plan_writers, 1, 0, 0},
    {"names and copies are told from storage", "plan.h: hsdp_param_info", plan_names, 1, 0, 0},
    {"units and parameters are those that were added", "plan.h: unit_info, param_info", plan_infos,
     1, 0, 0},
    {"blocks and ties are read back as they were given", "plan.h: hsdp_param_info", plan_given, 1,
     0, 0},
    {"totals are the sums of the buffers", "plan.h: hsdp_plan_info", plan_totals, 1, 0, 0},
    {"all ranks say the same of each other's shards", "plan.h: segments, writer", plan_same_on_all,
     1, 0, 0},
};

const struct conform_chapter conform_planning = {"planning", "meshes, selectors, settings, plans",
                                                 checks, sizeof(checks) / sizeof(checks[0])};
