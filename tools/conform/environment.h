/* SPDX-License-Identifier: Apache-2.0 */
/* The environment in which a launcher starts a rank. */
#ifndef CONFORM_ENVIRONMENT_H
#define CONFORM_ENVIRONMENT_H

#include <stdint.h>

struct environment {
    char run_id[64];
    uint32_t n_ranks;
    uint16_t master_port;
};

/** Of a new run: an own id, a port that is free. */
void environment_init(struct environment *ret, uint32_t n_ranks);

/** In this process: that of one rank, and nothing of any other launcher or setting. */
void environment_apply(const struct environment *environment, uint32_t rank);

/** In this process: a setting, "key=value", for all jobs and plans that leave it open. */
void environment_set(const char *setting);

#endif /* CONFORM_ENVIRONMENT_H */
