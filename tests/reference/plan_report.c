/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words: remarks, the report in JSON, and the lines that ranks compare. */
#include <inttypes.h>
#include <string.h>

#include "plan.h"
#include "text.h"

/* ---------------------------------------------------------------------------------------- notes */

/* What a class's strategy comes to on this mesh, where its name would mislead. */
static bool class_note(const struct hsdp_plan *plan, const struct plan_class *klass,
                       char text[NOTE_BYTES])
{
    uint32_t n_reduced = mesh_count(plan->mesh, klass->reduced);
    uint32_t n_shards = mesh_count(plan->mesh, klass->cuts[HSDP_SHARD_STEP]);
    const char *name = klass->strategy->name;

    if (n_reduced == 1) {
        snprintf(text, NOTE_BYTES, "%s: class %.64s has no other rank to reduce over", name,
                 klass->name);
        return true;
    }
    if (n_shards == 1 && klass->strategy->cuts[HSDP_SHARD_STEP] != SPAN_NONE) {
        snprintf(text, NOTE_BYTES,
                 "%s: no dimension is left to shard class %.64s; it is ddp over %" PRIu32 " ranks",
                 name, klass->name, n_reduced);
        return true;
    }
    if (n_shards == n_reduced && klass->strategy->cuts[HSDP_SHARD_GRAD] == SPAN_INNER) {
        snprintf(text, NOTE_BYTES, "%s: class %.64s has no dimension to replicate over", name,
                 klass->name);
        return true;
    }
    return false;
}

bool plan_note(const struct hsdp_plan *plan, uint32_t index, char text[NOTE_BYTES])
{
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        if (class_note(plan, &plan->classes[c], text) && index-- == 0) {
            return true;
        }
    }
    return false;
}

/* --------------------------------------------------------------------------------------- report */

static void mesh_write(FILE *file, const struct hsdp_mesh *mesh)
{
    char data_dims[DIMS_TEXT_BYTES];

    fprintf(file, "\"mesh\":{\"dims\":[");
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        fprintf(file, "%s{\"name\":\"%s\",\"ranks\":%" PRIu32 "}", d == 0 ? "" : ",",
                mesh->names[d], mesh->sizes[d]);
    }
    mesh_dims_write(mesh, mesh->data_dims, data_dims);
    fprintf(file, "],\"data_dims\":\"%s\",\"world_ranks\":%" PRIu32, data_dims, mesh->world_ranks);
    fprintf(file, ",\"rank\":%" PRIu32 ",\"ranks_per_node\":%" PRIu32 "}", mesh->rank,
            mesh->ranks_per_node);
}

static void settings_write(FILE *file, const struct settings *settings)
{
    const char *separator = "";

    fprintf(file, "\"settings\":{");
    for (int k = 0; k < N_KEYS; k++) {
        if (settings->values[k] != NULL) {
            fprintf(file, "%s\"%s\":{\"value\":", separator, keys[k].name);
            text_quote(file, settings->values[k]);
            fprintf(file, ",\"source\":\"%s\"}", settings->sources[k]);
            separator = ",";
        }
    }
    fprintf(file, "}");
}

/* What a rank sends or receives for one microbatch: parameters twice, contributions once, both
 * whole; this plugin does no less than that, whatever the strategy. */
static void traffic_write(FILE *file, const struct hsdp_plan *plan, uint32_t c)
{
    const struct settings *settings = &plan->classes[c].settings;
    uint64_t param_bytes = 0;
    uint64_t grad_bytes = 0;

    for (uint32_t u = 0; u < plan->n_units; u++) {
        const struct plan_unit *unit = &plan->units[u];

        for (uint32_t b = 0; b < unit->n_buffers && unit->class_index == c; b++) {
            uint64_t n_elems = unit->buffers[b].n_elems;

            param_bytes += 2 * n_elems * plan_dtype_bytes(settings, "param_dtype");
            if (!unit->buffers[b].is_frozen) {
                grad_bytes += n_elems * plan_dtype_bytes(settings, "reduce_dtype");
            }
        }
    }
    fprintf(file, ",\"traffic_per_step\":[");
    fprintf(file, "{\"phase\":\"unshard\",\"payload_bytes\":%" PRIu64 "}", param_bytes);
    fprintf(file, ",{\"phase\":\"reduce\",\"payload_bytes\":%" PRIu64 "}]", grad_bytes);
}

static void class_write(FILE *file, const struct hsdp_plan *plan, uint32_t c)
{
    const struct plan_class *klass = &plan->classes[c];

    fprintf(file, "{\"name\":");
    text_quote(file, klass->name);
    fprintf(file, ",\"sharding_strategy\":\"%s\",\"replicated_over\":\"%s\"", klass->strategy->name,
            klass->replicated_text);
    fprintf(file, ",\"reduced_over\":\"%s\",\"param_dims\":\"%s\"", klass->reduced_text,
            klass->cut_texts[HSDP_SHARD_PARAM]);
    fprintf(file, ",\"grad_dims\":\"%s\",\"step_dims\":\"%s\"", klass->cut_texts[HSDP_SHARD_GRAD],
            klass->cut_texts[HSDP_SHARD_STEP]);
    fprintf(file, ",\"gradient_divisor\":%" PRIu32 ",", klass->divisor);
    settings_write(file, &klass->settings);
    traffic_write(file, plan, c);
    fprintf(file, "}");
}

static void unit_write(FILE *file, const struct hsdp_plan *plan, const struct plan_unit *unit)
{
    fprintf(file, "{\"name\":");
    text_quote(file, unit->name);
    fprintf(file, ",\"class\":");
    text_quote(file, plan->classes[unit->class_index].name);
    fprintf(file, ",\"params\":%" PRIu32 ",\"buffers\":[", unit->n_params);
    for (uint32_t b = 0; b < unit->n_buffers; b++) {
        const struct plan_buffer *buffer = &unit->buffers[b];

        fprintf(file, "%s{\"frozen\":%s,\"elems\":%" PRIu64 ",\"padding_elems\":%" PRIu64,
                b == 0 ? "" : ",", buffer->is_frozen ? "true" : "false", buffer->n_elems,
                buffer->n_padding_elems);
        fprintf(file, ",\"param_shard_elems\":%" PRIu64 ",\"grad_shard_elems\":%" PRIu64,
                buffer->shard_elems[HSDP_SHARD_PARAM], buffer->shard_elems[HSDP_SHARD_GRAD]);
        fprintf(file, ",\"step_shard_elems\":%" PRIu64 "}", buffer->shard_elems[HSDP_SHARD_STEP]);
    }
    fprintf(file, "]}");
}

static void padding_write(FILE *file, const struct hsdp_plan *plan)
{
    uint64_t n_elems = 0;
    uint64_t n_padding = 0;

    for (uint32_t u = 0; u < plan->n_units; u++) {
        for (uint32_t b = 0; b < plan->units[u].n_buffers; b++) {
            n_elems += plan->units[u].buffers[b].n_elems;
            n_padding += plan->units[u].buffers[b].n_padding_elems;
        }
    }
    fprintf(file, "\"padding\":{\"elems\":%" PRIu64 ",\"padding_elems\":%" PRIu64 "}", n_elems,
            n_padding);
}

static void memory_write(FILE *file, const struct hsdp_plan *plan)
{
    const struct hsdp_plan_info *totals = &plan->totals;

    fprintf(file, "\"slots\":{\"count\":%s,\"grad_slot_bytes\":%" PRIu64 "}",
            settings_text(&plan->settings, "slots"), totals->grad_slot_bytes);
    fprintf(file, ",\"memory\":{\"param_bytes\":%" PRIu64 ",\"master_bytes\":%" PRIu64,
            totals->param_bytes, totals->master_bytes);
    fprintf(file, ",\"grad_bytes\":%" PRIu64 ",\"unsharded_bytes\":%" PRIu64, totals->grad_bytes,
            totals->unsharded_bytes);
    fprintf(file, ",\"grad_slot_bytes\":%" PRIu64 ",\"n_state_elems\":%" PRIu64,
            totals->grad_slot_bytes, totals->n_state_elems);
    fprintf(file, ",\"padding_bytes\":%" PRIu64 ",\"peak_bytes\":%" PRIu64 "}",
            totals->padding_bytes, totals->peak_bytes);
}

static void plan_write(FILE *file, const struct hsdp_plan *plan)
{
    char note[NOTE_BYTES];

    fprintf(file, "{");
    mesh_write(file, plan->mesh);
    fprintf(file, ",");
    settings_write(file, &plan->settings);
    fprintf(file, ",\"classes\":[");
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        fprintf(file, "%s", c == 0 ? "" : ",");
        class_write(file, plan, c);
    }
    fprintf(file, "],\"units\":[");
    for (uint32_t u = 0; u < plan->n_units; u++) {
        fprintf(file, "%s", u == 0 ? "" : ",");
        unit_write(file, plan, &plan->units[u]);
    }
    fprintf(file, "],");
    padding_write(file, plan);
    fprintf(file, ",");
    memory_write(file, plan);
    fprintf(file, ",\"notes\":[");
    for (uint32_t i = 0; plan_note(plan, i, note); i++) {
        fprintf(file, "%s", i == 0 ? "" : ",");
        text_quote(file, note);
    }
    fprintf(file, "]}");
}

int32_t plan_report(const hsdp_plan *plan, char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                    struct hsdp_error *reterr)
{
    const struct call call = {"plan.report", reterr};
    struct text text;

    if (!call_has(&call, "plan", plan) || !call_has_array(&call, "ret_text", ret_text, max_bytes) ||
        !call_has(&call, "ret_bytes", ret_bytes)) {
        return HSDP_ERR_INVALID;
    }
    if (!plan->is_finished) {
        return error_raise(&call, HSDP_ERR_STATE,
                           "plan.report: the plan is to be read, call finish before");
    }
    if (text_open(&text)) {
        plan_write(text.file, plan);
    }
    return text_close(&call, &text, ret_text, max_bytes, ret_bytes);
}

/* ---------------------------------------------------------------------------------------- lines */

static void class_line(FILE *file, const struct plan_class *klass, const char *what,
                       const char *value)
{
    fprintf(file, "class ");
    text_quote(file, klass->name);
    fprintf(file, " %s=%s\n", what, value);
}

/* Short lines: two fit into the sentence of an error. */
static void class_lines(FILE *file, const struct plan_class *klass)
{
    static const char *const same[] = {"param_dtype", "master_dtype", "reduce_dtype",
                                       "gradient_dtype", "gradient_op"};
    char text[16];

    class_line(file, klass, "replicated_over", klass->replicated_text);
    class_line(file, klass, "reduced_over", klass->reduced_text);
    class_line(file, klass, "sharding_strategy", klass->strategy->name);
    class_line(file, klass, "param_dims", klass->cut_texts[HSDP_SHARD_PARAM]);
    class_line(file, klass, "grad_dims", klass->cut_texts[HSDP_SHARD_GRAD]);
    class_line(file, klass, "step_dims", klass->cut_texts[HSDP_SHARD_STEP]);
    snprintf(text, sizeof(text), "%" PRIu32, klass->divisor);
    class_line(file, klass, "gradient_divisor", text);
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        class_line(file, klass, same[i], settings_text(&klass->settings, same[i]));
    }
}

/* All of verify but access, which each rank has as it likes. */
static void verify_line(FILE *file, const struct hsdp_plan *plan)
{
    const char *word = settings_text(&plan->settings, "verify");
    const char *step = strstr(word, "step:");

    fprintf(file, "setting verify=%s", strstr(word, "wrap") != NULL ? "wrap " : "");
    fprintf(file, "%.*s\n", step == NULL ? 0 : (int)strcspn(step, ","), step == NULL ? "" : step);
}

static void param_line(FILE *file, const struct hsdp_plan *plan, const struct plan_param *param)
{
    fprintf(file, "param ");
    text_quote(file, param->name);
    fprintf(file, " unit=");
    text_quote(file, plan->units[param->unit].name);
    fprintf(file, " shape=[");
    for (uint32_t d = 0; d < param->n_dims; d++) {
        fprintf(file, "%s%" PRId64, d == 0 ? "" : ",", param->shape[d]);
    }
    fprintf(file, "] block_elems=%" PRIu64 " hyper_group=%" PRIu32 " flags=%" PRIu32,
            param->block_elems, param->hyper_group, param->flags);
    fprintf(file, " tied_over=%s tied_to=", param->tied_over == NULL ? "" : param->tied_over);
    text_quote(file, plan->params[param->storage].name);
    fprintf(file, " place=%" PRIu32 "+%" PRIu64 "\n", param->buffer, param->offset_elems);
}

void plan_lines_write(const hsdp_plan *plan, FILE *file)
{
    const struct hsdp_mesh *mesh = plan->mesh;

    fprintf(file, "mesh");
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        fprintf(file, " %s=%" PRIu32 "%s", mesh->names[d], mesh->sizes[d],
                dims_have(mesh->data_dims, d) ? " (data)" : "");
    }
    fprintf(file, "\nsetting accumulation_scope=%s\nsetting slots=%s\n",
            settings_text(&plan->settings, "accumulation_scope"),
            settings_text(&plan->settings, "slots"));
    verify_line(file, plan);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        class_lines(file, &plan->classes[c]);
    }
    for (uint32_t u = 0; u < plan->n_units; u++) {
        fprintf(file, "unit ");
        text_quote(file, plan->units[u].name);
        fprintf(file, " class=");
        text_quote(file, plan->classes[plan->units[u].class_index].name);
        fprintf(file, "\n");
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        param_line(file, plan, &plan->params[p]);
    }
}
