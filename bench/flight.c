/* SPDX-License-Identifier: Apache-2.0 */
/* What the flight recorder costs: a record from its call to its end, and entering a job. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "comm/job.h"

#define N_ROUNDS 7u
#define N_TIMES  200000u

static void fail(const struct hsdp_error *err)
{
    fprintf(stderr, "flight: %s\n", err->message);
    exit(EXIT_FAILURE);
}

static void records_make(struct hsdp_job *job)
{
    struct wait what = {
        .operation = "reduce", .group = "dp_shard", .unit = "block.11", .ticket = 1};

    for (uint64_t i = 1; i <= N_TIMES; i++) {
        what.sequence = i;
        job_record_end(job, job_record_begin(job, &what), HSDP_OK);
    }
}

static void records_done(struct hsdp_job *job)
{
    struct wait what = {.operation = "unshard", .group = "dp_shard", .unit = "block.11"};

    for (uint64_t i = 1; i <= N_TIMES; i++) {
        what.sequence = i;
        job_record_done(job, &what);
    }
}

/* Called, started when its turn comes, ended: three readings of the clock. */
static void records_queue(struct hsdp_job *job)
{
    struct wait what = {.operation = "reduce", .group = "dp_shard", .unit = "block.11"};

    for (uint64_t i = 1; i <= N_TIMES; i++) {
        uint64_t record = job_record_issue(job, &what, i);

        job_record_start(job, record, i);
        job_record_end(job, record, HSDP_OK);
    }
}

static void job_enters(struct hsdp_job *job)
{
    for (uint64_t i = 1; i <= N_TIMES; i++) {
        job_leave(job);
        job_enter(job, NULL);
        job_call(job, "unit.unshard");
    }
}

static void clock_reads(struct hsdp_job *job)
{
    (void)job;
    for (uint64_t i = 1; i <= N_TIMES; i++) {
        clock_now_ns();
    }
}

/* The best of some rounds, nanoseconds each. */
static double cost_of(struct hsdp_job *job, void (*run)(struct hsdp_job *job))
{
    uint64_t best_ns = UINT64_MAX;

    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        uint64_t start_ns = clock_now_ns();
        uint64_t ns;

        run(job);
        ns = clock_now_ns() - start_ns;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    return (double)best_ns / N_TIMES;
}

int main(void)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.world_ranks = 1;
    if (job_create(&spec, &job, &err) != HSDP_OK || job_enter(job, &err) != HSDP_OK ||
        job_connect(job, &err) != HSDP_OK) {
        fail(&err);
    }
    printf(
        "\"flight\": {\"record_ns\": %.1f, \"record_done_ns\": %.1f, \"record_queued_ns\": %.1f, "
        "\"enter_leave_ns\": %.1f, \"clock_ns\": %.1f}\n",
        cost_of(job, records_make), cost_of(job, records_done), cost_of(job, records_queue),
        cost_of(job, job_enters), cost_of(job, clock_reads));
    job_leave(job);
    job_destroy(job);
    return EXIT_SUCCESS;
}
