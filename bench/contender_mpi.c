/* SPDX-License-Identifier: Apache-2.0 */
/* MPI as a contender: the calls that a data-parallel trainer makes, and what they leave to it. */
#include <mpi.h>
#include <string.h>

#include "buffer.h"
#include "contender.h"
#include "device/kernels.h"
#include "meeting.h"

/*
 * MPI has no bf16 and sums in the dtype of the buffer. So a reduce-scatter of bf16 with fp32 sums
 * is an exchange of bf16 (each rank sends each other one its part; its own stays where it is), and
 * a sum with the engine's own kernels. An all-reduce of bf16 goes on with an all-gather of sums
 * that are rounded to bf16: half of the bytes that the plugin hands back, in favour of MPI.
 *
 *     unshard                Allgather in place
 *     reduce_scatter, fp32   Reduce_scatter_block, Reduce_scatter
 *     all_reduce, fp32       Allreduce, into another buffer and in place
 *     reduce_scatter, bf16   Alltoallv, Isend and Irecv; then the sum
 *     all_reduce, bf16       likewise, and Allgather in place
 */
static struct {
    struct row row;
    uint32_t variant;
    const struct kernels *kernels;
    size_t max_bytes; /* of each buffer; all rows have the same ones */
    char *input;
    char *parts;  /* of bf16: what the others have sent, in order of ranks */
    char *output; /* of a reduction: of bf16 one part in fp32, of two ranks at least as large */
    size_t part_elems;
    size_t part_bytes;
    int counts[MEETING_MAX_RANKS]; /* of the exchange: elements, none to oneself */
    int offsets[MEETING_MAX_RANKS];
    int all_counts[MEETING_MAX_RANKS];
} mpi;

static void mpi_begin(const struct meeting *meeting, size_t max_bytes)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)meeting;                             /* the launcher says it */
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) { /* else MPI itself ends the process */
        fail("MPI_Init");
    }
    if (kernels_choose("auto", kernels_n_paths(), &mpi.kernels, &err) != HSDP_OK) {
        fail("%s", err.message);
    }
    mpi.max_bytes = max_bytes;
    mpi.input = buffer_create(max_bytes);
    mpi.parts = buffer_create(max_bytes);
    mpi.output = buffer_create(max_bytes);
}

static void mpi_end(void)
{
    buffer_destroy(mpi.input, mpi.max_bytes);
    buffer_destroy(mpi.parts, mpi.max_bytes);
    buffer_destroy(mpi.output, mpi.max_bytes);
    MPI_Finalize();
}

static const char *mpi_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n_bytes = 0;

    MPI_Get_library_version(text, &n_bytes);
    return text;
}

static const char *mpi_variant(const struct row *row, uint32_t index)
{
    static const char *const exchanges[] = {"Alltoallv", "Isend"};
    static const char *const scatters[] = {"Reduce_scatter_block", "Reduce_scatter"};
    static const char *const reductions[] = {"two buffers", "in place"};

    if (row->op == OP_UNSHARD) {
        return index == 0 ? "" : NULL;
    }
    if (index >= 2) {
        return NULL;
    }
    if (row->dtype == DTYPE_BF16) {
        return exchanges[index];
    }
    return row->op == OP_ALL_REDUCE ? reductions[index] : scatters[index];
}

static void mpi_row_begin(const struct row *row, uint32_t variant)
{
    mpi.row = *row;
    mpi.variant = variant;
    mpi.part_elems = row->n_elems / row->n_ranks;
    mpi.part_bytes = row->bytes / row->n_ranks;
    for (uint32_t i = 0; i < row->n_ranks; i++) {
        mpi.counts[i] = i == row->rank ? 0 : (int)mpi.part_elems;
        mpi.all_counts[i] = (int)mpi.part_elems;
        mpi.offsets[i] = (int)(i * mpi.part_elems);
    }
}

static void mpi_row_end(void)
{
}

/* --------------------------------------------------------------------------------------- a turn */

static struct piece mpi_open(void)
{
    struct piece piece = {.base = mpi.input, .n_elems = mpi.row.n_elems, .dtype = mpi.row.dtype};

    if (mpi.row.op == OP_UNSHARD) {
        piece.first = mpi.row.rank * mpi.part_elems;
        piece.n_elems = mpi.part_elems;
        piece.base = mpi.input + mpi.row.rank * mpi.part_bytes;
    }
    return piece;
}

static void mpi_ready(void)
{
}

static void parts_exchange(void)
{
    MPI_Request requests[2 * MEETING_MAX_RANKS];
    int n = 0;

    if (mpi.variant == 0) {
        MPI_Alltoallv(mpi.input, mpi.counts, mpi.offsets, MPI_UINT16_T, mpi.parts, mpi.counts,
                      mpi.offsets, MPI_UINT16_T, MPI_COMM_WORLD);
        return;
    }
    for (uint32_t i = 1; i < mpi.row.n_ranks; i++) {
        uint32_t peer = (mpi.row.rank + i) % mpi.row.n_ranks;

        MPI_Irecv(mpi.parts + peer * mpi.part_bytes, mpi.counts[peer], MPI_UINT16_T, (int)peer, 0,
                  MPI_COMM_WORLD, &requests[n++]);
        MPI_Isend(mpi.input + peer * mpi.part_bytes, mpi.counts[peer], MPI_UINT16_T, (int)peer, 0,
                  MPI_COMM_WORLD, &requests[n++]);
    }
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

/* This rank's part of all inputs, summed in fp32. */
static void parts_sum(float *sum)
{
    const void *sources[MEETING_MAX_RANKS];
    const struct reduce_spec spec = {
        .dst = sum,
        .sources = sources,
        .dim_sizes = &mpi.row.n_ranks,
        .n_elems = mpi.part_elems,
        .source_dtype = DTYPE_BF16,
        .wire_dtype = DTYPE_BF16,
        .n_dims = 1,
    };

    for (uint32_t i = 0; i < mpi.row.n_ranks; i++) {
        char *buffer = i == mpi.row.rank ? mpi.input : mpi.parts;

        sources[i] = buffer + i * mpi.part_bytes;
    }
    mpi.kernels->tree(&spec);
}

static void bf16_run(void)
{
    char *rounded = mpi.input + mpi.row.rank * mpi.part_bytes;
    float *sum = (float *)(void *)mpi.output;

    parts_exchange();
    parts_sum(sum);
    if (mpi.row.op == OP_ALL_REDUCE) {
        mpi.kernels->from_fp32(rounded, DTYPE_BF16, sum, mpi.part_elems);
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mpi.input, (int)mpi.part_elems,
                      MPI_UINT16_T, MPI_COMM_WORLD);
    }
}

static void scatter_run(void)
{
    if (mpi.variant == 0) {
        MPI_Reduce_scatter_block(mpi.input, mpi.output, (int)mpi.part_elems, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
    } else {
        MPI_Reduce_scatter(mpi.input, mpi.output, mpi.all_counts, MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD);
    }
}

static void mpi_run(void)
{
    if (mpi.row.op == OP_UNSHARD) {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mpi.input, (int)mpi.part_bytes, MPI_BYTE,
                      MPI_COMM_WORLD);
    } else if (mpi.row.dtype == DTYPE_BF16) {
        bf16_run();
    } else if (mpi.row.op == OP_REDUCE_SCATTER) {
        scatter_run();
    } else {
        MPI_Allreduce(mpi.variant == 0 ? mpi.input : MPI_IN_PLACE,
                      mpi.variant == 0 ? mpi.output : mpi.input, (int)mpi.row.n_elems, MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
    }
}

static struct piece mpi_result(void)
{
    bool is_in_place =
        mpi.row.op == OP_UNSHARD ||
        (mpi.row.op == OP_ALL_REDUCE && (mpi.row.dtype == DTYPE_BF16 || mpi.variant == 1));
    struct piece piece = {.base = is_in_place ? mpi.input : mpi.output, .divisor = 1};

    piece.n_elems = mpi.row.n_elems;
    piece.dtype = is_in_place ? mpi.row.dtype : DTYPE_FP32;
    if (mpi.row.op == OP_REDUCE_SCATTER) {
        piece.first = mpi.row.rank * mpi.part_elems;
        piece.n_elems = mpi.part_elems;
    }
    return piece;
}

const struct contender contender = {
    .name = "mpi",
    .version = mpi_version,
    .variant = mpi_variant,
    .begin = mpi_begin,
    .row_begin = mpi_row_begin,
    .open = mpi_open,
    .ready = mpi_ready,
    .run = mpi_run,
    .result = mpi_result,
    .settle = mpi_ready,
    .row_end = mpi_row_end,
    .end = mpi_end,
};
