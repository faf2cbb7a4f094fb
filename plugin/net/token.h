/* SPDX-License-Identifier: Apache-2.0 */
/* Token: the secret that lets a process into a job, read from a file or a descriptor. */
#ifndef NET_TOKEN_H
#define NET_TOKEN_H

#include "hsdp/abi.h"
#include "net/net.h"

/**
 * Reads a token: exactly 32 bytes, or 64 hexadecimal digits and at most one line end. `path` is a
 * file, which nobody but its owner may read or write, or "fd:N", a descriptor that this process
 * inherited, which is read to its end and left open.
 *
 * Blocks: while a descriptor that is a pipe has neither bytes nor end, at most 5 s.
 * Errors: HSDP_ERR_UNAVAILABLE when it cannot be read, HSDP_ERR_INVALID when others may read it,
 * its length or its digits are wrong, or it is all zero. No text ever shows what was read.
 */
int32_t token_read(const char *path, uint8_t ret_token[NET_TOKEN_BYTES], struct hsdp_error *reterr);

#endif /* NET_TOKEN_H */
