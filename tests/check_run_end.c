/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-run: how a run ends, by itself, by a failing rank, by a signal, by its time, by violence. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "spawn.h"
#include "suite.h"

/* The program under test is named by the variable HSDP_RUN. */
#define RUN "exec \"$HSDP_RUN\" "

/* Waits for a signal in a way that a shell's trap interrupts. */
#define WAIT "while :; do sleep 60 & wait $!; done"

static struct spawn job;

/* The one line that standard error holds, without "rank R (pid P) ", is sentence. */
static void sentence_check(int rank, const char *sentence)
{
    char expected[256];
    int pid;

    ck_assert_int_eq(sscanf(job.err, "hsdp-run: rank %*d (pid %d)", &pid), 1);
    snprintf(expected, sizeof(expected), "hsdp-run: rank %d (pid %d) %s\n", rank, pid, sentence);
    ck_assert_str_eq(job.err, expected);
}

START_TEST(end_all_ranks_succeed_is_silent_and_0)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 4 true"), 0);
    ck_assert_str_eq(job.err, "");
}
END_TEST

START_TEST(end_rank_exits_with_status_is_named_and_ends_the_others)
{
    ck_assert_int_eq(
        spawn_run(&job, RUN "-n 3 --grace=1 sh -c '[ $RANK != 1 ] || exit 3; " WAIT "'"), 3);
    sentence_check(1, "exited with status 3; ending the other 2 ranks");
}
END_TEST

START_TEST(end_rank_is_killed_is_named_and_ends_the_others)
{
    ck_assert_int_eq(
        spawn_run(&job, RUN "-n 2 --grace=1 sh -c '[ $RANK != 1 ] || kill -9 $$; " WAIT "'"),
        128 + SIGKILL);
    sentence_check(1, "was killed by signal 9 (Killed); ending the other rank");
}
END_TEST

START_TEST(end_only_rank_fails_is_named)
{
    ck_assert_int_eq(spawn_run(&job, RUN "sh -c 'kill -SEGV $$'"), 128 + SIGSEGV);
    ck_assert_int_eq(text_count(job.err, "was killed by signal 11 (Segmentation fault)"), 1);
    ck_assert_int_eq(text_count(job.err, "ending"), 0);
}
END_TEST

START_TEST(end_failure_with_log_dir_names_the_file)
{
    char folder[] = "/tmp/check_run_end.XXXXXX";
    char script[256];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(script, sizeof(script),
             "cd %s && \"$HSDP_RUN\" --log-dir=d false; s=$?; rm -r %s; "
             "exit $s",
             folder, folder);
    ck_assert_int_eq(spawn_run(&job, script), 1);
    sentence_check(0, "exited with status 1; its output is in d/rank-0.log");
}
END_TEST

START_TEST(end_survivor_has_time_to_report_by_itself)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 --prefix sh -c '[ $RANK != 0 ] || kill -9 $$; sleep "
                                         "0.1; echo peer 0 is lost >&2; exit 5'"),
                     128 + SIGKILL);
    ck_assert_int_eq(text_count(job.err, "[1] peer 0 is lost\n"), 1);
    ck_assert_int_eq(text_count(job.err, "hsdp-run: 2 of 2 ranks failed, rank 0 first:\n"), 1);
    ck_assert_int_eq(text_count(job.err, "  rank 0: was killed by signal 9 (Killed) (pid "), 1);
    ck_assert_int_eq(text_count(job.err, "  rank 1: exited with status 5 (pid "), 1);
}
END_TEST

/* All ranks ignore SIGTERM; rank 1 exits with 3 when the test sends SIGUSR1 to hsdp-run. */
#define DEAF                                                                                       \
    "sh -c 'trap \"\" TERM USR1; [ $RANK != 1 ] || trap \"exit 3\" USR1; echo ready; " WAIT "'"

START_TEST(end_survivor_that_ignores_sigterm_is_killed_after_the_grace_time)
{
    spawn_start(&job, RUN "-n 3 --grace=0.2 " DEAF);
    spawn_expect(&job, "ready\n", 3);
    kill(job.pid, SIGUSR1);
    ck_assert_int_eq(spawn_wait(&job), 3);
    ck_assert_int_eq(
        text_count(job.err, "still running 0.2 s after SIGTERM (--grace), killing: 0, 2\n"), 1);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(end_survivor_that_is_stopped_is_ended)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 --grace=20 sh -c '[ $RANK != 0 ] || kill -STOP $$; "
                                         "sleep 0.2; exit 4'"),
                     4);
    ck_assert_int_eq(text_count(job.err, "still running"), 0); /* SIGTERM was enough */
}
END_TEST

START_TEST(end_grace_of_zero_kills_at_once)
{
    spawn_start(&job, RUN "-n 3 --grace=0 " DEAF);
    spawn_expect(&job, "ready\n", 3);
    kill(job.pid, SIGUSR1);
    ck_assert_int_eq(spawn_wait(&job), 3);
    ck_assert_int_eq(text_count(job.err, "exited with status 3; ending the other 2 ranks\n"), 1);
    ck_assert_int_eq(text_count(job.err, "SIGTERM"), 0);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(end_keep_going_lets_the_others_finish)
{
    ck_assert_int_eq(spawn_run(&job,
                               RUN "-n 3 --grace=0 --keep-going sh -c '[ $RANK != 1 ] || exit "
                                   "3; sleep 0.3; echo finished'"),
                     3);
    ck_assert_int_eq(text_count(job.out, "finished"), 2);
    sentence_check(1, "exited with status 3; going on with the other 2 ranks");
}
END_TEST

START_TEST(end_table_is_in_the_order_of_ranks)
{
    const char *end = job.out;
    int i;

    spawn_start(&job, RUN "-n 4 --keep-going sh -c '[ $RANK != 3 ] || exit 13; trap \"exit "
                          "$((RANK + 10))\" USR1; echo ready; " WAIT "' 2>&1");
    spawn_expect(&job, "ready\n", 3);
    spawn_expect(&job, "hsdp-run: rank 3 (pid ", 1);
    kill(job.pid, SIGUSR1);
    ck_assert_int_eq(spawn_wait(&job), 13);
    ck_assert_int_eq(text_count(job.out, "4 of 4 ranks failed, rank 3 first:"), 1);
    for (i = 0; i < 4; i++) {
        char row[64];

        snprintf(row, sizeof(row), "  rank %d: exited with status %d (pid ", i, i + 10);
        end = strstr(end, row); /* each after the one before it */
        ck_assert_ptr_nonnull(end);
    }
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(end_all_ranks_alike_is_one_sentence)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 4 sh -c 'sleep 0.1; exit 2'"), 2);
    ck_assert_int_eq(text_count(job.err, "hsdp-run: 4 of 4 ranks exited with status 2\n"), 1);
    ck_assert_int_eq(text_count(job.err, "\n"), 2);
    ck_assert_int_eq(spawn_run(&job, RUN "-n 3 --keep-going sh -c 'kill -9 $$'"), 128 + 9);
    ck_assert_int_eq(text_count(job.err, "3 of 3 ranks: each was killed by signal 9 (Killed)\n"),
                     1);
}
END_TEST

START_TEST(end_ranks_alike_share_a_row)
{
    ck_assert_int_eq(
        spawn_run(&job, RUN "-n 20 --keep-going sh -c '[ $RANK != 4 ] || exit 0; [ $RANK != 7 ] || "
                            "kill -9 $$; sleep 0.3; exit 5'"),
        128 + SIGKILL);
    ck_assert_int_eq(text_count(job.err, "19 of 20 ranks failed, rank 7 first:\n"), 1);
    ck_assert_int_eq(
        text_count(job.err, "\n  ranks 0-3, 5-6, 8-19: exited with status 5 (after 0."), 1);
    ck_assert_int_eq(text_count(job.err, "\n  rank 7: was killed by signal 9 (Killed) (pid "), 1);
    ck_assert_int_eq(text_count(job.err, "\n  rank"), 2);
}
END_TEST

START_TEST(end_quiet_says_nothing)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-q -n 2 sh -c 'echo o; exit 3'"), 3);
    ck_assert_str_eq(job.out, "o\no\n");
    ck_assert_str_eq(job.err, "");
}
END_TEST

static const struct {
    int number;
    const char *name;
} forwarded[] = {
    {SIGINT, "INT"},   {SIGTERM, "TERM"}, {SIGHUP, "HUP"},
    {SIGQUIT, "QUIT"}, {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"},
};

START_TEST(signal_goes_on_to_all_ranks)
{
    char script[256];

    snprintf(script, sizeof(script),
             RUN "-n 3 sh -c 'trap \"echo heard; exit 0\" %s; echo ready; " WAIT "'",
             forwarded[_i].name);
    spawn_start(&job, script);
    spawn_expect(&job, "ready\n", 3);
    kill(job.pid, forwarded[_i].number);
    ck_assert_int_eq(spawn_wait(&job), 0);
    ck_assert_int_eq(text_count(job.out, "heard\n"), 3);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(signal_reaches_the_program_behind_a_wrapper)
{
    spawn_start(&job, RUN "-n 2 sh -c 'trap : USR1; sh -c \"trap \\\"echo heard; exit 0\\\" USR1; "
                          "echo ready; while :; do sleep 60 & wait \\$!; done\"; true'");
    spawn_expect(&job, "ready\n", 2);
    kill(job.pid, SIGUSR1);
    ck_assert_int_eq(spawn_wait(&job), 0);
    ck_assert_int_eq(text_count(job.out, "heard\n"), 2);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(signal_that_ends_all_ranks_is_no_failure_of_theirs)
{
    spawn_start(&job, RUN "-n 3 sh -c 'echo ready; " WAIT "'");
    spawn_expect(&job, "ready\n", 3);
    kill(job.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&job), 128 + SIGTERM);
    ck_assert_str_eq(job.err, "hsdp-run: signal 15 (Terminated) goes on to 3 of 3 ranks\n");
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(signal_ignored_at_the_start_stays_ignored)
{
    spawn_start(&job, "trap '' HUP; " RUN "sh -c 'echo ready; " WAIT "'");
    spawn_expect(&job, "ready\n", 1);
    kill(job.pid, SIGHUP);
    kill(job.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&job), 128 + SIGTERM);
    ck_assert_str_eq(job.err, "hsdp-run: signal 15 (Terminated) goes on to 1 of 1 ranks\n");
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(signal_second_interrupt_kills)
{
    spawn_start(&job, RUN "-n 2 sh -c 'trap \"echo heard\" INT; echo ready; " WAIT "'");
    spawn_expect(&job, "ready\n", 2);
    kill(job.pid, SIGINT);
    spawn_expect(&job, "heard\n", 2);
    kill(job.pid, SIGINT);
    ck_assert_int_eq(spawn_wait(&job), 128 + SIGINT);
    ck_assert_int_eq(text_count(job.err, "interrupted again; killing 2 of 2 ranks\n"), 1);
    spawn_expect_alive(&job, 0);
}
END_TEST

/* Whether the process is stopped, by /proc. */
static bool is_stopped(int pid)
{
    char path[64];
    char state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (file != NULL) {
        ck_assert_int_eq(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
        fclose(file);
    }
    return state == 'T';
}

START_TEST(signal_stop_stops_the_ranks_too_until_they_are_continued)
{
    struct timespec pause = {.tv_nsec = 1000 * 1000};
    int rank;
    int state;

    spawn_start(&job, RUN "sh -c 'trap \"echo heard; exit 0\" CONT; echo pid $$; " WAIT "'");
    spawn_expect(&job, "\n", 1);
    ck_assert_int_eq(sscanf(job.out, "pid %d", &rank), 1);
    kill(job.pid, SIGTSTP);
    ck_assert_int_eq(waitpid(job.pid, &state, WUNTRACED), job.pid);
    ck_assert(WIFSTOPPED(state));
    while (!is_stopped(rank)) { /* until the test's own time limit */
        nanosleep(&pause, NULL);
    }
    kill(job.pid, SIGCONT);
    ck_assert_int_eq(spawn_wait(&job), 0);
    ck_assert_int_eq(text_count(job.out, "heard\n"), 1);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(timeout_kills_and_says_which_ranks_ran)
{
    time_t start = time(NULL);

    ck_assert_int_eq(spawn_run(&job, RUN "-n 5 --timeout=1.5 sh -c 'trap \"\" TERM; [ $RANK != 1 ] "
                                         "|| exit 0; " WAIT "'"),
                     124);
    ck_assert_str_eq(job.err,
                     "hsdp-run: the run has taken 1.5 s (--timeout); killing 4 of 5 ranks: "
                     "0, 2-4\n");
    ck_assert_int_ge(time(NULL) - start, 1); /* not before its time; spawn_run bounds the rest */
}
END_TEST

START_TEST(timeout_after_a_failure_is_still_124)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 --keep-going --timeout=1 sh -c '[ $RANK != 1 ] || "
                                         "exit 3; " WAIT "'"),
                     124);
    ck_assert_int_eq(text_count(job.err, "killing 1 of 2 ranks: 0\n"), 1);
}
END_TEST

START_TEST(timeout_is_kept_while_nobody_reads_the_output)
{
    ck_assert_int_eq(
        spawn_run(&job,
                  "d=$(mktemp -d); "
                  "{ \"$HSDP_RUN\" -n 2 --prefix --timeout=0.5 yes; echo $? >&2; : >$d/end; } | "
                  "while [ ! -e $d/end ]; do sleep 0.1; done; rm -r $d"),
        0);
    ck_assert_int_eq(text_count(job.err, "\n124\n"), 1);
    ck_assert_int_eq(text_count(job.err, "bytes of output are lost"), 1);
}
END_TEST

START_TEST(reader_that_goes_away_ends_the_run)
{
    ck_assert_int_eq(
        spawn_run(&job, "{ \"$HSDP_RUN\" -n 2 --prefix yes; echo $? >&2; } | head -n 3"), 0);
    ck_assert_int_eq(text_count(job.out, "] y\n"), 3);
    ck_assert_int_eq(text_count(job.err, "(Broken pipe)") > 0, 1);
    ck_assert_int_eq(text_count(job.err, "\n141\n"), 1);
}
END_TEST

/* A rank behind a wrapper, and one process that has left its session. */
#define FAMILY "sh -c 'setsid sleep 60 & sh -c \"echo ready; sleep 60; true\"; true'"

START_TEST(leftovers_after_kill_of_hsdp_run_are_none)
{
    spawn_start(&job, RUN "-n 2 " FAMILY);
    spawn_expect(&job, "ready\n", 2);
    spawn_expect_alive(&job,
                       2 + 2 * 4); /* hsdp-run, its keeper; two shells and two sleeps a rank */
    kill(job.pid, SIGKILL);
    ck_assert_int_eq(spawn_wait(&job), 128 + SIGKILL);
    spawn_expect_alive(&job, 0);
}
END_TEST

/* The keeper that the run has started, by /proc; 0 if there is none. */
static int keeper_find(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int keeper = 0;

    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL) {
        char path[64];
        FILE *file;
        int parent;

        snprintf(path, sizeof(path), "/proc/%.20s/stat", entry->d_name);
        file = fopen(path, "r");
        if (file != NULL) {
            if (fscanf(file, "%*d (hsdp-keeper) %*c %d", &parent) == 1 && parent == job.pid) {
                keeper = atoi(entry->d_name);
            }
            fclose(file);
        }
    }
    closedir(folder);
    return keeper;
}

START_TEST(leftovers_after_kill_of_hsdp_run_and_its_keeper_are_no_ranks)
{
    int keeper;

    spawn_start(&job, RUN "-n 3 sh -c 'echo ready; exec sleep 60'");
    spawn_expect(&job, "ready\n", 3);
    keeper = keeper_find();
    ck_assert_int_gt(keeper, 0);
    kill(keeper, SIGKILL);
    spawn_expect_alive(&job, 1 + 3);
    kill(job.pid, SIGKILL);
    ck_assert_int_eq(spawn_wait(&job), 128 + SIGKILL);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(leftovers_after_kill_of_an_outer_hsdp_run_are_none)
{
    spawn_start(&job, RUN "-n 2 \"$HSDP_RUN\" -n 2 " FAMILY);
    spawn_expect(&job, "ready\n", 4);
    spawn_expect_alive(&job, 2 + 2 * (2 + 2 * 4));
    kill(job.pid, SIGKILL);
    ck_assert_int_eq(spawn_wait(&job), 128 + SIGKILL);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(leftovers_after_kill_of_a_wrapper_are_none_while_the_run_goes_on)
{
    const char *found;
    int wrapper;

    spawn_start(&job, RUN "-n 2 --keep-going sh -c 'echo pid $RANK $$.; sh -c \"echo ready; sleep "
                          "60; true\"; true'");
    spawn_expect(&job, "ready\n", 2);
    spawn_expect_alive(&job, 2 + 2 * 3); /* hsdp-run, its keeper; wrapper, program, sleep */
    found = strstr(job.out, "pid 0 ");
    ck_assert_ptr_nonnull(found);
    ck_assert_int_eq(sscanf(found, "pid 0 %d.", &wrapper), 1);
    kill(wrapper, SIGKILL);
    spawn_expect_alive(&job, 2 + 3);
    kill(job.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&job), 128 + SIGKILL);
    spawn_expect_alive(&job, 0);
}
END_TEST

START_TEST(leftovers_of_ranks_that_succeed_are_none)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 sh -c 'setsid sleep 60 & env -i setsid sleep 60 & "
                                         "sleep 0.2'"),
                     0);
    ck_assert_int_eq(text_count(job.err, "do not die"), 0);
}
END_TEST

START_TEST(leftovers_are_not_what_was_there_before)
{
    spawn_start(&job, "sleep 50 & echo pid $!; " RUN "sh -c 'setsid sleep 60 & sleep 0.2'");
    ck_assert_int_eq(spawn_wait(&job), 0);
    spawn_expect_alive(&job, 1);
    ck_assert_int_eq(strncmp(job.out, "pid ", 4), 0);
    kill(atoi(job.out + 4), SIGKILL);
    spawn_expect_alive(&job, 0);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("run_end");
    TCase *end = tcase_create("end");
    TCase *signals = tcase_create("signals");
    TCase *violence = tcase_create("violence");

    tcase_set_timeout(end, 60);
    tcase_add_test(end, end_all_ranks_succeed_is_silent_and_0);
    tcase_add_test(end, end_rank_exits_with_status_is_named_and_ends_the_others);
    tcase_add_test(end, end_rank_is_killed_is_named_and_ends_the_others);
    tcase_add_test(end, end_only_rank_fails_is_named);
    tcase_add_test(end, end_failure_with_log_dir_names_the_file);
    tcase_add_test(end, end_survivor_has_time_to_report_by_itself);
    tcase_add_test(end, end_survivor_that_ignores_sigterm_is_killed_after_the_grace_time);
    tcase_add_test(end, end_survivor_that_is_stopped_is_ended);
    tcase_add_test(end, end_grace_of_zero_kills_at_once);
    tcase_add_test(end, end_keep_going_lets_the_others_finish);
    tcase_add_test(end, end_table_is_in_the_order_of_ranks);
    tcase_add_test(end, end_all_ranks_alike_is_one_sentence);
    tcase_add_test(end, end_ranks_alike_share_a_row);
    tcase_add_test(end, end_quiet_says_nothing);
    suite_add_tcase(suite, end);

    tcase_set_timeout(signals, 60);
    tcase_add_loop_test(signals, signal_goes_on_to_all_ranks, 0,
                        (int)(sizeof(forwarded) / sizeof(forwarded[0])));
    tcase_add_test(signals, signal_reaches_the_program_behind_a_wrapper);
    tcase_add_test(signals, signal_that_ends_all_ranks_is_no_failure_of_theirs);
    tcase_add_test(signals, signal_ignored_at_the_start_stays_ignored);
    tcase_add_test(signals, signal_second_interrupt_kills);
    tcase_add_test(signals, signal_stop_stops_the_ranks_too_until_they_are_continued);
    suite_add_tcase(suite, signals);

    tcase_set_timeout(violence, 60);
    tcase_add_test(violence, timeout_kills_and_says_which_ranks_ran);
    tcase_add_test(violence, timeout_after_a_failure_is_still_124);
    tcase_add_test(violence, timeout_is_kept_while_nobody_reads_the_output);
    tcase_add_test(violence, reader_that_goes_away_ends_the_run);
    tcase_add_test(violence, leftovers_after_kill_of_hsdp_run_are_none);
    tcase_add_test(violence, leftovers_after_kill_of_hsdp_run_and_its_keeper_are_no_ranks);
    tcase_add_test(violence, leftovers_after_kill_of_an_outer_hsdp_run_are_none);
    tcase_add_test(violence, leftovers_after_kill_of_a_wrapper_are_none_while_the_run_goes_on);
    tcase_add_test(violence, leftovers_of_ranks_that_succeed_are_none);
    tcase_add_test(violence, leftovers_are_not_what_was_there_before);
    suite_add_tcase(suite, violence);
    return suite;
}
