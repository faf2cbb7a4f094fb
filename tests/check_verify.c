/* SPDX-License-Identifier: Apache-2.0 */
/* verify=wrap on engines that are broken in one place each: what it says, and on which ranks. */
#include <check.h>
#include <string.h>

#include "comm/shm_store.h"
#include "hsdp/unit.h"
#include "jobs.h"
#include "plan_fixture.h"
#include "ranks.h"
#include "shard/verify.h"
#include "suite.h"

enum { DENSE, EXPERT };     /* classes */
enum { UNIT_A, UNIT_MOE0 }; /* units, of one class each, with two parameters */

/* A broken engine is a model whose store, plan or table is changed behind its back. */
struct fault_row {
    const char *dims;
    const char *settings;
    void (*inject)(struct hsdp_model *model);
    const char *where; /* the sentence has both */
    const char *what;
};

/* ---------------------------------------------------------------------- counted wrongly often */

/* With cp = 1 experts are whole on every rank, and are still all-reduced over dp. */
static void outer_drop(struct hsdp_model *model)
{
    struct shm_class *class = &model->store->classes[EXPERT];
    struct shm_unit *u = &model->store->units[UNIT_MOE0];

    class->readers = &class->inner;
    class->outer.n_ranks = class->replicas.n_ranks = 1;
    class->replicas.ranks[0] = model->store->rank;
    u->part = (struct plan_part){0, u->sums.step_elems};
}

/* Each rank sums up its part of the step shard for itself alone. */
static void replica_lose(struct hsdp_model *model)
{
    struct shm_ranks *replicas = &model->store->classes[EXPERT].replicas;

    replicas->n_ranks = 1;
    replicas->ranks[0] = model->store->rank;
}

/* Nobody sums up the last part. */
static void part_lose(struct hsdp_model *model)
{
    struct shm_unit *u = &model->store->units[UNIT_MOE0];

    if (u->part.first_elem > 0) {
        u->part.n_elems = 0;
    }
}

static void outer_widen(struct hsdp_model *model)
{
    model->store->classes[EXPERT].outer = model->store->classes[DENSE].outer;
}

static void divisor_double(struct hsdp_model *model)
{
    model->plan->classes[EXPERT].divisor *= 2;
}

static void divisor_halve(struct hsdp_model *model)
{
    model->plan->classes[EXPERT].divisor /= 2;
}

static void rank_double(struct hsdp_model *model)
{
    struct shm_ranks *inner = &model->store->classes[EXPERT].inner;

    inner->ranks[1] = inner->ranks[0];
}

static void rank_lose(struct hsdp_model *model)
{
    model->store->classes[DENSE].inner.n_ranks = 1;
    model->store->classes[DENSE].inner.dim_sizes[0] = 1;
    model->store->classes[DENSE].inner.dim_sizes[1] = 1;
}

static void wire_ignore(struct hsdp_model *model)
{
    model->plan->classes[EXPERT].reduce_dtype = DTYPE_FP32;
}

static void drop_nothing(struct store *store)
{
    (void)store;
}

static struct transport_ops table; /* this rank's own, to change */

static void grads_keep(struct hsdp_model *model)
{
    table = *model->ops;
    table.step_grads_drop = drop_nothing;
    model->ops = &table;
}

/* -------------------------------------------------------------------------- in the wrong place */

static void slice_shift(struct hsdp_model *model)
{
    if (model->plan->mesh->rank == 1) {
        model->store->units[UNIT_A].slice_offset[HSDP_SHARD_STEP] -= 1;
    }
}

static void cut_swap(struct hsdp_model *model)
{
    uint32_t *dims = model->plan->classes[DENSE].place.slice_dims;
    uint32_t first = dims[0];

    dims[0] = dims[1];
    dims[1] = first;
}

static int32_t acquire_dirty(struct store *store, uint32_t unit, bool is_zeroed, void *stream,
                             struct hsdp_error *reterr)
{
    int32_t status = shm_transport.grads_acquire(store, unit, is_zeroed, stream, reterr);
    float *grads = shm_transport.grads(store, unit);

    grads[store->plan->units[unit].buffers[0].n_elems - 1] = 1.0f;
    return status;
}

static void padding_leave(struct hsdp_model *model)
{
    table = *model->ops;
    table.grads_acquire = acquire_dirty;
    model->ops = &table;
}

/* ------------------------------------------------------------------------------------ the norm */

static bool step_norm_double(const struct store *store, uint32_t unit, double p,
                             struct norm_sum *sum)
{
    bool has_norm = shm_transport.step_norm(store, unit, p, sum);

    if (has_norm && unit == UNIT_MOE0) {
        shm_transport.step_norm(store, unit, p, sum);
    }
    return has_norm;
}

/* The norm of an expert counts twice. */
static void norm_double(struct hsdp_model *model)
{
    table = *model->ops;
    table.step_norm = step_norm_double;
    model->ops = &table;
}

static void norm_double_late(struct hsdp_model *model)
{
    if (model->plan->mesh->rank >= 2) { /* the second stage */
        norm_double(model);
    }
}

static int32_t words_double(struct store *store, struct step_words *ret_all,
                            struct hsdp_error *reterr)
{
    int32_t status = shm_transport.step_words(store, ret_all, reterr);
    struct norm_sum once = ret_all->sum;

    norm_sum_merge(&ret_all->sum, &once);
    return status;
}

static void words_merge_twice(struct hsdp_model *model)
{
    table = *model->ops;
    table.step_words = words_double;
    model->ops = &table;
}

/* ------------------------------------------------------------------------------ the parameters */

static void copies_lose(struct hsdp_model *model)
{
    model->store->classes[DENSE].copies.n_ranks = 1;
}

static void views_swap(struct hsdp_model *model)
{
    void *view = model->store->units[UNIT_A].view[0];

    model->store->units[UNIT_A].view[0] = model->store->units[UNIT_MOE0].view[0];
    model->store->units[UNIT_MOE0].view[0] = view;
}

static void master_shift(struct hsdp_model *model)
{
    if (model->plan->mesh->rank == 0) {
        model->store->units[UNIT_A].master[0] = (float *)model->store->units[UNIT_A].master[0] + 1;
    }
}

static int32_t publish_trainable(struct store *store, enum published values, void *stream,
                                 struct hsdp_error *reterr)
{
    return shm_transport.publish(store, values == PUBLISHED_ALL ? PUBLISHED_TRAINABLE : values,
                                 stream, reterr);
}

static void frozen_forget(struct hsdp_model *model)
{
    table = *model->ops;
    table.publish = publish_trainable;
    model->ops = &table;
}

#define A    "class \"dense\", unit \"a\", parameter \"w\", element "
#define MOE0 "class \"expert\", unit \"moe0\", parameter \"x\", element "

static const struct fault_row faults[] = {
    {"dp=2,ep=2", "sharding_strategy=hsdp", outer_drop, MOE0,
     "gradients are counted 0.5 times, expected 1 (2 ranks gave 1 each, divided by 4: found 0.25, "
     "expected 0.5)"},
    {"dp=2,ep=2", "sharding_strategy=hsdp accumulation_scope=full", outer_drop, MOE0,
     "gradients are counted 0.5 times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=ddp gradient_op=sum", outer_drop, MOE0,
     "counted 0.5 times, expected 1 (2 ranks gave 1 each, divided by 1: found 1, expected 2)"},
    {"dp=2,ep=2", "sharding_strategy=ddp", replica_lose, MOE0,
     "gradients are counted 0 times, expected 1 (2 ranks gave 1 each, divided by 4: found 0, "
     "expected 0.5)"},
    {"dp=2,ep=2", "sharding_strategy=hsdp", part_lose, MOE0, "gradients are counted 0 times"},
    {"dp=2,ep=2", "sharding_strategy=ddp", outer_widen, MOE0,
     "gradients are counted 2 times, expected 1 (2 ranks gave 1 each, divided by 4: found 1, "
     "expected 0.5)"},
    {"dp=2,ep=2", "sharding_strategy=hsdp", divisor_double, MOE0, "counted 0.5 times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=zero2", divisor_halve, MOE0, "counted 2 times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=hfsdp gradient_divisor=6", divisor_halve, MOE0,
     "divided by 6: found 0.666666687, expected 0.333333343"},
    {"dp=2,ep=2", "sharding_strategy=zero2", rank_double, MOE0, " of 2, is counted "},
    {"dp=2,ep=2", "sharding_strategy=fsdp", rank_lose, A,
     "gradients are counted 0.25 times, expected 1 (4 ranks gave 1 each"},
    {"dp=2,ep=2", "sharding_strategy=fsdp reduce_dtype=bf16 gradient_dtype=fp32", wire_ignore, MOE0,
     "is counted 1.00097656 times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=ddp reduce_dtype=fp16 gradient_dtype=fp32", wire_ignore, MOE0,
     "is counted 1.00012207 times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=hfsdp reduce_dtype=bf16 gradient_dtype=fp16", wire_ignore,
     MOE0, "times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=fsdp", grads_keep, A, "the gradient of one rank, number"},
    {"dp=2,ep=2", "sharding_strategy=fsdp", slice_shift, A, "the gradient of one rank, number"},
    {"dp=2,ep=2", "sharding_strategy=fsdp", cut_swap, A, "the gradient of one rank, number"},
    {"dp=2,ep=2", "sharding_strategy=hsdp replicate_dims=", cut_swap, A,
     "the gradient of one rank, number"},
    {"dp=2,ep=2", "sharding_strategy=ddp", padding_leave, "class \"expert\", unit \"moe0\": ",
     "padding has a gradient: element 9215 of the step shard is 0.5, expected 0"},
    {"dp=2,ep=2", "sharding_strategy=hsdp", norm_double, "class \"expert\", unit \"moe0\": ",
     "the norm counts elements 2 times, expected 1 (every rank gave 1: found "},
    {"dp=2,ep=2", "sharding_strategy=ddp reduce_dtype=bf16", norm_double,
     "class \"expert\", unit \"moe0\": ", "the norm counts elements 2 times, expected 1"},
    {"PP=2,dp=2", "sharding_strategy=ddp", norm_double,
     "rank 0: class \"expert\", unit \"moe0\": ", "the norm counts elements 2 times, expected 1"},
    {"PP=2,dp=2", "sharding_strategy=hsdp", norm_double_late,
     "rank 2: class \"expert\", unit \"moe0\": ", "the norm counts elements 2 times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=fsdp", words_merge_twice,
     "class \"dense\", unit \"a\": ", "the norm counts elements 2 times, expected 1"},
    {"dp=2,ep=2", "sharding_strategy=zero1", copies_lose, A, "unsharded it is 0, expected "},
    {"dp=2,ep=2", "sharding_strategy=zero2 param_dtype=bf16", copies_lose, A,
     "unsharded it is 0, expected "},
    {"dp=2,ep=2", "sharding_strategy=hsdp", views_swap, A, "which its owner has published"},
    {"dp=2,ep=2", "sharding_strategy=fsdp param_dtype=bf16", master_shift, A,
     "which its owner has published"},
    {"dp=2,ep=2", "sharding_strategy=ddp param_dtype=bf16", frozen_forget,
     "class \"dense\", unit \"a\", parameter \"k\", element 0", "unsharded it is 0, expected "},
};

/* ------------------------------------------------------------------------------------- running */

static void param_add(struct hsdp_plan *plan, uint32_t unit, const char *name, const char *shape,
                      uint32_t flags)
{
    int64_t sizes[HSDP_PARAM_MAX_DIMS];
    struct hsdp_param_spec spec = fixture_param_spec(unit, name, shape, sizes);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t param;

    spec.flags = flags;
    status_assert(plan_add_param(plan, &spec, &param, &err), HSDP_OK, &err);
}

static struct hsdp_plan *experts_plan(const char *dims, uint32_t rank, const char *settings)
{
    struct hsdp_plan *plan = fixture_plan(dims, rank, settings);
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t index;

    fixture_class(plan, "dense", "");
    spec.name = "expert";
    spec.replicated_over = "dp";
    status_assert(plan_add_class(plan, &spec, &index, &err), HSDP_OK, &err);
    status_assert(plan_add_unit(plan, "a", DENSE, &index, &err), HSDP_OK, &err);
    status_assert(plan_add_unit(plan, "moe0", EXPERT, &index, &err), HSDP_OK, &err);
    param_add(plan, UNIT_A, "w", "[12288]", 0);
    param_add(plan, UNIT_A, "k", "[3]", HSDP_PARAM_FROZEN);
    param_add(plan, UNIT_MOE0, "x", "[9001]", 0);
    param_add(plan, UNIT_MOE0, "y", "[5,3]", 0);
    fixture_finish(plan);
    return plan;
}

/* What the ranks of a case share. */
struct hearing {
    const struct fault_row *row;
    char messages[8][512];
};

/* Broken, it is refused; the job goes on, and whole, it is proved. */
static void fault_rank(uint32_t rank, void *shared)
{
    struct hearing *hearing = shared;
    const struct fault_row *row = hearing->row;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_open("20");
    struct hsdp_model *model = NULL;

    for (int is_whole = 0; is_whole <= 1; is_whole++) {
        struct hsdp_plan *plan = experts_plan(row->dims, rank, row->settings);

        status_assert(model_create(job, plan, &model, &err), HSDP_OK, &err);
        if (is_whole == 0) {
            row->inject(model);
        }
        status_assert(verify_wrap(model, &err), is_whole == 0 ? HSDP_ERR_DEFECT : HSDP_OK, &err);
        model_destroy(model);
        plan_destroy(plan);
    }
    ck_assert_str_eq(err.operation, "model.create");
    ck_assert_uint_eq(err.unit[0] != '\0', 1);
    memcpy(hearing->messages[rank], err.message, sizeof(err.message));
    test_job_end(job);
}

START_TEST(wrap_of_a_broken_engine_names_class_unit_and_both_factors)
{
    struct hearing *hearing = ranks_memory(sizeof(*hearing));
    const char *message = hearing->messages[0];

    hearing->row = &faults[_i];
    ranks_run(4, RANKS_LIMIT_MS, fault_rank, hearing);
    ck_assert_msg(strstr(message, faults[_i].where) != NULL, "\"%s\" does not say \"%s\"", message,
                  faults[_i].where);
    ck_assert_msg(strstr(message, faults[_i].what) != NULL, "\"%s\" does not say \"%s\"", message,
                  faults[_i].what);
    for (int rank = 1; rank < 4; rank++) {
        ck_assert_str_eq(hearing->messages[rank], message);
    }
}
END_TEST

/* A plan that was changed behind what its class says: creation fails, and only that. */
static void create_rank(uint32_t rank, void *shared)
{
    struct hsdp_plan *plan = experts_plan("dp=2,ep=2", rank, "sharding_strategy=hsdp verify=wrap");
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_open("20");
    struct hsdp_model *model = NULL;

    (void)shared;
    plan->classes[EXPERT].divisor = 2;
    status_assert(model_create(job, plan, &model, &err), HSDP_ERR_DEFECT, &err);
    ck_assert_ptr_null(model);
    ck_assert_str_eq(err.unit, "moe0");
    status_assert(job_status(job, &err), HSDP_OK, &err);
    plan->classes[EXPERT].divisor = 4;
    status_assert(model_create(job, plan, &model, &err), HSDP_OK, &err);
    model_destroy(model);
    plan_destroy(plan);
    test_job_end(job);
}

START_TEST(create_that_is_refused_leaves_the_job_as_it_was)
{
    ranks_run(4, RANKS_LIMIT_MS, create_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("verify");
    TCase *tcase = tcase_create("verify");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, wrap_of_a_broken_engine_names_class_unit_and_both_factors, 0,
                        N_OF(faults));
    tcase_add_test(tcase, create_that_is_refused_leaves_the_job_as_it_was);
    suite_add_tcase(suite, tcase);
    return suite;
}
