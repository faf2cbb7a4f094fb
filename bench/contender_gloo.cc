/* SPDX-License-Identifier: Apache-2.0 */
/* gloo as a contender: what PyTorch's collectives on CPUs call, over TCP on the loopback. */
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

extern "C" {
#include "buffer.h"
#include "contender.h"
}

/*
 *     unshard          allgather
 *     all_reduce       allreduce, its default algorithm, in place
 *     reduce_scatter   likewise: gloo has none of this kind, and what stands in for it reduces all.
 *                      Neither the copy of the input nor that of the result is made here
 *
 * bf16 is summed in bf16, rounded each time, by a function that is handed to gloo as PyTorch's is.
 */
namespace
{

struct State {
    std::shared_ptr<gloo::rendezvous::Context> context;
    struct row row;
    size_t max_bytes;
    char *input;
    char *output;
};

State state;

void must(const std::exception &error)
{
    fail("%s", error.what());
}

float fp32_of(uint16_t value)
{
    uint32_t bits = static_cast<uint32_t>(value) << 16;
    float ret;

    memcpy(&ret, &bits, sizeof(ret));
    return ret;
}

/* To the nearest, halves to even; there is no NaN here. */
uint16_t bf16_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void bf16_sum(void *to, const void *left, const void *right, size_t n_elems)
{
    uint16_t *sums = static_cast<uint16_t *>(to);
    const uint16_t *a = static_cast<const uint16_t *>(left);
    const uint16_t *b = static_cast<const uint16_t *>(right);

    for (size_t i = 0; i < n_elems; i++) {
        sums[i] = bf16_of(fp32_of(a[i]) + fp32_of(b[i]));
    }
}

/* Ranks find each other by files beside that of the meeting. */
void ranks_connect(const struct meeting *meeting)
{
    gloo::transport::tcp::attr attr("127.0.0.1");
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
    std::string path(meeting->path);
    gloo::rendezvous::FileStore store(path.substr(0, path.find_last_of('/') + 1) + ".");

    state.context = std::make_shared<gloo::rendezvous::Context>(meeting->rank, meeting->n_ranks);
    state.context->setTimeout(std::chrono::seconds(60));
    state.context->connectFullMesh(store, device);
}

void gloo_begin(const struct meeting *meeting, size_t max_bytes)
{
    state.max_bytes = max_bytes;
    state.input = static_cast<char *>(buffer_create(max_bytes));
    state.output = static_cast<char *>(buffer_create(max_bytes));
    try {
        ranks_connect(meeting);
    } catch (const std::exception &error) {
        must(error);
    }
}

void gloo_end()
{
    state.context.reset();
    buffer_destroy(state.input, state.max_bytes);
    buffer_destroy(state.output, state.max_bytes);
}

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)

const char *gloo_version()
{
    return "gloo " TEXT(GLOO_VERSION_MAJOR) "." TEXT(GLOO_VERSION_MINOR) "." TEXT(
        GLOO_VERSION_PATCH);
}

const char *gloo_variant(const struct row *, uint32_t index)
{
    return index == 0 ? "" : nullptr;
}

void gloo_row_begin(const struct row *row, uint32_t)
{
    state.row = *row;
}

struct piece part_of(char *base, bool is_part)
{
    size_t n_elems = is_part ? state.row.n_elems / state.row.n_ranks : state.row.n_elems;
    size_t first = is_part ? state.row.rank * n_elems : 0;

    return {base, first, n_elems, state.row.dtype, 1};
}

struct piece gloo_open()
{
    return part_of(state.input, state.row.op == OP_UNSHARD);
}

void gloo_none()
{
}

void reduction_run()
{
    gloo::AllreduceOptions options(state.context);
    char *buffer = state.input;

    if (state.row.dtype == DTYPE_BF16) {
        options.setOutput(reinterpret_cast<uint16_t *>(buffer), state.row.n_elems);
        options.setReduceFunction(bf16_sum);
    } else {
        void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;

        options.setOutput(reinterpret_cast<float *>(buffer), state.row.n_elems);
        options.setReduceFunction(sum);
    }
    gloo::allreduce(options);
}

void gather_run()
{
    gloo::AllgatherOptions options(state.context);

    options.setInput(state.input, state.row.bytes / state.row.n_ranks);
    options.setOutput(state.output, state.row.bytes);
    gloo::allgather(options);
}

void gloo_run()
{
    try {
        if (state.row.op == OP_UNSHARD) {
            gather_run();
        } else {
            reduction_run();
        }
    } catch (const std::exception &error) {
        must(error);
    }
}

struct piece gloo_result()
{
    struct piece piece = part_of(state.input, state.row.op == OP_REDUCE_SCATTER);

    if (state.row.op == OP_UNSHARD) {
        piece.base = state.output;
    } else {
        piece.base = state.input + piece.first * dtype_bytes(state.row.dtype);
    }
    return piece;
}

} // namespace

extern "C" {
extern const struct contender contender = {
    /* .name = */ "gloo",
    /* .version = */ gloo_version,
    /* .never_waits = */ false,
    /* .has_threads = */ true,
    /* .variant = */ gloo_variant,
    /* .begin = */ gloo_begin,
    /* .row_begin = */ gloo_row_begin,
    /* .open = */ gloo_open,
    /* .ready = */ gloo_none,
    /* .run = */ gloo_run,
    /* .result = */ gloo_result,
    /* .settle = */ gloo_none,
    /* .row_end = */ gloo_none,
    /* .end = */ gloo_end,
};
}
