/* SPDX-License-Identifier: Apache-2.0 */
/* Watching the ranks from their start to the last one's end. */
#ifndef RUN_SUPERVISE_H
#define RUN_SUPERVISE_H

#include <stdint.h>

#include "options.h"
#include "output.h"
#include "ranks.h"
#include "report.h"

/* How far the end of a run has come. */
enum supervise_phase {
    SUPERVISE_RUNNING,
    SUPERVISE_REPORTING, /* a rank failed; the others may notice and say so by themselves */
    SUPERVISE_TERMINATING,
    SUPERVISE_KILLING,
    SUPERVISE_GIVEN_UP /* some do not even die of SIGKILL */
};

struct supervisor {
    const struct options *options;
    struct ranks *ranks;
    struct output *output;
    struct report report;
    int signal_fd;
    enum supervise_phase phase;
    int64_t phase_end_ns;
    int64_t run_end_ns; /* by --timeout */
    int n_interrupts;
    int forced_status; /* of a timeout or a second SIGINT, else 0 */
    int *ended;        /* what ranks_reap has found */
    struct pollfd *polled;
};

/* Before the first rank is started; the clock of --timeout starts here. */
void supervise_init(struct supervisor *supervisor, const struct options *options,
                    struct ranks *ranks, struct output *output, int signal_fd);
void supervise_fini(struct supervisor *supervisor);

/* Returns when no rank runs any more. */
void supervise_ranks(struct supervisor *supervisor);

/* Waits until all output is written, with an end where nobody reads it. */
void supervise_output(struct supervisor *supervisor);

/* hsdp-run's exit status, as far as the ranks and signals say. */
int supervise_exit_status(const struct supervisor *supervisor);

#endif /* RUN_SUPERVISE_H */
