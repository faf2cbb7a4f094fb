/* SPDX-License-Identifier: Apache-2.0 */
/* The scenario: joining jobs and groups, leaving them, and what a host does after a failure. */
#include <stdio.h>
#include <string.h>

#include "faults/link.h"
#include "faults/scenario.h"

const char *const scenario_strategies[7] = {"ddp",  "zero1",      "zero2", "fsdp",
                                            "hsdp", "hsdp_zero2", "hfsdp"};

/* ------------------------------------------------------------------------- callbacks */

static void callback_stall(struct host *host)
{
    if (host->is_victim && host->trial->kind == FAULT_CALLBACK && !host->has_fired) {
        host->has_fired = true;
        host_note_fault(host);
        host_sleep_us(host->trial->delay_ms * UINT64_C(1000));
    }
}

static int32_t store_put(void *user, const char *key, const void *value, uint64_t value_bytes)
{
    struct host *host = user;

    callback_stall(host);
    for (uint32_t i = 0; i < RECORD_STORE_KEYS; i++) {
        struct stored *slot = &host->record->store[i];
        uint32_t expected = 0;

        if (atomic_compare_exchange_strong(&slot->is_there, &expected, 1)) {
            snprintf(slot->key, sizeof(slot->key), "%s", key);
            memcpy(slot->bytes, value, value_bytes);
            slot->n_bytes = value_bytes;
            link_publish(host->record, value, value_bytes);
            atomic_store(&slot->is_there, 2);
            return 0;
        }
    }
    return -1;
}

static const struct stored *stored_find(const struct record *record, const char *key)
{
    for (uint32_t i = 0; i < RECORD_STORE_KEYS; i++) {
        const struct stored *slot = &record->store[i];

        if (atomic_load(&slot->is_there) == 2 && strcmp(slot->key, key) == 0) {
            return slot;
        }
    }
    return NULL;
}

static int32_t store_get(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                         uint64_t *ret_bytes, uint32_t wait_ms)
{
    struct host *host = user;
    uint64_t until_ns = host_now_ns() + wait_ms * UINT64_C(1000000);
    const struct stored *slot = stored_find(host->record, key);

    callback_stall(host);
    while (slot == NULL && host_now_ns() < until_ns) {
        host_sleep_us(1000);
        slot = stored_find(host->record, key);
    }
    if (slot == NULL || slot->n_bytes > max_bytes) {
        return 1;
    }
    memcpy(ret_value, slot->bytes, slot->n_bytes);
    *ret_bytes = slot->n_bytes;
    if (host->trial->has_proxy && host->rank == host->trial->victim) {
        *ret_bytes = link_redirect(host->record, ret_value, slot->n_bytes, max_bytes);
    }
    return 0;
}

static void host_log(void *user, int32_t level, const char *text)
{
    (void)level;
    (void)text;
    callback_stall(user);
}

static void first_told(void *user, const struct hsdp_error *reason)
{
    struct host *host = user;

    (void)reason;
    atomic_fetch_add(&host->own->n_told[0], 1u);
}

static void second_told(void *user, const struct hsdp_error *reason)
{
    struct host *host = user;

    (void)reason;
    atomic_fetch_add(&host->own->n_told[1], 1u);
}

/* ------------------------------------------------------------------------- joining */

static void who_fill(struct host *host, struct hsdp_job_spec *spec)
{
    if (!host->trial->has_store) {
        return; /* the launcher's environment says it */
    }
    spec->kv_put = store_put;
    spec->kv_get = store_get;
    spec->rank = host->rank;
    spec->world_ranks = host->trial->n_ranks;
    if (fault_is_wrong(host, WRONG_WORLD)) {
        spec->world_ranks++;
    }
    if (fault_is_wrong(host, WRONG_RANK)) {
        spec->rank = host->rank == 1 ? 2 : 1;
    }
    spec->local_rank = spec->rank;
    if (host->trial->n_nodes > 1) {
        uint32_t node = trial_node_of(host->trial, host->rank);

        spec->local_rank = host->rank - trial_leader_of(host->trial, node);
        spec->local_ranks = host->trial->node_ranks[node];
    }
}

static bool job_join(struct host *host)
{
    const char *keys[3] = {"nccl_timeout_seconds"};
    char texts[3][16];
    const char *values[3] = {texts[0], texts[1], texts[2]};
    uint32_t n = 1;
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    uint32_t ms = host->trial->timeout_ms + (fault_is_wrong(host, WRONG_TIMEOUT) ? 3000 : 0);
    hsdp_job *job = NULL;

    snprintf(texts[0], sizeof(texts[0]), "%u", ms / 1000);
    if (host->trial->init_ms > ms) {
        keys[n] = "init_timeout_seconds";
        snprintf(texts[n++], sizeof(texts[0]), "%u", host->trial->init_ms / 1000);
    }
    if (host->trial->silence_ms != 0) {
        keys[n] = "peer_silence_seconds";
        snprintf(texts[n++], sizeof(texts[0]), "%u", host->trial->silence_ms / 1000);
    }
    spec.settings = (struct hsdp_settings){keys, values, n};
    spec.name = host->job == 0 ? NULL : "second";
    spec.on_abort = host->job == 0 ? first_told : second_told;
    spec.log = host_log;
    spec.user = host;
    who_fill(host, &spec);
    if (fault_is_wrong(host, WRONG_WORLD) || fault_is_wrong(host, WRONG_RANK) ||
        fault_is_wrong(host, WRONG_TIMEOUT) || fault_is_wrong(host, WRONG_ATTEMPT)) {
        host_note_fault(host);
    }
    if (!call_of(host, CALL_CONNECT, "job.create",
                 host->api->job->create(&spec, &job, &host->err))) {
        return false;
    }
    host->jobs[host->job] = job;
    host->job_now = job;
    return call_of(host, CALL_CONNECT, "job.connect", host->api->job->connect(job, &host->err));
}

static bool mesh_make(struct host *host)
{
    const char *names[] = {"dp", "ep"};
    int64_t sizes[2] = {host->trial->n_ranks / host->trial->ep, host->trial->ep};
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = 2;
    spec.world_ranks = host->trial->n_ranks;
    spec.rank = host->rank;
    return call_of(host, CALL_GROUP, "mesh.create",
                   host->api->mesh->create(&spec, &host->mesh, &host->err));
}

static bool group_join(struct host *host)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;

    spec.selector = host->job == 0 ? "dp" : "dp,ep";
    spec.timeout_ms = host->job == 0 ? host->trial->group_ms : 0;
    if (!call_of(host, CALL_GROUP, "group.create",
                 host->api->group->create(host->job_now, host->mesh, &spec,
                                          &host->groups[host->job], &host->err))) {
        return false;
    }
    host->wanted = host->trial->n_nodes > 1 ? HSDP_ERR_UNSUPPORTED : HSDP_OK;
    return call_of(host, CALL_GROUP, "group.connect",
                   host->api->group->connect(host->job_now, &host->err));
}

static bool job_close(struct host *host)
{
    return call_of(host, CALL_CLOSE, "job.close", host->api->job->close(host->job_now, &host->err));
}

static void job_turn(struct host *host, uint32_t job)
{
    host->job = job;
    host->job_now = host->jobs[job];
}

/* A second job beside the first: joined, used, closed. */
static bool second_run(struct host *host)
{
    bool is_good;

    if (!host->trial->has_second_job) {
        return true;
    }
    job_turn(host, 1);
    is_good = job_join(host) && group_join(host) &&
              (host->trial->n_nodes > 1 || scenario_sum(host)) && job_close(host);
    if (is_good) {
        job_turn(host, 0);
    }
    return is_good;
}

bool scenario_run(struct host *host)
{
    host->timeout_ms = host->trial->timeout_ms;
    return job_join(host) && mesh_make(host) && second_run(host) && group_join(host) &&
           (host->trial->n_nodes > 1 ? scenario_nodes(host) : scenario_train(host)) &&
           job_close(host);
}

/* ------------------------------------------------------------------------- after a failure */

void scenario_later(struct host *host)
{
    hsdp_group *group = host->groups[host->job];
    struct hsdp_coll_spec barrier = HSDP_COLL_SPEC_INIT;

    barrier.kind = HSDP_COLL_BARRIER;
    (void)call_of(host, CALL_LATER, "group.connect",
                  host->api->group->connect(host->job_now, &host->err));
    (void)call_of(
        host, CALL_LATER, "job.setting_set",
        host->api->job->setting_set(host->job_now, "nccl_timeout_seconds", "1", &host->err));
    if (group != NULL) {
        (void)call_of(
            host, CALL_LATER, "group.start",
            host->api->group->start(group, &barrier, sizeof(barrier), 1, NULL, NULL, &host->err));
    }
    if (host->model != NULL && host->job == 0) {
        (void)call_of(
            host, CALL_LATER, "unit.unshard",
            host->api->unit->unshard(host->model, 0, HSDP_USE_FORWARD, NULL, NULL, &host->err));
    }
    (void)call_of(host, CALL_LATER, "job.close", host->api->job->close(host->job_now, &host->err));
}

/* In any order: what is made from a job keeps it alive. */
void scenario_destroy(struct host *host)
{
    const struct hsdp_api *api = host->api;

    call_begin(host, CALL_DESTROY, "destroy");
    if (host->trial->destroys_job_first) {
        api->job->destroy(host->jobs[0]);
        api->job->destroy(host->jobs[1]);
    }
    api->mesh->destroy(host->mesh);
    api->plan->destroy(host->plan);
    api->group->destroy(host->groups[1]);
    api->group->destroy(host->groups[0]);
    api->model->destroy(host->model);
    if (!host->trial->destroys_job_first) {
        api->job->destroy(host->jobs[1]);
        api->job->destroy(host->jobs[0]);
    }
    call_end(host, HSDP_OK);
}
