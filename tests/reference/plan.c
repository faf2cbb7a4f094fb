/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_plan_ops: building a plan call by call. */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "intake.h"
#include "reference.h"

static const struct intake class_intake = {"spec", 56, sizeof(struct hsdp_class_spec)};
static const struct intake param_intake = {"spec", 64, sizeof(struct hsdp_param_spec)};

#define MOST_UNIT_NAME_BYTES 63u /* so that hsdp_error.unit holds it */

/* ------------------------------------------------------------------------------------- settings */

/* "off" stands alone, and "step:N" once. */
static int32_t verify_check(const struct call *call, const struct settings *settings)
{
    const char *verify = settings_text(settings, "verify");
    const char *step = strstr(verify, "step:");

    if ((strstr(verify, "off") != NULL && strcmp(verify, "off") != 0) ||
        (step != NULL && strstr(step + 1, "step:") != NULL)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "verify: \"%.64s\" says off and something else, or step:N twice",
                           verify);
    }
    return HSDP_OK;
}

/* The default of shard_size; 0 = dp is not split. */
static uint32_t shard_size_find(const struct hsdp_mesh *mesh, const char *strategy_name)
{
    const struct strategy *strategy = strategy_find(strategy_name);
    uint32_t n_node = mesh->ranks_per_node == 0 ? mesh->world_ranks : mesh->ranks_per_node;
    int dp = mesh_find(mesh, "dp", 2);
    uint32_t size;

    if (dp < 0 || strategy == NULL || strategy->cuts[HSDP_SHARD_GRAD] != SPAN_INNER) {
        return 0; /* all rows with I have it there */
    }
    if (!dims_have(mesh->data_dims, (uint32_t)dp) ||
        mesh_count(mesh, mesh->data_dims) != mesh->sizes[dp]) {
        return 0; /* other dimensions are data too */
    }
    size = mesh->sizes[dp] / 2 < n_node ? mesh->sizes[dp] / 2 : n_node;
    while (size > 1 && mesh->sizes[dp] % size != 0) {
        size--;
    }
    return size == 0 ? 1 : size;
}

static int32_t mesh_adopt(const struct call *call, const struct hsdp_mesh *mesh,
                          struct hsdp_plan *plan)
{
    uint32_t shard_size = (uint32_t)settings_number(&plan->settings, "shard_size");
    int32_t status = HSDP_OK;

    if (shard_size == 0) {
        shard_size = shard_size_find(mesh, settings_text(&plan->settings, "sharding_strategy"));
        if (shard_size != 0) {
            status = settings_put_number(call, &plan->settings, "shard_size", shard_size,
                                         "derived from dp and ranks_per_node");
        }
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (shard_size != 0) {
        return mesh_split(call, mesh, shard_size, &plan->mesh);
    }
    plan->mesh = malloc(sizeof(*plan->mesh));
    if (plan->mesh == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "plan: no memory");
    }
    *plan->mesh = *mesh;
    return HSDP_OK;
}

/* What follows from the mesh where the host has not said it. */
static int32_t defaults_derive(const struct call *call, struct hsdp_plan *plan)
{
    static const char source[] = "derived from the mesh";
    const struct hsdp_mesh *mesh = plan->mesh;
    const char *replicate = settings_text(&plan->settings, "replicate_dims");
    uint32_t dims;
    int32_t status;

    if (replicate != NULL) {
        status = selector_read_dims(call, mesh, "replicate_dims", replicate, &dims);
    } else {
        replicate = mesh_find(mesh, "dp", 2) >= 0 ? "dp" : "";
        if (mesh_find(mesh, "dp_replicate", strlen("dp_replicate")) >= 0) {
            replicate = "dp_replicate";
        }
        status = settings_put(call, &plan->settings, "replicate_dims", replicate, source);
    }
    if (status == HSDP_OK && settings_text(&plan->settings, "gradient_divisor") == NULL) {
        status = settings_put_number(call, &plan->settings, "gradient_divisor",
                                     mesh_count(mesh, mesh->data_dims), source);
    }
    return status;
}

/* --------------------------------------------------------------------------- create and destroy */

static void table_destroy(hsdp_plan *plan)
{
    if (plan == NULL || atomic_fetch_sub(&plan->n_holders, 1) != 1) {
        return;
    }
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        plan_class_free(&plan->classes[c]);
    }
    for (uint32_t u = 0; u < plan->n_units; u++) {
        free(plan->units[u].name);
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        plan_param_free(&plan->params[p]);
    }
    free(plan->classes);
    free(plan->units);
    free(plan->params);
    settings_free(&plan->settings);
    free(plan->mesh);
    free(plan);
}

hsdp_plan *plan_hold(const hsdp_plan *plan)
{
    hsdp_plan *held = (hsdp_plan *)plan; /* only the count changes */

    atomic_fetch_add(&held->n_holders, 1);
    return held;
}

static int32_t table_create(const hsdp_mesh *mesh, const struct hsdp_settings *settings,
                            hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    const struct call call = {"plan.create", reterr};
    struct hsdp_plan *plan;
    int32_t status;

    if (!call_has(&call, "mesh", mesh) || !call_has(&call, "ret_plan", ret_plan)) {
        return HSDP_ERR_INVALID;
    }
    plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return error_raise(&call, HSDP_ERR_NO_MEMORY, "plan: no memory");
    }
    atomic_init(&plan->n_holders, 1);
    status = settings_read(&call, HOME_PLAN, settings, NULL, &plan->settings);
    if (status == HSDP_OK) {
        status = verify_check(&call, &plan->settings);
    }
    if (status == HSDP_OK) {
        status = mesh_adopt(&call, mesh, plan);
    }
    if (status == HSDP_OK) {
        status = defaults_derive(&call, plan);
    }
    if (status != HSDP_OK) {
        table_destroy(plan);
        return status;
    }
    *ret_plan = plan;
    return HSDP_OK;
}

/* ----------------------------------------------------------------------------------------- rows */

static int32_t open_check(const struct call *call, const struct hsdp_plan *plan)
{
    return !plan->is_finished ? HSDP_OK
                              : error_raise(call, HSDP_ERR_STATE,
                                            "plan: it is finished, nothing more can be added");
}

/* Makes room for one more row behind n of them. */
static int32_t rows_grow(const struct call *call, void **rows, size_t row_bytes, uint32_t n)
{
    void *grown = n == UINT32_MAX ? NULL : realloc(*rows, (n + 1) * row_bytes);

    if (grown == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "plan: no memory for %" PRIu32 " rows", n);
    }
    *rows = grown;
    return HSDP_OK;
}

static int32_t table_add_class(hsdp_plan *plan, const struct hsdp_class_spec *spec,
                               uint32_t *ret_class, struct hsdp_error *reterr)
{
    const struct call call = {"plan.add_class", reterr};
    struct hsdp_class_spec own;
    void *rows;
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "ret_class", ret_class)) {
        return HSDP_ERR_INVALID;
    }
    status = intake_take(&call, &class_intake, spec, &own);
    if (status == HSDP_OK) {
        status = open_check(&call, plan);
    }
    if (status != HSDP_OK) {
        return status;
    }
    rows = plan->classes;
    status = rows_grow(&call, &rows, sizeof(*plan->classes), plan->n_classes);
    plan->classes = rows;
    if (status == HSDP_OK) {
        status = plan_class_read(&call, plan, &own, &plan->classes[plan->n_classes]);
    }
    if (status == HSDP_OK) {
        *ret_class = plan->n_classes++;
    }
    return status;
}

static int32_t unit_check(const struct call *call, const struct hsdp_plan *plan, const char *name,
                          uint32_t class_index)
{
    if (name[0] == '\0' || strlen(name) > MOST_UNIT_NAME_BYTES) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "plan: the name of unit \"%.64s\" has %zu bytes, not 1 to %u", name,
                           strlen(name), MOST_UNIT_NAME_BYTES);
    }
    if (class_index >= plan->n_classes) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "plan: unit \"%s\" wants class %" PRIu32 " of %" PRIu32, name,
                           class_index, plan->n_classes);
    }
    for (uint32_t u = 0; u < plan->n_units; u++) {
        if (strcmp(plan->units[u].name, name) == 0) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "plan: unit \"%s\" is there already, as number %" PRIu32, name, u);
        }
    }
    return HSDP_OK;
}

static int32_t table_add_unit(hsdp_plan *plan, const char *name, uint32_t class_index,
                              uint32_t *ret_unit, struct hsdp_error *reterr)
{
    const struct call call = {"plan.add_unit", reterr};
    struct plan_unit unit = {.class_index = class_index};
    void *rows;
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "name", name) ||
        !call_has(&call, "ret_unit", ret_unit)) {
        return HSDP_ERR_INVALID;
    }
    status = open_check(&call, plan);
    if (status == HSDP_OK) {
        status = unit_check(&call, plan, name, class_index);
    }
    if (status != HSDP_OK) {
        return status;
    }
    rows = plan->units;
    status = rows_grow(&call, &rows, sizeof(*plan->units), plan->n_units);
    plan->units = rows;
    if (status != HSDP_OK) {
        return status;
    }
    unit.name = strdup(name);
    if (unit.name == NULL) {
        return error_raise(&call, HSDP_ERR_NO_MEMORY, "plan: no memory for a name");
    }
    plan->units[plan->n_units] = unit;
    *ret_unit = plan->n_units++;
    return HSDP_OK;
}

static int32_t table_add_param(hsdp_plan *plan, const struct hsdp_param_spec *spec,
                               uint32_t *ret_param, struct hsdp_error *reterr)
{
    const struct call call = {"plan.add_param", reterr};
    struct hsdp_param_spec own;
    void *rows;
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "ret_param", ret_param)) {
        return HSDP_ERR_INVALID;
    }
    status = intake_take(&call, &param_intake, spec, &own);
    if (status == HSDP_OK) {
        status = open_check(&call, plan);
    }
    if (status != HSDP_OK) {
        return status;
    }
    rows = plan->params;
    status = rows_grow(&call, &rows, sizeof(*plan->params), plan->n_params);
    plan->params = rows;
    if (status == HSDP_OK) {
        status = plan_param_read(&call, plan, &own, &plan->params[plan->n_params]);
    }
    if (status == HSDP_OK) {
        plan->units[own.unit].n_params++;
        *ret_param = plan->n_params++;
    }
    return status;
}

/* --------------------------------------------------------------------------------------- finish */

static int32_t units_check(const struct call *call, const struct hsdp_plan *plan)
{
    for (uint32_t u = 0; u < plan->n_units; u++) {
        if (plan->units[u].n_params == 0) {
            return error_raise(call, HSDP_ERR_INVALID, "plan: unit %s has no parameters",
                               plan->units[u].name);
        }
    }
    return HSDP_OK;
}

/* A pass has units with gradients for another unit before this one. Each round puts every unit
 * behind those that add to it; where rounds never end, units wait for each other in a circle. */
static int32_t order_check(const struct call *call, const struct hsdp_plan *plan)
{
    uint32_t *places = calloc(plan->n_units + 1u, sizeof(*places));
    uint32_t circle = UINT32_MAX;

    if (places == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "plan: no memory for an order of units");
    }
    for (bool is_moved = true; is_moved && circle == UINT32_MAX;) {
        is_moved = false;
        for (uint32_t p = 0; p < plan->n_params; p++) {
            uint32_t first = plan->params[p].unit;
            uint32_t second = plan->params[plan->params[p].storage].unit;

            if (first != second && (plan->params[p].flags & HSDP_PARAM_FROZEN) == 0 &&
                places[second] <= places[first]) {
                places[second] = places[first] + 1;
                is_moved = true;
                circle = places[second] > plan->n_units ? second : circle;
            }
        }
    }
    free(places);
    return circle == UINT32_MAX
               ? HSDP_OK
               : error_raise(call, HSDP_ERR_INVALID,
                             "plan: unit %s is storage of names of a unit that is storage of its "
                             "own: no backward pass can have each before the other",
                             plan->units[circle].name);
}

static int32_t table_finish(hsdp_plan *plan, struct hsdp_error *reterr)
{
    const struct call call = {"plan.finish", reterr};
    int32_t status;

    if (!call_has(&call, "plan", plan)) {
        return HSDP_ERR_INVALID;
    }
    status = open_check(&call, plan);
    if (status == HSDP_OK) {
        status = units_check(&call, plan);
    }
    if (status == HSDP_OK) {
        status = order_check(&call, plan);
    }
    if (status == HSDP_OK) {
        status = plan_lay_out(&call, plan);
    }
    plan->is_finished = plan->is_finished || status == HSDP_OK;
    return status;
}

const struct hsdp_plan_ops reference_plan = {
    .struct_size = sizeof(struct hsdp_plan_ops),
    .create = table_create,
    .add_class = table_add_class,
    .add_unit = table_add_unit,
    .add_param = table_add_param,
    .finish = table_finish,
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
    .destroy = table_destroy,
};
