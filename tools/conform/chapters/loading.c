/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: edits, import and export, states, and replicas made equal. */
#include "loading.h"

#define IMPORT "model.h: import_param, export_param"
#define EDIT   "model.h: edit_begin, edit_end"
#define STATES "model.h: state_create, state_info"
#define SYNC   "model.h: sync"
#define CREATE "model.h: create"

static const struct conform_check checks[] = {
    {"all values are zero until they are edited", CREATE, load_begins_with_zeros, 2, 0, 0},
    {"what is imported is unsharded and exported", IMPORT, load_then_save, 4, 0, 0},
    {"an import from one rank reaches all", IMPORT, load_from_one_rank, 4, 0, 0},
    {"an export to one rank reaches it alone", IMPORT, load_to_one_rank, 4, 0, 0},
    {"import and export convert dtypes", IMPORT, load_dtypes, 2, 0, 0},
    {"import rounds to the nearest", IMPORT, load_rounds_to_nearest, 2, 0, 0},
    {"tensors may have strides and begin behind their base", IMPORT, load_tensors_with_offsets, 2,
     0, 0},
    {"what each rank writes to its slice reaches all", EDIT, load_own_slices, 4, 0, 0},
    {"one of the names of a storage will do", IMPORT, load_names, 2, 0, 0},
    {"frozen parameters are loaded and saved", IMPORT, load_frozen, 2, 0, 0},
    {"experts are loaded along their own dimensions", IMPORT, load_experts, 4, 0, 0},
    {"parameters of a megabyte and more", IMPORT, load_large, 2, 0, 0},
    {"loading between steps changes nothing else", EDIT, load_again_while_training, 2, 0, 0},
    {"who has other experts neither gives nor takes", IMPORT, load_of_a_stranger, 4, 0, 0},
    {"ranks that name other parameters mismatch", IMPORT, load_other_params, 2, 0, 0},
    {"a state is zero, written in edits, and saved", STATES, load_state, 2, 0, 0},
    {"a state has the dtype that was asked for", STATES, load_state_dtypes, 2, 0, 0},
    {"the same name and dtype is the same state", STATES, load_state_names, 2, 0, 0},
    {"a state is kept from step to step", STATES, load_state_through_steps, 2, 0, 0},
    {"sync gives replicas the values of the first", SYNC, load_sync, 4, 0, 0},
    {"sync after unequal imports takes the first replica's", SYNC, load_sync_of_import, 4, 0, 0},
    {"sync makes states equal, too", SYNC, load_sync_of_states, 4, 0, 0},
    {"sync gives copies on other stages the first one's", SYNC, load_sync_of_stages, 4, 0, 0},
    {"plans that differ are refused on all ranks", CREATE, load_plans_that_differ, 2, 0, 0},
    {"a plan of another world or rank is refused", CREATE, load_model_of_other_world, 2, 0, 0},
};

const struct conform_chapter conform_loading = {"loading", "edits, import, export, states, sync",
                                                checks, sizeof(checks) / sizeof(checks[0])};

void load_edit_begin(struct host *host)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
}

void load_edit_end(struct host *host)
{
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

int32_t load_import(struct host *host, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t source_rank)
{
    return host->api->model->import_param(host->model, param, flat, full, source_rank, NULL,
                                          &host->err);
}

int32_t load_export(struct host *host, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t target_rank)
{
    return host->api->model->export_param(host->model, param, flat, full, target_rank, NULL,
                                          &host->err);
}

void load_expect(struct host *host, uint32_t param, host_value value)
{
    const float *values = host_export(host, param, HSDP_FLAT_MASTER);
    struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
    const struct host_param *p = &host->params[param];
    struct host_at at = {host_holder(host, param, host->rank), 0, p->storage, 0};

    host_must(host, host_unshard(host, p->unit, HSDP_USE_FORWARD));
    for (at.elem = 0; at.elem < p->n_elems; at.elem++) {
        host_expect_number(host, p->name, at.elem, host_read(&view, at.elem), value(at));
        host_expect_number(host, p->name, at.elem, (double)values[at.elem], value(at));
    }
    host_must(host, host_release(host, p->unit));
}
