/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: the table of strategies, and the one arithmetic that serves all of them. */
#include "plan/placement.h"

#include <assert.h>
#include <string.h>

const struct strategy strategies[STRATEGY_COUNT] = {
    {"ddp", "no_shard", {'0', '0', '0'}},
    {"zero1", "", {'0', '0', 'R'}},
    {"zero2", "shard_grad_op", {'0', 'R', 'R'}},
    {"fsdp", "full_shard zero3", {'R', 'R', 'R'}},
    {"hsdp", "hybrid_shard", {'I', 'I', 'I'}},
    {"hsdp_zero2", "hybrid_shard_zero2", {'0', 'I', 'I'}},
    {"hfsdp", "", {'I', 'I', 'R'}},
};

static bool word_is_in(const char *words, const char *word)
{
    uint64_t n_bytes = strlen(word);

    while (*words != '\0') {
        uint64_t n_word = strcspn(words, " ");

        if (n_word == n_bytes && memcmp(words, word, n_bytes) == 0) {
            return true;
        }
        words += n_word;
        words += strspn(words, " ");
    }
    return false;
}

const struct strategy *strategy_find(const char *name)
{
    for (uint32_t i = 0; i < STRATEGY_COUNT; i++) {
        if (strcmp(strategies[i].name, name) == 0 || word_is_in(strategies[i].aliases, name)) {
            return &strategies[i];
        }
    }
    return NULL;
}

static uint32_t cut_dims(char cut, uint32_t reduced, uint32_t outer)
{
    switch (cut) {
    case 'R':
        return reduced;
    case 'I':
        return reduced & ~outer;
    default:
        assert(cut == '0');
        return 0;
    }
}

void placement_init(struct placement *ret, const struct hsdp_mesh *mesh,
                    const struct strategy *strategy, uint32_t replicated, uint32_t reduced,
                    uint32_t replicate_dims)
{
    struct placement place = {0};
    uint32_t ordered = 0;

    assert((reduced & ~replicated) == 0);
    place.replicated = replicated;
    place.reduced = reduced;
    place.outer = reduced & replicate_dims;
    for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
        place.cuts[cut] = cut_dims(strategy->cuts[cut], place.reduced, place.outer);
        assert((ordered & ~place.cuts[cut]) == 0); /* P within G within S */
        for (uint32_t d = 0; d < mesh->n_dims; d++) {
            if (((place.cuts[cut] & ~ordered) >> d & 1u) != 0) {
                place.slice_dims[place.n_slice_dims++] = d;
            }
        }
        ordered = place.cuts[cut];
    }
    *ret = place;
}

uint32_t placement_n_slices(const struct placement *place, const struct hsdp_mesh *mesh, int cut)
{
    return mesh_span(mesh, place->cuts[cut]);
}

uint32_t placement_slice(const struct placement *place, const struct hsdp_mesh *mesh, int cut,
                         uint32_t rank)
{
    uint32_t slice = 0;

    for (uint32_t i = 0; i < place->n_slice_dims; i++) {
        uint32_t d = place->slice_dims[i];

        if ((place->cuts[cut] >> d & 1u) != 0) {
            slice = slice * mesh->sizes[d] + mesh_coord(mesh, rank, d);
        }
    }
    return slice;
}

uint32_t placement_owner(const struct placement *place, const struct hsdp_mesh *mesh, int cut,
                         uint32_t rank, uint32_t slice)
{
    for (uint32_t i = place->n_slice_dims; i-- > 0;) {
        uint32_t d = place->slice_dims[i];

        if ((place->cuts[cut] >> d & 1u) != 0) {
            rank = mesh_peer(mesh, 1u << d, rank, slice % mesh->sizes[d]);
            slice /= mesh->sizes[d];
        }
    }
    return rank;
}

uint32_t placement_writer(const struct placement *place, const struct hsdp_mesh *mesh, int cut,
                          uint32_t rank)
{
    return mesh_peer(mesh, place->replicated & ~place->cuts[cut], rank, 0);
}

bool placement_is_counted(const struct placement *place, const struct hsdp_mesh *mesh,
                          uint32_t rank)
{
    return mesh_peer(mesh, place->replicated & ~place->reduced, rank, 0) == rank;
}
