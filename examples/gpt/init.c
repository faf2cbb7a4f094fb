/* SPDX-License-Identifier: Apache-2.0 */
/* The first values of any slice of a parameter. */
#include "init.h"

#include "rng.h"

void init_slice(float *out, const struct model_param *param, uint64_t seed, uint64_t offset,
                uint64_t n_elems)
{
    const uint64_t key = rng_key(seed, param->name);

    for (uint64_t i = 0; i < n_elems; i++) {
        out[i] = param->deviation == 0 ? (float)param->constant
                                       : (float)(param->deviation * rng_normal(key, offset + i));
    }
}
