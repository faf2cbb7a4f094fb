/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a check, in the process that was made for it. */
#ifndef CONFORM_RANK_H
#define CONFORM_RANK_H

#include <sys/types.h>

#include "runner.h"

/** In the child that `parent` has forked: becomes the rank, plays, and ends. */
_Noreturn void rank_play(const struct runner *runner, uint32_t rank, pid_t parent);

#endif /* CONFORM_RANK_H */
