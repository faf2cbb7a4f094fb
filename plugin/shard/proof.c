/* SPDX-License-Identifier: Apache-2.0 */
/* The proof at wrap: what each class promises, which values are given, and who hears of a fault. */
#include "shard/proof.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "device/checksum.h"
#include "plan/selector.h"

/* -------------------------------------------------------------------------------- promises */

/* What a setting of a class says; the plan has checked it. */
static enum dtype dtype_of(const struct plan_class *class, const char *key)
{
    enum dtype dtype = DTYPE_FP32;

    dtype_parse(settings_text(&class->settings, key), &dtype);
    return dtype;
}

/* This and the next are written anew on purpose: what the engine counts with, mesh_span and
 * mesh_index, is what is to be proved. */
static uint32_t ranks_of(const struct hsdp_mesh *mesh, uint32_t dims)
{
    uint32_t n_ranks = 1;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        n_ranks *= (dims >> d & 1u) != 0 ? mesh->sizes[d] : 1;
    }
    return n_ranks;
}

static uint32_t index_of(const struct hsdp_mesh *mesh, uint32_t dims)
{
    uint32_t index = 0;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if ((dims >> d & 1u) != 0) {
            index = index * mesh->sizes[d] + mesh_coord(mesh, mesh->rank, d);
        }
    }
    return index;
}

static float divisor_of(const struct hsdp_mesh *mesh, const struct plan_class *class)
{
    if (strcmp(settings_text(&class->settings, "gradient_op"), "sum") == 0) {
        return 1.0f;
    }
    if (settings_text(&class->settings, "gradient_divisor") == NULL) {
        return (float)ranks_of(mesh, mesh->data_dims);
    }
    return (float)settings_integer(&class->settings, "gradient_divisor");
}

static int32_t promise_read(const struct hsdp_mesh *mesh, const struct plan_class *class,
                            struct promise *ret, struct hsdp_error *reterr)
{
    uint32_t replicated = 0;
    uint32_t reduced = 0;
    int32_t status;

    status = selector_dims(mesh, "model.create: verify: reduced_over", class->reduce_dims, &reduced,
                           reterr);
    if (status == HSDP_OK) {
        status = selector_dims(mesh, "model.create: verify: replicated_over",
                               class->replicated_dims, &replicated, reterr);
    }
    ret->replicated = replicated;
    ret->n_ranks = ranks_of(mesh, reduced);
    ret->index = index_of(mesh, reduced);
    ret->holder = index_of(mesh, ~replicated);
    ret->is_first = index_of(mesh, replicated) == 0;
    ret->divisor = divisor_of(mesh, class);
    ret->gradient_dtype = dtype_of(class, "gradient_dtype");
    ret->wire_dtype = dtype_of(class, "reduce_dtype");
    return status;
}

int32_t proof_init(struct proof *ret_proof, struct hsdp_model *model, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    uint32_t n_params = 1;
    int32_t status = HSDP_OK;

    memset(ret_proof, 0, sizeof(*ret_proof));
    ret_proof->model = model;
    ret_proof->only = PROOF_ALL_UNITS;
    for (uint32_t unit = 0; unit < plan->n_units; unit++) {
        n_params = plan->units[unit].n_params > n_params ? plan->units[unit].n_params : n_params;
    }
    ret_proof->promises = calloc(plan->n_classes + 1u, sizeof(*ret_proof->promises));
    ret_proof->segments = calloc(n_params, sizeof(*ret_proof->segments));
    ret_proof->units = calloc(plan->n_units + 1u, sizeof(*ret_proof->units));
    ret_proof->gathered = malloc((size_t)plan->mesh->world_ranks * JOB_EXCHANGE_MAX_BYTES);
    ret_proof->n_names = calloc(plan->n_params + 1u, sizeof(*ret_proof->n_names));
    ret_proof->stages = calloc(plan->mesh->world_ranks, sizeof(*ret_proof->stages));
    if (ret_proof->promises == NULL || ret_proof->segments == NULL || ret_proof->units == NULL ||
        ret_proof->gathered == NULL || ret_proof->stages == NULL || ret_proof->n_names == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory for verify=wrap");
    }
    for (uint32_t param = 0; param < plan->n_params; param++) {
        uint32_t storage = plan->params[param].storage;

        ret_proof->n_names[storage] += storage == param || plan_param_is_alias(plan, param);
    }
    for (uint32_t c = 0; status == HSDP_OK && c < plan->n_classes; c++) {
        status = promise_read(plan->mesh, &plan->classes[c], &ret_proof->promises[c], reterr);
    }
    return status;
}

void proof_fini(struct proof *proof)
{
    free(proof->promises);
    free(proof->segments);
    free(proof->units);
    free(proof->gathered);
    free(proof->stages);
    free(proof->n_names);
}

/* ---------------------------------------------------------------------------------- faults */

void proof_fault(struct proof *proof, uint32_t unit, const char *format, ...)
{
    const struct hsdp_plan *plan = proof->model->plan;
    const struct plan_unit *plan_unit = &plan->units[unit];
    struct fault *fault = &proof->fault;
    char found[300];
    va_list args;

    if (fault->status != HSDP_OK) {
        return;
    }
    va_start(args, format);
    text_format(found, sizeof(found), format, args);
    va_end(args);
    fault->status = HSDP_ERR_DEFECT;
    snprintf(fault->unit, sizeof(fault->unit), "%s", plan_unit->name);
    snprintf(fault->text, sizeof(fault->text), "class \"%.48s\", unit \"%.63s\"%s",
             plan->classes[plan_unit->class_index].name, plan_unit->name, found);
}

int32_t proof_agree(struct proof *proof, struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    struct fault theirs;
    int32_t status;

    status = job_exchange(model->job, "model.create", &proof->fault, sizeof(proof->fault),
                          proof->gathered, reterr);
    for (uint32_t rank = 0; status == HSDP_OK && rank < model->plan->mesh->world_ranks; rank++) {
        memcpy(&theirs, proof->gathered + rank * sizeof(theirs), sizeof(theirs));
        if (theirs.status != HSDP_OK) {
            status =
                error_set(reterr, theirs.status, "model.create: verify=wrap: rank %" PRIu32 ": %s",
                          rank, theirs.text);
            error_where(reterr, "model.create", NULL, theirs.unit);
        }
    }
    return status;
}

/* ---------------------------------------------------------------------------------- values */

uint64_t proof_elems(const struct plan_param *param)
{
    uint64_t n_elems = 1;

    for (uint32_t d = 0; d < param->n_dims; d++) {
        n_elems *= (uint64_t)param->shape[d];
    }
    return n_elems;
}

uint64_t proof_block(uint64_t n_elems, uint64_t first)
{
    return n_elems - first < PROOF_BLOCK_ELEMS ? n_elems - first : PROOF_BLOCK_ELEMS;
}

/*
 * Equal on all ranks that hold the same values of a parameter, and different on others. Stages that
 * hold copies number theirs differently, but call them the same.
 */
static uint64_t param_salt(const struct proof *proof, uint32_t param)
{
    const struct hsdp_plan *plan = proof->model->plan;
    const struct plan_param *p = &plan->params[param];
    const struct promise *promise = &proof->promises[plan->units[p->unit].class_index];
    uint32_t others;

    if (p->tie == PLAN_NO_TIE) {
        return checksum_mix((uint64_t)promise->holder << 32 | param);
    }
    others = ~(promise->replicated | plan->ties[p->tie].selector.dims);
    return checksum_mix(text_hash(TEXT_HASH_BASIS, p->name) + index_of(plan->mesh, others));
}

uint32_t proof_giver(const struct proof *proof, uint32_t param, uint64_t elem)
{
    const struct hsdp_plan *plan = proof->model->plan;
    uint32_t class = plan->units[plan->params[param].unit].class_index;

    return (uint32_t)((elem + (param_salt(proof, param) & 0xffff)) %
                      proof->promises[class].n_ranks);
}

/*
 * Numbers from 1 to 128 that tell one element from another, in 8 bits, so that every dtype holds
 * them. Where one rank gives them, with a little more that the wire must round off: 2^-10 is less
 * than bf16 holds and 2^-13 less than fp16 does, and fp32 holds both.
 */
void proof_values(const struct proof *proof, enum proof_round round, uint32_t param, uint64_t first,
                  uint64_t n, float *ret_values)
{
    const struct hsdp_plan *plan = proof->model->plan;
    uint32_t class = plan->units[plan->params[param].unit].class_index;
    const struct promise *promise = &proof->promises[class];
    float more = promise->wire_dtype == DTYPE_BF16 ? 0x1p-10f : 0x1p-13f;
    uint64_t salt = param_salt(proof, param) + (uint64_t)round;

    for (uint64_t i = 0; i < n; i++) {
        float value = (float)(1 + (checksum_mix(checksum_mix(salt) + first + i) & 127));

        if (round == PROOF_EVERY_RANK) {
            value = 1.0f;
        } else if (round == PROOF_ONE_RANK) {
            value += value * more;
        }
        ret_values[i] = value;
    }
}
