/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement: ranks that share a plan compare it line by line before a model exists. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "shard/model.h"

/*
 * Every rank learns one hash of every other rank. Where two that should agree do not, the two halve
 * the text until the first differing line is found; all ranks follow the same rounds, so that all
 * end with the same sentence.
 */

#define QUOTE_BYTES 200u /* of a line, in the sentence */

struct lines {
    char *chars; /* '\n' replaced by NUL */
    const char **starts;
    uint64_t n_lines;
};

struct ballot {
    uint64_t hash; /* of all lines */
    uint64_t n_lines;
    uint64_t data_hash; /* of who the data peers are, which no two ranks may see otherwise */
};

#define FNV_OFFSET UINT64_C(14695981039346656037)
#define FNV_PRIME  UINT64_C(1099511628211)

/*
 * Ranks of different stages have different plans. But token weights are summed over the data ranks,
 * so that all must know the same ones; those of rank 0 tell the others.
 */
static uint64_t data_peers_hash(const struct hsdp_mesh *mesh)
{
    uint64_t hash = FNV_OFFSET;

    for (uint32_t i = 0; i < mesh->n_data_ranks; i++) {
        hash = (hash ^ mesh_peer(mesh, mesh->data_dims, 0, i)) * FNV_PRIME;
    }
    return hash;
}

/* FNV-1a over the first n lines, their ends included. */
static uint64_t lines_hash(const struct lines *lines, uint64_t n_lines)
{
    uint64_t hash = FNV_OFFSET;

    for (uint64_t i = 0; i < n_lines && i < lines->n_lines; i++) {
        const char *c = lines->starts[i];

        do {
            hash = (hash ^ (uint8_t)*c) * FNV_PRIME;
        } while (*c++ != '\0');
    }
    return hash;
}

static int32_t lines_split(struct text *text, struct lines *ret, struct hsdp_error *reterr)
{
    uint64_t n_lines = 0;
    char *at;

    if (text->is_failed || text->chars == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare plans");
    }
    ret->chars = text->chars;
    for (uint64_t i = 0; i < text->n_bytes; i++) {
        n_lines += text->chars[i] == '\n';
    }
    ret->starts = calloc(n_lines + 1, sizeof(*ret->starts));
    if (ret->starts == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare plans");
    }
    at = ret->chars;
    for (ret->n_lines = 0; ret->n_lines < n_lines; ret->n_lines++) {
        char *end = strchr(at, '\n');

        ret->starts[ret->n_lines] = at;
        *end = '\0';
        at = end + 1;
    }
    return HSDP_OK;
}

/* The first rank with other data peers; else the first that should share this rank's plan and does
 * not; n_ranks when there is none. */
static uint32_t dissenter_find(const struct hsdp_plan *plan, const struct ballot *ballots,
                               uint32_t n_ranks)
{
    const struct hsdp_mesh *mesh = plan->mesh;
    uint32_t dims = plan_shared_dims(plan);

    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        if (ballots[rank].data_hash != ballots[mesh->rank].data_hash) {
            return rank;
        }
    }
    for (uint32_t i = 0; i < mesh_span(mesh, dims); i++) {
        uint32_t peer = mesh_peer(mesh, dims, mesh->rank, i);

        if (ballots[peer].hash != ballots[mesh->rank].hash) {
            return peer;
        }
    }
    return n_ranks;
}

/* The lowest rank that has found a dissenter, and that one: the same two on every rank. */
static int32_t pair_choose(struct hsdp_job *job, const struct hsdp_plan *plan,
                           const struct ballot *ballots, uint32_t ret_pair[2],
                           struct hsdp_error *reterr)
{
    uint32_t n_ranks = job_world_ranks(job);
    uint32_t mine = dissenter_find(plan, ballots, n_ranks);
    uint32_t *found = calloc(n_ranks, sizeof(*found));
    int32_t status;

    if (found == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare plans");
    }
    status = job_exchange(job, "model.create", &mine, sizeof(mine), found, reterr);
    for (uint32_t rank = 0; status == HSDP_OK && rank < n_ranks; rank++) {
        if (found[rank] < n_ranks) {
            ret_pair[0] = rank;
            ret_pair[1] = found[rank];
            free(found);
            return HSDP_OK;
        }
    }
    ret_pair[0] = n_ranks;
    free(found);
    return status;
}

/* Finds the first line that differs between two ranks, in rounds that every rank takes part in. */
static int32_t difference_find(struct hsdp_job *job, const struct lines *lines,
                               const struct ballot *ballots, const uint32_t pair[2],
                               uint64_t *ret_line, struct hsdp_error *reterr)
{
    uint64_t *hashes = calloc(job_world_ranks(job), sizeof(*hashes));
    uint64_t low = 0; /* so many lines agree */
    uint64_t high = ballots[pair[0]].n_lines < ballots[pair[1]].n_lines ? ballots[pair[0]].n_lines
                                                                        : ballots[pair[1]].n_lines;
    int32_t status = HSDP_OK;

    if (hashes == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare plans");
    }
    while (status == HSDP_OK && low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        uint64_t hash = lines_hash(lines, middle);

        status = job_exchange(job, "model.create", &hash, sizeof(hash), hashes, reterr);
        if (hashes[pair[0]] == hashes[pair[1]]) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    free(hashes);
    *ret_line = low;
    return status;
}

/* Words end with a space outside of quotes. */
static size_t word_bytes(const char *word)
{
    bool is_quoted = false;
    size_t n_bytes = 0;

    while (word[n_bytes] != '\0' && (is_quoted || word[n_bytes] != ' ')) {
        is_quoted ^= word[n_bytes] == '"';
        n_bytes++;
    }
    return n_bytes;
}

/* Where the first word begins that is not the same in the other line. */
static size_t words_agree(const char *line, const char *other)
{
    size_t at = 0;
    size_t n_bytes = word_bytes(line);

    while (n_bytes > 0 && n_bytes == word_bytes(other + at) &&
           memcmp(line + at, other + at, n_bytes) == 0 && line[at + n_bytes] == ' ' &&
           other[at + n_bytes] == ' ') {
        at += n_bytes + 1;
        n_bytes = word_bytes(line + at);
    }
    return at;
}

/* A line by its first two words, kind and name, and the word that differs; else from the front. */
static void line_quote(const char *line, const char *other, char ret_quote[QUOTE_BYTES])
{
    size_t at = words_agree(line, other);
    size_t n_head = word_bytes(line);

    n_head += line[n_head] == ' ' ? 1 + word_bytes(line + n_head + 1) : 0;
    if (at > n_head + 1) {
        snprintf(ret_quote, QUOTE_BYTES, "%.*s ... %.*s", (int)n_head, line,
                 (int)word_bytes(line + at), line + at);
    } else {
        snprintf(ret_quote, QUOTE_BYTES, "%s", line);
    }
}

static int32_t difference_report(struct hsdp_job *job, const struct lines *lines, uint64_t line,
                                 const uint32_t pair[2], struct hsdp_error *reterr)
{
    char mine[JOB_EXCHANGE_MAX_BYTES] = "(nothing)";
    char *all = calloc(job_world_ranks(job), sizeof(mine));
    char quotes[2][QUOTE_BYTES];
    struct hsdp_error err;
    int32_t status;

    if (all == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare plans");
    }
    if (line < lines->n_lines) {
        snprintf(mine, sizeof(mine), "%s", lines->starts[line]);
    }
    status = job_exchange(job, "model.create", mine, sizeof(mine), all, reterr);
    if (status == HSDP_OK) {
        line_quote(all + pair[0] * sizeof(mine), all + pair[1] * sizeof(mine), quotes[0]);
        line_quote(all + pair[1] * sizeof(mine), all + pair[0] * sizeof(mine), quotes[1]);
        error_set(&err, HSDP_ERR_MISMATCH,
                  "model.create: plans differ: rank %" PRIu32 " has %s; rank %" PRIu32 " has %s",
                  pair[0], quotes[0], pair[1], quotes[1]);
        error_where(&err, "model.create", NULL, NULL);
        status = job_fail(job, &err);
        if (reterr != NULL) {
            *reterr = err;
        }
    }
    free(all);
    return status;
}

static int32_t lines_agree(struct hsdp_job *job, const struct hsdp_plan *plan,
                           const struct lines *lines, struct ballot *ballots,
                           struct hsdp_error *reterr)
{
    uint32_t n_ranks = job_world_ranks(job);
    struct ballot mine = {.n_lines = lines->n_lines};
    uint32_t pair[2];
    uint64_t line = 0;
    int32_t status;

    mine.hash = lines_hash(lines, lines->n_lines);
    mine.data_hash = data_peers_hash(plan->mesh);
    status = job_exchange(job, "model.create", &mine, sizeof(mine), ballots, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = pair_choose(job, plan, ballots, pair, reterr);
    if (status != HSDP_OK || pair[0] == n_ranks) {
        return status;
    }
    status = difference_find(job, lines, ballots, pair, &line, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    return difference_report(job, lines, line, pair, reterr);
}

int32_t model_agree(struct hsdp_job *job, const struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    struct text text = TEXT_INIT;
    struct lines lines = {0};
    struct ballot *ballots = calloc(job_world_ranks(job), sizeof(*ballots));
    int32_t status;

    plan_write_lines(plan, &text);
    status = lines_split(&text, &lines, reterr);
    if (status == HSDP_OK && ballots == NULL) {
        status = error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare plans");
    }
    if (status == HSDP_OK) {
        status = lines_agree(job, plan, &lines, ballots, reterr);
    }
    free(ballots);
    free(lines.starts);
    text_fini(&text);
    return status;
}
