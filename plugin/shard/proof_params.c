/* SPDX-License-Identifier: Apache-2.0 */
/* The proof at wrap: known masters, published and unsharded; then zeros again. */
#include <inttypes.h>

#include "base/error.h"
#include "device/space.h"
#include "hsdp/unit.h"
#include "shard/proof.h"
#include "shard/tensor.h"
#include "shard/unit.h"

/* Writes one segment in the dtype of the master; the values are exact in all of them. */
static int32_t segment_write(const struct proof *proof, const struct hsdp_segment *segment,
                             const struct flat_shard *shard, struct hsdp_error *reterr)
{
    float values[PROOF_BLOCK_ELEMS];
    int32_t status = HSDP_OK;

    for (uint64_t done = 0; status == HSDP_OK && done < segment->n_elems;
         done += PROOF_BLOCK_ELEMS) {
        uint64_t n = proof_block(segment->n_elems, done);

        proof_values(proof, PROOF_PARAMS, segment->param, segment->param_offset_elems + done, n,
                     values);
        status = space_store(proof->model->space,
                             shard->base +
                                 (segment->shard_offset_elems + done) * dtype_bytes(shard->dtype),
                             shard->dtype, values, n, reterr);
    }
    return status;
}

/* Writes what this rank owns of a unit, as its segments say; or zeros. */
static int32_t unit_write(struct proof *proof, uint32_t unit, bool is_zero,
                          struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    const struct plan_unit *plan_unit = &model->plan->units[unit];
    struct flat_shard shards[PLAN_MAX_BUFFERS];
    uint64_t n_segments = 0;
    int32_t status = HSDP_OK;

    for (uint32_t b = 0; status == HSDP_OK && b < plan_unit->n_buffers; b++) {
        status = model_flat_shard(model, unit, b, HSDP_FLAT_MASTER, &shards[b], reterr);
        if (status == HSDP_OK) {
            status =
                model->space->ops->zero(model->space, shards[b].base,
                                        shards[b].n_elems * dtype_bytes(shards[b].dtype), reterr);
        }
    }
    if (status != HSDP_OK || is_zero) {
        return status;
    }
    status =
        plan_segments(model->plan, unit, HSDP_SHARD_STEP, model->plan->mesh->rank, proof->segments,
                      sizeof(*proof->segments), plan_unit->n_params, &n_segments, reterr);
    for (uint64_t i = 0; status == HSDP_OK && i < n_segments; i++) {
        status =
            segment_write(proof, &proof->segments[i], &shards[proof->segments[i].buffer], reterr);
    }
    return status;
}

static int32_t masters_publish(struct proof *proof, bool is_zero, struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    int32_t status = model_edit_begin(model, NULL, reterr);

    for (uint32_t unit = 0; status == HSDP_OK && unit < model->plan->n_units; unit++) {
        status = unit_write(proof, unit, is_zero, reterr);
    }
    if (status == HSDP_OK) {
        status = model_precede(model, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = model_edit_end(model, NULL, reterr);
    }
    return status;
}

/* A whole parameter, unsharded, under one of its names. */
static int32_t param_compare(struct proof *proof, uint32_t name, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = proof->model->plan;
    const struct plan_param *p = &plan->params[name];
    enum dtype dtype = plan->classes[plan->units[p->unit].class_index].param_dtype;
    uint64_t n_elems = proof_elems(p);
    float expected[PROOF_BLOCK_ELEMS];
    float found[PROOF_BLOCK_ELEMS];
    struct hsdp_tensor view;
    int32_t status;

    status = model_param_view(proof->model, name, HSDP_VIEW_PARAM, &view, reterr);
    for (uint64_t first = 0; status == HSDP_OK && first < n_elems; first += PROOF_BLOCK_ELEMS) {
        uint64_t n = proof_block(n_elems, first);
        const uint8_t *base = tensor_base(&view);

        status = space_load(proof->model->space, found, base + first * dtype_bytes(dtype), dtype, n,
                            reterr);
        proof_values(proof, PROOF_PARAMS, p->storage, first, n, expected);
        for (uint64_t i = 0; status == HSDP_OK && i < n; i++) {
            if (!(found[i] == expected[i])) {
                proof_fault(proof, p->unit,
                            ", parameter \"%.64s\", element %" PRIu64
                            ": unsharded it is %.9g, expected %.9g, which its owner has published",
                            p->name, first + i, (double)found[i], (double)expected[i]);
                break;
            }
        }
    }
    return status;
}

static int32_t unit_compare(struct proof *proof, uint32_t unit, struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    const struct plan_unit *plan_unit = &model->plan->units[unit];
    uint64_t ticket = 0;
    int32_t status;

    status = unit_unshard(model, unit, HSDP_USE_FORWARD, NULL, &ticket, reterr);
    if (status == HSDP_OK) {
        status = job_ticket_order(model->job, ticket, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = model_follow(model, NULL, reterr);
    }
    for (uint32_t i = 0; status == HSDP_OK && i < plan_unit->n_params; i++) {
        status = param_compare(proof, plan_unit->params[i], reterr);
    }
    if (status == HSDP_OK) {
        status = model_precede(model, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = unit_release(model, unit, NULL, reterr);
    }
    return status;
}

int32_t proof_params(struct proof *proof, struct hsdp_error *reterr)
{
    int32_t status = masters_publish(proof, false, reterr);

    for (uint32_t unit = 0; status == HSDP_OK && unit < proof->model->plan->n_units; unit++) {
        status = unit_compare(proof, unit, reterr);
    }
    if (status == HSDP_OK) {
        status = masters_publish(proof, true, reterr);
    }
    if (status == HSDP_OK) {
        status = proof_agree(proof, reterr);
    }
    return status;
}
