/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: parameters tied over stages, through room that their holders read. */
#include <string.h>

#include "comm/shm_store.h"
#include "device/fpmode.h"
#include "device/kernels.h"

/*
 * Behind its header each rank has room for every element of its tied parameters, at the place that
 * the holders have told each other; it writes only what it owns, so only that takes up memory. All
 * who may read it wait for ties_arrived, and it waits for their ties_consumed before it writes
 * again. Every call counts, whatever it moves: so counters of all holders keep in step.
 */

static float *tied_room(const struct store *store, uint32_t rank)
{
    return (float *)(store->regions[rank] + shm_ties_offset());
}

static const float *run_source(const struct store *store, const struct store_tied_run *run,
                               uint32_t holder)
{
    const float *source = tied_room(store, run->ranks[holder]) + run->places[holder];

    probe_read(store->probe, PROBE_TIED, PROBE_NO_UNIT, source, run->n_elems * sizeof(float));
    return source;
}

static int32_t holders_await(struct store *store, const struct store_ties *ties, bool is_consumed,
                             struct hsdp_error *reterr)
{
    struct wait_entry entries[SHM_MAX_RANKS];
    struct wait wait = {.entries = entries, .n_entries = ties->n_ranks};

    wait.operation = ties->operation;
    wait.group = ties->group;
    wait.unit = ties->unit;
    wait.sequence = store->n_ties_runs - store->first_ties_run;
    wait.record = store->ties_record;
    for (uint32_t i = 0; i < ties->n_ranks; i++) {
        const struct shm_header *header = shm_header(store, ties->ranks[i]);

        entries[i].counter = is_consumed ? &header->ties_consumed : &header->ties_arrived;
        entries[i].target = store->n_ties_runs - (is_consumed ? 1 : 0);
        entries[i].rank = ties->ranks[i];
        entries[i].wait = is_consumed ? PROBE_WAIT_TIES_READ : PROBE_WAIT_TIES;
    }
    probe_expect(store->probe, entries, ties->n_ranks);
    return job_wait(store->job, &wait, reterr);
}

static void run_sum(const struct store *store, const struct store_tied_run *run)
{
    const void *sources[SHM_MAX_RANKS];
    struct reduce_spec spec = {.sources = sources, .dim_sizes = run->dim_sizes};

    for (uint32_t h = 0; h < run->n_holders; h++) {
        sources[h] = run_source(store, run, h);
    }
    spec.n_dims = run->n_dims;
    spec.dst = run->values;
    spec.n_elems = run->n_elems;
    spec.source_dtype = DTYPE_FP32;
    spec.wire_dtype = DTYPE_FP32;
    job_kernels(store->job)->tree(&spec);
}

static void runs_read(const struct store *store, const struct store_ties *ties)
{
    struct fp_mode mode = fp_mode_enter();

    for (uint64_t i = 0; i < ties->n_runs; i++) {
        const struct store_tied_run *run = &ties->runs[i];

        if (run->values == NULL) {
            continue;
        }
        if (ties->is_sum) {
            run_sum(store, run);
        } else if (run->own != 0) {
            memcpy(run->values, run_source(store, run, 0), run->n_elems * sizeof(float));
        }
    }
    fp_mode_leave(mode);
}

static uint64_t ties_record(struct store *store, const struct store_ties *ties)
{
    struct wait what = {.operation = ties->operation, .group = ties->group, .unit = ties->unit};

    what.sequence = store->n_ties_runs - store->first_ties_run;
    for (uint64_t i = 0; i < ties->n_runs; i++) {
        what.n_bytes += ties->runs[i].values == NULL ? 0 : ties->runs[i].n_elems * sizeof(float);
    }
    return job_record_begin(store->job, &what);
}

static int32_t ties_pass(struct store *store, const struct store_ties *ties,
                         struct hsdp_error *reterr)
{
    struct shm_header *mine = shm_header(store, store->rank);
    int32_t status;

    status = holders_await(store, ties, true, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint64_t i = 0; i < ties->n_runs; i++) {
        const struct store_tied_run *run = &ties->runs[i];

        if (run->values != NULL) {
            float *room = tied_room(store, store->rank) + run->places[run->own];

            probe_write(store->probe, PROBE_TIED, PROBE_NO_UNIT, room,
                        run->n_elems * sizeof(float));
            memcpy(room, run->values, run->n_elems * sizeof(float));
        }
    }
    job_signal(store->job, &mine->ties_arrived, store->n_ties_runs, ties->ranks, ties->n_ranks);
    status = holders_await(store, ties, false, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    runs_read(store, ties);
    job_signal(store->job, &mine->ties_consumed, store->n_ties_runs, ties->ranks, ties->n_ranks);
    return HSDP_OK;
}

int32_t shm_ties_run(struct store *store, const struct store_ties *ties, struct hsdp_error *reterr)
{
    int32_t status;

    store->n_ties_runs++;
    store->ties_record = ties_record(store, ties);
    status = ties_pass(store, ties, reterr);
    job_record_end(store->job, store->ties_record, status);
    return status;
}
