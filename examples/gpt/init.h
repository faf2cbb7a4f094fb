/* SPDX-License-Identifier: Apache-2.0 */
/* The first values of any slice of a parameter, without the rest of it. */
#ifndef GPT_INIT_H
#define GPT_INIT_H

#include "model.h"

/* Writes elements offset..offset+n_elems-1 of the parameter; the same whoever asks for which slice.
 */
void init_slice(float *out, const struct model_param *param, uint64_t seed, uint64_t offset,
                uint64_t n_elems);

#endif
