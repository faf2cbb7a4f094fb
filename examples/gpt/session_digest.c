/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of all parameters of a model, whoever holds which part of them. */
#include <stdlib.h>

#include "digest.h"
#include "session.h"

#define READER_RANK 0u

/* One parameter as fp32, in memory for the caller to free; NULL on all ranks but the reader. */
static int param_read(struct session *session, uint32_t index, struct model_param *param,
                      float **ret_values, struct fault *ret_fault)
{
    const int is_reader = session->rank == READER_RANK;
    const size_t n_elems = (size_t)model_param_elems(param);
    struct hsdp_error error = HSDP_ERROR_INIT;
    float *values = is_reader ? malloc(n_elems * sizeof(*values)) : NULL;
    const struct hsdp_tensor full = {.base = values,
                                     .device_type = HSDP_DEVICE_CPU,
                                     .n_dims = (int32_t)param->n_dims,
                                     .dtype_code = HSDP_DTYPE_FLOAT,
                                     .dtype_bits = 32,
                                     .dtype_lanes = 1,
                                     .shape = param->shape};

    if (is_reader && values == NULL) {
        return fault_set(ret_fault, FAULT_RUN, "no memory to read \"%s\"", param->name);
    }
    if (session->api->model->export_param(session->model, index, HSDP_FLAT_MASTER,
                                          is_reader ? &full : NULL, READER_RANK, session->stream,
                                          &error) != HSDP_OK) {
        free(values);
        return session_fault(session, &error, ret_fault);
    }
    *ret_values = values;
    return 0;
}

int session_digest(struct session *session, uint64_t *ret_digest, struct fault *ret_fault)
{
    uint64_t digest = DIGEST_START;

    for (uint32_t unit = 0; unit < session->n_units; unit++) {
        struct session_unit *own = &session->units[unit];

        for (uint32_t i = 0; i < own->n_params; i++) {
            float *values = NULL;
            const int status =
                param_read(session, own->params[i], &own->table[i], &values, ret_fault);

            if (status != 0) {
                return status;
            }
            if (values != NULL) {
                digest = digest_add(digest, values, (size_t)model_param_elems(&own->table[i]));
            }
            free(values);
        }
    }
    *ret_digest = digest;
    return 0;
}
