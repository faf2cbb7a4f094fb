/* SPDX-License-Identifier: Apache-2.0 */
/* The memory bus as a contender: what a reduction cannot do without, and no wait for anybody. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buffer.h"
#include "bus.h"
#include "contender.h"
#include "device/kernels.h"
#include "meeting.h"

/*
 * Each rank reads its part of what every rank has put in, adds it up in fp32, and writes it once:
 * for a reduce-scatter to memory of its own, for an all-reduce to that of all ranks. All of it lies
 * in memory that the ranks share, on huge pages where the system has them. Of the ways to do it the
 * fastest counts.
 */
static struct {
    const struct meeting *meeting;
    struct row row;
    struct bus_work work;
    void (*sum)(const struct bus_work *work);
    char *memory; /* the inputs of all ranks, then their outputs: fp32, so up to twice as large */
    size_t memory_bytes;
    size_t part_elems;
} bus;

struct way {
    const char *name;
    const char *path; /* of the kernels: it is there where this is */
    void (*sum)(const struct bus_work *work);
    bool is_streamed;
};

static const struct way ways[] = {
#if defined(HSDP_X86_PATHS)
    {"avx2", "avx2", bus_sum_avx2, false},
    {"avx2 streaming", "avx2", bus_sum_avx2, true},
    {"avx512", "avx512", bus_sum_avx512, false},
    {"avx512 streaming", "avx512", bus_sum_avx512, true},
#endif
    {"plain", "plain", bus_sum_plain, false},
};

static bool has_path(const char *path)
{
    for (uint32_t i = 0; i < kernels_n_paths(); i++) {
        if (strcmp(kernels_path(i)->path, path) == 0) {
            return true;
        }
    }
    return false;
}

/* Plain code is for CPUs that have nothing else. */
static const struct way *way_at(uint32_t index)
{
    uint32_t n = 0;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        bool is_there = strcmp(ways[i].path, "plain") == 0 ? n == 0 : has_path(ways[i].path);

        if (is_there && n++ == index) {
            return &ways[i];
        }
    }
    return NULL;
}

static const char *bus_variant(const struct row *row, uint32_t index)
{
    const struct way *way = row->op == OP_UNSHARD ? NULL : way_at(index);

    return way == NULL ? NULL : way->name;
}

/* --------------------------------------------------------------------------------------- memory */

static char *input_of(uint32_t rank)
{
    return bus.memory + rank * bus.row.bytes;
}

static float *output_of(uint32_t rank)
{
    size_t inputs = bus.row.n_ranks * bus.row.bytes;

    return (float *)(void *)(bus.memory + inputs) + rank * bus.row.n_elems;
}

/* Rank 0 makes the memory, and the others find it among its descriptors. */
static int memory_open(void)
{
    struct meeting_page *page = bus.meeting->page;
    char path[64];
    int fd = -1;

    if (bus.meeting->rank == 0) {
        fd = memfd_create("bench-bus", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)(bus.memory_bytes)) != 0) {
            fail("%zu bytes of shared memory: %s", bus.memory_bytes, strerror(errno));
        }
        page->shared_pid = (int64_t)getpid();
        page->shared_fd = fd;
    }
    meeting_wait(bus.meeting);
    if (bus.meeting->rank != 0) {
        snprintf(path, sizeof(path), "/proc/%ld/fd/%ld", (long)page->shared_pid,
                 (long)page->shared_fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            fail("%s: %s", path, strerror(errno));
        }
    }
    meeting_wait(bus.meeting);
    return fd;
}

static void bus_begin(const struct meeting *meeting, size_t max_bytes)
{
    int fd;

    bus.meeting = meeting;
    bus.memory_bytes = meeting->n_ranks * 3 * max_bytes;
    fd = memory_open();
    bus.memory = buffer_map(fd, bus.memory_bytes);
    close(fd);
}

static void work_prepare(void)
{
    size_t first = bus.row.rank * bus.part_elems;

    bus.work.n_sources = bus.row.n_ranks;
    bus.work.n_outputs = bus.row.op == OP_ALL_REDUCE ? bus.row.n_ranks : 1;
    bus.work.n_elems = bus.part_elems;
    bus.work.dtype = bus.row.dtype;
    for (uint32_t i = 0; i < bus.row.n_ranks; i++) {
        uint32_t to = bus.row.op == OP_ALL_REDUCE ? i : bus.row.rank;

        bus.work.sources[i] = input_of(i) + first * dtype_bytes(bus.row.dtype);
        bus.work.outputs[i] = output_of(to) + first;
    }
}

static void bus_row_begin(const struct row *row, uint32_t variant)
{
    const struct way *way = way_at(variant);

    bus.row = *row;
    bus.part_elems = row->n_elems / row->n_ranks;
    meeting_wait(bus.meeting); /* all are done with what the last row has in this memory */
    work_prepare();
    bus.work.is_streamed = way->is_streamed;
    bus.sum = way->sum;
}

static void bus_row_end(void)
{
}

/* --------------------------------------------------------------------------------------- a turn */

static struct piece bus_open(void)
{
    struct piece piece = {.base = input_of(bus.row.rank), .n_elems = bus.row.n_elems};

    piece.dtype = bus.row.dtype;
    return piece;
}

static void bus_ready(void)
{
}

static void bus_run(void)
{
    bus.sum(&bus.work);
}

static struct piece bus_result(void)
{
    struct piece piece = {.base = output_of(bus.row.rank), .dtype = DTYPE_FP32, .divisor = 1};

    piece.n_elems = bus.row.n_elems;
    if (bus.row.op == OP_REDUCE_SCATTER) {
        piece.first = bus.row.rank * bus.part_elems;
        piece.n_elems = bus.part_elems;
        piece.base = output_of(bus.row.rank) + piece.first;
    }
    return piece;
}

static void bus_end(void)
{
    buffer_destroy(bus.memory, bus.memory_bytes);
}

const struct contender contender = {
    .name = "bus",
    .never_waits = true,
    .variant = bus_variant,
    .begin = bus_begin,
    .row_begin = bus_row_begin,
    .open = bus_open,
    .ready = bus_ready,
    .run = bus_run,
    .result = bus_result,
    .settle = bus_ready,
    .row_end = bus_row_end,
    .end = bus_end,
};
