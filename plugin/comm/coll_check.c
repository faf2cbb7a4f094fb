/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in a caller's collective: every shape is checked before anything is started. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/group_internal.h"

/* What a kind takes; the table of hsdp/group.h. */
struct coll_kind {
    const char *name;
    bool has_input;
    bool has_output;
    bool has_send_elems;
    bool has_recv_elems;
    bool reduces;
    bool has_peer;
};

static const struct coll_kind kinds[] = {
    {NULL, false, false, false, false, false, false},
    {"barrier", false, false, false, false, false, false},
    {"all_reduce", true, true, false, false, true, false},
    {"all_gather", true, true, false, true, false, false},
    {"reduce_scatter", true, true, true, false, true, false},
    {"all_to_all", true, true, true, true, false, false},
    {"broadcast", true, true, false, false, false, true},
    {"send", true, false, false, false, false, true},
    {"recv", false, true, false, false, false, true},
};

#define N_KINDS ((int32_t)(sizeof(kinds) / sizeof(kinds[0])))

/* A caller's memory. */
struct view {
    uint8_t *bytes;
    uint64_t n_elems;
    struct element element;
    int32_t device_type; /* that it has to have */
    bool is_there;
};

const char *coll_name(int32_t kind)
{
    return kind > 0 && kind < N_KINDS ? kinds[kind].name : "unknown";
}

bool coll_is_send(int32_t kind)
{
    return kind == HSDP_COLL_SEND;
}

bool coll_is_receive(int32_t kind)
{
    return kind == HSDP_COLL_RECV;
}

bool coll_reduces(int32_t kind)
{
    return kinds[kind].reduces;
}

/* ---------------------------------------------------------------------------------- tensors */

static int32_t n_elems_count(const struct hsdp_tensor *tensor, const char *what,
                             uint64_t *ret_n_elems, struct hsdp_error *reterr)
{
    uint64_t n_elems = 1;
    bool is_empty = false;

    for (int32_t d = 0; d < tensor->n_dims; d++) {
        int64_t size = tensor->shape[d];

        if (size < 0) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "%s: dimension %" PRId32 " has size %" PRId64, what, d, size);
        }
        if (size == 0) {
            is_empty = true;
        } else if (n_elems > (uint64_t)INT64_MAX / 16u / (uint64_t)size) {
            return error_set(reterr, HSDP_ERR_INVALID, "%s: more elements than memory can hold",
                             what);
        } else {
            n_elems *= (uint64_t)size;
        }
    }
    *ret_n_elems = is_empty ? 0 : n_elems;
    return HSDP_OK;
}

static bool is_contiguous(const struct hsdp_tensor *tensor)
{
    int64_t expected = 1;

    for (int32_t d = tensor->n_dims - 1; tensor->strides != NULL && d >= 0; d--) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != expected) {
            return false;
        }
        expected *= tensor->shape[d];
    }
    return true;
}

static int32_t tensor_check(const struct hsdp_tensor *tensor, const char *what, int32_t device_type,
                            struct hsdp_error *reterr)
{
    if (tensor->device_type != device_type && device_type == HSDP_DEVICE_CUDA) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: device type %" PRId32 "; collectives of this job move memory of its "
                         "CUDA device (%d)",
                         what, tensor->device_type, HSDP_DEVICE_CUDA);
    }
    if (tensor->device_type != device_type) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "%s: device type %" PRId32 "; this job moves memory of the CPU (%d)", what,
                         tensor->device_type, HSDP_DEVICE_CPU);
    }
    if (tensor->n_dims < 0 || (tensor->n_dims > 0 && tensor->shape == NULL)) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: %" PRId32 " dimensions%s", what,
                         tensor->n_dims, tensor->n_dims > 0 ? ", but no shape" : "");
    }
    if (tensor->dtype_lanes != 1) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED, "%s: %u lanes; only 1 is built", what,
                         tensor->dtype_lanes);
    }
    return HSDP_OK;
}

static int32_t view_take(const struct hsdp_tensor *tensor, const char *what, struct view *ret,
                         struct hsdp_error *reterr)
{
    int32_t status = tensor_check(tensor, what, ret->device_type, reterr);
    char name[32];

    if (status == HSDP_OK) {
        status = n_elems_count(tensor, what, &ret->n_elems, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    ret->element.code = tensor->dtype_code;
    ret->element.bits = tensor->dtype_bits;
    element_name(ret->element, name, sizeof(name));
    if (!element_moves(ret->element)) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "%s: %s; elements of 8, 16, 32, 64 or 128 bits can be moved", what, name);
    }
    if (ret->n_elems > 0 && !is_contiguous(tensor)) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED, "%s: its strides are not contiguous", what);
    }
    if (ret->n_elems > 0 && tensor->base == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: %" PRIu64 " elements at no address", what,
                         ret->n_elems);
    }
    ret->bytes = ret->n_elems == 0 ? NULL : (uint8_t *)tensor->base + tensor->byte_offset;
    if ((uintptr_t)ret->bytes %
            (element_bytes(ret->element) > 8 ? 8 : element_bytes(ret->element)) !=
        0) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: address %p is not aligned for %s", what,
                         (void *)ret->bytes, name);
    }
    ret->is_there = true;
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------------ counts */

static int32_t table_take(const struct hsdp_group *group, const uint64_t *elems, uint64_t equal,
                          const char *what, uint64_t *ret_elems, struct hsdp_error *reterr)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < group->n_ranks; i++) {
        ret_elems[i] = elems == NULL ? equal : elems[i];
        if (ret_elems[i] > (uint64_t)INT64_MAX / 16u - sum) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "%s: %" PRIu64 " elements of member %" PRIu32 " are too many", what,
                             ret_elems[i], i);
        }
        sum += ret_elems[i];
    }
    return HSDP_OK;
}

static uint64_t table_sum(const struct hsdp_group *group, const uint64_t *elems)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < group->n_ranks; i++) {
        sum += elems[i];
    }
    return sum;
}

static int32_t count_compare(const char *name, const char *what, uint64_t has, uint64_t wants,
                             struct hsdp_error *reterr)
{
    if (has == wants) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_INVALID,
                     "%s: the %s has %" PRIu64 " elements, the call needs %" PRIu64, name, what,
                     has, wants);
}

/* What of a whole of n elements is one member's, where all have the same. */
static uint64_t share_of(const struct hsdp_group *group, uint64_t n_elems)
{
    return n_elems / group->n_ranks;
}

static int32_t gather_counts(struct op *op, const struct hsdp_group *group,
                             const struct hsdp_coll_spec *spec, const struct view views[2],
                             struct hsdp_error *reterr)
{
    uint64_t *elems = op->header.recv_elems;
    int32_t status;

    op->header.n_elems = views[0].n_elems;
    status = table_take(group, spec->recv_elems, views[0].n_elems, "all_gather: recv_elems", elems,
                        reterr);
    if (status == HSDP_OK) {
        status =
            count_compare("all_gather", "input", views[0].n_elems, elems[group->index], reterr);
    }
    if (status == HSDP_OK) {
        status = count_compare("all_gather", "output", views[1].n_elems, table_sum(group, elems),
                               reterr);
    }
    return status;
}

static int32_t scatter_counts(struct op *op, const struct hsdp_group *group,
                              const struct hsdp_coll_spec *spec, const struct view views[2],
                              struct hsdp_error *reterr)
{
    uint64_t *elems = op->header.send_elems;
    int32_t status;

    op->header.n_elems = views[1].n_elems;
    status = table_take(group, spec->send_elems, views[1].n_elems, "reduce_scatter: send_elems",
                        elems, reterr);
    if (status == HSDP_OK) {
        status = count_compare("reduce_scatter", "input", views[0].n_elems, table_sum(group, elems),
                               reterr);
    }
    if (status == HSDP_OK) {
        status = count_compare("reduce_scatter", "output", views[1].n_elems, elems[group->index],
                               reterr);
    }
    return status;
}

static int32_t exchange_counts(struct op *op, const struct hsdp_group *group,
                               const struct hsdp_coll_spec *spec, const struct view views[2],
                               struct hsdp_error *reterr)
{
    struct coll_header *header = &op->header;
    int32_t status;

    header->n_elems = share_of(group, views[0].n_elems);
    status = table_take(group, spec->send_elems, share_of(group, views[0].n_elems),
                        "all_to_all: send_elems", header->send_elems, reterr);
    if (status == HSDP_OK) {
        status = table_take(group, spec->recv_elems, share_of(group, views[1].n_elems),
                            "all_to_all: recv_elems", header->recv_elems, reterr);
    }
    if (status == HSDP_OK) {
        status = count_compare("all_to_all", "input", views[0].n_elems,
                               table_sum(group, header->send_elems), reterr);
    }
    if (status == HSDP_OK) {
        status = count_compare("all_to_all", "output", views[1].n_elems,
                               table_sum(group, header->recv_elems), reterr);
    }
    if (status == HSDP_OK) {
        status = count_compare("all_to_all", "output from itself", header->recv_elems[group->index],
                               header->send_elems[group->index], reterr);
    }
    return status;
}

/* Fills the counts of the header from the views. */
static int32_t counts_take(struct op *op, const struct hsdp_group *group,
                           const struct hsdp_coll_spec *spec, const struct view views[2],
                           struct hsdp_error *reterr)
{
    const char *name = coll_name(spec->kind);

    switch (spec->kind) {
    case HSDP_COLL_ALL_GATHER:
        return gather_counts(op, group, spec, views, reterr);
    case HSDP_COLL_REDUCE_SCATTER:
        return scatter_counts(op, group, spec, views, reterr);
    case HSDP_COLL_ALL_TO_ALL:
        return exchange_counts(op, group, spec, views, reterr);
    default:
        op->header.n_elems = views[0].is_there ? views[0].n_elems : views[1].n_elems;
        return views[0].is_there && views[1].is_there
                   ? count_compare(name, "output", views[1].n_elems, views[0].n_elems, reterr)
                   : HSDP_OK;
    }
}

/* -------------------------------------------------------------------------------- the whole */

static int32_t fields_check(const struct hsdp_group *group, const struct hsdp_coll_spec *spec,
                            struct hsdp_error *reterr)
{
    const struct coll_kind *kind;

    if (spec->kind <= 0 || spec->kind >= N_KINDS) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "group \"%s\": kind %" PRId32 " is none of 1 to %d", group->name,
                         spec->kind, (int)N_KINDS - 1);
    }
    kind = &kinds[spec->kind];
    if (kind->reduces && (spec->reduce < HSDP_REDUCE_SUM || spec->reduce > HSDP_REDUCE_MIN)) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: reduction %" PRId32 " is none of 0 to 3",
                         kind->name, spec->reduce);
    }
    if (kind->has_peer && spec->peer >= group->n_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: peer %" PRIu32 " is outside of group \"%s\" of %" PRIu32 " ranks",
                         kind->name, spec->peer, group->name, group->n_ranks);
    }
    if ((spec->send_elems != NULL && !kind->has_send_elems) ||
        (spec->recv_elems != NULL && !kind->has_recv_elems)) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: takes no %s", kind->name,
                         spec->send_elems != NULL && !kind->has_send_elems ? "send_elems"
                                                                           : "recv_elems");
    }
    return HSDP_OK;
}

static int32_t tensor_take(const char *name, const char *what, const struct hsdp_tensor *tensor,
                           bool is_needed, struct view *ret, struct hsdp_error *reterr)
{
    char label[48];

    snprintf(label, sizeof(label), "%s: the %s", name, what);
    if (tensor != NULL) {
        return view_take(tensor, label, ret, reterr);
    }
    return is_needed ? error_set(reterr, HSDP_ERR_INVALID, "%s is NULL", label) : HSDP_OK;
}

/* The input of a broadcast counts at its root only, where the output may be missing. */
static int32_t views_take(const struct hsdp_group *group, const struct hsdp_coll_spec *spec,
                          struct view views[2], struct hsdp_error *reterr)
{
    const struct coll_kind *kind = &kinds[spec->kind];
    bool is_root = spec->kind == HSDP_COLL_BROADCAST && spec->peer == group->index;
    bool is_leaf = spec->kind == HSDP_COLL_BROADCAST && !is_root;
    int32_t status = HSDP_OK;

    if ((spec->input != NULL && !kind->has_input) || (spec->output != NULL && !kind->has_output)) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: takes no %s", kind->name,
                         spec->input != NULL && !kind->has_input ? "input" : "output");
    }
    if (kind->has_input && !is_leaf) {
        status = tensor_take(kind->name, "input", spec->input, true, &views[0], reterr);
    }
    if (status == HSDP_OK && kind->has_output) {
        status = tensor_take(kind->name, "output", spec->output, !is_root, &views[1], reterr);
    }
    if (status == HSDP_OK && views[0].is_there && views[1].is_there &&
        !element_equals(views[0].element, views[1].element)) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: input and output have different dtypes",
                         kind->name);
    }
    return status;
}

static bool is_in_place(const struct op *op, const struct hsdp_group *group)
{
    switch (op->header.kind) {
    case HSDP_COLL_ALL_REDUCE:
    case HSDP_COLL_BROADCAST:
        return true;
    case HSDP_COLL_ALL_TO_ALL:
        return memcmp(op->header.send_elems, op->header.recv_elems,
                      group->n_ranks * sizeof(uint64_t)) == 0;
    default:
        return false;
    }
}

static int32_t overlap_check(const struct op *op, const struct hsdp_group *group,
                             const struct view views[2], struct hsdp_error *reterr)
{
    uint64_t elem_bytes = element_bytes(op->header.element);
    const uint8_t *input = views[0].bytes;
    const uint8_t *output = views[1].bytes;

    if (input == NULL || output == NULL || input + views[0].n_elems * elem_bytes <= output ||
        output + views[1].n_elems * elem_bytes <= input) {
        return HSDP_OK;
    }
    if (input == output && is_in_place(op, group)) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_INVALID, "%s: input %p and output %p overlap",
                     coll_name(op->header.kind), (const void *)input, (const void *)output);
}

int32_t op_init(struct op *op, const struct hsdp_group *group, const struct hsdp_coll_spec *spec,
                struct hsdp_error *reterr)
{
    struct view views[2];
    char name[32];
    int32_t status;

    memset(op, 0, sizeof(*op));
    memset(views, 0, sizeof(views));
    views[0].device_type = group->job->has_device ? HSDP_DEVICE_CUDA : HSDP_DEVICE_CPU;
    views[1].device_type = views[0].device_type;
    status = fields_check(group, spec, reterr);
    if (status == HSDP_OK) {
        status = views_take(group, spec, views, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    op->header.kind = spec->kind;
    op->header.root = kinds[spec->kind].has_peer ? spec->peer : 0;
    op->header.reduce = kinds[spec->kind].reduces ? spec->reduce : 0;
    op->header.element = views[0].is_there ? views[0].element : views[1].element;
    op->input = views[0].bytes;
    op->output = views[1].bytes;
    op->timeout_ms = spec->timeout_ms;
    element_name(op->header.element, name, sizeof(name));
    if (kinds[spec->kind].reduces && !element_reduces(op->header.element, spec->reduce)) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED, "%s: %s of %s is not built",
                         kinds[spec->kind].name,
                         spec->reduce == HSDP_REDUCE_MEAN ? "the mean" : "a reduction", name);
    }
    status = counts_take(op, group, spec, views, reterr);
    return status == HSDP_OK ? overlap_check(op, group, views, reterr) : status;
}
