/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of flight files: those of one run, the others are skipped and named. */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void complain(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "hsdp-flight: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
}

static int run_add(struct run *run, struct rank *rank)
{
    struct rank *more = realloc(run->ranks, (run->n_ranks + 1) * sizeof(*more));

    if (more == NULL) {
        return FLIGHT_NOTHING;
    }
    run->ranks = more;
    run->ranks[run->n_ranks++] = *rank;
    return FLIGHT_OK;
}

static void file_take(struct run *run, const char *path)
{
    char reason[400];
    struct rank *rank = rank_read(path, reason, sizeof(reason));

    if (rank != NULL && run_add(run, rank) == FLIGHT_OK) {
        free(rank);
        return;
    }
    if (rank != NULL) {
        snprintf(reason, sizeof(reason), "no memory");
        rank_clear(rank);
        free(rank);
    }
    complain("skipping %s: %s", path, reason);
    run->n_skipped++;
}

static int name_is_flight(const struct dirent *entry)
{
    return fnmatch("flight-*-*.json", entry->d_name, 0) == 0;
}

static int files_take(struct run *run, const char *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, name_is_flight, alphasort);

    if (n < 0) {
        complain("cannot read the folder %s: %s", folder, strerror(errno));
        return FLIGHT_NOTHING;
    }
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];

        if (snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name) < PATH_MAX) {
            file_take(run, path);
        }
        free(entries[i]);
    }
    free(entries);
    return FLIGHT_OK;
}

/* ---------------------------------------------------------------------------- one run */

/* What the rest is compared with: of the job that is asked for, the file that was written last. */
static const struct rank *leader_find(const struct run *run, const char *job)
{
    const struct rank *leader = NULL;

    for (size_t i = 0; i < run->n_ranks; i++) {
        const struct rank *rank = &run->ranks[i];

        if ((job == NULL || strcmp(rank->job, job) == 0) &&
            (leader == NULL || rank->now_ns > leader->now_ns)) {
            leader = rank;
        }
    }
    return leader;
}

static bool is_one_job(const struct run *run)
{
    for (size_t i = 1; i < run->n_ranks; i++) {
        if (strcmp(run->ranks[i].job, run->ranks[0].job) != 0) {
            complain("there are files of the jobs \"%s\" and \"%s\": choose one with --job",
                     run->ranks[0].job, run->ranks[i].job);
            return false;
        }
    }
    return true;
}

/* Hashes differ from host to host. */
static bool is_of_run(const struct rank *rank, const struct rank *leader)
{
    return rank->world_ranks == leader->world_ranks &&
           (strcmp(rank->identity, leader->identity) == 0 || strcmp(rank->host, leader->host) != 0);
}

static void strangers_drop(struct run *run, struct rank leader)
{
    size_t n_kept = 0;

    for (size_t i = 0; i < run->n_ranks; i++) {
        struct rank rank = run->ranks[i];

        if (strcmp(rank.job, leader.job) == 0 && is_of_run(&rank, &leader)) {
            run->ranks[n_kept++] = rank;
            continue;
        }
        if (strcmp(rank.job, leader.job) == 0) {
            complain("skipping rank %u: its file is of an earlier run", rank.rank);
            run->n_skipped++;
        }
        rank_clear(&rank);
    }
    run->n_ranks = n_kept;
}

static int rank_compare(const void *one, const void *other)
{
    uint32_t a = ((const struct rank *)one)->rank;
    uint32_t b = ((const struct rank *)other)->rank;

    return a < b ? -1 : a > b;
}

int run_read(const char *folder, const char *job, struct run *ret)
{
    const struct rank *leader;
    int status = files_take(ret, folder);

    if (status != FLIGHT_OK) {
        return status;
    }
    leader = leader_find(ret, job);
    if (leader == NULL && job != NULL) {
        complain("%s has no flight file of a job \"%s\"", folder, job);
        return FLIGHT_NOTHING;
    }
    if (leader == NULL) {
        complain("%s has no flight file that can be used", folder);
        return FLIGHT_NOTHING;
    }
    if (job == NULL && !is_one_job(ret)) {
        return FLIGHT_USAGE;
    }
    strangers_drop(ret, *leader);
    qsort(ret->ranks, ret->n_ranks, sizeof(*ret->ranks), rank_compare);
    return FLIGHT_OK;
}

void run_clear(struct run *run)
{
    for (size_t i = 0; i < run->n_ranks; i++) {
        rank_clear(&run->ranks[i]);
    }
    free(run->ranks);
    memset(run, 0, sizeof(*run));
}

const struct rank *run_find(const struct run *run, uint32_t number)
{
    for (size_t i = 0; i < run->n_ranks; i++) {
        if (run->ranks[i].rank == number) {
            return &run->ranks[i];
        }
    }
    return NULL;
}
