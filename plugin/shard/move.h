/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of parameters and states between ranks: how they are told apart. */
#ifndef SHARD_MOVE_H
#define SHARD_MOVE_H

#include "shard/model.h"

#define MOVE_TEXT_BYTES 96u /* of what is moved, in words */

enum move { MOVE_IMPORT, MOVE_EXPORT, MOVE_SYNC };

/** What is moved, and how, as one number: ranks that name something else are told. */
static inline uint64_t move_tag(enum move move, uint32_t index, int32_t flat)
{
    return (uint64_t)index << 32 | (uint32_t)move << 24 | (uint32_t)flat;
}

/** HSDP_ERR_STATE outside of an edit; the same on all ranks. */
int32_t edit_check(const struct hsdp_model *model, const char *call, struct hsdp_error *reterr);

#endif /* SHARD_MOVE_H */
