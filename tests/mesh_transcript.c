/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin says of meshes, right and wrong ones, as text; two plugins should say the same. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

#define MAX_MEMBERS 64

static const struct {
    uint32_t n_dims;
    int64_t sizes[HSDP_MESH_MAX_DIMS + 1];
    const char *names[HSDP_MESH_MAX_DIMS + 1];
    const char *data_dims;
    uint32_t world_ranks;
    uint32_t rank;
    uint32_t ranks_per_node;
} meshes[] = {
    {1, {1}, {"dp"}, NULL, 0, 0, 0},
    {1, {4}, {"dp"}, NULL, 4, 3, 2},
    {2, {2, -1}, {"dp", "cp"}, NULL, 6, 5, 0},
    {4, {2, 2, 1, 3}, {"pp", "dp", "cp", "ep"}, NULL, 12, 7, 4},
    {3, {2, 3, 2}, {"pp", "dp_replicate", "dp_shard"}, NULL, 12, 0, 0},
    {2, {2, 3}, {"tp", "x"}, "x", 6, 1, 0},
    {2, {2, 3}, {"tp", "x"}, "", 6, 1, 0},
    {2, {2, 1}, {"dp", "x"}, NULL, 2, 1, 0},
    {8, {1, 2, 1, 2, 1, 2, 1, 2}, {"a", "dp", "b", "cp", "c", "ep", "d", "tp"}, NULL, 16, 9, 0},
    /* wrong ones */
    {0, {1}, {"dp"}, NULL, 0, 0, 0},
    {9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {"a", "b", "c", "d", "e", "f", "g", "h", "i"}, NULL, 0, 0, 0},
    {1, {0}, {"dp"}, NULL, 0, 0, 0},
    {1, {-2}, {"dp"}, NULL, 0, 0, 0},
    {2, {-1, -1}, {"dp", "cp"}, NULL, 4, 0, 0},
    {2, {2, -1}, {"dp", "cp"}, NULL, 0, 0, 0},
    {2, {2, -1}, {"dp", "cp"}, NULL, 7, 0, 0},
    {2, {2, 3}, {"dp", "cp"}, NULL, 8, 0, 0},
    {1, {4}, {"dp"}, NULL, 4, 4, 0},
    {1, {INT64_MAX}, {"dp"}, NULL, 0, 0, 0},
    {2, {65536, 65536}, {"dp", "cp"}, NULL, 0, 0, 0},
    {2, {2, 2}, {"dp", "dp"}, NULL, 4, 0, 0},
    {2, {2, 2}, {"dp", ""}, NULL, 4, 0, 0},
    {2, {2, 2}, {"dp", NULL}, NULL, 4, 0, 0},
    {1, {2}, {"2dp"}, NULL, 2, 0, 0},
    {1, {2}, {"d p"}, NULL, 2, 0, 0},
    {1, {2}, {"abcdefghijklmnopqrstuvwxyz0123456"}, "", 2, 0, 0},
    {1, {2}, {"x"}, NULL, 2, 0, 0},
    {1, {2}, {"dp"}, "cp", 2, 0, 0},
    {1, {2}, {"dp"}, "dp[0]", 2, 0, 0},
    {1, {2}, {"dp"}, "dp,dp", 2, 0, 0},
};

static const char *const selectors[] = {
    "",
    "dp",
    "cp",
    "dp,cp",
    "cp,dp",
    "pp,ep",
    "pp[0]",
    "pp[-1,0]",
    "dp[0,0,1]",
    "ep[2]",
    "dp[5]",
    "dp[-9]",
    "dp[]",
    "dp[0",
    "dp[0],cp",
    "dp,",
    ",dp",
    "dp,dp",
    " dp",
    "foo",
    "foo[0]",
    "dp[0]x",
    "[0]",
    "dp[ 0]",
    "dp[+0]",
    "dp[0,]",
    "dp[0x]",
    "dp_shard,pp",
    "dp]",
    "dp[-0]",
    "dp[0,-1]",
    "x[1]",
    "dp[99999999999999999999]",
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct hsdp_error err = HSDP_ERROR_INIT;

/* A failure has a sentence, whose words are each plugin's own. */
static void status_tell(const char *what, int32_t status)
{
    printf("%s: %" PRId32 "%s%s%s\n", what, status, status == HSDP_OK ? "" : " ",
           status == HSDP_OK ? "" : err.operation,
           status != HSDP_OK && (err.message[0] == '\0' || err.status != status) ? " silent" : "");
    err = (struct hsdp_error)HSDP_ERROR_INIT;
}

static void members_tell(const struct hsdp_mesh_ops *ops, const hsdp_mesh *mesh, uint32_t rank)
{
    for (size_t i = 0; i < N_OF(selectors); i++) {
        uint32_t ranks[MAX_MEMBERS];
        uint64_t n_ranks = 0;
        int32_t status = ops->members(mesh, selectors[i], rank, ranks, MAX_MEMBERS, &n_ranks, &err);

        printf("    \"%s\" of %" PRIu32 ":", selectors[i], rank);
        for (uint64_t j = 0; status == HSDP_OK && j < n_ranks; j++) {
            printf(" %" PRIu32, ranks[j]);
        }
        status_tell("", status);
        if (status == HSDP_OK && n_ranks > 1) {
            status_tell("    one too few",
                        ops->members(mesh, selectors[i], rank, ranks, n_ranks - 1, &n_ranks, &err));
        }
    }
}

static void mesh_tell(const struct hsdp_mesh_ops *ops, const hsdp_mesh *mesh)
{
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    uint32_t coords[HSDP_MESH_MAX_DIMS];
    const char *name = "";
    uint32_t n_ranks = 0;

    status_tell("  info", ops->info(mesh, &info, &err));
    printf("  %" PRIu32 " dims, world %" PRIu32 ", rank %" PRIu32 ", data %" PRIu32
           ", node %" PRIu32 "\n",
           info.n_dims, info.world_ranks, info.rank, info.n_data_ranks, info.ranks_per_node);
    for (uint32_t d = 0; d <= info.n_dims; d++) {
        status_tell("  dim", ops->dim(mesh, d, &name, &n_ranks, &err));
        printf("  %s %" PRIu32 "\n", name, n_ranks);
    }
    for (uint32_t rank = 0; rank <= info.world_ranks; rank++) {
        int32_t status = ops->coords(mesh, rank, coords, HSDP_MESH_MAX_DIMS, &err);

        status_tell("  coords", status);
        for (uint32_t d = 0; status == HSDP_OK && d < info.n_dims; d++) {
            printf("  %" PRIu32 "\n", coords[d]);
        }
        members_tell(ops, mesh, rank);
    }
    status_tell("  too few", ops->coords(mesh, 0, coords, info.n_dims - 1, &err));
}

static void meshes_tell(const struct hsdp_mesh_ops *ops)
{
    for (size_t i = 0; i < N_OF(meshes); i++) {
        struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
        hsdp_mesh *mesh = NULL;
        int32_t status;

        spec.n_dims = meshes[i].n_dims;
        spec.dim_sizes = meshes[i].sizes;
        spec.dim_names = meshes[i].names;
        spec.data_dims = meshes[i].data_dims;
        spec.world_ranks = meshes[i].world_ranks;
        spec.rank = meshes[i].rank;
        spec.ranks_per_node = meshes[i].ranks_per_node;
        status = ops->create(&spec, &mesh, &err);
        printf("mesh %zu%s\n", i, (mesh != NULL) == (status == HSDP_OK) ? "" : " half made");
        status_tell("  create", status);
        if (status == HSDP_OK) {
            mesh_tell(ops, mesh);
        }
        ops->destroy(mesh);
    }
}

/* Older, newer and impossible hosts, and those that forget an argument. */
static void border_tell(const struct hsdp_mesh_ops *ops)
{
    static const size_t sizes[] = {48, 64, 56, 47, 8, 0, SIZE_MAX};
    hsdp_mesh *mesh = NULL;

    for (size_t i = 0; i < N_OF(sizes); i++) {
        for (int is_set = 0; is_set < 2; is_set++) {
            struct {
                struct hsdp_mesh_spec spec;
                uint64_t later[2];
            } newer = {.spec = {.dim_sizes = meshes[0].sizes,
                                .dim_names = meshes[0].names,
                                .n_dims = 1,
                                .struct_size = sizes[i]},
                       .later = {0, (uint64_t)is_set}};

            status_tell("size", ops->create(&newer.spec, &mesh, &err));
            ops->destroy(mesh);
            mesh = NULL;
        }
    }
    status_tell("no spec", ops->create(NULL, &mesh, &err));
    status_tell("no mesh", ops->info(NULL, NULL, &err));
    status_tell("no mesh", ops->dim(NULL, 0, NULL, NULL, &err));
    status_tell("no mesh", ops->coords(NULL, 0, NULL, 0, &err));
    status_tell("no mesh", ops->members(NULL, "", 0, NULL, 0, NULL, &err));
}

int main(int argc, char **argv)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    hsdp_plugin *plugin = NULL;

    spec.path = argc == 2 ? argv[1] : "";
    if (argc != 2 || hsdp_plugin_load(&spec, &plugin, &err) != HSDP_OK) {
        printf("%s\n", argc == 2 ? err.message : "usage: mesh_transcript PLUGIN");
        return 1;
    }
    meshes_tell(hsdp_plugin_api(plugin)->mesh);
    border_tell(hsdp_plugin_api(plugin)->mesh);
    hsdp_plugin_unload(plugin);
    return 0;
}
