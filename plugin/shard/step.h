/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: norm, clipping, publishing. See hsdp/step.h. */
#ifndef SHARD_STEP_H
#define SHARD_STEP_H

#include "shard/model.h"

int32_t step_begin(struct hsdp_model *model, const struct hsdp_step_spec *spec,
                   uint64_t *ret_ticket, struct hsdp_error *reterr);
int32_t step_result(struct hsdp_model *model, struct hsdp_step_info *ret_result,
                    struct hsdp_error *reterr);
int32_t step_factor_view(struct hsdp_model *model, struct hsdp_tensor *ret_view,
                         struct hsdp_error *reterr);
int32_t step_end(struct hsdp_model *model, void *stream, uint64_t *ret_ticket,
                 struct hsdp_error *reterr);
int32_t step_discard(struct hsdp_model *model, void *stream, struct hsdp_error *reterr);

#endif /* SHARD_STEP_H */
