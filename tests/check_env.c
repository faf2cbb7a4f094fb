/* SPDX-License-Identifier: Apache-2.0 */
/* Who am I: the launcher's environment and the settings of a job, read strictly. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/job.h"
#include "ranks.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int32_t create(struct hsdp_job **ret_job, struct hsdp_error *err)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;

    *ret_job = NULL;
    return job_create(&spec, ret_job, err);
}

/* Creates, expects a rank and a world, destroys. */
static void launch_assert(uint32_t rank, uint32_t world_ranks)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct hsdp_job *job;

    ck_assert_msg(create(&job, &err) == HSDP_OK, "%s", err.message);
    ck_assert_int_eq(job_info(job, &info, &err), HSDP_OK);
    ck_assert_uint_eq(info.rank, rank);
    ck_assert_uint_eq(info.world_ranks, world_ranks);
    ck_assert_uint_eq(info.local_ranks, world_ranks);
    ck_assert_uint_eq(info.is_connected, 0);
    ck_assert_str_eq(info.backend, "shm");
    job_destroy(job);
}

/* Expects a refusal whose sentence holds both texts, and nothing left open. */
static void refusal_assert(int32_t status, const char *first, const char *second)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t n_descriptors = ranks_n_descriptors();
    struct hsdp_job *job;

    ck_assert_int_eq(create(&job, &err), status);
    ck_assert_ptr_null(job);
    ck_assert_msg(strstr(err.message, first) != NULL, "no '%s' in: %s", first, err.message);
    ck_assert_msg(strstr(err.message, second) != NULL, "no '%s' in: %s", second, err.message);
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
}

static const char *const bad_numbers[] = {
    "", "true", "30s", "0x1f", " 30", "1.5", "99999999999999999999", "-5", "+3", "3 ",
};

static const char *const number_keys[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT",
};

START_TEST(job_create_bad_number_in_environment_names_key_and_text)
{
    const char *key = number_keys[(size_t)_i / COUNT(bad_numbers)];
    const char *text = bad_numbers[(size_t)_i % COUNT(bad_numbers)];
    char quoted[64];

    ranks_environment(0, 1, "test");
    setenv(key, text, 1);
    snprintf(quoted, sizeof(quoted), "\"%s\"", text);
    refusal_assert(HSDP_ERR_INVALID, key, quoted);
}
END_TEST

START_TEST(job_create_bad_timeout_names_key_and_text)
{
    const char *text = bad_numbers[_i];
    char quoted[64];

    ranks_environment_clear();
    snprintf(quoted, sizeof(quoted), "\"%s\"", text);
    setenv("HSDP_NCCL_TIMEOUT_SECONDS", text, 1);
    refusal_assert(HSDP_ERR_INVALID, "nccl_timeout_seconds", quoted);
}
END_TEST

START_TEST(job_create_zero_is_legal_for_a_rank_only)
{
    ranks_environment(0, 1, "test");
    launch_assert(0, 1);
    setenv("MASTER_PORT", "0", 1);
    refusal_assert(HSDP_ERR_INVALID, "MASTER_PORT", "\"0\"");
    setenv("MASTER_PORT", "29500", 1);
    setenv("WORLD_SIZE", "0", 1);
    refusal_assert(HSDP_ERR_INVALID, "WORLD_SIZE", "\"0\"");
    setenv("WORLD_SIZE", "1", 1);
    setenv("HSDP_NCCL_TIMEOUT_SECONDS", "0", 1);
    refusal_assert(HSDP_ERR_INVALID, "nccl_timeout_seconds", "\"0\"");
}
END_TEST

START_TEST(job_create_rank_outside_of_the_world_is_refused)
{
    static const char *const pairs[][4] = {
        {"0", "0", "WORLD_SIZE", "\"0\""},
        {"2", "2", "RANK is 2", "WORLD_SIZE is 2"},
        {"-1", "2", "RANK", "\"-1\""},
        {"0", "-1", "WORLD_SIZE", "\"-1\""},
    };

    ranks_environment(0, 1, "test");
    setenv("RANK", pairs[_i][0], 1);
    setenv("WORLD_SIZE", pairs[_i][1], 1);
    unsetenv("LOCAL_RANK");
    unsetenv("LOCAL_WORLD_SIZE");
    refusal_assert(HSDP_ERR_INVALID, pairs[_i][2], pairs[_i][3]);
}
END_TEST

START_TEST(job_create_half_a_launcher_names_what_is_missing)
{
    ranks_environment_clear();
    setenv("RANK", "1", 1);
    refusal_assert(HSDP_ERR_INVALID, "RANK", "WORLD_SIZE is not");
    ranks_environment_clear();
    setenv("WORLD_SIZE", "2", 1);
    refusal_assert(HSDP_ERR_INVALID, "WORLD_SIZE", "RANK is not");
    ranks_environment_clear();
    setenv("PMI_RANK", "1", 1);
    refusal_assert(HSDP_ERR_INVALID, "PMI_RANK", "PMI_SIZE is not");
}
END_TEST

START_TEST(job_create_without_launcher_is_one_rank)
{
    ranks_environment_clear();
    launch_assert(0, 1);
}
END_TEST

START_TEST(job_create_knows_each_launcher)
{
    static const char *const names[][2] = {
        {"RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS"},
    };

    ranks_environment_clear();
    setenv("HSDP_RUN_ID", "test", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv(names[_i][0], "2", 1);
    setenv(names[_i][1], "3", 1);
    launch_assert(2, 3);
}
END_TEST

START_TEST(job_create_in_a_batch_script_of_slurm_is_one_rank)
{
    ranks_environment_clear();
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    launch_assert(0, 1);
}
END_TEST

START_TEST(job_create_takes_the_first_complete_launcher)
{
    ranks_environment(1, 2, "test");
    setenv("PMI_RANK", "3", 1);
    setenv("PMI_SIZE", "4", 1);
    launch_assert(1, 2);
    unsetenv("WORLD_SIZE");
    launch_assert(3, 4);
}
END_TEST

START_TEST(job_create_of_several_hosts_knows_its_own_ranks)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct hsdp_job *job;

    ranks_environment(5, 8, "test");
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    ck_assert_msg(create(&job, &err) == HSDP_OK, "%s", err.message);
    ck_assert_int_eq(job_info(job, &info, &err), HSDP_OK);
    ck_assert_uint_eq(info.rank, 5);
    ck_assert_uint_eq(info.world_ranks, 8);
    ck_assert_uint_eq(info.local_rank, 1);
    ck_assert_uint_eq(info.local_ranks, 4);
    job_destroy(job);
}
END_TEST

START_TEST(job_create_of_too_many_ranks_on_a_host_is_unsupported)
{
    ranks_environment(0, 65, "test");
    refusal_assert(HSDP_ERR_UNSUPPORTED, "65", "64");
}
END_TEST

START_TEST(job_create_without_meeting_point_is_unavailable)
{
    ranks_environment_clear();
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    refusal_assert(HSDP_ERR_UNAVAILABLE, "MASTER_PORT", "kv_put");
}
END_TEST

START_TEST(job_create_what_is_not_built_is_unsupported)
{
    ranks_environment_clear();
    setenv("HSDP_BACKEND", "mpi", 1);
    refusal_assert(HSDP_ERR_UNSUPPORTED, "mpi", "is not built");
}
END_TEST

START_TEST(job_create_bad_spec_is_refused)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    ranks_environment_clear();
    spec.rank = 2;
    spec.world_ranks = 2;
    ck_assert_int_eq(job_create(&spec, &job, &err), HSDP_ERR_INVALID);
    spec.rank = 0;
    spec.world_ranks = 0;
    spec.device_type = 10; /* DLPack's ROCm */
    ck_assert_int_eq(job_create(&spec, &job, &err), HSDP_ERR_UNSUPPORTED);
    ck_assert_str_eq(err.message, "job: device type 10; this version computes on CPUs (1) and CUDA "
                                  "devices (2)");
    spec.device_type = HSDP_DEVICE_CUDA;
    spec.device_id = -1;
    ck_assert_int_eq(job_create(&spec, &job, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "job: device_id is -1; CUDA devices count from 0");
    spec.device_type = HSDP_DEVICE_CPU;
    spec.name = "";
    ck_assert_int_eq(job_create(&spec, &job, &err), HSDP_ERR_INVALID);
    spec.name = "0123456789012345678901234567890123456789012345678901234567890123";
    ck_assert_int_eq(job_create(&spec, &job, &err), HSDP_ERR_INVALID);
    ck_assert_ptr_null(job);
}
END_TEST

static const struct {
    int32_t device_type;
    const char *backend;
    int32_t status;
    const char *became; /* or the sentence */
} backends[] = {
    {0, "auto", HSDP_OK, "shm"},
    {HSDP_DEVICE_CPU, "auto", HSDP_OK, "shm"},
    {HSDP_DEVICE_CPU, "shm", HSDP_OK, "shm"},
    {HSDP_DEVICE_CUDA, "auto", HSDP_OK, "nccl"},
    {HSDP_DEVICE_CUDA, "nccl", HSDP_OK, "nccl"},
    {HSDP_DEVICE_CUDA, "shm", HSDP_ERR_INVALID,
     "job: backend \"shm\" moves memory of device type 1; this job has device type 2"},
    {HSDP_DEVICE_CPU, "nccl", HSDP_ERR_INVALID,
     "job: backend \"nccl\" moves memory of device type 2; this job has device type 1"},
    {0, "nccl", HSDP_ERR_INVALID,
     "job: backend \"nccl\" moves memory of device type 2; this job has device type 1"},
    {HSDP_DEVICE_CUDA, "mpi", HSDP_ERR_UNSUPPORTED,
     "job: backend \"mpi\" is not built; this version has shm and nccl"},
    {HSDP_DEVICE_CPU, "mpi", HSDP_ERR_UNSUPPORTED,
     "job: backend \"mpi\" is not built; this version has shm and nccl"},
};

#define N_BACKENDS ((int)(sizeof(backends) / sizeof(backends[0])))

START_TEST(job_create_backend_fits_the_device)
{
    const char *key = "backend";
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    ranks_environment_clear();
    spec.settings = (struct hsdp_settings){&key, &backends[_i].backend, 1};
    spec.device_type = backends[_i].device_type;
    ck_assert_int_eq(job_create(&spec, &job, &err), backends[_i].status);
    if (backends[_i].status == HSDP_OK) {
        ck_assert_int_eq(job_info(job, &info, &err), HSDP_OK);
        ck_assert_str_eq(info.backend, backends[_i].became);
    } else {
        ck_assert_str_eq(err.message, backends[_i].became);
    }
    job_destroy(job);
}
END_TEST

/* --------------------------------------------------------------------------------- settings */

static void setting_assert(const struct hsdp_job *job, const char *key, const char *value,
                           const char *source)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const char *is_value = NULL;
    const char *is_source = NULL;

    ck_assert_msg(job_setting(job, key, &is_value, &is_source, &err) == HSDP_OK, "%s", err.message);
    ck_assert_str_eq(is_value, value);
    ck_assert_str_eq(is_source, source);
}

static struct hsdp_job *created(void)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    ck_assert_msg(create(&job, &err) == HSDP_OK, "%s", err.message);
    return job;
}

#define DERIVED "derived from nccl_timeout_seconds"

START_TEST(job_setting_of_timeouts_follows_nccl_timeout)
{
    struct hsdp_job *job;

    ranks_environment_clear();
    setenv("HSDP_NCCL_TIMEOUT_SECONDS", "2", 1);
    job = created();
    setting_assert(job, "nccl_timeout_seconds", "2", "environment");
    setting_assert(job, "init_timeout_seconds", "2", DERIVED);
    setting_assert(job, "heartbeat_timeout_seconds", "2", DERIVED);
    setting_assert(job, "peer_silence_seconds", "2", DERIVED);
    ck_assert_uint_eq(job_timeout_ms(job), 2000);
    job_destroy(job);
}
END_TEST

START_TEST(job_setting_unset_is_the_documented_default)
{
    struct hsdp_job *job;

    ranks_environment_clear();
    job = created();
    setting_assert(job, "nccl_timeout_seconds", "180", "default");
    setting_assert(job, "init_timeout_seconds", "180", DERIVED);
    setting_assert(job, "peer_silence_seconds", "5", DERIVED);
    setting_assert(job, "flight_records", "2000", "default");
    job_destroy(job);
}
END_TEST

START_TEST(job_setting_of_the_meeting_is_read_back)
{
    struct hsdp_job *job;

    ranks_environment_clear();
    setenv("HSDP_RENDEZVOUS_PORT", "29501", 1);
    setenv("HSDP_TOKEN_FILE", "/etc/token", 1);
    job = created();
    setting_assert(job, "rendezvous_port", "29501", "environment");
    setting_assert(job, "token_file", "/etc/token", "environment");
    job_destroy(job);
}
END_TEST

START_TEST(job_setting_of_many_days_is_exact)
{
    struct hsdp_job *job;

    ranks_environment_clear();
    setenv("HSDP_NCCL_TIMEOUT_SECONDS", "2147484", 1);
    job = created();
    setting_assert(job, "nccl_timeout_seconds", "2147484", "environment");
    ck_assert_uint_eq(job_timeout_ms(job), UINT64_C(2147484000));
    job_destroy(job);
}
END_TEST

START_TEST(job_create_timeouts_out_of_order_are_refused)
{
    ranks_environment_clear();
    setenv("HSDP_NCCL_TIMEOUT_SECONDS", "10", 1);
    setenv("HSDP_INIT_TIMEOUT_SECONDS", "9", 1);
    refusal_assert(HSDP_ERR_INVALID, "init_timeout_seconds: 9", "10");
    unsetenv("HSDP_INIT_TIMEOUT_SECONDS");
    setenv("HSDP_PEER_SILENCE_SECONDS", "11", 1);
    refusal_assert(HSDP_ERR_INVALID, "peer_silence_seconds: 11", "10");
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("env");
    TCase *tcase = tcase_create("env");

    tcase_add_loop_test(tcase, job_create_bad_number_in_environment_names_key_and_text, 0,
                        (int)(COUNT(number_keys) * COUNT(bad_numbers)));
    tcase_add_loop_test(tcase, job_create_bad_timeout_names_key_and_text, 0,
                        (int)COUNT(bad_numbers));
    tcase_add_test(tcase, job_create_zero_is_legal_for_a_rank_only);
    tcase_add_loop_test(tcase, job_create_rank_outside_of_the_world_is_refused, 0, 4);
    tcase_add_test(tcase, job_create_half_a_launcher_names_what_is_missing);
    tcase_add_test(tcase, job_create_without_launcher_is_one_rank);
    tcase_add_loop_test(tcase, job_create_knows_each_launcher, 0, 4);
    tcase_add_test(tcase, job_create_in_a_batch_script_of_slurm_is_one_rank);
    tcase_add_test(tcase, job_create_takes_the_first_complete_launcher);
    tcase_add_test(tcase, job_create_of_several_hosts_knows_its_own_ranks);
    tcase_add_test(tcase, job_create_of_too_many_ranks_on_a_host_is_unsupported);
    tcase_add_test(tcase, job_create_without_meeting_point_is_unavailable);
    tcase_add_test(tcase, job_create_what_is_not_built_is_unsupported);
    tcase_add_test(tcase, job_create_bad_spec_is_refused);
    tcase_add_loop_test(tcase, job_create_backend_fits_the_device, 0, N_BACKENDS);
    tcase_add_test(tcase, job_setting_of_timeouts_follows_nccl_timeout);
    tcase_add_test(tcase, job_setting_unset_is_the_documented_default);
    tcase_add_test(tcase, job_setting_of_the_meeting_is_read_back);
    tcase_add_test(tcase, job_setting_of_many_days_is_exact);
    tcase_add_test(tcase, job_create_timeouts_out_of_order_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
