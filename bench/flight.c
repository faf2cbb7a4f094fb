/* SPDX-License-Identifier: Apache-2.0 */
/* What the flight recorder costs: a record from its call to its end, and entering a job. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/job.h"
#include "figures.h"

#define N_ROUNDS  100u /* short ones: in some of them nobody else wants the processor */
#define MAX_TIMES 100000000u

static void fail(const char *what)
{
    fprintf(stderr, "bench-flight: %s\n", what);
    exit(EXIT_FAILURE);
}

static void records_make(struct hsdp_job *job, uint32_t n_times)
{
    struct wait what = {
        .operation = "reduce", .group = "dp_shard", .unit = "block.11", .ticket = 1};

    for (uint64_t i = 1; i <= n_times; i++) {
        what.sequence = i;
        job_record_end(job, job_record_begin(job, &what), HSDP_OK);
    }
}

static void records_done(struct hsdp_job *job, uint32_t n_times)
{
    struct wait what = {.operation = "unshard", .group = "dp_shard", .unit = "block.11"};

    for (uint64_t i = 1; i <= n_times; i++) {
        what.sequence = i;
        job_record_done(job, &what);
    }
}

/* Called, started when its turn comes, ended: three readings of the clock. */
static void records_queue(struct hsdp_job *job, uint32_t n_times)
{
    struct wait what = {.operation = "reduce", .group = "dp_shard", .unit = "block.11"};

    for (uint64_t i = 1; i <= n_times; i++) {
        uint64_t record = job_record_issue(job, &what, i);

        job_record_start(job, record, i);
        job_record_end(job, record, HSDP_OK);
    }
}

static void job_enters(struct hsdp_job *job, uint32_t n_times)
{
    for (uint64_t i = 1; i <= n_times; i++) {
        job_leave(job);
        job_enter(job, NULL);
        job_call(job, "unit.unshard");
    }
}

static void clock_reads(struct hsdp_job *job, uint32_t n_times)
{
    (void)job;
    for (uint64_t i = 1; i <= n_times; i++) {
        clock_now_ns();
    }
}

struct cost {
    const char *key; /* in JSON */
    const char *words;
    void (*run)(struct hsdp_job *job, uint32_t n_times);
    double ns; /* of one, in the best round */
};

static void cost_measure(struct hsdp_job *job, uint32_t n_times, struct cost *cost)
{
    uint64_t best_ns = UINT64_MAX;

    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        uint64_t start_ns = clock_now_ns();
        uint64_t ns;

        cost->run(job, n_times);
        ns = clock_now_ns() - start_ns;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    cost->ns = (double)best_ns / n_times;
}

static struct hsdp_job *job_begin(void)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.world_ranks = 1;
    if (job_create(&spec, &job, &err) != HSDP_OK || job_enter(job, &err) != HSDP_OK ||
        job_connect(job, &err) != HSDP_OK) {
        fail(err.message);
    }
    return job;
}

static void results_write(const struct cost *costs, uint32_t n, const char *part)
{
    FILE *file = part == NULL ? NULL : fopen(part, "w");

    printf("%-40s%8s\n", "the flight recorder, best round", "ns");
    for (uint32_t i = 0; i < n; i++) {
        printf("%-40s%8.1f\n", costs[i].words, costs[i].ns);
    }
    if (part == NULL) {
        return;
    }
    if (file == NULL) {
        fail("cannot write the part");
    }
    for (uint32_t i = 0; i < n; i++) {
        fprintf(file, "%s\"%s\":%.1f", i == 0 ? "{" : ",", costs[i].key, costs[i].ns);
    }
    fprintf(file, "}\n");
    if (fclose(file) != 0) {
        fail("cannot write the part");
    }
}

int main(int argc, char **argv)
{
    struct cost costs[] = {
        {"record_ns", "a record: called, ended", records_make, 0},
        {"record_done_ns", "a record of what is over at once", records_done, 0},
        {"record_queued_ns", "a record: called, started, ended", records_queue, 0},
        {"enter_leave_ns", "entering a job and leaving it", job_enters, 0},
        {"clock_ns", "a reading of the clock", clock_reads, 0},
    };
    const uint32_t n_costs = sizeof(costs) / sizeof(costs[0]);
    uint32_t n_times = 5000;
    const char *part = NULL;
    struct hsdp_job *job;
    int option;

    while ((option = getopt(argc, argv, "n:o:")) != -1) {
        if (option == 'n') {
            n_times = (uint32_t)figures_option("bench-flight", optarg, MAX_TIMES);
        } else if (option == 'o') {
            part = optarg;
        } else {
            fprintf(stderr, "usage: bench-flight [-n times] [-o file]\n");
            return 2;
        }
    }
    job = job_begin();
    for (uint32_t i = 0; i < n_costs; i++) {
        cost_measure(job, n_times, &costs[i]);
    }
    results_write(costs, n_costs, part);
    job_leave(job);
    job_destroy(job);
    return EXIT_SUCCESS;
}
