/* SPDX-License-Identifier: Apache-2.0 */
/* A host that hears of failures by its callback, and computes meanwhile. */
#include "listener.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

#include "jobs.h"
#include "ranks.h"

static void message_assert(const struct hsdp_error *err, const char *part)
{
    ck_assert_msg(strstr(err->message, part) != NULL, "no '%s' in: %s", part, err->message);
}

static void listener_told(void *user, const struct hsdp_error *reason)
{
    struct listener *listener = user;

    listener->reason = *reason;
    listener->thread = gettid();
    atomic_fetch_add(&listener->n_told, 1u);
    ranks_sleep_ms(listener->sleep_ms);
    if (listener->destroys) {
        job_destroy(listener->job);
    }
}

void listener_create(struct listener *listener, const char *name)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;

    spec.name = name;
    spec.on_abort = listener_told;
    spec.user = listener;
    status_assert(job_create(&spec, &listener->job, &err), HSDP_OK, &err);
}

void listener_open(struct listener *listener)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    memset(listener, 0, sizeof(*listener));
    listener_create(listener, NULL);
    status_assert(job_enter(listener->job, &err), HSDP_OK, &err);
    status_assert(job_connect(listener->job, &err), HSDP_OK, &err);
    job_leave(listener->job);
}

void listener_await(struct listener *listener)
{
    while (atomic_load(&listener->n_told) == 0) {
        ranks_sleep_ms(1);
    }
}

void listener_expect(struct listener *listener, int32_t status, const char *part)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(listener->reason.status, status);
    message_assert(&listener->reason, part);
    ck_assert_int_eq(job_status(listener->job, &err), status);
    ck_assert_int_eq(job_enter(listener->job, &err), HSDP_ERR_ABORTED);
    message_assert(&err, part);
    ranks_sleep_ms(200);
    ck_assert_uint_eq(atomic_load(&listener->n_told), 1);
}

int32_t listener_close(struct listener *listener, struct hsdp_error *err)
{
    int32_t status = job_enter(listener->job, err);

    if (status == HSDP_OK) {
        status = job_close(listener->job, err);
        job_leave(listener->job);
    }
    return status;
}
