/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of every contender: rows, turns, barriers, times, and no result that is wrong. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "contender.h"
#include "figures.h"
#include "meeting.h"
#include "pattern.h"

#define N_WARM_UP 3u
#define MIN_TURNS 5u
#define MAX_TURNS 51u
#define MAX_CORES 65536u
#define KIB       ((size_t)1024)
#define MIB       (1024 * KIB)
#define NS_PER_US 1e3

struct options {
    const char *results; /* to which rank 0 adds a line a row; NULL = none */
    const char *setting; /* how this contender was started: a word for the lines */
    const char *op;      /* the only one; NULL = all */
    size_t max_bytes;    /* of rows */
    uint64_t row_ns;     /* for the timed turns of a row */
    bool is_spoiled;     /* a rank puts in what is wrong, to see that it is found */
};

struct harness {
    struct options options;
    struct meeting meeting;
    FILE *results; /* of rank 0 */
    uint32_t turn; /* counted over all rows: each writes other numbers than the one before */
};

/* Of the turns of one row. */
struct times {
    double run_us[MAX_TURNS];
    double read_us[MAX_TURNS];
    uint32_t n;
};

static const char *const op_names[N_OPS] = {"unshard", "reduce_scatter", "all_reduce"};
static const size_t row_bytes[] = {64 * KIB, MIB, 16 * MIB, 128 * MIB};

/* In one piece, since other ranks may have something to say, too. */
void fail(const char *format, ...)
{
    char words[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    fprintf(stderr, "bench-%s: %s\n", contender.name, words);
    exit(EXIT_FAILURE);
}

/* ----------------------------------------------------------------------------------- the times */

/* The slowest rank's: what others do meanwhile, and how long they wait for it, is theirs. */
static void times_add(struct times *times, const struct harness *harness)
{
    const struct meeting_times *ranks = harness->meeting.page->times[harness->turn % 2];
    uint64_t run_ns = 0;
    uint64_t read_ns = 0;

    for (uint32_t i = 0; i < harness->meeting.n_ranks; i++) {
        run_ns = ranks[i].run_ns > run_ns ? ranks[i].run_ns : run_ns;
        read_ns = ranks[i].read_ns > read_ns ? ranks[i].read_ns : read_ns;
    }
    times->run_us[times->n] = (double)run_ns / NS_PER_US;
    times->read_us[times->n] = (double)read_ns / NS_PER_US;
    times->n++;
}

static void times_write(struct times *times, FILE *results, const char *how, const struct row *row)
{
    fprintf(results, "%s\t%s\t%s\t%s\t%" PRIu32 "\t%zu\t%.3f\t%.3f\n", contender.name, how,
            op_names[row->op], dtype_name(row->dtype), row->n_ranks, row->bytes,
            figures_median(times->run_us, times->n), figures_median(times->read_us, times->n));
    fflush(results);
}

/* ----------------------------------------------------------------------------------- the turns */

/* What a rank puts in is written anew each time, so that it lies where a host leaves it. */
static void inputs_write(const struct harness *harness, const struct row *row)
{
    struct piece piece = contender.open();

    pattern_write(&piece, row->op == OP_UNSHARD ? 0 : row->rank, harness->turn);
    if (harness->options.is_spoiled && row->rank == row->n_ranks - 1) {
        pattern_spoil(&piece);
    }
    contender.ready();
}

/* This rank's share of a core, where ranks that do not wait for each other have one in common. */
static uint64_t core_ns(const struct harness *harness)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return ((uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec) *
           harness->meeting.ranks_per_core;
}

static uint64_t now_ns(const struct harness *harness)
{
    bool is_shared = harness->meeting.ranks_per_core > 1;

    return contender.never_waits && is_shared ? core_ns(harness) : clock_now_ns();
}

static void operation_run(struct harness *harness, const struct row *row)
{
    struct meeting_times *times = &harness->meeting.page->times[harness->turn % 2][row->rank];
    uint64_t start_ns;

    meeting_wait(&harness->meeting);
    start_ns = now_ns(harness);
    contender.run();
    times->run_ns = now_ns(harness) - start_ns;
    if (row->op == OP_UNSHARD) {
        struct piece result = contender.result();

        pattern_read(&result);
    }
    times->read_ns = now_ns(harness) - start_ns;
}

/* Returns whether rank 0 has called this turn the last one. */
static bool turn_run(struct harness *harness, const struct row *row, bool is_last)
{
    struct piece result;

    harness->turn++;
    inputs_write(harness, row);
    if (harness->meeting.rank == 0) {
        harness->meeting.page->is_last = is_last;
    }
    operation_run(harness, row);
    is_last = harness->meeting.page->is_last; /* rank 0 writes it again behind the next barrier */
    meeting_wait(&harness->meeting);
    result = contender.result();
    if (is_last) {
        pattern_check(&result, row->op == OP_UNSHARD ? 1 : row->n_ranks, harness->turn);
    }
    contender.settle();
    return is_last;
}

static void variant_run(struct harness *harness, const struct row *row, uint32_t index,
                        const char *variant)
{
    const char *setting = harness->options.setting;
    struct times times = {.n = 0};
    bool is_over = false;
    uint64_t start_ns;
    char how[128];

    contender.row_begin(row, index);
    for (uint32_t i = 0; i < N_WARM_UP; i++) {
        turn_run(harness, row, false);
    }
    start_ns = clock_now_ns();
    while (!is_over) {
        bool is_late = clock_now_ns() - start_ns > harness->options.row_ns;

        is_over = turn_run(harness, row,
                           times.n + 1 == MAX_TURNS || (times.n + 1 >= MIN_TURNS && is_late));
        times_add(&times, harness);
    }
    contender.row_end();
    if (harness->results != NULL) {
        snprintf(how, sizeof(how), "%s%s%s", setting,
                 *setting == '\0' || *variant == '\0' ? "" : ", ", variant);
        times_write(&times, harness->results, how, row);
    }
}

/* ------------------------------------------------------------------------------------ the rows */

static void row_run(struct harness *harness, enum op op, enum dtype dtype, size_t bytes)
{
    struct row row = {.op = op, .dtype = dtype, .bytes = bytes};
    const char *variant;

    row.n_elems = bytes / dtype_bytes(dtype);
    row.rank = harness->meeting.rank;
    row.n_ranks = harness->meeting.n_ranks;
    if (row.n_elems % row.n_ranks != 0) {
        fail("%" PRIu32 " ranks cannot share a power of two", row.n_ranks);
    }
    for (uint32_t i = 0; (variant = contender.variant(&row, i)) != NULL; i++) {
        variant_run(harness, &row, i, variant);
    }
}

static size_t max_bytes(const struct options *options)
{
    size_t max = 0;

    for (size_t i = 0; i < sizeof(row_bytes) / sizeof(row_bytes[0]); i++) {
        max = row_bytes[i] <= options->max_bytes ? row_bytes[i] : max;
    }
    return max;
}

static void rows_run(struct harness *harness)
{
    const struct options *options = &harness->options;

    for (enum op op = 0; op < N_OPS; op++) {
        if (options->op != NULL && strcmp(options->op, op_names[op]) != 0) {
            continue;
        }
        for (size_t i = 0; i < sizeof(row_bytes) / sizeof(row_bytes[0]); i++) {
            if (row_bytes[i] <= options->max_bytes) {
                row_run(harness, op, DTYPE_FP32, row_bytes[i]);
                row_run(harness, op, DTYPE_BF16, row_bytes[i]);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- options */

static uint64_t number_parse(const char *text, uint64_t max)
{
    char *end = NULL;
    unsigned long long value = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || value > max) {
        fail("%s: a number up to %" PRIu64 " is expected", text, max);
    }
    return value;
}

static void options_parse(struct harness *harness, int argc, char **argv)
{
    struct options *options = &harness->options;
    int option;

    while ((option = getopt(argc, argv, "m:o:s:f:b:t:c:xV")) != -1) {
        if (option == 'm') {
            harness->meeting.path = optarg;
        } else if (option == 'o') {
            options->results = optarg;
        } else if (option == 's') {
            options->setting = optarg;
        } else if (option == 'f') {
            options->op = optarg;
        } else if (option == 'b') {
            options->max_bytes = number_parse(optarg, SIZE_MAX);
        } else if (option == 't') {
            options->row_ns = number_parse(optarg, 3600000) * CLOCK_NS_PER_MS;
        } else if (option == 'c') {
            harness->meeting.n_cores = (uint32_t)number_parse(optarg, MAX_CORES);
        } else if (option == 'V') {
            puts(contender.version == NULL ? contender.name : contender.version());
            exit(EXIT_SUCCESS);
        } else if (option == 'x') {
            options->is_spoiled = true;
        } else {
            fail("usage: -m file [-o results] [-s setting] [-f op] [-b max bytes] [-t ms a row] "
                 "[-c cores] [-x], or -V");
        }
    }
    if (harness->meeting.path == NULL || harness->meeting.n_cores == 0) {
        fail("-m says no file in which the ranks meet, or -c no cores");
    }
}

/* The launchers' words for it: hsdp-run's, mpirun's. */
static uint32_t identity_of(const char *name, const char *mpi_name)
{
    const char *text = getenv(name) != NULL ? getenv(name) : getenv(mpi_name);

    if (text == NULL) {
        fail("neither %s nor %s is set: start it with hsdp-run or mpirun", name, mpi_name);
    }
    return (uint32_t)number_parse(text, MEETING_MAX_RANKS);
}

int main(int argc, char **argv)
{
    struct harness harness = {.options = {.max_bytes = SIZE_MAX, .row_ns = 40 * CLOCK_NS_PER_MS}};

    harness.options.setting = "";
    harness.meeting.n_cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    options_parse(&harness, argc, argv);
    harness.meeting.rank = identity_of("RANK", "OMPI_COMM_WORLD_RANK");
    harness.meeting.n_ranks = identity_of("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE");
    meeting_open(&harness.meeting);
    if (harness.meeting.rank == 0 && harness.options.results != NULL) {
        harness.results = fopen(harness.options.results, "a");
        if (harness.results == NULL) {
            fail("%s: %s", harness.options.results, strerror(errno));
        }
    }
    contender.begin(&harness.meeting, max_bytes(&harness.options));
    rows_run(&harness);
    contender.end();
    if (harness.results != NULL && fclose(harness.results) != 0) {
        fail("%s: %s", harness.options.results, strerror(errno));
    }
    return EXIT_SUCCESS;
}
