/* SPDX-License-Identifier: Apache-2.0 */
/* Transports: which one a job has, and what all of them say. */
#include "comm/transport.h"

#include "base/error.h"
#include "comm/nccl_engine.h"

int32_t transport_slot_refuse(const struct hsdp_plan *plan, uint32_t unit, uint32_t next,
                              struct hsdp_error *reterr)
{
    error_set(reterr, HSDP_ERR_STATE,
              "unit.unshard: unit \"%s\": its gradient slot is occupied by unit \"%s\", which "
              "waits for an earlier unit of its pass; that one's reduce or skip was expected",
              plan->units[next].name, plan->units[unit].name);
    error_where(reterr, "unit.unshard", NULL, plan->units[next].name);
    return HSDP_ERR_STATE;
}

const struct transport_ops *transport_of(const struct hsdp_job *job)
{
    return job_nccl(job) == NULL ? &shm_transport : &nccl_transport;
}
