/* SPDX-License-Identifier: Apache-2.0 */
/* What hsdp-gpt --help prints. */
#include "help.h"

#include <stdio.h>
#include <stdlib.h>

#include "config.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

static const char usage_text[] =
    "Usage: hsdp-gpt [--config FILE] [--set KEY=VALUE]... [--log-json FILE]\n"
    "Trains a decoder-only transformer on the bytes of a file, over all ranks that a launcher\n"
    "(hsdp-run, torchrun, mpirun, srun) has started, or alone. A plugin shards it.\n\n"
    "  --config FILE      YAML, lines of \"key: value\"; a key twice is refused\n"
    "  --set KEY=VALUE    one key; wins over the file, and the last one over those before it\n"
    "  --log-json FILE    rank 0 writes one JSON object for each step\n"
    "  -h, --help         print this text and exit\n"
    "  -V, --version      print the version and exit\n\n"
    "Keys [default]:\n";

static const char end_text[] =
    "\nThe last step also says parameters-digest (in the log parameters_digest), 16 hexadecimal\n"
    "digits: 64-bit FNV-1a over all parameters, in fp32. Equal digits mean equal bits, however\n"
    "they are sharded.\n\n"
    "Of a step's time on rank 0, communication-time is what passed inside the plugin while it\n"
    "moved or reduced data or waited for other ranks: from unshard to backward_end, and the sum "
    "of\n"
    "the losses. optimizer-time is from step.begin to step.end: norm, clipping, AdamW, "
    "publishing.\n"
    "The log has both, communication_seconds and optimizer_seconds, and compute_seconds, the "
    "rest.\n\n"
    "With device: cuda the model lies on a device, one for each rank of a node, and the host "
    "computes:\n"
    "parameters are copied to it, and gradients back, which counts as compute.\n\n"
    "The keys from sharding_strategy to nccl_library are the plugin's. One that is given neither "
    "by\n"
    "--set nor in the file is taken from the environment: HSDP_SHARDING_STRATEGY and so on,\n"
    "HSDP_<KEY IN CAPITALS>; then from the default.\n\n"
    "Exit status: 0 trained, 1 the run failed, 2 the configuration cannot be run.\n";

/* What the plugin says of itself, for the caller to free; NULL where it says nothing. */
static char *description_read(const struct hsdp_api *api)
{
    uint64_t n_bytes = 0;
    char *text = NULL;

    if (api->describe(NULL, 0, &n_bytes, NULL) == HSDP_ERR_BUFFER_TOO_SMALL) {
        text = malloc(n_bytes);
    }
    if (text != NULL && api->describe(text, n_bytes, &n_bytes, NULL) != HSDP_OK) {
        free(text);
        return NULL;
    }
    return text;
}

void help_print(void)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;
    char *description = NULL;
    int32_t status = hsdp_plugin_load(NULL, &plugin, &error);

    if (status == HSDP_OK) {
        description = description_read(hsdp_plugin_api(plugin));
    }
    fputs(usage_text, stdout);
    config_help(stdout, description);
    fputs(end_text, stdout);
    if (status != HSDP_OK) {
        printf("\nThe plugin's defaults are not shown: %s\n", error.message);
    }
    free(description);
    hsdp_plugin_unload(plugin);
}
