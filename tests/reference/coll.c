/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of groups: each is one request to the server, and what this rank takes of the answer.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "group.h"

struct kind {
    const char *name;
    bool has_input;
    bool has_output;
    bool has_send_elems;
    bool has_recv_elems;
    bool has_peer;
    bool reduces;
};

static const struct kind kinds[] = {
    [HSDP_COLL_BARRIER] = {.name = "barrier"},
    [HSDP_COLL_ALL_REDUCE] = {"all_reduce", true, true, false, false, false, true},
    [HSDP_COLL_ALL_GATHER] = {"all_gather", true, true, false, true, false, false},
    [HSDP_COLL_REDUCE_SCATTER] = {"reduce_scatter", true, true, true, false, false, true},
    [HSDP_COLL_ALL_TO_ALL] = {"all_to_all", true, true, true, true, false, false},
    [HSDP_COLL_BROADCAST] = {"broadcast", true, true, false, false, true, false},
    [HSDP_COLL_SEND] = {"send", true, false, false, false, true, false},
    [HSDP_COLL_RECV] = {"recv", false, true, false, false, true, false},
};

static const char *const reductions[] = {"sum", "mean", "max", "min"};

/* ------------------------------------------------------------------------------------- tensors */

static int32_t tensor_refuse(const struct call *call, int32_t status, const struct coll *coll,
                             const char *what)
{
    return error_raise(call, status, "%s: %s: %s", call->name, kinds[coll->kind].name, what);
}

static enum element element_find(const struct hsdp_tensor *tensor)
{
    int log = tensor->dtype_bits == 8    ? 0
              : tensor->dtype_bits == 16 ? 1
              : tensor->dtype_bits == 32 ? 2
              : tensor->dtype_bits == 64 ? 3
                                         : 4;

    if (tensor->dtype_code == HSDP_DTYPE_BFLOAT && log == 1) {
        return ELEMENT_BF16;
    }
    if (tensor->dtype_code == HSDP_DTYPE_FLOAT && log >= 1 && log <= 3) {
        return log == 1 ? ELEMENT_FP16 : log == 2 ? ELEMENT_FP32 : ELEMENT_FP64;
    }
    if (tensor->dtype_code == HSDP_DTYPE_INT && log <= 3) {
        return (enum element)(ELEMENT_INT8 + log);
    }
    if (tensor->dtype_code == HSDP_DTYPE_UINT && log <= 3) {
        return (enum element)(ELEMENT_UINT8 + log);
    }
    return N_ELEMENTS;
}

static int32_t tensor_check(const struct call *call, const struct coll *coll,
                            const struct hsdp_tensor *tensor)
{
    if (tensor->device_type != HSDP_DEVICE_CPU) {
        return tensor_refuse(call, HSDP_ERR_UNSUPPORTED, coll, "a tensor that is not on the CPU");
    }
    if (tensor->n_dims < 0 || (tensor->n_dims > 0 && tensor->shape == NULL)) {
        return tensor_refuse(call, HSDP_ERR_INVALID, coll, "a tensor without a shape");
    }
    if (tensor->dtype_lanes != 1 || tensor->dtype_bits % 8 != 0 || tensor->dtype_bits == 0) {
        return tensor_refuse(call, HSDP_ERR_UNSUPPORTED, coll,
                             "elements that are not one lane of whole bytes");
    }
    if (!tensor_is_contiguous(tensor)) {
        return tensor_refuse(call, HSDP_ERR_UNSUPPORTED, coll, "a tensor that is not contiguous");
    }
    return HSDP_OK;
}

/* Where it lies and how many elements it has; notes its dtype, which is that of the other one. */
static int32_t tensor_read(const struct call *call, struct coll *coll,
                           const struct hsdp_tensor *tensor, unsigned char **ret_at,
                           uint64_t *ret_n_elems)
{
    int32_t status = tensor_check(call, coll, tensor);
    char dtype[24];

    *ret_n_elems = 1;
    for (int32_t d = 0; status == HSDP_OK && d < tensor->n_dims; d++) {
        if (tensor->shape[d] < 0 ||
            (tensor->shape[d] > 0 &&
             *ret_n_elems > ((uint64_t)1 << 56) / (uint64_t)tensor->shape[d])) {
            return tensor_refuse(call, HSDP_ERR_INVALID, coll, "an impossible shape");
        }
        *ret_n_elems *= (uint64_t)tensor->shape[d];
    }
    if (status != HSDP_OK) {
        return status;
    }
    snprintf(dtype, sizeof(dtype), "dtype %u of %u bits", tensor->dtype_code, tensor->dtype_bits);
    if (coll->dtype[0] != '\0' && strcmp(coll->dtype, dtype) != 0) {
        return tensor_refuse(call, HSDP_ERR_INVALID, coll, "input and output of different dtypes");
    }
    memcpy(coll->dtype, dtype, sizeof(dtype));
    coll->element = element_find(tensor);
    coll->element_bytes = tensor->dtype_bits / 8u;
    if (*ret_n_elems > 0 && tensor->base == NULL) {
        return tensor_refuse(call, HSDP_ERR_INVALID, coll, "elements at no address");
    }
    *ret_at = *ret_n_elems > 0 ? (unsigned char *)tensor->base + tensor->byte_offset : NULL;
    return HSDP_OK;
}

static int32_t tensors_read(const struct call *call, const struct hsdp_coll_spec *spec,
                            struct coll *coll)
{
    const struct kind *kind = &kinds[spec->kind];
    bool is_root = spec->kind == HSDP_COLL_BROADCAST && spec->peer == coll->group->index;
    bool is_leaf = spec->kind == HSDP_COLL_BROADCAST && !is_root;
    unsigned char *at = NULL;
    int32_t status = HSDP_OK;

    if ((spec->input != NULL && !kind->has_input) || (spec->output != NULL && !kind->has_output)) {
        return tensor_refuse(call, HSDP_ERR_INVALID, coll, "a tensor that it does not take");
    }
    if ((spec->input == NULL && kind->has_input && !is_leaf) ||
        (spec->output == NULL && kind->has_output && !is_root)) {
        return tensor_refuse(call, HSDP_ERR_INVALID, coll, "a tensor that it needs is NULL");
    }
    if (spec->input != NULL && !is_leaf) {
        status = tensor_read(call, coll, spec->input, &at, &coll->n_in);
        coll->input = at;
    }
    if (status == HSDP_OK && spec->output != NULL) {
        status = tensor_read(call, coll, spec->output, &coll->output, &coll->n_out);
    }
    return status;
}

/* -------------------------------------------------------------------------------------- counts */

static uint64_t sum_before(const uint64_t *elems, uint32_t index)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < index; i++) {
        sum += elems[i];
    }
    return sum;
}

static void counts_read(const struct coll *coll, const uint64_t *given, uint64_t equal,
                        uint64_t *ret_elems)
{
    for (uint32_t i = 0; i < coll->group->n_ranks; i++) {
        ret_elems[i] = given != NULL ? given[i] : equal;
    }
}

/* True if input and output have the elements that the counts say. */
static bool counts_fit(struct coll *coll, const struct hsdp_coll_spec *spec)
{
    uint32_t n = coll->group->n_ranks, index = coll->group->index;

    switch (coll->kind) {
    case HSDP_COLL_ALL_REDUCE:
        return coll->n_in == coll->n_out;
    case HSDP_COLL_BROADCAST:
        return coll->input == NULL || coll->output == NULL || coll->n_in == coll->n_out;
    case HSDP_COLL_ALL_GATHER:
        counts_read(coll, spec->recv_elems, coll->n_in, coll->recv_elems);
        return coll->n_in == coll->recv_elems[index] &&
               coll->n_out == sum_before(coll->recv_elems, n);
    case HSDP_COLL_REDUCE_SCATTER:
        counts_read(coll, spec->send_elems, coll->n_out, coll->send_elems);
        return coll->n_out == coll->send_elems[index] &&
               coll->n_in == sum_before(coll->send_elems, n);
    case HSDP_COLL_ALL_TO_ALL:
        counts_read(coll, spec->send_elems, coll->n_in / n, coll->send_elems);
        counts_read(coll, spec->recv_elems, coll->n_out / n, coll->recv_elems);
        return coll->n_in == sum_before(coll->send_elems, n) &&
               coll->n_out == sum_before(coll->recv_elems, n) &&
               coll->send_elems[index] == coll->recv_elems[index];
    default:
        return true;
    }
}

static bool is_overlapping(const struct coll *coll)
{
    uintptr_t input = (uintptr_t)coll->input, output = (uintptr_t)coll->output;
    bool is_same = input == output && coll->n_in == coll->n_out &&
                   coll->kind != HSDP_COLL_ALL_GATHER && coll->kind != HSDP_COLL_REDUCE_SCATTER;

    if (input == 0 || output == 0 || is_same) {
        return false;
    }
    return input < output + coll->n_out * coll->element_bytes &&
           output < input + coll->n_in * coll->element_bytes;
}

static int32_t fields_check(const struct call *call, const hsdp_group *group,
                            const struct hsdp_coll_spec *spec)
{
    const struct kind *kind;

    if (spec->kind < HSDP_COLL_BARRIER || spec->kind > HSDP_COLL_RECV) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: kind %" PRId32 "; 1 to 8 are allowed",
                           call->name, spec->kind);
    }
    kind = &kinds[spec->kind];
    if (kind->reduces && (spec->reduce < HSDP_REDUCE_SUM || spec->reduce > HSDP_REDUCE_MIN)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: %s: reduction %" PRId32 "; 0 to 3 are allowed", call->name,
                           kind->name, spec->reduce);
    }
    if (kind->has_peer && spec->peer >= group->n_ranks) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: %s: peer %" PRIu32 " of a group of %" PRIu32 " ranks", call->name,
                           kind->name, spec->peer, group->n_ranks);
    }
    if ((spec->send_elems != NULL && !kind->has_send_elems) ||
        (spec->recv_elems != NULL && !kind->has_recv_elems)) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: %s takes no such counts", call->name,
                           kind->name);
    }
    return HSDP_OK;
}

int32_t coll_read(const struct call *call, hsdp_group *group, const struct hsdp_coll_spec *spec,
                  struct coll *ret)
{
    int32_t status = fields_check(call, group, spec);

    *ret = (struct coll){.group = group, .kind = spec->kind, .element = N_ELEMENTS};
    if (status != HSDP_OK) {
        return status;
    }
    ret->peer = kinds[spec->kind].has_peer ? spec->peer : 0;
    ret->reduce = kinds[spec->kind].reduces ? spec->reduce : 0;
    ret->element_bytes = 1;
    status = tensors_read(call, spec, ret);
    if (status != HSDP_OK) {
        return status;
    }
    if (!counts_fit(ret, spec)) {
        return tensor_refuse(call, HSDP_ERR_INVALID, ret, "counts and tensors do not fit");
    }
    if (is_overlapping(ret)) {
        return tensor_refuse(call, HSDP_ERR_INVALID, ret, "input and output overlap");
    }
    if (kinds[spec->kind].reduces &&
        (ret->element == N_ELEMENTS ||
         (ret->element >= ELEMENT_INT8 && ret->reduce == HSDP_REDUCE_MEAN))) {
        return tensor_refuse(call, HSDP_ERR_UNSUPPORTED, ret,
                             "this reduction of this dtype is not built");
    }
    if ((spec->kind == HSDP_COLL_SEND || spec->kind == HSDP_COLL_RECV) &&
        spec->peer == group->index) {
        return tensor_refuse(call, HSDP_ERR_UNSUPPORTED, ret, "to oneself is not built");
    }
    return HSDP_OK;
}

/* -------------------------------------------------------------------------------------- answer */

static void coll_unlink(struct coll *coll)
{
    struct coll **at = &coll->group->colls;

    while (*at != coll) {
        at = &(*at)->next;
    }
    *at = coll->next;
}

static void counts_differ(const struct coll *coll, uint32_t member, uint64_t n_sent)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const hsdp_group *group = coll->group;

    error.status = HSDP_ERR_MISMATCH;
    snprintf(error.operation, sizeof(error.operation), "all_to_all");
    snprintf(error.group, sizeof(error.group), "%s", group->name);
    snprintf(error.message, sizeof(error.message),
             "all_to_all: rank %" PRIu32 " sends %" PRIu64 " elements, rank %" PRIu32
             " receives %" PRIu64,
             group->members[member], n_sent, group->members[group->index],
             coll->recv_elems[member]);
    job_fail(group->job, &error);
}

/* What member `from` of the answer gives this rank. */
static unsigned char *part_take(const struct coll *coll, uint32_t from, struct packet *answer,
                                unsigned char *to)
{
    uint32_t index = coll->group->index;
    size_t size = coll->element_bytes, n_bytes;
    const unsigned char *blob = packet_get_blob(answer, &n_bytes);

    if (coll->kind == HSDP_COLL_REDUCE_SCATTER) {
        blob += sum_before(coll->send_elems, index) * size;
        n_bytes = coll->n_out * size;
    } else if (coll->kind == HSDP_COLL_ALL_TO_ALL) {
        const uint64_t *theirs = (const uint64_t *)(const void *)blob;

        if (theirs[index] != coll->recv_elems[from]) {
            counts_differ(coll, from, theirs[index]);
            return to;
        }
        n_bytes = theirs[index] * size;
        blob += coll->group->n_ranks * sizeof(uint64_t) + sum_before(theirs, index) * size;
    }
    if (n_bytes > 0) {
        memcpy(to, blob, n_bytes);
    }
    return to + n_bytes;
}

static void coll_finish(void *context, struct packet *answer)
{
    struct coll *coll = context;
    bool is_one = kinds[coll->kind].reduces;
    uint32_t n = coll->kind == HSDP_COLL_RECV ? 2 : is_one ? 1 : coll->group->n_ranks;
    unsigned char *to = coll->output;

    for (uint32_t i = 0; i < n && to != NULL; i++) {
        to = part_take(coll, i, answer, to);
    }
    if (coll->group->n_ranks > 1) {
        coll->group->n_bytes_received += coll->n_out * coll->element_bytes;
    }
    coll_unlink(coll);
    free(coll);
}

/* --------------------------------------------------------------------------------------- start */

static void counts_write(char *text, size_t n_bytes, const uint64_t *elems, uint32_t n)
{
    for (uint32_t i = 0; i < n && strlen(text) + 24 < n_bytes; i++) {
        size_t at = strlen(text);

        snprintf(text + at, n_bytes - at, " %" PRIu64, elems[i]);
    }
}

/* What all members have to say alike. */
static void alike_write(const struct coll *coll, char *text, size_t n_bytes)
{
    uint64_t n_elems = coll->input != NULL ? coll->n_in : coll->n_out;
    bool is_pair = coll->kind == HSDP_COLL_SEND || coll->kind == HSDP_COLL_RECV;
    const char *name = is_pair ? "message" : kinds[coll->kind].name;

    if (coll->kind == HSDP_COLL_ALL_GATHER) {
        n_elems = coll->n_out;
    }
    if (coll->kind == HSDP_COLL_ALL_TO_ALL || coll->kind == HSDP_COLL_BARRIER) {
        n_elems = 0; /* compared one by one, when all have come */
    }
    snprintf(text, n_bytes, "%s of %" PRIu64 " elements, %s, %s, root %" PRIu32, name, n_elems,
             coll->dtype, reductions[coll->reduce], is_pair ? 0 : coll->peer);
    if (coll->kind == HSDP_COLL_ALL_GATHER) {
        counts_write(text, n_bytes, coll->recv_elems, coll->group->n_ranks);
    }
    if (coll->kind == HSDP_COLL_REDUCE_SCATTER) {
        counts_write(text, n_bytes, coll->send_elems, coll->group->n_ranks);
    }
}

/* The members and the key: a message is a meeting of two, with a count of its own. */
static void meeting_fill(struct coll *coll, struct meeting_text *text, struct request *request)
{
    hsdp_group *group = coll->group;
    uint32_t from = group->index, to = group->index;

    request->members = group->members;
    request->n_members = group->n_ranks;
    if (coll->kind != HSDP_COLL_SEND && coll->kind != HSDP_COLL_RECV) {
        request->sequence = ++group->n_started;
        snprintf(text->key, sizeof(text->key), "%s.%" PRIu64, group->key, request->sequence);
        return;
    }
    if (coll->kind == HSDP_COLL_SEND) {
        to = coll->peer;
        request->sequence = ++group->n_sent_to[to];
    } else {
        from = coll->peer;
        request->sequence = ++group->n_received_from[from];
    }
    text->members[0] = group->members[from];
    text->members[1] = group->members[to];
    request->members = text->members;
    request->n_members = 2;
    snprintf(text->key, sizeof(text->key), "%s.%" PRIu32 "to%" PRIu32 ".%" PRIu64, group->key, from,
             to, request->sequence);
}

static void payload_fill(const struct coll *coll, struct packet *packet, struct request *request)
{
    size_t n_counts = coll->group->n_ranks * sizeof(uint64_t);
    size_t n_bytes = coll->n_in * coll->element_bytes;
    unsigned char *room;

    request->payload = coll->input != NULL ? coll->input : (const unsigned char *)"";
    request->payload_bytes = coll->input != NULL ? n_bytes : 0;
    if (coll->kind != HSDP_COLL_ALL_TO_ALL) {
        return;
    }
    room = packet_put_room(packet, n_counts + n_bytes);
    if (room != NULL) {
        memcpy(room, coll->send_elems, n_counts);
        if (n_bytes > 0) {
            memcpy(room + n_counts, coll->input, n_bytes);
        }
        request->payload = room;
        request->payload_bytes = n_counts + n_bytes;
    }
}

int32_t coll_start(const struct call *call, struct coll *coll, uint64_t own_timeout_ms,
                   uint64_t *ticket)
{
    hsdp_group *group = coll->group;
    struct packet payload = {0};
    struct meeting_text text;
    struct request request = {.unit = "", .sentence = "", .key = text.key};
    char alike[2048];
    int32_t status;

    alike_write(coll, alike, sizeof(alike));
    meeting_fill(coll, &text, &request);
    payload_fill(coll, &payload, &request);
    request.combine = kinds[coll->kind].reduces ? COMBINE_REDUCE : COMBINE_GATHER;
    request.element = coll->element;
    request.reduce = coll->reduce;
    request.alike = alike;
    request.operation = kinds[coll->kind].name;
    request.group = group->name;
    request.has_own_timeout = own_timeout_ms != 0 || group->timeout_ms != 0;
    request.timeout_ms = own_timeout_ms != 0 ? own_timeout_ms : group_timeout_ms(group);
    coll->next = group->colls;
    group->colls = coll;
    status = payload.is_bad ? error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name)
                            : job_request(call, group->job, &request,
                                          (struct follow_up){coll_finish, coll, group}, ticket);
    packet_free(&payload);
    if (status != HSDP_OK) {
        coll_unlink(coll);
        free(coll);
        return status;
    }
    group->n_bytes_sent += group->n_ranks > 1 ? coll->n_in * coll->element_bytes : 0;
    return HSDP_OK;
}

void colls_free(hsdp_group *group)
{
    while (group->colls != NULL) {
        struct coll *first = group->colls;

        group->colls = first->next;
        free(first);
    }
}
