/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics: reports and counters of a job, from any thread, also while it hangs. */
#ifndef HSDP_DIAG_H
#define HSDP_DIAG_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Functions that only look. Any thread, at any time.
 *
 * Since: 1.0
 */
struct hsdp_diag_ops {
    size_t struct_size;

    /**
     * Writes a report as JSON. `what` is one of
     *
     *     settings  the job's effective values and their sources (a plan's are in its report)
     *     ledger    the job's timeouts, and each group's (the host's, and those of models'
     *               classes): members, timeout now and where it comes from
     *     memory    bytes of each kind, per model
     *     traffic   operations and payload bytes, per group
     *     flight    the last operations (as many as the setting flight_records): number, state
     *               (issued, started, done, failed; torn = just being written), operation, group,
     *               unit, sequence, ticket, bytes, and when each was called, started and ended:
     *               nanoseconds of CLOCK_MONOTONIC, as now_ns
     *     plan      the plan of each model
     *     error     the first failure
     *
     * The members of each are for people and tools of the same version; a plugin may add to them.
     *
     * Shapes: as describe() in abi.h.
     * Errors: HSDP_ERR_INVALID for another name, listing these; HSDP_ERR_UNSUPPORTED for a report
     * that is not built.
     */
    int32_t (*report)(const hsdp_job *job, const char *what, char *ret_text, uint64_t max_bytes,
                      uint64_t *ret_bytes, struct hsdp_error *reterr);

    /**
     * Reads one counter of the job by name. Counters only grow, but for those in memory.*.
     *
     *     memory.parameters, memory.gradients, memory.optimizer, memory.unsharded   bytes, now;
     *                              masters count as parameters
     *     traffic.<group>          payload bytes that this rank received from its peers in a
     *                              group of units, named by its selector ("dp_shard"), or moved
     *                              through a group of the host
     *     operations.<group>       how many there were
     *     steps, unshards, reductions, waits, wait_ns
     *
     * Errors: HSDP_ERR_INVALID for an unknown name.
     */
    int32_t (*counter)(const hsdp_job *job, const char *name, uint64_t *ret_value,
                       struct hsdp_error *reterr);

    /**
     * Lists the counters: the name of the index-th, from 0.
     *
     * Ownership: *ret_name lives as long as the job.
     * Errors: HSDP_ERR_INVALID past the last one.
     */
    int32_t (*counter_name)(const hsdp_job *job, uint64_t index, const char **ret_name,
                            struct hsdp_error *reterr);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HSDP_DIAG_H */
