/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ranks: reaping, signalling, describing. */
#include "ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "run.h"

void ranks_init(struct ranks *ranks, int n_ranks, int first_rank)
{
    int i;

    *ranks = (struct ranks){.n_ranks = n_ranks, .first_rank = first_rank};
    ranks->all = run_realloc(NULL, (size_t)n_ranks * sizeof(ranks->all[0]));
    for (i = 0; i < n_ranks; i++) {
        ranks->all[i] = (struct rank){.pid = -1};
    }
}

void ranks_fini(struct ranks *ranks)
{
    free(ranks->all);
    *ranks = (struct ranks){.all = NULL};
}

void ranks_started(struct ranks *ranks, int rank, pid_t pid)
{
    ranks->all[rank].pid = pid;
    ranks->all[rank].is_running = true;
    ranks->n_running++;
}

/* The rank with this process, -1 if there is none. */
static int ranks_find(const struct ranks *ranks, pid_t pid)
{
    int i;

    for (i = 0; i < ranks->n_ranks; i++) {
        if (ranks->all[i].is_running && ranks->all[i].pid == pid) {
            return i;
        }
    }
    return -1;
}

static void rank_ended(struct ranks *ranks, int i, const siginfo_t *end)
{
    struct rank *rank = &ranks->all[i];

    rank->is_running = false;
    rank->end_code = end->si_code;
    rank->end_status = end->si_status;
    rank->end_ns = run_clock_ns();
    ranks->n_running--;
    if (rank_has_failed(rank)) {
        /* A wrapper has died: what it wrapped dies with it. The number is ours until we reap it. */
        kill(-rank->pid, SIGKILL);
    }
}

int ranks_reap(struct ranks *ranks, int *ret_ended)
{
    int n_ended = 0;

    for (;;) {
        siginfo_t end = {.si_pid = 0};
        int i;

        if (waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0) {
            return n_ended;
        }
        i = ranks_find(ranks, end.si_pid);
        if (i >= 0) {
            rank_ended(ranks, i, &end);
            ret_ended[n_ended] = i;
            n_ended++;
        }
        waitid(P_PID, (id_t)end.si_pid, &end, WEXITED | WNOHANG);
    }
}

void ranks_signal(const struct ranks *ranks, int number)
{
    int i;

    for (i = 0; i < ranks->n_ranks; i++) {
        if (ranks->all[i].is_running) {
            kill(-ranks->all[i].pid, number);
        }
    }
}

void ranks_end(struct ranks *ranks, int number)
{
    int i;

    for (i = 0; i < ranks->n_ranks; i++) {
        if (ranks->all[i].is_running) {
            ranks->all[i].end_sent = number;
        }
    }
    ranks_signal(ranks, number);
    ranks_signal(ranks, SIGCONT); /* a stopped process hears SIGTERM only when it goes on */
}

bool rank_has_failed(const struct rank *rank)
{
    return rank->pid > 0 && !rank->is_running &&
           (rank->end_code != CLD_EXITED || rank->end_status != 0);
}

bool rank_was_ended(const struct rank *rank)
{
    return rank_has_failed(rank) && rank->end_code != CLD_EXITED && rank->end_sent != 0 &&
           (rank->end_status == SIGTERM || rank->end_status == rank->end_sent);
}

int rank_exit_status(const struct rank *rank)
{
    return rank->end_code == CLD_EXITED ? rank->end_status : RUN_EXIT_SIGNAL + rank->end_status;
}

void rank_describe_end(const struct rank *rank, char *ret_text, size_t text_bytes)
{
    if (rank->end_code == CLD_EXITED) {
        snprintf(ret_text, text_bytes, "exited with status %d", rank->end_status);
    } else if (rank_was_ended(rank)) {
        snprintf(ret_text, text_bytes, "was ended by hsdp-run with %s",
                 rank->end_status == SIGTERM ? "SIGTERM" : "SIGKILL");
    } else {
        snprintf(ret_text, text_bytes, "was killed by signal %d (%s)%s", rank->end_status,
                 strsignal(rank->end_status), rank->end_code == CLD_DUMPED ? ", core dumped" : "");
    }
}

bool rank_is_alike(const struct rank *rank, const struct rank *other)
{
    if (rank->is_running || other->is_running) {
        return rank->is_running && other->is_running;
    }
    return rank->end_code == other->end_code && rank->end_status == other->end_status &&
           rank_was_ended(rank) == rank_was_ended(other);
}

void ranks_describe_alike(const struct ranks *ranks, const struct rank *like, char *ret_text,
                          size_t text_bytes)
{
    size_t length = 0;
    int first = 0;

    ret_text[0] = '\0';
    while (first < ranks->n_ranks) {
        int last = first;
        char part[32];

        if (!rank_is_alike(&ranks->all[first], like)) {
            first++;
            continue;
        }
        while (last + 1 < ranks->n_ranks && rank_is_alike(&ranks->all[last + 1], like)) {
            last++;
        }
        if (last > first) {
            snprintf(part, sizeof(part), "%d-%d", ranks->first_rank + first,
                     ranks->first_rank + last);
        } else {
            snprintf(part, sizeof(part), "%d", ranks->first_rank + first);
        }
        if (length + strlen(part) + sizeof(", , ...") > text_bytes) {
            snprintf(ret_text + length, text_bytes - length, ", ...");
            return;
        }
        length += (size_t)snprintf(ret_text + length, text_bytes - length, "%s%s",
                                   length > 0 ? ", " : "", part);
        first = last + 1;
    }
}

void ranks_describe_running(const struct ranks *ranks, char *ret_text, size_t text_bytes)
{
    const struct rank running = {.is_running = true};

    ranks_describe_alike(ranks, &running, ret_text, text_bytes);
}
