/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: functions on jobs. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"

#define KEY "nccl_timeout_seconds"

void job_nulls(struct conform *conform)
{
    const struct hsdp_job_ops *ops = conform->api->job;
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_open(&a, conform);
    arguments_refuse(&a, ops->create(NULL, &out->job, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->create(&spec, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->connect(NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->close(NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->abort(NULL, "why", a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->status(NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(NULL, &out->job_info, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->info(a.job, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting(NULL, KEY, &out->texts[0], &out->texts[1], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting(a.job, NULL, &out->texts[0], &out->texts[1], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting(a.job, KEY, NULL, &out->texts[1], a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting(a.job, KEY, &out->texts[0], NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting_set(NULL, KEY, "60", a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting_set(a.job, NULL, "60", a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting_set(a.job, KEY, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->phase_push(NULL, "save", 1000, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->phase_push(a.job, NULL, 1000, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->phase_pop(NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->ticket_wait(NULL, 0, 0, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->ticket_order(NULL, 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_accept(&a, ops->status(a.job, a.err));
    arguments_close(&a);
}

/* -------------------------------------------------------------------------------------- specs */

static int32_t store_put(void *user, const char *key, const void *value, uint64_t value_bytes)
{
    (void)user;
    (void)key;
    (void)value;
    (void)value_bytes;
    return 1;
}

static void *memory_alloc(void *user, uint64_t n_bytes, uint64_t align_bytes, int32_t kind,
                          void *stream)
{
    (void)user;
    (void)n_bytes;
    (void)align_bytes;
    (void)kind;
    (void)stream;
    return NULL;
}

static void spec_refuse(struct arguments *arguments, const char *what,
                        const struct hsdp_job_spec *spec)
{
    arguments_refuse_as(arguments, what,
                        arguments->api->job->create(spec, &arguments->out.job, arguments->err),
                        HSDP_ERR_INVALID);
}

/* Who says what it is by itself, but something that cannot be. */
static void identities_refuse(struct arguments *arguments)
{
    static const struct {
        const char *what;
        uint32_t rank;
        uint32_t world_ranks;
        uint32_t local_rank;
        uint32_t local_ranks;
    } wrong[] = {
        {"job.create: rank 2 in a world of 2", 2, 2, 0, 2},
        {"job.create: rank 4294967295 in a world of 1", UINT32_MAX, 1, 0, 1},
        {"job.create: local rank 2 of 2", 1, 2, 2, 2},
        {"job.create: 3 local ranks in a world of 2", 1, 2, 1, 3},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;

        spec.rank = wrong[i].rank;
        spec.world_ranks = wrong[i].world_ranks;
        spec.local_rank = wrong[i].local_rank;
        spec.local_ranks = wrong[i].local_ranks;
        spec_refuse(arguments, wrong[i].what, &spec);
    }
}

void job_specs(struct conform *conform)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct arguments a;
    char name[65];

    conform_needs_transport(conform);
    arguments_init(&a, conform);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    spec.name = name;
    spec_refuse(&a, "job.create: a name of 64 bytes", &spec);
    name[63] = '\0';
    arguments_accept(&a, a.api->job->create(&spec, &a.job, a.err));
    a.api->job->destroy(a.job);
    spec.name = "";
    spec_refuse(&a, "job.create: an empty name", &spec);
    spec.name = NULL;
    spec.kv_put = store_put;
    spec_refuse(&a, "job.create: kv_put without kv_get", &spec);
    spec.kv_put = NULL;
    spec.memory_alloc = memory_alloc;
    spec_refuse(&a, "job.create: memory_alloc without memory_free", &spec);
    identities_refuse(&a);
}

/* ----------------------------------------------------------------------------------- settings */

/* One thing at a time is wrong; "1 to 2147483647" and the like stand in job.h. */
static const char *const wrong_values[][2] = {
    {KEY, ""},
    {KEY, "true"},
    {KEY, "30s"},
    {KEY, "0x1f"},
    {KEY, " 30"},
    {KEY, "30 "},
    {KEY, "1.5"},
    {KEY, "1e3"},
    {KEY, "-5"},
    {KEY, "0"},
    {KEY, "2147483648"},
    {KEY, "99999999999999999999"},
    {"init_timeout_seconds", "0"},
    {"init_timeout_seconds", "179"},
    {"heartbeat_timeout_seconds", "soon"},
    {"peer_silence_seconds", "0"},
    {"peer_silence_seconds", "181"},
    {"rendezvous_port", "0"},
    {"rendezvous_port", "65536"},
    {"flight_records", "15"},
    {"flight_records", "1000001"},
    {"backend", ""},
    {"backend", "SHM"},
    {"backend", "tcp"},
    {"backend", "shm "},
    {"cpu_path", "sse"},
    {"cpu_path", ""},
    {"nccltimeoutseconds", "30"},
    {"", "30"},
    {"NCCL_TIMEOUT_SECONDS", "30"},
    {"sharding_strategy", "fsdp"},
    {"slots", "2"},
    {"verify", "off"},
    {NULL, "30"},
    {KEY, NULL},
};

void job_values(struct conform *conform)
{
    const char *keys[] = {KEY, KEY};
    const char *values[] = {"30", "30"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct arguments a;

    conform_needs_transport(conform);
    arguments_init(&a, conform);
    for (size_t i = 0; i < sizeof(wrong_values) / sizeof(wrong_values[0]); i++) {
        const char *key = wrong_values[i][0];
        const char *value = wrong_values[i][1];
        char what[96];

        snprintf(what, sizeof(what), "job.create with %s = \"%s\"", key == NULL ? "NULL" : key,
                 value == NULL ? "NULL" : value);
        spec.settings = (struct hsdp_settings){&key, &value, 1};
        spec_refuse(&a, what, &spec);
        if (key != NULL && value != NULL) {
            arguments_expect_said(&a, what, key);
        }
    }
    spec.settings = (struct hsdp_settings){keys, values, 2};
    spec_refuse(&a, "job.create with a key twice", &spec);
    spec.settings = (struct hsdp_settings){NULL, values, 1};
    spec_refuse(&a, "job.create with settings whose keys are NULL", &spec);
    spec.settings = (struct hsdp_settings){keys, NULL, 1};
    spec_refuse(&a, "job.create with settings whose values are NULL", &spec);
    spec.settings = (struct hsdp_settings){keys, values, 1};
    arguments_accept(&a, a.api->job->create(&spec, &a.job, a.err));
    arguments_accept(&a, a.api->job->setting(a.job, KEY, &a.out.texts[0], &a.out.texts[1], a.err));
    conform_expect(conform,
                   strcmp(a.out.texts[0], "30") == 0 && strcmp(a.out.texts[1], "host") == 0,
                   "job.setting: " KEY " is \"%s\" from \"%s\"; the host gave \"30\"",
                   a.out.texts[0], a.out.texts[1]);
    arguments_refuse(&a, a.api->job->setting(a.job, "foo", &a.out.texts[0], &a.out.texts[1], a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a,
                     a.api->job->setting(a.job, "slots", &a.out.texts[0], &a.out.texts[1], a.err),
                     HSDP_ERR_INVALID);
    a.api->job->destroy(a.job);
}

/* ------------------------------------------------------------------------------------ moments */

void job_before_connect(struct conform *conform)
{
    const struct hsdp_job_ops *ops = conform->api->job;
    struct arguments a;

    conform_needs_transport(conform);
    arguments_init(&a, conform);
    a.mesh = arguments_mesh(&a);
    a.job = arguments_job(&a);
    a.plan = arguments_plan(&a, a.mesh);
    arguments_plan_fill(&a, a.plan);
    arguments_refuse(&a, ops->close(a.job, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->setting_set(a.job, KEY, "60", a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, a.api->model->create(a.job, a.plan, &a.out.model, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, ops->status(a.job, a.err));
    arguments_accept(&a, ops->info(a.job, &a.out.job_info, a.err));
    conform_expect(conform, a.out.job_info.is_connected == 0,
                   "job.info: is_connected is %u before connect",
                   (unsigned)a.out.job_info.is_connected);
    arguments_accept(&a, ops->connect(a.job, a.err));
    arguments_refuse(&a, ops->connect(a.job, a.err), HSDP_ERR_STATE);
    arguments_accept(&a, ops->info(a.job, &a.out.job_info, a.err));
    conform_expect(conform, a.out.job_info.is_connected == 1 && a.out.job_info.world_ranks == 1,
                   "job.info: does not tell of a connected job of one rank");
    arguments_close(&a);
}

void job_running(struct conform *conform)
{
    const struct hsdp_job_ops *ops = conform->api->job;
    struct arguments a;

    arguments_open(&a, conform);
    arguments_refuse(&a, ops->setting_set(a.job, "foo", "60", a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting_set(a.job, KEY, "soon", a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting_set(a.job, KEY, "0", a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->setting_set(a.job, "backend", "shm", a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->setting_set(a.job, "flight_records", "100", a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->ticket_wait(a.job, UINT64_C(1) << 40, 0, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->ticket_wait(a.job, UINT64_MAX, UINT64_MAX, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->ticket_order(a.job, UINT64_C(1) << 40, NULL, a.err),
                     HSDP_ERR_INVALID);
    arguments_accept(&a, ops->ticket_wait(a.job, 0, UINT64_MAX, a.err));
    arguments_accept(&a, ops->ticket_wait(a.job, 0, 0, a.err));
    arguments_accept(&a, ops->ticket_order(a.job, 0, NULL, a.err));
    arguments_accept(&a, ops->setting_set(a.job, KEY, "61", a.err));
    arguments_accept(&a, ops->setting(a.job, KEY, &a.out.texts[0], &a.out.texts[1], a.err));
    conform_expect(conform, strcmp(a.out.texts[0], "61") == 0,
                   "job.setting: " KEY " is \"%s\" after it was set to \"61\"", a.out.texts[0]);
    arguments_close(&a);
}

static void timeout_expect(struct arguments *arguments, uint64_t expected, const char *when)
{
    arguments_accept(arguments, arguments->api->job->info(arguments->job, &arguments->out.job_info,
                                                          arguments->err));
    conform_expect(arguments->conform, arguments->out.job_info.timeout_ms == expected,
                   "job.info: timeout_ms is %llu %s; it is %llu",
                   (unsigned long long)arguments->out.job_info.timeout_ms, when,
                   (unsigned long long)expected);
}

void job_phases(struct conform *conform)
{
    const struct hsdp_job_ops *ops = conform->api->job;
    struct arguments a;
    char name[65];

    arguments_open(&a, conform);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    arguments_refuse(&a, ops->phase_pop(a.job, a.err), HSDP_ERR_STATE);
    arguments_refuse(&a, ops->phase_push(a.job, "save", 0, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->phase_push(a.job, name, 1000, a.err), HSDP_ERR_INVALID);
    timeout_expect(&a, 180000, "by default");
    arguments_accept(&a, ops->phase_push(a.job, "outer", 7000, a.err));
    name[63] = '\0';
    arguments_accept(&a, ops->phase_push(a.job, name, 5000, a.err));
    timeout_expect(&a, 5000, "in a phase of 5000 within one of 7000");
    arguments_accept(&a, ops->phase_pop(a.job, a.err));
    timeout_expect(&a, 7000, "in a phase of 7000");
    for (int i = 1; i < 16; i++) {
        arguments_accept(&a, ops->phase_push(a.job, "deeper", 900000, a.err));
    }
    arguments_refuse_as(&a, "job.phase_push, the 17th", ops->phase_push(a.job, "17", 1000, a.err),
                        ARGUMENTS_ANY_REFUSAL);
    for (int i = 0; i < 16; i++) {
        arguments_accept(&a, ops->phase_pop(a.job, a.err));
    }
    timeout_expect(&a, 180000, "after the last phase");
    arguments_refuse(&a, ops->phase_pop(a.job, a.err), HSDP_ERR_STATE);
    arguments_close(&a);
}

/* What takes the job, or something made from it, and does more than tell. */
static void calls_refuse(struct arguments *arguments, int32_t status)
{
    const struct hsdp_api *api = arguments->api;
    struct arguments *a = arguments;
    struct hsdp_coll_spec barrier = HSDP_COLL_SPEC_INIT;
    struct hsdp_step_spec step = HSDP_STEP_SPEC_INIT;
    const uint32_t units[] = {0};
    struct hsdp_group_spec group = HSDP_GROUP_SPEC_INIT;

    barrier.kind = HSDP_COLL_BARRIER;
    group.selector = "dp";
    arguments_refuse(a, api->job->connect(a->job, a->err), status);
    arguments_refuse(a, api->job->setting_set(a->job, KEY, "60", a->err), status);
    arguments_refuse(a, api->job->phase_push(a->job, "save", 1000, a->err), status);
    arguments_refuse(a, api->group->create(a->job, a->mesh, &group, &a->out.group, a->err), status);
    arguments_refuse(a, api->group->connect(a->job, a->err), status);
    arguments_refuse(
        a, api->group->start(a->group, &barrier, sizeof(barrier), 1, NULL, a->out.longs, a->err),
        status);
    arguments_refuse(a, api->model->create(a->job, a->plan, &a->out.model, a->err), status);
    arguments_refuse(a, api->model->edit_begin(a->model, NULL, a->err), status);
    arguments_refuse(
        a, api->unit->unshard(a->model, 0, HSDP_USE_FORWARD, NULL, a->out.longs, a->err), status);
    arguments_refuse(
        a, api->unit->backward_begin(a->model, units, 1, HSDP_SCOPE_FULL, a->out.longs, a->err),
        status);
    arguments_refuse(a, api->step->begin(a->model, &step, a->out.longs, a->err), status);
}

/* What only tells still answers. */
static void questions_accept(struct arguments *arguments)
{
    const struct hsdp_api *api = arguments->api;
    struct arguments *a = arguments;
    struct outputs *out = &a->out;

    arguments_accept(a, api->job->info(a->job, &out->job_info, a->err));
    arguments_accept(a, api->job->setting(a->job, KEY, &out->texts[0], &out->texts[1], a->err));
    arguments_accept(a, api->group->info(a->group, &out->group_info, a->err));
    arguments_accept(a, api->group->members(a->group, out->numbers, 8, a->err));
    arguments_accept(a, api->model->info(a->model, &out->model_info, a->err));
    arguments_accept(a, api->diag->counter(a->job, "steps", out->longs, a->err));
    arguments_accept(a, api->diag->counter_name(a->job, 0, &out->texts[0], a->err));
}

void job_after_close(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    arguments_accept(&a, a.api->job->close(a.job, a.err));
    calls_refuse(&a, HSDP_ERR_STATE);
    arguments_refuse(&a, a.api->job->close(a.job, a.err), HSDP_ERR_STATE);
    questions_accept(&a);
    arguments_accept(&a, a.api->job->status(a.job, a.err));
    arguments_accept(&a, a.api->job->abort(a.job, "after close", a.err));
    arguments_close(&a);
}

void job_after_abort(struct conform *conform)
{
    struct arguments a;

    arguments_open(&a, conform);
    arguments_accept(&a, a.api->job->abort(a.job, "the first reason", a.err));
    arguments_accept(&a, a.api->job->abort(a.job, "the second", a.err));
    calls_refuse(&a, HSDP_ERR_ABORTED);
    conform_must_refuse(conform, a.api->group->connect(a.job, &conform->err), HSDP_ERR_ABORTED);
    conform_expect(conform, strstr(conform->err.message, "the first reason") != NULL,
                   "a call after job.abort repeats its reason; the message is \"%s\"",
                   conform->err.message);
    questions_accept(&a);
    conform_must_refuse(conform, a.api->job->status(a.job, &conform->err), HSDP_ERR_ABORTED);
    conform_expect(conform, strstr(conform->err.message, "the first reason") != NULL,
                   "job.status tells the first reason; the message is \"%s\"",
                   conform->err.message);
    arguments_close(&a);
}
