/* SPDX-License-Identifier: Apache-2.0 */
/* What backend=auto becomes on this node, concluded from what describe() says of transports. */
#ifndef INFO_BACKEND_H
#define INFO_BACKEND_H

#include <jansson.h>

/**
 * One sentence: the usable transport, or those of which a job takes one, and why it is none of the
 * others. NULL where describe() lists no transport.
 *
 * Ownership: json_decref.
 */
json_t *backend_conclude(const json_t *description);

#endif /* INFO_BACKEND_H */
