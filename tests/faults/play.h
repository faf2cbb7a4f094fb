/* SPDX-License-Identifier: Apache-2.0 */
/* Playing a trial: starting its ranks, striking the victim, and looking at what is left. */
#ifndef FAULTS_PLAY_H
#define FAULTS_PLAY_H

#include "faults/record.h"
#include "faults/trial.h"

/** Memory for the record of one run, shared with the processes that are started later. */
struct record *record_create(void);
void record_destroy(struct record *record);

/**
 * Runs a trial to its end: with has_fault false the same without the fault. run_ns and
 * at_occurrence, of a run without, say when it happens. In a process of its own: it becomes the
 * parent of all that the ranks leave behind, and lives in a network and a /dev/shm of its own
 * where the system lets it.
 */
void trial_play(const struct trial *trial, struct record *record, bool has_fault, uint64_t run_ns,
                uint32_t at_occurrence);

/** Prepares this process for trial_play: its own network, /dev/shm, and current folder. */
void play_isolate(void);
/** Gives the folder back. */
void play_end(void);

/** Which call of its kind the fault happens at, by a run without it; it may change the kind. */
uint32_t trial_aim(struct trial *trial, const struct record *without);

#endif /* FAULTS_PLAY_H */
