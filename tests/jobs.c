/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and groups as tests make them. */
#include "jobs.h"

#include <check.h>

void status_assert(int32_t status, int32_t expected, const struct hsdp_error *err)
{
    ck_assert_msg(status == expected, "status %d instead of %d: %s", status, expected,
                  status == HSDP_OK || status == HSDP_PENDING ? "" : err->message);
}

struct hsdp_job *test_job_create(const char *seconds)
{
    static const char *const keys[] = {"nccl_timeout_seconds"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.settings.keys = keys;
    spec.settings.values = &seconds;
    spec.settings.n_settings = 1;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    return job;
}

struct hsdp_job *test_job_open(const char *seconds)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_create(seconds);

    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    return job;
}

void test_job_drop(struct hsdp_job *job)
{
    job_leave(job);
    job_destroy(job);
}

void test_job_end(struct hsdp_job *job)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(job_close(job, &err), HSDP_OK, &err);
    test_job_drop(job);
}

struct hsdp_mesh *test_mesh(const struct hsdp_job *job)
{
    static const char *const names[] = {"dp"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *mesh = NULL;
    int64_t size = job_world_ranks(job);

    spec.dim_sizes = &size;
    spec.dim_names = names;
    spec.n_dims = 1;
    spec.rank = job_rank(job);
    status_assert(mesh_create(&spec, &mesh, &err), HSDP_OK, &err);
    return mesh;
}

struct hsdp_group *test_group(struct hsdp_job *job)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *mesh = test_mesh(job);
    struct hsdp_group *group = NULL;

    spec.selector = "dp";
    status_assert(group_create(job, mesh, &spec, &group, &err), HSDP_OK, &err);
    mesh_destroy(mesh);
    status_assert(group_connect(job, &err), HSDP_OK, &err);
    return group;
}
