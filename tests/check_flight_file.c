/* SPDX-License-Identifier: Apache-2.0 */
/* Flight files: what is left of a failed job, also of ranks that cannot write any more. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/process.h"
#include "jobs.h"
#include "json.h"
#include "ranks.h"
#include "suite.h"

#define FILE_MAX_BYTES 200000u

static char folder[] = "/tmp/hsdp-flight-XXXXXX";
static char content[FILE_MAX_BYTES];

static void folder_make(void)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ranks_environment_clear();
    setenv("HSDP_FLIGHT_DIR", folder, 1);
}

/* How many files there are; they go. */
static uint32_t folder_remove(void)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint32_t n = 0;

    ck_assert_ptr_nonnull(dir);
    for (entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            ck_assert_int_eq(unlinkat(dirfd(dir), entry->d_name, 0), 0);
            n++;
        }
    }
    closedir(dir);
    ck_assert_int_eq(rmdir(folder), 0);
    unsetenv("HSDP_FLIGHT_DIR");
    return n;
}

/* Reads a file of the folder, which has to be whole JSON for its owner alone. */
static void file_read(const char *name)
{
    char path[300];
    struct stat info;
    size_t n_bytes;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "r");
    ck_assert_msg(file != NULL, "no %s", path);
    ck_assert_int_eq(fstat(fileno(file), &info), 0);
    ck_assert_uint_eq(info.st_mode & 07777u, 0600);
    n_bytes = fread(content, 1, sizeof(content) - 1, file);
    content[n_bytes] = '\0';
    fclose(file);
    ck_assert_ptr_null(json_fault(content));
}

static void file_assert(const char *part)
{
    ck_assert_msg(strstr(content, part) != NULL, "no %s in %s", part, content);
}

static struct hsdp_job *named_job(const char *name)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.name = name;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    return job;
}

/* ---------------------------------------------------------------------------------- alone */

START_TEST(flight_files_of_a_failed_job_tell_what_it_did)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    folder_make();
    job = named_job("a/b \"c\"");
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    ck_assert_int_eq(job_abort(job, "enough", &err), HSDP_OK);
    file_read("flight-a_b__c_-0.json");
    file_assert("{\"format\":\"hsdp-flight\",\"version\":1,\"job\":\"a/b \\\"c\\\"\",");
    file_assert("\"world_ranks\":1,\"written_by\":0,\"state\":\"alive\",");
    file_assert("\"failure\":{\"has_failed\":true,\"status\":\"ABORTED\",\"reported_by\":0,"
                "\"message\":\"enough\"");
    file_assert("\"rank\":0,\"now_ns\":");
    file_assert("\"position\":{\"where\":\"inside\"");
    file_assert("\"n_operations\":1,\"operations\":[{\"number\":1,\"state\":\"done\",");
    test_job_drop(job);
    ck_assert_uint_eq(folder_remove(), 1);
}
END_TEST

START_TEST(flight_files_of_a_job_that_never_connected_are_written)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    folder_make();
    ck_assert_int_eq(rmdir(folder), 0); /* it is made when it is needed */
    job = named_job("early");
    ck_assert_int_eq(job_abort(job, "enough", &err), HSDP_OK);
    file_read("flight-early-0.json");
    file_assert("\"n_operations\":0,\"operations\":[]}");
    test_job_drop(job);
    ck_assert_uint_eq(folder_remove(), 1);
}
END_TEST

START_TEST(flight_files_of_a_job_that_ends_well_are_none)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    folder_make();
    job = named_job("good");
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    test_job_end(job);
    ck_assert_uint_eq(folder_remove(), 0);
}
END_TEST

static void line_keep(void *user, int32_t level, const char *text)
{
    if (level == HSDP_LOG_WARNING) {
        snprintf(user, 200, "%s", text);
    }
}

/* A folder that cannot be is no reason for another failure. */
START_TEST(flight_files_without_a_folder_are_a_warning)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;
    char line[200] = "";

    ranks_environment_clear();
    setenv("HSDP_FLIGHT_DIR", "/dev/null/flight", 1);
    spec.log = line_keep;
    spec.user = line;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    ck_assert_int_eq(job_abort(job, "enough", &err), HSDP_OK);
    ck_assert_str_eq(line, "flight: cannot open \"/dev/null/flight\": Not a directory");
    ck_assert_int_eq(job_status(job, &err), HSDP_ERR_ABORTED);
    ck_assert_str_eq(err.message, "enough");
    job_destroy(job);
    unsetenv("HSDP_FLIGHT_DIR");
}
END_TEST

/* ----------------------------------------------------------------------------- many ranks */

struct scene {
    _Atomic uint32_t n_there;
    _Atomic uint32_t n_told;
};

/* Rank 1 is killed, rank 3 is stopped; ranks 0 and 2 are in an exchange. */
static void survivor_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t mine = 0;
    uint64_t all[4];

    atomic_fetch_add(&scene->n_there, 1u);
    if (rank == 1 || rank == 3) {
        job_leave(job);
        ranks_sleep_ms(60000);
    }
    status_assert(job_exchange(job, "test", &mine, sizeof(mine), all, &err), HSDP_ERR_PEER_LOST,
                  &err);
    ranks_meet(&scene->n_told, 2);
    test_job_drop(job);
}

static void scene_play(struct scene *scene)
{
    struct ranks ranks;

    ranks_start(&ranks, 4, RANKS_LIMIT_MS, survivor_rank, scene);
    while (atomic_load(&scene->n_there) < 4) {
        ranks_sleep_ms(1);
    }
    kill(ranks.pids[3], SIGSTOP);
    while (!process_is_stopped((uint32_t)ranks.pids[3])) {
        ranks_sleep_ms(1);
    }
    ranks_sleep_ms(500); /* until the others wait */
    ranks_kill(&ranks, 1);
    while (ranks_running(&ranks) > 1) {
        ranks_sleep_ms(5);
    }
    ranks_kill(&ranks, 3);
    ranks_wait(&ranks);
}

START_TEST(flight_files_of_ranks_that_cannot_write_come_from_another)
{
    folder_make();
    scene_play(ranks_memory(sizeof(struct scene)));
    file_read("flight-default-0.json");
    file_assert("\"written_by\":0,\"state\":\"alive\"");
    file_assert("\"position\":{\"where\":\"waits\",");
    file_assert("\"operation\":\"test\",");
    file_read("flight-default-1.json");
    file_assert("\"written_by\":0,\"state\":\"died\"");
    file_assert("\"position\":{\"where\":\"outside\",");
    file_assert("\"operation\":\"connect\",");
    file_read("flight-default-2.json");
    file_assert("\"written_by\":2,\"state\":\"alive\"");
    file_read("flight-default-3.json");
    file_assert("\"written_by\":0,\"state\":\"stopped\"");
    ck_assert_uint_eq(folder_remove(), 4);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("flight_file");
    TCase *tcase = tcase_create("flight_file");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, flight_files_of_a_failed_job_tell_what_it_did);
    tcase_add_test(tcase, flight_files_of_a_job_that_never_connected_are_written);
    tcase_add_test(tcase, flight_files_of_a_job_that_ends_well_are_none);
    tcase_add_test(tcase, flight_files_without_a_folder_are_a_warning);
    tcase_add_test(tcase, flight_files_of_ranks_that_cannot_write_come_from_another);
    suite_add_tcase(suite, tcase);
    return suite;
}
