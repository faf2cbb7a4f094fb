/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of models: parameters are mapped twice, so that a host that writes to them faults. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model.h"

size_t page_round(size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return n_bytes == 0 ? page : (n_bytes + page - 1) / page * page;
}

static void *pages_map(size_t n_bytes)
{
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return base == MAP_FAILED ? NULL : base;
}

static bool params_map(struct buffer *buffer, size_t n_bytes, bool is_hidden)
{
    int fd = memfd_create("hsdp-reference", MFD_CLOEXEC);
    void *write = MAP_FAILED, *read = MAP_FAILED;

    if (fd < 0) {
        return false;
    }
    if (ftruncate(fd, (off_t)n_bytes) == 0) {
        write = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        read = mmap(NULL, n_bytes, is_hidden ? PROT_NONE : PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    buffer->params_bytes = n_bytes;
    buffer->params = write == MAP_FAILED ? NULL : write;
    buffer->params_read = read == MAP_FAILED ? NULL : read;
    return write != MAP_FAILED && read != MAP_FAILED;
}

static bool buffer_allocate(const hsdp_model *model, const struct unit *unit, struct buffer *buffer)
{
    uint64_t n = buffer->info.n_elems;
    size_t shard = (size_t)buffer->info.step_shard_elems;

    if (!params_map(buffer, page_round(n * dtype_bytes(unit->param_dtype)),
                    model->verifies_access)) {
        return false;
    }
    buffer->master = pages_map(page_round(shard * dtype_bytes(unit->master_dtype)));
    if (buffer->info.is_frozen != 0) {
        return buffer->master != NULL;
    }
    buffer->grads_bytes = page_round(n * dtype_bytes(unit->gradient_dtype));
    buffer->grads = pages_map(buffer->grads_bytes);
    buffer->step_grad = pages_map(page_round(shard * sizeof(float)));
    return buffer->master != NULL && buffer->grads != NULL && buffer->step_grad != NULL;
}

static bool packed_allocate(struct unit *unit)
{
    size_t n = unit->n_packed + 1;

    unit->local = calloc(n, sizeof(float));
    unit->rest = calloc(n, sizeof(float));
    unit->extra = calloc(n, sizeof(float));
    unit->handed = calloc(n, sizeof(float));
    unit->sum = calloc(n, sizeof(double));
    return unit->local != NULL && unit->rest != NULL && unit->extra != NULL &&
           unit->handed != NULL && unit->sum != NULL;
}

int32_t unit_allocate(const struct call *call, hsdp_model *model, uint32_t unit)
{
    struct unit *u = &model->units[unit];
    bool is_there = packed_allocate(u);

    for (uint32_t b = 0; b < u->n_buffers && is_there; b++) {
        is_there = buffer_allocate(model, u, &u->buffers[b]);
    }
    return is_there ? HSDP_OK : unit_refuse(call, model, unit, HSDP_ERR_NO_MEMORY, "has no memory");
}

int32_t param_allocate(const struct call *call, hsdp_model *model, uint32_t param)
{
    struct param *p = &model->params[param];
    const struct unit *unit = &model->units[p->info.unit];

    if (!p->is_alias || p->is_frozen) {
        return HSDP_OK;
    }
    p->alias_grads = pages_map(page_round(p->info.n_elems * dtype_bytes(unit->gradient_dtype)));
    return p->alias_grads != NULL
               ? HSDP_OK
               : unit_refuse(call, model, p->info.unit, HSDP_ERR_NO_MEMORY, "has no memory");
}

int32_t state_allocate(const struct call *call, hsdp_model *model, uint32_t state)
{
    for (uint32_t u = 0; u < model->n_units; u++) {
        for (uint32_t b = 0; b < model->units[u].n_buffers; b++) {
            struct buffer *buffer = &model->units[u].buffers[b];
            size_t n_bytes =
                page_round(buffer->info.step_shard_elems * dtype_bytes(model->states[state].dtype));

            if (buffer->info.is_frozen != 0 || buffer->states[state] != NULL) {
                continue; /* left from a try that failed */
            }
            buffer->states[state] = pages_map(n_bytes);
            if (buffer->states[state] == NULL) {
                return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory for state \"%s\"",
                                   call->name, model->states[state].name);
            }
        }
    }
    return HSDP_OK;
}

static void pages_unmap(void *base, size_t n_bytes)
{
    if (base != NULL) {
        munmap(base, n_bytes);
    }
}

static void buffer_free(const hsdp_model *model, const struct unit *unit, struct buffer *buffer)
{
    size_t shard = (size_t)buffer->info.step_shard_elems;

    pages_unmap(buffer->params, buffer->params_bytes);
    pages_unmap(buffer->params_read, buffer->params_bytes);
    pages_unmap(buffer->master, page_round(shard * dtype_bytes(unit->master_dtype)));
    pages_unmap(buffer->grads, buffer->grads_bytes);
    pages_unmap(buffer->step_grad, page_round(shard * sizeof(float)));
    for (uint32_t s = 0; s < MOST_STATES; s++) {
        pages_unmap(buffer->states[s], page_round(shard * dtype_bytes(model->states[s].dtype)));
    }
}

void unit_free(const hsdp_model *model, struct unit *unit)
{
    for (uint32_t b = 0; b < 2; b++) {
        buffer_free(model, unit, &unit->buffers[b]);
    }
    free(unit->local);
    free(unit->rest);
    free(unit->extra);
    free(unit->handed);
    free(unit->sum);
}

void param_free(const hsdp_model *model, struct param *param)
{
    const struct unit *unit = &model->units[param->info.unit];

    pages_unmap(param->alias_grads,
                page_round(param->info.n_elems * dtype_bytes(unit->gradient_dtype)));
}
