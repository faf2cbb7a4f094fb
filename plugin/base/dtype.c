/* SPDX-License-Identifier: Apache-2.0 */
/* The element types of parameters and gradients: one table. */
#include "base/dtype.h"

#include <assert.h>
#include <string.h>

struct dtype_row {
    const char *name;
    size_t n_bytes;
};

static const struct dtype_row dtype_rows[] = {
    [DTYPE_FP32] = {"fp32", 4},
    [DTYPE_BF16] = {"bf16", 2},
    [DTYPE_FP16] = {"fp16", 2},
};

enum { N_DTYPES = sizeof(dtype_rows) / sizeof(dtype_rows[0]) };

size_t dtype_bytes(enum dtype dtype)
{
    assert((size_t)dtype < N_DTYPES);
    return dtype_rows[dtype].n_bytes;
}

const char *dtype_name(enum dtype dtype)
{
    assert((size_t)dtype < N_DTYPES);
    return dtype_rows[dtype].name;
}

bool dtype_parse(const char *text, enum dtype *ret_dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(text, dtype_rows[i].name) == 0) {
            *ret_dtype = (enum dtype)i;
            return true;
        }
    }
    return false;
}
