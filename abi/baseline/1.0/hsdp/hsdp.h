/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/hsdp.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_HSDP_H
#define HSDP_HSDP_H
#include "hsdp/abi.h"
#include "hsdp/diag.h"
#include "hsdp/group.h"
#include "hsdp/job.h"
#include "hsdp/mesh.h"
#include "hsdp/model.h"
#include "hsdp/plan.h"
#include "hsdp/step.h"
#include "hsdp/unit.h"
#endif
