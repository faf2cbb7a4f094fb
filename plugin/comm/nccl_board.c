/* SPDX-License-Identifier: Apache-2.0 */
/* Boards: what each member of a communicator has begun, in memory that the node shares. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "comm/nccl_internal.h"

/* ------------------------------------------------------------------------------------ memory */

static bool is_member(const struct nccl_making *making, uint32_t rank)
{
    for (uint32_t i = 0; i < making->n_ranks; i++) {
        if (making->ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

static int32_t file_map(struct nccl_engine *engine, const struct shared_memory *memory,
                        struct nccl_mapping **ret, struct hsdp_error *reterr)
{
    uint32_t last = memory->n_ranks - 1;
    struct nccl_mapping *mapping = calloc(1, sizeof(*mapping));

    if (mapping == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for boards");
    }
    mapping->n_bytes = memory->offsets[last] + memory->sizes[last];
    mapping->base = mmap(NULL, mapping->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (mapping->base == MAP_FAILED) {
        error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: cannot map %" PRIu64 " bytes of boards: %s",
                  mapping->n_bytes, strerror(errno));
        free(mapping);
        return HSDP_ERR_NO_MEMORY;
    }
    mapping->next = engine->mappings;
    engine->mappings = mapping;
    *ret = mapping;
    return HSDP_OK;
}

/* The lines of a rank lie one behind the other, in the order in which communicators are made. */
static void lines_place(const struct nccl_making *first, const struct shared_memory *memory,
                        const struct nccl_mapping *mapping)
{
    uint64_t used[LAUNCH_MAX_RANKS] = {0};

    for (const struct nccl_making *making = first; making != NULL; making = making->next) {
        for (uint32_t i = 0; i < making->n_ranks; i++) {
            uint32_t rank = making->ranks[i];
            uint8_t *base = (uint8_t *)mapping->base + memory->offsets[rank] + used[rank];

            if (making->group != NULL) {
                making->group->board->lines[i] = (struct nccl_line *)(void *)base;
            }
            used[rank] += sizeof(struct nccl_line);
        }
    }
}

int32_t boards_share(struct nccl_engine *engine, const struct nccl_making *first,
                     struct hsdp_error *reterr)
{
    struct nccl_mapping *mapping = NULL;
    struct shared_memory memory;
    uint64_t n_bytes = 0;
    int32_t status;

    for (const struct nccl_making *making = first; making != NULL; making = making->next) {
        n_bytes +=
            is_member(making, engine->job->launch.rank) ? sizeof(struct nccl_line) : UINT64_C(0);
    }
    status = job_share_memory(engine->job, n_bytes, &memory, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = file_map(engine, &memory, &mapping, reterr);
    if (status == HSDP_OK) {
        lines_place(first, &memory, mapping);
    }
    shared_memory_fini(&memory);
    return status;
}

void boards_free(struct nccl_engine *engine)
{
    while (engine->mappings != NULL) {
        struct nccl_mapping *next = engine->mappings->next;

        munmap(engine->mappings->base, engine->mappings->n_bytes);
        free(engine->mappings);
        engine->mappings = next;
    }
}

/* --------------------------------------------------------------------------------- signatures */

static void post_write(struct nccl_post *post, uint64_t number,
                       const struct nccl_signature *signature)
{
    uint64_t words[SIGNATURE_WORDS];

    memcpy(words, signature, sizeof(words));
    atomic_store(&post->number, 0u);
    for (uint32_t i = 0; i < SIGNATURE_WORDS; i++) {
        atomic_store(&post->words[i], words[i]);
    }
    atomic_store(&post->number, number);
}

/* False when it is not there, not whole, or no longer there: its rank is far ahead. */
static bool post_read(const struct nccl_line *line, uint64_t number, struct nccl_signature *ret)
{
    const struct nccl_post *post = &line->posts[number % BOARD_N_POSTS];
    uint64_t words[SIGNATURE_WORDS];

    if (atomic_load(&post->number) != number) {
        return false;
    }
    for (uint32_t i = 0; i < SIGNATURE_WORDS; i++) {
        words[i] = atomic_load(&post->words[i]);
    }
    memcpy(ret, words, sizeof(*ret));
    return atomic_load(&post->number) == number;
}

/* all-reduce (sum) of 64 elements of float32, for "b.1" */
static void signature_text(const struct nccl_signature *signature, char *ret_text, size_t max_bytes)
{
    static const char *const kinds[] = {"all-gather", "reduce-scatter", "all-reduce", "broadcast",
                                        "exchange"};
    static const char *const dtypes[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                         "uint64", "float16", "float32", "float64", "bfloat16"};
    static const char *const ops[] = {"sum", "product", "maximum", "minimum"};
    int n_bytes = snprintf(ret_text, max_bytes, "%s", kinds[signature->kind]);

    if (signature->kind == NCCL_ALL_REDUCE) {
        n_bytes +=
            snprintf(ret_text + n_bytes, max_bytes - (size_t)n_bytes, " (%s)", ops[signature->op]);
    }
    if (signature->kind == NCCL_BROADCAST) {
        n_bytes += snprintf(ret_text + n_bytes, max_bytes - (size_t)n_bytes, " from index %" PRIu32,
                            signature->root);
    }
    if (signature->kind != NCCL_EXCHANGE) {
        n_bytes += snprintf(ret_text + n_bytes, max_bytes - (size_t)n_bytes,
                            " of %" PRIu64 " elements of %s", signature->n_elems,
                            dtypes[signature->dtype]);
    }
    if (signature->what[0] != '\0') {
        snprintf(ret_text + n_bytes, max_bytes - (size_t)n_bytes, ", for \"%s\"", signature->what);
    }
}

static int32_t signatures_differ(const struct nccl_group *group, uint32_t peer,
                                 const struct nccl_signature *own,
                                 const struct nccl_signature *other, struct hsdp_error *reterr)
{
    char own_text[192];
    char other_text[192];

    signature_text(own, own_text, sizeof(own_text));
    signature_text(other, other_text, sizeof(other_text));
    error_set(reterr, HSDP_ERR_MISMATCH,
              "collective %" PRIu64 " of group \"%s\": rank %" PRIu32 " does %s; rank %" PRIu32
              " does %s",
              group->n_collectives, group->name, group->ranks[peer], other_text,
              group->ranks[group->index], own_text);
    error_where(reterr, NULL, group->name, NULL);
    reterr->sequence = group->n_collectives;
    return HSDP_ERR_MISMATCH;
}

/*
 * A rank shows what it does, then looks what its peers have shown; all in one total order. So of
 * two that differ at least one sees it, before it calls NCCL.
 */
int32_t board_post(struct nccl_engine *engine, struct nccl_group *group,
                   const struct nccl_signature *signature, struct hsdp_error *reterr)
{
    struct nccl_line *own = group->board->lines[group->index];
    uint64_t number = ++group->n_collectives;
    struct nccl_task *task = engine->running;

    for (uint32_t i = 0; i < task->n_groups; i++) {
        if (task->groups[i] == group) {
            atomic_store(&task->numbers[i], number);
        }
    }
    post_write(&own->posts[number % BOARD_N_POSTS], number, signature);
    atomic_store(&own->n_posted, number);
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        struct nccl_signature other;

        if (i != group->index && post_read(group->board->lines[i], number, &other) &&
            memcmp(signature, &other, sizeof(other)) != 0) {
            return signatures_differ(group, i, signature, &other, reterr);
        }
    }
    return HSDP_OK;
}
