/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of waits: too long, too short, the wrong one to blame. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wrong.h"

static void sleep_ms(uint32_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000u, .tv_nsec = (long)(ms % 1000u) * 1000000L};

    while (nanosleep(&left, &left) != 0) {
    }
}

static int32_t wait_long(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                         struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->ticket_wait(job, ticket, wait_ms, reterr);

    if (status == HSDP_ERR_TIMEOUT) {
        sleep_ms(8000);
    }
    return status;
}

static void blocks_past(void)
{
    wrong.job.ticket_wait = wait_long;
}

/* Gives up before the time is over. */
static int32_t wait_short(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                          struct hsdp_error *reterr)
{
    int32_t status =
        wrong.real->job->ticket_wait(job, ticket, wait_ms == UINT64_MAX ? 300 : wait_ms, reterr);

    if (status == HSDP_PENDING && wait_ms == UINT64_MAX) {
        reterr->status = HSDP_ERR_TIMEOUT;
        reterr->n_missing_ranks = 1;
        reterr->missing_ranks[0] = 1;
        reterr->waited_ms = 300;
        strcpy(reterr->operation, "barrier");
        strcpy(reterr->group, "dp");
        strcpy(reterr->message, "too early");
        reterr->unit[0] = '\0';
        return HSDP_ERR_TIMEOUT;
    }
    return status;
}

static void gives_up_early(void)
{
    wrong.job.ticket_wait = wait_short;
}

/* Changes the error of a timeout. */
static int32_t wait_with(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                         struct hsdp_error *reterr, void (*change)(struct hsdp_error *err))
{
    int32_t status = wrong.real->job->ticket_wait(job, ticket, wait_ms, reterr);

    if (status == HSDP_ERR_TIMEOUT && reterr != NULL) {
        change(reterr);
    }
    return status;
}

static void name_other(struct hsdp_error *err)
{
    err->missing_ranks[0] = 0;
}

static int32_t wait_naming_other(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                                 struct hsdp_error *reterr)
{
    return wait_with(job, ticket, wait_ms, reterr, name_other);
}

static void names_itself(void)
{
    wrong.job.ticket_wait = wait_naming_other;
}

static void name_all(struct hsdp_error *err)
{
    err->n_missing_ranks = 2;
    err->missing_ranks[0] = 2;
    err->missing_ranks[1] = 3;
}

static int32_t wait_naming_all(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                               struct hsdp_error *reterr)
{
    return wait_with(job, ticket, wait_ms, reterr, name_all);
}

static void names_too_many(void)
{
    wrong.job.ticket_wait = wait_naming_all;
}

static void forget_time(struct hsdp_error *err)
{
    err->waited_ms = 0;
}

static int32_t wait_untimed(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                            struct hsdp_error *reterr)
{
    return wait_with(job, ticket, wait_ms, reterr, forget_time);
}

static void forgets_time(void)
{
    wrong.job.ticket_wait = wait_untimed;
}

static int32_t connect_naming_other(hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->connect(job, reterr);

    if (status == HSDP_ERR_TIMEOUT && reterr != NULL) {
        reterr->missing_ranks[0]--;
    }
    return status;
}

static void connect_names_other(void)
{
    wrong.job.connect = connect_naming_other;
}

static int32_t wait_never(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                          struct hsdp_error *reterr)
{
    return wrong.real->job->ticket_wait(job, ticket, wait_ms == UINT64_MAX ? wait_ms : 0, reterr);
}

static void only_asks(void)
{
    wrong.job.ticket_wait = wait_never;
}

static int32_t push_nothing(hsdp_job *job, const char *phase, uint64_t timeout_ms,
                            struct hsdp_error *reterr)
{
    return wrong.real->job->phase_push(job, phase, timeout_ms < 30001 ? 1000 : timeout_ms, reterr);
}

static void phases_count_not(void)
{
    wrong.job.phase_push = push_nothing;
}

static void timeout_change(struct hsdp_coll_spec *spec, uint32_t n_ranks)
{
    (void)n_ranks;
    spec->timeout_ms = 0;
}

static void call_timeout_ignored(void)
{
    wrong_start(timeout_change);
}

static int32_t close_soon(hsdp_job *job, struct hsdp_error *reterr)
{
    (void)job;
    (void)reterr;
    return HSDP_OK;
}

static void close_waits_not(void)
{
    wrong.job.close = close_soon;
}

static int32_t read_default(const hsdp_job *job, const char *key, const char **ret_value,
                            const char **ret_source, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->setting(job, key, ret_value, ret_source, reterr);

    if (status == HSDP_OK && ret_source != NULL) {
        *ret_source = "default";
    }
    return status;
}

static void source_untold(void)
{
    wrong.job.setting = read_default;
}

static const struct wrong_fault faults[] = {
    {"blocks-past-the-deadline", "deadlines", "a group over both dimensions ends in time",
     "a timeout is told eight seconds late", blocks_past},
    {"gives-up-early", "deadlines", "a timeout of one call counts",
     "a wait ends before its timeout", gives_up_early},
    {"names-itself", "deadlines", "a timeout of one call counts",
     "the rank that waits names itself as missing", names_itself},
    {"names-too-many", "deadlines", "a group over both dimensions ends in time",
     "a rank that came is named as missing", names_too_many},
    {"forgets-the-time", "deadlines", "reduce without a peer ends in time", "waited_ms is 0",
     forgets_time},
    {"connect-names-another", "deadlines", "connect without the last rank ends in time",
     "connect names the rank before the missing one", connect_names_other},
    {"only-asks", "deadlines", "ticket_wait ends when its time is over",
     "ticket_wait does not wait", only_asks},
    {"phases-count-not", "deadlines", "a phase lets a wait last longer",
     "a phase does not lengthen a wait", phases_count_not},
    {"call-timeout-ignored", "deadlines", "a call's timeout lets it last longer",
     "the timeout of a collective is ignored", call_timeout_ignored},
    {"close-waits-not", "deadlines", "close without a peer ends in time", "close waits for nobody",
     close_waits_not},
    {"source-untold", "deadlines", "timeouts are read back with their source",
     "every setting comes from the default", source_untold},
};

const struct wrong_faults wrong_waits = WRONG_FAULTS(faults);
