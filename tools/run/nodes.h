/* SPDX-License-Identifier: Apache-2.0 */
/* The options of several nodes: parsing them, whether they fit, and the run's id. */
#ifndef RUN_NODES_H
#define RUN_NODES_H

#include <stddef.h>

#include "options.h"

#define NODES_RUN_ID_BYTES 384 /* of an address, a port and a --run-id, with the NUL */

/* Each answers as options_parse does: -1 to go on, or it has complained and the status is 2. */
int nodes_number_parse(const char *name, const char *text, long least, long most, int *ret_value);
int nodes_addr_take(struct options *options, const char *text);
int nodes_run_id_take(struct options *options, const char *text);

/* After all options: what several nodes need, and that this is one of them. */
int nodes_check(struct options *options);

/*
 * HSDP_RUN_ID, which is equal on all nodes: made of the address, the port and --run-id. One node
 * without --run-id takes its random mark.
 */
void nodes_run_id_write(const struct options *options, int port, const char *mark,
                        char ret_id[NODES_RUN_ID_BYTES]);

/* What MASTER_ADDR is. */
const char *nodes_addr(const struct options *options);

#endif /* RUN_NODES_H */
