/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: reading finished plans. */
#include "arguments.h"

#define N_SEGMENT sizeof(struct hsdp_segment)

static void plan_open(struct arguments *ret, struct conform *conform)
{
    arguments_init(ret, conform);
    ret->mesh = arguments_mesh(ret);
    ret->plan = arguments_plan(ret, ret->mesh);
    arguments_plan_fill(ret, ret->plan);
}

static void plan_close(struct arguments *arguments)
{
    arguments->api->plan->destroy(arguments->plan);
    arguments->api->mesh->destroy(arguments->mesh);
}

static void settings_refuse_nulls(struct arguments *arguments)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    struct arguments *a = arguments;
    const char **texts = arguments->out.texts;

    arguments_refuse(a, ops->setting(NULL, "slots", &texts[0], &texts[1], a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->setting(a->plan, NULL, &texts[0], &texts[1], a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->setting(a->plan, "slots", NULL, &texts[1], a->err), HSDP_ERR_INVALID);
    arguments_refuse(a, ops->setting(a->plan, "slots", &texts[0], NULL, a->err), HSDP_ERR_INVALID);
    arguments_refuse(a, ops->class_setting(NULL, 0, "param_dtype", &texts[0], &texts[1], a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->class_setting(a->plan, 0, NULL, &texts[0], &texts[1], a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->class_setting(a->plan, 0, "param_dtype", NULL, &texts[1], a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->class_setting(a->plan, 0, "param_dtype", &texts[0], NULL, a->err),
                     HSDP_ERR_INVALID);
}

static void lists_refuse_nulls(struct arguments *arguments)
{
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    struct arguments *a = arguments;
    struct outputs *out = &arguments->out;

    arguments_refuse(a,
                     ops->segments(NULL, 0, 0, 0, out->segments, N_SEGMENT, 2, out->longs, a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->segments(a->plan, 0, 0, 0, NULL, N_SEGMENT, 2, out->longs, a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->segments(a->plan, 0, 0, 0, out->segments, N_SEGMENT, 2, NULL, a->err),
                     HSDP_ERR_INVALID);
    arguments_refuse(a, ops->writer(NULL, 0, 0, 0, out->numbers, a->err), HSDP_ERR_INVALID);
    arguments_refuse(a, ops->writer(a->plan, 0, 0, 0, NULL, a->err), HSDP_ERR_INVALID);
    arguments_refuse(a, ops->report(NULL, out->text, 64, out->longs, a->err), HSDP_ERR_INVALID);
    arguments_refuse(a, ops->report(a->plan, NULL, 64, out->longs, a->err), HSDP_ERR_INVALID);
    arguments_refuse(a, ops->report(a->plan, out->text, 64, NULL, a->err), HSDP_ERR_INVALID);
}

void plan_read_nulls(struct conform *conform)
{
    const struct hsdp_plan_ops *ops = conform->api->plan;
    struct arguments a;
    struct outputs *out = &a.out;

    plan_open(&a, conform);
    arguments_refuse(&a, ops->info(NULL, &out->plan_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(a.plan, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->mesh(NULL, &out->plan_mesh, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->mesh(a.plan, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->class_info(NULL, 0, &out->class_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->class_info(a.plan, 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->unit_info(NULL, 0, &out->unit_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->unit_info(a.plan, 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->buffer_info(NULL, 0, 0, &out->buffer_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->buffer_info(a.plan, 0, 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_info(NULL, 0, &out->param_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_info(a.plan, 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_find(NULL, "p", &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_find(a.plan, NULL, &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_find(a.plan, "p", NULL, a.err), HSDP_ERR_INVALID);
    settings_refuse_nulls(&a);
    lists_refuse_nulls(&a);
    plan_close(&a);
}

static void cuts_refuse(struct arguments *arguments)
{
    static const int32_t shards[] = {-1, 3, INT32_MAX};
    const struct hsdp_plan_ops *ops = arguments->api->plan;
    struct arguments *a = arguments;
    struct outputs *out = &arguments->out;

    for (size_t i = 0; i < sizeof(shards) / sizeof(shards[0]); i++) {
        arguments_refuse(a,
                         ops->segments(a->plan, 0, shards[i], 0, out->segments, N_SEGMENT, 2,
                                       out->longs, a->err),
                         HSDP_ERR_INVALID);
        arguments_refuse(a, ops->writer(a->plan, 0, shards[i], 0, out->numbers, a->err),
                         HSDP_ERR_INVALID);
    }
    arguments_refuse(
        a, ops->segments(a->plan, 2, 0, 0, out->segments, N_SEGMENT, 2, out->longs, a->err),
        HSDP_ERR_INVALID);
    arguments_refuse(
        a, ops->segments(a->plan, 0, 0, 1, out->segments, N_SEGMENT, 2, out->longs, a->err),
        HSDP_ERR_INVALID);
    arguments_refuse(a, ops->writer(a->plan, 2, 0, 0, out->numbers, a->err), HSDP_ERR_INVALID);
    arguments_refuse(a, ops->writer(a->plan, 0, 0, 1, out->numbers, a->err), HSDP_ERR_INVALID);
    arguments_accept(a, ops->writer(a->plan, 0, 0, 0, out->numbers, a->err));
    conform_expect(a->conform, out->numbers[0] == 0, "plan.writer: the one rank is not its writer");
}

void plan_read_indices(struct conform *conform)
{
    const struct hsdp_plan_ops *ops = conform->api->plan;
    struct arguments a;
    struct outputs *out = &a.out;
    const char **texts = out->texts;

    plan_open(&a, conform);
    arguments_refuse(&a, ops->class_info(a.plan, 1, &out->class_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->unit_info(a.plan, 2, &out->unit_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->buffer_info(a.plan, 2, 0, &out->buffer_info, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->buffer_info(a.plan, 0, 2, &out->buffer_info, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->buffer_info(a.plan, 1, 1, &out->buffer_info, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_info(a.plan, 3, &out->param_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_info(a.plan, UINT32_MAX, &out->param_info, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_find(a.plan, "P", &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->param_find(a.plan, "", &out->numbers[0], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting(a.plan, "foo", &texts[0], &texts[1], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->class_setting(a.plan, 0, "foo", &texts[0], &texts[1], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->class_setting(a.plan, 1, "param_dtype", &texts[0], &texts[1], a.err),
                     HSDP_ERR_INVALID);
    arguments_accept(&a, ops->param_find(a.plan, "q", &out->numbers[0], a.err));
    conform_expect(conform, out->numbers[0] == 2, "plan.param_find: \"q\" is not parameter 2");
    cuts_refuse(&a);
    plan_close(&a);
}
