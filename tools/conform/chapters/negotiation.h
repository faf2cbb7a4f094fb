/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of chapter negotiation, and what they share. */
#ifndef CONFORM_NEGOTIATION_H
#define CONFORM_NEGOTIATION_H

#include "conform.h"

/* The symbols that the file defines for others (exports.c). */
void exports_one_symbol(struct conform *conform);

/* What the plugin tells of itself (describe.c). */
void describe_sizes(struct conform *conform);
void describe_document(struct conform *conform);
void describe_settings(struct conform *conform);
void describe_again(struct conform *conform);
void extension_known(struct conform *conform);
void extension_unknown(struct conform *conform);

/* A table and what it had in ABI 1.0. */
struct table {
    const char *name;
    const void *table;
    size_t n_bytes_1_0;
    size_t n_bytes; /* that this kit knows */
};

/** Fails the check unless the table is whole: long enough, and without NULL. */
void table_check(struct conform *conform, const struct table *table, size_t least_bytes);

#endif /* CONFORM_NEGOTIATION_H */
