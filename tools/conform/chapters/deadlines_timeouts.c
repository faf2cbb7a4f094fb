/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter deadlines: which timeout counts, what is told of it, and tickets. */
#include <string.h>

#include "deadlines.h"

/* Rank 0 waits in a barrier that rank 1 does not join. */
static void wait_alone(struct scene *scene, uint64_t call_timeout_ms, uint64_t timeout_ms)
{
    struct scene_end end = {.operation = "barrier", .group = "dp", .missing = 1};
    uint64_t ticket;

    end.since_ms = scene_since(scene);
    end.timeout_ms = timeout_ms;
    ticket = scene_barrier(scene, call_timeout_ms);
    conform_must_refuse(scene->conform, scene_wait(scene, ticket), HSDP_ERR_TIMEOUT);
    scene_expect_end(scene, &end);
    conform_expect(scene->conform, scene->conform->err.ticket == ticket,
                   "the error's ticket is %llu, not %llu",
                   (unsigned long long)scene->conform->err.ticket, (unsigned long long)ticket);
}

/* ------------------------------------------------------------------------------- other timeouts */

void deadlines_group_timeout(struct conform *conform)
{
    struct scene_spec spec = {.settings = SCENE_PATIENT};
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct scene scene;

    scene_join(&scene, conform, &spec);
    scene_arrange(&scene, "dp=-1");
    scene.group = scene_group(&scene, "dp", DEADLINES_T_MS);
    conform_must(conform, scene.api->group->info(scene.group, &info, &conform->err));
    conform_expect(conform, info.timeout_ms == DEADLINES_T_MS,
                   "the group's timeout is %llu ms, not %u", (unsigned long long)info.timeout_ms,
                   DEADLINES_T_MS);
    if (scene.rank == 0) {
        wait_alone(&scene, 0, DEADLINES_T_MS);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

void deadlines_call_timeout(struct conform *conform)
{
    struct scene scene;

    deadlines_join(&scene, conform, SCENE_PATIENT);
    if (scene.rank == 0) {
        wait_alone(&scene, DEADLINES_T_MS, DEADLINES_T_MS);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

/* The innermost of two phases counts. */
void deadlines_phase_timeout(struct conform *conform)
{
    const struct hsdp_job_ops *job = conform->api->job;
    struct scene scene;

    deadlines_join(&scene, conform, SCENE_PATIENT);
    conform_must(conform, job->phase_push(scene.job, "outer", 30000, &conform->err));
    conform_must(conform, job->phase_push(scene.job, "inner", DEADLINES_T_MS, &conform->err));
    if (scene.rank == 0) {
        wait_alone(&scene, 0, DEADLINES_T_MS);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

void deadlines_set_timeout(struct conform *conform)
{
    struct scene scene;

    deadlines_join(&scene, conform, SCENE_PATIENT);
    conform_must(conform, scene.api->job->setting_set(scene.job, "nccl_timeout_seconds", "1",
                                                      &conform->err));
    if (scene.rank == 0) {
        wait_alone(&scene, 0, DEADLINES_T_MS);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

/* The peer is late, and the wait goes on: by a phase, or by the call's own timeout. */
static void longer_run(struct conform *conform, uint64_t phase_ms, uint64_t call_ms)
{
    struct scene scene;

    deadlines_join(&scene, conform, DEADLINES_SECOND);
    if (phase_ms != 0) {
        conform_must(conform,
                     scene.api->job->phase_push(scene.job, "long", phase_ms, &conform->err));
    }
    if (scene.rank == 1) {
        conform_sleep_ms(2 * DEADLINES_T_MS);
    }
    conform_must(conform, scene_wait(&scene, scene_barrier(&scene, call_ms)));
    conform_meet(conform);
    scene_drop(&scene);
}

void deadlines_longer_phase(struct conform *conform)
{
    longer_run(conform, 30000, 0);
}

void deadlines_longer_call(struct conform *conform)
{
    longer_run(conform, 0, 30000);
}

static uint64_t timeout_told(struct scene *scene)
{
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;

    conform_must(scene->conform, scene->api->job->info(scene->job, &info, &scene->conform->err));
    return info.timeout_ms;
}

static void timeout_expect(struct scene *scene, uint64_t job_ms, uint64_t group_ms)
{
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct conform *conform = scene->conform;
    uint64_t told_ms = timeout_told(scene);

    conform_expect(conform, told_ms == job_ms, "the job's timeout is told as %llu ms, not %llu",
                   (unsigned long long)told_ms, (unsigned long long)job_ms);
    conform_must(conform, scene->api->group->info(scene->group, &info, &conform->err));
    conform_expect(conform, info.timeout_ms == group_ms,
                   "the group's timeout is told as %llu ms, not %llu",
                   (unsigned long long)info.timeout_ms, (unsigned long long)group_ms);
}

void deadlines_told(struct conform *conform)
{
    const struct hsdp_job_ops *job = conform->api->job;
    struct scene_spec spec = {.settings = SCENE_PATIENT};
    struct scene scene;

    scene_join(&scene, conform, &spec);
    scene_gather(&scene);
    timeout_expect(&scene, 60000, 60000);
    conform_must(conform, job->phase_push(scene.job, "outer", 70000, &conform->err));
    conform_must(conform, job->phase_push(scene.job, "inner", 1234, &conform->err));
    timeout_expect(&scene, 1234, 1234);
    conform_must(conform, job->phase_pop(scene.job, &conform->err));
    timeout_expect(&scene, 70000, 70000);
    conform_must(conform, job->phase_pop(scene.job, &conform->err));
    timeout_expect(&scene, 60000, 60000);
    conform_must_refuse(conform, job->phase_pop(scene.job, &conform->err), HSDP_ERR_STATE);
    conform_must(conform, job->setting_set(scene.job, "nccl_timeout_seconds", "50", &conform->err));
    timeout_expect(&scene, 50000, 50000);
    scene_close(&scene);
}

/* The report is for people; that it tells of this group, and of this timeout, is promised. */
void deadlines_ledger(struct conform *conform)
{
    struct scene_spec spec = {.settings = SCENE_PATIENT};
    struct scene scene;
    uint64_t n_bytes = 0;
    char text[16384];

    scene_join(&scene, conform, &spec);
    scene_arrange(&scene, "dp=-1");
    scene.group = scene_group(&scene, "dp", 4321);
    conform_must(conform, scene.api->diag->report(scene.job, "ledger", text, sizeof(text), &n_bytes,
                                                  &conform->err));
    conform_expect(conform, n_bytes == strlen(text) + 1, "the size told is %u, that of the text %u",
                   (unsigned)n_bytes, (unsigned)strlen(text) + 1);
    conform_expect(conform, strstr(text, "\"dp\"") != NULL, "no group \"dp\" in %.200s", text);
    conform_expect(conform, strstr(text, "4321") != NULL || strstr(text, "4.321") != NULL,
                   "no timeout of 4321 ms in %.200s", text);
    scene_close(&scene);
}

/* ------------------------------------------------------------------------------------- tickets */

void deadlines_ticket(struct conform *conform)
{
    const struct hsdp_job_ops *job = conform->api->job;
    struct scene scene;
    uint64_t since_ms;
    uint64_t ticket = 0;
    int32_t found;

    deadlines_join(&scene, conform, SCENE_PATIENT);
    if (scene.rank == 0) {
        ticket = scene_barrier(&scene, 0);
        found = job->ticket_wait(scene.job, ticket, 0, &conform->err);
        conform_expect(conform, found == HSDP_PENDING, "a wait of 0 ms answers %d, not PENDING",
                       (int)found);
        since_ms = conform_now_ms();
        found = job->ticket_wait(scene.job, ticket, 300, &conform->err);
        conform_expect(conform, found == HSDP_PENDING, "a wait of 300 ms answers %d, not PENDING",
                       (int)found);
        conform_expect(conform, conform_now_ms() - since_ms >= 250,
                       "a wait of 300 ms ended after %u", (unsigned)(conform_now_ms() - since_ms));
        conform_expect(conform, conform_now_ms() - since_ms <= 300 + SCENE_LATE_MS,
                       "a wait of 300 ms ended after %u", (unsigned)(conform_now_ms() - since_ms));
    }
    conform_meet(conform);
    if (scene.rank == 1) {
        ticket = scene_barrier(&scene, 0);
    }
    conform_must(conform, scene_wait(&scene, ticket));
    conform_must(conform, job->ticket_wait(scene.job, ticket, 0, &conform->err));
    conform_must(conform, job->ticket_wait(scene.job, 0, 0, &conform->err));
    conform_must_refuse(conform, job->ticket_wait(scene.job, ticket + 1000, 0, &conform->err),
                        HSDP_ERR_INVALID);
    scene_close(&scene);
}

/* Rank 0 gives its group back while it waits for rank 1. */
void deadlines_gone(struct conform *conform)
{
    struct scene scene;
    uint64_t ticket = 0;

    deadlines_join(&scene, conform, SCENE_PATIENT);
    if (scene.rank == 0) {
        ticket = scene_barrier(&scene, 0);
        scene.api->group->destroy(scene.group);
        scene.group = NULL;
        conform_must_refuse(conform, scene_wait(&scene, ticket), HSDP_ERR_STATE);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

/* ------------------------------------------------------------------------------------ settings */

static int32_t create_with(struct conform *conform, const char *value, hsdp_job **ret_job)
{
    const char *const keys[] = {"nccl_timeout_seconds"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;

    spec.settings = (struct hsdp_settings){keys, &value, value == NULL ? 0 : 1};
    conform_needs_transport(conform);
    device_place(&spec);
    return conform->api->job->create(&spec, ret_job, &conform->err);
}

static void read_expect(struct conform *conform, const char *given, const char *key,
                        const char *value, const char *source)
{
    const char *found = NULL;
    const char *from = NULL;
    hsdp_job *job = NULL;

    conform_must(conform, create_with(conform, given, &job));
    conform_must(conform, conform->api->job->setting(job, key, &found, &from, &conform->err));
    conform_expect(conform, strcmp(found, value) == 0, "%s reads back as \"%s\", not \"%s\"", key,
                   found, value);
    conform_expect(conform, strncmp(from, source, strlen(source)) == 0,
                   "%s comes from \"%s\", not \"%s\"", key, from, source);
    conform->api->job->destroy(job);
}

void deadlines_read_back(struct conform *conform)
{
    static const char derived[] = "derived";

    read_expect(conform, NULL, "nccl_timeout_seconds", "180", "default");
    read_expect(conform, NULL, "init_timeout_seconds", "180", derived);
    read_expect(conform, "2147484", "nccl_timeout_seconds", "2147484", "host");
    read_expect(conform, "2147483647", "heartbeat_timeout_seconds", "2147483647", derived);
    read_expect(conform, "1", "init_timeout_seconds", "1", derived);
}
