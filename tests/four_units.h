/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks with four units, for tests of what is refused: they end as if nothing had been. */
#ifndef TESTS_FOUR_UNITS_H
#define TESTS_FOUR_UNITS_H

#include "host.h"
#include "ranks.h"

/* The units "a" to "d" with the parameters w, x, y, z; reduced from d to a. */
enum { A, B, C, D };

/** Runs function on two ranks with a strategy and more settings. */
void four_run(int strategy, const char *more, void (*function)(uint32_t rank, void *shared),
              void *shared);
void four_open(struct host *host, uint32_t rank);

/** Gradients of 1 and 3: the means are 2. */
double four_gradient(struct host_at at);

/** Acquires a unit of the open pass, fills it, hands it over. */
void four_backward(struct host *host, uint32_t unit);

/** A step, in which every gradient is this. */
void four_step(struct host *host, double expected);

/** The open pass but for the units that `handed` names by their letters, a step, and close. */
void four_finish_pass(struct host *host, const char *handed);
/** The same with a pass of its own. */
void four_finish(struct host *host);

#endif /* TESTS_FOUR_UNITS_H */
