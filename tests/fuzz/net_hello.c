/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target: what two ends of a connection do with disturbed bytes; see net_fuzz.h. */
#include <stddef.h>
#include <stdint.h>

#include "../net_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    net_fuzz_run(bytes, n_bytes);
    return 0;
}
