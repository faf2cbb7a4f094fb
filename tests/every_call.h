/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of the ABI that takes a job or what is made from it, one after the other. */
#ifndef TESTS_EVERY_CALL_H
#define TESTS_EVERY_CALL_H

#include "host.h"

/* What is called: a host with a model of two units, whose first parameter has at most 64 elements.
 */
struct every_call {
    struct host host;
    hsdp_group *group;
};

/* Answered past the last function of a table; no status of the ABI. */
#define EVERY_CALL_MADE INT32_MAX

struct every_call_table {
    const char *name;
    /** Calls the index-th function, from 0; what went wrong is in host.err. */
    int32_t (*call)(struct every_call *on, uint64_t index);
    uint64_t n_left_out; /* destroy, which answers nothing, and create of a job, which takes none */
    size_t n_bytes;      /* of the table */
};

#define EVERY_CALL_N_TABLES 7
extern const struct every_call_table every_call_tables[EVERY_CALL_N_TABLES];

/** How many functions a table has, without those that are left out. */
uint64_t every_call_n(const struct every_call_table *table);

#endif /* TESTS_EVERY_CALL_H */
