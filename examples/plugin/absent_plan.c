/* SPDX-License-Identifier: Apache-2.0 */
/* Not made yet: plans. Every function is there, and says so. */
#include "skeleton.h"

/* ----------------------------------------------------------------------------------------- plan */

static int32_t plan_create(const hsdp_mesh *mesh, const struct hsdp_settings *settings,
                           hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    (void)mesh;
    (void)settings;
    (void)ret_plan;
    return skeleton_absent(reterr, "plan.create");
}

static int32_t plan_add_class(hsdp_plan *plan, const struct hsdp_class_spec *spec,
                              uint32_t *ret_class, struct hsdp_error *reterr)
{
    (void)plan;
    (void)spec;
    (void)ret_class;
    return skeleton_absent(reterr, "plan.add_class");
}

static int32_t plan_add_unit(hsdp_plan *plan, const char *name, uint32_t class_index,
                             uint32_t *ret_unit, struct hsdp_error *reterr)
{
    (void)plan;
    (void)name;
    (void)class_index;
    (void)ret_unit;
    return skeleton_absent(reterr, "plan.add_unit");
}

static int32_t plan_add_param(hsdp_plan *plan, const struct hsdp_param_spec *spec,
                              uint32_t *ret_param, struct hsdp_error *reterr)
{
    (void)plan;
    (void)spec;
    (void)ret_param;
    return skeleton_absent(reterr, "plan.add_param");
}

static int32_t plan_finish(hsdp_plan *plan, struct hsdp_error *reterr)
{
    (void)plan;
    return skeleton_absent(reterr, "plan.finish");
}

static int32_t plan_info(const hsdp_plan *plan, struct hsdp_plan_info *ret_info,
                         struct hsdp_error *reterr)
{
    (void)plan;
    (void)ret_info;
    return skeleton_absent(reterr, "plan.info");
}

static int32_t plan_mesh(const hsdp_plan *plan, const hsdp_mesh **ret_mesh,
                         struct hsdp_error *reterr)
{
    (void)plan;
    (void)ret_mesh;
    return skeleton_absent(reterr, "plan.mesh");
}

static int32_t plan_setting(const hsdp_plan *plan, const char *key, const char **ret_value,
                            const char **ret_source, struct hsdp_error *reterr)
{
    (void)plan;
    (void)key;
    (void)ret_value;
    (void)ret_source;
    return skeleton_absent(reterr, "plan.setting");
}

static int32_t plan_class_setting(const hsdp_plan *plan, uint32_t class_index, const char *key,
                                  const char **ret_value, const char **ret_source,
                                  struct hsdp_error *reterr)
{
    (void)plan;
    (void)class_index;
    (void)key;
    (void)ret_value;
    (void)ret_source;
    return skeleton_absent(reterr, "plan.class_setting");
}

static int32_t plan_class_info(const hsdp_plan *plan, uint32_t class_index,
                               struct hsdp_class_info *ret_info, struct hsdp_error *reterr)
{
    (void)plan;
    (void)class_index;
    (void)ret_info;
    return skeleton_absent(reterr, "plan.class_info");
}

static int32_t plan_unit_info(const hsdp_plan *plan, uint32_t unit, struct hsdp_unit_info *ret_info,
                              struct hsdp_error *reterr)
{
    (void)plan;
    (void)unit;
    (void)ret_info;
    return skeleton_absent(reterr, "plan.unit_info");
}

static int32_t plan_buffer_info(const hsdp_plan *plan, uint32_t unit, uint32_t buffer,
                                struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr)
{
    (void)plan;
    (void)unit;
    (void)buffer;
    (void)ret_info;
    return skeleton_absent(reterr, "plan.buffer_info");
}

static int32_t plan_param_info(const hsdp_plan *plan, uint32_t param,
                               struct hsdp_param_info *ret_info, struct hsdp_error *reterr)
{
    (void)plan;
    (void)param;
    (void)ret_info;
    return skeleton_absent(reterr, "plan.param_info");
}

static int32_t plan_param_find(const hsdp_plan *plan, const char *name, uint32_t *ret_param,
                               struct hsdp_error *reterr)
{
    (void)plan;
    (void)name;
    (void)ret_param;
    return skeleton_absent(reterr, "plan.param_find");
}

static int32_t plan_segments(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                             struct hsdp_segment *ret_segments, uint64_t segment_bytes,
                             uint64_t max_segments, uint64_t *ret_n_segments,
                             struct hsdp_error *reterr)
{
    (void)plan;
    (void)unit;
    (void)shard;
    (void)rank;
    (void)ret_segments;
    (void)segment_bytes;
    (void)max_segments;
    (void)ret_n_segments;
    return skeleton_absent(reterr, "plan.segments");
}

static int32_t plan_writer(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                           uint32_t *ret_writer_rank, struct hsdp_error *reterr)
{
    (void)plan;
    (void)unit;
    (void)shard;
    (void)rank;
    (void)ret_writer_rank;
    return skeleton_absent(reterr, "plan.writer");
}

static int32_t plan_report(const hsdp_plan *plan, char *ret_text, uint64_t max_bytes,
                           uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    (void)plan;
    (void)ret_text;
    (void)max_bytes;
    (void)ret_bytes;
    return skeleton_absent(reterr, "plan.report");
}

static void plan_destroy(hsdp_plan *plan)
{
    (void)plan;
}

const struct hsdp_plan_ops skeleton_plan = {
    .struct_size = sizeof(struct hsdp_plan_ops),
    .create = plan_create,
    .add_class = plan_add_class,
    .add_unit = plan_add_unit,
    .add_param = plan_add_param,
    .finish = plan_finish,
    .info = plan_info,
    .mesh = plan_mesh,
    .setting = plan_setting,
    .class_setting = plan_class_setting,
    .class_info = plan_class_info,
    .unit_info = plan_unit_info,
    .buffer_info = plan_buffer_info,
    .param_info = plan_param_info,
    .param_find = plan_param_find,
    .segments = plan_segments,
    .writer = plan_writer,
    .report = plan_report,
    .destroy = plan_destroy,
};
