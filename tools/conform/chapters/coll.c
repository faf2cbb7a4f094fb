/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: a group from its making to its end, and its elements as numbers. */
#include "collectives.h"

void coll_open(struct conform *conform, struct coll *coll, const char *dims, const char *selector)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct host *host = &coll->host;

    numbers_join(conform, host, dims, "nccl_timeout_seconds=15");
    spec.selector = selector;
    host_must(host,
              host->api->group->create(host->job, host->mesh, &spec, &coll->group, &host->err));
    host_must(host, host->api->group->connect(host->job, &host->err));
    host_must(host, host->api->group->info(coll->group, &info, &host->err));
    coll->n_ranks = info.n_ranks;
    coll->index = info.index;
}

void coll_close(struct coll *coll)
{
    coll->host.api->group->destroy(coll->group);
    host_close(&coll->host);
}

struct hsdp_tensor *coll_vector(struct coll_vector *vector, void *base, uint64_t n_elems,
                                const struct coll_dtype *dtype)
{
    memset(vector, 0, sizeof(*vector));
    vector->n_elems = (int64_t)n_elems;
    vector->tensor.base = base;
    vector->tensor.device_type = HSDP_DEVICE_CPU;
    vector->tensor.n_dims = 1;
    vector->tensor.shape = &vector->n_elems;
    vector->tensor.dtype_code = dtype->code;
    vector->tensor.dtype_bits = dtype->bits;
    vector->tensor.dtype_lanes = 1;
    return &vector->tensor;
}

struct hsdp_coll_spec coll_spec(int32_t kind, int32_t reduce, const struct hsdp_tensor *input,
                                const struct hsdp_tensor *output)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    spec.kind = kind;
    spec.reduce = reduce;
    spec.input = input;
    spec.output = output;
    return spec;
}

/* The host reads and writes floats of up to 32 bits. */
static bool is_of_host(const struct coll_dtype *dtype)
{
    return dtype->is_float && dtype->bits <= 32;
}

static struct hsdp_tensor tensor_of_host(const void *base, const struct coll_dtype *dtype)
{
    return (struct hsdp_tensor){
        .base = (void *)(uintptr_t)base, .dtype_code = dtype->code, .dtype_bits = dtype->bits};
}

double coll_read(const void *base, uint64_t elem, const struct coll_dtype *dtype)
{
    const char *source = (const char *)base + elem * (dtype->bits / 8u);
    struct hsdp_tensor tensor = tensor_of_host(base, dtype);
    uint64_t bits = 0;
    double value;

    if (is_of_host(dtype)) {
        return host_read(&tensor, elem);
    }
    if (dtype->is_float) {
        memcpy(&value, source, sizeof(value));
        return value;
    }
    for (uint32_t i = 0; i < dtype->bits / 8u; i++) {
        bits |= (uint64_t)(uint8_t)source[i] << 8u * i;
    }
    if (dtype->code == HSDP_DTYPE_INT && dtype->bits < 64 && (bits >> (dtype->bits - 1u)) != 0) {
        bits |= UINT64_MAX << dtype->bits;
    }
    return dtype->code == HSDP_DTYPE_INT ? (double)(int64_t)bits : (double)bits;
}

void coll_write(void *base, uint64_t elem, const struct coll_dtype *dtype, double value)
{
    char *target = (char *)base + elem * (dtype->bits / 8u);
    struct hsdp_tensor tensor = tensor_of_host(base, dtype);
    uint64_t bits;

    if (is_of_host(dtype)) {
        host_write(&tensor, elem, value);
        return;
    }
    if (dtype->is_float) {
        memcpy(target, &value, sizeof(value));
        return;
    }
    bits = (uint64_t)(int64_t)value;
    for (uint32_t i = 0; i < dtype->bits / 8u; i++) {
        target[i] = (char)(uint8_t)(bits >> 8u * i);
    }
}

bool coll_run(struct coll *coll, const struct hsdp_coll_spec *specs, uint64_t n_specs)
{
    struct host *host = &coll->host;
    uint64_t ticket = 0;
    int32_t status;

    host_enter("group.start");
    specs = device_specs(specs, sizeof(*specs), n_specs);
    status = host->api->group->start(coll->group, specs, sizeof(*specs), n_specs, NULL, &ticket,
                                     &host->err);
    host_enter("");
    if (status == HSDP_ERR_UNSUPPORTED) {
        return false;
    }
    host_must(host, status);
    host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
    device_land();
    return true;
}
