/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: functions on meshes. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"

/* pp 2, dp 2, ep 2, seen from rank 0. */
static hsdp_mesh *mesh_of_eight(struct arguments *arguments)
{
    const int64_t sizes[] = {2, -1, 2};
    const char *names[] = {"pp", "dp", "ep"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    hsdp_mesh *mesh = NULL;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 3;
    spec.world_ranks = 8;
    arguments_accept(arguments, arguments->api->mesh->create(&spec, &mesh, arguments->err));
    return mesh;
}

void mesh_nulls(struct conform *conform)
{
    const struct hsdp_mesh_ops *ops = conform->api->mesh;
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    const int64_t sizes[] = {1};
    const char *names[] = {"dp"};
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 1;
    arguments_refuse(&a, ops->create(NULL, &out->mesh, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(&spec, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(NULL, &out->mesh_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(a.mesh, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->dim(NULL, 0, &out->texts[0], &out->numbers[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->dim(a.mesh, 0, NULL, &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->dim(a.mesh, 0, &out->texts[0], NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->coords(NULL, 0, out->numbers, 8, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->coords(a.mesh, 0, NULL, 8, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(NULL, "dp", 0, out->numbers, 8, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(a.mesh, NULL, 0, out->numbers, 8, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(a.mesh, "dp", 0, NULL, 8, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(a.mesh, "dp", 0, out->numbers, 8, NULL, a.err),
                     HSDP_ERR_INVALID);
    ops->destroy(a.mesh);
}

#define LONG_NAME "abcdefghijklmnopqrstuvwxyzabcdef"

/* What mesh.create refuses: one thing at a time is wrong. */
static const struct {
    const char *what;
    int64_t sizes[3];
    const char *names[3];
    const char *data_dims;
    uint32_t n_dims;
    uint32_t world_ranks;
    uint32_t rank;
    const char *told; /* what the message has to name; NULL = nothing that is certain */
} wrong_meshes[] = {
    {"mesh.create: a size of 0", {0, 2}, {"pp", "dp"}, NULL, 2, 0, 0, "pp"},
    {"mesh.create: a size of 0 in a world of 2", {0, 2}, {"pp", "dp"}, NULL, 2, 2, 0, "pp"},
    {"mesh.create: a size of -2", {-2, 2}, {"pp", "dp"}, NULL, 2, 4, 0, "pp"},
    {"mesh.create: two sizes of -1", {-1, -1}, {"pp", "dp"}, NULL, 2, 4, 0, NULL},
    {"mesh.create: a size of -1, and no world_ranks", {-1, 2}, {"pp", "dp"}, NULL, 2, 0, 0, NULL},
    {"mesh.create: sizes 2 and 3 in a world of 8", {2, 3}, {"pp", "dp"}, NULL, 2, 8, 0, "8"},
    {"mesh.create: sizes 3 and -1 in a world of 8", {3, -1}, {"pp", "dp"}, NULL, 2, 8, 0, "8"},
    {"mesh.create: an empty name", {2, 2}, {"", "dp"}, NULL, 2, 4, 0, NULL},
    {"mesh.create: a name that is NULL", {2, 2}, {NULL, "dp"}, NULL, 2, 4, 0, NULL},
    {"mesh.create: a name twice", {2, 2}, {"dp", "dp"}, NULL, 2, 4, 0, "dp"},
    {"mesh.create: a name with a digit first", {1, 2}, {"1pp", "dp"}, NULL, 2, 2, 0, NULL},
    {"mesh.create: a name with a space", {1, 2}, {"p p", "dp"}, NULL, 2, 2, 0, NULL},
    {"mesh.create: a name with a minus", {1, 2}, {"p-p", "dp"}, NULL, 2, 2, 0, NULL},
    {"mesh.create: a name that is not ASCII", {1, 2}, {"p\xc3\xa4", "dp"}, NULL, 2, 2, 0, NULL},
    {"mesh.create: a name with a comma", {1, 2}, {"p,p", "dp"}, NULL, 2, 2, 0, NULL},
    {"mesh.create: a name with a bracket", {1, 2}, {"p[", "dp"}, NULL, 2, 2, 0, NULL},
    {"mesh.create: a name of 32 bytes", {1, 2}, {LONG_NAME, "dp"}, NULL, 2, 2, 0, NULL},
    {"mesh.create: rank 4 in a world of 4", {2, 2}, {"pp", "dp"}, NULL, 2, 4, 4, "4"},
    {"mesh.create: rank 1 in a world of sizes 1", {1}, {"dp"}, NULL, 1, 0, 1, NULL},
    {"mesh.create: data_dims with an unknown name", {2, 2}, {"pp", "dp"}, "dp,foo", 2, 4, 0, "foo"},
    {"mesh.create: data_dims with a name twice", {2, 2}, {"pp", "dp"}, "dp,dp", 2, 4, 0, "dp"},
    {"mesh.create: a name that tells nothing", {2, 2}, {"foo", "dp"}, NULL, 2, 4, 0, "foo"},
    {"mesh.create: no dimension", {1}, {"dp"}, NULL, 0, 1, 0, NULL},
};

void mesh_specs(struct conform *conform)
{
    const struct hsdp_mesh_ops *ops = conform->api->mesh;
    const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const char *const letters[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct arguments a;

    arguments_init(&a, conform);
    for (size_t i = 0; i < sizeof(wrong_meshes) / sizeof(wrong_meshes[0]); i++) {
        spec.dim_sizes = wrong_meshes[i].sizes;
        spec.dim_names = wrong_meshes[i].names;
        spec.data_dims = wrong_meshes[i].data_dims;
        spec.n_dims = wrong_meshes[i].n_dims;
        spec.world_ranks = wrong_meshes[i].world_ranks;
        spec.rank = wrong_meshes[i].rank;
        arguments_refuse_as(&a, wrong_meshes[i].what, ops->create(&spec, &a.out.mesh, a.err),
                            HSDP_ERR_INVALID);
        if (wrong_meshes[i].told != NULL) {
            arguments_expect_said(&a, wrong_meshes[i].what, wrong_meshes[i].told);
        }
    }
    spec = (struct hsdp_mesh_spec)HSDP_MESH_SPEC_INIT;
    spec.dim_sizes = ones;
    spec.dim_names = letters;
    spec.n_dims = HSDP_MESH_MAX_DIMS + 1;
    arguments_refuse_as(&a, "mesh.create: nine dimensions", ops->create(&spec, &a.out.mesh, a.err),
                        HSDP_ERR_INVALID);
    spec.n_dims = HSDP_MESH_MAX_DIMS;
    spec.dim_names = NULL;
    arguments_refuse_as(&a, "mesh.create: dim_names is NULL",
                        ops->create(&spec, &a.out.mesh, a.err), HSDP_ERR_INVALID);
    spec.dim_names = letters;
    spec.dim_sizes = NULL;
    arguments_refuse_as(&a, "mesh.create: dim_sizes is NULL",
                        ops->create(&spec, &a.out.mesh, a.err), HSDP_ERR_INVALID);
    spec.dim_sizes = ones;
    arguments_accept(&a, ops->create(&spec, &a.mesh, a.err));
    ops->destroy(a.mesh);
}

void mesh_queries(struct conform *conform)
{
    const struct hsdp_mesh_ops *ops = conform->api->mesh;
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_init(&a, conform);
    a.mesh = mesh_of_eight(&a);
    arguments_refuse(&a, ops->dim(a.mesh, 3, &out->texts[0], &out->numbers[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->dim(a.mesh, UINT32_MAX, &out->texts[0], &out->numbers[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->coords(a.mesh, 8, out->numbers, 8, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->coords(a.mesh, UINT32_MAX, out->numbers, 8, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->coords(a.mesh, 0, out->numbers, 2, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->coords(a.mesh, 0, out->numbers, 0, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(a.mesh, "dp", 8, out->numbers, 8, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_accept(&a, ops->coords(a.mesh, 6, out->numbers, 8, a.err));
    conform_expect(conform, out->numbers[0] == 1 && out->numbers[1] == 1 && out->numbers[2] == 0,
                   "mesh.coords: rank 6 of 2x2x2 stands at 1,1,0; found %u,%u,%u",
                   (unsigned)out->numbers[0], (unsigned)out->numbers[1], (unsigned)out->numbers[2]);
    arguments_accept(&a, ops->info(a.mesh, &out->mesh_info, a.err));
    conform_expect(conform,
                   out->mesh_info.n_dims == 3 && out->mesh_info.world_ranks == 8 &&
                       out->mesh_info.n_data_ranks == 4 && out->mesh_info.reserved == 0,
                   "mesh.info: pp 2, dp 2, ep 2 has 3 dimensions, 8 ranks and 4 data ranks");
    ops->destroy(a.mesh);
}

void mesh_selectors(struct conform *conform)
{
    static const char *const wrong[] = {
        "foo",      "DP",
        "dp,foo",   "dp,dp",
        "pp[2]",    "pp[-3]",
        " dp",      "dp ",
        "dp, ep",   "dp,",
        ",dp",      "pp[",
        "pp[]",     "pp[0",
        "pp[0]]",   "pp[a]",
        "pp[0,]",   "[0]",
        ",",        "pp[0,0]x",
        "pp]",      "dp ep",
        "pp[0],ep", "pp[ 0]",
        "pp[0x1]",  "pp[99999999999]",
    };
    const struct hsdp_mesh_ops *ops = conform->api->mesh;
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_init(&a, conform);
    a.mesh = mesh_of_eight(&a);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char what[64];

        snprintf(what, sizeof(what), "mesh.members of \"%s\"", wrong[i]);
        arguments_refuse_as(&a, what,
                            ops->members(a.mesh, wrong[i], 0, out->numbers, 8, out->longs, a.err),
                            HSDP_ERR_INVALID);
        if (strstr(wrong[i], "foo") != NULL) {
            arguments_expect_said(&a, what, "ep"); /* lists the known ones */
        }
    }
    arguments_refuse(&a, ops->members(a.mesh, "pp[1]", 0, out->numbers, 8, out->longs, a.err),
                     HSDP_ERR_NOT_MEMBER);
    arguments_refuse(&a, ops->members(a.mesh, "pp[-2]", 7, out->numbers, 8, out->longs, a.err),
                     HSDP_ERR_NOT_MEMBER);
    arguments_accept(&a, ops->members(a.mesh, "", 5, out->numbers, 8, out->longs, a.err));
    conform_expect(conform, out->longs[0] == 1 && out->numbers[0] == 5,
                   "mesh.members: \"\" is the asking rank alone");
    arguments_accept(&a, ops->members(a.mesh, "pp,ep", 2, out->numbers, 8, out->longs, a.err));
    conform_expect(conform, out->longs[0] == 4 && out->numbers[0] == 2 && out->numbers[3] == 7,
                   "mesh.members: \"pp,ep\" from rank 2 of 2x2x2 is 2,3,6,7");
    ops->destroy(a.mesh);
}
