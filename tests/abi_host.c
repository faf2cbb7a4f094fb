/* SPDX-License-Identifier: Apache-2.0 */
/* A host of one rank, and memory in which a byte too far is a fault. */
#include "abi_host.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ranks.h"

void abi_must(int32_t status, const struct hsdp_error *err)
{
    ck_assert_msg(status == HSDP_OK, "status %d: %s", (int)status, err->message);
}

hsdp_plugin_v1_fn abi_entry(void)
{
    const char *path = getenv("HSDP_TEST_PLUGIN");
    void *library;
    void *symbol;
    hsdp_plugin_v1_fn entry;

    ck_assert_msg(path != NULL, "HSDP_TEST_PLUGIN does not name a plugin");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", library == NULL ? dlerror() : "");
    symbol = dlsym(library, HSDP_ENTRY_SYMBOL);
    ck_assert_ptr_nonnull(symbol);
    memcpy(&entry, &symbol, sizeof(entry));
    return entry;
}

const struct hsdp_api *abi_load(void)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const struct hsdp_api *api = NULL;

    abi_must(abi_entry()(HSDP_ABI_MAJOR, HSDP_ABI_MINOR, &api, &err), &err);
    ck_assert_ptr_nonnull(api);
    return api;
}

const struct hsdp_adamw_ops *abi_adamw(const struct hsdp_api *api)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const void *ops = NULL;

    abi_must(api->extension(HSDP_ADAMW_EXTENSION, &ops, &err), &err);
    return ops;
}

hsdp_mesh *abi_mesh(const struct hsdp_api *api)
{
    const int64_t sizes[] = {1};
    const char *names[] = {"dp"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_mesh *mesh = NULL;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 1;
    abi_must(api->mesh->create(&spec, &mesh, &err), &err);
    return mesh;
}

hsdp_plan *abi_plan(const struct hsdp_api *api, hsdp_mesh *mesh)
{
    const char *keys[] = {"sharding_strategy"};
    const char *values[] = {"hsdp"};
    struct hsdp_settings settings = {keys, values, 1};
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plan *plan = NULL;
    uint32_t index = 7;

    abi_must(api->plan->create(mesh, &settings, &plan, &err), &err);
    dense.name = "dense";
    abi_must(api->plan->add_class(plan, &dense, &index, &err), &err);
    ck_assert_uint_eq(index, 0);
    return plan;
}

static void plan_fill(const struct abi_host *host)
{
    const int64_t shape[] = {2, 3};
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t index;

    abi_must(host->api->plan->add_unit(host->plan, "u", 0, &param.unit, &err), &err);
    param.name = "p";
    param.shape = shape;
    param.n_dims = 2;
    abi_must(host->api->plan->add_param(host->plan, &param, &index, &err), &err);
    abi_must(host->api->plan->finish(host->plan, &err), &err);
}

void abi_host_init(struct abi_host *ret)
{
    abi_host_open(ret, abi_load());
}

void abi_host_open(struct abi_host *ret, const struct hsdp_api *api)
{
    struct hsdp_job_spec job = HSDP_JOB_SPEC_INIT;
    struct hsdp_group_spec group = HSDP_GROUP_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;

    ranks_environment_clear();
    ret->api = api;
    ret->mesh = abi_mesh(ret->api);
    abi_must(ret->api->job->create(&job, &ret->job, &err), &err);
    abi_must(ret->api->job->connect(ret->job, &err), &err);
    group.selector = "dp";
    abi_must(ret->api->group->create(ret->job, ret->mesh, &group, &ret->group, &err), &err);
    abi_must(ret->api->group->connect(ret->job, &err), &err);
    ret->plan = abi_plan(ret->api, ret->mesh);
    plan_fill(ret);
    abi_must(ret->api->model->create(ret->job, ret->plan, &ret->model, &err), &err);
}

void abi_host_fini(struct abi_host *host)
{
    host->api->model->destroy(host->model);
    host->api->plan->destroy(host->plan);
    host->api->group->destroy(host->group);
    host->api->job->destroy(host->job);
    host->api->mesh->destroy(host->mesh);
}

void abi_step_begin(const struct abi_host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;

    abi_must(host->api->step->begin(host->model, &spec, NULL, &err), &err);
}

void *abi_guarded(size_t n_bytes, int filler)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = (n_bytes + 7) / 8 * 8;
    size_t n_pages = (rounded + page - 1) / page;
    unsigned char *memory = mmap(NULL, (n_pages + 1) * page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *wall;

    ck_assert_ptr_ne(memory, MAP_FAILED);
    wall = memory + n_pages * page;
    ck_assert_int_eq(mprotect(wall, page, PROT_NONE), 0);
    memset(memory, filler, n_pages * page);
    return wall - rounded;
}

void *abi_guarded_copy(const void *object, size_t full_bytes, size_t n_bytes)
{
    size_t n_room = n_bytes < sizeof(size_t) ? sizeof(size_t) : n_bytes;
    unsigned char *copy = abi_guarded(n_room, 0);

    memcpy(copy, object, full_bytes < n_room ? full_bytes : n_room);
    memcpy(copy, &n_bytes, sizeof(n_bytes));
    return copy;
}

int abi_is_filled(const void *memory, size_t n_bytes, int filler)
{
    const unsigned char *bytes = memory;

    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] != (unsigned char)filler) {
            return 0;
        }
    }
    return 1;
}
