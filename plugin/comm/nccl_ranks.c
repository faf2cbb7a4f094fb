/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: the ranks of classes and ties, and their communicators. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_store.h"

void nccl_count_bytes(const struct nccl_ranks *ranks, uint64_t n_bytes)
{
    if (ranks->traffic != NULL) {
        atomic_fetch_add_explicit(ranks->traffic, n_bytes, memory_order_relaxed);
    }
}

void nccl_count(const struct nccl_ranks *ranks, uint64_t bytes_per_peer)
{
    if (ranks->traffic != NULL && ranks->operations != NULL) {
        atomic_fetch_add_explicit(ranks->operations, 1, memory_order_relaxed);
        nccl_count_bytes(ranks, (ranks->n_ranks - 1) * bytes_per_peer);
    }
}

/* ------------------------------------------------------------------------------ ranks of classes
 */

/* The ranks that differ from this one in `dims`, in the order of the mesh. */
static void ranks_init(struct nccl_ranks *ret, struct store *store, uint32_t dims)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    char counter[96];

    ret->n_ranks = mesh_span(mesh, dims);
    for (uint32_t i = 0; i < ret->n_ranks; i++) {
        ret->ranks[i] = mesh_peer(mesh, dims, store->rank, i);
        ret->places[i] = i;
    }
    ret->index = mesh_index(mesh, dims, store->rank);
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if ((dims >> d & 1u) != 0) {
            ret->dim_sizes[ret->n_dims++] = mesh->sizes[d];
        }
    }
    mesh_dims_text(mesh, dims, ret->name, sizeof(ret->name));
    if (ret->n_ranks > 1) {
        snprintf(counter, sizeof(counter), "traffic.%s", ret->name);
        ret->traffic = job_counter_register(store->job, counter);
        snprintf(counter, sizeof(counter), "operations.%s", ret->name);
        ret->operations = job_counter_register(store->job, counter);
    }
}

/* Those among which the slice of one cut is cut further into slices of another, in slice order. */
static void slices_init(struct nccl_ranks *ret, struct store *store, const struct placement *place,
                        int whole, int cut)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t dims = place->cuts[cut] & ~(whole < 0 ? 0 : place->cuts[whole]);
    uint32_t first = 0;

    ranks_init(ret, store, dims);
    if (whole >= 0) { /* slices nest */
        first = placement_slice(place, mesh, whole, store->rank) * ret->n_ranks;
    }
    for (uint32_t i = 0; i < ret->n_ranks; i++) {
        ret->ranks[i] = placement_owner(place, mesh, cut, store->rank, first + i);
        ret->places[i] = mesh_index(mesh, dims, ret->ranks[i]);
        ret->index = ret->ranks[i] == store->rank ? i : ret->index;
    }
}

static void class_init(struct nccl_class *ret, struct store *store, const struct placement *place)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;

    slices_init(&ret->gather, store, place, -1, HSDP_SHARD_PARAM);
    slices_init(&ret->inner, store, place, -1, HSDP_SHARD_GRAD);
    slices_init(&ret->later, store, place, HSDP_SHARD_GRAD, HSDP_SHARD_STEP);
    slices_init(&ret->copies, store, place, HSDP_SHARD_PARAM, HSDP_SHARD_STEP);
    ranks_init(&ret->replicas, store, place->reduced & ~place->cuts[HSDP_SHARD_STEP]);
    ranks_init(&ret->outer, store, place->reduced & ~place->cuts[HSDP_SHARD_GRAD]);
    mesh_dims_text(mesh, place->reduced, ret->reduce_name, sizeof(ret->reduce_name));
    /* No row of the table has both: its gradients are sharded over all of S, or all of R is. */
    assert(ret->later.n_ranks == 1 || ret->replicas.n_ranks == 1);
}

/* ------------------------------------------------------------------------------------------ ties
 */

static int ranks_compare(const void *left, const void *right)
{
    const struct nccl_tie_group *a = left;
    const struct nccl_tie_group *b = right;
    uint32_t n = a->n_ranks < b->n_ranks ? a->n_ranks : b->n_ranks;

    for (uint32_t i = 0; i < n; i++) {
        if (a->ranks[i] != b->ranks[i]) {
            return a->ranks[i] < b->ranks[i] ? -1 : 1;
        }
    }
    return a->n_ranks < b->n_ranks ? -1 : a->n_ranks > b->n_ranks;
}

/* All ranks that may hold elements of a tie that this one holds elements of. */
static void tie_ranks(struct nccl_tie_group *ret, const struct store *store,
                      const struct plan_tie *tie)
{
    const struct hsdp_plan *plan = store->plan;
    const struct hsdp_mesh *mesh = plan->mesh;
    const struct plan_unit *unit = &plan->units[plan->params[tie->param].unit];
    const struct placement *place = &plan->classes[unit->class_index].place;
    uint32_t dims = tie->selector.dims | place->cuts[HSDP_SHARD_STEP];

    for (uint32_t rank = 0; rank < store->n_world; rank++) {
        if (selector_index(mesh, &tie->selector, rank) >= 0 &&
            mesh_peer(mesh, dims, mesh->rank, mesh_index(mesh, dims, rank)) == rank) {
            ret->ranks[ret->n_ranks++] = rank;
        }
    }
}

/* Stages may have their ties in another order, so the groups are in one of their own. */
static int32_t tie_groups_init(struct store *store, struct hsdp_error *reterr)
{
    uint32_t n_ties = store->plan->n_ties;
    uint32_t n_groups = 0;

    store->tie_groups = calloc(n_ties + 1u, sizeof(*store->tie_groups));
    if (store->tie_groups == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for the groups of ties");
    }
    for (uint32_t t = 0; t < n_ties; t++) {
        tie_ranks(&store->tie_groups[t], store, &store->plan->ties[t]);
    }
    qsort(store->tie_groups, n_ties, sizeof(*store->tie_groups), ranks_compare);
    for (uint32_t t = 0; t < n_ties; t++) {
        if (n_groups == 0 ||
            ranks_compare(&store->tie_groups[n_groups - 1], &store->tie_groups[t]) != 0) {
            store->tie_groups[n_groups++] = store->tie_groups[t];
        }
    }
    store->n_tie_groups = n_groups;
    return HSDP_OK;
}

/* --------------------------------------------------------------------------------- communicators
 */

/* The lists of this rank, and where their communicators go. */
struct wanted {
    struct nccl_wanted *lists;
    struct nccl_group ***places;
    uint32_t n;
};

static void wanted_add(struct wanted *wanted, struct nccl_ranks *ranks)
{
    if (ranks->n_ranks > 1) {
        wanted->lists[wanted->n] = (struct nccl_wanted){ranks->ranks, ranks->n_ranks, ranks->name};
        wanted->places[wanted->n++] = &ranks->group;
    }
}

static void wanted_fill(struct wanted *wanted, struct store *store)
{
    for (uint32_t c = 0; c < store->plan->n_classes; c++) {
        struct nccl_class *class = &store->classes[c];

        wanted_add(wanted, &class->gather);
        if (plan_class_is_trainable(store->plan, c)) {
            wanted_add(wanted, &class->inner);
            wanted_add(wanted, &class->later);
            wanted_add(wanted, &class->replicas);
        }
        wanted_add(wanted, &class->copies);
    }
    wanted_add(wanted, &store->shared);
    for (uint32_t t = 0; t < store->n_tie_groups; t++) {
        struct nccl_tie_group *tie = &store->tie_groups[t];

        wanted->lists[wanted->n] = (struct nccl_wanted){tie->ranks, tie->n_ranks, "ties"};
        wanted->places[wanted->n++] = &tie->group;
    }
}

static int32_t groups_make(struct store *store, struct hsdp_error *reterr)
{
    uint64_t max_lists = 5u * (uint64_t)store->plan->n_classes + store->n_tie_groups + 1;
    struct wanted wanted = {.n = 0};
    struct nccl_group **groups = calloc(max_lists, sizeof(struct nccl_group *));
    int32_t status;

    wanted.lists = calloc(max_lists, sizeof(*wanted.lists));
    wanted.places = calloc(max_lists, sizeof(*wanted.places));
    if (groups == NULL || wanted.lists == NULL || wanted.places == NULL) {
        status = error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for groups");
        goto out;
    }
    wanted_fill(&wanted, store);
    status = nccl_groups_make(store->job, wanted.lists, wanted.n, groups, reterr);
    for (uint32_t i = 0; status == HSDP_OK && i < wanted.n; i++) {
        *wanted.places[i] = groups[i];
    }

out:
    free(groups);
    free(wanted.lists);
    free(wanted.places);
    return status;
}

int32_t nccl_ranks_make(struct store *store, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = store->plan;
    int32_t status;

    store->classes = calloc(plan->n_classes + 1u, sizeof(*store->classes));
    if (store->classes == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for %u classes",
                         (unsigned)plan->n_classes);
    }
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        class_init(&store->classes[c], store, &plan->classes[c].place);
        store->has_gathers |= store->classes[c].gather.n_ranks > 1;
    }
    ranks_init(&store->shared, store, plan_shared_dims(plan));
    status = tie_groups_init(store, reterr);
    return status == HSDP_OK ? groups_make(store, reterr) : status;
}
