/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of failures: reasons that change, that are not told, or that are told twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrong.h"

/* Later calls say something else than the first reason. */
static int32_t reason_lose(int32_t status, struct hsdp_error *reterr)
{
    if (status == HSDP_ERR_ABORTED && reterr != NULL) {
        snprintf(reterr->message, sizeof(reterr->message), "the job has failed");
    }
    return status;
}

static int32_t connect_forgetful(hsdp_job *job, struct hsdp_error *reterr)
{
    return reason_lose(wrong.real->group->connect(job, reterr), reterr);
}

static int32_t close_forgetful(hsdp_job *job, struct hsdp_error *reterr)
{
    return reason_lose(wrong.real->job->close(job, reterr), reterr);
}

static void another_reason(void)
{
    wrong.group.connect = connect_forgetful;
    wrong.job.close = close_forgetful;
}

static int32_t status_timeout(const hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->status(job, reterr);

    if (status == HSDP_ERR_PEER_LOST) {
        status = HSDP_ERR_TIMEOUT;
        if (reterr != NULL) {
            reterr->status = status;
        }
    }
    return status;
}

static void loss_as_timeout(void)
{
    wrong.job.status = status_timeout;
}

static int32_t abort_nothing(hsdp_job *job, const char *reason, struct hsdp_error *reterr)
{
    return job == NULL ? wrong.real->job->abort(job, reason, reterr) : HSDP_OK;
}

static void abort_does_nothing(void)
{
    wrong.job.abort = abort_nothing;
}

static char last_reason[256];

static int32_t abort_noted(hsdp_job *job, const char *reason, struct hsdp_error *reterr)
{
    snprintf(last_reason, sizeof(last_reason), "%s", reason == NULL ? "no reason" : reason);
    return wrong.real->job->abort(job, reason, reterr);
}

static int32_t status_last(const hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->status(job, reterr);

    if (status != HSDP_OK && reterr != NULL && last_reason[0] != '\0') {
        snprintf(reterr->message, sizeof(reterr->message), "%s", last_reason);
    }
    return status;
}

static void last_reason_counts(void)
{
    wrong.job.abort = abort_noted;
    wrong.job.status = status_last;
}

static int32_t abort_of_nobody(hsdp_job *job, const char *reason, struct hsdp_error *reterr)
{
    return job == NULL ? HSDP_OK : wrong.real->job->abort(job, reason, reterr);
}

static void abort_takes_null(void)
{
    wrong.job.abort = abort_of_nobody;
}

/* What the host has lent for on_abort. */
static void (*host_on_abort)(void *user, const struct hsdp_error *reason);

static void tell_twice(void *user, const struct hsdp_error *reason)
{
    host_on_abort(user, reason);
    host_on_abort(user, reason);
}

static int32_t create_telling(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                              struct hsdp_error *reterr)
{
    struct hsdp_job_spec own = *spec;

    host_on_abort = own.on_abort;
    own.on_abort = own.on_abort == NULL ? NULL : tell_twice;
    return wrong.real->job->create(&own, ret_job, reterr);
}

static void tells_twice(void)
{
    wrong.job.create = create_telling;
}

static void *host_user;

static int32_t create_noting(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                             struct hsdp_error *reterr)
{
    host_on_abort = spec->on_abort;
    host_user = spec->user;
    return wrong.real->job->create(spec, ret_job, reterr);
}

static int32_t close_alarming(hsdp_job *job, struct hsdp_error *reterr)
{
    struct hsdp_error reason = HSDP_ERROR_INIT;
    int32_t status = wrong.real->job->close(job, reterr);

    if (status == HSDP_OK && host_on_abort != NULL) {
        host_on_abort(host_user, &reason);
    }
    return status;
}

static void tells_of_a_good_end(void)
{
    wrong.job.create = create_noting;
    wrong.job.close = close_alarming;
}

/* Any error ends the job. */
static hsdp_job *last_job;

static int32_t create_model(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model,
                            struct hsdp_error *reterr)
{
    last_job = job;
    return wrong.real->model->create(job, plan, ret_model, reterr);
}

static int32_t release_harsh(hsdp_model *model, uint32_t unit, void *stream,
                             struct hsdp_error *reterr)
{
    int32_t status = wrong.real->unit->release(model, unit, stream, reterr);

    if (status != HSDP_OK) {
        wrong.real->job->abort(last_job, "a wrong call", NULL);
    }
    return status;
}

static void every_error_is_fatal(void)
{
    wrong.model.create = create_model;
    wrong.unit.release = release_harsh;
}

/* Outputs are cleared first, whatever comes. */
static int32_t view_cleared(hsdp_model *model, uint32_t param, int32_t view,
                            struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    memset(ret_view, 0, sizeof(*ret_view));
    return wrong.real->model->param_view(model, param, view, ret_view, reterr);
}

static void writes_outputs_on_failure(void)
{
    wrong.model.param_view = view_cleared;
}

static int32_t info_silent(const hsdp_job *job, struct hsdp_job_info *ret_info,
                           struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->status(job, reterr);

    return status == HSDP_OK ? wrong.real->job->info(job, ret_info, reterr) : status;
}

static void info_is_silent(void)
{
    wrong.job.info = info_silent;
}

static void destroy_model(hsdp_model *model)
{
    if (model != NULL) {
        wrong.real->model->destroy(model);
    } else {
        abort();
    }
}

static void destroy_needs_one(void)
{
    wrong.model.destroy = destroy_model;
}

/* Ranks are not asked whether they want the same. */
static void reduction_change(struct hsdp_coll_spec *spec, uint32_t n_ranks)
{
    (void)n_ranks;
    spec->reduce = HSDP_REDUCE_SUM;
}

static void reductions_are_not_compared(void)
{
    wrong_start(reduction_change);
}

static uint32_t n_created;

static int32_t create_first(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                            struct hsdp_error *reterr)
{
    if (n_created++ > 0) {
        return wrong.real->job->create(NULL, ret_job, reterr);
    }
    return wrong.real->job->create(spec, ret_job, reterr);
}

static void one_job_a_process(void)
{
    wrong.job.create = create_first;
}

static const struct wrong_fault faults[] = {
    {"another-reason", "failures", "a second abort changes nothing",
     "later calls do not repeat the first reason", another_reason},
    {"loss-as-timeout", "failures", "a killed rank is named while hosts compute",
     "a dead rank is told as a timeout", loss_as_timeout},
    {"abort-does-nothing", "failures", "a second abort changes nothing", "abort does nothing",
     abort_does_nothing},
    {"last-reason-counts", "failures", "a second abort changes nothing",
     "a second abort replaces the first reason", last_reason_counts},
    {"abort-takes-null", "arguments", "job: NULL is refused where nothing allows it",
     "abort(NULL) succeeds", abort_takes_null},
    {"tells-twice", "failures", "on_abort is told once, and why", "on_abort is told twice",
     tells_twice},
    {"tells-of-a-good-end", "failures", "on_abort is not told of a good end",
     "on_abort is told when a job closes", tells_of_a_good_end},
    {"every-error-is-fatal", "failures", "calls that are refused change nothing",
     "a call at the wrong moment ends the job", every_error_is_fatal},
    {"writes-outputs-on-failure", "failures", "outputs stay as they were on failure",
     "param_view clears its output before it fails", writes_outputs_on_failure},
    {"info-is-silent", "failures", "a count that differs is named on all",
     "info does not answer on a failed job", info_is_silent},
    {"destroy-needs-one", "arguments", "objects: destroy accepts NULL",
     "model.destroy(NULL) crashes", destroy_needs_one},
    {"reductions-are-not-compared", "failures", "a reduction that differs is named on all",
     "ranks that reduce otherwise are not found out", reductions_are_not_compared},
    {"one-job-a-process", "failures", "a new job follows one that has failed",
     "a process cannot have a second job", one_job_a_process},
};

const struct wrong_faults wrong_failures = WRONG_FAULTS(faults);
