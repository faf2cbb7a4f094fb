/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of NCCL's double: communicators, and what it refuses. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "double_ranks.h"
#include "suite.h"

static struct double_shared solo_shared;

/* A communicator of one rank, in the test's own process. */
static nccl_comm solo_start(void)
{
    double_rank_start(0);
    solo_shared.n_ranks = 1;
    return double_comm(&solo_shared, 0, 0);
}

static float *floats_put(float value, uint64_t n)
{
    float *values = malloc(n * sizeof(*values));
    void *address;

    ck_assert_ptr_nonnull(values);
    for (uint64_t i = 0; i < n; i++) {
        values[i] = value;
    }
    address = double_put(values, n * sizeof(*values));
    free(values);
    return address;
}

static float float_get(const float *address)
{
    float value;

    double_get(&value, address, sizeof(value));
    return value;
}

/* ------------------------------------------------------------------- without a communicator */

START_TEST(library_without_a_driver_answers)
{
    struct nccl_unique_id ids[2];
    struct nccl_config config = nccl_config_make();
    nccl_comm comm = NULL;
    int32_t version;

    double_nccl_load();
    NCCL(get_version(&version));
    ck_assert_int_eq(version, 22809);
    ck_assert_str_eq(nccl.error_string(NCCL_OK), "no error");
    ck_assert_str_eq(nccl.error_string(99), "unknown result code");
    NCCL(unique_id(&ids[0]));
    NCCL(unique_id(&ids[1]));
    ck_assert_mem_ne(&ids[0], &ids[1], sizeof(ids[0]));
    ck_assert_uint_eq(ranks_n_threads(), 3);
    ck_assert_int_eq(nccl.comm_init(&comm, 1, ids[0], 0, &config), NCCL_CUDA_ERROR);
    ck_assert_ptr_null(comm);
    ck_assert_int_eq(nccl.get_version(NULL), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.unique_id(NULL), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_destroy(NULL), NCCL_OK);
    ck_assert_int_eq(nccl.comm_abort(NULL), NCCL_OK);
    ck_assert_int_eq(nccl.group_end(), NCCL_BAD_USAGE);
}
END_TEST

START_TEST(memory_allocated_by_nccl_is_given_back)
{
    void *address;

    double_rank_start(0);
    ck_assert_int_eq(nccl_extra.memory_alloc(&address, 4096), NCCL_OK);
    ck_assert_int_eq(nccl_extra.memory_free(address), NCCL_OK);
    ck_assert_int_eq(nccl_extra.memory_free(NULL), NCCL_OK);
    ck_assert_int_eq(nccl_extra.memory_alloc(&address, 0), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl_extra.memory_alloc(&address, SIZE_MAX / 2), NCCL_CUDA_ERROR);
}
END_TEST

/* --------------------------------------------------------------------------- configurations */

/* One member of a good configuration gets another value. */
static const struct {
    size_t offset;
    uint64_t value;
    uint32_t n_bytes;
    nccl_result result;
} configs[] = {
    {offsetof(struct nccl_config, size), 96, 8, NCCL_IN_PROGRESS},
    {offsetof(struct nccl_config, size), 80, 8, NCCL_IN_PROGRESS},
    {offsetof(struct nccl_config, size), 24, 8, NCCL_IN_PROGRESS},
    {offsetof(struct nccl_config, size), 16, 8, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, size), 104, 8, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, magic), 0, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, version), 21300, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, blocking), 2, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, blocking), 1, 4, NCCL_OK},
    {offsetof(struct nccl_config, min_ctas), 4, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, max_ctas), 0, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, split_share), 2, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, shrink_share), 2, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, collnet_enable), 2, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, cta_policy), 9, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, nvls_ctas), 0, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, channels_per_net_peer), 65, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, nvlink_centric), 2, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, cga_cluster_size), UINT32_MAX, 4, NCCL_BAD_ARGUMENT},
    {offsetof(struct nccl_config, graph_usage_mode), 77, 4, NCCL_IN_PROGRESS}, /* not known */
};

START_TEST(config_with_another_member_is_judged)
{
    struct nccl_config config = nccl_config_make();
    struct nccl_unique_id id;
    nccl_comm comm = NULL;

    double_rank_start(0);
    NCCL(unique_id(&id));
    memcpy((char *)&config + configs[_i].offset, &configs[_i].value, configs[_i].n_bytes);
    ck_assert_int_eq(nccl.comm_init(&comm, 1, id, 0, &config), configs[_i].result);
    if (configs[_i].result == NCCL_BAD_ARGUMENT) {
        ck_assert_ptr_null(comm);
        ck_assert_ptr_nonnull(strstr(nccl.last_error(NULL), "config: "));
        return;
    }
    ck_assert_int_eq(double_comm_wait(comm), NCCL_OK);
    NCCL(comm_destroy(comm));
}
END_TEST

START_TEST(config_of_an_old_version_hides_what_it_had_not)
{
    struct nccl_config config = nccl_config_make();
    struct nccl_unique_id id;
    nccl_comm comm = NULL;

    double_rank_start(0);
    NCCL(unique_id(&id));
    config.version = 21700;
    config.split_share = 77;
    config.collnet_enable = 77;
    ck_assert_int_eq(nccl.comm_init(&comm, 1, id, 0, &config), NCCL_IN_PROGRESS);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_OK);
}
END_TEST

START_TEST(init_with_a_wrong_argument_is_refused)
{
    struct nccl_config config = nccl_config_make();
    struct nccl_unique_id id = {{0}};
    nccl_comm comm = NULL;

    double_rank_start(0);
    ck_assert_int_eq(nccl.comm_init(&comm, 2, id, 2, &config), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_init(&comm, 2, id, -1, &config), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_init(&comm, 0, id, 0, &config), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_init(NULL, 1, id, 0, &config), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_init(&comm, 1, id, 0, &config), NCCL_IN_PROGRESS);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_SYSTEM_ERROR); /* no id at all */
    NCCL(comm_abort(comm));
    ck_assert_int_eq(nccl.comm_init(&comm, 1, id, 0, NULL), NCCL_SYSTEM_ERROR); /* blocks */
    ck_assert_ptr_null(comm);
}
END_TEST

/* ---------------------------------------------------------------------------------- meeting */

static void wrong_size_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct nccl_config config = nccl_config_make();
    nccl_comm comm = NULL;

    double_rank_start(rank);
    nccl.comm_init(&comm, rank == 1 ? 3 : 4, double_id(shared, rank, 0), (int32_t)rank, &config);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_REMOTE_ERROR);
    ck_assert_int_eq(nccl.comm_finalize(comm), NCCL_REMOTE_ERROR);
    NCCL(comm_abort(comm));
    ck_assert_int_eq(nccl.comm_abort(comm), NCCL_BAD_ARGUMENT);
}

START_TEST(meeting_of_ranks_that_disagree_on_their_number_fails)
{
    double_ranks_run(2, 0, wrong_size_rank);
}
END_TEST

static void same_rank_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct nccl_config config = nccl_config_make();
    nccl_comm comm = NULL;

    double_rank_start(rank);
    nccl.comm_init(&comm, 3, double_id(shared, rank, 0), 1, &config);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_REMOTE_ERROR);
    NCCL(comm_abort(comm));
}

START_TEST(meeting_to_which_a_rank_comes_twice_fails)
{
    double_ranks_run(2, 0, same_rank_rank);
}
END_TEST

static void same_device_rank(uint32_t rank, void *arg)
{
    nccl_comm comm;

    nccl_result answer;

    double_rank_start(rank < 2 ? 5 : rank);
    ck_assert_int_eq(double_comm_ask(arg, rank, &comm), NCCL_IN_PROGRESS);
    ck_assert_ptr_nonnull(comm);
    answer = double_comm_wait(comm); /* of two, one may hear of the other's first */
    ck_assert(answer == NCCL_REMOTE_ERROR || (rank < 2 && answer == NCCL_BAD_USAGE));
    if (answer == NCCL_BAD_USAGE) {
        ck_assert_ptr_nonnull(strstr(nccl.last_error(comm), "Duplicate GPU detected"));
    }
    NCCL(comm_abort(comm));
}

START_TEST(meeting_of_two_ranks_on_one_device_is_bad_usage)
{
    double_ranks_run(3, 0, same_device_rank);
}
END_TEST

static void blocking_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm comm = NULL;
    cu_stream stream;
    float *values;

    double_rank_start(rank);
    NCCL(comm_init(&comm, 2, double_id(shared, rank, 0), (int32_t)rank, NULL));
    stream = stream_make();
    values = floats_put(1, 10);
    NCCL(all_reduce(values, values, 10, NCCL_FLOAT32, NCCL_SUM, comm, stream));
    stream_finish(stream);
    ck_assert_float_eq(float_get(values), 2);
    NCCL(comm_finalize(comm));
    NCCL(comm_destroy(comm));
}

START_TEST(comm_without_configuration_blocks)
{
    double_ranks_run(2, 0, blocking_rank);
}
END_TEST

static void early_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_result result;
    nccl_comm comm;
    cu_stream stream;
    float *values;

    double_rank_start(rank);
    if (rank == 1) {
        ranks_meet(&shared->n_ranks_at[0], 2);
        double_comm_ask(shared, 1, &comm);
        double_comm_wait_ms(comm, 100, &result); /* the other one may have left before it came */
        NCCL(comm_abort(comm));
        return;
    }
    stream = stream_make();
    values = floats_put(1, 1);
    ck_assert_int_eq(double_comm_ask(shared, 0, &comm), NCCL_IN_PROGRESS);
    ck_assert(!double_comm_wait_ms(comm, 100, &result)); /* the other one has not come */
    ck_assert_int_eq(nccl.all_reduce(values, values, 1, NCCL_FLOAT32, NCCL_SUM, comm, stream),
                     NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_BAD_ARGUMENT);
    ranks_meet(&shared->n_ranks_at[0], 2);
    NCCL(comm_abort(comm));
}

START_TEST(call_while_another_is_under_way_spoils_the_communicator)
{
    double_ranks_run(2, 0, early_rank);
}
END_TEST

/* ---------------------------------------------------------------------------- refused calls */

struct call {
    nccl_comm comm;
    cu_stream stream;
    float *device;
    float *host;
};

static nccl_result refused_dtype(const struct call *call)
{
    return nccl.all_reduce(call->device, call->device, 1, 99, NCCL_SUM, call->comm, call->stream);
}

static nccl_result refused_op(const struct call *call)
{
    return nccl.all_reduce(call->device, call->device, 1, NCCL_FLOAT32, 5, call->comm,
                           call->stream);
}

static nccl_result refused_root(const struct call *call)
{
    return nccl.broadcast(call->device, call->device, 1, NCCL_FLOAT32, 1, call->comm, call->stream);
}

static nccl_result refused_peer(const struct call *call)
{
    return nccl.send(call->device, 1, NCCL_FLOAT32, -1, call->comm, call->stream);
}

static nccl_result refused_host_memory(const struct call *call)
{
    return nccl.all_gather(call->host, call->device, 1, NCCL_FLOAT32, call->comm, call->stream);
}

static nccl_result refused_no_memory(const struct call *call)
{
    return nccl.reduce_scatter(call->device, NULL, 1, NCCL_FLOAT32, NCCL_SUM, call->comm,
                               call->stream);
}

static nccl_result refused_other_device(const struct call *call)
{
    cu_context other;

    DRIVER(primary_context_retain(&other, 1));
    DRIVER(context_push(other));
    return nccl.all_reduce(call->device, call->device, 1, NCCL_FLOAT32, NCCL_SUM, call->comm,
                           call->stream);
}

static nccl_result refused_split(const struct call *call)
{
    return nccl_extra.split(call->comm, -2, 0, NULL, NULL);
}

static nccl_result (*const refused[])(const struct call *call) = {
    refused_dtype,       refused_op,        refused_root,         refused_peer,
    refused_host_memory, refused_no_memory, refused_other_device, refused_split,
};

START_TEST(call_with_a_wrong_argument_is_refused_and_spoils)
{
    struct call call = {.comm = solo_start(), .stream = stream_make()};
    float host = 1;
    nccl_result result;

    call.device = floats_put(1, 1);
    call.host = &host;
    ck_assert_int_eq(refused[_i](&call), NCCL_BAD_ARGUMENT);
    ck_assert_int_gt((int)strlen(nccl.last_error(call.comm)), 0);
    NCCL(async_error(call.comm, &result));
    ck_assert_int_eq(result, NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_destroy(call.comm), NCCL_BAD_ARGUMENT);
    NCCL(comm_abort(call.comm));
}
END_TEST

START_TEST(comm_that_was_destroyed_is_refused)
{
    nccl_comm comm = solo_start();
    cu_stream stream = stream_make();
    float *values = floats_put(1, 1);
    nccl_result result;

    double_comm_done(comm, nccl.comm_finalize(comm));
    ck_assert_int_eq(nccl.comm_finalize(comm), NCCL_BAD_ARGUMENT);
    NCCL(comm_abort(comm)); /* a refusal has spoilt it */
    ck_assert_int_eq(nccl.all_reduce(values, values, 1, NCCL_FLOAT32, NCCL_SUM, comm, stream),
                     NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.async_error(comm, &result), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.async_error(NULL, &result), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_destroy(comm), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.comm_revoke(comm, 0), NCCL_BAD_ARGUMENT);
}
END_TEST

START_TEST(comm_gives_its_memory_back)
{
    size_t before;
    size_t during;
    size_t after;
    size_t total;
    nccl_comm comm;

    double_rank_start(0);
    solo_shared.n_ranks = 1;
    DRIVER(memory_info(&before, &total));
    comm = double_comm(&solo_shared, 0, 0);
    DRIVER(memory_info(&during, &total));
    double_comm_end(comm);
    DRIVER(memory_info(&after, &total));
    ck_assert_uint_lt(during, before);
    ck_assert_uint_eq(after, before);
}
END_TEST

/* --------------------------------------------------------------------------------------- suite */

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_nccl");
    TCase *tcase = tcase_create("communicators");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, library_without_a_driver_answers);
    tcase_add_test(tcase, memory_allocated_by_nccl_is_given_back);
    tcase_add_loop_test(tcase, config_with_another_member_is_judged, 0, N_OF(configs));
    tcase_add_test(tcase, config_of_an_old_version_hides_what_it_had_not);
    tcase_add_test(tcase, init_with_a_wrong_argument_is_refused);
    tcase_add_test(tcase, meeting_of_ranks_that_disagree_on_their_number_fails);
    tcase_add_test(tcase, meeting_to_which_a_rank_comes_twice_fails);
    tcase_add_test(tcase, meeting_of_two_ranks_on_one_device_is_bad_usage);
    tcase_add_test(tcase, comm_without_configuration_blocks);
    tcase_add_test(tcase, call_while_another_is_under_way_spoils_the_communicator);
    tcase_add_loop_test(tcase, call_with_a_wrong_argument_is_refused_and_spoils, 0, N_OF(refused));
    tcase_add_test(tcase, comm_that_was_destroyed_is_refused);
    tcase_add_test(tcase, comm_gives_its_memory_back);
    suite_add_tcase(suite, tcase);
    return suite;
}
