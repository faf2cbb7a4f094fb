/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks: the life of one process of a trial, and what it holds before and after. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "faults/host.h"
#include "node_ranks.h"
#include "ranks.h"

/* ------------------------------------------------------------------------- what it holds */

static uint32_t folder_count(const char *path)
{
    DIR *folder = opendir(path);
    uint32_t n = 0;

    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

/* Mappings that are shared, or of files without a name: what a job maps, and no heap. */
static uint32_t mappings_count(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    char rights[8];
    uint32_t n = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%*s %7s", rights) == 1 &&
            (rights[3] == 's' || strstr(line, "memfd:") != NULL)) {
            n++;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

/* A thread that has been joined may still be listed for a moment. */
static void holdings_measure(struct holdings *ret, const struct holdings *wanted)
{
    for (int i = 0; i < 200; i++) {
        ret->n_descriptors = folder_count("/proc/self/fd");
        ret->n_threads = folder_count("/proc/self/task");
        ret->n_mappings = mappings_count();
        if (wanted == NULL || memcmp(ret, wanted, sizeof(*ret)) == 0) {
            return;
        }
        host_sleep_us(1000);
    }
}

/* ------------------------------------------------------------------------- its life */

/* Which node this rank is on, for one that is told by its launcher, or by its host. */
static void node_set(const struct host *host)
{
    const struct trial *t = host->trial;
    struct nodes_case nodes = {.port = host->record->master_port};
    char sizes[2 * TRIAL_MAX_NODES + 1] = "";
    char number[16];

    if (t->n_nodes == 1) {
        return;
    }
    for (uint32_t node = 0; node < t->n_nodes; node++) {
        snprintf(sizes + strlen(sizes), sizeof(sizes) - strlen(sizes), "%s%u", node == 0 ? "" : ",",
                 t->node_ranks[node] % 10u);
    }
    nodes.sizes = sizes;
    snprintf(number, sizeof(number), "%u", trial_node_of(t, host->rank));
    if (t->has_store) {
        setenv("HSDP_NODE_RANK", number, 1);
    } else {
        node_ranks_environment(&nodes, host->rank);
    }
    if (fault_is_wrong(host, WRONG_ATTEMPT)) {
        setenv("HSDP_ATTEMPT", "7", 1);
    }
}

static void environment_set(const struct host *host)
{
    const struct trial *t = host->trial;
    uint32_t rank = host->rank;
    uint32_t world = t->n_ranks;
    char run_id[64];

    if (t->has_store) {
        ranks_environment_clear();
        node_set(host);
        return;
    }
    if (fault_is_wrong(host, WRONG_RANK)) {
        rank = rank == 1 ? 2 : 1;
    }
    if (fault_is_wrong(host, WRONG_WORLD)) {
        world++;
    }
    snprintf(run_id, sizeof(run_id), "faults-%ld", (long)getppid());
    ranks_environment(rank, world, run_id);
    node_set(host);
}

static void *nothing_do(void *user)
{
    return user;
}

/* The first thread of a process may bring more with it: a sanitizer's own, which stays. */
static void threads_warm(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, nothing_do, NULL) == 0) {
        pthread_join(thread, NULL);
    }
}

static bool plugin_load(struct host *host)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;

    spec.path = getenv("HSDP_TEST_PLUGIN");
    if (spec.path == NULL || hsdp_plugin_load(&spec, &host->plugin, &host->err) != HSDP_OK) {
        fprintf(stderr, "faults: no plugin: %s\n",
                spec.path == NULL ? "HSDP_TEST_PLUGIN is not set" : host->err.message);
        return false;
    }
    host->api = hsdp_plugin_api(host->plugin);
    return true;
}

/* What a host does whose call has failed: it asks why, tries others, and gives up. */
static void failure_live(struct host *host)
{
    struct rank_record *own = host->own;
    hsdp_job *job = host->job_now;

    if (job == NULL) {
        return;
    }
    own->first = (struct hsdp_error)HSDP_ERROR_INIT;
    own->first_status = host->api->job->status(job, &own->first);
    own->first_job = host->job;
    if (own->first_status != HSDP_OK) {
        scenario_later(host);
    } else if (host->trial->aborts) {
        host->api->job->abort(job, "the host gives up", NULL);
    }
    if (host->job == 1 && (own->first_status != HSDP_OK || host->trial->aborts)) {
        host->api->job->abort(host->jobs[0], "the host gives up", NULL);
    }
}

static void others_await(struct host *host)
{
    while (atomic_load(&host->record->is_over) == 0) {
        host_sleep_us(1000);
    }
}

void host_main(const struct trial *trial, struct record *record, uint32_t rank, bool has_fault,
               uint64_t run_ns, uint32_t at_occurrence)
{
    static struct host host;
    struct rank_record *own = &record->ranks[rank];

    host.trial = trial;
    host.record = record;
    host.own = own;
    host.rank = rank;
    host.is_victim = has_fault && rank == trial->victim;
    host.run_ns = run_ns;
    host.at_occurrence = at_occurrence;
    if (has_fault && trial_is_absent(trial, rank)) {
        if (!host.is_victim) {
            _exit(0);
        }
        host_note_fault(&host);
        others_await(&host);
        _exit(0);
    }
    environment_set(&host);
    if (!plugin_load(&host)) {
        _exit(2);
    }
    threads_warm();
    holdings_measure(&own->before, NULL);
    fault_start(&host);
    if (!scenario_run(&host) && host.n_failures > 0) {
        failure_live(&host);
    }
    fault_end(&host);
    scenario_destroy(&host);
    holdings_measure(&own->after, &own->before);
    own->has_measured = true;
    if (host.is_leaving) {
        others_await(&host);
    }
    hsdp_plugin_unload(host.plugin);
    own->has_finished = true;
    exit(0);
}
