/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that crosses the border between a host and a plugin; loader.h and adamw.h beside it.
 */
#ifndef HSDP_HSDP_H
#define HSDP_HSDP_H

/*
 * In the order of use:
 *
 *     mesh    name the dimensions over which ranks are arranged
 *     job     join the run
 *     group   the host's own collectives (optional)
 *     plan    say what is sharded how: classes, units, parameters
 *     model   put the plan on the job; fill in the weights
 *     unit    each microbatch: unshard, compute, reduce, release
 *     step    each optimizer step: norm, clip, update, publish
 *     diag    look at it, also while it hangs
 *
 * abi.h states the rules that hold for all of them.
 */

#include "hsdp/abi.h"
#include "hsdp/diag.h"
#include "hsdp/group.h"
#include "hsdp/job.h"
#include "hsdp/mesh.h"
#include "hsdp/model.h"
#include "hsdp/plan.h"
#include "hsdp/step.h"
#include "hsdp/unit.h"

#endif /* HSDP_HSDP_H */
