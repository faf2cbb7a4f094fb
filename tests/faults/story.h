/* SPDX-License-Identifier: Apache-2.0 */
/* Stories: a run of a trial, told so that one can see what happened. */
#ifndef FAULTS_STORY_H
#define FAULTS_STORY_H

#include <stdio.h>

#include "faults/judge.h"

/** Writes what was found, each rank's last calls, and how to play it again. */
void story_write(FILE *file, const struct trial *trial, const struct record *record, bool has_fault,
                 const struct judgement *judgement);

#endif /* FAULTS_STORY_H */
