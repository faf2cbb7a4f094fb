/* SPDX-License-Identifier: Apache-2.0 */
/* What training must compute: by one process, in double precision, without any sharding. */
#ifndef TESTS_SERIAL_H
#define TESTS_SERIAL_H

#include "host.h"

/*
 * Knows no strategy: gradients of all ranks that hold a parameter are added and divided, and the
 * norm counts each element once. What may be rounded on the way is rounded here too: each gradient
 * to the dtype of its view, and each contribution to that of the wire. A contribution is one
 * microbatch; where scope none is planned, all since the last pass of scope full, added up in fp32.
 */
struct serial {
    const struct host *host;
    host_value gradient; /* of every rank */
    host_value late;     /* added by grad_add before the unit is handed over; NULL = none */
    const int32_t *scopes;
    uint32_t n_batches;
    uint32_t first_batch;
    bool is_local; /* scope none is planned */
    double divisor;
    double *weights[HOST_MAX_PARAMS]; /* of this rank; owned, like the next two */
    double *grads[HOST_MAX_PARAMS];
    double *masses[HOST_MAX_PARAMS]; /* the same of magnitudes: what rounding is measured by */
    double norm;
    double norm_slack; /* what the norm may be off by: rounding is measured by magnitudes */
};

/** Weights as host_load gives them. The divisor is the number of data ranks. */
void serial_init(struct serial *serial, const struct host *host, host_value weight);
void serial_fini(struct serial *serial);

/** Fills grads, masses and norm from scopes, n_batches and first_batch. */
void serial_reduce(struct serial *serial);

/** weights -= rate * factor * grads. */
void serial_descend(struct serial *serial, double rate, double factor);

/** The norm that a step has found is this one. */
void serial_expect_norm(const struct serial *serial, double norm);

/** Within a step: gradients are those of the engine to fp32 accuracy. Collective. */
void serial_expect_grads(const struct serial *serial, struct host *host);

/** Between steps: masters to fp32 accuracy, views of unsharded parameters to their dtype's. */
void serial_expect_weights(const struct serial *serial, struct host *host);

#endif /* TESTS_SERIAL_H */
