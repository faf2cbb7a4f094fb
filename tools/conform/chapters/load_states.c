/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: optimizer states, replicas made equal, and plans that ranks do not share. */

#include "loading.h"

static uint32_t state_make(struct host *host, const char *name, const char *dtype)
{
    uint32_t state = UINT32_MAX;

    host_must(host, host->api->model->state_create(host->model, name, dtype, &state, &host->err));
    return state;
}

static struct hsdp_tensor flat_of(struct host *host, uint32_t unit, int32_t flat)
{
    struct hsdp_tensor view;

    host_must(host, host->api->model->flat_view(host->model, unit, 0, flat, &view, &host->err));
    return view;
}

static void state_expect(struct host *host, uint32_t state, double offset)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values;

        if (host->params[param].is_frozen) {
            continue;
        }
        values = host_export(host, param, HSDP_FLAT_STATE + (int32_t)state);
        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            host_expect_number(host, host->params[param].name, elem, (double)values[elem],
                               numbers_small((struct host_at){0, 0, param, elem}) + offset);
        }
    }
}

static void state_load(struct host *host, uint32_t state)
{
    load_edit_begin(host);
    for (uint32_t param = 0; param < host->n_params; param++) {
        float values[2048] = {0};
        struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

        if (host->params[param].is_frozen) {
            continue;
        }
        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            values[elem] = (float)numbers_small((struct host_at){0, 0, param, elem});
        }
        host_must(host, load_import(host, param, HSDP_FLAT_STATE + (int32_t)state, &full,
                                    HSDP_ALL_RANKS));
    }
    load_edit_end(host);
}

static void state_run(struct host *host)
{
    uint32_t state = state_make(host, "momentum", "fp32");
    float values[1];
    struct hsdp_tensor full = host_tensor(host, 1, values, "fp32");
    struct hsdp_tensor view = flat_of(host, 0, HSDP_FLAT_STATE + (int32_t)state);

    for (uint64_t i = 0; i < (uint64_t)view.shape[0]; i++) {
        host_expect_number(host, "a new state", i, host_read(&view, i), 0.0);
    }
    state_load(host, state);
    state_expect(host, state, 0.0);
    numbers_refused(host,
                    load_export(host, 1, HSDP_FLAT_STATE + (int32_t)state, &full, HSDP_ALL_RANKS),
                    HSDP_ERR_INVALID); /* it is frozen */
}

void load_state(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97] k[1]!; unit b: x[1031]",
                                               state_run};

    numbers_try(conform, &trial);
}

static void dtypes_run(struct host *host)
{
    for (uint32_t i = 0; i < HOST_N_DTYPES; i++) {
        uint32_t state = state_make(host, host_dtypes[i], host_dtypes[i]);
        struct hsdp_tensor view = flat_of(host, 0, HSDP_FLAT_STATE + (int32_t)state);
        const char *name = NULL;
        const char *dtype = NULL;

        host_must(host,
                  host->api->model->state_info(host->model, state, &name, &dtype, &host->err));
        numbers_expect(strcmp(name, host_dtypes[i]) == 0 && strcmp(dtype, host_dtypes[i]) == 0,
                       "state %u is \"%s\" of %s", state, name, dtype);
        numbers_expect(view.dtype_bits == (i == 0 ? 32 : 16) &&
                           view.dtype_code == (i == 1 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT),
                       "the view of a state of %s is of dtype code %u with %u bits", host_dtypes[i],
                       view.dtype_code, view.dtype_bits);
        state_load(host, state);
        state_expect(host, state, 0.0);
    }
}

void load_state_dtypes(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]", dtypes_run};

    numbers_try(conform, &trial);
}

static void names_run(struct host *host)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    const char *name;
    const char *dtype;
    uint32_t state = 0;

    numbers_expect(state_make(host, "a", "fp32") == 0, "the first state is not 0");
    numbers_expect(state_make(host, "b", "bf16") == 1, "the second state is not 1");
    numbers_expect(state_make(host, "a", "fp32") == 0, "the same state is another one");
    numbers_refused(host,
                    host->api->model->state_create(host->model, "a", "bf16", &state, &host->err),
                    HSDP_ERR_INVALID);
    host_must(host, host->api->model->info(host->model, &info, &host->err));
    numbers_expect(info.n_states == 2, "there are %u states", info.n_states);
    numbers_refused(host, host->api->model->state_info(host->model, 2, &name, &dtype, &host->err),
                    HSDP_ERR_INVALID);
}

void load_state_names(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]", names_run};

    numbers_try(conform, &trial);
}

/* Each step adds one to what is no padding; masters and parameters are not touched. */
static void through_run(struct host *host)
{
    uint32_t state = state_make(host, "momentum", "fp32");
    struct hsdp_tensor view = flat_of(host, 0, HSDP_FLAT_STATE + (int32_t)state);
    struct hsdp_segment segments[HOST_MAX_PARAMS];
    uint64_t n_segments = 0;

    host_must(host, host->api->plan->segments(host->plan, 0, HSDP_SHARD_STEP, host->rank, segments,
                                              sizeof(segments[0]), HOST_MAX_PARAMS, &n_segments,
                                              &host->err));
    state_load(host, state);
    for (int step = 1; step <= 3; step++) {
        numbers_step(host, numbers_one);
        for (uint64_t i = 0; n_segments > 0 && i < segments[0].n_elems; i++) {
            uint64_t place = segments[0].shard_offset_elems + i;

            host_write(&view, place, host_read(&view, place) + 1.0);
        }
        host_step_end(host);
        state_expect(host, state, step);
    }
    host_expect_param(host, "w", 0.0);
}

void load_state_through_steps(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]", through_run};

    numbers_try(conform, &trial);
}

/* ---------------------------------------------------------------------------------------- sync */

/* Each rank fills what it has of a flat buffer with its own number. */
static void flat_fill(struct host *host, int32_t flat)
{
    struct hsdp_segment segments[HOST_MAX_PARAMS];
    struct hsdp_tensor view = flat_of(host, 0, flat);
    uint64_t n_segments = 0;

    host_must(host, host->api->plan->segments(host->plan, 0, HSDP_SHARD_STEP, host->rank, segments,
                                              sizeof(segments[0]), HOST_MAX_PARAMS, &n_segments,
                                              &host->err));
    for (uint64_t s = 0; s < n_segments; s++) {
        for (uint64_t i = 0; i < segments[s].n_elems; i++) {
            host_write(&view, segments[s].shard_offset_elems + i, host->rank);
        }
    }
}

/* The rank that has the first of the replicas of an element. */
static double first_owner(struct host *host, uint64_t elem)
{
    for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
        struct hsdp_segment segments[HOST_MAX_PARAMS];
        uint64_t n_segments = 0;

        host_must(host, host->api->plan->segments(host->plan, 0, HSDP_SHARD_STEP, rank, segments,
                                                  sizeof(segments[0]), HOST_MAX_PARAMS, &n_segments,
                                                  &host->err));
        for (uint64_t s = 0; s < n_segments; s++) {
            if (elem - segments[s].param_offset_elems < segments[s].n_elems) {
                return rank;
            }
        }
    }
    return -1.0;
}

static void owners_expect(struct host *host, int32_t flat)
{
    const float *values = host_export(host, 0, flat);

    for (uint64_t elem = 0; elem < host->params[0].n_elems; elem += 7) {
        host_expect_number(host, "w", elem, (double)values[elem], first_owner(host, elem));
    }
}

/* Under hsdp of 2 x 2: ranks 0 and 1 have the first halves, ranks 2 and 3 theirs again. */
static void sync_run(struct host *host)
{
    struct hsdp_tensor view = host_view(host, 0, HSDP_VIEW_PARAM);

    load_edit_begin(host);
    flat_fill(host, HSDP_FLAT_MASTER);
    host_must(host, host->api->model->sync(host->model, NULL, &host->err));
    load_edit_end(host);
    owners_expect(host, HSDP_FLAT_MASTER);
    host_must(host, host_unshard(host, 0, HSDP_USE_FORWARD));
    for (uint64_t elem = 0; elem < host->params[0].n_elems; elem += 7) {
        host_expect_number(host, "w unsharded", elem, host_read(&view, elem),
                           first_owner(host, elem));
    }
    host_must(host, host_release(host, 0));
}

void load_sync(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", "unit a: w[4099]", sync_run};

    numbers_try(conform, &trial);
}

/* Every rank passes its own values, as if they were equal. */
static void unequal_run(struct host *host)
{
    float values[97];
    struct hsdp_tensor full = host_tensor(host, 0, values, "fp32");

    load_edit_begin(host);
    for (uint32_t elem = 0; elem < 97; elem++) {
        values[elem] = (float)host->rank;
    }
    host_must(host, load_import(host, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    host_must(host, host->api->model->sync(host->model, NULL, &host->err));
    load_edit_end(host);
    owners_expect(host, HSDP_FLAT_MASTER);
    load_edit_begin(host);
    host_must(host, load_import(host, 0, HSDP_FLAT_MASTER, &full, 2));
    load_edit_end(host);
    host_expect_param(host, "w", 2.0);
}

void load_sync_of_import(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", "unit a: w[97]",
                                               unequal_run};

    numbers_try(conform, &trial);
}

static void states_run(struct host *host)
{
    int32_t flat = HSDP_FLAT_STATE + (int32_t)state_make(host, "momentum", "fp32");

    load_edit_begin(host);
    flat_fill(host, flat);
    host_must(host, host->api->model->sync(host->model, NULL, &host->err));
    load_edit_end(host);
    owners_expect(host, flat);
}

void load_sync_of_states(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", "unit a: w[4099]",
                                               states_run};

    numbers_try(conform, &trial);
}

/* Two stages hold copies of w: the second one's are spoilt; v is each stage's own. */
static void stages_run(struct host *host)
{
    load_edit_begin(host);
    for (uint32_t param = 0; param < 2; param++) {
        float values[97];
        struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

        for (uint32_t elem = 0; elem < 97; elem++) {
            values[elem] = (float)(host->rank / 2 + 1);
        }
        host_must(host, load_import(host, param, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    }
    host_must(host, host->api->model->sync(host->model, NULL, &host->err));
    load_edit_end(host);
    host_expect_param(host, "w", 1.0);
    host_expect_param(host, "v", host->rank / 2 + 1.0);
}

void load_sync_of_stages(struct conform *conform)
{
    static const struct numbers_trial trial = {"pp=2,dp=2", "", "unit a: w[97]~pp[0,1] v[97]",
                                               stages_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------ other plans */

/* Each time the second rank plans something else. */
void load_plans_that_differ(struct conform *conform)
{
    static const struct {
        const char *settings[2];
        const char *units[2];
    } rows[] = {
        {{"", ""}, {"unit a: w[97]", "unit a: w[98]"}},
        {{"", ""}, {"unit a: w[97]", "unit a: x[97]"}},
        {{"", ""}, {"unit a: w[97]", "unit a: w[97]; unit b: x[1]"}},
        {{"", ""}, {"unit a: w[97]", "unit a: w[97]!"}},
        {{"", "reduce_dtype=bf16"}, {"unit a: w[97]", "unit a: w[97]"}},
        {{"sharding_strategy=hsdp", "sharding_strategy=fsdp"}, {"unit a: w[97]", "unit a: w[97]"}},
    };
    char name[] = "plans-0";

    numbers_begin(conform);
    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        const char *units = rows[i].units[conform->rank];
        const char *settings = rows[i].settings[conform->rank];
        struct host host;
        int32_t status;

        numbers_note("\"%s %s\" and \"%s %s\"", rows[i].settings[0], rows[i].units[0],
                     rows[i].settings[1], rows[i].units[1]);
        name[6] = (char)('0' + i);
        host_join_as(&host, conform->rank, "dp=2", "", name);
        host_plan(&host, settings, units);
        host_enter("model.create");
        status = host.api->model->create(host.job, host.plan, &host.model, &host.err);
        host_enter("");
        numbers_refused(&host, status, HSDP_ERR_MISMATCH);
        numbers_expect(strstr(host.err.message, "rank 1") != NULL, "\"%s\" names no rank",
                       host.err.message);
        numbers_expect(host.model == NULL, "a model was handed out beside a failure");
        numbers_refused(&host, host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
        conform_meet(conform);
        host_leave(&host);
    }
}

static void plan_refused(struct host *host, const struct hsdp_mesh_spec *spec)
{
    hsdp_mesh *mesh = NULL;
    hsdp_mesh *own = host->mesh;

    host_must(host, host->api->mesh->create(spec, &mesh, &host->err));
    host->mesh = mesh;
    host_plan(host, "", "unit a: w[5]");
    numbers_refused(host, host->api->model->create(host->job, host->plan, &host->model, &host->err),
                    HSDP_ERR_INVALID);
    host->api->plan->destroy(host->plan);
    host->plan = NULL;
    host->mesh = own;
    host->api->mesh->destroy(mesh);
}

void load_model_of_other_world(struct conform *conform)
{
    static const int64_t sizes[][1] = {{4}, {2}};
    static const char *const names[] = {"dp"};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    spec.dim_names = names;
    spec.n_dims = 1;
    spec.dim_sizes = sizes[0];
    spec.rank = conform->rank;
    plan_refused(&host, &spec);
    spec.dim_sizes = sizes[1];
    spec.rank = 1 - conform->rank;
    plan_refused(&host, &spec);
    host_plan(&host, "", "unit a: w[5]");
    host_model(&host);
    host_close(&host);
}
