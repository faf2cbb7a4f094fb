/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: a list that only grows, so that any thread may read it at any time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/job_internal.h"

static struct counter *counter_find(const struct hsdp_job *job, const char *name)
{
    struct counter *counter = atomic_load(&job->counters);

    while (counter != NULL && strcmp(counter->name, name) != 0) {
        counter = atomic_load(&counter->next);
    }
    return counter;
}

_Atomic uint64_t *job_counter_register(struct hsdp_job *job, const char *name)
{
    struct counter *counter = counter_find(job, name);
    _Atomic(struct counter *) *last = &job->counters;

    if (counter != NULL) {
        return &counter->value;
    }
    counter = calloc(1, sizeof(*counter));
    if (counter == NULL) {
        return NULL;
    }
    snprintf(counter->name, sizeof(counter->name), "%s", name);
    while (atomic_load(last) != NULL) {
        last = &atomic_load(last)->next;
    }
    atomic_store(last, counter); /* complete from the first moment that it can be seen */
    return &counter->value;
}

int32_t counters_init(struct hsdp_job *job, struct hsdp_error *reterr)
{
    static const char *const names[] = {
        "memory.parameters", "memory.gradients", "memory.optimizer", "memory.unsharded", "steps",
        "unshards",          "reductions"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (job_counter_register(job, names[i]) == NULL) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY, "job: no memory for counters");
        }
    }
    job->n_waits = job_counter_register(job, "waits");
    job->wait_ns = job_counter_register(job, "wait_ns");
    if (job->n_waits == NULL || job->wait_ns == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "job: no memory for counters");
    }
    return HSDP_OK;
}

int32_t job_counter(const struct hsdp_job *job, const char *name, uint64_t *ret_value,
                    struct hsdp_error *reterr)
{
    struct counter *counter = counter_find(job, name);
    int32_t status = job_check_process(job, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (counter == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "diag: no counter is named \"%.64s\"; counter_name lists them", name);
    }
    *ret_value = atomic_load(&counter->value);
    return HSDP_OK;
}

int32_t job_counter_name(const struct hsdp_job *job, uint64_t index, const char **ret_name,
                         struct hsdp_error *reterr)
{
    struct counter *counter = atomic_load(&job->counters);
    uint64_t n = 0;

    while (counter != NULL && n < index) {
        counter = atomic_load(&counter->next);
        n++;
    }
    if (counter == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "diag: counter %" PRIu64 " is past the last one; there are %" PRIu64,
                         index, n);
    }
    *ret_name = counter->name;
    return HSDP_OK;
}
