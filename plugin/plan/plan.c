/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: built call by call, finished once, then only read. */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hsdp/unit.h"
#include "plan/build.h"
#include "plan/names.h"

#define UNIT_NAME_MAX 63u /* so that an error's `unit` field holds it */

/* -------------------------------------------------------------------------------- helpers */

int32_t plan_check_state(const struct hsdp_plan *plan, bool is_finished, struct hsdp_error *reterr)
{
    if (plan->is_finished == is_finished) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_STATE, "plan: %s",
                     is_finished ? "finish was not called yet, there is nothing to read"
                                 : "it is finished, nothing can be added");
}

int32_t plan_grow(void **rows, uint64_t row_bytes, uint32_t n_rows, uint32_t *max_rows,
                  struct hsdp_error *reterr)
{
    uint32_t wanted = n_rows < 16 ? 16 : n_rows > UINT32_MAX / 2 ? UINT32_MAX : n_rows * 2;
    void *grown;

    if (n_rows < *max_rows) {
        return HSDP_OK;
    }
    grown = n_rows < UINT32_MAX ? realloc(*rows, wanted * row_bytes) : NULL;
    if (grown == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "plan: no memory for %" PRIu32 " rows of %" PRIu64 " bytes", wanted,
                         row_bytes);
    }
    *rows = grown;
    *max_rows = wanted;
    return HSDP_OK;
}

int32_t plan_copy_name(const struct names *names, const char *what, const char *name,
                       uint64_t max_bytes, char **ret_name, struct hsdp_error *reterr)
{
    uint32_t taken;
    char *copy;

    if (name == NULL || name[0] == '\0') {
        return error_set(reterr, HSDP_ERR_INVALID, "plan: a %s has %s name", what,
                         name == NULL ? "no" : "an empty");
    }
    if (strlen(name) > max_bytes) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: the name of %s \"%.64s\" has %zu bytes, at most %" PRIu64
                         " are allowed",
                         what, name, strlen(name), max_bytes);
    }
    if (names_find(names, name, &taken)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: %s \"%.200s\" exists already, as number %" PRIu32, what, name,
                         taken);
    }
    copy = strdup(name);
    if (copy == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for the name of a %s", what);
    }
    *ret_name = copy;
    return HSDP_OK;
}

const struct plan_buffer *plan_trainable(const struct plan_unit *unit)
{
    return unit->n_buffers > 0 && !unit->buffers[0].is_frozen ? &unit->buffers[0] : NULL;
}

/* --------------------------------------------------------------------------------- create */

/* The settings have let nothing through but off, access, wrap and step:N. */
static int32_t verify_read(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    const char *list = settings_text(&plan->settings, "verify");

    if (strcmp(list, "off") == 0) {
        return HSDP_OK;
    }
    for (const char *word = list; *word != '\0';) {
        size_t n = strcspn(word, ",");

        if (strncmp(word, "off", n) == 0) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "verify: \"%.64s\" says off and something else", list);
        }
        if (strncmp(word, "step:", 5) == 0 && plan->verify.n_steps != 0) {
            return error_set(reterr, HSDP_ERR_INVALID, "verify: \"%.64s\" says step:N twice", list);
        }
        if (strncmp(word, "step:", 5) == 0) {
            plan->verify.n_steps = (uint32_t)strtoul(word + 5, NULL, 10);
        }
        plan->verify.is_access = plan->verify.is_access || strncmp(word, "access", n) == 0;
        plan->verify.is_wrap = plan->verify.is_wrap || strncmp(word, "wrap", n) == 0;
        word += n;
        word += strspn(word, ",");
    }
    return HSDP_OK;
}

static int32_t scope_find(const char *name)
{
    if (strcmp(name, "inner") == 0) {
        return HSDP_SCOPE_INNER;
    }
    return strcmp(name, "full") == 0 ? HSDP_SCOPE_FULL : HSDP_SCOPE_NONE;
}

static int32_t tables_create(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    int32_t status;

    status = names_create(&plan->class_names, reterr);
    if (status == HSDP_OK) {
        status = names_create(&plan->unit_names, reterr);
    }
    if (status == HSDP_OK) {
        status = names_create(&plan->param_names, reterr);
    }
    return status;
}

int32_t plan_create(const struct hsdp_mesh *mesh, const struct hsdp_settings *settings,
                    struct hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    struct hsdp_plan *plan = NULL;
    int32_t status;

    if (mesh == NULL || ret_plan == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "plan: create needs a mesh and a ret_plan");
    }
    plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: cannot allocate %zu bytes",
                         sizeof(*plan));
    }
    atomic_init(&plan->n_references, 1);
    status = settings_init(&plan->settings, SETTING_PLAN, settings, NULL, reterr);
    if (status == HSDP_OK) {
        status = verify_read(plan, reterr);
    }
    if (status == HSDP_OK) {
        status = plan_adopt_mesh(plan, mesh, reterr);
    }
    if (status == HSDP_OK) {
        status = tables_create(plan, reterr);
    }
    if (status != HSDP_OK) {
        goto out;
    }
    plan->n_slots = (uint32_t)settings_integer(&plan->settings, "slots");
    plan->scope = scope_find(settings_text(&plan->settings, "accumulation_scope"));
    *ret_plan = plan;
    plan = NULL; /* handed over */

out:
    plan_destroy(plan);
    return status;
}

struct hsdp_plan *plan_share(const struct hsdp_plan *plan)
{
    struct hsdp_plan *shared = (struct hsdp_plan *)plan; /* only the count is written */

    atomic_fetch_add_explicit(&shared->n_references, 1, memory_order_relaxed);
    return shared;
}

static void notes_free(struct hsdp_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_notes; i++) {
        free(plan->notes[i]);
    }
    free(plan->notes);
    plan->notes = NULL;
    plan->n_notes = 0;
}

void plan_destroy(struct hsdp_plan *plan)
{
    if (plan == NULL ||
        atomic_fetch_sub_explicit(&plan->n_references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint32_t i = 0; i < plan->n_classes; i++) {
        plan_class_fini(&plan->classes[i]);
    }
    for (uint32_t i = 0; i < plan->n_units; i++) {
        free(plan->units[i].name);
        free(plan->units[i].params);
    }
    for (uint32_t i = 0; i < plan->n_params; i++) {
        free(plan->params[i].name);
        free(plan->params[i].tied_to);
        free(plan->params[i].tied_over);
    }
    notes_free(plan);
    free(plan->classes);
    free(plan->units);
    free(plan->params);
    free(plan->ties);
    names_destroy(plan->class_names);
    names_destroy(plan->unit_names);
    names_destroy(plan->param_names);
    settings_fini(&plan->settings);
    mesh_destroy(plan->mesh);
    free(plan);
}

/* ------------------------------------------------------------------------ classes and units */

int32_t plan_add_class(struct hsdp_plan *plan, const struct hsdp_class_spec *spec,
                       uint32_t *ret_class, struct hsdp_error *reterr)
{
    void *rows;
    int32_t status;

    if (plan == NULL || spec == NULL || ret_class == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: add_class needs a plan, a spec and a ret_class");
    }
    rows = plan->classes;
    status = plan_check_state(plan, false, reterr);
    if (status == HSDP_OK) {
        status = names_reserve(plan->class_names, reterr);
    }
    if (status == HSDP_OK) {
        status =
            plan_grow(&rows, sizeof(*plan->classes), plan->n_classes, &plan->max_classes, reterr);
        plan->classes = rows;
    }
    if (status == HSDP_OK) {
        status = plan_class_init(plan, spec, &plan->classes[plan->n_classes], reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    names_add(plan->class_names, plan->classes[plan->n_classes].name);
    *ret_class = plan->n_classes++;
    return HSDP_OK;
}

int32_t plan_add_unit(struct hsdp_plan *plan, const char *name, uint32_t class_index,
                      uint32_t *ret_unit, struct hsdp_error *reterr)
{
    struct plan_unit unit = {0};
    void *rows;
    int32_t status;

    if (plan == NULL || ret_unit == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "plan: add_unit needs a plan and a ret_unit");
    }
    rows = plan->units;
    status = plan_check_state(plan, false, reterr);
    if (status == HSDP_OK && class_index >= plan->n_classes) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: unit \"%.64s\" wants class %" PRIu32 " of %" PRIu32 " classes",
                         name == NULL ? "" : name, class_index, plan->n_classes);
    }
    if (status == HSDP_OK) {
        status = names_reserve(plan->unit_names, reterr);
    }
    if (status == HSDP_OK) {
        status = plan_grow(&rows, sizeof(*plan->units), plan->n_units, &plan->max_units, reterr);
        plan->units = rows;
    }
    if (status == HSDP_OK) {
        status = plan_copy_name(plan->unit_names, "unit", name, UNIT_NAME_MAX, &unit.name, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    unit.class_index = class_index;
    plan->units[plan->n_units] = unit;
    names_add(plan->unit_names, unit.name);
    *ret_unit = plan->n_units++;
    return HSDP_OK;
}

/* --------------------------------------------------------------------------------- finish */

/* Gives each unit the list of its parameters, in the order in which they were added. */
static int32_t lists_build(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    for (uint32_t u = 0; u < plan->n_units; u++) {
        struct plan_unit *unit = &plan->units[u];

        if (unit->n_params == 0) {
            return error_set(reterr, HSDP_ERR_INVALID, "plan: unit %s has no parameters",
                             unit->name);
        }
        free(unit->params); /* of a finish that failed */
        unit->params = malloc(unit->n_params * sizeof(*unit->params));
        if (unit->params == NULL) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY,
                             "plan: no memory for the %" PRIu32 " parameters of unit %s",
                             unit->n_params, unit->name);
        }
    }
    for (uint32_t u = 0; u < plan->n_units; u++) {
        plan->units[u].n_params = 0; /* counts up again */
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        struct plan_unit *unit = &plan->units[plan->params[p].unit];

        unit->params[unit->n_params++] = p;
    }
    return HSDP_OK;
}

/* There must be an order for backward passes; hosts choose one for themselves. */
static int32_t order_check(const struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    uint32_t *units = malloc((plan->n_units + 1u) * sizeof(*units));
    int32_t status;

    if (units == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for an order of units");
    }
    status = plan_pass_order(plan, units, reterr);
    free(units);
    return status;
}

int32_t plan_finish(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    int32_t status;

    if (plan == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "plan: finish needs a plan");
    }
    status = plan_check_state(plan, false, reterr);
    if (status == HSDP_OK) {
        status = lists_build(plan, reterr);
    }
    if (status == HSDP_OK) {
        status = order_check(plan, reterr);
    }
    if (status == HSDP_OK) {
        status = plan_lay_out(plan, reterr);
    }
    if (status == HSDP_OK) {
        status = plan_assign_slots(plan, reterr);
    }
    if (status == HSDP_OK) {
        notes_free(plan); /* of a finish that failed */
        status = plan_write_notes(plan, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    plan_ties_place(plan);
    plan_add_up(plan);
    plan->is_finished = true;
    return HSDP_OK;
}
