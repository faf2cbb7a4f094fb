/* SPDX-License-Identifier: Apache-2.0 */
/* The proof at wrap: known gradients through slots, wire, reduction, divisor and norm. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "device/cast.h"
#include "device/fpmode.h"
#include "device/space.h"
#include "hsdp/unit.h"
#include "shard/proof.h"
#include "shard/step.h"
#include "shard/tensor.h"
#include "shard/unit.h"

static const struct promise *promise_of(const struct proof *proof, uint32_t unit)
{
    return &proof->promises[proof->model->plan->units[unit].class_index];
}

static bool takes_part(const struct proof *proof, uint32_t unit)
{
    return proof->only == PROOF_ALL_UNITS || proof->only == unit;
}

/* Whether other ranks or units must give the same for a unit's parameter to come out right. */
static bool is_shared(const struct proof *proof, uint32_t param)
{
    return proof->model->plan->params[param].tie != PLAN_NO_TIE || proof->n_names[param] > 1;
}

/* How many ones the ranks of all stages give for each element of a storage: of one unit alone,
 * none where others would have to take part. */
static float names_given(const struct proof *proof, uint32_t param)
{
    uint32_t tie = proof->model->plan->params[param].tie;

    if (proof->only != PROOF_ALL_UNITS && is_shared(proof, param)) {
        return 0.0f;
    }
    return tie != PLAN_NO_TIE ? 1.0f : (float)proof->n_names[param];
}

static float holders_given(const struct proof *proof, enum proof_round round, uint32_t param)
{
    uint32_t tie = proof->model->plan->params[param].tie;

    return tie == PLAN_NO_TIE || round == PROOF_ONE_RANK
               ? 1.0f
               : (float)proof->model->plan->ties[tie].n_holders;
}

/* ------------------------------------------------------------------------------ the pass */

#define SPOILT_BYTES 16384u

/* What was in a slot before must not be seen: nothing but NaN, until it is acquired. With
 * verify=access it cannot be written then. */
static int32_t slots_spoil(struct proof *proof, struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    uint8_t spoilt[SPOILT_BYTES];
    int32_t status = model_follow(model, NULL, reterr);

    memset(spoilt, 0xff, sizeof(spoilt));
    for (uint32_t unit = 0; unit < model->plan->n_units && !model->plan->verify.is_access; unit++) {
        uint8_t *slot = model->ops->grads(model->store, unit);
        uint64_t n_bytes = plan_grad_slot_bytes(model->plan, unit);

        for (uint64_t at = 0; status == HSDP_OK && at < n_bytes; at += SPOILT_BYTES) {
            uint64_t n = n_bytes - at < SPOILT_BYTES ? n_bytes - at : SPOILT_BYTES;

            status = model->space->ops->write(model->space, slot + at, spoilt, n, reterr);
        }
    }
    return status == HSDP_OK ? model_precede(model, NULL, reterr) : status;
}

/* Whether this rank gives an element under a name, in the second round. */
static bool gives_alone(const struct proof *proof, uint32_t name, uint64_t elem)
{
    const struct plan_param *p = &proof->model->plan->params[name];

    return p->storage == name && !plan_param_is_copy(proof->model->plan, name) &&
           proof_giver(proof, name, elem) == promise_of(proof, p->unit)->index;
}

/* Where one rank gives an element, the others give zeros: each in its turn, all in every shard.
 * Where every rank does, zeros come from names whose storage counts none. */
static void others_zero(const struct proof *proof, enum proof_round round, uint32_t name,
                        uint64_t first, uint64_t n, float *values)
{
    uint32_t storage = proof->model->plan->params[name].storage;
    bool is_given = names_given(proof, storage) > 0.0f &&
                    (name == storage || proof->model->plan->params[storage].tie == PLAN_NO_TIE);

    for (uint64_t i = 0; i < n; i++) {
        if (round == PROOF_ONE_RANK ? !gives_alone(proof, name, first + i) : !is_given) {
            values[i] = 0.0f;
        }
    }
}

/* Writes this rank's gradient of a parameter under one of its names, as a host does. */
static int32_t param_fill(struct proof *proof, enum proof_round round, uint32_t name,
                          struct hsdp_error *reterr)
{
    const struct plan_param *p = &proof->model->plan->params[name];
    const struct promise *promise = promise_of(proof, p->unit);
    uint64_t n_elems = proof_elems(p);
    struct hsdp_tensor view;
    float values[PROOF_BLOCK_ELEMS];
    int32_t status;

    status = model_param_view(proof->model, name, HSDP_VIEW_GRAD, &view, reterr);
    for (uint64_t first = 0; status == HSDP_OK && first < n_elems; first += PROOF_BLOCK_ELEMS) {
        uint64_t n = proof_block(n_elems, first);
        uint8_t *target = tensor_base(&view);

        proof_values(proof, round, p->storage, first, n, values);
        others_zero(proof, round, name, first, n, values);
        status =
            space_store(proof->model->space, target + first * dtype_bytes(promise->gradient_dtype),
                        promise->gradient_dtype, values, n, reterr);
    }
    return status;
}

static int32_t unit_give(struct proof *proof, enum proof_round round, uint64_t pass, uint32_t unit,
                         struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    const struct plan_unit *plan_unit = &model->plan->units[unit];
    int32_t use = round == PROOF_EVERY_RANK ? HSDP_USE_BACKWARD : HSDP_USE_BACKWARD_SET;
    uint64_t ticket;
    int32_t status;

    status = unit_unshard(model, unit, use, NULL, &ticket, reterr);
    if (status == HSDP_OK) {
        status = model_follow(model, NULL, reterr);
    }
    for (uint32_t i = 0; status == HSDP_OK && i < plan_unit->n_params; i++) {
        uint32_t name = plan_unit->params[i];
        const struct plan_param *param = &model->plan->params[name];
        bool has_view = param->storage == name || plan_param_is_alias(model->plan, name);

        if (has_view && (param->flags & HSDP_PARAM_FROZEN) == 0) {
            status = param_fill(proof, round, name, reterr);
        }
    }
    if (status == HSDP_OK) {
        status = model_precede(model, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = unit_reduce(model, pass, unit, NULL, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = unit_release(model, unit, NULL, reterr);
    }
    return status;
}

/* All with gradients, in an order in which those of names join those of their storages. */
static int32_t units_list(struct proof *proof, uint64_t *ret_n_units, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = proof->model->plan;
    int32_t status = plan_pass_order(plan, proof->units, reterr);

    *ret_n_units = 0;
    for (uint32_t i = 0; status == HSDP_OK && i < plan->n_units; i++) {
        if (plan_grad_elems(plan, proof->units[i]) != 0) {
            proof->units[(*ret_n_units)++] = proof->units[i];
        }
    }
    return status;
}

/* A pass of scope full: allowed whatever is planned. Units that take no part are skipped. */
static int32_t pass_run(struct proof *proof, enum proof_round round, struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    uint64_t n_units = 0;
    uint64_t pass = 0;
    int32_t status = units_list(proof, &n_units, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    status = slots_spoil(proof, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = unit_backward_begin(model, proof->units, n_units, HSDP_SCOPE_FULL, &pass, reterr);
    for (uint64_t i = 0; status == HSDP_OK && i < n_units; i++) {
        status = takes_part(proof, proof->units[i])
                     ? unit_give(proof, round, pass, proof->units[i], reterr)
                     : unit_skip(model, pass, proof->units[i], NULL, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = unit_backward_end(model, pass, NULL, NULL, reterr);
    }
    return status;
}

/* --------------------------------------------------------------------------- the gradients */

/* What the reduced and divided gradient must be. Sums of ones, and one number plus zeros, are
 * exact, so it has no order. */
static void expected_fill(const struct proof *proof, enum proof_round round, uint32_t param,
                          uint64_t first, uint64_t n, float *ret_values)
{
    const struct promise *promise = promise_of(proof, proof->model->plan->params[param].unit);
    float n_names = round == PROOF_EVERY_RANK ? names_given(proof, param) : 1.0f;
    float n_given = (round == PROOF_EVERY_RANK ? (float)promise->n_ranks : 1.0f) *
                    holders_given(proof, round, param);

    proof_values(proof, round, param, first, n, ret_values);
    cast_round(ret_values, promise->gradient_dtype, n);
    for (uint64_t i = 0; i < n; i++) {
        ret_values[i] *= n_names;
    }
    cast_round(ret_values, promise->wire_dtype, n);
    for (uint64_t i = 0; i < n; i++) {
        ret_values[i] = ret_values[i] * n_given / promise->divisor;
    }
}

static void grad_fault(struct proof *proof, enum proof_round round, uint32_t param, uint64_t elem,
                       float found, float expected)
{
    const struct plan_param *p = &proof->model->plan->params[param];
    const struct promise *promise = promise_of(proof, p->unit);
    float n_ones =
        (float)promise->n_ranks * names_given(proof, param) * holders_given(proof, round, param);
    double times = (double)found / (double)expected;

    if (round == PROOF_EVERY_RANK) {
        proof_fault(proof, p->unit,
                    ", parameter \"%.64s\", element %" PRIu64 ": gradients are counted %.9g times, "
                    "expected 1 (%.9g %s gave 1 each, divided by %.9g: found %.9g, expected "
                    "%.9g)",
                    p->name, elem, times, (double)n_ones,
                    is_shared(proof, param) ? "ranks and names" : "ranks", (double)promise->divisor,
                    (double)found, (double)expected);
    } else {
        proof_fault(proof, p->unit,
                    ", parameter \"%.64s\", element %" PRIu64 ": the gradient of one rank, number "
                    "%" PRIu32 " of %" PRIu32 ", is counted %.9g times, expected 1 (divided by "
                    "%.9g: found %.9g, expected %.9g)",
                    p->name, elem, proof_giver(proof, param, elem), promise->n_ranks, times,
                    (double)promise->divisor, (double)found, (double)expected);
    }
}

static int32_t segment_compare(struct proof *proof, enum proof_round round,
                               const struct hsdp_segment *segment, const float *grads,
                               struct hsdp_error *reterr)
{
    uint64_t elem = segment->param_offset_elems;
    float expected[PROOF_BLOCK_ELEMS];
    float found[PROOF_BLOCK_ELEMS];
    int32_t status = HSDP_OK;

    for (uint64_t first = 0; status == HSDP_OK && first < segment->n_elems;
         first += PROOF_BLOCK_ELEMS) {
        uint64_t n = proof_block(segment->n_elems, first);

        status = space_load(proof->model->space, found, grads + segment->shard_offset_elems + first,
                            DTYPE_FP32, n, reterr);
        expected_fill(proof, round, segment->param, elem + first, n, expected);
        for (uint64_t i = 0; i < n && status == HSDP_OK && proof->fault.status == HSDP_OK; i++) {
            if (!(found[i] == expected[i])) { /* NaN is a fault as well */
                grad_fault(proof, round, segment->param, elem + first + i, found[i], expected[i]);
            }
        }
    }
    return status;
}

/* Elements of the step shard that are no parameter's. */
struct padding {
    uint32_t unit;
    uint64_t from;
    uint64_t to;
};

static int32_t padding_compare(struct proof *proof, const struct padding *padding,
                               const float *grads, struct hsdp_error *reterr)
{
    float found[PROOF_BLOCK_ELEMS];
    int32_t status = HSDP_OK;

    for (uint64_t at = padding->from; status == HSDP_OK && at < padding->to;
         at += PROOF_BLOCK_ELEMS) {
        uint64_t n = proof_block(padding->to, at);

        status = space_load(proof->model->space, found, grads + at, DTYPE_FP32, n, reterr);
        for (uint64_t i = 0; i < n && status == HSDP_OK && proof->fault.status == HSDP_OK; i++) {
            if (!(found[i] == 0.0f)) {
                proof_fault(proof, padding->unit,
                            ": padding has a gradient: element %" PRIu64
                            " of the step shard is %.9g, expected 0",
                            at + i, (double)found[i]);
            }
        }
    }
    return status;
}

/* This rank's step shard of a unit, element by element, and what lies between them. */
static int32_t unit_compare(struct proof *proof, enum proof_round round, uint32_t unit,
                            struct hsdp_error *reterr)
{
    struct hsdp_model *model = proof->model;
    struct padding padding = {.unit = unit};
    struct flat_shard shard;
    uint64_t n_segments = 0;
    int32_t status;

    status = model_flat_shard(model, unit, 0, HSDP_FLAT_GRAD, &shard, reterr);
    if (status == HSDP_OK) {
        status = plan_segments(model->plan, unit, HSDP_SHARD_STEP, model->plan->mesh->rank,
                               proof->segments, sizeof(*proof->segments),
                               model->plan->units[unit].n_params, &n_segments, reterr);
    }
    for (uint64_t i = 0; status == HSDP_OK && i < n_segments; i++) {
        const struct hsdp_segment *segment = &proof->segments[i];

        if (segment->buffer != 0) { /* not the trainable one */
            continue;
        }
        padding.to = segment->shard_offset_elems;
        status = padding_compare(proof, &padding, (const float *)shard.base, reterr);
        if (status == HSDP_OK) {
            status = segment_compare(proof, round, segment, (const float *)shard.base, reterr);
        }
        padding.from = segment->shard_offset_elems + segment->n_elems;
    }
    padding.to = shard.n_elems;
    return status == HSDP_OK ? padding_compare(proof, &padding, (const float *)shard.base, reterr)
                             : status;
}

/* -------------------------------------------------------------------------------- the norm */

/* Adds what a unit's elements, each once, add to the squared norm. */
static void unit_norm_add(const struct proof *proof, enum proof_round round, uint32_t unit,
                          struct norm_sum *sum)
{
    const struct plan_unit *plan_unit = &proof->model->plan->units[unit];
    float values[PROOF_BLOCK_ELEMS];

    for (uint32_t i = 0; i < plan_unit->n_params; i++) {
        const struct plan_param *param = &proof->model->plan->params[plan_unit->params[i]];
        uint64_t n_elems = proof_elems(param);

        if (param->storage != plan_unit->params[i] || (param->flags & HSDP_PARAM_FROZEN) != 0 ||
            plan_param_is_copy(proof->model->plan, plan_unit->params[i])) {
            continue; /* counted elsewhere, or not at all */
        }
        for (uint64_t first = 0; first < n_elems; first += PROOF_BLOCK_ELEMS) {
            uint64_t n = proof_block(n_elems, first);

            expected_fill(proof, round, plan_unit->params[i], first, n, values);
            norm_sum_add(sum, values, n, 2);
        }
    }
}

/* Of all ranks that hold equal values the first counts them, whole, whoever owns the slices. */
static int32_t norm_expect(struct proof *proof, enum proof_round round, double *ret_norm,
                           struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = proof->model->plan;
    struct fp_mode mode = fp_mode_enter();
    struct norm_sum theirs;
    struct norm_sum sum;
    int32_t status;

    memset(&sum, 0, sizeof(sum));
    for (uint32_t unit = 0; unit < plan->n_units; unit++) {
        if (takes_part(proof, unit) && promise_of(proof, unit)->is_first) {
            unit_norm_add(proof, round, unit, &sum);
        }
    }
    status =
        job_exchange(proof->model->job, "model.create", &sum, sizeof(sum), proof->gathered, reterr);
    memset(&sum, 0, sizeof(sum));
    for (uint32_t rank = 0; status == HSDP_OK && rank < plan->mesh->world_ranks; rank++) {
        memcpy(&theirs, proof->gathered + rank * sizeof(theirs), sizeof(theirs));
        norm_sum_merge(&sum, &theirs);
    }
    *ret_norm = norm_sum_value(&sum, 2);
    fp_mode_leave(mode);
    return status;
}

/* A pass and its step, which is discarded; compares gradients, and tells both norms. */
static int32_t round_run(struct proof *proof, enum proof_round round, double *ret_found,
                         double *ret_expected, struct hsdp_error *reterr)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    struct hsdp_model *model = proof->model;
    int32_t status;

    status = pass_run(proof, round, reterr);
    if (status == HSDP_OK) {
        status = step_begin(model, &spec, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = step_result(model, &info, reterr);
    }
    for (uint32_t unit = 0; status == HSDP_OK && unit < model->plan->n_units; unit++) {
        if (takes_part(proof, unit) && plan_is_trainable(model->plan, unit)) {
            status = unit_compare(proof, round, unit, reterr);
        }
    }
    if (status == HSDP_OK) {
        status = step_discard(model, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = norm_expect(proof, round, ret_expected, reterr);
    }
    *ret_found = info.norm;
    return status;
}

/* ----------------------------------------------------------------------- whose norm is wrong */

/* One unit alone; a wrong norm is then that unit's. */
static int32_t unit_blame(struct proof *proof, uint32_t unit, struct hsdp_error *reterr)
{
    double found = 0.0;
    double expected = 0.0;
    int32_t status;

    proof->only = unit;
    status = round_run(proof, PROOF_EVERY_RANK, &found, &expected, reterr);
    if (status == HSDP_OK && found != expected && unit != PROOF_NO_UNIT) {
        proof_fault(proof, unit,
                    ": the norm counts elements %.9g times, expected 1 (every rank gave 1: found "
                    "%.17g, expected %.17g)",
                    found / expected * (found / expected), found, expected);
    }
    if (status == HSDP_OK) {
        status = proof_agree(proof, reterr);
    }
    return status;
}

/* Unit by unit, stage by stage, until one is found; in steps that all ranks take part in. */
static int32_t norm_blame(struct proof *proof, double found, double expected,
                          struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = proof->model->plan;
    struct stage mine = {.n_units = plan->n_units};
    int32_t status;

    mine.first_rank = mesh_peer(plan->mesh, plan_shared_dims(plan), plan->mesh->rank, 0);
    status =
        job_exchange(proof->model->job, "model.create", &mine, sizeof(mine), proof->stages, reterr);
    for (uint32_t rank = 0; status == HSDP_OK && rank < plan->mesh->world_ranks; rank++) {
        struct stage stage = proof->stages[rank];

        for (uint32_t unit = 0;
             status == HSDP_OK && stage.first_rank == rank && unit < stage.n_units; unit++) {
            status = unit_blame(proof, mine.first_rank == rank ? unit : PROOF_NO_UNIT, reterr);
        }
    }
    if (status != HSDP_OK) {
        return status;
    }
    return error_set(reterr, HSDP_ERR_DEFECT,
                     "model.create: verify=wrap: the norm of all units is %.17g, expected %.17g; "
                     "that of each unit alone is right",
                     found, expected);
}

int32_t proof_grads(struct proof *proof, enum proof_round round, struct hsdp_error *reterr)
{
    double found = 0.0;
    double expected = 0.0;
    int32_t status;

    status = round_run(proof, round, &found, &expected, reterr);
    if (status == HSDP_OK) {
        status = proof_agree(proof, reterr);
    }
    if (status == HSDP_OK && found != expected) { /* the same two on every rank */
        status = norm_blame(proof, found, expected, reterr);
    }
    return status;
}
