/* SPDX-License-Identifier: Apache-2.0 */
/* The link between a leader and the root: a process between them, which can drop or cut it. */
#ifndef FAULTS_LINK_H
#define FAULTS_LINK_H

#include "faults/record.h"

/** Starts the process, which listens at record->proxy_port; 0 when there is none. */
int link_start(struct record *record);
/** Ends it. */
void link_end(int pid);

/** Notes where the root listens, from what it puts into the store. */
void link_publish(struct record *record, const void *value, uint64_t n_bytes);

/** Makes such a value lead to the proxy; returns its bytes. */
uint64_t link_redirect(const struct record *record, char *value, uint64_t n_bytes,
                       uint64_t max_bytes);

/** A port of loopback that was free a moment ago; 0 = none. */
uint16_t link_free_port(void);

#endif /* FAULTS_LINK_H */
