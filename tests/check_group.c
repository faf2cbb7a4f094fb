/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: making them, dtypes, refusals, disagreement, and what never comes. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/half.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

static void message_assert(const struct hsdp_error *err, const char *part)
{
    ck_assert_msg(strstr(err->message, part) != NULL, "no '%s' in: %s", part, err->message);
}

/* A tensor of one dimension, with the shape in the same struct. */
struct vector {
    struct hsdp_tensor tensor;
    int64_t size;
};

static struct hsdp_tensor *vector_set(struct vector *vector, void *base, int64_t size, int code,
                                      int bits)
{
    memset(vector, 0, sizeof(*vector));
    vector->size = size;
    vector->tensor.base = base;
    vector->tensor.device_type = HSDP_DEVICE_CPU;
    vector->tensor.n_dims = 1;
    vector->tensor.shape = &vector->size;
    vector->tensor.dtype_code = (uint8_t)code;
    vector->tensor.dtype_bits = (uint8_t)bits;
    vector->tensor.dtype_lanes = 1;
    return &vector->tensor;
}

static struct hsdp_tensor *vector_fp32(struct vector *vector, float *base, int64_t size)
{
    return vector_set(vector, base, size, HSDP_DTYPE_FLOAT, 32);
}

/* An all-reduce in place, started and waited for. */
static int32_t all_reduce(struct hsdp_group *group, struct hsdp_tensor *tensor, int32_t reduce,
                          struct hsdp_error *err)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t ticket;
    int32_t status;

    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.reduce = reduce;
    spec.input = tensor;
    spec.output = tensor;
    status = group_start(group, &spec, 1, NULL, &ticket, err);
    return status == HSDP_OK ? job_ticket_wait(group_job(group), ticket, UINT64_MAX, err) : status;
}

/* ------------------------------------------------------------------------------------- making */

static struct hsdp_mesh *mesh_made(const struct hsdp_job *job, uint32_t n_dims,
                                   const char *const *names, const int64_t *sizes)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *mesh = NULL;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = n_dims;
    spec.rank = job_rank(job);
    status_assert(mesh_create(&spec, &mesh, &err), HSDP_OK, &err);
    return mesh;
}

static struct hsdp_group *group_asked(struct hsdp_job *job, const struct hsdp_mesh *mesh,
                                      const char *selector, uint64_t timeout_ms)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *group = NULL;

    spec.selector = selector;
    spec.timeout_ms = timeout_ms;
    status_assert(group_create(job, mesh, &spec, &group, &err), HSDP_OK, &err);
    return group;
}

/* Groups of size one exist, work and cause no traffic. */
static void small_rank(uint32_t rank, void *shared)
{
    static const char *const names[] = {"pp", "dp", "cp", "ep"};
    static const int64_t sizes[] = {1, 2, 1, 1};
    static const char *const selectors[] = {"cp", "ep", "pp", "cp,ep", ""};
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_mesh *mesh = mesh_made(job, 4, names, sizes);
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *groups[5];
    struct vector vector;
    uint32_t member = 9;

    (void)shared;
    for (int i = 0; i < 5; i++) {
        groups[i] = group_asked(job, mesh, selectors[i], 0);
    }
    status_assert(group_connect(job, &err), HSDP_OK, &err);
    for (int i = 0; i < 5; i++) {
        float value = 5.0f;

        status_assert(group_members(groups[i], &member, 1, &err), HSDP_OK, &err);
        ck_assert_uint_eq(member, rank);
        status_assert(all_reduce(groups[i], vector_fp32(&vector, &value, 1), HSDP_REDUCE_SUM, &err),
                      HSDP_OK, &err);
        ck_assert(value == 5.0f);
        ck_assert_int_eq(group_info(groups[i], &info, &err), HSDP_OK);
        ck_assert_uint_eq(info.n_ranks, 1);
        ck_assert_uint_eq(info.n_bytes_sent + info.n_bytes_received, 0);
        ck_assert_str_eq(info.name, i == 4 ? "self" : selectors[i]);
        group_destroy(groups[i]);
    }
    mesh_destroy(mesh);
    test_job_end(job);
}

/* Case A3 of tests/cases/README.md. */
START_TEST(group_of_one_rank_works_without_traffic)
{
    ranks_run(2, RANKS_LIMIT_MS, small_rank, NULL);
}
END_TEST

static const char *const names_2x2[] = {"dp", "ep"};
static const int64_t sizes_2x2[] = {2, 2};

/* Each rank adds up its rank over several groups of one mesh, of which none is the world. */
static void crossing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_mesh *mesh = mesh_made(job, 2, names_2x2, sizes_2x2);
    struct hsdp_group *groups[3];
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct vector vector;
    float sums[3] = {(float)rank, (float)rank, (float)rank};

    (void)shared;
    groups[0] = group_asked(job, mesh, "dp", 0);
    groups[1] = group_asked(job, mesh, "ep", 0);
    groups[2] = group_asked(job, mesh, "dp,ep", 0);
    mesh_destroy(mesh);
    status_assert(group_connect(job, &err), HSDP_OK, &err);
    for (int i = 0; i < 3; i++) {
        status_assert(
            all_reduce(groups[i], vector_fp32(&vector, &sums[i], 1), HSDP_REDUCE_SUM, &err),
            HSDP_OK, &err);
    }
    ck_assert(sums[0] == (float)(2 * (rank % 2) + 2));
    ck_assert(sums[1] == (float)(4 * (rank / 2) + 1));
    ck_assert(sums[2] == 6.0f);
    test_job_end(job);
    for (int i = 0; i < 3; i++) {
        group_destroy(groups[i]);
    }
}

START_TEST(groups_of_one_mesh_do_not_mix)
{
    ranks_run(4, RANKS_LIMIT_MS, crossing_rank, NULL);
}
END_TEST

/* Only one of two members asks at first; the other finds the same communicator later. */
static void late_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_mesh *mesh = test_mesh(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *group = NULL;
    struct vector vector;
    float value = (float)rank + 1;

    (void)shared;
    if (rank == 0) {
        group = group_asked(job, mesh, "dp", 0);
    }
    status_assert(group_connect(job, &err), HSDP_OK, &err);
    if (rank == 1) {
        group = group_asked(job, mesh, "dp", 0);
    }
    status_assert(group_connect(job, &err), HSDP_OK, &err);
    status_assert(all_reduce(group, vector_fp32(&vector, &value, 1), HSDP_REDUCE_SUM, &err),
                  HSDP_OK, &err);
    ck_assert(value == 3.0f);
    group_destroy(group);
    mesh_destroy(mesh);
    test_job_end(job);
}

START_TEST(group_connect_without_a_member_waits_for_no_one)
{
    ranks_run(2, RANKS_LIMIT_MS, late_rank, NULL);
}
END_TEST

/* More than fit one exchange, made and given back again and again, leave no descriptor. */
static void many_rank(uint32_t rank, void *shared)
{
    uint32_t n_descriptors = ranks_n_descriptors();
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_mesh *mesh = test_mesh(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *groups[20];
    struct vector vector;

    (void)rank;
    (void)shared;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            groups[i] = group_asked(job, mesh, "dp", 0);
        }
        status_assert(group_connect(job, &err), HSDP_OK, &err);
        for (int i = 19; i >= 0; i--) {
            float value = 1.0f;

            status_assert(
                all_reduce(groups[i], vector_fp32(&vector, &value, 1), HSDP_REDUCE_SUM, &err),
                HSDP_OK, &err);
            ck_assert(value == 2.0f);
            group_destroy(groups[i]);
        }
    }
    mesh_destroy(mesh);
    test_job_end(job);
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
}

START_TEST(group_connect_of_many_at_once_makes_all)
{
    ranks_run(2, RANKS_LIMIT_MS, many_rank, NULL);
}
END_TEST

static void refusing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_mesh *mesh = test_mesh(job);
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *group = NULL;
    struct vector vector;
    float value = 0.0f;

    (void)shared;
    status_assert(group_create(job, mesh, &spec, &group, &err), HSDP_ERR_INVALID, &err);
    spec.selector = "foo";
    status_assert(group_create(job, mesh, &spec, &group, &err), HSDP_ERR_INVALID, &err);
    message_assert(&err, "dp");
    spec.selector = "dp[0]";
    status_assert(group_create(job, mesh, &spec, &group, &err),
                  rank == 0 ? HSDP_OK : HSDP_ERR_NOT_MEMBER, &err);
    group_destroy(group);
    group = group_asked(job, mesh, "dp", 0);
    status_assert(all_reduce(group, vector_fp32(&vector, &value, 1), HSDP_REDUCE_SUM, &err),
                  HSDP_ERR_STATE, &err);
    ck_assert_int_eq(group_members(group, NULL, 1, &err), HSDP_ERR_INVALID);
    group_destroy(group);
    group_destroy(NULL);
    mesh->rank = 1 - rank;
    spec.selector = "dp";
    status_assert(group_create(job, mesh, &spec, &group, &err), HSDP_ERR_INVALID, &err);
    mesh_destroy(mesh);
    test_job_end(job);
}

START_TEST(group_create_refuses_what_does_not_fit)
{
    ranks_run(2, RANKS_LIMIT_MS, refusing_rank, NULL);
}
END_TEST

static void timing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_mesh *mesh = test_mesh(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *group = group_asked(job, mesh, "dp", rank == 1 ? 2000 : 3000);

    (void)shared;
    mesh_destroy(mesh);
    status_assert(group_connect(job, &err), HSDP_ERR_MISMATCH, &err);
    message_assert(&err, "3000");
    message_assert(&err, "2000 ms on rank 1");
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(group_connect_other_timeouts_mismatch_on_all)
{
    ranks_run(2, RANKS_LIMIT_MS, timing_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- dtypes */

static void floats_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct vector vector;
    uint16_t bf16[2] = {bf16_from_fp32(256.0f), bf16_from_fp32(rank == 0 ? 1.0f : 3.0f)};
    uint16_t fp16[1] = {fp16_from_fp32(rank == 0 ? 1.0f : 2048.0f)};
    double fp64[2] = {rank == 0 ? 1.0 : 0x1p-40, rank == 0 ? NAN : 7.0};
    float nan[1] = {rank == 0 ? 1.0f : NAN};

    (void)shared;
    status_assert(all_reduce(group, vector_set(&vector, bf16, 2, HSDP_DTYPE_BFLOAT, 16),
                             HSDP_REDUCE_MEAN, &err),
                  HSDP_OK, &err);
    ck_assert(bf16_to_fp32(bf16[0]) == 256.0f && bf16_to_fp32(bf16[1]) == 2.0f);
    status_assert(all_reduce(group, vector_set(&vector, fp16, 1, HSDP_DTYPE_FLOAT, 16),
                             HSDP_REDUCE_SUM, &err),
                  HSDP_OK, &err);
    ck_assert(fp16_to_fp32(fp16[0]) == 2048.0f); /* a tie, rounded once, to even */
    status_assert(all_reduce(group, vector_set(&vector, fp64, 1, HSDP_DTYPE_FLOAT, 64),
                             HSDP_REDUCE_SUM, &err),
                  HSDP_OK, &err);
    ck_assert(fp64[0] == 1.0 + 0x1p-40);
    status_assert(all_reduce(group, vector_set(&vector, &fp64[1], 1, HSDP_DTYPE_FLOAT, 64),
                             HSDP_REDUCE_MAX, &err),
                  HSDP_OK, &err);
    ck_assert(isnan(fp64[1]));
    status_assert(all_reduce(group, vector_fp32(&vector, nan, 1), HSDP_REDUCE_MIN, &err), HSDP_OK,
                  &err);
    ck_assert(isnan(nan[0]));
    group_destroy(group);
    test_job_end(job);
}

/* Case C5 of tests/cases/README.md. */
START_TEST(all_reduce_of_each_float_is_exact)
{
    ranks_run(2, RANKS_LIMIT_MS, floats_rank, NULL);
}
END_TEST

static void integers_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct vector vector;
    int32_t i32[1] = {rank == 0 ? 4 : 8};
    int64_t i64[2] = {rank == 0 ? INT64_MAX : 1, rank == 0 ? -3 : 2};
    uint8_t u8[1] = {rank == 0 ? 200 : 100};
    int8_t i8[1] = {rank == 0 ? -100 : 100};

    (void)shared;
    status_assert(
        all_reduce(group, vector_set(&vector, i32, 1, HSDP_DTYPE_INT, 32), HSDP_REDUCE_MEAN, &err),
        HSDP_ERR_UNSUPPORTED, &err);
    message_assert(&err, "the mean of int32");
    status_assert(
        all_reduce(group, vector_set(&vector, i32, 1, HSDP_DTYPE_INT, 32), HSDP_REDUCE_SUM, &err),
        HSDP_OK, &err);
    ck_assert_int_eq(i32[0], 12);
    status_assert(
        all_reduce(group, vector_set(&vector, i64, 2, HSDP_DTYPE_INT, 64), HSDP_REDUCE_SUM, &err),
        HSDP_OK, &err);
    ck_assert_int_eq(i64[0], INT64_MIN); /* wraps */
    ck_assert_int_eq(i64[1], -1);
    status_assert(
        all_reduce(group, vector_set(&vector, u8, 1, HSDP_DTYPE_UINT, 8), HSDP_REDUCE_MAX, &err),
        HSDP_OK, &err);
    ck_assert_uint_eq(u8[0], 200);
    status_assert(
        all_reduce(group, vector_set(&vector, i8, 1, HSDP_DTYPE_INT, 8), HSDP_REDUCE_MIN, &err),
        HSDP_OK, &err);
    ck_assert_int_eq(i8[0], -100);
    status_assert(
        all_reduce(group, vector_set(&vector, u8, 1, HSDP_DTYPE_FLOAT, 8), HSDP_REDUCE_SUM, &err),
        HSDP_ERR_UNSUPPORTED, &err);
    group_destroy(group);
    test_job_end(job);
}

/* Case C5 of tests/cases/README.md. */
START_TEST(all_reduce_of_integers_is_exact_or_unsupported)
{
    ranks_run(2, RANKS_LIMIT_MS, integers_rank, NULL);
}
END_TEST

/* The mean of 1 and 3, of 3 and 5: by all-reduce and by reduce-scatter, of several sizes. */
static void mean_rank(uint32_t rank, void *shared)
{
    static const int64_t sizes[] = {1, 2, 3, 6};
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct vector input;
    struct vector output;
    float pair[2] = {rank == 0 ? 1.0f : 3.0f, rank == 0 ? 1.0f : 3.0f};
    float mine = 0.0f;

    (void)shared;
    spec.kind = HSDP_COLL_REDUCE_SCATTER;
    spec.reduce = HSDP_REDUCE_MEAN;
    spec.input = vector_fp32(&input, pair, 2);
    spec.output = vector_fp32(&output, &mine, 1);
    status_assert(group_start(group, &spec, 1, NULL, NULL, &err), HSDP_OK, &err);
    status_assert(job_ticket_wait(job, 1, UINT64_MAX, &err), HSDP_OK, &err);
    ck_assert(mine == 2.0f);
    for (int s = 0; s < 4; s++) {
        float values[6];

        for (int i = 0; i < 6; i++) {
            values[i] = rank == 0 ? 3.0f : 5.0f;
        }
        status_assert(
            all_reduce(group, vector_fp32(&input, values, sizes[s]), HSDP_REDUCE_MEAN, &err),
            HSDP_OK, &err);
        for (int i = 0; i < 6; i++) {
            ck_assert(values[i] == (i < sizes[s] ? 4.0f : rank == 0 ? 3.0f : 5.0f));
        }
    }
    group_destroy(group);
    test_job_end(job);
}

/* Case C4 of tests/cases/README.md. */
START_TEST(mean_is_the_same_by_all_reduce_and_reduce_scatter)
{
    ranks_run(2, RANKS_LIMIT_MS, mean_rank, NULL);
}
END_TEST

/* A mean of one rank gives every bit back. */
/* Case C6 of tests/cases/README.md. */
START_TEST(all_reduce_of_one_rank_returns_every_bit)
{
    static const uint64_t sizes[] = {1, 2, 7, 8, 9, 1023, 1025};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *group;
    struct hsdp_job *job;
    struct vector vector;
    uint16_t bits[1025];

    ranks_environment_clear();
    job = test_job_open("5");
    group = test_group(job);
    for (int s = 0; s < 7; s++) {
        for (uint64_t i = 0; i < 1025; i++) {
            bits[i] = (uint16_t)(0x7f80 + i); /* NaNs of all kinds among them */
        }
        vector_set(&vector, bits, (int64_t)sizes[s], HSDP_DTYPE_BFLOAT, 16);
        status_assert(all_reduce(group, &vector.tensor, HSDP_REDUCE_MEAN, &err), HSDP_OK, &err);
        for (uint64_t i = 0; i < 1025; i++) {
            ck_assert_uint_eq(bits[i], (uint16_t)(0x7f80 + i));
        }
    }
    group_destroy(group);
    test_job_end(job);
}
END_TEST

/* ------------------------------------------------------------------------------- bad specs */

/* What each row does to a legal all-reduce of four elements, and what it is refused with. */
static void spec_spoil(int row, struct hsdp_coll_spec *spec, struct vector *input,
                       struct vector *output)
{
    static const uint64_t elems[1] = {4};

    switch (row) {
    case 0:
        spec->kind = 9;
        break;
    case 1:
        spec->reduce = 4;
        break;
    case 2:
        spec->input = NULL;
        break;
    case 3:
    case 10: /* to itself, where there is nobody else */
        spec->kind = row == 10 ? HSDP_COLL_ALL_TO_ALL : spec->kind;
        output->size = 3;
        break;
    case 4:
        input->tensor.dtype_bits = 16;
        break;
    case 5:
        spec->recv_elems = elems;
        break;
    case 6:
        spec->kind = HSDP_COLL_SEND;
        spec->peer = 1;
        break;
    case 7:
        spec->kind = HSDP_COLL_BARRIER;
        break;
    case 8:
        output->tensor.base = (char *)input->tensor.base + 4;
        break;
    case 9:
        input->tensor.base = NULL;
        break;
    default:
        input->tensor.byte_offset = 1;
        break;
    }
}

START_TEST(group_start_bad_spec_is_invalid)
{
    static const char *const parts[] = {"kind 9",    "reduction 4", "input is NULL", "3 elements",
                                        "different", "recv_elems",  "peer 1",        "no input",
                                        "overlap",   "no address",  "from itself",   "aligned"};
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *group;
    struct hsdp_job *job;
    struct vector input;
    struct vector output;
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t ticket = 77;

    ranks_environment_clear();
    job = test_job_open("5");
    group = test_group(job);
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = vector_fp32(&input, values, 4);
    spec.output = vector_fp32(&output, &values[4], 4);
    spec_spoil(_i, &spec, &input, &output);
    status_assert(group_start(group, &spec, 1, NULL, &ticket, &err), HSDP_ERR_INVALID, &err);
    message_assert(&err, parts[_i]);
    ck_assert_uint_eq(ticket, 77);
    ck_assert(values[4] == 5.0f);
    group_destroy(group);
    test_job_end(job);
}
END_TEST

START_TEST(group_start_what_is_not_built_is_unsupported)
{
    static int64_t strides[1] = {2};
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_group *group;
    struct hsdp_job *job;
    struct vector vector;
    float values[8] = {0};

    ranks_environment_clear();
    job = test_job_open("5");
    group = test_group(job);
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = vector_fp32(&vector, values, 4);
    spec.output = spec.input;
    vector.tensor.strides = strides;
    status_assert(group_start(group, &spec, 1, NULL, NULL, &err), HSDP_ERR_UNSUPPORTED, &err);
    vector.tensor.strides = NULL;
    vector.tensor.device_type = HSDP_DEVICE_CUDA;
    status_assert(group_start(group, &spec, 1, NULL, NULL, &err), HSDP_ERR_UNSUPPORTED, &err);
    vector.tensor.device_type = HSDP_DEVICE_CPU;
    vector.tensor.dtype_lanes = 4;
    status_assert(group_start(group, &spec, 1, NULL, NULL, &err), HSDP_ERR_UNSUPPORTED, &err);
    status_assert(group_start(group, &spec, 0, NULL, NULL, &err), HSDP_ERR_INVALID, &err);
    status_assert(group_start(group, &spec, 1, &err, NULL, &err), HSDP_ERR_INVALID, &err);
    group_destroy(group);
    test_job_end(job);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("group");
    TCase *tcase = tcase_create("group");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, group_of_one_rank_works_without_traffic);
    tcase_add_test(tcase, groups_of_one_mesh_do_not_mix);
    tcase_add_test(tcase, group_connect_without_a_member_waits_for_no_one);
    tcase_add_test(tcase, group_connect_of_many_at_once_makes_all);
    tcase_add_test(tcase, group_create_refuses_what_does_not_fit);
    tcase_add_test(tcase, group_connect_other_timeouts_mismatch_on_all);
    tcase_add_test(tcase, all_reduce_of_each_float_is_exact);
    tcase_add_test(tcase, all_reduce_of_integers_is_exact_or_unsupported);
    tcase_add_test(tcase, mean_is_the_same_by_all_reduce_and_reduce_scatter);
    tcase_add_test(tcase, all_reduce_of_one_rank_returns_every_bit);
    tcase_add_loop_test(tcase, group_start_bad_spec_is_invalid, 0, 12);
    tcase_add_test(tcase, group_start_what_is_not_built_is_unsupported);
    suite_add_tcase(suite, tcase);
    return suite;
}
