/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of NCCL's double: ranks that die, differ or cross, threads that meet, and its faults. */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "double_ranks.h"
#include "suite.h"

/* Long enough to see that something does not end. */
#define HANG_MS 200u

static nccl_result sum(nccl_comm comm, void *values, uint64_t n, cu_stream stream)
{
    return nccl.all_reduce(values, values, n, NCCL_FLOAT32, NCCL_SUM, comm, stream);
}

static void *zeros_put(uint64_t n_bytes)
{
    void *zeros = calloc(1, n_bytes);
    void *address;

    ck_assert_ptr_nonnull(zeros);
    address = double_put(zeros, n_bytes);
    free(zeros);
    return address;
}

/* -------------------------------------------------------------------------------- ranks that die
 */

/* Files by which processes share memory; a double leaves, and has, none. */
static uint32_t n_shared_files(void)
{
    DIR *folder = opendir("/dev/shm");
    uint32_t n = 0;
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        n += strstr(entry->d_name, "nccl") != NULL;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

static void bereaved_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_result result;
    nccl_comm comm;
    cu_stream stream;
    void *values;

    double_rank_start(rank);
    comm = double_comm(shared, rank, 0);
    stream = stream_make();
    values = zeros_put(400000);
    double_comm_done(comm, sum(comm, values, 100000, stream));
    stream_finish(stream);
    ck_assert_uint_eq(n_shared_files(), 0);
    ranks_meet(&shared->n_ranks_at[0], shared->n_ranks);
    while (rank == 1) {
        pause();
    }
    double_comm_done(comm, sum(comm, values, 100000, stream));
    ck_assert(!double_stream_ends(stream, HANG_MS));
    NCCL(async_error(comm, &result));
    ck_assert_int_eq(result, NCCL_OK); /* nobody has noticed */
    NCCL(comm_abort(comm));
    stream_finish(stream);
}

START_TEST(collective_with_a_killed_rank_ends_by_abort_only)
{
    struct double_shared *shared = ranks_memory(sizeof(*shared));
    struct ranks ranks;

    shared->n_ranks = 3;
    ranks_start(&ranks, 3, RANKS_LIMIT_MS, bereaved_rank, shared);
    while (atomic_load(&shared->n_ranks_at[0]) < 3) {
        ranks_sleep_ms(1);
    }
    ranks_kill(&ranks, 1);
    ranks_wait(&ranks);
    ck_assert_uint_eq(n_shared_files(), 0);
}
END_TEST

static void deserted_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct nccl_config config = nccl_config_make();
    nccl_comm comm = NULL;

    double_rank_start(rank);
    if (rank == 0) {
        double_id(shared, rank, 0);
        return;
    }
    ranks_sleep_ms(HANG_MS);
    nccl.comm_init(&comm, 2, double_id(shared, rank, 0), (int32_t)rank, &config);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_REMOTE_ERROR);
    NCCL(comm_abort(comm));
}

START_TEST(meeting_whose_process_has_ended_fails)
{
    double_ranks_run(2, 0, deserted_rank);
}
END_TEST

/* ------------------------------------------------------------------- ranks that differ, and cross
 */

/* Reads what stderr had while f ran. */
static void stderr_read(void (*f)(void *arg), void *arg, char *ret, size_t n_max)
{
    int former = dup(STDERR_FILENO);
    int file = memfd_create("stderr", MFD_CLOEXEC);
    ssize_t n;

    dup2(file, STDERR_FILENO);
    f(arg);
    dup2(former, STDERR_FILENO);
    n = pread(file, ret, n_max - 1, 0);
    ret[n > 0 ? n : 0] = '\0';
    close(file);
    close(former);
}

struct odd_call {
    int32_t number;
    uint32_t rank;
    nccl_comm comm;
    cu_stream stream;
    unsigned char *values;
};

/* Rank 0 does something else than the others. */
static void odd_calls(void *arg)
{
    const struct odd_call *call = arg;
    int32_t odd = call->rank == 0 ? call->number : -1;
    nccl_result result;

    switch (odd) {
    case 0:
        result = sum(call->comm, call->values, 7, call->stream);
        break;
    case 1:
        result = nccl.all_reduce(call->values, call->values, 8, NCCL_INT32, NCCL_SUM, call->comm,
                                 call->stream);
        break;
    case 2:
        result = nccl.all_reduce(call->values, call->values, 8, NCCL_FLOAT32, NCCL_MAX, call->comm,
                                 call->stream);
        break;
    case 3:
        result = nccl.all_gather(call->values, call->values + 64, 8, NCCL_FLOAT32, call->comm,
                                 call->stream);
        break;
    default:
        result = sum(call->comm, call->values, 8, call->stream);
        break;
    }
    double_comm_done(call->comm, result);
    ck_assert(!double_stream_ends(call->stream, HANG_MS));
}

static void odd_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct odd_call call = {.number = shared->number, .rank = rank};
    char text[4096];

    setenv("HSDP_DOUBLE_DEBUG", "1", 1);
    double_rank_start(rank);
    call.comm = double_comm(shared, rank, 0);
    call.stream = stream_make();
    call.values = zeros_put(1024);
    stderr_read(odd_calls, &call, text, sizeof(text));
    ranks_meet(&shared->n_ranks_at[0], shared->n_ranks); /* an abort would be noticed */
    if (rank == 0 || rank == 1) {
        ck_assert_msg(strstr(text, "waits for ever: it is in nccl") != NULL, "%s", text);
    }
    NCCL(comm_abort(call.comm));
    stream_finish(call.stream);
}

START_TEST(collective_that_differs_between_ranks_hangs_and_says_so)
{
    double_ranks_run(3, _i, odd_rank);
}
END_TEST

/* Two communicators of the same ranks, each on a stream of its own. */
struct pair {
    nccl_comm comms[2];
    cu_stream streams[2];
    void *values[2];
};

static void pair_init(struct pair *ret, struct double_shared *shared, uint32_t rank)
{
    double_rank_start(rank);
    for (uint32_t i = 0; i < 2; i++) {
        ret->comms[i] = double_comm(shared, rank, i);
        ret->streams[i] = stream_make();
        ret->values[i] = zeros_put(64);
    }
}

static void pair_issue(const struct pair *pair, uint32_t i)
{
    double_comm_done(pair->comms[i], sum(pair->comms[i], pair->values[i], 8, pair->streams[i]));
}

static void crossing_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct pair pair;
    uint32_t first = shared->number == 1 ? rank : 0;

    pair_init(&pair, shared, rank);
    pair_issue(&pair, first);
    usleep(50000); /* so that the device has come to it */
    pair_issue(&pair, 1 - first);
    if (shared->number == 0) {
        ck_assert(double_stream_ends(pair.streams[0], RANKS_LIMIT_MS));
        ck_assert(double_stream_ends(pair.streams[1], RANKS_LIMIT_MS));
    } else {
        ck_assert(!double_stream_ends(pair.streams[0], HANG_MS));
        ck_assert(!double_stream_ends(pair.streams[1], 1));
    }
    ranks_meet(&shared->n_ranks_at[0], 2);
    NCCL(group_start()); /* both are marked before either is freed */
    NCCL(comm_abort(pair.comms[0]));
    NCCL(comm_abort(pair.comms[1]));
    NCCL(group_end());
    stream_finish(pair.streams[0]);
    stream_finish(pair.streams[1]);
}

START_TEST(communicators_launched_in_opposite_orders_wait_for_each_other)
{
    double_ranks_run(2, _i, crossing_rank);
}
END_TEST

/* A launch that cannot begin holds back later ones only where the order is implicit. */
static void implicit_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct gate gate = {0};
    struct pair pair;

    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", shared->number == 1 ? "1" : "0", 1);
    pair_init(&pair, shared, rank);
    gate_enqueue(&gate, pair.streams[0], NULL, 0);
    pair_issue(&pair, 0);
    pair_issue(&pair, 1);
    ck_assert(double_stream_ends(pair.streams[1], shared->number == 1 ? HANG_MS : RANKS_LIMIT_MS) ==
              (shared->number == 0));
    gate_open(&gate);
    stream_finish(pair.streams[0]);
    stream_finish(pair.streams[1]);
    double_comm_end(pair.comms[0]);
    double_comm_end(pair.comms[1]);
}

START_TEST(launch_order_is_kept_where_it_is_implicit)
{
    double_ranks_run(2, _i, implicit_rank);
}
END_TEST

/* -------------------------------------------------------------------- what ends the process */

static void *second_thread(void *arg)
{
    (void)arg;
    ranks_sleep_ms(HANG_MS);
    nccl.group_start();
    return NULL;
}

static void two_threads(void)
{
    struct nccl_unique_id id;
    nccl_comm comm = NULL;
    pthread_t thread;

    double_rank_start(0);
    nccl.unique_id(&id);
    pthread_create(&thread, NULL, second_thread, NULL);
    nccl.comm_init(&comm, 2, id, 0, NULL); /* blocks, for the other rank never comes */
}

START_TEST(two_threads_inside_end_the_process)
{
    double_check_dies(two_threads, "one thread only may be inside");
}
END_TEST

static struct double_shared solo_shared;

static nccl_comm solo_start(void)
{
    double_rank_start(0);
    solo_shared.n_ranks = 1;
    return double_comm(&solo_shared, 0, 0);
}

static void overlapping(void)
{
    nccl_comm comm = solo_start();
    unsigned char *values = zeros_put(64);

    nccl.all_reduce(values, values + 4, 8, NCCL_FLOAT32, NCCL_SUM, comm, stream_make());
}

START_TEST(buffers_that_overlap_end_the_process)
{
    double_check_dies(overlapping, "the buffers overlap");
}
END_TEST

static void beyond(void)
{
    nccl_comm comm = solo_start();
    void *values = zeros_put(64);

    sum(comm, values, 17, stream_make());
}

START_TEST(buffer_that_is_too_small_ends_the_process)
{
    double_check_dies(beyond, "68 bytes");
}
END_TEST

/* ------------------------------------------------------------------------------------ faults */

static void fault_set(const char *text)
{
    setenv("HSDP_DOUBLE_FAULTS", text, 1);
}

START_TEST(fault_version_is_what_the_library_says)
{
    int32_t version;

    fault_set("version=21700");
    double_nccl_load();
    NCCL(get_version(&version));
    ck_assert_int_eq(version, 21700);
}
END_TEST

START_TEST(fault_init_hangs_ends_by_abort_only)
{
    nccl_result result;
    nccl_comm comm;

    fault_set("init_hangs");
    double_rank_start(0);
    solo_shared.n_ranks = 1;
    ck_assert_int_eq(double_comm_ask(&solo_shared, 0, &comm), NCCL_IN_PROGRESS);
    ck_assert(!double_comm_wait_ms(comm, HANG_MS, &result));
    NCCL(comm_abort(comm));
}
END_TEST

static void duplicate_rank(uint32_t rank, void *arg)
{
    nccl_comm comm;

    fault_set("duplicate_gpu@1");
    double_rank_start(rank);
    double_comm_ask(arg, rank, &comm);
    ck_assert_int_eq(double_comm_wait(comm), rank == 1 ? NCCL_BAD_USAGE : NCCL_REMOTE_ERROR);
    NCCL(comm_abort(comm));
}

START_TEST(fault_duplicate_gpu_fails_the_meeting)
{
    double_ranks_run(2, 0, duplicate_rank);
}
END_TEST

static void absent_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm comm;
    cu_stream stream;
    void *values;

    fault_set("peer_absent@1=2");
    double_rank_start(rank);
    comm = double_comm(shared, rank, 0);
    stream = stream_make();
    values = zeros_put(64);
    double_comm_done(comm, sum(comm, values, 8, stream));
    stream_finish(stream);
    double_comm_done(comm, sum(comm, values, 8, stream));
    ck_assert(!double_stream_ends(stream, HANG_MS));
    NCCL(comm_abort(comm));
    stream_finish(stream);
}

START_TEST(fault_peer_absent_hangs_all)
{
    double_ranks_run(2, 0, absent_rank);
}
END_TEST

START_TEST(fault_async_error_comes_after_so_many_collectives)
{
    nccl_comm comm;
    cu_stream stream;
    void *values;
    nccl_result result;

    fault_set("async_error=2");
    comm = solo_start();
    stream = stream_make();
    values = zeros_put(64);
    double_comm_done(comm, sum(comm, values, 8, stream));
    ck_assert_int_eq(double_comm_wait(comm), NCCL_OK);
    sum(comm, values, 8, stream);
    while (double_comm_wait(comm) == NCCL_OK) {
    }
    NCCL(async_error(comm, &result));
    ck_assert_int_eq(result, NCCL_REMOTE_ERROR);
    ck_assert_int_eq(sum(comm, values, 8, stream), NCCL_REMOTE_ERROR);
    NCCL(comm_abort(comm));
}
END_TEST

/* A call in a rank of its own that never returns, and is killed for it. */
static void blocked_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm comm;
    cu_stream stream;
    void *values;

    double_rank_start(rank);
    stream = stream_make();
    values = zeros_put(64);
    if (shared->number == 0) {
        fault_set("init_blocks");
    }
    atomic_store(&shared->n_ranks_at[0], shared->number == 0);
    comm = double_comm(shared, rank, 0);
    fault_set(shared->number == 1 ? "calls_block=2" : "abort_hangs");
    double_comm_done(comm, sum(comm, values, 8, stream));
    stream_finish(stream);
    atomic_store(&shared->n_ranks_at[0], 1);
    if (shared->number == 1) {
        sum(comm, values, 8, stream);
    } else {
        nccl.comm_abort(comm);
    }
    atomic_store(&shared->n_ranks_at[1], 1);
}

START_TEST(fault_that_blocks_a_call_blocks_it)
{
    struct double_shared *shared = ranks_memory(sizeof(*shared));
    struct ranks ranks;

    shared->n_ranks = 1;
    shared->number = _i;
    ranks_start(&ranks, 1, RANKS_LIMIT_MS, blocked_rank, shared);
    while (atomic_load(&shared->n_ranks_at[0]) == 0) {
        ranks_sleep_ms(1);
    }
    ranks_sleep_ms(HANG_MS);
    ck_assert_uint_eq(atomic_load(&shared->n_ranks_at[1]), 0);
    ck_assert_uint_eq(ranks_running(&ranks), 1);
    ranks_kill(&ranks, 0);
    ranks_wait(&ranks);
}
END_TEST

START_TEST(fault_of_the_driver_fails_a_communicator)
{
    nccl_comm comm;

    double_rank_start(0);
    solo_shared.n_ranks = 1;
    fault_set("alloc_fails=1");
    ck_assert_int_eq(double_comm_ask(&solo_shared, 0, &comm), NCCL_IN_PROGRESS);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_CUDA_ERROR);
    NCCL(comm_abort(comm));
}
END_TEST

/* What a context that has failed drops is not waited for. */
START_TEST(work_dropped_by_the_device_is_counted_as_done)
{
    nccl_comm comm = solo_start();
    cu_stream stream = stream_make();
    void *values = zeros_put(64);
    struct gate gate = {0};
    cu_module module;
    cu_function function;
    char args[4096] = {0};
    void *params[] = {args};

    gate_enqueue(&gate, stream, NULL, 0);
    double_comm_done(comm, sum(comm, values, 8, stream));
    DRIVER(module_load(&module, "an image"));
    DRIVER(module_function(&function, module, "hsdp_divide"));
    fault_set("launch_fails=1");
    cuda.launch(function, 1, 1, 1, 32, 1, 1, 0, stream_make(), params, NULL);
    usleep(20000);
    gate_open(&gate);
    ck_assert_int_eq(nccl.comm_abort(comm), NCCL_CUDA_ERROR);
}
END_TEST

/* --------------------------------------------------------------------------------------- suite */

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_nccl_faults");
    TCase *tcase = tcase_create("faults");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, collective_with_a_killed_rank_ends_by_abort_only);
    tcase_add_test(tcase, meeting_whose_process_has_ended_fails);
    tcase_add_loop_test(tcase, collective_that_differs_between_ranks_hangs_and_says_so, 0, 4);
    tcase_add_loop_test(tcase, communicators_launched_in_opposite_orders_wait_for_each_other, 0, 2);
    tcase_add_loop_test(tcase, launch_order_is_kept_where_it_is_implicit, 0, 2);
    tcase_add_test(tcase, two_threads_inside_end_the_process);
    tcase_add_test(tcase, buffers_that_overlap_end_the_process);
    tcase_add_test(tcase, buffer_that_is_too_small_ends_the_process);
    tcase_add_test(tcase, fault_version_is_what_the_library_says);
    tcase_add_test(tcase, fault_init_hangs_ends_by_abort_only);
    tcase_add_test(tcase, fault_duplicate_gpu_fails_the_meeting);
    tcase_add_test(tcase, fault_peer_absent_hangs_all);
    tcase_add_test(tcase, fault_async_error_comes_after_so_many_collectives);
    tcase_add_loop_test(tcase, fault_that_blocks_a_call_blocks_it, 0, 3);
    tcase_add_test(tcase, fault_of_the_driver_fails_a_communicator);
    tcase_add_test(tcase, work_dropped_by_the_device_is_counted_as_done);
    suite_add_tcase(suite, tcase);
    return suite;
}
