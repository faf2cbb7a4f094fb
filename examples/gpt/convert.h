/* SPDX-License-Identifier: Apache-2.0 */
/* Between fp32, in which this program computes, and the dtype of a view of the plugin. */
#ifndef GPT_CONVERT_H
#define GPT_CONVERT_H

#include <stddef.h>

#include "hsdp/abi.h"

/* Whether the dtype of a view is one of fp32, bf16, fp16. */
int convert_is_known(const struct hsdp_tensor *view);
/* Whether a view holds fp32, so that it can be used as it is. */
int convert_is_fp32(const struct hsdp_tensor *view);
/* First element of a view. */
void *convert_base(const struct hsdp_tensor *view);
/* Widens n elements, from the first; exact. */
void convert_load(float *out, const struct hsdp_tensor *view, size_t n_elems);
/* Rounds n elements to nearest even into the view, from element `offset`. */
void convert_store(const struct hsdp_tensor *view, size_t offset, const float *inp, size_t n_elems);

#endif
