/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP port at which the ranks of a run may meet (MASTER_PORT). */
#ifndef RUN_PORT_H
#define RUN_PORT_H

/*
 * Picks a free port and reserves it among the runs of this host for as long as the descriptor
 * ret_fd is open. Answers 0, or complains and answers hsdp-run's exit status.
 */
int port_reserve(int *ret_fd, int *ret_port);

#endif /* RUN_PORT_H */
