/* SPDX-License-Identifier: Apache-2.0 */
/* The extension hsdp.adamw over a model's shards. See hsdp/adamw.h. */
#ifndef SHARD_ADAMW_H
#define SHARD_ADAMW_H

#include "hsdp/adamw.h"
#include "shard/model.h"

/** Frees what its steps keep of a model; NULL is accepted. */
void adamw_free(struct adamw *adamw);

int32_t adamw_step(struct hsdp_model *model, const struct hsdp_adamw_spec *spec,
                   struct hsdp_error *reterr);

#endif /* SHARD_ADAMW_H */
