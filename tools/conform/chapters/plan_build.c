/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: what cannot be added to a plan, when it can be read, and its report. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "planning.h"

/* A plan on the host's mesh that is still open, with class "dense" and unit "a". */
static void plan_open(struct conform *conform, struct host *host, const char *dims)
{
    struct hsdp_settings none = {NULL, NULL, 0};
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    uint32_t index;

    numbers_begin(conform);
    host_arrange(host, 0, dims);
    host_must(host, host->api->plan->create(host->mesh, &none, &host->plan, &host->err));
    spec.name = "dense";
    host_must(host, host->api->plan->add_class(host->plan, &spec, &index, &host->err));
    host_must(host, host->api->plan->add_unit(host->plan, "a", 0, &index, &host->err));
}

static const int64_t shape_5[] = {5};

static struct hsdp_param_spec param_of(const char *name)
{
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;

    spec.name = name;
    spec.shape = shape_5;
    spec.n_dims = 1;
    return spec;
}

static uint32_t param_add(struct host *host, const struct hsdp_param_spec *spec)
{
    uint32_t index = UINT32_MAX;

    host_must(host, host->api->plan->add_param(host->plan, spec, &index, &host->err));
    return index;
}

/* Refused, and named where there is a name. */
static void param_refused(struct host *host, const struct hsdp_param_spec *spec, int32_t status)
{
    uint32_t index = UINT32_MAX;

    numbers_refused(host, host->api->plan->add_param(host->plan, spec, &index, &host->err), status);
    numbers_expect(index == UINT32_MAX, "a call that is refused has an output");
    numbers_expect(status != HSDP_ERR_INVALID || spec->name == NULL || spec->name[0] == '\0' ||
                       strstr(host->err.message, spec->name) != NULL,
                   "\"%s\" does not name the parameter \"%s\"", host->err.message, spec->name);
}

/* The plan is still good. */
static void plan_close(struct host *host)
{
    struct hsdp_param_spec spec = param_of("last");
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;

    param_add(host, &spec);
    host_must(host, host->api->plan->finish(host->plan, &host->err));
    host_must(host, host->api->plan->info(host->plan, &info, &host->err));
    host_leave(host);
}

/* ------------------------------------------------------------------------------------- refusals */

void plan_wrong_classes(struct conform *conform)
{
    static const struct {
        const char *name, *over, *reduced, *key, *value;
    } rows[] = {
        {"dense", NULL, NULL, NULL, NULL},
        {"", NULL, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
        {"x", "foo", NULL, NULL, NULL},
        {"x", "dp,dp", NULL, NULL, NULL},
        {"x", "dp", "dp,ep", NULL, NULL},
        {"x", "dp", "ep", NULL, NULL},
        {"x", "dp", "foo", NULL, NULL},
        {"x", NULL, NULL, "foo", "1"},
        {"x", NULL, NULL, "param_dtype", "fp8"},
        {"x", NULL, NULL, "gradient_divisor", "0"},
    };
    struct host host;

    plan_open(conform, &host, "dp=2,ep=2");
    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
        uint32_t index = UINT32_MAX;

        numbers_note("row %u", i);
        spec.name = rows[i].name;
        spec.replicated_over = rows[i].over;
        spec.reduced_over = rows[i].reduced;
        spec.settings =
            (struct hsdp_settings){&rows[i].key, &rows[i].value, rows[i].key == NULL ? 0 : 1};
        numbers_refused(&host, host.api->plan->add_class(host.plan, &spec, &index, &host.err),
                        HSDP_ERR_INVALID);
        numbers_expect(i != 0 || strstr(host.err.message, "dense") != NULL,
                       "\"%s\" does not name the class", host.err.message);
    }
    plan_close(&host);
}

void plan_wrong_units(struct conform *conform)
{
    static const char *const names[] = {
        "a", "", NULL, "n234567890123456789012345678901234567890123456789012345678901234"};
    const struct hsdp_plan_ops *ops;
    uint32_t index = UINT32_MAX;
    struct host host;

    plan_open(conform, &host, "dp=2");
    ops = host.api->plan;
    for (uint32_t i = 0; i < NUMBERS_N(names); i++) {
        numbers_note("unit \"%s\"", names[i] == NULL ? "(NULL)" : names[i]);
        numbers_refused(&host, ops->add_unit(host.plan, names[i], 0, &index, &host.err),
                        HSDP_ERR_INVALID);
    }
    numbers_note("%s", "");
    numbers_refused(&host, ops->add_unit(host.plan, "b", 1, &index, &host.err), HSDP_ERR_INVALID);
    plan_close(&host);
}

void plan_wrong_params(struct conform *conform)
{
    static const int64_t negative[] = {5, -1};
    static const int64_t huge[] = {INT64_C(1) << 31, INT64_C(1) << 31};
    static const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct hsdp_param_spec spec = param_of("w");
    struct host host;

    plan_open(conform, &host, "dp=2");
    numbers_expect(param_add(&host, &spec) == 0, "the first parameter is not 0");
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec = param_of("");
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec = param_of(NULL);
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec = param_of("x");
    spec.shape = negative;
    spec.n_dims = 2;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.shape = huge;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.shape = nine;
    spec.n_dims = 9;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec = param_of("x");
    spec.unit = 1;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec = param_of("x");
    spec.flags = 4;
    param_refused(&host, &spec, HSDP_ERR_UNSUPPORTED);
    plan_close(&host);
}

void plan_wrong_ties(struct conform *conform)
{
    static const int64_t other_shape[] = {7};
    struct hsdp_param_spec spec = param_of("w");
    uint32_t index = 0;
    struct host host;

    plan_open(conform, &host, "pp=4,dp=2");
    param_add(&host, &spec);
    spec = param_of("x");
    spec.tied_to = "foo";
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.tied_to = "w";
    spec.shape = other_shape;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.shape = shape_5;
    spec.flags = HSDP_PARAM_FROZEN;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.flags = 0;
    spec.hyper_group = 1;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.hyper_group = 0;
    spec.block_elems = 2;
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.block_elems = 0;
    spec.tied_to = NULL;
    spec.tied_over = "dp";
    param_refused(&host, &spec, HSDP_ERR_INVALID);
    spec.tied_over = "pp[0,9]";
    numbers_refused(&host, host.api->plan->add_param(host.plan, &spec, &index, &host.err),
                    HSDP_ERR_INVALID);
    spec.tied_over = "pp[1,-1]";
    param_refused(&host, &spec, HSDP_ERR_NOT_MEMBER);
    plan_close(&host);
}

/* Adds to unit `unit` a parameter that is tied to another one. */
static void name_add(struct host *host, const char *name, uint32_t unit, const char *tied_to)
{
    struct hsdp_param_spec spec = param_of(name);

    spec.unit = unit;
    spec.tied_to = tied_to;
    param_add(host, &spec);
}

void plan_finish_refusals(struct conform *conform)
{
    uint32_t unit;
    struct host host;

    plan_open(conform, &host, "dp=2");
    host_must(&host, host.api->plan->add_unit(host.plan, "lonely", 0, &unit, &host.err));
    name_add(&host, "w", 0, NULL);
    numbers_refused(&host, host.api->plan->finish(host.plan, &host.err), HSDP_ERR_INVALID);
    numbers_expect(strstr(host.err.message, "lonely") != NULL, "\"%s\" does not name the unit",
                   host.err.message);
    name_add(&host, "x", 1, NULL);
    plan_close(&host);
    plan_open(conform, &host, "dp=2");
    host_must(&host, host.api->plan->add_unit(host.plan, "b", 0, &unit, &host.err));
    name_add(&host, "w", 0, NULL);
    name_add(&host, "x", 1, NULL);
    name_add(&host, "y", 1, "w");
    name_add(&host, "z", 0, "x");
    numbers_refused(&host, host.api->plan->finish(host.plan, &host.err), HSDP_ERR_INVALID);
    host_leave(&host);
}

/* --------------------------------------------------------------------------- before and after */

static void readers_refused(struct host *host)
{
    struct hsdp_plan_info plan_info = HSDP_PLAN_INFO_INIT;
    struct hsdp_class_info class_info = HSDP_CLASS_INFO_INIT;
    struct hsdp_unit_info unit_info = HSDP_UNIT_INFO_INIT;
    struct hsdp_buffer_info buffer_info = HSDP_BUFFER_INFO_INIT;
    struct hsdp_param_info param_info = HSDP_PARAM_INFO_INIT;
    const struct hsdp_plan_ops *ops = host->api->plan;
    struct hsdp_error *err = &host->err;
    struct hsdp_segment segment;
    uint64_t number = 0;
    uint32_t index = 0;
    char text[8];

    numbers_refused(host, ops->info(host->plan, &plan_info, err), HSDP_ERR_STATE);
    numbers_refused(host, ops->class_info(host->plan, 0, &class_info, err), HSDP_ERR_STATE);
    numbers_refused(host, ops->unit_info(host->plan, 0, &unit_info, err), HSDP_ERR_STATE);
    numbers_refused(host, ops->buffer_info(host->plan, 0, 0, &buffer_info, err), HSDP_ERR_STATE);
    numbers_refused(host, ops->param_info(host->plan, 0, &param_info, err), HSDP_ERR_STATE);
    numbers_refused(host, ops->param_find(host->plan, "w", &index, err), HSDP_ERR_STATE);
    numbers_refused(host,
                    ops->segments(host->plan, 0, HSDP_SHARD_STEP, 0, &segment, sizeof(segment), 1,
                                  &number, err),
                    HSDP_ERR_STATE);
    numbers_refused(host, ops->writer(host->plan, 0, HSDP_SHARD_STEP, 0, &index, err),
                    HSDP_ERR_STATE);
    numbers_refused(host, ops->report(host->plan, text, sizeof(text), &number, err),
                    HSDP_ERR_STATE);
}

void plan_early(struct conform *conform)
{
    struct hsdp_param_spec spec = param_of("w");
    struct host host;

    plan_open(conform, &host, "dp=2");
    param_add(&host, &spec);
    readers_refused(&host);
    plan_close(&host);
}

void plan_late(struct conform *conform)
{
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec spec = param_of("w");
    const struct hsdp_plan_ops *ops;
    uint32_t index = 0;
    struct host host;

    plan_open(conform, &host, "dp=2");
    ops = host.api->plan;
    param_add(&host, &spec);
    host_must(&host, ops->finish(host.plan, &host.err));
    class_spec.name = "more";
    numbers_refused(&host, ops->add_class(host.plan, &class_spec, &index, &host.err),
                    HSDP_ERR_STATE);
    numbers_refused(&host, ops->add_unit(host.plan, "more", 0, &index, &host.err), HSDP_ERR_STATE);
    spec = param_of("more");
    numbers_refused(&host, ops->add_param(host.plan, &spec, &index, &host.err), HSDP_ERR_STATE);
    numbers_refused(&host, ops->finish(host.plan, &host.err), HSDP_ERR_STATE);
    host_leave(&host);
}

/* All that the host has passed is gone or overwritten by the time it is read back. */
void plan_outlives_mesh(struct conform *conform)
{
    char name[] = "weight";
    int64_t shape[] = {5, 7};
    struct hsdp_param_spec spec = param_of(name);
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;
    uint32_t found = UINT32_MAX;
    struct host host;

    plan_open(conform, &host, "dp=2");
    spec.shape = shape;
    spec.n_dims = 2;
    param_add(&host, &spec);
    memset(name, 'x', sizeof(name) - 1);
    shape[0] = 99;
    host.api->mesh->destroy(host.mesh);
    host.mesh = NULL;
    host_must(&host, host.api->plan->finish(host.plan, &host.err));
    host_must(&host, host.api->plan->param_find(host.plan, "weight", &found, &host.err));
    host_must(&host, host.api->plan->param_info(host.plan, found, &info, &host.err));
    numbers_expect(found == 0 && strcmp(info.name, "weight") == 0 && info.n_dims == 2 &&
                       info.shape[0] == 5 && info.shape[1] == 7 && info.n_elems == 35,
                   "parameter %u is \"%s\" of %u elements", found, info.name,
                   (unsigned)info.n_elems);
    numbers_refused(&host, host.api->plan->param_find(host.plan, "foo", &found, &host.err),
                    HSDP_ERR_INVALID);
    host_leave(&host);
}

/* --------------------------------------------------------------------------------------- report */

void plan_report_text(struct conform *conform)
{
    static const char *const members[] = {"mesh",    "settings", "classes", "units",
                                          "padding", "slots",    "memory",  "notes"};
    json_error_t json_err;
    uint64_t n_bytes = 0, again = 0;
    char *text;
    json_t *json, *classes;
    struct host host;

    numbers_begin(conform);
    host_arrange(&host, 0, "dp=2,ep=2");
    host_plan(&host, "", "unit a: w[97]; class expert(dp); unit e: x[5]!");
    numbers_refused(&host, host.api->plan->report(host.plan, NULL, 0, &n_bytes, &host.err),
                    HSDP_ERR_BUFFER_TOO_SMALL);
    text = malloc(n_bytes + 1);
    numbers_expect(text != NULL, "the kit has no memory");
    memset(text, 0x7f, n_bytes + 1);
    numbers_refused(&host, host.api->plan->report(host.plan, text, n_bytes - 1, &again, &host.err),
                    HSDP_ERR_BUFFER_TOO_SMALL);
    host_must(&host, host.api->plan->report(host.plan, text, n_bytes, &again, &host.err));
    numbers_expect(again == n_bytes && text[n_bytes - 1] == '\0' && text[n_bytes] == 0x7f,
                   "the report of %u bytes does not end with its NUL", (unsigned)n_bytes);
    json = json_loads(text, 0, &json_err);
    numbers_expect(json_is_object(json), "it is no object: %s", json_err.text);
    for (uint32_t i = 0; i < NUMBERS_N(members); i++) {
        numbers_expect(json_object_get(json, members[i]) != NULL, "it has no member \"%s\"",
                       members[i]);
    }
    classes = json_object_get(json, "classes");
    for (size_t i = 0; i < 2; i++) {
        numbers_expect(json_object_get(json_array_get(classes, i), "traffic_per_step") != NULL,
                       "class %u has no member \"traffic_per_step\"", (unsigned)i);
    }
    json_decref(json);
    free(text);
    host_leave(&host);
}
