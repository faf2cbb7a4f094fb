/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: mapping regions, the back-to-back views of unsharded parameters, private memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/pages.h"
#include "comm/shm_store.h"

#define LINE_BYTES 64u

static int32_t map_refuse(const char *what, uint64_t n_bytes, struct hsdp_error *reterr)
{
    return error_set(reterr, HSDP_ERR_NO_MEMORY, "shm: cannot map %s (%" PRIu64 " bytes): %s", what,
                     n_bytes, strerror(errno));
}

/* The whole region of a rank that shares units with this one, or, to be read, tied elements; else
 * only its header. */
static int32_t region_map(struct store *store, uint32_t rank, bool is_whole,
                          struct hsdp_error *reterr)
{
    uint64_t n_bytes = is_whole                             ? store->region_bytes
                       : plan_ties_reach(store->plan, rank) ? store->memory.sizes[rank]
                                                            : sizeof(struct shm_header);
    void *base;

    if (is_whole && store->memory.sizes[rank] < store->region_bytes) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "shm: rank %" PRIu32 " has a region of %" PRIu64 " bytes, rank %" PRIu32
                         " one of %" PRIu64,
                         rank, store->memory.sizes[rank], store->rank, store->region_bytes);
    }
    base = mmap(NULL, n_bytes, is_whole ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                store->memory.fd, (off_t)store->memory.offsets[rank]);
    if (base == MAP_FAILED) {
        return map_refuse("a region", n_bytes, reterr);
    }
    store->regions[rank] = base;
    store->mapped_bytes[rank] = n_bytes;
    return HSDP_OK;
}

static int32_t regions_map(struct store *store, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t dims = plan_shared_dims(store->plan);

    for (uint32_t rank = 0; rank < store->n_world; rank++) {
        uint32_t index = mesh_index(mesh, dims, rank);
        bool is_whole = mesh_peer(mesh, dims, store->rank, index) == rank;
        int32_t status = region_map(store, rank, is_whole, reterr);

        if (status != HSDP_OK) {
            return status;
        }
    }
    return HSDP_OK;
}

/* Under verify=access the host may write into a gradient slot from acquiring it to handing over. */
static int32_t slots_protect(struct store *store, struct hsdp_error *reterr)
{
    uint64_t n_bytes = store->plan->grad_slots_bytes;

    if (store->is_access_checked &&
        mprotect(store->regions[store->rank] + store->slots_offset, n_bytes, PROT_READ) != 0) {
        return map_refuse("gradient slots", n_bytes, reterr);
    }
    return HSDP_OK;
}

/* The shards of the ranks of P, back to back in slice order, read-only. */
static int32_t view_map(struct store *store, uint32_t unit, uint32_t buffer,
                        struct hsdp_error *reterr)
{
    const struct plan_unit *plan_unit = &store->plan->units[unit];
    const struct plan_class *class = shm_plan_class(store, unit);
    const struct plan_buffer *plan_buffer = &plan_unit->buffers[buffer];
    struct shm_unit *u = &store->units[unit];
    uint64_t param_bytes = dtype_bytes(class->param_dtype);
    uint64_t shard_bytes = plan_buffer->shard_elems[HSDP_SHARD_PARAM] * param_bytes;
    uint64_t n_bytes = plan_buffer->n_elems * param_bytes;
    uint32_t n_slices = placement_n_slices(&class->place, store->plan->mesh, HSDP_SHARD_PARAM);
    uint8_t *base;

    if (n_bytes == 0) {
        u->view[buffer] = store->regions[store->rank]; /* an address, of no bytes */
        return HSDP_OK;
    }
    base = mmap(NULL, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return map_refuse("an unsharded buffer", n_bytes, reterr);
    }
    u->view[buffer] = base;
    u->view_bytes[buffer] = n_bytes;
    for (uint32_t slice = 0; slice < n_slices; slice++) {
        uint32_t owner =
            placement_owner(&class->place, store->plan->mesh, HSDP_SHARD_PARAM, store->rank, slice);
        void *part = mmap(base + slice * shard_bytes, shard_bytes,
                          store->is_access_checked ? PROT_NONE : PROT_READ, MAP_SHARED | MAP_FIXED,
                          store->memory.fd,
                          (off_t)(store->memory.offsets[owner] + u->params_offset[buffer]));

        if (part == MAP_FAILED) {
            return map_refuse("a shard", shard_bytes, reterr);
        }
    }
    return HSDP_OK;
}

static uint64_t master_bytes(const struct store *store, uint32_t unit, uint32_t buffer)
{
    return store->plan->units[unit].buffers[buffer].shard_elems[HSDP_SHARD_STEP] *
           dtype_bytes(shm_plan_class(store, unit)->master_dtype);
}

/* Masters apart from the parameters, and reduced gradients that no peer writes. */
static uint64_t unit_private_bytes(const struct store *store, uint32_t unit)
{
    const struct plan_unit *plan_unit = &store->plan->units[unit];
    uint64_t n_bytes = 0;

    if (!plan_steps_in_place(store->plan, unit)) {
        for (uint32_t b = 0; b < plan_unit->n_buffers; b++) {
            n_bytes += master_bytes(store, unit, b);
        }
    }
    if (plan_is_trainable(store->plan, unit) && !shm_step_grads_are_shared(store, unit)) {
        n_bytes += store->units[unit].sums.step_elems * sizeof(float);
    }
    return n_bytes; /* shards are whole lines */
}

/* Where the master of a buffer lies that is stepped in place: this rank's slice of its shard. */
static void *master_in_place(const struct store *store, uint32_t unit, uint32_t buffer)
{
    const struct shm_unit *u = &store->units[unit];
    uint8_t *shard = store->regions[store->rank] + u->params_offset[buffer];

    return shard + u->step_offset[buffer] * dtype_bytes(shm_plan_class(store, unit)->master_dtype);
}

static int32_t private_map(struct store *store, struct hsdp_error *reterr)
{
    uint64_t offset = 0;
    void *base;

    store->private_bytes = LINE_BYTES;
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        store->private_bytes += unit_private_bytes(store, unit);
    }
    base = pages_map(store->private_bytes);
    if (base == NULL) {
        return map_refuse("masters and gradients", store->private_bytes, reterr);
    }
    store->private_memory = base;
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        const struct plan_unit *plan_unit = &store->plan->units[unit];
        struct shm_unit *u = &store->units[unit];

        for (uint32_t b = 0; b < plan_unit->n_buffers; b++) {
            if (plan_steps_in_place(store->plan, unit)) {
                u->master[b] = master_in_place(store, unit, b);
                continue;
            }
            u->master[b] = store->private_memory + offset;
            offset += master_bytes(store, unit, b);
        }
        if (shm_step_grads_are_shared(store, unit)) {
            u->step_grads = shm_step_grads(store, store->rank, unit);
        } else if (plan_is_trainable(store->plan, unit)) {
            u->step_grads = (float *)(store->private_memory + offset);
            offset += u->sums.step_elems * sizeof(float);
        }
    }
    return HSDP_OK;
}

/* Counters and journals of this rank and its peers: rings, of which each entry would fault once. */
static int32_t words_populate(struct store *store, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t dims = plan_shared_dims(store->plan);
    uint64_t n_bytes = store->slots_offset - store->counters_offset;

    for (uint32_t i = 0; i < mesh_span(mesh, dims); i++) {
        uint32_t rank = mesh_peer(mesh, dims, store->rank, i);
        int error = pages_populate(store->regions[rank] + store->counters_offset, n_bytes,
                                   rank == store->rank);

        if (error != 0) {
            errno = error;
            return map_refuse("counters and journals", n_bytes, reterr);
        }
    }
    return HSDP_OK;
}

int32_t shm_map(struct store *store, struct hsdp_error *reterr)
{
    int32_t status = regions_map(store, reterr);

    if (status == HSDP_OK) {
        status = words_populate(store, reterr);
    }
    if (status == HSDP_OK) {
        status = slots_protect(store, reterr);
    }
    for (uint32_t unit = 0; status == HSDP_OK && unit < store->plan->n_units; unit++) {
        store->units[unit].counters = shm_counters(store, store->rank, unit);
        for (uint32_t b = 0; status == HSDP_OK && b < store->plan->units[unit].n_buffers; b++) {
            status = view_map(store, unit, b, reterr);
        }
        if (status == HSDP_OK) {
            status = shm_late_allocate(store, unit, reterr);
        }
    }
    if (status == HSDP_OK) {
        status = private_map(store, reterr);
    }
    return status;
}

void shm_unmap(struct store *store)
{
    for (uint32_t unit = 0; store->units != NULL && unit < store->plan->n_units; unit++) {
        struct shm_unit *u = &store->units[unit];

        for (uint32_t b = 0; b < PLAN_MAX_BUFFERS; b++) {
            if (u->view_bytes[b] != 0) {
                munmap(u->view[b], u->view_bytes[b]);
            }
        }
    }
    for (uint32_t rank = 0; rank < store->n_world; rank++) {
        if (store->regions[rank] != NULL) {
            munmap(store->regions[rank], store->mapped_bytes[rank]);
        }
    }
    if (store->private_memory != NULL) {
        munmap(store->private_memory, store->private_bytes);
    }
}
