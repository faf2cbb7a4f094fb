/* SPDX-License-Identifier: Apache-2.0 */
/* Loading NCCL: its functions, and which version it is. */
#include "comm/nccl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/foreign.h"

#define NCCL_FUNCTION(field, symbol, result, parameters) {#symbol, offsetof(struct nccl, field)},

static const struct foreign_function functions[] = {NCCL_FUNCTIONS(NCCL_FUNCTION)};
static const struct foreign_function newer_functions[] = {NCCL_NEWER_FUNCTIONS(NCCL_FUNCTION)};

#define N_FUNCTIONS       ((uint32_t)(sizeof(functions) / sizeof(functions[0])))
#define N_NEWER_FUNCTIONS ((uint32_t)(sizeof(newer_functions) / sizeof(newer_functions[0])))

void nccl_version_text(int32_t version, char *ret_text)
{
    /* since 2.9 there are two digits for the second number */
    int32_t unit = version < 10000 ? 1000 : 10000;

    snprintf(ret_text, NCCL_VERSION_BYTES, "%" PRId32 ".%" PRId32 ".%" PRId32, version / unit,
             version % unit / 100, version % 100);
}

/* Of what is too old its age is said, not the functions that it lacks for that. */
static int32_t version_check(struct nccl *nccl, struct hsdp_error *reterr)
{
    char version[NCCL_VERSION_BYTES];
    char min_version[NCCL_VERSION_BYTES];
    nccl_result result = nccl->get_version(&nccl->version);

    if (result != NCCL_OK) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "nccl_library: ncclGetVersion of %s answers %" PRId32, nccl->path, result);
    }
    if (nccl->version < NCCL_MIN_VERSION) {
        nccl_version_text(nccl->version, version);
        nccl_version_text(NCCL_MIN_VERSION, min_version);
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "nccl_library: %s is NCCL %s; this plugin needs %s or newer", nccl->path,
                         version, min_version);
    }
    return HSDP_OK;
}

int32_t nccl_load(const char *name, struct nccl *ret, struct hsdp_error *reterr)
{
    struct foreign library;
    char version[NCCL_VERSION_BYTES];
    char missing[160];
    uint32_t n_missing;
    int32_t status;

    memset(ret, 0, sizeof(*ret));
    status = foreign_load(name, "nccl_library", &library, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    memcpy(ret->path, library.path, sizeof(ret->path));
    foreign_bind(&library, newer_functions, N_NEWER_FUNCTIONS, ret, missing, sizeof(missing));
    n_missing = foreign_bind(&library, functions, N_FUNCTIONS, ret, missing, sizeof(missing));
    if (ret->get_version == NULL) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "nccl_library: %s is no NCCL: it lacks %s",
                         ret->path, missing);
    }
    status = version_check(ret, reterr);
    if (status == HSDP_OK && n_missing > 0) {
        nccl_version_text(ret->version, version);
        status = error_set(reterr, HSDP_ERR_UNAVAILABLE, "nccl_library: %s, NCCL %s, lacks %s",
                           ret->path, version, missing);
    }
    return status;
}

struct nccl_config nccl_config_make(void)
{
    struct nccl_config config;

    memset(&config, 0, sizeof(config)); /* padding, too: a parser of 2.27 reads some of it */
    config.size = sizeof(config);
    config.magic = NCCL_CONFIG_MAGIC;
    config.version = NCCL_CONFIG_VERSION;
    config.blocking = 0;
    config.cga_cluster_size = NCCL_UNDEFINED;
    config.min_ctas = NCCL_UNDEFINED;
    config.max_ctas = NCCL_UNDEFINED;
    config.split_share = NCCL_UNDEFINED;
    config.traffic_class = NCCL_UNDEFINED;
    config.collnet_enable = NCCL_UNDEFINED;
    config.cta_policy = NCCL_UNDEFINED;
    config.shrink_share = NCCL_UNDEFINED;
    config.nvls_ctas = NCCL_UNDEFINED;
    config.channels_per_net_peer = NCCL_UNDEFINED;
    config.nvlink_centric = NCCL_UNDEFINED;
    config.graph_usage_mode = NCCL_UNDEFINED;
    config.rma_contexts = NCCL_UNDEFINED;
    config.max_p2p_peers = NCCL_UNDEFINED;
    config.graph_stream_ordering = NCCL_UNDEFINED;
    return config;
}
