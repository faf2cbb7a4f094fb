/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of steps, of loading, and of what a plan tells. */
#include <stdio.h>
#include <string.h>

#include "wrong.h"

/* ---------------------------------------------------------------------------------------- steps */

static int32_t begin_changed(hsdp_model *model, const struct hsdp_step_spec *spec,
                             uint64_t *ret_ticket, struct hsdp_error *reterr,
                             void (*change)(struct hsdp_step_spec *spec))
{
    struct hsdp_step_spec own;

    if (spec == NULL || spec->struct_size != sizeof(own)) {
        return wrong.real->step->begin(model, spec, ret_ticket, reterr);
    }
    own = *spec;
    change(&own);
    return wrong.real->step->begin(model, &own, ret_ticket, reterr);
}

static void clip_change(struct hsdp_step_spec *spec)
{
    spec->max_norm = 0;
}

static int32_t begin_unclipped(hsdp_model *model, const struct hsdp_step_spec *spec,
                               uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    return begin_changed(model, spec, ret_ticket, reterr, clip_change);
}

static void clips_not(void)
{
    wrong.step.begin = begin_unclipped;
}

static void weight_change(struct hsdp_step_spec *spec)
{
    spec->weight = 0;
    spec->has_weight = 0;
}

static int32_t begin_unweighted(hsdp_model *model, const struct hsdp_step_spec *spec,
                                uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    return begin_changed(model, spec, ret_ticket, reterr, weight_change);
}

static void weights_are_ignored(void)
{
    wrong.step.begin = begin_unweighted;
}

static void power_change(struct hsdp_step_spec *spec)
{
    spec->norm_p = 2;
}

static int32_t begin_squared(hsdp_model *model, const struct hsdp_step_spec *spec,
                             uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    return begin_changed(model, spec, ret_ticket, reterr, power_change);
}

static void norm_is_always_of_2(void)
{
    wrong.step.begin = begin_squared;
}

static void finite_change(struct hsdp_step_spec *spec)
{
    spec->error_if_nonfinite = 0;
}

static int32_t begin_lenient(hsdp_model *model, const struct hsdp_step_spec *spec,
                             uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    return begin_changed(model, spec, ret_ticket, reterr, finite_change);
}

static void nonfinite_is_let_through(void)
{
    wrong.step.begin = begin_lenient;
}

static int32_t discard_publishing(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    return wrong.real->step->end(model, stream, NULL, reterr);
}

static void discard_publishes(void)
{
    wrong.step.discard = discard_publishing;
}

/* -------------------------------------------------------------------------------------- loading */

/* What is changed of each import. */
static void (*import_change)(struct hsdp_tensor *full, uint32_t *source_rank);

static int32_t import_changed(hsdp_model *model, uint32_t param, int32_t flat,
                              const struct hsdp_tensor *full, uint32_t source_rank, void *stream,
                              struct hsdp_error *reterr)
{
    struct hsdp_tensor own;

    if (full != NULL) {
        own = *full;
        full = &own;
        import_change(&own, &source_rank);
    }
    return wrong.real->model->import_param(model, param, flat, full, source_rank, stream, reterr);
}

static void dtype_change(struct hsdp_tensor *full, uint32_t *source_rank)
{
    (void)source_rank;
    if (full->dtype_bits == 16) {
        full->dtype_code =
            full->dtype_code == HSDP_DTYPE_FLOAT ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT;
    }
}

static void import_takes_bf16_for_fp16(void)
{
    import_change = dtype_change;
    wrong.model.import_param = import_changed;
}

static void source_change(struct hsdp_tensor *full, uint32_t *source_rank)
{
    (void)full;
    *source_rank = HSDP_ALL_RANKS;
}

static void import_sends_nothing(void)
{
    import_change = source_change;
    wrong.model.import_param = import_changed;
}

static int32_t sync_nothing(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    (void)model;
    (void)stream;
    (void)reterr;
    return HSDP_OK;
}

static void sync_does_nothing(void)
{
    wrong.model.sync = sync_nothing;
}

static int32_t create_anew(hsdp_model *model, const char *name, const char *dtype,
                           uint32_t *ret_state, struct hsdp_error *reterr)
{
    static unsigned n_states;
    char own[64];

    if (name == NULL || strlen(name) == 0 || strlen(name) > 40) {
        return wrong.real->model->state_create(model, name, dtype, ret_state, reterr);
    }
    snprintf(own, sizeof(own), "%s %u", name, n_states++);
    return wrong.real->model->state_create(model, own, dtype, ret_state, reterr);
}

static void states_are_always_new(void)
{
    wrong.model.state_create = create_anew;
}

/* ---------------------------------------------------------------------------------------- plans */

static int32_t writer_self(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                           uint32_t *ret_writer_rank, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->plan->writer(plan, unit, shard, rank, ret_writer_rank, reterr);

    if (status == HSDP_OK) {
        *ret_writer_rank = rank;
    }
    return status;
}

static void every_replica_writes(void)
{
    wrong.plan.writer = writer_self;
}

static int32_t segments_overlapping(const hsdp_plan *plan, uint32_t unit, int32_t shard,
                                    uint32_t rank, struct hsdp_segment *ret_segments,
                                    uint64_t segment_bytes, uint64_t max_segments,
                                    uint64_t *ret_n_segments, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->plan->segments(
        plan, unit, shard, rank, ret_segments, segment_bytes, max_segments, ret_n_segments, reterr);

    if (status == HSDP_OK && *ret_n_segments > 0 && ret_segments != NULL) {
        ret_segments->n_elems++;
    }
    return status;
}

static void segments_overlap(void)
{
    wrong.plan.segments = segments_overlapping;
}

static int32_t members_swapped(const hsdp_mesh *mesh, const char *selector, uint32_t rank,
                               uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks,
                               struct hsdp_error *reterr)
{
    int32_t status =
        wrong.real->mesh->members(mesh, selector, rank, ret_ranks, max_ranks, ret_n_ranks, reterr);

    if (status == HSDP_OK && ret_ranks != NULL && *ret_n_ranks > 1) {
        uint32_t last = ret_ranks[*ret_n_ranks - 1];

        ret_ranks[*ret_n_ranks - 1] = ret_ranks[0];
        ret_ranks[0] = last;
    }
    return status;
}

static void ranks_are_out_of_order(void)
{
    wrong.mesh.members = members_swapped;
}

static int32_t class_undivided(const hsdp_plan *plan, uint32_t class_index,
                               struct hsdp_class_info *ret_info, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->plan->class_info(plan, class_index, ret_info, reterr);

    if (status == HSDP_OK) {
        ret_info->divisor = 1;
    }
    return status;
}

static void divisor_is_told_as_1(void)
{
    wrong.plan.class_info = class_undivided;
}

static int32_t class_reduced(const hsdp_plan *plan, uint32_t class_index,
                             struct hsdp_class_info *ret_info, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->plan->class_info(plan, class_index, ret_info, reterr);

    if (status == HSDP_OK) {
        ret_info->replicated_dims = ret_info->reduce_dims;
    }
    return status;
}

static void replicated_is_told_as_reduced(void)
{
    wrong.plan.class_info = class_reduced;
}

static int32_t param_untied(const hsdp_plan *plan, uint32_t param, struct hsdp_param_info *ret_info,
                            struct hsdp_error *reterr)
{
    int32_t status = wrong.real->plan->param_info(plan, param, ret_info, reterr);

    if (status == HSDP_OK) {
        ret_info->tied_over = "";
    }
    return status;
}

static void ties_are_not_told(void)
{
    wrong.plan.param_info = param_untied;
}

static int32_t param_uncut(const hsdp_plan *plan, uint32_t param, struct hsdp_param_info *ret_info,
                           struct hsdp_error *reterr)
{
    int32_t status = wrong.real->plan->param_info(plan, param, ret_info, reterr);

    if (status == HSDP_OK) {
        ret_info->block_elems = ret_info->n_elems;
    }
    return status;
}

static void blocks_are_told_whole(void)
{
    wrong.plan.param_info = param_uncut;
}

static const struct wrong_fault faults[] = {
    {"clips-not", "steps", "clip is max_norm by the norm, and at most 1", "max_norm is ignored",
     clips_not},
    {"weights-are-ignored", "steps", "weights are summed over data ranks, and count once",
     "weights are ignored", weights_are_ignored},
    {"norm-is-always-of-2", "steps", "norm_p of 1, 2, 2.5, 8 and HUGE_VAL", "norm_p is ignored",
     norm_is_always_of_2},
    {"nonfinite-is-let-through", "steps", "error_if_nonfinite refuses the step on all ranks",
     "error_if_nonfinite is ignored", nonfinite_is_let_through},
    {"discard-ends-the-step", "steps", "error_if_nonfinite refuses the step on all ranks",
     "discard does what end does", discard_publishes},
    {"import-takes-bf16-for-fp16", "loading", "import and export convert dtypes",
     "bf16 is read as fp16", import_takes_bf16_for_fp16},
    {"import-sends-nothing", "loading", "an import from one rank reaches all",
     "each rank imports what it has itself", import_sends_nothing},
    {"sync-does-nothing", "loading", "sync gives replicas the values of the first",
     "sync does nothing", sync_does_nothing},
    {"states-are-always-new", "loading", "the same name and dtype is the same state",
     "each state_create makes another state", states_are_always_new},
    {"every-replica-writes", "planning", "one rank writes each shard",
     "each replica saves its shard", every_replica_writes},
    {"segments-overlap", "planning", "segments cover each element exactly once",
     "the first segment is too long", segments_overlap},
    {"replicated-is-told-as-reduced", "planning", "each strategy cuts over what its row says",
     "replicated_dims is reduce_dims", replicated_is_told_as_reduced},
    {"ties-are-not-told", "planning", "blocks and ties are read back as they were given",
     "tied_over is always \"\"", ties_are_not_told},
    {"blocks-are-told-whole", "planning", "blocks and ties are read back as they were given",
     "block_elems is n_elems", blocks_are_told_whole},
    {"ranks-are-out-of-order", "planning", "members of dimensions are in mesh order",
     "members are not in mesh order", ranks_are_out_of_order},
    {"divisor-is-told-as-1", "planning", "the divisor is the mesh's data ranks unless given",
     "the divisor is told as 1", divisor_is_told_as_1},
};

const struct wrong_faults wrong_steps = WRONG_FAULTS(faults);
