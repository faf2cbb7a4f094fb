/* SPDX-License-Identifier: Apache-2.0 */
/* Records of operations, by the thread inside: two readings of the clock and no lock. */
#include "base/clock.h"
#include "comm/job_internal.h"

/* A child of the rank has the ring too, and would write into it. */
static bool is_recorded(const struct hsdp_job *job)
{
    return job->flight.ring != NULL && *job->alive != 0;
}

uint64_t job_record_begin(struct hsdp_job *job, const struct wait *what)
{
    uint64_t now_ns;

    if (!is_recorded(job)) {
        return 0;
    }
    now_ns = clock_now_ns();
    return flight_begin(&job->flight, what, what->ticket, now_ns, now_ns);
}

uint64_t job_record_issue(struct hsdp_job *job, const struct wait *what, uint64_t ticket)
{
    return is_recorded(job) ? flight_begin(&job->flight, what, ticket, clock_now_ns(), 0) : 0;
}

void job_record_start(struct hsdp_job *job, uint64_t record, uint64_t sequence)
{
    if (is_recorded(job)) {
        flight_start(&job->flight, record, sequence, clock_now_ns());
    }
}

void job_record_end(struct hsdp_job *job, uint64_t record, int32_t status)
{
    if (is_recorded(job)) {
        flight_end(&job->flight, record, status == HSDP_OK ? FLIGHT_DONE : FLIGHT_FAILED,
                   clock_now_ns());
    }
}

void job_record_done(struct hsdp_job *job, const struct wait *what)
{
    uint64_t now_ns;

    if (is_recorded(job)) {
        now_ns = clock_now_ns();
        flight_end(&job->flight, flight_begin(&job->flight, what, what->ticket, now_ns, now_ns),
                   FLIGHT_DONE, now_ns);
    }
}
