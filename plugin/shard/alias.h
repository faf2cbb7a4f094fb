/* SPDX-License-Identifier: Apache-2.0 */
/* Aliases at work: units whose names have their storage, and their gradients' sum, in others. */
#ifndef SHARD_ALIAS_H
#define SHARD_ALIAS_H

#include "shard/model.h"

/** A gradient of one parameter that joins this rank's contribution outside of the slot. */
struct contribution {
    uint32_t param;     /* a storage */
    const void *values; /* in the space */
    enum dtype dtype;
    bool joins_handed; /* what was handed over in the open pass; else the next hand-over */
    void *stream;      /* of the host, which has written them there */
};
int32_t contribution_add(struct hsdp_model *model, const struct contribution *contribution,
                         struct hsdp_error *reterr);

/**
 * HSDP_ERR_INVALID, naming both, when a storage of the unit's names is in a pass that is being
 * checked before the unit itself: marked as handed over, and in no open pass.
 */
int32_t alias_order_check(const struct hsdp_model *model, uint32_t unit, struct hsdp_error *reterr);

/** Makes the storages of a unit's names readable, and keeps them so until alias_release. */
int32_t alias_hold(struct hsdp_model *model, uint32_t unit, void *stream,
                   struct hsdp_error *reterr);
void alias_release(struct hsdp_model *model, uint32_t unit, void *stream);

/** Adds the gradients of a unit's aliases, in its slot, to what their storages contribute. */
int32_t alias_grads_add(struct hsdp_model *model, uint32_t unit, void *stream,
                        struct hsdp_error *reterr);

#endif /* SHARD_ALIAS_H */
