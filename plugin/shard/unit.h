/* SPDX-License-Identifier: Apache-2.0 */
/* Units at work: counted uses, slots, and backward passes. See hsdp/unit.h. */
#ifndef SHARD_UNIT_H
#define SHARD_UNIT_H

#include "hsdp/unit.h"
#include "shard/model.h"

int32_t unit_unshard(struct hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                     uint64_t *ret_ticket, struct hsdp_error *reterr);
int32_t unit_release(struct hsdp_model *model, uint32_t unit, void *stream,
                     struct hsdp_error *reterr);
int32_t unit_grad_add(struct hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad,
                      void *stream, struct hsdp_error *reterr);
int32_t unit_backward_begin(struct hsdp_model *model, const uint32_t *units, uint64_t n_units,
                            int32_t scope, uint64_t *ret_pass, struct hsdp_error *reterr);
int32_t unit_reduce(struct hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                    uint64_t *ret_ticket, struct hsdp_error *reterr);
int32_t unit_skip(struct hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                  uint64_t *ret_ticket, struct hsdp_error *reterr);
int32_t unit_backward_end(struct hsdp_model *model, uint64_t pass, void *stream,
                          uint64_t *ret_ticket, struct hsdp_error *reterr);

/** use.c: the host has no more business in the gradient slot of a unit that it hands over. */
void unit_give_back(struct hsdp_model *model, uint32_t unit);

#endif /* SHARD_UNIT_H */
