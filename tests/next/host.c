/* SPDX-License-Identifier: Apache-2.0 */
/* A host of the next minor version, on a plugin of this one ("older") or of its own ("newer"). */
#include <stdio.h>
#include <string.h>

#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

#define LATER   5u /* what a newer plugin knows */
#define GARBAGE 7u /* what lies in an output before the call */

typedef int32_t (*later_fn)(uint64_t *ret_value, struct hsdp_error *reterr);

static int n_wrong;

static void expect(const char *what, int is_so)
{
    if (!is_so) {
        printf("not so: %s\n", what);
        n_wrong++;
    }
}

/* What was appended to a table; NULL where it does not reach so far. */
#define LATER_OF(table) (HSDP_HAS(table, later) ? (table)->later : NULL)

static void tables_check(const struct hsdp_api *api, int is_newer)
{
    const void *found = NULL;
    const struct hsdp_adamw_ops *adamw = NULL;

    expect("the extension is found", api->extension(HSDP_ADAMW_EXTENSION, &found, NULL) == HSDP_OK);
    adamw = found;
    const later_fn added[] = {LATER_OF(api),        LATER_OF(api->mesh), LATER_OF(api->job),
                              LATER_OF(api->group), LATER_OF(api->plan), LATER_OF(api->model),
                              LATER_OF(api->unit),  LATER_OF(api->step), LATER_OF(api->diag),
                              LATER_OF(adamw)};
    for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++) {
        uint64_t value = GARBAGE;

        expect("a table has what was appended when the plugin is newer",
               (added[i] != NULL) == is_newer);
        expect("what was appended can be called",
               added[i] == NULL || (added[i](&value, NULL) == HSDP_OK && value == 0));
    }
    expect("a table has what it always had", HSDP_HAS(api->mesh, destroy));
    expect("the plugin says its own minor version",
           api->abi_minor == (is_newer ? HSDP_ABI_MINOR : HSDP_ABI_MINOR - 1));
}

static int32_t mesh_make(const struct hsdp_api *api, uint64_t later, hsdp_mesh **ret_mesh,
                         struct hsdp_error *reterr)
{
    static const int64_t sizes[] = {2};
    static const char *const names[] = {"dp"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 1;
    spec.later = later;
    return api->mesh->create(&spec, ret_mesh, reterr);
}

/* The new field of an output is what the plugin knows, or zero. */
static void info_check(const struct hsdp_api *api, const hsdp_mesh *mesh, uint64_t later)
{
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;

    info.later = GARBAGE;
    expect("info is given", api->mesh->info(mesh, &info, NULL) == HSDP_OK);
    expect("info holds what it always held", info.world_ranks == 2 && info.n_dims == 1);
    expect("the new field of info is set or zero", info.later == later);
    expect("info keeps the size that the host gave", info.struct_size == sizeof(info));
}

static void field_unset_check(const struct hsdp_api *api)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_mesh *mesh = NULL;

    expect("a longer struct with zeros is accepted", mesh_make(api, 0, &mesh, &err) == HSDP_OK);
    info_check(api, mesh, 0);
    api->mesh->destroy(mesh);
}

static void field_set_check(const struct hsdp_api *api, int is_newer)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_mesh *mesh = NULL;
    int32_t status;

    err.later = GARBAGE;
    status = mesh_make(api, LATER, &mesh, &err);
    if (is_newer) {
        expect("a field that the plugin knows is accepted", status == HSDP_OK);
        info_check(api, mesh, LATER);
        api->mesh->destroy(mesh);
        return;
    }
    expect("a field that the plugin does not know is unsupported", status == HSDP_ERR_UNSUPPORTED);
    expect("nothing is made", mesh == NULL);
    expect("the sentence names the field", strstr(err.message, "sets a field at byte ") != NULL);
    expect("the new field of an error is zero", err.later == 0);
}

/* Inputs that need nothing but a table or a mesh. */
static void inputs_check(const struct hsdp_api *api)
{
    struct hsdp_job_spec job_spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    hsdp_mesh *mesh = NULL;
    hsdp_plan *plan = NULL;
    hsdp_job *job = NULL;
    uint32_t index = GARBAGE;

    job_spec.later = 1;
    expect("job.create refuses what it does not know",
           api->job->create(&job_spec, &job, NULL) == HSDP_ERR_UNSUPPORTED && job == NULL);
    expect("a mesh", mesh_make(api, 0, &mesh, NULL) == HSDP_OK);
    expect("a plan", api->plan->create(mesh, NULL, &plan, NULL) == HSDP_OK);
    class_spec.name = "dense";
    class_spec.later = 1;
    expect("plan.add_class refuses what it does not know",
           api->plan->add_class(plan, &class_spec, &index, NULL) == HSDP_ERR_UNSUPPORTED);
    class_spec.later = 0;
    expect("and has not added it", index == GARBAGE &&
                                       api->plan->add_class(plan, &class_spec, &index, NULL) == 0 &&
                                       index == 0);
    api->plan->destroy(plan);
    api->mesh->destroy(mesh);
}

int main(int argc, char **argv)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;
    const struct hsdp_api *api;
    int is_newer = argc == 2 && strcmp(argv[1], "newer") == 0;

    if (argc != 2 || hsdp_plugin_load(NULL, &plugin, &err) != HSDP_OK) {
        printf("%s\n", argc != 2 ? "usage: host older|newer" : err.message);
        return 2;
    }
    api = hsdp_plugin_api(plugin);
    tables_check(api, is_newer);
    field_unset_check(api);
    field_set_check(api, is_newer);
    if (!is_newer) {
        inputs_check(api);
    }
    hsdp_plugin_unload(plugin);
    return n_wrong == 0 ? 0 : 1;
}
