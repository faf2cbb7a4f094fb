/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter failures: what the host itself ends, and whom it is told. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "failures.h"

static const struct scene_spec patient = {.settings = SCENE_PATIENT};

/* ---------------------------------------------------------------------------------------- abort */

struct abort_call {
    struct conform *conform;
    const struct hsdp_job_ops *ops;
    hsdp_job *job;
    uint64_t took_ms;
    int32_t found;
    pthread_t thread;
};

static void *abort_thread(void *user)
{
    struct abort_call *call = user;
    uint64_t since_ms;

    conform_sleep_ms(300);
    since_ms = conform_now_ms();
    call->found = call->ops->abort(call->job, "out of patience", NULL);
    call->took_ms = conform_now_ms() - since_ms;
    return NULL;
}

static void abort_later(struct abort_call *ret, struct scene *scene)
{
    *ret = (struct abort_call){.conform = scene->conform, .ops = scene->api->job};
    ret->job = scene->job;
    if (pthread_create(&ret->thread, NULL, abort_thread, ret) != 0) {
        conform_skip(scene->conform, "there is no thread to be had");
    }
}

static void abort_join(struct abort_call *call)
{
    pthread_join(call->thread, NULL);
    conform_expect(call->conform, call->found == HSDP_OK, "abort answers %d", (int)call->found);
    conform_expect(call->conform, call->took_ms <= 2000 + SCENE_LATE_MS, "abort took %u ms",
                   (unsigned)call->took_ms);
}

/* The other rank does not come. */
void failures_abort_connect(struct conform *conform)
{
    struct abort_call call;
    uint64_t since_ms = conform_now_ms();
    struct scene scene;

    scene_create(&scene, conform, &patient);
    if (conform->rank == 0) {
        abort_later(&call, &scene);
        conform_must_refuse(conform, scene.api->job->connect(scene.job, &conform->err),
                            HSDP_ERR_ABORTED);
        scene_expect_soon(&scene, since_ms);
        scene_expect_text(&scene, "out of patience");
        abort_join(&call);
        scene_expect_over(&scene, HSDP_ERR_ABORTED);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

/* All wait for rank 2, where nobody calls; one of them is told to stop. */
void failures_abort_wait(struct conform *conform)
{
    struct abort_call call;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_gather(&scene);
    if (conform->rank == 0) {
        abort_later(&call, &scene);
    }
    if (conform->rank != 2) {
        conform_must_refuse(conform, scene_run_barrier(&scene), HSDP_ERR_ABORTED);
        scene_expect_text(&scene, "out of patience");
    }
    if (conform->rank == 0) {
        abort_join(&call);
    }
    scene_await_failure(&scene, HSDP_ERR_ABORTED);
    scene_expect_text(&scene, "out of patience");
    scene_expect_over(&scene, HSDP_ERR_ABORTED);
    conform_meet(conform);
    scene_drop(&scene);
}

void failures_abort_twice(struct conform *conform)
{
    const struct hsdp_job_ops *job = conform->api->job;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    conform_meet(conform);
    if (conform->rank == 0) {
        conform_must(conform, job->abort(scene.job, "the first", &conform->err));
        conform_must(conform, job->abort(scene.job, "the second", &conform->err));
        conform_must_refuse(conform, job->status(scene.job, &conform->err), HSDP_ERR_ABORTED);
    } else {
        scene_await_failure(&scene, HSDP_ERR_ABORTED);
    }
    scene_expect_text(&scene, "the first");
    scene_expect_over(&scene, HSDP_ERR_ABORTED);
    conform_meet(conform);
    scene_drop(&scene);
}

void failures_abort_unsaid(struct conform *conform)
{
    const struct hsdp_job_ops *job = conform->api->job;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    conform_must(conform, job->abort(scene.job, NULL, &conform->err));
    conform_must_refuse(conform, job->status(scene.job, &conform->err), HSDP_ERR_ABORTED);
    scene_expect_text(&scene, "abort called by the host");
    scene_drop(&scene);
}

void failures_abort_closed(struct conform *conform)
{
    const struct hsdp_job_ops *job = conform->api->job;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    conform_must(conform, job->close(scene.job, &conform->err));
    conform_must(conform, job->abort(scene.job, "too late", &conform->err));
    conform_must(conform, job->status(scene.job, &conform->err));
    scene_drop(&scene);
}

/* ------------------------------------------------------------------------------------- on_abort */

struct witness {
    _Atomic uint32_t n_told;
    int32_t status;
    char message[512];
};

static void witness_told(void *user, const struct hsdp_error *reason)
{
    struct witness *witness = user;

    witness->status = reason->status;
    snprintf(witness->message, sizeof(witness->message), "%s", reason->message);
    atomic_fetch_add(&witness->n_told, 1u);
}

void failures_told_once(struct conform *conform)
{
    static struct witness witness;
    struct scene_spec spec = patient;
    uint64_t since_ms;
    struct scene scene;

    spec.on_abort = witness_told;
    spec.user = &witness;
    scene_join(&scene, conform, &spec);
    conform_meet(conform);
    since_ms = conform_now_ms();
    if (conform->rank == 1) {
        conform_must(conform, scene.api->job->abort(scene.job, "out of patience", &conform->err));
    }
    while (atomic_load(&witness.n_told) == 0) {
        scene_expect_soon(&scene, since_ms);
        conform_sleep_ms(10);
    }
    conform_expect(conform,
                   witness.status == HSDP_ERR_ABORTED &&
                       strstr(witness.message, "out of patience") != NULL,
                   "on_abort was told %d, \"%s\"", (int)witness.status, witness.message);
    scene_expect_over(&scene, HSDP_ERR_ABORTED);
    conform_meet(conform);
    scene_drop(&scene);
    conform_expect(conform, atomic_load(&witness.n_told) == 1, "on_abort was told %u times",
                   (unsigned)atomic_load(&witness.n_told));
}

void failures_never_told(struct conform *conform)
{
    static struct witness witness;
    struct scene_spec spec = patient;
    struct scene scene;

    spec.on_abort = witness_told;
    spec.user = &witness;
    scene_join(&scene, conform, &spec);
    scene_close(&scene);
    conform_expect(conform, atomic_load(&witness.n_told) == 0,
                   "on_abort was told of a job that ended well: \"%s\"", witness.message);
}

/* ------------------------------------------------------------------------------------ callbacks */

static int32_t put_fails(void *user, const char *key, const void *value, uint64_t value_bytes)
{
    (void)user;
    (void)key;
    (void)value;
    (void)value_bytes;
    return 5;
}

static int32_t get_fails(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                         uint64_t *ret_bytes, uint32_t wait_ms)
{
    (void)user;
    (void)key;
    (void)ret_value;
    (void)max_bytes;
    (void)ret_bytes;
    (void)wait_ms;
    return 5;
}

void failures_callback(struct conform *conform)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    const struct hsdp_job_ops *ops = conform->api->job;
    hsdp_job *job = NULL;

    spec.kv_put = put_fails;
    spec.kv_get = get_fails;
    conform_needs_transport(conform);
    device_place(&spec);
    conform_must(conform, ops->create(&spec, &job, &conform->err));
    conform_must_refuse(conform, ops->connect(job, &conform->err), HSDP_ERR_UNAVAILABLE);
    conform_must_refuse(conform, ops->status(job, &conform->err), HSDP_ERR_UNAVAILABLE);
    conform_must_refuse(conform, ops->close(job, &conform->err), HSDP_ERR_ABORTED);
    conform_meet(conform);
    ops->destroy(job);
}
