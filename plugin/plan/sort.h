/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting rows by a number, in a time that grows with their number alone. */
#ifndef PLAN_SORT_H
#define PLAN_SORT_H

#include <stdint.h>

struct sort_row {
    uint64_t key;
    uint64_t index; /* the caller's */
};

/** Ascending; rows of one key stay in their order. `spare` has room for as many. */
void sort_rows(struct sort_row *rows, struct sort_row *spare, uint32_t n_rows);

#endif /* PLAN_SORT_H */
