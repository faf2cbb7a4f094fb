/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_group_ops. */
#include "comm/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "call.h"
#include "tables.h"

#define SPECS_ON_STACK 8     /* a 1F1B pair with room; more are rare and allocated */
#define SPECS_MAX      65536 /* more than any host means: a number out of uninitialised memory */

static int32_t entry_create(hsdp_job *job, const hsdp_mesh *mesh,
                            const struct hsdp_group_spec *spec, hsdp_group **ret_group,
                            struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_group_spec own;
    struct hsdp_group *group = NULL;

    call_begin(&call, "group.create", reterr);
    call_needs(&call, "job", job);
    call_needs(&call, "mesh", mesh);
    call_needs(&call, "ret_group", ret_group);
    call_takes(&call, "spec", &intake_group_spec, spec, &own);
    call_enters(&call, job);
    if (call_is_ok(&call)) {
        call.status = group_create(job, mesh, &own, &group, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_group = group;
    }
    return call_end(&call);
}

static int32_t entry_connect(hsdp_job *job, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "group.connect", reterr);
    call_needs(&call, "job", job);
    call_enters(&call, job);
    call_is_collective(&call);
    if (call_is_ok(&call)) {
        call.status = group_connect(job, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_info(const hsdp_group *group, struct hsdp_group_info *ret_info,
                          struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;

    call_begin(&call, "group.info", reterr);
    call_needs(&call, "group", group);
    call_needs_struct(&call, "ret_info", &intake_group_info, ret_info);
    if (call_is_ok(&call)) {
        call_enters_failed(&call, group_job(group));
    }
    if (call_is_ok(&call)) {
        call.status = group_info(group, &info, &call.err);
    }
    call_gives(&call, &intake_group_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_members(const hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks,
                             struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "group.members", reterr);
    call_needs(&call, "group", group);
    call_needs(&call, "ret_ranks", ret_ranks);
    if (call_is_ok(&call)) {
        call_enters_failed(&call, group_job(group));
    }
    if (call_is_ok(&call)) {
        call.status = group_members(group, ret_ranks, max_ranks, &call.err);
    }
    return call_end(&call);
}

/* The specs of one start: an array with the caller's stride. */
struct spec_array {
    const unsigned char *first;
    uint64_t n_stride_bytes;
    uint64_t n_specs;
};

/* struct_size and stride may differ (a spec may sit in a larger struct), but not overlap. */
static int32_t spec_take(const struct spec_array *array, uint64_t index,
                         struct hsdp_coll_spec *ret_own, struct hsdp_error *reterr)
{
    const struct hsdp_coll_spec *theirs =
        (const void *)(array->first + index * array->n_stride_bytes);
    bool fits = theirs->struct_size <= array->n_stride_bytes;
    struct intake_source source = {"group.start", "specs"};
    char name[40];

    if (fits && intake(&intake_coll_spec, source, theirs, ret_own, NULL) == HSDP_OK) {
        return HSDP_OK;
    }
    snprintf(name, sizeof(name), "specs[%" PRIu64 "]", index); /* only now: it costs more */
    source.name = name;
    if (!fits) {
        return error_set(reterr, HSDP_ERR_VERSION,
                         "group.start: %s.struct_size is %zu, but spec_bytes is %" PRIu64, name,
                         theirs->struct_size, array->n_stride_bytes);
    }
    return intake(&intake_coll_spec, source, theirs, ret_own, reterr);
}

static int32_t specs_take(const struct spec_array *array, struct hsdp_coll_spec *ret_own,
                          struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint64_t i = 0; i < array->n_specs && status == HSDP_OK; i++) {
        status = spec_take(array, i, &ret_own[i], reterr);
    }
    return status;
}

static int32_t array_check(const struct spec_array *array, struct hsdp_error *reterr)
{
    if (array->n_specs == 0 || array->n_specs > SPECS_MAX) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "group.start: n_specs is %" PRIu64 ", not from 1 to %d", array->n_specs,
                         SPECS_MAX);
    }
    if (array->n_stride_bytes < intake_coll_spec.n_bytes_1_0 ||
        array->n_stride_bytes > INTAKE_MAX_BYTES) {
        return error_set(reterr, HSDP_ERR_VERSION,
                         "group.start: spec_bytes is %" PRIu64 "; ABI 1.0 has %zu, this plugin %zu",
                         array->n_stride_bytes, intake_coll_spec.n_bytes_1_0,
                         intake_coll_spec.n_bytes);
    }
    if (array->n_stride_bytes % _Alignof(struct hsdp_coll_spec) != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "group.start: spec_bytes is %" PRIu64 ", no multiple of %zu",
                         array->n_stride_bytes, _Alignof(struct hsdp_coll_spec));
    }
    return HSDP_OK;
}

static int32_t array_start(hsdp_group *group, const struct spec_array *array, void *stream,
                           uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct hsdp_coll_spec on_stack[SPECS_ON_STACK];
    struct hsdp_coll_spec *own = on_stack;
    int32_t status;

    status = array_check(array, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (array->n_specs > SPECS_ON_STACK) {
        own = calloc(array->n_specs, sizeof(*own));
    }
    if (own == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "group.start: no memory for %" PRIu64 " specs",
                         array->n_specs);
    }
    status = specs_take(array, own, reterr);
    if (status == HSDP_OK) {
        status = group_start(group, own, array->n_specs, stream, ret_ticket, reterr);
    }
    if (own != on_stack) {
        free(own);
    }
    return status;
}

static int32_t entry_start(hsdp_group *group, const struct hsdp_coll_spec *specs,
                           uint64_t spec_bytes, uint64_t n_specs, void *stream,
                           uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct call call;
    struct spec_array array = {(const void *)specs, spec_bytes, n_specs};
    uint64_t ticket = 0;

    call_begin(&call, "group.start", reterr);
    call_needs(&call, "group", group);
    call_needs(&call, "specs", specs);
    if (call_is_ok(&call)) {
        call_enters(&call, group_job(group));
        call_needs_stream(&call, stream);
    }
    if (call_is_ok(&call)) {
        call.status = array_start(group, &array, stream, &ticket, &call.err);
    }
    call_gives_ticket(&call, ticket, ret_ticket);
    return call_end(&call);
}

const struct hsdp_group_ops export_group = {
    .struct_size = sizeof(struct hsdp_group_ops),
    .create = entry_create,
    .connect = entry_connect,
    .info = entry_info,
    .members = entry_members,
    .start = entry_start,
    .destroy = group_destroy,
};
