/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of views: addresses, shapes, contents. */
#include <string.h>

#include "wrong.h"

static uint32_t n_steps;

static int32_t end_counted(hsdp_model *model, void *stream, uint64_t *ret_ticket,
                           struct hsdp_error *reterr)
{
    n_steps++;
    return wrong.real->step->end(model, stream, ret_ticket, reterr);
}

static int32_t view_moving(hsdp_model *model, uint32_t param, int32_t view,
                           struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->model->param_view(model, param, view, ret_view, reterr);

    if (status == HSDP_OK) {
        ret_view->byte_offset += 64u * (n_steps % 2);
    }
    return status;
}

static void view_moves(void)
{
    wrong.step.end = end_counted;
    wrong.model.param_view = view_moving;
}

static int32_t view_unstrided(hsdp_model *model, uint32_t param, int32_t view,
                              struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->model->param_view(model, param, view, ret_view, reterr);

    if (status == HSDP_OK) {
        ret_view->strides = NULL;
    }
    return status;
}

static void strides_are_null(void)
{
    wrong.model.param_view = view_unstrided;
}

static int32_t flat_short(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                          struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    static int64_t shape[1];
    int32_t status = wrong.real->model->flat_view(model, unit, buffer, flat, ret_view, reterr);

    if (status == HSDP_OK) {
        shape[0] = ret_view->shape[0] - 1;
        ret_view->shape = shape;
    }
    return status;
}

static void flat_is_short(void)
{
    wrong.model.flat_view = flat_short;
}

static int32_t unshard_unfilled(hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                                uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    return wrong.real->unit->unshard(model, unit,
                                     use == HSDP_USE_BACKWARD ? HSDP_USE_BACKWARD_SET : use, stream,
                                     ret_ticket, reterr);
}

static void gradient_is_not_zeroed(void)
{
    wrong.unit.unshard = unshard_unfilled;
}

/* The last element of a shard, which is mostly padding. */
static int32_t flat_dirty(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                          struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->model->flat_view(model, unit, buffer, flat, ret_view, reterr);

    if (status == HSDP_OK && flat == HSDP_FLAT_GRAD && ret_view->shape[0] > 0) {
        float *elems = (float *)((char *)ret_view->base + ret_view->byte_offset);

        elems[ret_view->shape[0] - 1] = 1.0f;
    }
    return status;
}

static void padding_is_not_zero(void)
{
    wrong.model.flat_view = flat_dirty;
}

/* An edit that nobody has made. */
static int32_t create_filled(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model,
                             struct hsdp_error *reterr)
{
    int32_t status = wrong.real->model->create(job, plan, ret_model, reterr);
    struct hsdp_tensor view;

    if (status == HSDP_OK && wrong.real->model->edit_begin(*ret_model, NULL, NULL) == HSDP_OK) {
        if (wrong.real->model->flat_view(*ret_model, 1, 0, HSDP_FLAT_MASTER, &view, NULL) ==
            HSDP_OK) {
            *(float *)((char *)view.base + view.byte_offset) = 1.0f;
        }
        wrong.real->model->edit_end(*ret_model, NULL, NULL);
    }
    return status;
}

static void values_begin_otherwise(void)
{
    wrong.model.create = create_filled;
}

/* Every use is the only one. */
static uint32_t n_uses[2];

static int32_t unshard_once(hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                            uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    if (use == HSDP_USE_FORWARD && unit < 2 && n_uses[unit]++ > 0) {
        if (ret_ticket != NULL) {
            *ret_ticket = 0;
        }
        return HSDP_OK;
    }
    return wrong.real->unit->unshard(model, unit, use, stream, ret_ticket, reterr);
}

static int32_t release_once(hsdp_model *model, uint32_t unit, void *stream,
                            struct hsdp_error *reterr)
{
    if (unit < 2) {
        n_uses[unit] = 0;
    }
    return wrong.real->unit->release(model, unit, stream, reterr);
}

static void uses_are_not_counted(void)
{
    wrong.unit.unshard = unshard_once;
    wrong.unit.release = release_once;
}

/* bf16 is told as fp16. */
static int32_t view_other(hsdp_model *model, uint32_t param, int32_t view,
                          struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->model->param_view(model, param, view, ret_view, reterr);

    if (status == HSDP_OK && ret_view->dtype_code == HSDP_DTYPE_BFLOAT) {
        ret_view->dtype_code = HSDP_DTYPE_FLOAT;
    }
    return status;
}

static void dtype_is_another(void)
{
    wrong.model.param_view = view_other;
}

/* A step that is ended is not published. */
static int32_t end_unpublished(hsdp_model *model, void *stream, uint64_t *ret_ticket,
                               struct hsdp_error *reterr)
{
    if (ret_ticket != NULL) {
        *ret_ticket = 0;
    }
    return wrong.real->step->discard(model, stream, reterr);
}

static void step_is_not_published(void)
{
    wrong.step.end = end_unpublished;
}

/* Access is verified by word only. */
static int32_t plan_unverified(const hsdp_mesh *mesh, const struct hsdp_settings *settings,
                               hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    struct hsdp_settings none = {.n_settings = 0};

    if (settings != NULL && settings->n_settings > 0 && strcmp(settings->keys[0], "verify") == 0) {
        settings = &none;
    }
    return wrong.real->plan->create(mesh, settings, ret_plan, reterr);
}

static void access_is_not_verified(void)
{
    wrong.plan.create = plan_unverified;
}

static const struct wrong_fault faults[] = {
    {"view-moves", "views", "addresses never change", "addresses move after a step", view_moves},
    {"strides-are-null", "views", "views have the parameters' shapes", "views have no strides",
     strides_are_null},
    {"dtype-is-another", "views", "views have the parameters' shapes", "bf16 is told as fp16",
     dtype_is_another},
    {"flat-is-short", "views", "flat views have the step shard's shape",
     "a flat view lacks its last element", flat_is_short},
    {"gradient-is-not-zeroed", "views", "a gradient is zero when it is acquired",
     "the gradient of a backward use is what was there", gradient_is_not_zeroed},
    {"padding-is-not-zero", "views", "padding is zero", "padding of gradients is 1",
     padding_is_not_zero},
    {"values-begin-otherwise", "loading", "all values are zero until they are edited",
     "a new model has a 1 in it", values_begin_otherwise},
    {"uses-are-not-counted", "views", "uses are counted", "the first release ends all uses",
     uses_are_not_counted},
    {"step-is-not-published", "views", "a view shows what was published last",
     "the end of a step discards it", step_is_not_published},
    {"access-is-not-verified", "views", "reading after release faults on request",
     "verify=access is accepted and ignored", access_is_not_verified},
};

const struct wrong_faults wrong_views = WRONG_FAULTS(faults);
