/* SPDX-License-Identifier: Apache-2.0 */
/* What training must compute: by one process, in double precision, without any sharding. */
#ifndef CONFORM_SERIAL_H
#define CONFORM_SERIAL_H

#include "host.h"

/*
 * Knows no strategy: gradients of all ranks that hold a parameter are added and divided, and the
 * norm counts each element once. What may be rounded on the way is rounded here too: each gradient
 * to the dtype of its view, and each contribution to that of the wire. A contribution is one
 * microbatch; where scope none is planned, all since the last pass of scope full, added up in fp32.
 * A name for a parameter of another unit has a gradient of its own, which is added to that of its
 * storage in fp32: its values are such that the order does not matter.
 */
struct serial {
    const struct host *host;
    host_value gradient; /* of every rank */
    host_value late;     /* added by grad_add before the unit is handed over; NULL = none */
    const int32_t *scopes;
    uint32_t n_batches;
    uint32_t first_batch;
    bool is_local; /* scope none is planned */
    bool is_exact; /* all sums of gradients are exact in fp32: only the division rounds */
    uint32_t (*first_holder)(uint32_t param, uint32_t rank); /* over stages; NULL = no ties there */
    bool (*has_pass)(uint32_t batch, uint32_t param);        /* its unit is in one; NULL = always */
    double divisor;                   /* of a mean, where the class has none of its own */
    double norm_p;                    /* 0 = 2 */
    double *weights[HOST_MAX_PARAMS]; /* of this rank; owned, like the next three */
    double *slacks[HOST_MAX_PARAMS];  /* what they may be off by */
    double *grads[HOST_MAX_PARAMS];
    double *masses[HOST_MAX_PARAMS]; /* the same of magnitudes: what rounding is measured by */
    double rounding;                 /* a gradient may be off by so much of its mass */
    double norm;
    double norm_slack; /* what the norm may be off by */
};

#define SERIAL_MAX_RANKS  80u
#define SERIAL_TEXT_BYTES 160

/** Weights as host_load gives them. The divisor is the number of data ranks. */
void serial_init(struct serial *serial, const struct host *host, host_value weight);
void serial_fini(struct serial *serial);

/**
 * Fills grads, masses and norm from scopes, n_batches and first_batch.
 *
 * Contributions are those of the plugin, but for the order in which a rank has added them up. It
 * then adds n_ranks * n_batches of them in fp32, in any order, and divides once, so a gradient is
 * off by at most so many half units in the last place of its mass; and by one of itself where the
 * sums are exact. Norms differ by no more than the norm of the differences.
 */
void serial_reduce(struct serial *serial);

/** weights -= rate * factor * grads; each such step may round once more. */
void serial_descend(struct serial *serial, double rate, double factor);

/** The norm, times what the step has scaled it by, is `norm`. */
bool serial_has_norm(const struct serial *serial, double norm, double scale);
/** Within a step: false says in ret_text which gradient is another one. Collective. */
bool serial_has_grads(const struct serial *serial, struct host *host,
                      char ret_text[SERIAL_TEXT_BYTES]);

/** The norm that a step has found is this one. */
void serial_expect_norm(const struct serial *serial, double norm);

/** Within a step: gradients are those of the engine. Collective. */
void serial_expect_grads(const struct serial *serial, struct host *host);

/** Between steps: masters, and views of unsharded parameters to their dtype's accuracy. */
void serial_expect_weights(const struct serial *serial, struct host *host);

#endif /* CONFORM_SERIAL_H */
