/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-run on several nodes: what each gives to its ranks, what is refused, tokens. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spawn.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The program under test is named by the variable HSDP_RUN. */
#define RUN "exec \"$HSDP_RUN\" "

/* One of two nodes, up to its number. */
#define NODE "\"$HSDP_RUN\" -n 2 --nnodes=2 --master-addr=node0 --master-port=29500 --node-rank="

static struct spawn job;

/* A folder of the test's own, which is the working directory of what it starts. */
static char folder[] = "/tmp/check_run_nodes.XXXXXX";

static void folder_make(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static void folder_remove(void)
{
    char command[64];

    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Each: what is wrong, and the sentence that says so. */
static const struct {
    const char *options;
    const char *sentence;
} bad_inputs[] = {
    {"--nnodes=0", "--nnodes is '0'; allowed is a whole number from 1 to 65536"},
    {"--nnodes=1:4", "--nnodes is '1:4'; allowed is a whole number from 1 to 65536"},
    {"--nnodes=''", "--nnodes is ''; allowed is a whole number from 1 to 65536"},
    {"--node-rank=-1", "--node-rank is '-1'; allowed is a whole number from 0 to 65535"},
    {"--node-rank=1", "--node-rank is 1, but --nnodes is 1: nodes count from 0"},
    {"--nnodes=2 --node-rank=2 --master-addr=a --master-port=1",
     "--node-rank is 2, but --nnodes is 2: nodes count from 0"},
    {"--nnodes=2 --master-addr=a --master-port=1",
     "--nnodes is 2, so --node-rank is needed; 'hsdp-run --help' says what it is"},
    {"--nnodes=2 --node-rank=0 --master-port=1",
     "--nnodes is 2, so --master-addr is needed; 'hsdp-run --help' says what it is"},
    {"--nnodes=2 --node-rank=0 --master-addr=a",
     "--nnodes is 2, so --master-port is needed; 'hsdp-run --help' says what it is"},
    {"--master-port=0", "--master-port is '0'; allowed is a whole number from 1 to 65535"},
    {"--master-port=65536", "--master-port is '65536'; allowed is a whole number from 1 to 65535"},
    {"--master-addr=''", "--master-addr is ''; allowed is the name or address of a host"},
    {"--master-addr='a b'", "--master-addr is 'a b'; allowed is the name or address of a host"},
    {"--run-id=''", "--run-id is ''; allowed are 1 to 64 characters without blanks"},
    {"--run-id='a b'", "--run-id is 'a b'; allowed are 1 to 64 characters without blanks"},
    {"-x HSDP_NODE_RANK=1",
     "--env is 'HSDP_NODE_RANK=1'; HSDP_NODE_RANK is set by hsdp-run itself, "
     "any other variable is allowed"},
    {"-x HSDP_RUN_MARK=1",
     "--env is 'HSDP_RUN_MARK=1'; HSDP_RUN_MARK is set by hsdp-run itself, any "
     "other variable is allowed"},
    {"--token-file=none", "--token-file: cannot read 'none': No such file or directory"},
    {"--token-file=.", "--token-file: '.' is no file of 32 bytes or 64 hexadecimal digits"},
    {"--rdzv-backend=c10d",
     "there is no option '--rdzv-backend=c10d'; 'hsdp-run --help' lists those allowed"},
};

START_TEST(options_bad_input_is_one_sentence_and_status_2)
{
    char script[256];
    char expected[256];

    snprintf(script, sizeof(script), RUN "%s echo started", bad_inputs[_i].options);
    ck_assert_int_eq(spawn_run(&job, script), 2);
    snprintf(expected, sizeof(expected), "hsdp-run: %s\n", bad_inputs[_i].sentence);
    ck_assert_str_eq(job.err, expected);
    ck_assert_str_eq(job.out, "");
}
END_TEST

/* ------------------------------------------------------------------------- what ranks get */

START_TEST(environment_of_the_second_node_counts_on)
{
    ck_assert_int_eq(spawn_run(&job, NODE "1 sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK "
                                          "$LOCAL_WORLD_SIZE $GROUP_RANK $HSDP_NODE_RANK "
                                          "$GROUP_WORLD_SIZE $MASTER_ADDR $MASTER_PORT'"),
                     0);
    ck_assert_int_eq(text_count(job.out, "\n"), 2);
    ck_assert_int_eq(text_count(job.out, "2 4 0 2 1 1 2 node0 29500\n"), 1);
    ck_assert_int_eq(text_count(job.out, "3 4 1 2 1 1 2 node0 29500\n"), 1);
}
END_TEST

START_TEST(environment_of_two_nodes_has_one_id_and_two_marks)
{
    char marks[2][64];

    ck_assert_int_eq(spawn_run(&job,
                               NODE "0 sh -c 'echo $HSDP_RUN_ID $HSDP_RUN_MARK' | sort -u; " //
                               NODE "1 sh -c 'echo $HSDP_RUN_ID $HSDP_RUN_MARK' | sort -u"),
                     0);
    ck_assert_int_eq(text_count(job.out, "\n"), 2);
    ck_assert_int_eq(sscanf(job.out, "node0:29500 %63s\nnode0:29500 %63s", marks[0], marks[1]), 2);
    ck_assert_str_ne(marks[0], marks[1]);
}
END_TEST

START_TEST(environment_run_id_tells_runs_at_one_place_apart)
{
    ck_assert_int_eq(spawn_run(&job, NODE "0 --run-id=second sh -c 'echo $HSDP_RUN_ID' | sort -u; "
                                          "\"$HSDP_RUN\" --run-id=x sh -c 'echo $HSDP_RUN_ID | "
                                          "sed s/:[0-9]*/:/'"),
                     0);
    ck_assert_str_eq(job.out, "node0:29500/second\n127.0.0.1:/x\n");
}
END_TEST

START_TEST(environment_of_one_node_may_name_its_port)
{
    ck_assert_int_eq(spawn_run(&job, RUN "--master-port=4711 --node-rank=0 sh -c 'echo "
                                         "$MASTER_ADDR $MASTER_PORT $HSDP_NODE_RANK'"),
                     0);
    ck_assert_str_eq(job.out, "127.0.0.1 4711 0\n");
}
END_TEST

START_TEST(input_goes_to_rank_0_of_the_job_only)
{
    ck_assert_int_eq(spawn_run(&job, "echo typed | " NODE "1 cat"), 0);
    ck_assert_str_eq(job.out, "");
    ck_assert_int_eq(spawn_run(&job, "echo typed | " NODE "0 cat"), 0);
    ck_assert_str_eq(job.out, "typed\n");
}
END_TEST

START_TEST(output_of_the_second_node_is_named_by_rank)
{
    ck_assert_int_eq(spawn_run(&job, NODE "1 --prefix --log-dir=logs echo here; ls logs"), 0);
    ck_assert_int_eq(text_count(job.out, "[2] here\n"), 1);
    ck_assert_int_eq(text_count(job.out, "[3] here\n"), 1);
    ck_assert_int_eq(text_count(job.out, "rank-2.log\nrank-3.log\n"), 1);
    ck_assert_int_eq(text_count(job.out, "\n"), 4);
}
END_TEST

/* ------------------------------------------------------------------------- how it ends */

/* Waits for a signal in a way that a shell's trap interrupts. */
#define WAIT "while :; do sleep 60 & wait $!; done"

START_TEST(end_of_a_rank_is_named_by_its_number_in_the_job)
{
    char expected[128];
    int pid;

    ck_assert_int_eq(spawn_run(&job, NODE "1 --grace=1 sh -c '[ $RANK != 3 ] || exit 3; " WAIT "'"),
                     3);
    ck_assert_int_eq(sscanf(job.err, "hsdp-run: rank 3 (pid %d)", &pid), 1);
    snprintf(expected, sizeof(expected),
             "hsdp-run: rank 3 (pid %d) exited with status 3; ending the other rank of node 1\n",
             pid);
    ck_assert_str_eq(job.err, expected);
}
END_TEST

START_TEST(end_of_all_ranks_names_the_node)
{
    int status = spawn_run(&job, NODE "1 --keep-going sh -c 'exit $RANK'");

    ck_assert_int_ge(status, 2); /* of whichever failed first */
    ck_assert_int_le(status, 3);
    ck_assert_ptr_nonnull(strstr(job.err, "2 of 2 ranks of node 1 failed, rank "));
    ck_assert_ptr_nonnull(strstr(job.err, "  rank 2: exited with status 2 (pid "));
    ck_assert_ptr_nonnull(strstr(job.err, "  rank 3: exited with status 3 (pid "));
}
END_TEST

/* Both nodes on one machine share the run's id; the keeper of one must not end the other's. */
START_TEST(end_of_one_hsdp_run_by_kill_leaves_the_other_node_alone)
{
    spawn_start(&job, NODE "0 sh -c 'echo up; " WAIT "' & echo $! >killed; " //
                NODE "1 sh -c 'trap \"exit 0\" USR1; echo up; " WAIT "' & "
                           "echo $! >other; wait $(cat killed); echo killed $?; "
                           "wait $(cat other); echo other $?");
    spawn_expect(&job, "up\n", 4);
    spawn_expect_alive(&job, 13); /* the script; twice hsdp-run, keeper, 2 ranks and their sleeps */
    ck_assert_int_eq(system("kill -9 $(cat killed)"), 0);
    spawn_expect(&job, "killed 137\n", 1);
    spawn_expect_alive(&job, 7);
    ck_assert_int_eq(system("kill -USR1 $(cat other)"), 0);
    ck_assert_int_eq(spawn_wait(&job), 0);
    ck_assert_int_eq(text_count(job.out, "other 0\n"), 1);
}
END_TEST

/* ----------------------------------------------------------------------------- tokens */

START_TEST(token_made_is_32_random_bytes_of_the_owner)
{
    struct stat file;

    ck_assert_int_eq(spawn_run(&job, "umask 0; \"$HSDP_RUN\" --make-token=one && \"$HSDP_RUN\" "
                                     "--make-token two && ! cmp -s one two"),
                     0);
    ck_assert_str_eq(job.out, "");
    ck_assert_str_eq(job.err, "");
    ck_assert_int_eq(stat("one", &file), 0);
    ck_assert_int_eq(file.st_size, 32);
    ck_assert_uint_eq(file.st_mode & 07777, 0600);
}
END_TEST

START_TEST(token_that_is_there_is_not_overwritten)
{
    ck_assert_int_eq(spawn_run(&job, "echo mine >old; ln -s new link; " RUN "--make-token=old"), 2);
    ck_assert_str_eq(job.err, "hsdp-run: --make-token: cannot make 'old': File exists\n");
    ck_assert_int_eq(spawn_run(&job, "cat old; " RUN "--make-token=link"), 2);
    ck_assert_str_eq(job.out, "mine\n");
    ck_assert_int_ne(access("new", F_OK), 0);
}
END_TEST

START_TEST(token_file_is_given_to_the_ranks_by_its_whole_name)
{
    char expected[128];

    ck_assert_int_eq(spawn_run(&job, "\"$HSDP_RUN\" --make-token=t; " RUN
                                     "--token-file=t sh -c 'cd /; echo $HSDP_TOKEN_FILE'"),
                     0);
    snprintf(expected, sizeof(expected), "%s/t\n", folder);
    ck_assert_str_eq(job.out, expected);
}
END_TEST

START_TEST(token_file_of_digits_is_taken)
{
    ck_assert_int_eq(spawn_run(&job, "umask 077; printf '%064d\\n' 7 >t; " RUN
                                     "--token-file=t sh -c 'basename $HSDP_TOKEN_FILE'"),
                     0);
    ck_assert_str_eq(job.out, "t\n");
}
END_TEST

START_TEST(token_file_that_is_none_is_refused)
{
    ck_assert_int_eq(spawn_run(&job, "echo short >t; chmod 600 t; " RUN "--token-file=t true"), 2);
    ck_assert_str_eq(job.err, "hsdp-run: --token-file: 't' is no file of 32 bytes or 64 "
                              "hexadecimal digits\n");
    ck_assert_int_eq(spawn_run(&job, "rm t; \"$HSDP_RUN\" --make-token=t; chmod 640 t; " RUN
                                     "--token-file=t true"),
                     2);
    ck_assert_str_eq(job.err,
                     "hsdp-run: --token-file: others may use 't' (mode 0640); allowed is 0600\n");
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("run_nodes");
    TCase *tcase = tcase_create("run_nodes");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, folder_make, folder_remove);
    tcase_add_loop_test(tcase, options_bad_input_is_one_sentence_and_status_2, 0,
                        (int)COUNT(bad_inputs));
    tcase_add_test(tcase, environment_of_the_second_node_counts_on);
    tcase_add_test(tcase, environment_of_two_nodes_has_one_id_and_two_marks);
    tcase_add_test(tcase, environment_run_id_tells_runs_at_one_place_apart);
    tcase_add_test(tcase, environment_of_one_node_may_name_its_port);
    tcase_add_test(tcase, input_goes_to_rank_0_of_the_job_only);
    tcase_add_test(tcase, output_of_the_second_node_is_named_by_rank);
    tcase_add_test(tcase, end_of_a_rank_is_named_by_its_number_in_the_job);
    tcase_add_test(tcase, end_of_all_ranks_names_the_node);
    tcase_add_test(tcase, end_of_one_hsdp_run_by_kill_leaves_the_other_node_alone);
    tcase_add_test(tcase, token_made_is_32_random_bytes_of_the_owner);
    tcase_add_test(tcase, token_that_is_there_is_not_overwritten);
    tcase_add_test(tcase, token_file_is_given_to_the_ranks_by_its_whole_name);
    tcase_add_test(tcase, token_file_of_digits_is_taken);
    tcase_add_test(tcase, token_file_that_is_none_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
