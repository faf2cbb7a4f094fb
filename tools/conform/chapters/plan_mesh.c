/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: meshes and their selectors. */

#include "planning.h"
#include "training/random_case.h"

#define MAX_RANKS 64u

/* A mesh as texts: names and sizes, outermost first. */
struct mesh_row {
    const char *names[4];
    int64_t sizes[4];
    uint32_t n_dims;
};

static struct hsdp_mesh_spec spec_of(const struct mesh_row *row)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;

    spec.dim_names = row->names;
    spec.dim_sizes = row->sizes;
    spec.n_dims = row->n_dims;
    return spec;
}

static hsdp_mesh *mesh_make(struct conform *conform, const struct mesh_row *row, uint32_t rank)
{
    struct hsdp_mesh_spec spec = spec_of(row);
    hsdp_mesh *mesh = NULL;

    spec.rank = rank;
    conform_must(conform, conform->api->mesh->create(&spec, &mesh, &conform->err));
    return mesh;
}

static const struct mesh_row large = {{"pp", "dp", "cp", "ep"}, {2, 3, 2, 2}, 4};

/* -------------------------------------------------------------------------------------- meshes */

void plan_mesh_row_major(struct conform *conform)
{
    hsdp_mesh *mesh = mesh_make(conform, &large, 5);

    for (uint32_t rank = 0; rank < 24; rank++) {
        uint32_t coords[4] = {9, 9, 9, 9};

        conform_must(conform, conform->api->mesh->coords(mesh, rank, coords, 4, &conform->err));
        conform_expect(conform,
                       ((coords[0] * 3 + coords[1]) * 2 + coords[2]) * 2 + coords[3] == rank &&
                           coords[1] < 3 && coords[2] < 2 && coords[3] < 2,
                       "rank %u stands at %u, %u, %u, %u of 2 x 3 x 2 x 2", rank, coords[0],
                       coords[1], coords[2], coords[3]);
    }
    conform->api->mesh->destroy(mesh);
}

void plan_mesh_inferred(struct conform *conform)
{
    for (uint32_t d = 0; d < 3; d++) {
        struct mesh_row row = {{"pp", "dp", "ep"}, {2, 2, 2}, 3};
        struct hsdp_mesh_spec spec = spec_of(&row);
        struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
        hsdp_mesh *mesh = NULL;
        const char *name = NULL;
        uint32_t n_ranks = 0;

        row.sizes[d] = -1;
        spec.world_ranks = 12;
        conform_must(conform, conform->api->mesh->create(&spec, &mesh, &conform->err));
        conform_must(conform, conform->api->mesh->dim(mesh, d, &name, &n_ranks, &conform->err));
        conform_expect(conform, n_ranks == 3, "\"%s\" of 12 ranks is inferred as %u, not 3", name,
                       n_ranks);
        conform_must(conform, conform->api->mesh->info(mesh, &info, &conform->err));
        conform_expect(conform, info.world_ranks == 12, "the world has %u ranks", info.world_ranks);
        conform->api->mesh->destroy(mesh);
    }
}

void plan_mesh_info(struct conform *conform)
{
    struct hsdp_mesh_spec spec = spec_of(&large);
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    hsdp_mesh *mesh = NULL;

    spec.rank = 7;
    spec.ranks_per_node = 4;
    spec.world_ranks = 24;
    conform_must(conform, conform->api->mesh->create(&spec, &mesh, &conform->err));
    conform_must(conform, conform->api->mesh->info(mesh, &info, &conform->err));
    conform_expect(conform,
                   info.n_dims == 4 && info.world_ranks == 24 && info.rank == 7 &&
                       info.n_data_ranks == 12 && info.ranks_per_node == 4 && info.reserved == 0,
                   "n_dims %u world_ranks %u rank %u n_data_ranks %u ranks_per_node %u reserved %u",
                   info.n_dims, info.world_ranks, info.rank, info.n_data_ranks, info.ranks_per_node,
                   info.reserved);
    for (uint32_t d = 0; d < 4; d++) {
        const char *name = "";
        uint32_t n_ranks = 0;

        conform_must(conform, conform->api->mesh->dim(mesh, d, &name, &n_ranks, &conform->err));
        conform_expect(conform,
                       strcmp(name, large.names[d]) == 0 && n_ranks == (uint32_t)large.sizes[d],
                       "dimension %u is \"%s\" of %u", d, name, n_ranks);
    }
    conform->api->mesh->destroy(mesh);
}

void plan_mesh_data_dims(struct conform *conform)
{
    static const struct {
        struct mesh_row mesh;
        const char *data_dims;
        uint32_t n_data_ranks;
    } rows[] = {
        {{{"pp", "dp", "cp", "ep"}, {2, 3, 2, 2}, 4}, NULL, 12},
        {{{"dp_replicate", "dp_shard", "tp"}, {2, 3, 2}, 3}, NULL, 6},
        {{{"pp", "tp"}, {2, 2}, 2}, NULL, 1},
        {{{"dp", "cp"}, {3, 2}, 2}, "dp", 3},
        {{{"x", "y"}, {3, 2}, 2}, "y", 2},
        {{{"x", "dp"}, {1, 2}, 2}, NULL, 2},
        {{{"dp", "tp"}, {3, 2}, 2}, "", 1},
    };

    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        struct hsdp_mesh_spec spec = spec_of(&rows[i].mesh);
        struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
        hsdp_mesh *mesh = NULL;

        spec.data_dims = rows[i].data_dims;
        conform_must(conform, conform->api->mesh->create(&spec, &mesh, &conform->err));
        conform_must(conform, conform->api->mesh->info(mesh, &info, &conform->err));
        conform_expect(conform, info.n_data_ranks == rows[i].n_data_ranks,
                       "row %u has %u data ranks, not %u", i, info.n_data_ranks,
                       rows[i].n_data_ranks);
        conform->api->mesh->destroy(mesh);
    }
}

/* ----------------------------------------------------------------------------------- selectors */

static void members_expect(struct conform *conform, const hsdp_mesh *mesh, const char *selector,
                           uint32_t rank, const uint32_t *expected, uint64_t n_expected)
{
    uint32_t ranks[MAX_RANKS];
    uint64_t n_ranks = 0;

    conform_must(conform, conform->api->mesh->members(mesh, selector, rank, ranks, MAX_RANKS,
                                                      &n_ranks, &conform->err));
    conform_expect(conform, n_ranks == n_expected, "\"%s\" picks %u ranks from rank %u, not %u",
                   selector, (unsigned)n_ranks, rank, (unsigned)n_expected);
    for (uint64_t i = 0; i < n_ranks; i++) {
        conform_expect(conform, ranks[i] == expected[i],
                       "member %u of \"%s\" from rank %u is rank %u, not %u", (unsigned)i, selector,
                       rank, ranks[i], expected[i]);
    }
}

void plan_mesh_members(struct conform *conform)
{
    static const uint32_t dp_cp[] = {1, 3, 5, 7, 9, 11};
    static const uint32_t pp_ep[] = {6, 7, 18, 19};
    static const uint32_t self[] = {7};
    hsdp_mesh *mesh = mesh_make(conform, &large, 0);

    members_expect(conform, mesh, "dp,cp", 7, dp_cp, 6);
    members_expect(conform, mesh, "cp,dp", 7, dp_cp, 6);
    members_expect(conform, mesh, "pp,ep", 7, pp_ep, 4);
    members_expect(conform, mesh, "", 7, self, 1);
    conform->api->mesh->destroy(mesh);
}

/* Those that differ from a rank in some dimensions only, by arithmetic of our own. */
static uint64_t members_find(const struct mesh_row *row, uint32_t dims, uint32_t rank,
                             uint32_t *ret_ranks, uint32_t n_world)
{
    uint64_t n = 0;

    for (uint32_t other = 0; other < n_world; other++) {
        uint32_t stride = 1;
        bool is_member = true;

        for (uint32_t d = row->n_dims; d-- > 0;) {
            uint32_t size = (uint32_t)row->sizes[d];

            is_member = is_member &&
                        ((dims >> d & 1u) != 0 || rank / stride % size == other / stride % size);
            stride *= size;
        }
        if (is_member) {
            ret_ranks[n++] = other;
        }
    }
    return n;
}

/* "x" means x_replicate and x_shard, where there is no x. */
void plan_mesh_halves(struct conform *conform)
{
    static const struct mesh_row row = {{"x_replicate", "cp", "x_shard"}, {2, 2, 2}, 3};
    static const uint32_t halves[] = {0, 1, 4, 5}, all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct hsdp_mesh_spec spec = spec_of(&row);
    hsdp_mesh *mesh = NULL;

    spec.data_dims = "x_replicate,x_shard";
    conform_must(conform, conform->api->mesh->create(&spec, &mesh, &conform->err));
    members_expect(conform, mesh, "x", 5, halves, 4);
    members_expect(conform, mesh, "cp,x", 5, all, 8);
    conform->api->mesh->destroy(mesh);
}

void plan_mesh_random_members(struct conform *conform)
{
    static const char *const names[] = {"a", "b", "c", "d"};

    for (uint64_t i = 0; i < 100; i++) {
        uint64_t bits = random_mix(conform->seed, i, 17, 0);
        struct mesh_row row = {.n_dims = 1 + (uint32_t)(bits >> 8) % 4};
        uint32_t dims = (uint32_t)(bits >> 16) % (1u << row.n_dims);
        uint32_t n_world = 1;
        uint32_t expected[MAX_RANKS];
        char selector[16] = "";
        struct hsdp_mesh_spec spec;
        hsdp_mesh *mesh = NULL;
        uint32_t rank;

        for (uint32_t d = 0; d < row.n_dims; d++) {
            row.names[d] = names[d];
            row.sizes[d] = 1 + (int64_t)(bits >> (24 + 4 * d)) % (n_world > 16 ? 1 : 4);
            n_world *= (uint32_t)row.sizes[d];
            if ((dims >> d & 1u) != 0) {
                strcat(selector, selector[0] == '\0' ? "" : ",");
                strcat(selector, names[d]);
            }
        }
        rank = (uint32_t)(bits >> 48) % n_world;
        spec = spec_of(&row);
        spec.data_dims = "a";
        conform_must(conform, conform->api->mesh->create(&spec, &mesh, &conform->err));
        members_expect(conform, mesh, selector, rank, expected,
                       members_find(&row, dims, rank, expected, n_world));
        conform->api->mesh->destroy(mesh);
    }
}

void plan_mesh_coordinates(struct conform *conform)
{
    static const uint32_t ends[] = {3, 15}, middle[] = {3, 7}, last[] = {11};
    hsdp_mesh *mesh = mesh_make(conform, &large, 0);

    members_expect(conform, mesh, "pp[0,-1]", 3, ends, 2);
    members_expect(conform, mesh, "pp[-1,0]", 15, ends, 2);
    members_expect(conform, mesh, "dp[0,1]", 7, middle, 2);
    members_expect(conform, mesh, "dp[1,0,-2,1]", 7, middle, 2); /* ascending, each once */
    members_expect(conform, mesh, "dp[-1]", 11, last, 1);
    conform->api->mesh->destroy(mesh);
}

void plan_mesh_small_buffer(struct conform *conform)
{
    uint32_t ranks[6] = {77, 77, 77, 77, 77, 77};
    hsdp_mesh *mesh = mesh_make(conform, &large, 0);
    uint64_t n_ranks = 0;

    conform_must_refuse(
        conform, conform->api->mesh->members(mesh, "dp,cp", 7, ranks, 5, &n_ranks, &conform->err),
        HSDP_ERR_BUFFER_TOO_SMALL);
    conform_expect(conform, n_ranks == 6, "there are %u, not 6", (unsigned)n_ranks);
    conform_expect(conform, ranks[5] == 77, "it wrote behind the buffer");
    n_ranks = 0;
    conform->api->mesh->members(mesh, "dp,cp", 7, NULL, 0, &n_ranks, NULL);
    conform_expect(conform, n_ranks == 6, "without a buffer there are %u, not 6",
                   (unsigned)n_ranks);
    conform->api->mesh->destroy(mesh);
}
