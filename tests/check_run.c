/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-run: bad input, what it gives to the ranks, and what becomes of their output. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spawn.h"
#include "suite.h"

/* The program under test is named by the variable HSDP_RUN. */
#define RUN "exec \"$HSDP_RUN\" "

static struct spawn job;

/* A folder of the test's own, which is the working directory of what it starts. */
static char folder[] = "/tmp/check_run.XXXXXX";

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

static void file_write(const char *name, const char *text, int mode)
{
    int fd = open(name, O_WRONLY | O_CREAT, mode);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
}

/* Each: what is wrong, and the sentence that says so. */
static const struct {
    const char *script;
    const char *sentence;
} bad_inputs[] = {
    {RUN "-n 0 echo started", "--ranks is '0'; allowed is a whole number from 1 to 1024"},
    {RUN "-n 1025 echo started", "--ranks is '1025'; allowed is a whole number from 1 to 1024"},
    {RUN "--ranks=2x echo started", "--ranks is '2x'; allowed is a whole number from 1 to 1024"},
    {RUN "-n ' 2' echo started", "--ranks is ' 2'; allowed is a whole number from 1 to 1024"},
    {RUN "-n '' echo started", "--ranks is ''; allowed is a whole number from 1 to 1024"},
    {RUN "-n 99999999999999999999 echo started",
     "--ranks is '99999999999999999999'; allowed is a whole number from 1 to 1024"},
    {RUN "--timeout=0 echo started",
     "--timeout is '0'; allowed is a number of seconds from 0.001 to 31536000"},
    {RUN "--timeout=1s echo started",
     "--timeout is '1s'; allowed is a number of seconds from 0.001 to 31536000"},
    {RUN "--timeout=nan echo started",
     "--timeout is 'nan'; allowed is a number of seconds from 0.001 to 31536000"},
    {RUN "--grace=-1 echo started",
     "--grace is '-1'; allowed is a number of seconds from 0 to 31536000"},
    {RUN "-x KEY echo started", "--env is 'KEY'; allowed is KEY=VALUE"},
    {RUN "-x =1 echo started", "--env is '=1'; allowed is KEY=VALUE"},
    {RUN "-x RANK=1 echo started",
     "--env is 'RANK=1'; RANK is set by hsdp-run itself, any other variable is allowed"},
    {RUN "--frobnicate echo started",
     "there is no option '--frobnicate'; 'hsdp-run --help' lists those allowed"},
    {RUN "-Z echo started", "there is no option '-Z'; 'hsdp-run --help' lists those allowed"},
    {RUN "--quiet=1 echo started",
     "option '--quiet=1' takes no value; 'hsdp-run --help' lists what is allowed"},
    {RUN "-n", "option '-n' needs a value; 'hsdp-run --help' says which"},
    {RUN "-np", "option '-np' needs a value; 'hsdp-run --help' says which"},
    {RUN "-np 0 echo started", "--ranks is '0'; allowed is a whole number from 1 to 1024"},
    {RUN "-n p echo started", "--ranks is 'p'; allowed is a whole number from 1 to 1024"},
    {RUN "-n 2 --", "no program is given; usage: hsdp-run [OPTION...] [--] PROGRAM [ARGUMENT...]"},
    {RUN "--log-dir=no/such echo started",
     "--log-dir: cannot make the directory 'no/such': No such file or directory"},
    {RUN "--log-dir='' echo started", "--log-dir is empty; allowed is the name of a directory"},
};

START_TEST(options_bad_input_is_one_sentence_and_status_2)
{
    char expected[256];

    ck_assert_int_eq(spawn_run(&job, bad_inputs[_i].script), 2);
    snprintf(expected, sizeof(expected), "hsdp-run: %s\n", bad_inputs[_i].sentence);
    ck_assert_str_eq(job.err, expected);
    ck_assert_str_eq(job.out, "");
}
END_TEST

START_TEST(options_help_and_version_are_printed)
{
    ck_assert_int_eq(spawn_run(&job, RUN "--help"), 0);
    ck_assert_int_eq(text_count(job.out, "Usage: hsdp-run "), 1);
    ck_assert_int_eq(spawn_run(&job, RUN "--version"), 0);
    ck_assert_int_eq(text_count(job.out, "hsdp-run (libhsdp) "), 1);
    ck_assert_int_eq(spawn_run(&job, RUN "--help >/dev/full"), 125);
}
END_TEST

START_TEST(options_ranks_may_be_given_as_mpirun_does)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-q -np 3 --prefix echo started"), 0);
    ck_assert_int_eq(text_count(job.out, "] started\n"), 3);
    ck_assert_int_eq(spawn_run(&job, RUN "-np3 echo started"), 2);
}
END_TEST

START_TEST(options_after_the_program_are_its_own)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 echo -n 3 --prefix"), 0);
    ck_assert_str_eq(job.out, "3 --prefix3 --prefix");
    ck_assert_int_eq(spawn_run(&job, RUN "-- echo --"), 0);
    ck_assert_str_eq(job.out, "--\n");
}
END_TEST

START_TEST(program_missing_is_127)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 4 no-such-program"), 127);
    ck_assert_str_eq(job.err, "hsdp-run: there is no program 'no-such-program' along PATH\n");
    ck_assert_int_eq(spawn_run(&job, RUN "./no-such-program"), 127);
    ck_assert_str_eq(job.err, "hsdp-run: there is no program './no-such-program'\n");
}
END_TEST

START_TEST(program_that_cannot_run_is_126)
{
    file_write("text", "echo hello\n", 0755);
    file_write("script", "#!/no/such/shell\n", 0755);
    ck_assert_int_eq(spawn_run(&job, RUN "/"), 126);
    ck_assert_str_eq(job.err, "hsdp-run: program '/' cannot be run: Is a directory\n");
    ck_assert_int_eq(spawn_run(&job, RUN "-n 3 ./text"), 126);
    ck_assert_str_eq(job.err, "hsdp-run: program './text' cannot be run: Exec format error (a "
                              "script needs a first line such as #!/bin/sh)\n");
    ck_assert_int_eq(spawn_run(&job, RUN "-n 3 ./script"), 126);
    ck_assert_int_eq(text_count(job.err, "the interpreter that it names is missing"), 1);
}
END_TEST

START_TEST(program_without_permission_is_126_unless_path_has_another)
{
    file_write("sh", "", 0644);
    ck_assert_int_eq(spawn_run(&job, RUN "./sh"), 126);
    ck_assert_str_eq(job.err, "hsdp-run: program './sh' cannot be run: Permission denied\n");
    ck_assert_int_eq(spawn_run(&job, "PATH=.:$PATH; export PATH; " RUN "sh -c 'exit 7'"), 7);
}
END_TEST

START_TEST(environment_of_three_ranks_is_as_torchrun_sets_it)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 3 --prefix sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK "
                                         "$LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
                                         "$MASTER_ADDR'"),
                     0);
    ck_assert_int_eq(text_count(job.out, "\n"), 3);
    ck_assert_int_eq(text_count(job.out, "[0] 0 3 0 3 0 1 127.0.0.1\n"), 1);
    ck_assert_int_eq(text_count(job.out, "[1] 1 3 1 3 0 1 127.0.0.1\n"), 1);
    ck_assert_int_eq(text_count(job.out, "[2] 2 3 2 3 0 1 127.0.0.1\n"), 1);
}
END_TEST

START_TEST(environment_without_number_of_ranks_is_one_rank)
{
    ck_assert_int_eq(spawn_run(&job, RUN "sh -c 'echo $RANK of $WORLD_SIZE'"), 0);
    ck_assert_str_eq(job.out, "0 of 1\n");
}
END_TEST

START_TEST(environment_ranks_share_id_and_port)
{
    char first[128];

    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 sh -c 'echo $HSDP_RUN_ID $MASTER_PORT'"), 0);
    ck_assert_int_eq(sscanf(job.out, "%127[^\n]", first), 1);
    ck_assert_uint_ge(strlen(first), 32 + strlen(" 20000"));
    ck_assert_int_eq(text_count(job.out, first), 2);
}
END_TEST

START_TEST(environment_two_runs_at_once_differ_in_id_and_port)
{
    char ids[2][64];
    int ports[2];

    ck_assert_int_eq(spawn_run(&job, RUN "sh -c 'echo $HSDP_RUN_ID $MASTER_PORT; \"$HSDP_RUN\" sh "
                                         "-c \"echo \\$HSDP_RUN_ID \\$MASTER_PORT\"'"),
                     0);
    ck_assert_int_eq(sscanf(job.out, "%63s %d\n%63s %d", ids[0], &ports[0], ids[1], &ports[1]), 4);
    ck_assert_str_ne(ids[0], ids[1]);
    ck_assert_int_ne(ports[0], ports[1]);
}
END_TEST

START_TEST(environment_threads_are_one_unless_set)
{
    ck_assert_int_eq(spawn_run(&job, "unset OMP_NUM_THREADS; " RUN "sh -c 'echo $OMP_NUM_THREADS'"),
                     0);
    ck_assert_str_eq(job.out, "1\n");
    ck_assert_int_eq(
        spawn_run(&job, "export OMP_NUM_THREADS=3; " RUN "sh -c 'echo $OMP_NUM_THREADS'"), 0);
    ck_assert_str_eq(job.out, "3\n");
}
END_TEST

START_TEST(environment_of_an_outer_torchrun_is_removed)
{
    ck_assert_int_eq(spawn_run(&job, "export TORCHELASTIC_RUN_ID=a RANK=7; " RUN
                                     "sh -c 'echo ${TORCHELASTIC_RUN_ID-none} $RANK'"),
                     0);
    ck_assert_str_eq(job.out, "none 0\n");
}
END_TEST

START_TEST(environment_by_option_wins)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-x MASTER_PORT=29500 --env=A=b=c sh -c 'echo "
                                         "$MASTER_PORT $A'"),
                     0);
    ck_assert_str_eq(job.out, "29500 b=c\n");
}
END_TEST

START_TEST(input_goes_to_rank_0_only)
{
    ck_assert_int_eq(spawn_run(&job,
                               "echo typed | \"$HSDP_RUN\" -n 3 --prefix sh -c 'cat; readlink "
                               "/proc/self/fd/0'"),
                     0);
    ck_assert_int_eq(text_count(job.out, "[0] typed\n"), 1);
    ck_assert_int_eq(text_count(job.out, "[0] pipe:"), 1);
    ck_assert_int_eq(text_count(job.out, "[1] /dev/null\n"), 1);
    ck_assert_int_eq(text_count(job.out, "[2] /dev/null\n"), 1);
    ck_assert_int_eq(text_count(job.out, "\n"), 4);
}
END_TEST

/* What a process gets from its parent, by programs that print it, each started with "$1". */
#define INHERITED                                                                                  \
    "exec 9</dev/null; trap '' HUP; ulimit -Sn 64; "                                               \
    "show() { $1 ls /proc/self/fd; $1 grep -E 'Sig(Blk|Ign)' /proc/self/status; "                  \
    "$1 sh -c 'ulimit -Sn'; }; "

START_TEST(launch_descriptors_signals_and_limits_are_those_of_the_caller)
{
    char expected[SPAWN_TEXT_BYTES];

    ck_assert_int_eq(spawn_run(&job, INHERITED "show env"), 0);
    strcpy(expected, job.out);
    ck_assert_ptr_nonnull(strstr(expected, "\n9\n"));
    ck_assert_int_eq(spawn_run(&job, INHERITED "show \"$HSDP_RUN\""), 0);
    ck_assert_str_eq(job.out, expected);
}
END_TEST

START_TEST(launch_more_ranks_than_the_soft_limit_of_files_works)
{
    ck_assert_int_eq(spawn_run(&job, "ulimit -Sn 64; " RUN "-n 100 --prefix sh -c 'ulimit -Sn'"),
                     0);
    ck_assert_int_eq(text_count(job.out, "] 64\n"), 100);
    ck_assert_int_eq(spawn_run(&job, "ulimit -n 64; " RUN "-n 100 --prefix echo started"), 125);
    ck_assert_str_eq(job.err, "hsdp-run: 100 ranks with these options need 328 open files; the "
                              "limit is 64 (ulimit -Hn)\n");
    ck_assert_str_eq(job.out, "");
}
END_TEST

START_TEST(launch_bound_ranks_share_the_cores)
{
    /* as many ranks as cores: one each, all different; one rank: all; more ranks: one each */
    ck_assert_int_eq(spawn_run(&job, "run() { \"$HSDP_RUN\" --bind-cores -n \"$@\" | sort -u; }; "
                                     "count='env -u OMP_NUM_THREADS nproc'; n=$($count); "
                                     "run $n $count; run $((n + 1)) $count; "
                                     "[ \"$(run 1 $count)\" = $n ] && echo all; "
                                     "[ $(run $n grep Cpus_allowed_list /proc/self/status | wc -l) "
                                     "= $n ] && echo different"),
                     0);
    ck_assert_str_eq(job.out, "1\n1\nall\ndifferent\n");
}
END_TEST

START_TEST(output_prefixed_lines_of_four_ranks_stay_whole)
{
    const char *line;
    int n_lines[4] = {0, 0, 0, 0};

    ck_assert_int_eq(spawn_run(&job, RUN "-n 4 --prefix sh -c 'i=0; while [ $i -lt 200 ]; do "
                                         "printf abcdef; printf \"ghi $RANK\\n\"; i=$((i + 1)); "
                                         "done'"),
                     0);
    for (line = strtok(job.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        int rank = line[1] - '0';
        char expected[32];

        ck_assert_int_ge(rank, 0);
        ck_assert_int_lt(rank, 4);
        snprintf(expected, sizeof(expected), "[%d] abcdefghi %d", rank, rank);
        ck_assert_str_eq(line, expected);
        n_lines[rank]++;
    }
    ck_assert_int_eq(n_lines[0] + n_lines[1] + n_lines[2] + n_lines[3], 800);
    ck_assert_int_eq(n_lines[3], 200);
}
END_TEST

START_TEST(output_last_line_without_end_is_printed)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 --prefix printf 'a\\n\\nb'"), 0);
    ck_assert_int_eq(text_count(job.out, "[0] a\n"), 1);
    ck_assert_int_eq(text_count(job.out, "[1] \n"), 1);
    ck_assert_int_eq(text_count(job.out, "[0] b\n"), 1);
    ck_assert_int_eq(text_count(job.out, "[1] b\n"), 1);
}
END_TEST

START_TEST(output_line_of_any_length_is_whole_up_to_a_mebibyte)
{
    ck_assert_int_eq(spawn_run(&job, "\"$HSDP_RUN\" --prefix sh -c 'head -c 1000000 /dev/zero | tr "
                                     "\"\\\\0\" x; echo' | wc -lc | tr -s ' '"),
                     0);
    ck_assert_int_eq(text_count(job.out, "1 1000005\n"), 1);
    ck_assert_int_eq(spawn_run(&job, "\"$HSDP_RUN\" --prefix sh -c 'head -c 9000000 /dev/zero | tr "
                                     "\"\\\\0\" x' | tr -d '\\n' | sed 's/\\[0\\] //g' | wc -c"),
                     0);
    ck_assert_str_eq(job.out, "9000000\n");
}
END_TEST

START_TEST(output_to_standard_error_stays_there)
{
    ck_assert_int_eq(spawn_run(&job, RUN "-n 2 --prefix sh -c 'echo out; echo err >&2'"), 0);
    ck_assert_int_eq(text_count(job.out, "] out\n"), 2);
    ck_assert_int_eq(text_count(job.err, "] err\n"), 2);
    ck_assert_int_eq(text_count(job.out, "err"), 0);
}
END_TEST

START_TEST(output_log_dir_has_one_file_a_rank)
{
    const char *script = "\"$HSDP_RUN\" -n 2 --log-dir=logs sh -c 'echo o$RANK; echo e$RANK >&2'; "
                         "cat logs/rank-0.log logs/rank-1.log; ls logs | wc -l";

    ck_assert_int_eq(spawn_run(&job, script), 0);
    ck_assert_str_eq(job.out, "o0\ne0\no1\ne1\n2\n");
    ck_assert_int_eq(spawn_run(&job, script), 0); /* again: nothing old is left in the files */
    ck_assert_str_eq(job.out, "o0\ne0\no1\ne1\n2\n");
}
END_TEST

START_TEST(output_log_dir_with_prefix_gets_what_is_shown)
{
    ck_assert_int_eq(spawn_run(&job, "\"$HSDP_RUN\" -n 1 --prefix --log-dir=logs printf 'a\\nb'; "
                                     "cat logs/rank-0.log"),
                     0);
    ck_assert_str_eq(job.out, "[0] a\n[0] b\na\nb");
}
END_TEST

START_TEST(output_that_cannot_be_written_is_125)
{
    ck_assert_int_eq(spawn_run(&job, RUN "--prefix echo hello >/dev/full"), 125);
    ck_assert_str_eq(job.err, "hsdp-run: standard output is incomplete: No space left on device\n");
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("run");
    TCase *options = tcase_create("options");
    TCase *ranks = tcase_create("ranks");
    TCase *output = tcase_create("output");

    tcase_set_timeout(options, 60);
    tcase_add_checked_fixture(options, folder_make, folder_remove);
    tcase_add_loop_test(options, options_bad_input_is_one_sentence_and_status_2, 0,
                        (int)(sizeof(bad_inputs) / sizeof(bad_inputs[0])));
    tcase_add_test(options, options_help_and_version_are_printed);
    tcase_add_test(options, options_ranks_may_be_given_as_mpirun_does);
    tcase_add_test(options, options_after_the_program_are_its_own);
    tcase_add_test(options, program_missing_is_127);
    tcase_add_test(options, program_that_cannot_run_is_126);
    tcase_add_test(options, program_without_permission_is_126_unless_path_has_another);
    suite_add_tcase(suite, options);

    tcase_set_timeout(ranks, 60);
    tcase_add_test(ranks, environment_of_three_ranks_is_as_torchrun_sets_it);
    tcase_add_test(ranks, environment_without_number_of_ranks_is_one_rank);
    tcase_add_test(ranks, environment_ranks_share_id_and_port);
    tcase_add_test(ranks, environment_two_runs_at_once_differ_in_id_and_port);
    tcase_add_test(ranks, environment_threads_are_one_unless_set);
    tcase_add_test(ranks, environment_of_an_outer_torchrun_is_removed);
    tcase_add_test(ranks, environment_by_option_wins);
    tcase_add_test(ranks, input_goes_to_rank_0_only);
    tcase_add_test(ranks, launch_descriptors_signals_and_limits_are_those_of_the_caller);
    tcase_add_test(ranks, launch_more_ranks_than_the_soft_limit_of_files_works);
    tcase_add_test(ranks, launch_bound_ranks_share_the_cores);
    suite_add_tcase(suite, ranks);

    tcase_set_timeout(output, 60);
    tcase_add_checked_fixture(output, folder_make, folder_remove);
    tcase_add_test(output, output_prefixed_lines_of_four_ranks_stay_whole);
    tcase_add_test(output, output_last_line_without_end_is_printed);
    tcase_add_test(output, output_line_of_any_length_is_whole_up_to_a_mebibyte);
    tcase_add_test(output, output_to_standard_error_stays_there);
    tcase_add_test(output, output_log_dir_has_one_file_a_rank);
    tcase_add_test(output, output_log_dir_with_prefix_gets_what_is_shown);
    tcase_add_test(output, output_that_cannot_be_written_is_125);
    suite_add_tcase(suite, output);
    return suite;
}
