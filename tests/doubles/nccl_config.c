/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: what a communicator's configuration may say. */
#include <string.h>

#include "doubles/nccl_double.h"

/* Up to `blocking`, which is all that 2.14 had; what 2.28 knows ends where 2.29 begins. */
enum {
    OLDEST_BYTES = 24,
    KNOWN_BYTES = offsetof(struct nccl_config, graph_usage_mode),
    NEWEST_BYTES = sizeof(struct nccl_config),
    OLDEST_VERSION = 21400,
    MAX_CHANNELS = 64,
};

/* From which version on the members behind an offset are read. */
struct generation {
    uint32_t version;
    size_t begin;
};

static const struct generation generations[] = {
    {21700, offsetof(struct nccl_config, cga_cluster_size)},
    {21800, offsetof(struct nccl_config, split_share)},
    {22700, offsetof(struct nccl_config, traffic_class)},
    {22800, offsetof(struct nccl_config, channels_per_net_peer)},
};

/* As an initialiser of the version that is played leaves it. */
static struct nccl_config config_undefined(void)
{
    return (struct nccl_config){
        .size = KNOWN_BYTES,
        .magic = NCCL_CONFIG_MAGIC,
        .version = 22809,
        .blocking = NCCL_UNDEFINED,
        .cga_cluster_size = NCCL_UNDEFINED,
        .min_ctas = NCCL_UNDEFINED,
        .max_ctas = NCCL_UNDEFINED,
        .split_share = NCCL_UNDEFINED,
        .traffic_class = NCCL_UNDEFINED,
        .collnet_enable = NCCL_UNDEFINED,
        .cta_policy = NCCL_UNDEFINED,
        .shrink_share = NCCL_UNDEFINED,
        .nvls_ctas = NCCL_UNDEFINED,
        .channels_per_net_peer = NCCL_UNDEFINED,
        .nvlink_centric = NCCL_UNDEFINED,
    };
}

static bool number_is_within(int32_t value, int32_t least, int32_t greatest)
{
    return value == NCCL_UNDEFINED || (value >= least && value <= greatest);
}

static nccl_result switches_check(const struct nccl_config *config)
{
    if (!number_is_within(config->blocking, 0, 1)) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "config: blocking %d is not 0 or 1", config->blocking);
    }
    if (!number_is_within(config->split_share, 0, 1) ||
        !number_is_within(config->shrink_share, 0, 1)) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "config: splitShare %d, shrinkShare %d: not 0 or 1",
                         config->split_share, config->shrink_share);
    }
    if (!number_is_within(config->collnet_enable, 0, 1) ||
        !number_is_within(config->nvlink_centric, 0, 1)) {
        return nccl_fail(NCCL_BAD_ARGUMENT,
                         "config: collnetEnable %d, nvlinkCentricSched %d: not 0 or 1",
                         config->collnet_enable, config->nvlink_centric);
    }
    return NCCL_OK;
}

/* One of both without the other is less, or more, than what is undefined. */
static nccl_result numbers_check(const struct nccl_config *config)
{
    if (!number_is_within(config->min_ctas, 1, INT32_MAX) ||
        !number_is_within(config->max_ctas, 1, INT32_MAX) || config->min_ctas > config->max_ctas) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "config: minCTAs %d, maxCTAs %d", config->min_ctas,
                         config->max_ctas);
    }
    if (!number_is_within(config->cga_cluster_size, 0, INT32_MAX) ||
        !number_is_within(config->cta_policy, 0, 2) ||
        !number_is_within(config->nvls_ctas, 1, INT32_MAX) ||
        !number_is_within(config->channels_per_net_peer, 1, MAX_CHANNELS)) {
        return nccl_fail(NCCL_BAD_ARGUMENT,
                         "config: cgaClusterSize %d, CTAPolicy %d, nvlsCTAs %d, "
                         "nChannelsPerNetPeer %d",
                         config->cga_cluster_size, config->cta_policy, config->nvls_ctas,
                         config->channels_per_net_peer);
    }
    return NCCL_OK;
}

/* What the caller's version did not have is undefined, whatever stands there. */
static void config_forget(struct nccl_config *config, size_t begin)
{
    struct nccl_config undefined = config_undefined();

    memcpy((unsigned char *)config + begin, (unsigned char *)&undefined + begin,
           sizeof(undefined) - begin);
}

nccl_result config_check(const struct nccl_config *config, struct nccl_config *ret)
{
    size_t n_bytes;
    nccl_result result;

    *ret = config_undefined();
    if (config != NULL) {
        n_bytes = config->size;
        if (n_bytes < OLDEST_BYTES || n_bytes > NEWEST_BYTES) {
            return nccl_fail(NCCL_BAD_ARGUMENT, "config: no version has %zu bytes", n_bytes);
        }
        memcpy(ret, config, n_bytes < KNOWN_BYTES ? n_bytes : KNOWN_BYTES);
        if (ret->magic != NCCL_CONFIG_MAGIC) {
            return nccl_fail(NCCL_BAD_ARGUMENT, "config: not initialised (%#x)", ret->magic);
        }
        if (ret->version < OLDEST_VERSION) {
            return nccl_fail(NCCL_BAD_ARGUMENT, "config: of version %u", ret->version);
        }
    }
    for (size_t i = 0; i < sizeof(generations) / sizeof(generations[0]); i++) {
        if (ret->version < generations[i].version) {
            config_forget(ret, generations[i].begin);
        }
    }
    result = switches_check(ret);
    if (result == NCCL_OK) {
        result = numbers_check(ret);
    }
    ret->blocking = ret->blocking == NCCL_UNDEFINED ? 1 : ret->blocking;
    return result;
}
