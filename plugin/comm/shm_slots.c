/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: gradient slots, which are reused once all peers have read them, and late sums. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/pages.h"
#include "comm/shm_store.h"
#include "device/fpmode.h"
#include "device/kernels.h"

void *shm_grads(struct store *store, uint32_t unit)
{
    return shm_slot(store, store->rank, unit);
}

/*
 * Where access is verified, a unit's slot is writable while the host has it. Slots overlap, but the
 * units in the same bytes never have them at the same time.
 */
static int32_t slot_open(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    uint64_t n_bytes = plan_grad_slot_bytes(store->plan, unit);

    if (store->is_access_checked &&
        mprotect(shm_grads(store, unit), n_bytes, PROT_READ | PROT_WRITE) != 0) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "shm: cannot make the gradient slot of unit \"%s\" writable: %s",
                         store->plan->units[unit].name, strerror(errno));
    }
    return HSDP_OK;
}

void shm_slot_close(struct store *store, uint32_t unit)
{
    if (store->is_access_checked) { /* undoes a split of mappings, so it cannot lack memory */
        mprotect(shm_grads(store, unit), plan_grad_slot_bytes(store->plan, unit), PROT_READ);
    }
}

/* Zeroes what lies between parameters: a host that sets its gradients does not write it. */
static void padding_zero(struct store *store, uint32_t unit)
{
    const struct plan_unit *plan_unit = &store->plan->units[unit];
    uint64_t elem_bytes = dtype_bytes(shm_plan_class(store, unit)->gradient_dtype);
    uint8_t *slot = shm_grads(store, unit);
    uint64_t end = 0;

    for (uint32_t i = 0; i < plan_unit->n_params; i++) { /* in order of offset */
        const struct plan_param *param = &store->plan->params[plan_unit->params[i]];

        if (param->buffer == 0 && param->storage == plan_unit->params[i]) {
            memset(slot + end * elem_bytes, 0, (param->offset_elems - end) * elem_bytes);
            end = param->offset_elems + param->n_elems;
        }
    }
    memset(slot + end * elem_bytes, 0, (plan_unit->buffers[0].n_elems - end) * elem_bytes);
}

/* Whether a rank's own reduction of a unit still has to read the unit's slot. */
static bool slot_is_unread(const struct store *store, const struct shm_reduction *reduction)
{
    bool is_copied = store->units[reduction->unit].sums.local_elems != 0 ||
                     reduction->source == SHM_FROM_LATE; /* to where peers read it */

    if (reduction->is_absent) {
        return false;
    }
    return reduction->stage == SHM_QUEUED || reduction->stage == SHM_SOURCE ||
           (!is_copied && (reduction->stage == SHM_INNER || reduction->stage == SHM_RESTING));
}

/* Waits until all peers have read what this rank last had in a unit's slot. A reduction may be in
 * flight, of a skipped unit: its own wait stays as it is. */
static int32_t consumed_await(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    const struct shm_ranks *readers = shm_class_of(store, unit)->readers;
    struct wait wait = store->units[unit].reduction.wait; /* group, unit, sequence */
    struct wait_entry entries[SHM_MAX_RANKS];

    wait.operation = "unshard backward";
    wait.entries = entries;
    wait.n_entries = readers->n_ranks == 1 ? 0 : readers->n_ranks;
    for (uint32_t i = 0; i < wait.n_entries; i++) {
        entries[i].counter = &shm_counters(store, readers->ranks[i], unit)->consumed;
        entries[i].target = store->units[unit].slot_sequence;
        entries[i].rank = readers->ranks[i];
        entries[i].wait = PROBE_WAIT_SLOT;
    }
    probe_expect(store->probe, entries, wait.n_entries);
    return job_wait(store->job, &wait, reterr);
}

/* Waits until this rank and its peers have read this rank's last contribution of a unit from its
 * slot, which `next` is about to use; not for the outer sum that may follow. */
static int32_t readers_await(struct store *store, uint32_t unit, uint32_t next,
                             struct hsdp_error *reterr)
{
    struct shm_reduction *reduction = &store->units[unit].reduction;
    int32_t status;

    if (reduction->stage == SHM_QUEUED && !reduction->is_absent) {
        return transport_slot_refuse(store->plan, unit, next, reterr);
    }
    if (slot_is_unread(store, reduction) &&
        (reduction->stage == SHM_SOURCE || reduction->contributors->n_ranks == 1)) {
        status = job_ticket_wait(store->job, reduction->work.ticket, UINT64_MAX, reterr);
        if (status != HSDP_OK) {
            return status;
        }
    }
    if (!reduction->is_absent && !slot_is_unread(store, reduction)) {
        probe_reduction(store->probe, unit, PROBE_AWAITED_SLOT);
    }
    return consumed_await(store, unit, reterr);
}

/*
 * Waits for the readers of everyone who has had these bytes since such a wait. Few units are in the
 * list: those that would have more than the slots' memory together have been waited for.
 */
static int32_t occupants_await(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    for (uint32_t i = store->n_occupants; i-- > 0;) {
        uint32_t other = store->occupants[i];
        int32_t status;

        if (!plan_grads_overlap(store->plan, unit, other)) {
            continue;
        }
        status = readers_await(store, other, unit, reterr);
        if (status != HSDP_OK) {
            return status;
        }
        store->occupants[i] = store->occupants[--store->n_occupants];
    }
    store->occupants[store->n_occupants++] = unit; /* it overlaps with itself: not there twice */
    return HSDP_OK;
}

/*
 * Before a unit's first gradient: all that its reductions will write, in one go for each piece. Not
 * when the model is made, which may be larger than memory, and trained in part.
 */
static int32_t unit_populate(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    struct shm_unit *u = &store->units[unit];
    uint8_t *region = store->regions[store->rank];
    const struct {
        const void *base;
        uint64_t n_bytes;
    } pieces[] = {{shm_grads(store, unit), plan_grad_slot_bytes(store->plan, unit)},
                  {region + u->local_offset, u->sums.local_elems * sizeof(float)},
                  {region + u->inner_offset, u->sums.inner_elems * sizeof(float)},
                  {u->step_grads, u->sums.step_elems * sizeof(float)}};

    for (size_t i = 0; !u->is_populated && i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        int error = pages_populate(pieces[i].base, pieces[i].n_bytes, true);

        if (error != 0) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY,
                             "shm: no memory for gradients of unit \"%s\" (%" PRIu64 " bytes): %s",
                             store->plan->units[unit].name, pieces[i].n_bytes, strerror(error));
        }
    }
    u->is_populated = true;
    return HSDP_OK;
}

int32_t shm_grads_acquire(struct store *store, uint32_t unit, bool is_zeroed, void *stream,
                          struct hsdp_error *reterr)
{
    uint64_t n_bytes = plan_grad_elems(store->plan, unit) *
                       dtype_bytes(shm_plan_class(store, unit)->gradient_dtype);
    int32_t status;

    (void)stream;
    status = occupants_await(store, unit, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = slot_open(store, unit, reterr);
    if (status == HSDP_OK) {
        status = unit_populate(store, unit, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    probe_write(store->probe, PROBE_SLOT, unit, shm_grads(store, unit), n_bytes);
    if (is_zeroed) {
        memset(shm_grads(store, unit), 0, n_bytes);
    } else if (plan_is_trainable(store->plan, unit)) {
        padding_zero(store, unit); /* that of aliases is never read */
    }
    return HSDP_OK;
}

static int32_t late_buffer(struct store *store, uint32_t unit, float **buffer,
                           struct hsdp_error *reterr)
{
    uint64_t n_bytes = store->plan->units[unit].buffers[0].n_elems * sizeof(float);

    if (*buffer == NULL) {
        *buffer = malloc(n_bytes);
    }
    if (*buffer == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "shm: no memory for late gradients of unit \"%s\" (%" PRIu64 " bytes)",
                         store->plan->units[unit].name, n_bytes);
    }
    return HSDP_OK;
}

int32_t shm_late_allocate(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    if (store->units[unit].sums.late_elems != 0) {
        status = late_buffer(store, unit, &store->units[unit].late, reterr);
    }
    if (status == HSDP_OK && store->units[unit].sums.late_elems != 0) {
        status = late_buffer(store, unit, &store->units[unit].taken, reterr);
    }
    return status;
}

int32_t shm_grads_add(struct store *store, const struct store_addition *addition,
                      struct hsdp_error *reterr)
{
    uint32_t unit = addition->unit;
    struct shm_unit *u = &store->units[unit];
    uint64_t n_bytes = store->plan->units[unit].buffers[0].n_elems * sizeof(float);
    float **buffer = addition->joins_handed ? &u->taken : &u->late;
    bool *is_begun = addition->joins_handed ? &u->has_taken : &u->has_late;
    int32_t status = late_buffer(store, unit, buffer, reterr);
    struct fp_mode mode;

    if (status != HSDP_OK) {
        return status;
    }
    assert(!addition->joins_handed || u->reduction.stage == SHM_QUEUED); /* nothing is sent yet */
    probe_write(store->probe, PROBE_LATE_VALUES, unit, *buffer, n_bytes);
    if (!*is_begun) {
        memset(*buffer, 0, n_bytes);
        *is_begun = true;
    }
    mode = fp_mode_enter();
    job_kernels(store->job)
        ->add(*buffer + addition->offset_elems, addition->values, addition->dtype,
              addition->n_elems);
    fp_mode_leave(mode);
    return HSDP_OK;
}

/* What comes from now on joins the next reduction, however long this one waits for its peers. */
void shm_late_take(struct store *store, uint32_t unit)
{
    struct shm_unit *u = &store->units[unit];
    float *free_buffer = u->taken;

    u->taken = u->late;
    u->has_taken = u->has_late;
    u->late = free_buffer;
    u->has_late = false;
}
