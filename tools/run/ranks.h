/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run: which live, how the others ended. */
#ifndef RUN_RANKS_H
#define RUN_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rank {
    pid_t pid; /* also the number of its process group and session */
    bool is_running;
    int end_code;   /* CLD_EXITED, CLD_KILLED or CLD_DUMPED */
    int end_status; /* exit status or signal */
    int end_sent;   /* SIGTERM or SIGKILL when hsdp-run wanted it to end, else 0 */
    int64_t end_ns; /* when it ended, run_clock_ns */
};

struct ranks {
    struct rank *all; /* n_ranks of them */
    int n_ranks;
    int first_rank; /* the number of all[0] in the job */
    int n_running;
};

void ranks_init(struct ranks *ranks, int n_ranks, int first_rank);
void ranks_fini(struct ranks *ranks);

void ranks_started(struct ranks *ranks, int rank, pid_t pid);

/*
 * Reaps all children that have ended, orphans that came to hsdp-run included. Answers how many
 * ranks were among them and writes their numbers to ret_ended, which has room for all.
 */
int ranks_reap(struct ranks *ranks, int *ret_ended);

/* Sends a signal on to the process groups of all running ranks. */
void ranks_signal(const struct ranks *ranks, int number);

/* Ends the running ranks by SIGTERM or SIGKILL, and remembers that hsdp-run did it. */
void ranks_end(struct ranks *ranks, int number);

/* Whether the rank has ended, and not with status 0. */
bool rank_has_failed(const struct rank *rank);

/* Whether it died of what ranks_end has sent. */
bool rank_was_ended(const struct rank *rank);

/* What a shell would answer for it. */
int rank_exit_status(const struct rank *rank);

/* "exited with status 3", "was killed by signal 9 (Killed)", ... */
void rank_describe_end(const struct rank *rank, char *ret_text, size_t text_bytes);

/* Whether both run, or have ended in the same way. */
bool rank_is_alike(const struct rank *rank, const struct rank *other);

/* "0-3, 7": the ranks that are like this one, cut with "..." where there is no room. */
void ranks_describe_alike(const struct ranks *ranks, const struct rank *like, char *ret_text,
                          size_t text_bytes);

/* The same, of those that still run. */
void ranks_describe_running(const struct ranks *ranks, char *ret_text, size_t text_bytes);

#endif /* RUN_RANKS_H */
