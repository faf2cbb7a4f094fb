/* SPDX-License-Identifier: Apache-2.0 */
/* The server: one thread in the process of rank 0, through which all ranks of a job meet. */
#ifndef REFERENCE_SERVER_H
#define REFERENCE_SERVER_H

#include <stdint.h>

struct server;

/** Listens under a name; returns 0, or an errno: EADDRINUSE if another process does so already. */
int server_start(const char *name, uint32_t world_ranks, struct server **ret);

/** Sends what is still to be sent, for two seconds at most, and ends the thread. NULL is accepted.
 */
void server_stop(struct server *server);

/** In a child of the process that has the server: closes the child's copies of descriptors. */
void server_forget(struct server *server);

#endif /* REFERENCE_SERVER_H */
