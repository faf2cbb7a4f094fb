/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: functions on groups. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"

void group_nulls(struct conform *conform)
{
    const struct hsdp_group_ops *ops = conform->api->group;
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_coll_spec barrier = HSDP_COLL_SPEC_INIT;
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_open(&a, conform);
    spec.selector = "dp";
    barrier.kind = HSDP_COLL_BARRIER;
    arguments_refuse(&a, ops->create(NULL, a.mesh, &spec, &out->group, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(a.job, NULL, &spec, &out->group, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(a.job, a.mesh, NULL, &out->group, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(a.job, a.mesh, &spec, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->connect(NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(NULL, &out->group_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(a.group, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(NULL, out->numbers, 8, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(a.group, NULL, 8, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->members(a.group, out->numbers, 0, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a,
                     ops->start(NULL, &barrier, sizeof(barrier), 1, NULL, &out->longs[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->start(a.group, NULL, sizeof(barrier), 1, NULL, &out->longs[0], a.err),
                     HSDP_ERR_INVALID);
    arguments_close(&a);
}

void group_specs(struct conform *conform)
{
    static const char *const selectors[] = {"foo", "dp,dp", "dp[1]", "dp ", " ", "dp,", NULL};
    const struct hsdp_group_ops *ops = conform->api->group;
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_mesh_spec mesh_spec = HSDP_MESH_SPEC_INIT;
    const int64_t sizes[] = {2};
    const char *names[] = {"dp"};
    struct arguments a;
    hsdp_mesh *mesh = NULL;

    arguments_open(&a, conform);
    for (size_t i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++) {
        char what[64];

        snprintf(what, sizeof(what), "group.create of \"%s\"",
                 selectors[i] == NULL ? "NULL" : selectors[i]);
        spec.selector = selectors[i];
        arguments_refuse_as(&a, what, ops->create(a.job, a.mesh, &spec, &a.out.group, a.err),
                            HSDP_ERR_INVALID);
    }
    mesh_spec.dim_sizes = sizes;
    mesh_spec.dim_names = names;
    mesh_spec.n_dims = 1;
    arguments_accept(&a, a.api->mesh->create(&mesh_spec, &mesh, a.err));
    spec.selector = "dp";
    arguments_refuse_as(&a, "group.create on a mesh of 2 ranks in a job of 1",
                        ops->create(a.job, mesh, &spec, &a.out.group, a.err), HSDP_ERR_INVALID);
    a.api->mesh->destroy(mesh);
    arguments_close(&a);
}

/* ------------------------------------------------------------------------------------- starts */

/* What the fields of a collective are drawn from, and what is wrong with one. */
struct wrong_start {
    const char *what;
    int32_t kind;
    int32_t reduce;
    uint32_t peer;
    int n_input; /* elements; -1 = NULL */
    int n_output;
    int32_t status;
};

static const struct wrong_start wrong_starts[] = {
    {"group.start: kind 0", 0, 0, 0, -1, -1, HSDP_ERR_INVALID},
    {"group.start: kind 9", 9, 0, 0, 4, 4, HSDP_ERR_INVALID},
    {"group.start: kind -1", -1, 0, 0, 4, 4, HSDP_ERR_INVALID},
    {"group.start: all-reduce by 4", HSDP_COLL_ALL_REDUCE, 4, 0, 4, 4, HSDP_ERR_INVALID},
    {"group.start: all-reduce by -1", HSDP_COLL_ALL_REDUCE, -1, 0, 4, 4, HSDP_ERR_INVALID},
    {"group.start: all-reduce without input", HSDP_COLL_ALL_REDUCE, 0, 0, -1, 4, HSDP_ERR_INVALID},
    {"group.start: all-reduce without output", HSDP_COLL_ALL_REDUCE, 0, 0, 4, -1, HSDP_ERR_INVALID},
    {"group.start: all-reduce of 4 to 3", HSDP_COLL_ALL_REDUCE, 0, 0, 4, 3, HSDP_ERR_INVALID},
    {"group.start: all-gather of 4 to 3", HSDP_COLL_ALL_GATHER, 0, 0, 4, 3, HSDP_ERR_INVALID},
    {"group.start: reduce-scatter of 4 to 3", HSDP_COLL_REDUCE_SCATTER, 0, 0, 4, 3,
     HSDP_ERR_INVALID},
    {"group.start: all-to-all of 4 to 3", HSDP_COLL_ALL_TO_ALL, 0, 0, 4, 3, HSDP_ERR_INVALID},
    {"group.start: broadcast from member 1 of 1", HSDP_COLL_BROADCAST, 0, 1, 4, 4,
     HSDP_ERR_INVALID},
    {"group.start: barrier with an input", HSDP_COLL_BARRIER, 0, 0, 4, -1, HSDP_ERR_INVALID},
    {"group.start: broadcast from the root without input", HSDP_COLL_BROADCAST, 0, 0, -1, 4,
     HSDP_ERR_INVALID},
    {"group.start: send to member 1 of 1", HSDP_COLL_SEND, 0, 1, 4, -1, HSDP_ERR_INVALID},
    {"group.start: receive from member 1 of 1", HSDP_COLL_RECV, 0, 1, -1, 4, HSDP_ERR_INVALID},
};

struct buffers {
    float input[8];
    float output[8];
    int64_t sizes[2];
    struct hsdp_tensor tensors[2];
};

static void buffers_init(struct buffers *ret, int n_input, int n_output)
{
    memset(ret, 0, sizeof(*ret));
    ret->sizes[0] = n_input;
    ret->sizes[1] = n_output;
    for (int i = 0; i < 2; i++) {
        ret->tensors[i].base = i == 0 ? ret->input : ret->output;
        ret->tensors[i].device_type = HSDP_DEVICE_CPU;
        ret->tensors[i].n_dims = 1;
        ret->tensors[i].dtype_code = HSDP_DTYPE_FLOAT;
        ret->tensors[i].dtype_bits = 32;
        ret->tensors[i].dtype_lanes = 1;
        ret->tensors[i].shape = &ret->sizes[i];
    }
}

void group_starts(struct conform *conform)
{
    const struct hsdp_group_ops *ops = conform->api->group;
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct buffers buffers;
    struct arguments a;
    uint64_t *ticket = &a.out.longs[0];
    uint64_t done = 0;

    arguments_open(&a, conform);
    for (size_t i = 0; i < sizeof(wrong_starts) / sizeof(wrong_starts[0]); i++) {
        const struct wrong_start *wrong = &wrong_starts[i];

        buffers_init(&buffers, wrong->n_input, wrong->n_output);
        spec.kind = wrong->kind;
        spec.reduce = wrong->reduce;
        spec.peer = wrong->peer;
        spec.input = wrong->n_input < 0 ? NULL : &buffers.tensors[0];
        spec.output = wrong->n_output < 0 ? NULL : &buffers.tensors[1];
        arguments_refuse_as(&a, wrong->what,
                            ops->start(a.group, device_specs(&spec, sizeof(spec), 1), sizeof(spec),
                                       1, NULL, ticket, a.err),
                            wrong->status);
    }
    spec = (struct hsdp_coll_spec)HSDP_COLL_SPEC_INIT;
    spec.kind = HSDP_COLL_BARRIER;
    arguments_refuse_as(&a, "group.start of 0 collectives",
                        ops->start(a.group, &spec, sizeof(spec), 0, NULL, ticket, a.err),
                        HSDP_ERR_INVALID);
    arguments_refuse_as(&a, "group.start of 65537 collectives",
                        ops->start(a.group, &spec, sizeof(spec), 65537, NULL, ticket, a.err),
                        HSDP_ERR_INVALID);
    arguments_refuse_stream(&a, "group.start on a stream of a CPU",
                            ops->start(a.group, &spec, sizeof(spec), 1, &a, ticket, a.err));
    arguments_accept(&a, ops->start(a.group, &spec, sizeof(spec), 1, NULL, NULL, a.err));
    ticket = &done;
    arguments_accept(&a, ops->start(a.group, &spec, sizeof(spec), 1, NULL, ticket, a.err));
    arguments_accept(&a, a.api->job->ticket_wait(a.job, done, UINT64_MAX, a.err));
    arguments_close(&a);
}

/* An all-reduce whose two tensors are wrong in one way. */
static void tensors_refuse(struct arguments *arguments, const char *what, struct buffers *buffers,
                           int32_t reduce, int32_t status)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.reduce = reduce;
    spec.input = &buffers->tensors[0];
    spec.output = &buffers->tensors[1];
    arguments_refuse_as(arguments, what,
                        arguments->api->group->start(
                            arguments->group, device_specs(&spec, sizeof(spec), 1), sizeof(spec), 1,
                            NULL, &arguments->out.longs[0], arguments->err),
                        status);
    device_land();
    conform_expect(arguments->conform, buffers->output[0] == 0.0f && buffers->output[1] == 0.0f,
                   "%s: is refused, but its output was written to", what);
}

void group_tensors(struct conform *conform)
{
    static const int64_t apart[] = {2};
    struct buffers buffers;
    struct arguments a;

    arguments_open(&a, conform);
    buffers_init(&buffers, 4, 4);
    buffers.input[0] = 1.0f;
    buffers.tensors[0].dtype_lanes = 2;
    buffers.tensors[1].dtype_lanes = 2;
    tensors_refuse(&a, "all-reduce of elements with 2 lanes", &buffers, HSDP_REDUCE_SUM,
                   HSDP_ERR_UNSUPPORTED);
    buffers_init(&buffers, 4, 4);
    buffers.input[0] = 1.0f;
    buffers.tensors[0].dtype_bits = 31;
    buffers.tensors[1].dtype_bits = 31;
    tensors_refuse(&a, "all-reduce of floats of 31 bits", &buffers, HSDP_REDUCE_SUM,
                   HSDP_ERR_UNSUPPORTED);
    buffers_init(&buffers, 4, 4);
    buffers.input[0] = 1.0f;
    buffers.tensors[0].dtype_code = HSDP_DTYPE_INT;
    buffers.tensors[1].dtype_code = HSDP_DTYPE_INT;
    tensors_refuse(&a, "all-reduce: a mean of integers", &buffers, HSDP_REDUCE_MEAN,
                   HSDP_ERR_UNSUPPORTED);
    buffers_init(&buffers, 4, 4);
    buffers.tensors[0].strides = (int64_t *)apart;
    tensors_refuse(&a, "all-reduce of a tensor with strides of 2", &buffers, HSDP_REDUCE_SUM,
                   HSDP_ERR_UNSUPPORTED);
    buffers_init(&buffers, 4, 4);
    buffers.tensors[0].dtype_code = HSDP_DTYPE_INT;
    tensors_refuse(&a, "all-reduce of integers to floats", &buffers, HSDP_REDUCE_SUM,
                   HSDP_ERR_INVALID);
    buffers_init(&buffers, -4, -4);
    tensors_refuse(&a, "all-reduce of -4 elements", &buffers, HSDP_REDUCE_SUM, HSDP_ERR_INVALID);
    buffers_init(&buffers, 4, 4);
    buffers.tensors[0].n_dims = -1;
    tensors_refuse(&a, "all-reduce of a tensor of -1 dimensions", &buffers, HSDP_REDUCE_SUM,
                   HSDP_ERR_INVALID);
    buffers_init(&buffers, 4, 4);
    buffers.tensors[0].base = NULL;
    tensors_refuse(&a, "all-reduce of a tensor at NULL", &buffers, HSDP_REDUCE_SUM,
                   HSDP_ERR_INVALID);
    buffers_init(&buffers, 4, 4);
    buffers.tensors[0].shape = NULL;
    tensors_refuse(&a, "all-reduce of a tensor whose shape is NULL", &buffers, HSDP_REDUCE_SUM,
                   HSDP_ERR_INVALID);
    arguments_close(&a);
}

void group_before_connect(struct conform *conform)
{
    const struct hsdp_group_ops *ops = conform->api->group;
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_coll_spec barrier = HSDP_COLL_SPEC_INIT;
    struct arguments a;
    hsdp_group *group = NULL;

    arguments_open(&a, conform);
    spec.selector = "dp";
    barrier.kind = HSDP_COLL_BARRIER;
    arguments_accept(&a, ops->create(a.job, a.mesh, &spec, &group, a.err));
    arguments_refuse_as(
        &a, "group.start before group.connect",
        ops->start(group, &barrier, sizeof(barrier), 1, NULL, &a.out.longs[0], a.err),
        HSDP_ERR_STATE);
    arguments_accept(&a, ops->info(group, &a.out.group_info, a.err));
    conform_expect(conform, a.out.group_info.is_connected == 0 && a.out.group_info.n_ranks == 1,
                   "group.info: does not tell of one rank that is not connected");
    arguments_accept(&a, ops->connect(a.job, a.err));
    arguments_accept(&a,
                     ops->start(group, &barrier, sizeof(barrier), 1, NULL, &a.out.longs[0], a.err));
    ops->destroy(group);
    spec.selector = "";
    arguments_accept(&a, ops->create(a.job, a.mesh, &spec, &group, a.err));
    arguments_accept(&a, ops->info(group, &a.out.group_info, a.err));
    conform_expect(conform, strcmp(a.out.group_info.name, "self") == 0,
                   "group.info: the group of \"\" is called \"%s\", not \"self\"",
                   a.out.group_info.name);
    ops->destroy(group);
    arguments_close(&a);
}
