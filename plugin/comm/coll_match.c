/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement: members compare what they are about to do before any data is touched. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/group_internal.h"
#include "device/checksum.h"

/* all_reduce (sum) of 8 fp32 elements */
static void header_name(const struct coll_header *header, char *ret_text, size_t max_bytes)
{
    static const char *const reductions[] = {" (sum)", " (mean)", " (max)", " (min)"};
    bool is_known = header->kind >= HSDP_COLL_BARRIER && header->kind <= HSDP_COLL_RECV;
    const char *reduction = "";
    char root[24] = "";
    char element[32];

    if (!is_known || header->kind == HSDP_COLL_BARRIER) {
        snprintf(ret_text, max_bytes, "%s", coll_name(header->kind));
        return;
    }
    if (coll_reduces(header->kind) && header->reduce >= 0 && header->reduce <= HSDP_REDUCE_MIN) {
        reduction = reductions[header->reduce];
    }
    if (header->kind == HSDP_COLL_BROADCAST) {
        snprintf(root, sizeof(root), " (root %" PRIu32 ")", header->root);
    }
    element_name(header->element, element, sizeof(element));
    snprintf(ret_text, max_bytes, "%s%s%s of %" PRIu64 " %s elements", coll_name(header->kind),
             reduction, root, header->n_elems, element);
}

void header_text(const struct hsdp_group *group, const struct coll_header *header, char *ret_text,
                 size_t max_bytes)
{
    const uint64_t *table = header->kind == HSDP_COLL_REDUCE_SCATTER ? header->send_elems
                            : header->kind == HSDP_COLL_ALL_GATHER   ? header->recv_elems
                                                                     : NULL;
    struct coll_header named = *header;
    uint64_t hash = TEXT_HASH_BASIS;
    bool is_even = true;
    size_t n_bytes;

    for (uint32_t i = 0; table != NULL && i < group->n_ranks; i++) {
        is_even = is_even && table[i] == table[0];
        hash = checksum_mix(hash ^ table[i]);
    }
    if (header->kind == HSDP_COLL_ALL_TO_ALL || !is_even) {
        named.n_elems = 0; /* members differ in it */
    }
    header_name(&named, ret_text, max_bytes);
    n_bytes = strlen(ret_text);
    if (!is_even) {
        snprintf(ret_text + n_bytes, max_bytes - n_bytes, " #%04x", (unsigned)(hash & 0xffffu));
    }
}

/* The sentence is the same whichever of the two finds it: the lower rank comes first. */
static int32_t mismatch_set(const struct hsdp_group *group, const struct op *op, uint32_t member,
                            const char *mine, const char *others, struct hsdp_error *reterr)
{
    uint32_t own_rank = group->ranks[group->index];
    uint32_t rank = group->ranks[member];
    bool is_first = own_rank < rank;

    error_set(reterr, HSDP_ERR_MISMATCH,
              "group \"%s\", sequence %" PRIu64 ": %s on rank %" PRIu32 ", %s on rank %" PRIu32,
              group->name, op->wait.sequence, is_first ? mine : others, is_first ? own_rank : rank,
              is_first ? others : mine, is_first ? rank : own_rank);
    error_where(reterr, op->wait.operation, group->name, NULL);
    if (reterr != NULL) {
        reterr->sequence = op->wait.sequence;
        reterr->ticket = op->wait.ticket;
    }
    return HSDP_ERR_MISMATCH;
}

static bool is_counted(int32_t kind)
{
    return kind == HSDP_COLL_ALL_REDUCE || kind == HSDP_COLL_BROADCAST;
}

/* What two members say of the elements that go from one to the other, or to all. */
static int32_t tables_match(const struct hsdp_group *group, const struct op *op, uint32_t member,
                            const struct coll_header *other, struct hsdp_error *reterr)
{
    const struct coll_header *own = &op->header;
    uint64_t bytes = group->n_ranks * sizeof(uint64_t);
    bool is_equal = true;
    char mine[128];
    char others[128];

    if (own->kind == HSDP_COLL_ALL_GATHER) {
        is_equal = memcmp(own->recv_elems, other->recv_elems, bytes) == 0;
    } else if (own->kind == HSDP_COLL_REDUCE_SCATTER) {
        is_equal = memcmp(own->send_elems, other->send_elems, bytes) == 0;
    }
    if (own->kind == HSDP_COLL_ALL_TO_ALL) {
        is_equal = own->send_elems[member] == other->recv_elems[group->index] &&
                   own->recv_elems[member] == other->send_elems[group->index];
        snprintf(mine, sizeof(mine),
                 "all_to_all with %" PRIu64 " elements to and %" PRIu64 " from the other",
                 own->send_elems[member], own->recv_elems[member]);
        snprintf(others, sizeof(others),
                 "all_to_all with %" PRIu64 " elements to and %" PRIu64 " from the other",
                 other->send_elems[group->index], other->recv_elems[group->index]);
    } else {
        header_name(own, mine, sizeof(mine));
        header_name(other, others, sizeof(others));
        if (own->n_elems == other->n_elems) {
            strncat(mine, " (elements per member differ)", sizeof(mine) - strlen(mine) - 1);
        }
    }
    return is_equal ? HSDP_OK : mismatch_set(group, op, member, mine, others, reterr);
}

int32_t header_match(const struct hsdp_group *group, const struct op *op, uint32_t member,
                     const struct coll_header *other, struct hsdp_error *reterr)
{
    const struct coll_header *own = &op->header;
    char mine[128];
    char others[128];

    if (own->kind == other->kind && own->reduce == other->reduce && own->root == other->root &&
        element_equals(own->element, other->element) &&
        (!is_counted(own->kind) || own->n_elems == other->n_elems)) {
        return tables_match(group, op, member, other, reterr);
    }
    header_name(own, mine, sizeof(mine));
    header_name(other, others, sizeof(others));
    return mismatch_set(group, op, member, mine, others, reterr);
}

int32_t message_match(const struct hsdp_group *group, const struct op *op, uint32_t member,
                      const struct chunk_header *other, struct hsdp_error *reterr)
{
    struct coll_header sent = {.kind = HSDP_COLL_SEND};
    char mine[128];
    char others[128];

    if (element_equals(op->header.element, other->element) &&
        op->header.n_elems == other->n_elems) {
        return HSDP_OK;
    }
    sent.element = other->element;
    sent.n_elems = other->n_elems;
    header_name(&op->header, mine, sizeof(mine));
    header_name(&sent, others, sizeof(others));
    return mismatch_set(group, op, member, mine, others, reterr);
}
