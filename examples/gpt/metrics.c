/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin's counters say of memory and traffic. */
#include "metrics.h"

#include <string.h>
#include <sys/resource.h>

#define TRAFFIC_PREFIX "traffic."

static int counter_read(const struct session *session, const char *name, uint64_t *ret_value,
                        struct fault *ret_fault)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    if (session->api->diag->counter(session->job, name, ret_value, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    return 0;
}

/* The row of a group, made at its first appearance; METRICS_MAX_GROUPS when the table is full. */
static size_t group_row(struct metrics *metrics, const char *group)
{
    size_t row = 0;

    while (row < metrics->n_groups && strcmp(metrics->traffic[row].group, group) != 0) {
        row++;
    }
    if (row == metrics->n_groups && row < METRICS_MAX_GROUPS) {
        metrics->traffic[row].group = group;
        metrics->n_groups++;
    }
    return row;
}

static int traffic_read(struct metrics *metrics, const struct session *session,
                        struct fault *ret_fault)
{
    const char *name;

    for (uint64_t i = 0; session->api->diag->counter_name(session->job, i, &name, NULL) == HSDP_OK;
         i++) {
        uint64_t total;
        size_t row;
        int status;

        if (strncmp(name, TRAFFIC_PREFIX, strlen(TRAFFIC_PREFIX)) != 0) {
            continue;
        }
        status = counter_read(session, name, &total, ret_fault);
        if (status != 0) {
            return status;
        }
        row = group_row(metrics, name + strlen(TRAFFIC_PREFIX));
        if (row == METRICS_MAX_GROUPS) {
            return fault_set(ret_fault, FAULT_RUN, "the plugin counts more than %u groups",
                             METRICS_MAX_GROUPS);
        }
        metrics->traffic[row].n_bytes = total - metrics->totals[row];
        metrics->totals[row] = total;
    }
    return 0;
}

int metrics_read(struct metrics *metrics, const struct session *session, struct report_step *step,
                 struct fault *ret_fault)
{
    int status = counter_read(session, "memory.parameters", &step->parameter_bytes, ret_fault);

    if (status == 0) {
        status = counter_read(session, "memory.gradients", &step->gradient_bytes, ret_fault);
    }
    if (status == 0) {
        status = counter_read(session, "memory.optimizer", &step->optimizer_bytes, ret_fault);
    }
    if (status == 0) {
        status = counter_read(session, "memory.unsharded", &step->unsharded_bytes, ret_fault);
    }
    if (status == 0) {
        status = traffic_read(metrics, session, ret_fault);
    }
    step->traffic = metrics->traffic;
    step->n_traffic = metrics->n_groups;
    step->peak_bytes = metrics_peak_bytes();
    return status;
}

uint64_t metrics_peak_bytes(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}
