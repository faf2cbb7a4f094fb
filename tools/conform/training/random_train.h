/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: a case from loading to the last step, against the serial model. */
#ifndef CONFORM_RANDOM_TRAIN_H
#define CONFORM_RANDOM_TRAIN_H

#include "random_pass.h"
#include "serial.h"

/* What a run ends its steps with, for the comparison of bits. */
struct random_trace {
    uint64_t grads[RANDOM_MAX_STEPS][HOST_MAX_PARAMS];
    double norms[RANDOM_MAX_STEPS];
    uint64_t masters[HOST_MAX_PARAMS];
};

/**
 * Plans, loads and trains a case on a job that was joined, run 0 against the serial model; what
 * differs fails. trace may be NULL; noting it is collective.
 */
void random_train(const struct random_case *random, int run, struct host *host,
                  struct random_trace *trace);

/** Both runs have the same bits; if not, ret_text says where. */
bool random_traces_agree(const struct random_case *random, const struct host *host,
                         const struct random_trace traces[RANDOM_RUNS],
                         char ret_text[SERIAL_TEXT_BYTES]);

/** The serial model of a case; random_values_set comes first. */
void random_serial_init(struct serial *serial, const struct random_case *random,
                        const struct host *host);

/** Begins a step as the case says, and waits for what it finds. */
struct hsdp_step_info random_step_open(const struct random_case *random, struct host *host,
                                       uint32_t step);

#endif /* CONFORM_RANDOM_TRAIN_H */
