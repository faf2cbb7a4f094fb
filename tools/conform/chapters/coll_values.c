/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: each kind, dtype and reduction, and counts of all sorts. */
#include <math.h>
#include <stdlib.h>

#include "collectives.h"

#define MAX_RANKS 4u
#define MAX_ELEMS 64u

static const struct coll_dtype *const fp32 = &coll_dtypes[0];

/* Whole and small, so that four of them are exact in every dtype, also as a mean. */
static double value_of(uint32_t index, uint64_t elem)
{
    return (double)(4u * ((elem * 3u + index * 5u) % 7u));
}

static double reduced(uint32_t n_ranks, uint64_t elem, int32_t reduce)
{
    double result = value_of(0, elem);

    for (uint32_t index = 1; index < n_ranks; index++) {
        double value = value_of(index, elem);

        if (reduce == HSDP_REDUCE_MAX) {
            result = fmax(result, value);
        } else if (reduce == HSDP_REDUCE_MIN) {
            result = fmin(result, value);
        } else {
            result += value;
        }
    }
    return reduce == HSDP_REDUCE_MEAN ? result / n_ranks : result;
}

static void number_expect(const struct coll *coll, const char *what, uint64_t elem, double found,
                          double expected)
{
    host_expect_number(&coll->host, what, elem, found, expected);
}

/* ------------------------------------------------------------------------------------- barrier */

/* The last rank comes late, and has said so when the others go on. */
void coll_barrier(struct conform *conform)
{
    volatile uint32_t *has_come = conform->shared;
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct coll coll;

    coll_open(conform, &coll, "dp=2,ep=2", "dp,ep");
    spec.kind = HSDP_COLL_BARRIER;
    for (uint32_t late = 0; late < coll.n_ranks; late++) {
        if (coll.index == late) {
            conform_sleep_ms(20);
            __atomic_store_n(has_come, late + 1, __ATOMIC_SEQ_CST);
        }
        numbers_expect(coll_run(&coll, &spec, 1), "a barrier is unsupported");
        numbers_expect(__atomic_load_n(has_come, __ATOMIC_SEQ_CST) > late,
                       "rank %u left the barrier before rank %u came", conform->rank, late);
    }
    coll_close(&coll);
}

/* --------------------------------------------------------------------------------- reductions */

/* Runs for each dtype and reduction; one at least has to be built. */
static void reductions_each(struct coll *coll,
                            bool (*run)(struct coll *coll, const struct coll_dtype *dtype,
                                        int32_t reduce))
{
    static const char *const names[] = {"sum", "mean", "max", "min"};
    uint32_t n_built = 0;

    for (uint32_t i = 0; i < COLL_N_DTYPES; i++) {
        for (int32_t reduce = HSDP_REDUCE_SUM; reduce <= HSDP_REDUCE_MIN; reduce++) {
            if (!coll_dtypes[i].is_float && reduce == HSDP_REDUCE_MEAN) {
                continue;
            }
            numbers_note("%s of %s", names[reduce], coll_dtypes[i].name);
            n_built += run(coll, &coll_dtypes[i], reduce);
        }
    }
    numbers_note("%s", "");
    if (n_built == 0) {
        numbers_skip("no dtype is built");
    }
}

static bool all_reduce_one(struct coll *coll, const struct coll_dtype *dtype, int32_t reduce)
{
    double input[MAX_ELEMS] = {0}; /* of any dtype: none has wider elements */
    double output[MAX_ELEMS] = {0};
    struct coll_vector from, to;
    struct hsdp_coll_spec spec =
        coll_spec(HSDP_COLL_ALL_REDUCE, reduce, coll_vector(&from, input, 37, dtype),
                  coll_vector(&to, output, 37, dtype));

    for (uint64_t elem = 0; elem < 37; elem++) {
        coll_write(input, elem, dtype, value_of(coll->index, elem));
    }
    if (!coll_run(coll, &spec, 1)) {
        return false;
    }
    for (uint64_t elem = 0; elem < 37; elem++) {
        number_expect(coll, "output", elem, coll_read(output, elem, dtype),
                      reduced(coll->n_ranks, elem, reduce));
        number_expect(coll, "input", elem, coll_read(input, elem, dtype),
                      value_of(coll->index, elem));
    }
    return true;
}

void coll_all_reduce(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    reductions_each(&coll, all_reduce_one);
    coll_close(&coll);
}

static bool in_place_one(struct coll *coll, const struct coll_dtype *dtype, int32_t reduce)
{
    double memory[MAX_ELEMS] = {0};
    struct coll_vector vector;
    struct hsdp_tensor *tensor = coll_vector(&vector, memory, 41, dtype);
    struct hsdp_coll_spec spec = coll_spec(HSDP_COLL_ALL_REDUCE, reduce, tensor, tensor);

    for (uint64_t elem = 0; elem < 41; elem++) {
        coll_write(memory, elem, dtype, 3.0 * value_of(coll->index, elem));
    }
    if (!coll_run(coll, &spec, 1)) {
        return false;
    }
    for (uint64_t elem = 0; elem < 41; elem++) {
        double found = coll_read(memory, elem, dtype);
        double expected = 3.0 * reduced(coll->n_ranks, elem, reduce);

        if (reduce == HSDP_REDUCE_MEAN && coll->n_ranks == 3) { /* 3 * (sum / 3) is the sum */
            expected = reduced(coll->n_ranks, elem, HSDP_REDUCE_SUM);
        }
        number_expect(coll, "element", elem, found, expected);
    }
    return true;
}

void coll_all_reduce_in_place(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=3", "dp");
    for (uint32_t i = 0; i < 4; i++) { /* sums of integers of 8 bits would not fit */
        numbers_note("%s", coll_dtypes[i].name);
        in_place_one(&coll, &coll_dtypes[i], HSDP_REDUCE_SUM);
        in_place_one(&coll, &coll_dtypes[i], HSDP_REDUCE_MEAN);
        in_place_one(&coll, &coll_dtypes[i], HSDP_REDUCE_MAX);
    }
    coll_close(&coll);
}

static bool reduce_scatter_one(struct coll *coll, const struct coll_dtype *dtype, int32_t reduce)
{
    uint64_t n_elems = 13;
    double input[MAX_ELEMS] = {0};
    double output[MAX_ELEMS] = {0};
    struct coll_vector from, to;
    struct hsdp_coll_spec spec = coll_spec(
        HSDP_COLL_REDUCE_SCATTER, reduce, coll_vector(&from, input, n_elems * coll->n_ranks, dtype),
        coll_vector(&to, output, n_elems, dtype));

    for (uint64_t elem = 0; elem < n_elems * coll->n_ranks; elem++) {
        coll_write(input, elem, dtype, value_of(coll->index, elem));
    }
    if (!coll_run(coll, &spec, 1)) {
        return false;
    }
    for (uint64_t elem = 0; elem < n_elems; elem++) {
        number_expect(coll, "output", elem, coll_read(output, elem, dtype),
                      reduced(coll->n_ranks, n_elems * coll->index + elem, reduce));
    }
    return true;
}

void coll_reduce_scatter(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    reductions_each(&coll, reduce_scatter_one);
    coll_close(&coll);
}

/* ------------------------------------------------------------------------------ moving alone */

/* What a member says to another one. */
static double said(uint32_t from, uint32_t to, uint64_t elem)
{
    return (double)(1u + from * 29u + to * 7u + elem % 5u);
}

static void gather_one(struct coll *coll, const struct coll_dtype *dtype)
{
    double input[MAX_ELEMS] = {0};
    double output[MAX_ELEMS] = {0};
    struct coll_vector from, to;
    struct hsdp_coll_spec spec =
        coll_spec(HSDP_COLL_ALL_GATHER, 0, coll_vector(&from, input, 9, dtype),
                  coll_vector(&to, output, 9u * coll->n_ranks, dtype));

    for (uint64_t elem = 0; elem < 9; elem++) {
        coll_write(input, elem, dtype, said(coll->index, 0, elem));
    }
    if (!coll_run(coll, &spec, 1)) {
        return;
    }
    for (uint64_t elem = 0; elem < 9u * coll->n_ranks; elem++) {
        number_expect(coll, "output", elem, coll_read(output, elem, dtype),
                      said((uint32_t)(elem / 9u), 0, elem % 9u));
    }
}

void coll_all_gather(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    for (uint32_t i = 0; i < COLL_N_DTYPES; i++) {
        numbers_note("%s", coll_dtypes[i].name);
        gather_one(&coll, &coll_dtypes[i]);
    }
    coll_close(&coll);
}

static void all_to_all_one(struct coll *coll, const struct coll_dtype *dtype, bool is_in_place)
{
    uint64_t n_all = 5u * coll->n_ranks;
    double memory[2][MAX_ELEMS] = {{0}};
    double *output = memory[is_in_place ? 0 : 1];
    struct coll_vector from, to;
    struct hsdp_coll_spec spec =
        coll_spec(HSDP_COLL_ALL_TO_ALL, 0, coll_vector(&from, memory[0], n_all, dtype),
                  coll_vector(&to, output, n_all, dtype));

    for (uint64_t elem = 0; elem < n_all; elem++) {
        coll_write(memory[0], elem, dtype, said(coll->index, (uint32_t)(elem / 5u), elem % 5u));
    }
    if (!coll_run(coll, &spec, 1)) {
        return;
    }
    for (uint64_t elem = 0; elem < n_all; elem++) {
        number_expect(coll, "output", elem, coll_read(output, elem, dtype),
                      said((uint32_t)(elem / 5u), coll->index, elem % 5u));
    }
}

void coll_all_to_all(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    for (uint32_t i = 0; i < COLL_N_DTYPES; i++) {
        numbers_note("%s", coll_dtypes[i].name);
        all_to_all_one(&coll, &coll_dtypes[i], false);
        numbers_note("%s in place", coll_dtypes[i].name);
        all_to_all_one(&coll, &coll_dtypes[i], true);
    }
    coll_close(&coll);
}

static void broadcast_one(struct coll *coll, uint32_t root, bool is_in_place)
{
    float memory[2][MAX_ELEMS] = {{0}};
    float *output = memory[is_in_place ? 0 : 1];
    struct coll_vector from, to;
    struct hsdp_coll_spec spec =
        coll_spec(HSDP_COLL_BROADCAST, 0, NULL, coll_vector(&to, output, 33, fp32));

    coll_vector(&from, memory[0], 33, fp32);
    spec.input = coll->index == root ? &from.tensor : NULL;
    spec.peer = root;
    for (uint64_t elem = 0; elem < 33; elem++) {
        memory[0][elem] = (float)said(coll->index, root, elem);
    }
    numbers_expect(coll_run(coll, &spec, 1), "broadcast of fp32 is unsupported");
    for (uint64_t elem = 0; elem < 33; elem++) {
        number_expect(coll, "output", elem, (double)output[elem], said(root, root, elem));
    }
}

void coll_broadcast(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    for (uint32_t root = 0; root < coll.n_ranks; root++) {
        numbers_note("root %u", root);
        broadcast_one(&coll, root, false);
        broadcast_one(&coll, root, true);
    }
    coll_close(&coll);
}

/* Everyone sends to the next one, and receives from the one before, in one call. */
void coll_send_recv(struct conform *conform)
{
    float input[MAX_ELEMS], output[MAX_ELEMS] = {0};
    struct hsdp_coll_spec specs[2];
    struct coll_vector from, to;
    struct coll coll;
    uint32_t before;

    coll_open(conform, &coll, "dp=4", "dp");
    before = (coll.index + coll.n_ranks - 1) % coll.n_ranks;
    specs[0] = coll_spec(HSDP_COLL_SEND, 0, coll_vector(&from, input, 50, fp32), NULL);
    specs[0].peer = (coll.index + 1) % coll.n_ranks;
    specs[1] = coll_spec(HSDP_COLL_RECV, 0, NULL, coll_vector(&to, output, 50, fp32));
    specs[1].peer = before;
    for (int round = 0; round < 3; round++) {
        for (uint64_t elem = 0; elem < 50; elem++) {
            input[elem] = (float)said(coll.index, (uint32_t)round, elem);
        }
        numbers_expect(coll_run(&coll, specs, 2), "send and recv of fp32 are unsupported");
        for (uint64_t elem = 0; elem < 50; elem++) {
            number_expect(&coll, "received", elem, (double)output[elem],
                          said(before, (uint32_t)round, elem));
        }
    }
    coll_close(&coll);
}

/* ---------------------------------------------------------------------------------- odd counts */

/* How many elements one member has for another one; some have none. */
static uint64_t count_of(uint32_t from, uint32_t to)
{
    return (from * 3u + to * 2u) % 5u;
}

static void uneven_to_all(struct coll *coll)
{
    float input[MAX_ELEMS], output[MAX_ELEMS] = {0};
    uint64_t to_each[MAX_RANKS], from_each[MAX_RANKS];
    uint64_t n_sent = 0, n_received = 0, at = 0;
    struct coll_vector from, to;
    struct hsdp_coll_spec spec;

    for (uint32_t peer = 0; peer < coll->n_ranks; peer++) {
        to_each[peer] = count_of(coll->index, peer);
        from_each[peer] = count_of(peer, coll->index);
        for (uint64_t i = 0; i < to_each[peer]; i++) {
            input[n_sent++] = (float)said(coll->index, peer, i);
        }
        n_received += from_each[peer];
    }
    spec = coll_spec(HSDP_COLL_ALL_TO_ALL, 0, coll_vector(&from, input, n_sent, fp32),
                     coll_vector(&to, output, n_received, fp32));
    spec.send_elems = to_each;
    spec.recv_elems = from_each;
    numbers_expect(coll_run(coll, &spec, 1), "an uneven all_to_all of fp32 is unsupported");
    for (uint32_t peer = 0; peer < coll->n_ranks; peer++) {
        for (uint64_t i = 0; i < from_each[peer]; i++, at++) {
            number_expect(coll, "all_to_all's output", at, (double)output[at],
                          said(peer, coll->index, i));
        }
    }
}

static void uneven_gather(struct coll *coll)
{
    float input[MAX_ELEMS], output[MAX_ELEMS] = {0};
    uint64_t counts[MAX_RANKS];
    uint64_t n_all = 0, at = 0;
    struct coll_vector from, to;
    struct hsdp_coll_spec spec;

    for (uint32_t peer = 0; peer < coll->n_ranks; peer++) {
        counts[peer] = count_of(peer, 1);
        n_all += counts[peer];
    }
    for (uint64_t i = 0; i < counts[coll->index]; i++) {
        input[i] = (float)said(coll->index, 0, i);
    }
    spec = coll_spec(HSDP_COLL_ALL_GATHER, 0, coll_vector(&from, input, counts[coll->index], fp32),
                     coll_vector(&to, output, n_all, fp32));
    spec.recv_elems = counts;
    numbers_expect(coll_run(coll, &spec, 1), "an uneven all_gather of fp32 is unsupported");
    for (uint32_t peer = 0; peer < coll->n_ranks; peer++) {
        for (uint64_t i = 0; i < counts[peer]; i++, at++) {
            number_expect(coll, "all_gather's output", at, (double)output[at], said(peer, 0, i));
        }
    }
}

static void uneven_scatter(struct coll *coll)
{
    float input[MAX_ELEMS], output[MAX_ELEMS] = {0};
    uint64_t counts[MAX_RANKS];
    uint64_t n_all = 0, first = 0;
    struct coll_vector from, to;
    struct hsdp_coll_spec spec;

    for (uint32_t peer = 0; peer < coll->n_ranks; peer++) {
        counts[peer] = count_of(peer, 2);
        first = peer == coll->index ? n_all : first;
        n_all += counts[peer];
    }
    for (uint64_t elem = 0; elem < n_all; elem++) {
        input[elem] = (float)value_of(coll->index, elem);
    }
    spec =
        coll_spec(HSDP_COLL_REDUCE_SCATTER, HSDP_REDUCE_SUM, coll_vector(&from, input, n_all, fp32),
                  coll_vector(&to, output, counts[coll->index], fp32));
    spec.send_elems = counts;
    numbers_expect(coll_run(coll, &spec, 1), "an uneven reduce_scatter of fp32 is unsupported");
    for (uint64_t elem = 0; elem < counts[coll->index]; elem++) {
        number_expect(coll, "reduce_scatter's output", elem, (double)output[elem],
                      reduced(coll->n_ranks, first + elem, HSDP_REDUCE_SUM));
    }
}

void coll_uneven(struct conform *conform)
{
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    uneven_to_all(&coll);
    uneven_gather(&coll);
    uneven_scatter(&coll);
    coll_close(&coll);
}

void coll_zero(struct conform *conform)
{
    static const int32_t kinds[] = {HSDP_COLL_ALL_REDUCE, HSDP_COLL_ALL_GATHER,
                                    HSDP_COLL_REDUCE_SCATTER, HSDP_COLL_ALL_TO_ALL,
                                    HSDP_COLL_BROADCAST};
    float memory[2] = {7.0f, 7.0f};
    struct coll_vector from, to;
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    for (uint32_t i = 0; i < NUMBERS_N(kinds); i++) {
        struct hsdp_coll_spec spec =
            coll_spec(kinds[i], HSDP_REDUCE_SUM, coll_vector(&from, memory, 0, fp32),
                      coll_vector(&to, memory + 1, 0, fp32));

        if (kinds[i] == HSDP_COLL_BROADCAST && coll.index != 0) {
            spec.input = NULL;
        }
        numbers_note("kind %d", (int)kinds[i]);
        numbers_expect(coll_run(&coll, &spec, 1), "a count of zero is unsupported");
        number_expect(&coll, "memory", 1, (double)memory[1], 7.0);
    }
    coll_close(&coll);
}

/* Beyond any buffer that lies between. */
void coll_large(struct conform *conform)
{
    uint64_t n_elems = 700001;
    float *memory = malloc(n_elems * sizeof(float));
    struct hsdp_coll_spec spec;
    struct coll_vector vector;
    struct coll coll;

    coll_open(conform, &coll, "dp=2", "dp");
    numbers_expect(memory != NULL, "the kit has no memory");
    for (uint64_t elem = 0; elem < n_elems; elem++) {
        memory[elem] = (float)value_of(coll.index, elem);
    }
    coll_vector(&vector, memory, n_elems, fp32);
    spec = coll_spec(HSDP_COLL_ALL_REDUCE, HSDP_REDUCE_SUM, &vector.tensor, &vector.tensor);
    numbers_expect(coll_run(&coll, &spec, 1), "all_reduce of fp32 is unsupported");
    for (uint64_t elem = 0; elem < n_elems; elem++) {
        number_expect(&coll, "element", elem, (double)memory[elem],
                      reduced(2, elem, HSDP_REDUCE_SUM));
    }
    free(memory);
    coll_close(&coll);
}
