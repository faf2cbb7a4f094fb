/* SPDX-License-Identifier: Apache-2.0 */
/* Random plans in two plugins: what they promise alike is equal, and each lays out soundly. */
#include <check.h>

#include "host.h"
#include "host_text.h"
#include "plugin_pair.h"
#include "random_case.h"
#include "ranks.h"
#include "suite.h"

#define N_CASES      300
#define N_CUTS       3
#define MAX_SEGMENTS 64

/* Every segment of HSDP_SHARD_*, of one rank. */
struct shard {
    struct hsdp_segment segments[MAX_SEGMENTS];
    uint64_t n_segments;
};

static const struct hsdp_api *apis[2];
static struct random_case drawn; /* planned by each of its ranks in turn */

static void apis_load(void)
{
    pair_load(apis);
}

/* ----------------------------------------------------------------------------- making two plans */

static void mesh_make(struct host *host)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    const char *names[HOST_MAX_DIMS];
    int64_t sizes[HOST_MAX_DIMS];
    char data_dims[64];

    for (uint32_t d = 0; d < host->n_dims; d++) {
        names[d] = host->dims[d].name;
        sizes[d] = host->dims[d].size;
    }
    host_data_dims(host, data_dims);
    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.data_dims = data_dims;
    spec.n_dims = host->n_dims;
    spec.rank = host->rank;
    spec.ranks_per_node = host->n_ranks > 4 ? 4 : 0;
    host_must(host, host->api->mesh->create(&spec, &host->mesh, &host->err));
}

/* The drawn case, as one rank plans it in one plugin. */
static void side_open(struct host *host, const struct hsdp_api *api, int run, uint32_t rank)
{
    char units[RANDOM_TEXT_BYTES];

    memset(host, 0, sizeof(*host));
    host->err = (struct hsdp_error)HSDP_ERROR_INIT;
    host->api = api;
    host->rank = rank;
    host_dims_read(host, drawn.dims);
    mesh_make(host);
    random_case_units(&drawn, run, rank, units);
    host_plan(host, drawn.settings[run], units);
}

static void side_close(struct host *host)
{
    host->api->plan->destroy(host->plan);
    host->api->mesh->destroy(host->mesh);
}

/* ----------------------------------------------------------------------------- what is the same */

static void settings_compare(struct host sides[2])
{
    static const char *const keys[] = {
        "sharding_strategy", "replicate_dims", "shard_size",     "param_dtype",
        "master_dtype",      "reduce_dtype",   "gradient_dtype", "gradient_op",
        "gradient_divisor",  "slots",          "verify",         "accumulation_scope"};
    const char *values[2];
    const char *sources[2];

    for (int k = 0; k < N_OF(keys); k++) {
        for (int i = 0; i < 2; i++) {
            host_must(&sides[i], apis[i]->plan->setting(sides[i].plan, keys[k], &values[i],
                                                        &sources[i], &sides[i].err));
        }
        ck_assert_str_eq(values[0], values[1]);
        ck_assert_str_eq(sources[0], sources[1]);
    }
}

static void classes_compare(struct host sides[2])
{
    for (uint32_t c = 0; c < sides[0].n_classes; c++) {
        struct hsdp_class_info infos[2] = {HSDP_CLASS_INFO_INIT, HSDP_CLASS_INFO_INIT};

        for (int i = 0; i < 2; i++) {
            host_must(&sides[i],
                      apis[i]->plan->class_info(sides[i].plan, c, &infos[i], &sides[i].err));
        }
        ck_assert_str_eq(infos[0].name, infos[1].name);
        ck_assert_str_eq(infos[0].strategy, infos[1].strategy);
        ck_assert_str_eq(infos[0].param_dims, infos[1].param_dims);
        ck_assert_str_eq(infos[0].grad_dims, infos[1].grad_dims);
        ck_assert_str_eq(infos[0].step_dims, infos[1].step_dims);
        ck_assert_str_eq(infos[0].reduce_dims, infos[1].reduce_dims);
        ck_assert_str_eq(infos[0].replicated_dims, infos[1].replicated_dims);
        ck_assert_uint_eq(infos[0].divisor, infos[1].divisor);
    }
}

static void params_compare(struct host sides[2])
{
    for (uint32_t p = 0; p < sides[0].n_params; p++) {
        struct hsdp_param_info infos[2] = {HSDP_PARAM_INFO_INIT, HSDP_PARAM_INFO_INIT};

        for (int i = 0; i < 2; i++) {
            host_must(&sides[i],
                      apis[i]->plan->param_info(sides[i].plan, p, &infos[i], &sides[i].err));
        }
        ck_assert_str_eq(infos[0].name, infos[1].name);
        ck_assert_str_eq(infos[0].tied_over, infos[1].tied_over);
        host_expect(infos[0].n_elems == infos[1].n_elems);
        host_expect(infos[0].block_elems == infos[1].block_elems);
        host_expect(infos[0].unit == infos[1].unit && infos[0].buffer == infos[1].buffer);
        host_expect(infos[0].storage == infos[1].storage && infos[0].flags == infos[1].flags);
        host_expect(infos[0].hyper_group == infos[1].hyper_group);
    }
}

static void units_compare(struct host sides[2])
{
    for (uint32_t u = 0; u < sides[0].n_units; u++) {
        struct hsdp_unit_info infos[2] = {HSDP_UNIT_INFO_INIT, HSDP_UNIT_INFO_INIT};

        for (int i = 0; i < 2; i++) {
            host_must(&sides[i],
                      apis[i]->plan->unit_info(sides[i].plan, u, &infos[i], &sides[i].err));
        }
        ck_assert_str_eq(infos[0].name, infos[1].name);
        host_expect(infos[0].class_index == infos[1].class_index);
        host_expect(infos[0].first_param == infos[1].first_param);
        host_expect(infos[0].n_params == infos[1].n_params);
        host_expect(infos[0].n_buffers == infos[1].n_buffers);
        host_expect(infos[0].divisor == infos[1].divisor);
        host_expect(infos[0].grad_slot == infos[1].grad_slot);
    }
}

static void writers_compare(struct host sides[2])
{
    uint32_t n_asked = sides[0].n_units * N_CUTS * sides[0].n_ranks;

    for (uint32_t i = 0; i < n_asked; i++) {
        uint32_t unit = i / N_CUTS / sides[0].n_ranks;
        uint32_t rank = i / N_CUTS % sides[0].n_ranks;
        uint32_t writers[2] = {77, 78};

        for (int s = 0; s < 2; s++) {
            host_must(&sides[s], apis[s]->plan->writer(sides[s].plan, unit, (int32_t)(i % N_CUTS),
                                                       rank, &writers[s], &sides[s].err));
        }
        host_expect(writers[0] == writers[1]);
    }
}

/* ------------------------------------------------------------------------------- what is sound */

static uint64_t shard_elems(const struct hsdp_buffer_info *info, int cut)
{
    return cut == HSDP_SHARD_PARAM  ? info->param_shard_elems
           : cut == HSDP_SHARD_GRAD ? info->grad_shard_elems
                                    : info->step_shard_elems;
}

static void shard_read(struct host *host, uint32_t unit, int cut, uint32_t rank, struct shard *ret)
{
    host_must(host, host->api->plan->segments(host->plan, unit, cut, rank, ret->segments,
                                              sizeof(ret->segments[0]), MAX_SEGMENTS,
                                              &ret->n_segments, &host->err));
}

/* The rank's place in slice order: its coordinates along the dimensions of the cut's text. */
static uint32_t slice_of(struct host *host, const char *dims, uint32_t rank, uint32_t *ret_slices)
{
    const hsdp_mesh *mesh = NULL;
    uint32_t coords[HSDP_MESH_MAX_DIMS];
    uint32_t slice = 0;

    *ret_slices = 1;
    host_must(host, host->api->plan->mesh(host->plan, &mesh, &host->err));
    host_must(host, host->api->mesh->coords(mesh, rank, coords, HSDP_MESH_MAX_DIMS, &host->err));
    while (*dims != '\0') {
        size_t n = strcspn(dims, ",");
        const char *name = "";
        uint32_t size = 0;
        uint32_t d = 0;

        for (; strlen(name) != n || strncmp(name, dims, n) != 0; d++) {
            host_must(host, host->api->mesh->dim(mesh, d, &name, &size, &host->err));
        }
        slice = slice * size + coords[d - 1];
        *ret_slices *= size;
        dims += n + (dims[n] == ',');
    }
    return slice;
}

/* Where a segment says that it lies is where its parameter lies; no block is cut. */
static void segment_check(struct host *host, const struct hsdp_segment *segment, uint64_t begin,
                          uint64_t length)
{
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;
    uint64_t block = host->params[segment->param].block_elems;
    uint64_t end = segment->param_offset_elems + segment->n_elems;

    host_must(host, host->api->plan->param_info(host->plan, segment->param, &info, &host->err));
    host_expect(info.storage == segment->param && info.buffer == segment->buffer);
    host_expect(info.offset_elems % 16 == 0); /* 64 bytes as fp32, and as bf16 of 32 */
    host_expect(begin + segment->shard_offset_elems ==
                info.offset_elems + segment->param_offset_elems);
    host_expect(segment->n_elems > 0 && segment->shard_offset_elems + segment->n_elems <= length);
    host_expect(end <= info.n_elems);
    if (block > 1) {
        host_expect(segment->param_offset_elems % block == 0);
        host_expect(end == info.n_elems || end % block == 0);
    }
}

/* One rank's shard: in order, within the shard, where slice order wants it. */
static void shard_check(struct host *host, uint32_t unit, int cut, uint32_t rank, const char *dims)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
    struct shard shard;
    uint32_t n_slices;
    uint32_t slice = slice_of(host, dims, rank, &n_slices);

    shard_read(host, unit, cut, rank, &shard);
    for (uint64_t i = 0; i < shard.n_segments; i++) {
        const struct hsdp_segment *segment = &shard.segments[i];
        const struct hsdp_segment *last = segment - (i > 0);

        host_must(host, host->api->plan->buffer_info(host->plan, unit, segment->buffer, &info,
                                                     &host->err));
        host_expect(shard_elems(&info, cut) * n_slices == info.n_elems);
        segment_check(host, segment, slice * shard_elems(&info, cut), shard_elems(&info, cut));
        host_expect(i == 0 || last->buffer < segment->buffer ||
                    last->shard_offset_elems + last->n_elems <= segment->shard_offset_elems);
    }
}

/* Elements of a unit that the ranks of one parameter own in a cut: each one exactly once. */
static void coverage_check(struct host *host, uint32_t unit, int cut, const char *dims)
{
    uint32_t peers[RANDOM_MAX_RANKS];
    uint64_t n_found[HOST_MAX_PARAMS] = {0};
    const hsdp_mesh *mesh = NULL;
    uint64_t n_peers;
    struct shard shard;

    host_must(host, host->api->plan->mesh(host->plan, &mesh, &host->err));
    host_must(host, host->api->mesh->members(mesh, dims, host->rank, peers, RANDOM_MAX_RANKS,
                                             &n_peers, &host->err));
    for (uint64_t i = 0; i < n_peers; i++) {
        shard_read(host, unit, cut, peers[i], &shard);
        for (uint64_t s = 0; s < shard.n_segments; s++) {
            n_found[shard.segments[s].param] += shard.segments[s].n_elems;
        }
    }
    /* shard_check has found all of them at different places. */
    for (uint32_t p = 0; p < host->n_params; p++) {
        bool is_here = host->params[p].unit == unit && host->params[p].storage == p;

        host_expect(n_found[p] == (is_here ? host->params[p].n_elems : 0));
    }
}

static void side_check(struct host *host)
{
    for (uint32_t i = 0; i < host->n_units * N_CUTS; i++) {
        struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;
        uint32_t unit = i / N_CUTS;
        int cut = (int)(i % N_CUTS);
        const char *dims;

        host_must(host, host->api->plan->class_info(host->plan, host->unit_classes[unit], &info,
                                                    &host->err));
        dims = cut == HSDP_SHARD_PARAM  ? info.param_dims
               : cut == HSDP_SHARD_GRAD ? info.grad_dims
                                        : info.step_dims;
        for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
            shard_check(host, unit, cut, rank, dims);
        }
        coverage_check(host, unit, cut, dims);
    }
}

/* Padding is what no parameter needs. */
static void padding_check(struct host *host)
{
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
        uint64_t n_elems = 0;

        for (uint32_t b = 0;
             host->api->plan->buffer_info(host->plan, unit, b, &info, NULL) == HSDP_OK; b++) {
            n_elems += info.n_elems - info.n_padding_elems;
        }
        for (uint32_t p = 0; p < host->n_params; p++) {
            bool is_here = host->params[p].unit == unit && host->params[p].storage == p;

            n_elems -= is_here ? host->params[p].n_elems : 0;
        }
        host_expect(n_elems == 0);
    }
}

/* ---------------------------------------------------------------------------------------- suite */

/* The number of a test that fails is that of its case, or twice that where it is one plugin's. */

START_TEST(plan_of_a_random_case_is_the_same_in_both)
{
    struct host sides[2];

    random_case_draw(&drawn, (uint64_t)_i);
    for (uint32_t rank = 0; rank < drawn.n_ranks; rank++) {
        for (int run = 0; run < RANDOM_RUNS; run++) {
            side_open(&sides[0], apis[0], run, rank);
            side_open(&sides[1], apis[1], run, rank);
            settings_compare(sides);
            classes_compare(sides);
            units_compare(sides);
            params_compare(sides);
            writers_compare(sides);
            side_close(&sides[0]);
            side_close(&sides[1]);
        }
    }
}
END_TEST

START_TEST(plan_of_a_random_case_owns_each_element_once)
{
    struct host side;

    random_case_draw(&drawn, (uint64_t)_i / 2);
    for (uint32_t rank = 0; rank < drawn.n_ranks; rank++) {
        for (int run = 0; run < RANDOM_RUNS; run++) {
            side_open(&side, apis[_i % 2], run, rank);
            side_check(&side);
            padding_check(&side);
            side_close(&side);
        }
    }
}
END_TEST

/* Longer than a shard could be, were they not kept whole. */
START_TEST(plan_of_blocks_larger_than_parameters_cuts_none)
{
    struct host side;

    memset(&drawn, 0, sizeof(drawn));
    drawn.n_stages = drawn.stage_stride = 1;
    strcpy(drawn.dims, "dp=4");
    strcpy(drawn.settings[0], "sharding_strategy=fsdp");
    strcpy(drawn.units[0], "unit a: w[40]/64 v[100]/100 x[45]/50 y[33]/33");
    for (uint32_t rank = 0; rank < 4; rank++) {
        side_open(&side, apis[_i], 0, rank);
        side_check(&side);
        padding_check(&side);
        side_close(&side);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("reference_plan");
    TCase *all = tcase_create("all");

    tcase_add_checked_fixture(all, apis_load, NULL);
    tcase_add_loop_test(all, plan_of_a_random_case_is_the_same_in_both, 0, N_CASES);
    tcase_add_loop_test(all, plan_of_a_random_case_owns_each_element_once, 0, 2 * N_CASES);
    tcase_add_loop_test(all, plan_of_blocks_larger_than_parameters_cuts_none, 0, 2);
    suite_add_tcase(suite, all);
    return suite;
}
