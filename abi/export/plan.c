/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_plan_ops. */
#include "plan/plan.h"

#include <inttypes.h>

#include "base/error.h"
#include "call.h"
#include "layout.h"
#include "tables.h"

static int32_t entry_create(const hsdp_mesh *mesh, const struct hsdp_settings *settings,
                            hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_plan *plan = NULL;

    call_begin(&call, "plan.create", reterr);
    call_needs(&call, "mesh", mesh);
    call_needs(&call, "ret_plan", ret_plan);
    if (call_is_ok(&call)) {
        call.status = plan_create(mesh, settings, &plan, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_plan = plan;
    }
    return call_end(&call);
}

static int32_t entry_add_class(hsdp_plan *plan, const struct hsdp_class_spec *spec,
                               uint32_t *ret_class, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_class_spec own;
    uint32_t index = 0;

    call_begin(&call, "plan.add_class", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "ret_class", ret_class);
    call_takes(&call, "spec", &intake_class_spec, spec, &own);
    if (call_is_ok(&call)) {
        call.status = plan_add_class(plan, &own, &index, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_class = index;
    }
    return call_end(&call);
}

static int32_t entry_add_unit(hsdp_plan *plan, const char *name, uint32_t class_index,
                              uint32_t *ret_unit, struct hsdp_error *reterr)
{
    struct call call;
    uint32_t index = 0;

    call_begin(&call, "plan.add_unit", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "name", name);
    call_needs(&call, "ret_unit", ret_unit);
    if (call_is_ok(&call)) {
        call.status = plan_add_unit(plan, name, class_index, &index, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_unit = index;
    }
    return call_end(&call);
}

static int32_t entry_add_param(hsdp_plan *plan, const struct hsdp_param_spec *spec,
                               uint32_t *ret_param, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_param_spec own;
    uint32_t index = 0;

    call_begin(&call, "plan.add_param", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "ret_param", ret_param);
    call_takes(&call, "spec", &intake_param_spec, spec, &own);
    if (call_is_ok(&call)) {
        call.status = plan_add_param(plan, &own, &index, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_param = index;
    }
    return call_end(&call);
}

static int32_t entry_finish(hsdp_plan *plan, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "plan.finish", reterr);
    call_needs(&call, "plan", plan);
    if (call_is_ok(&call)) {
        call.status = plan_finish(plan, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_info(const hsdp_plan *plan, struct hsdp_plan_info *ret_info,
                          struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;

    call_begin(&call, "plan.info", reterr);
    call_needs(&call, "plan", plan);
    call_needs_struct(&call, "ret_info", &intake_plan_info, ret_info);
    if (call_is_ok(&call)) {
        call.status = plan_info(plan, &info, &call.err);
    }
    call_gives(&call, &intake_plan_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_mesh(const hsdp_plan *plan, const hsdp_mesh **ret_mesh,
                          struct hsdp_error *reterr)
{
    struct call call;
    const struct hsdp_mesh *mesh = NULL;

    call_begin(&call, "plan.mesh", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "ret_mesh", ret_mesh);
    if (call_is_ok(&call)) {
        call.status = plan_mesh(plan, &mesh, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_mesh = mesh;
    }
    return call_end(&call);
}

static int32_t entry_setting(const hsdp_plan *plan, const char *key, const char **ret_value,
                             const char **ret_source, struct hsdp_error *reterr)
{
    struct call call;
    const char *value = NULL;
    const char *source = NULL;

    call_begin(&call, "plan.setting", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "key", key);
    call_needs(&call, "ret_value", ret_value);
    call_needs(&call, "ret_source", ret_source);
    if (call_is_ok(&call)) {
        call.status = plan_setting(plan, key, &value, &source, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_value = value;
        *ret_source = source;
    }
    return call_end(&call);
}

static int32_t entry_class_setting(const hsdp_plan *plan, uint32_t class_index, const char *key,
                                   const char **ret_value, const char **ret_source,
                                   struct hsdp_error *reterr)
{
    struct call call;
    const char *value = NULL;
    const char *source = NULL;

    call_begin(&call, "plan.class_setting", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "key", key);
    call_needs(&call, "ret_value", ret_value);
    call_needs(&call, "ret_source", ret_source);
    if (call_is_ok(&call)) {
        call.status = plan_class_setting(plan, class_index, key, &value, &source, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_value = value;
        *ret_source = source;
    }
    return call_end(&call);
}

static int32_t entry_class_info(const hsdp_plan *plan, uint32_t class_index,
                                struct hsdp_class_info *ret_info, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;

    call_begin(&call, "plan.class_info", reterr);
    call_needs(&call, "plan", plan);
    call_needs_struct(&call, "ret_info", &intake_class_info, ret_info);
    if (call_is_ok(&call)) {
        call.status = plan_class_info(plan, class_index, &info, &call.err);
    }
    call_gives(&call, &intake_class_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_unit_info(const hsdp_plan *plan, uint32_t unit,
                               struct hsdp_unit_info *ret_info, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

    call_begin(&call, "plan.unit_info", reterr);
    call_needs(&call, "plan", plan);
    call_needs_struct(&call, "ret_info", &intake_unit_info, ret_info);
    if (call_is_ok(&call)) {
        call.status = plan_unit_info(plan, unit, &info, &call.err);
    }
    call_gives(&call, &intake_unit_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_buffer_info(const hsdp_plan *plan, uint32_t unit, uint32_t buffer,
                                 struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;

    call_begin(&call, "plan.buffer_info", reterr);
    call_needs(&call, "plan", plan);
    call_needs_struct(&call, "ret_info", &intake_buffer_info, ret_info);
    if (call_is_ok(&call)) {
        call.status = plan_buffer_info(plan, unit, buffer, &info, &call.err);
    }
    call_gives(&call, &intake_buffer_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_param_info(const hsdp_plan *plan, uint32_t param,
                                struct hsdp_param_info *ret_info, struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;

    call_begin(&call, "plan.param_info", reterr);
    call_needs(&call, "plan", plan);
    call_needs_struct(&call, "ret_info", &intake_param_info, ret_info);
    if (call_is_ok(&call)) {
        call.status = plan_param_info(plan, param, &info, &call.err);
    }
    call_gives(&call, &intake_param_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_param_find(const hsdp_plan *plan, const char *name, uint32_t *ret_param,
                                struct hsdp_error *reterr)
{
    struct call call;
    uint32_t index = 0;

    call_begin(&call, "plan.param_find", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "name", name);
    call_needs(&call, "ret_param", ret_param);
    if (call_is_ok(&call)) {
        call.status = plan_param_find(plan, name, &index, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_param = index;
    }
    return call_end(&call);
}

static int32_t stride_check(uint64_t segment_bytes, struct hsdp_error *reterr)
{
    if (segment_bytes < LAYOUT_SEGMENT_1_0 || segment_bytes > INTAKE_MAX_BYTES) {
        return error_set(reterr, HSDP_ERR_VERSION,
                         "plan.segments: segment_bytes is %" PRIu64 "; ABI 1.0 has %u, this plugin "
                         "%zu",
                         segment_bytes, LAYOUT_SEGMENT_1_0, sizeof(struct hsdp_segment));
    }
    if (segment_bytes % _Alignof(struct hsdp_segment) != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan.segments: segment_bytes is %" PRIu64 ", no multiple of %zu",
                         segment_bytes, _Alignof(struct hsdp_segment));
    }
    return HSDP_OK;
}

static int32_t entry_segments(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                              struct hsdp_segment *ret_segments, uint64_t segment_bytes,
                              uint64_t max_segments, uint64_t *ret_n_segments,
                              struct hsdp_error *reterr)
{
    struct call call;
    uint64_t n_segments = 0;

    call_begin(&call, "plan.segments", reterr);
    call_needs(&call, "plan", plan);
    call_needs_array(&call, "ret_segments", ret_segments, max_segments);
    call_needs(&call, "ret_n_segments", ret_n_segments);
    if (call_is_ok(&call)) {
        call.status = stride_check(segment_bytes, &call.err);
    }
    if (call_is_ok(&call)) { /* it also zeros what a newer host has behind each segment */
        call.status = plan_segments(plan, unit, shard, rank, ret_segments, segment_bytes,
                                    max_segments, &n_segments, &call.err);
        call_gives_size(&call, n_segments, ret_n_segments);
    }
    return call_end(&call);
}

static int32_t entry_writer(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                            uint32_t *ret_writer_rank, struct hsdp_error *reterr)
{
    struct call call;
    uint32_t writer = 0;

    call_begin(&call, "plan.writer", reterr);
    call_needs(&call, "plan", plan);
    call_needs(&call, "ret_writer_rank", ret_writer_rank);
    if (call_is_ok(&call)) {
        call.status = plan_writer(plan, unit, shard, rank, &writer, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_writer_rank = writer;
    }
    return call_end(&call);
}

static int32_t entry_report(const hsdp_plan *plan, char *ret_text, uint64_t max_bytes,
                            uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    struct call call;
    uint64_t n_bytes = 0;

    call_begin(&call, "plan.report", reterr);
    call_needs(&call, "plan", plan);
    call_needs_array(&call, "ret_text", ret_text, max_bytes);
    call_needs(&call, "ret_bytes", ret_bytes);
    if (call_is_ok(&call)) {
        call.status = plan_report(plan, ret_text, max_bytes, &n_bytes, &call.err);
        call_gives_size(&call, n_bytes, ret_bytes);
    }
    return call_end(&call);
}

const struct hsdp_plan_ops export_plan = {
    .struct_size = sizeof(struct hsdp_plan_ops),
    .create = entry_create,
    .add_class = entry_add_class,
    .add_unit = entry_add_unit,
    .add_param = entry_add_param,
    .finish = entry_finish,
    .info = entry_info,
    .mesh = entry_mesh,
    .setting = entry_setting,
    .class_setting = entry_class_setting,
    .class_info = entry_class_info,
    .unit_info = entry_unit_info,
    .buffer_info = entry_buffer_info,
    .param_info = entry_param_info,
    .param_find = entry_param_find,
    .segments = entry_segments,
    .writer = entry_writer,
    .report = entry_report,
    .destroy = plan_destroy,
};
