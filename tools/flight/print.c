/* SPDX-License-Identifier: Apache-2.0 */
/* The summary for people: a verdict, and a table of the ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "summary.h"

#define N_COLUMNS 5

static void ranks_print(const json_t *summary, const char *key, const char *words)
{
    const json_t *ranks = json_object_get(summary, key);

    if (json_array_size(ranks) == 0) {
        return;
    }
    printf("  %s:", words);
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        printf("%s %" PRId64, i == 0 ? "" : ",",
               (int64_t)json_integer_value(json_array_get(ranks, i)));
    }
    printf("\n");
}

static void verdict_print(const json_t *summary)
{
    const json_t *failure = json_object_get(summary, "failure");

    printf("job \"%s\": %" PRIu64 " of %" PRIu64 " ranks left a file\n",
           member_text(summary, "job"), member_uint(summary, "n_files"),
           member_uint(summary, "world_ranks"));
    printf("%s, reported by rank %" PRIu64 ":\n  %s\n", member_text(failure, "status"),
           member_uint(failure, "reported_by"), member_text(failure, "message"));
    if (json_object_get(summary, "arrived") != NULL) {
        printf("%s\n", member_text(summary, "operation"));
        ranks_print(summary, "arrived", "arrived");
        ranks_print(summary, "not_arrived", "did not arrive");
        ranks_print(summary, "unknown", "without a file");
    }
}

/* ---------------------------------------------------------------------------- the table */

static void row_fill(const json_t *rank, char ret_cells[N_COLUMNS][300])
{
    const char *current = member_text(rank, "current");

    snprintf(ret_cells[0], 300, "%" PRIu64, member_uint(rank, "rank"));
    snprintf(ret_cells[1], 300, "%s", member_text(rank, "state"));
    snprintf(ret_cells[2], 300, "%s", member_text(rank, "position"));
    snprintf(ret_cells[3], 300, "%s", member_text(rank, "last_completed"));
    snprintf(ret_cells[4], 300, "%s%s%s%s", current, current[0] == '\0' ? "-" : " (",
             member_text(rank, "current_state"), current[0] == '\0' ? "" : ")");
}

static void row_print(char cells[N_COLUMNS][300], const size_t widths[N_COLUMNS])
{
    for (int c = 0; c < N_COLUMNS; c++) {
        if (c + 1 == N_COLUMNS) {
            printf("%s\n", cells[c]);
        } else {
            printf("%-*s  ", (int)widths[c], cells[c]);
        }
    }
}

static void table_print(const json_t *ranks)
{
    char head[N_COLUMNS][300] = {"rank", "state", "where", "last completed", "current"};
    char cells[N_COLUMNS][300];
    size_t widths[N_COLUMNS];

    for (int c = 0; c < N_COLUMNS; c++) {
        widths[c] = strlen(head[c]);
    }
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        row_fill(json_array_get(ranks, i), cells);
        for (int c = 0; c < N_COLUMNS; c++) {
            widths[c] = strlen(cells[c]) > widths[c] ? strlen(cells[c]) : widths[c];
        }
    }
    printf("\n");
    row_print(head, widths);
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        row_fill(json_array_get(ranks, i), cells);
        row_print(cells, widths);
    }
}

static void difference_print(const json_t *difference)
{
    const json_t *ranks = json_object_get(difference, "ranks");

    printf("\nfirst difference in the %s, sequence %" PRIu64 ":\n",
           member_text(difference, "order"), member_uint(difference, "sequence"));
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *rank = json_array_get(ranks, i);

        printf("  rank %" PRIu64 ": %s\n", member_uint(rank, "rank"),
               member_text(rank, "operation"));
    }
}

void summary_print(const json_t *summary)
{
    const json_t *differences = json_object_get(summary, "differences");

    verdict_print(summary);
    table_print(json_object_get(summary, "ranks"));
    for (size_t i = 0; i < json_array_size(differences); i++) {
        difference_print(json_array_get(differences, i));
    }
}
