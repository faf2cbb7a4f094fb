/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: what no plan can be, what outlives what it was made of, and the report. */
#include <jansson.h>
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
    host_needs(HOST_PLAN, "");
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

/* ---------------------------------------------------------------------------------- finishing */

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
