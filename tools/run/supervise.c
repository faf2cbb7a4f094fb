/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching the ranks: one loop over signals, deadlines and output. Once a rank has failed the run
 * goes through the phases of supervise.h, each with a deadline, until no rank is left.
 */
#include "supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"
#include "signals.h"

#define SUPERVISE_REPORT_NS (2 * RUN_NS_PER_S)  /* a lost peer is noticed within one second */
#define SUPERVISE_KILL_NS   (10 * RUN_NS_PER_S) /* then the kernel holds what does not die */
#define SUPERVISE_FLUSH_NS  RUN_NS_PER_S
#define SUPERVISE_NEVER     INT64_MAX
#define SUPERVISE_LIST_SIZE 80

void supervise_init(struct supervisor *supervisor, const struct options *options,
                    struct ranks *ranks, struct output *output, int signal_fd)
{
    int64_t now = run_clock_ns();

    *supervisor = (struct supervisor){
        .options = options,
        .ranks = ranks,
        .output = output,
        .report = {.output = output, .ranks = ranks, .start_ns = now, .first_failed = -1},
        .signal_fd = signal_fd,
        .phase_end_ns = SUPERVISE_NEVER,
        .run_end_ns = options->timeout_ns > 0 ? now + options->timeout_ns : SUPERVISE_NEVER,
    };
    supervisor->ended = run_realloc(NULL, (size_t)ranks->n_ranks * sizeof(supervisor->ended[0]));
    supervisor->polled =
        run_realloc(NULL, (1 + output_max_polled(output)) * sizeof(supervisor->polled[0]));
}

void supervise_fini(struct supervisor *supervisor)
{
    free(supervisor->ended);
    free(supervisor->polled);
}

static void phase_enter(struct supervisor *supervisor, enum supervise_phase phase, int64_t for_ns)
{
    supervisor->phase = phase;
    supervisor->phase_end_ns = run_clock_ns() + for_ns;
}

static void ranks_kill(struct supervisor *supervisor)
{
    ranks_end(supervisor->ranks, SIGKILL);
    phase_enter(supervisor, SUPERVISE_KILLING, SUPERVISE_KILL_NS);
}

/* Which of several that were found at once failed first: a killed rank makes others fail. */
static int first_choose(const struct supervisor *supervisor, int n_ended)
{
    const struct rank *all = supervisor->ranks->all;
    int first = -1;
    int i;

    for (i = 0; i < n_ended; i++) {
        int rank = supervisor->ended[i];

        if (rank_has_failed(&all[rank]) && (first < 0 || (all[first].end_code == CLD_EXITED &&
                                                          all[rank].end_code != CLD_EXITED))) {
            first = rank;
        }
    }
    return first;
}

static void children_take(struct supervisor *supervisor)
{
    int n_ended = ranks_reap(supervisor->ranks, supervisor->ended);
    bool is_first = supervisor->report.first_failed < 0;
    int first = first_choose(supervisor, n_ended);
    int i;

    for (i = 0; i < n_ended; i++) {
        output_rank_drain(supervisor->output, supervisor->ended[i], false);
    }
    if (is_first && first >= 0) {
        supervisor->report.first_failed = first;
        report_failure(&supervisor->report, first);
    }
    for (i = 0; supervisor->options->keep_going && i < n_ended; i++) {
        if (supervisor->ended[i] != supervisor->report.first_failed) {
            report_failure(&supervisor->report, supervisor->ended[i]);
        }
    }
    if (first >= 0 && supervisor->phase == SUPERVISE_RUNNING && !supervisor->options->keep_going) {
        int64_t grace = supervisor->options->grace_ns;

        phase_enter(supervisor, SUPERVISE_REPORTING,
                    grace < SUPERVISE_REPORT_NS ? grace : SUPERVISE_REPORT_NS);
    }
}

/* Stops with the ranks, so that a shell's fg brings all of them back. */
static void stop_all(const struct supervisor *supervisor)
{
    ranks_signal(supervisor->ranks, SIGSTOP);
    raise(SIGSTOP);
    ranks_signal(supervisor->ranks, SIGCONT);
}

static void interrupt_twice(struct supervisor *supervisor)
{
    output_say(supervisor->output, "interrupted again; killing %d of %d ranks%s",
               supervisor->ranks->n_running, supervisor->ranks->n_ranks,
               supervisor->options->node_text);
    supervisor->forced_status = RUN_EXIT_SIGNAL + SIGINT;
    ranks_kill(supervisor);
}

static void signal_take(struct supervisor *supervisor, int number)
{
    if (number == SIGCHLD) {
        children_take(supervisor);
        return;
    }
    if (number == SIGTSTP) {
        stop_all(supervisor);
        return;
    }
    supervisor->n_interrupts += number == SIGINT ? 1 : 0;
    if (number == SIGINT && supervisor->n_interrupts > 1) {
        interrupt_twice(supervisor);
        return;
    }
    if (signal_is_ending(number)) {
        supervisor->report.sent_on_signals |= UINT64_C(1) << number;
        output_say(supervisor->output, "signal %d (%s) goes on to %d of %d ranks%s%s", number,
                   strsignal(number), supervisor->ranks->n_running, supervisor->ranks->n_ranks,
                   supervisor->options->node_text,
                   number == SIGINT ? "; once more kills them" : "");
    }
    ranks_signal(supervisor->ranks, number);
}

static void timeout_take(struct supervisor *supervisor)
{
    char running[SUPERVISE_LIST_SIZE];

    ranks_describe_running(supervisor->ranks, running, sizeof(running));
    output_say(supervisor->output,
               "the run has taken %g s (--timeout); killing %d of %d ranks%s: %s",
               (double)supervisor->options->timeout_ns / (double)RUN_NS_PER_S,
               supervisor->ranks->n_running, supervisor->ranks->n_ranks,
               supervisor->options->node_text, running);
    supervisor->run_end_ns = SUPERVISE_NEVER;
    supervisor->forced_status = RUN_EXIT_TIMEOUT;
    ranks_kill(supervisor);
}

static void phase_end_take(struct supervisor *supervisor)
{
    char running[SUPERVISE_LIST_SIZE];

    ranks_describe_running(supervisor->ranks, running, sizeof(running));
    if (supervisor->phase == SUPERVISE_REPORTING && supervisor->options->grace_ns > 0) {
        ranks_end(supervisor->ranks, SIGTERM);
        phase_enter(supervisor, SUPERVISE_TERMINATING, supervisor->options->grace_ns);
    } else if (supervisor->phase == SUPERVISE_REPORTING) {
        ranks_kill(supervisor);
    } else if (supervisor->phase == SUPERVISE_TERMINATING) {
        output_say(supervisor->output, "still running %g s after SIGTERM (--grace), killing: %s",
                   (double)supervisor->options->grace_ns / (double)RUN_NS_PER_S, running);
        ranks_kill(supervisor);
    } else {
        output_say(supervisor->output, "these ranks do not die, the kernel holds them: %s",
                   running);
        supervisor->phase = SUPERVISE_GIVEN_UP;
    }
}

static void deadlines_take(struct supervisor *supervisor)
{
    int64_t now = run_clock_ns();

    if (supervisor->ranks->n_running == 0) {
        return;
    }
    if (now >= supervisor->run_end_ns) {
        timeout_take(supervisor);
    } else if (now >= supervisor->phase_end_ns) {
        phase_end_take(supervisor);
    }
}

/* Waits until a descriptor is ready or end_ns is reached, and takes what there is of output. */
static void output_wait(struct supervisor *supervisor, int64_t end_ns)
{
    int64_t left_ns = end_ns - run_clock_ns();
    struct timespec left = {.tv_nsec = 0};
    size_t n_polled;

    if (left_ns > 0) {
        left.tv_sec = (time_t)(left_ns / RUN_NS_PER_S);
        left.tv_nsec = (long)(left_ns % RUN_NS_PER_S);
    }
    supervisor->polled[0] = (struct pollfd){.fd = supervisor->signal_fd, .events = POLLIN};
    n_polled = 1 + output_poll_fill(supervisor->output, supervisor->polled + 1);
    if (ppoll(supervisor->polled, n_polled, end_ns == SUPERVISE_NEVER ? NULL : &left, NULL) > 0) {
        output_poll_take(supervisor->output);
    }
}

void supervise_ranks(struct supervisor *supervisor)
{
    while (supervisor->ranks->n_running > 0 && supervisor->phase != SUPERVISE_GIVEN_UP) {
        int64_t end_ns = supervisor->phase_end_ns < supervisor->run_end_ns
                             ? supervisor->phase_end_ns
                             : supervisor->run_end_ns;
        int number;

        output_wait(supervisor, end_ns);
        while ((number = signals_next(supervisor->signal_fd)) != 0) {
            signal_take(supervisor, number);
        }
        deadlines_take(supervisor);
    }
}

void supervise_output(struct supervisor *supervisor)
{
    int64_t end_ns = supervisor->run_end_ns;
    int i;

    for (i = 0; i < supervisor->ranks->n_ranks; i++) {
        output_rank_drain(supervisor->output, i, true);
    }
    sink_flush(&supervisor->output->sinks[0]);
    sink_flush(&supervisor->output->sinks[1]);
    if (supervisor->forced_status != 0) {
        end_ns = run_clock_ns() + SUPERVISE_FLUSH_NS;
    }
    while (output_pending_bytes(supervisor->output) > 0 && run_clock_ns() < end_ns) {
        int number;

        output_wait(supervisor, end_ns);
        while ((number = signals_next(supervisor->signal_fd)) != 0) {
            if (signal_is_ending(number)) {
                return;
            }
        }
    }
}

int supervise_exit_status(const struct supervisor *supervisor)
{
    int first = supervisor->report.first_failed;

    if (supervisor->forced_status != 0) {
        return supervisor->forced_status;
    }
    return first >= 0 ? rank_exit_status(&supervisor->ranks->all[first]) : 0;
}
