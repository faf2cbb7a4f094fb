/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: this rank's own parameter shard between uses. */
#include "comm/shm_store.h"

int32_t shm_resting(struct store *store, uint32_t unit, uint32_t buffer, const void **ret_shard,
                    struct hsdp_error *reterr)
{
    const struct shm_ranks *writers = &shm_class_of(store, unit)->copies;
    struct wait_entry entries[SHM_MAX_RANKS];
    struct wait wait = {.entries = entries, .n_entries = writers->n_ranks};
    int32_t status;

    wait.operation = "step.begin";
    wait.group = writers->name;
    wait.unit = store->plan->units[unit].name;
    wait.sequence = store->epoch - store->first_epoch;
    for (uint32_t i = 0; i < writers->n_ranks; i++) {
        entries[i].counter = &shm_header(store, writers->ranks[i])->epoch;
        entries[i].target = store->epoch;
        entries[i].rank = writers->ranks[i];
        entries[i].wait = PROBE_WAIT_PUBLISHED;
    }
    probe_expect(store->probe, entries, wait.n_entries);
    status = job_wait(store->job, &wait, reterr);
    if (status == HSDP_OK) {
        status = shm_published_compare(store, writers, wait.operation, reterr);
    }
    if (status == HSDP_OK) {
        *ret_shard = store->regions[store->rank] + store->units[unit].params_offset[buffer];
    }
    return status;
}
