/* SPDX-License-Identifier: Apache-2.0 */
/* What describe() claims: against it a call is held that answers HSDP_ERR_UNSUPPORTED. */
#ifndef CONFORM_CLAIMS_H
#define CONFORM_CLAIMS_H

#include "conform.h"

/* Words stand between spaces. */
struct claims {
    uint32_t is_read;      /* 0 = describe() could not be read: the chapter negotiation says why */
    uint32_t max_ranks;    /* on one node, by the transport that serves most; 0 = any number */
    char strategies[1024]; /* names and aliases */
    char transports[512];  /* those that are usable */
    char extensions[512];
};

/** Asks describe(). All zero where it fails; a crash takes the process along. */
void claims_read(const struct hsdp_api *api, struct claims *ret);

#endif /* CONFORM_CLAIMS_H */
