/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of arrays that may be summed in slices. */
#ifndef DEVICE_CHECKSUM_H
#define DEVICE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/*
 * The sum, modulo 2^64, of one number per element, made of `salt`, of the element's position and of
 * its bits. `first` is the position of values[0]: slices of one buffer, summed apart, add up to the
 * sum of the whole. A single element with other bits always gives another sum, also where both are
 * NaN, or zeros of either sign; several do so but for chance.
 */
uint64_t checksum_sum(uint64_t salt, uint64_t first, const void *values, enum dtype dtype,
                      size_t n_elems);

/* A number without pattern, for salts and weights; another one for every other number. */
uint64_t checksum_mix(uint64_t number);

#endif
