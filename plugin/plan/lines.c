/* SPDX-License-Identifier: Apache-2.0 */
/* The plan in lines: what ranks compare. Nothing in it depends on the rank that writes it. */
#include <inttypes.h>
#include <string.h>

#include "plan/build.h"

/* A name in quotes, with what could be taken for the end of it, or of the line, as \xNN. */
static void name_add(struct text *text, const char *name)
{
    text_add(text, "\"");
    while (*name != '\0') {
        size_t n_plain = 0;

        while ((unsigned char)name[n_plain] >= 0x20 && name[n_plain] != '"' &&
               name[n_plain] != '\\') {
            n_plain++;
        }
        text_add(text, "%.*s", (int)n_plain, name);
        name += n_plain;
        if (*name != '\0') {
            text_add(text, "\\x%02x", (unsigned)(unsigned char)*name);
            name++;
        }
    }
    text_add(text, "\"");
}

static void dims_add(const struct hsdp_plan *plan, struct text *text, const char *key,
                     uint32_t dims)
{
    char selector[PLAN_DIMS_TEXT_BYTES];

    mesh_dims_text(plan->mesh, dims, selector, sizeof(selector));
    text_add(text, " %s=%s", key, selector);
}

static void mesh_words(const struct hsdp_plan *plan, struct text *text)
{
    for (uint32_t d = 0; d < plan->mesh->n_dims; d++) {
        text_add(text, " %s=%" PRIu32, plan->mesh->names[d], plan->mesh->sizes[d]);
    }
    dims_add(plan, text, "data_dims", plan->mesh->data_dims);
}

static void class_words(const struct hsdp_plan *plan, const struct plan_class *klass,
                        struct text *text)
{
    dims_add(plan, text, "replicated_over", klass->place.replicated);
    dims_add(plan, text, "reduced_over", klass->place.reduced);
    dims_add(plan, text, "replicate_dims", klass->place.outer);
    text_add(text, " param_dims=%s grad_dims=%s step_dims=%s", klass->cut_dims[HSDP_SHARD_PARAM],
             klass->cut_dims[HSDP_SHARD_GRAD], klass->cut_dims[HSDP_SHARD_STEP]);
    text_add(text, " param_dtype=%s master_dtype=%s reduce_dtype=%s gradient_dtype=%s",
             dtype_name(klass->param_dtype), settings_text(&klass->settings, "master_dtype"),
             dtype_name(klass->reduce_dtype), dtype_name(klass->gradient_dtype));
    text_add(text, " gradient_op=%s gradient_divisor=%" PRIu32, klass->is_mean ? "mean" : "sum",
             klass->divisor);
}

static void class_line(const struct hsdp_plan *plan, const struct plan_class *klass,
                       struct text *text)
{
    text_add(text, "class ");
    name_add(text, klass->name);
    text_add(text, " sharding_strategy=%s", klass->strategy->name);
    class_words(plan, klass, text);
    text_add(text, "\n");
}

static void unit_line(const struct hsdp_plan *plan, const struct plan_unit *unit, struct text *text)
{
    text_add(text, "unit ");
    name_add(text, unit->name);
    text_add(text, " class=");
    name_add(text, plan->classes[unit->class_index].name);
    text_add(text, "\n");
}

static void tied_over_add(const struct hsdp_plan *plan, uint32_t tie, struct text *text)
{
    text_add(text, " tied_over=");
    selector_write(plan->mesh, &plan->ties[tie].selector, text);
}

static void param_words(const struct plan_param *param, struct text *text)
{
    text_add(text, " shape=[");
    for (uint32_t d = 0; d < param->n_dims; d++) {
        text_add(text, "%s%" PRId64, d == 0 ? "" : ",", param->shape[d]);
    }
    text_add(text, "] block_elems=%" PRIu64 " hyper_group=%" PRIu32 " frozen=%d",
             param->block_elems, param->hyper_group, (param->flags & HSDP_PARAM_FROZEN) != 0);
}

static void param_line(const struct hsdp_plan *plan, const struct plan_param *param,
                       struct text *text)
{
    text_add(text, "param ");
    name_add(text, param->name);
    text_add(text, " unit=");
    name_add(text, plan->units[param->unit].name);
    param_words(param, text);
    if (param->tie != PLAN_NO_TIE) {
        tied_over_add(plan, param->tie, text);
    }
    if (param->tied_to != NULL) {
        text_add(text, " tied_to=");
        name_add(text, param->tied_to);
    }
    text_add(text, "\n");
}

static void unit_layout_line(const struct plan_unit *unit, struct text *text)
{
    text_add(text, "layout ");
    name_add(text, unit->name);
    text_add(text, " param_slot=%" PRId64 " grad_slot=%" PRId64 " grad_slot_offset=%" PRIu64,
             unit->param_slot == HSDP_NO_SLOT ? -1 : (int64_t)unit->param_slot,
             unit->grad_slot == HSDP_NO_SLOT ? -1 : (int64_t)unit->grad_slot,
             unit->grad_slot_offset_bytes);
    for (uint32_t b = 0; b < unit->n_buffers; b++) {
        const struct plan_buffer *buffer = &unit->buffers[b];

        text_add(text, " %s=%" PRIu64 "/%" PRIu64 "/%" PRIu64 "/%" PRIu64,
                 buffer->is_frozen ? "frozen" : "trainable", buffer->n_elems,
                 buffer->shard_elems[HSDP_SHARD_PARAM], buffer->shard_elems[HSDP_SHARD_GRAD],
                 buffer->shard_elems[HSDP_SHARD_STEP]);
    }
    text_add(text, "\n");
}

static void param_layout_line(const struct plan_param *param, struct text *text)
{
    text_add(text, "place ");
    name_add(text, param->name);
    text_add(text, " buffer=%" PRIu32 " offset=%" PRIu64 "\n", param->buffer, param->offset_elems);
}

/*
 * What the host has said comes first, so that the first line that differs names the cause: a unit,
 * a parameter, a setting. What follows from it comes behind: two builds may lay out differently.
 */
void plan_write_lines(const struct hsdp_plan *plan, struct text *text)
{
    text_add(text, "mesh");
    mesh_words(plan, text);
    text_add(text, "\n");
    text_add(text, "setting accumulation_scope=%s\n",
             settings_text(&plan->settings, "accumulation_scope"));
    text_add(text, "setting slots=%" PRIu32 "\n", plan->n_slots);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        class_line(plan, &plan->classes[c], text);
    }
    text_add(text, "no more classes\n"); /* not the first unit: a missing row shows as missing */
    for (uint32_t u = 0; u < plan->n_units; u++) {
        unit_line(plan, &plan->units[u], text);
    }
    text_add(text, "no more units\n");
    for (uint32_t p = 0; p < plan->n_params; p++) {
        param_line(plan, &plan->params[p], text);
    }
    text_add(text, "no more parameters\n");
    for (uint32_t u = 0; u < plan->n_units; u++) {
        unit_layout_line(&plan->units[u], text);
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        param_layout_line(&plan->params[p], text);
    }
}

void plan_write_tie(const struct hsdp_plan *plan, uint32_t tie, struct text *text)
{
    const struct plan_param *param = &plan->params[plan->ties[tie].param];

    tied_over_add(plan, tie, text);
    param_words(param, text);
    class_words(plan, &plan->classes[plan->units[param->unit].class_index], text);
    mesh_words(plan, text);
}
