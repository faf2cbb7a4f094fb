/* SPDX-License-Identifier: Apache-2.0 */
/* Transports: which one a job has. */
#include "comm/transport.h"

const struct transport_ops *transport_of(const struct hsdp_job *job)
{
    (void)job; /* job_create has refused the others */
    return &shm_transport;
}
