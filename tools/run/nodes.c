/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes, each with an hsdp-run of its own that knows the others by its options only. */
#include "nodes.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define NODES_ADDR_MAX   255 /* of a host's name */
#define NODES_RUN_ID_MAX 64

int nodes_number_parse(const char *name, const char *text, long least, long most, int *ret_value)
{
    char *end = NULL;
    long n = -1;

    if (text[0] >= '0' && text[0] <= '9') {
        n = strtol(text, &end, 10); /* out of range gives LONG_MAX, refused below */
    }
    if (end == NULL || *end != '\0' || n < least || n > most) {
        run_complain("--%s is '%s'; allowed is a whole number from %ld to %ld", name, text, least,
                     most);
        return RUN_EXIT_USAGE;
    }
    *ret_value = (int)n;
    return -1;
}

/* Whether text is made of 1 to `most` printable characters, without blanks. */
static bool is_word(const char *text, size_t most)
{
    size_t length = strlen(text);
    size_t i;

    for (i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f) {
            return false;
        }
    }
    return length > 0 && length <= most;
}

int nodes_addr_take(struct options *options, const char *text)
{
    if (!is_word(text, NODES_ADDR_MAX)) {
        run_complain("--master-addr is '%s'; allowed is the name or address of a host", text);
        return RUN_EXIT_USAGE;
    }
    options->master_addr = text;
    return -1;
}

int nodes_run_id_take(struct options *options, const char *text)
{
    if (!is_word(text, NODES_RUN_ID_MAX)) {
        run_complain("--run-id is '%s'; allowed are 1 to %d characters without blanks", text,
                     NODES_RUN_ID_MAX);
        return RUN_EXIT_USAGE;
    }
    options->run_id = text;
    return -1;
}

int nodes_check(struct options *options)
{
    const char *missing = options->node_rank < 0         ? "--node-rank"
                          : options->master_addr == NULL ? "--master-addr"
                          : options->master_port == 0    ? "--master-port"
                                                         : NULL;

    if (options->node_rank >= options->n_nodes) {
        run_complain("--node-rank is %d, but --nnodes is %d: nodes count from 0",
                     options->node_rank, options->n_nodes);
        return RUN_EXIT_USAGE;
    }
    if (options->n_nodes > 1 && missing != NULL) {
        run_complain("--nnodes is %d, so %s is needed; 'hsdp-run --help' says what it is",
                     options->n_nodes, missing);
        return RUN_EXIT_USAGE;
    }
    if (options->n_nodes > 1) {
        snprintf(options->node_text, sizeof(options->node_text), " of node %d", options->node_rank);
    } else {
        options->node_rank = 0;
    }
    return -1;
}

const char *nodes_addr(const struct options *options)
{
    return options->master_addr != NULL ? options->master_addr : "127.0.0.1";
}

void nodes_run_id_write(const struct options *options, int port, const char *mark,
                        char ret_id[NODES_RUN_ID_BYTES])
{
    if (options->n_nodes == 1 && options->run_id == NULL) {
        snprintf(ret_id, NODES_RUN_ID_BYTES, "%s", mark);
    } else {
        snprintf(ret_id, NODES_RUN_ID_BYTES, "%s:%d%s%s", nodes_addr(options), port,
                 options->run_id != NULL ? "/" : "",
                 options->run_id != NULL ? options->run_id : "");
    }
}
