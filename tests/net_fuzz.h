/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzzer does with one input: bytes of a stranger, or altered ones of a friend. */
#ifndef TESTS_NET_FUZZ_H
#define TESTS_NET_FUZZ_H

#include <stdint.h>

/**
 * Reads the input as a list of operations on a pair of channels: carry a message, alter it, cut
 * it short, repeat an earlier one, say something, feed bytes of the input itself. Ends the
 * program, by itself or by a sanitizer, where a channel does what it must not: joins a side whose
 * bytes were altered, delivers what was not sent, or takes more memory than it may.
 */
void net_fuzz_run(const uint8_t *bytes, uint64_t n_bytes);

#endif /* TESTS_NET_FUZZ_H */
