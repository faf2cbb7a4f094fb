/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as JSON. */
#include <stdlib.h>

#include "base/error.h"
#include "plan/build.h"

static void dims_write(const struct hsdp_plan *plan, struct text *text, const char *key,
                       uint32_t dims)
{
    char selector[PLAN_DIMS_TEXT_BYTES];

    mesh_dims_text(plan->mesh, dims, selector, sizeof(selector));
    json_string(text, key, selector);
}

static void mesh_write(const struct hsdp_plan *plan, struct text *text)
{
    const struct hsdp_mesh *mesh = plan->mesh;

    json_open(text, "mesh", '{');
    json_open(text, "dims", '[');
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        json_open(text, NULL, '{');
        json_string(text, "name", mesh->names[d]);
        json_uint(text, "ranks", mesh->sizes[d]);
        json_close(text, '}');
    }
    json_close(text, ']');
    dims_write(plan, text, "data_dims", mesh->data_dims);
    json_uint(text, "world_ranks", mesh->world_ranks);
    json_uint(text, "data_ranks", mesh->n_data_ranks);
    json_uint(text, "ranks_per_node", mesh->ranks_per_node);
    json_uint(text, "rank", mesh->rank);
    json_close(text, '}');
}

static void settings_write(const struct hsdp_plan *plan, struct text *text)
{
    json_open(text, "settings", '{');
    for (uint32_t i = 0; i < SETTINGS_COUNT; i++) {
        const char *value;
        const char *source;

        if ((setting_defs[i].homes & SETTING_PLAN) != 0 &&
            plan_setting(plan, setting_defs[i].key, &value, &source, NULL) == HSDP_OK) {
            json_open(text, setting_defs[i].key, '{');
            json_string(text, "value", value);
            json_string(text, "source", source);
            json_close(text, '}');
        }
    }
    json_close(text, '}');
}

static void traffic_write(const struct hsdp_plan *plan, struct text *text, uint32_t class_index)
{
    struct traffic_row rows[TRAFFIC_MAX_ROWS];
    uint32_t n_rows = plan_traffic(plan, class_index, rows);

    json_open(text, "traffic_per_step", '[');
    for (uint32_t i = 0; i < n_rows; i++) {
        json_open(text, NULL, '{');
        json_string(text, "phase", rows[i].phase);
        json_string(text, "operation", rows[i].operation);
        dims_write(plan, text, "group", rows[i].dims);
        json_uint(text, "group_ranks", mesh_span(plan->mesh, rows[i].dims));
        json_uint(text, "operations", rows[i].n_operations);
        json_uint(text, "payload_bytes", rows[i].payload_bytes);
        json_close(text, '}');
    }
    json_close(text, ']');
}

static void class_write(const struct hsdp_plan *plan, struct text *text, uint32_t class_index)
{
    const struct plan_class *klass = &plan->classes[class_index];

    json_open(text, NULL, '{');
    json_string(text, "name", klass->name);
    json_string(text, "sharding_strategy", klass->strategy->name);
    dims_write(plan, text, "replicated_over", klass->place.replicated);
    json_string(text, "reduced_over", klass->reduce_dims);
    dims_write(plan, text, "replicate_dims", klass->place.outer);
    json_string(text, "param_dims", klass->cut_dims[HSDP_SHARD_PARAM]);
    json_string(text, "grad_dims", klass->cut_dims[HSDP_SHARD_GRAD]);
    json_string(text, "step_dims", klass->cut_dims[HSDP_SHARD_STEP]);
    json_string(text, "param_dtype", dtype_name(klass->param_dtype));
    json_string(text, "master_dtype", settings_text(&klass->settings, "master_dtype"));
    json_string(text, "reduce_dtype", dtype_name(klass->reduce_dtype));
    json_string(text, "gradient_dtype", dtype_name(klass->gradient_dtype));
    json_string(text, "gradient_op", klass->is_mean ? "mean" : "sum");
    json_uint(text, "gradient_divisor", klass->divisor);
    traffic_write(plan, text, class_index);
    json_close(text, '}');
}

static void buffer_write(struct text *text, const struct plan_buffer *buffer)
{
    json_open(text, NULL, '{');
    json_bool(text, "frozen", buffer->is_frozen);
    json_uint(text, "elems", buffer->n_elems);
    json_uint(text, "padding_elems", buffer->n_padding_elems);
    json_uint(text, "block_padding_elems", buffer->n_block_padding_elems);
    json_uint(text, "param_shard_elems", buffer->shard_elems[HSDP_SHARD_PARAM]);
    json_uint(text, "grad_shard_elems", buffer->shard_elems[HSDP_SHARD_GRAD]);
    json_uint(text, "step_shard_elems", buffer->shard_elems[HSDP_SHARD_STEP]);
    json_close(text, '}');
}

/* Of all ranks together: elements of the unsharded buffers of some units. */
static void padding_write(const struct hsdp_plan *plan, struct text *text, uint32_t first,
                          uint32_t end)
{
    uint64_t n_elems = 0;
    uint64_t n_padding = 0;
    uint64_t n_block_padding = 0;

    for (uint32_t u = first; u < end; u++) {
        for (uint32_t b = 0; b < plan->units[u].n_buffers; b++) {
            const struct plan_buffer *buffer = &plan->units[u].buffers[b];

            n_elems += buffer->n_elems;
            n_padding += buffer->n_padding_elems;
            n_block_padding += buffer->n_block_padding_elems;
        }
    }
    json_open(text, "padding", '{');
    json_uint(text, "elems", n_elems);
    json_uint(text, "padding_elems", n_padding);
    json_uint(text, "block_padding_elems", n_block_padding);
    json_close(text, '}');
}

static void unit_write(const struct hsdp_plan *plan, struct text *text, uint32_t unit)
{
    const struct plan_unit *row = &plan->units[unit];

    json_open(text, NULL, '{');
    json_string(text, "name", row->name);
    json_string(text, "class", plan->classes[row->class_index].name);
    json_uint(text, "params", row->n_params);
    if (row->param_slot != HSDP_NO_SLOT) {
        json_uint(text, "param_slot", row->param_slot);
    }
    if (row->grad_slot != HSDP_NO_SLOT) {
        json_uint(text, "grad_slot", row->grad_slot);
        json_uint(text, "grad_slot_offset_bytes", row->grad_slot_offset_bytes);
    }
    if (row->n_aliases != 0) {
        json_uint(text, "aliases", row->n_aliases);
        json_uint(text, "alias_grad_elems", row->n_alias_elems);
    }
    if (row->is_storage) {
        json_bool(text, "is_storage_of_other_units", true);
    }
    json_open(text, "buffers", '[');
    for (uint32_t b = 0; b < row->n_buffers; b++) {
        buffer_write(text, &row->buffers[b]);
    }
    json_close(text, ']');
    padding_write(plan, text, unit, unit + 1);
    json_close(text, '}');
}

static void memory_write(const struct hsdp_plan *plan, struct text *text)
{
    const struct hsdp_plan_info *totals = &plan->totals;

    json_open(text, "slots", '{');
    json_uint(text, "count", plan->n_slots);
    json_uint(text, "grad_slot_bytes", totals->grad_slot_bytes);
    json_uint(text, "least_grad_slot_bytes", plan_least_slots_bytes(plan));
    json_close(text, '}');
    json_open(text, "memory", '{');
    json_uint(text, "param_bytes", totals->param_bytes);
    json_uint(text, "master_bytes", totals->master_bytes);
    json_uint(text, "grad_bytes", totals->grad_bytes);
    json_uint(text, "unsharded_bytes", totals->unsharded_bytes);
    json_uint(text, "grad_slot_bytes", totals->grad_slot_bytes);
    json_uint(text, "n_state_elems", totals->n_state_elems);
    json_uint(text, "padding_bytes", totals->padding_bytes);
    json_uint(text, "peak_bytes", totals->peak_bytes);
    json_close(text, '}');
}

static void tie_write(const struct hsdp_plan *plan, struct text *text, uint32_t tie)
{
    const struct plan_tie *row = &plan->ties[tie];
    struct text selector = TEXT_INIT;

    selector_write(plan->mesh, &row->selector, &selector);
    json_open(text, NULL, '{');
    json_string(text, "param", plan->params[row->param].name);
    json_string(text, "tied_over", selector.chars == NULL ? "" : selector.chars);
    json_uint(text, "holders", row->n_holders);
    json_bool(text, "is_copy", row->own != 0);
    json_uint(text, "payload_bytes",
              (row->n_holders - 1) * plan_tie_elems(plan, tie) * sizeof(float));
    json_close(text, '}');
    text_fini(&selector);
}

void plan_write_json(const struct hsdp_plan *plan, struct text *text, const char *key)
{
    json_open(text, key, '{');
    mesh_write(plan, text);
    settings_write(plan, text);
    json_open(text, "classes", '[');
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        class_write(plan, text, c);
    }
    json_close(text, ']');
    json_open(text, "units", '[');
    for (uint32_t u = 0; u < plan->n_units; u++) {
        unit_write(plan, text, u);
    }
    json_close(text, ']');
    padding_write(plan, text, 0, plan->n_units);
    json_open(text, "ties", '[');
    for (uint32_t t = 0; t < plan->n_ties; t++) {
        tie_write(plan, text, t);
    }
    json_close(text, ']');
    memory_write(plan, text);
    json_open(text, "notes", '[');
    for (uint32_t i = 0; i < plan->n_notes; i++) {
        json_string(text, NULL, plan->notes[i]);
    }
    json_close(text, ']');
    json_uint(text, "n_params", plan->n_params);
    json_close(text, '}');
}

int32_t plan_report(const struct hsdp_plan *plan, char *ret_text, uint64_t max_bytes,
                    uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    struct text text = TEXT_INIT;
    int32_t status;

    if (plan == NULL || ret_bytes == NULL || (ret_text == NULL && max_bytes > 0)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: report needs a plan, a ret_bytes, and a ret_text unless max_bytes "
                         "is 0");
    }
    status = plan_check_state(plan, true, reterr);
    if (status == HSDP_OK) {
        plan_write_json(plan, &text, NULL);
        status = text_export(&text, ret_text, max_bytes, ret_bytes, reterr);
    }
    text_fini(&text);
    return status;
}
