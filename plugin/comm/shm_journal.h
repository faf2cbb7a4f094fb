/* SPDX-License-Identifier: Apache-2.0 */
/* Journals of the shm store: what ranks have declared, in order, for their peers to compare. */
#ifndef COMM_SHM_JOURNAL_H
#define COMM_SHM_JOURNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hsdp/abi.h"

struct shm_ranks; /* shm_store.h */
struct store;

/*
 * Over shared memory an unshard waits for nobody, and a reduction only for the same unit of its
 * peers, so ranks in another order would go on, and stop on a network. Each rank therefore writes
 * down what it does, one entry each, with a hash of all entries so far:
 *
 *   of each group P that shards parameters, the units that are unsharded
 *   of each group R that reduces, the passes: begin with the scope, their units, end
 *
 * Where two ranks have a prefix of the same hash, they have done the same. The hash at each step is
 * kept apart, so that it can be compared however long the ring of entries is.
 *
 * Entries are written while peers read them: each word is atomic, and a reader that finds by
 * n_entries that an entry may have been overwritten meanwhile drops it. So no wait protects them,
 * and probes are not told. `at_step` is there twice, of even and odd steps, and written before
 * step_arrived, like step words.
 */

struct shm_entry {
    _Atomic uint64_t value;
    _Atomic uint64_t hash; /* of all entries up to this one */
};

struct shm_journal_mark {
    _Atomic uint64_t step; /* which; a mark of another one says nothing */
    _Atomic uint64_t n_entries;
    _Atomic uint64_t hash;
};

/* As it lies in a region. */
struct shm_journal_part {
    _Atomic uint64_t n_entries;
    struct shm_journal_mark at_step[2];
    struct shm_entry entries[]; /* a ring */
};

enum shm_journal_kind {
    SHM_JOURNAL_UNSHARDS,
    SHM_JOURNAL_PASSES,
};

/* This rank's side of one. */
struct shm_journal {
    enum shm_journal_kind kind;
    uint32_t dims;                 /* which group: of the mesh */
    const struct shm_ranks *ranks; /* who compare */
    char group[64];
    uint64_t offset;      /* in a region */
    uint64_t max_entries; /* a power of two */
    uint64_t max_batch;   /* entries that become visible together */
    uint64_t n_entries;   /* visible */
    uint64_t n_written;
    uint64_t hash;
    uint64_t n_passes;
    uint64_t first_entry; /* of the host's: numbers in sentences are counted from here */
};

/** Makes the journals of all classes, and gives them places from *offset on. */
int32_t shm_journals_layout(struct store *store, uint64_t *offset, struct hsdp_error *reterr);
void shm_journals_free(struct store *store);

/** Counts from 1 again, in sentences. */
void shm_journals_renumber(struct store *store);

/** Writes down the unshard of a unit. */
void shm_journal_unshard(struct store *store, uint32_t unit);
/**
 * Writes down a pass, in each of the journals that its units belong to, and compares all.
 *
 * Errors: HSDP_ERR_MISMATCH, filled; the job has not failed by that.
 */
int32_t shm_journal_pass(struct store *store, const uint32_t *units, uint64_t n_units,
                         int32_t scope, struct hsdp_error *reterr);

/** Compares what both this rank and a peer have written down, with all peers. Errors: likewise. */
int32_t shm_journals_compare(struct store *store, struct hsdp_error *reterr);
/** The same as struct wait asks for; `user` is the store. */
int32_t shm_journals_check(void *user, struct hsdp_error *reterr);

/** Keeps this rank's state at the step that begins now, before step_arrived. */
void shm_journals_mark(struct store *store);
/** Compares all that came before the step, once everyone has come to it. Errors: likewise. */
int32_t shm_journals_settle(struct store *store, struct hsdp_error *reterr);

#endif /* COMM_SHM_JOURNAL_H */
