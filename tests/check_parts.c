/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce in parts: who sums up what for whom, traffic as the plan says, and large sums. */
#include <check.h>
#include <stdio.h>

#include "host.h"
#include "plan/build.h"
#include "plan_fixture.h"
#include "ranks.h"
#include "suite.h"

#define MAX_GROUPS 8

/* ---------------------------------------------------------------------------- who sums up what */

/* The parts of one step shard, rank by rank: whole lines, one behind the other, and nothing else.
 */
static void parts_expect(const char *dims, const char *settings, const char *shape,
                         uint32_t n_replicas, const uint64_t *n_lines)
{
    uint64_t next = 0;

    for (uint32_t i = 0; i < n_replicas; i++) {
        struct hsdp_plan *plan = fixture_finished(dims, i, settings, &shape, 1);
        struct plan_part part = plan_step_part(plan, 0);

        ck_assert_uint_eq(part.n_elems, n_lines[i] * PLAN_ALIGN_ELEMS);
        ck_assert_uint_eq(part.first_elem, next);
        next += part.n_elems;
        if (i == n_replicas - 1) {
            ck_assert_uint_eq(next, plan->units[0].buffers[0].shard_elems[HSDP_SHARD_STEP]);
        }
        plan_destroy(plan);
    }
}

START_TEST(step_parts_are_as_equal_as_lines_allow)
{
    parts_expect("dp=4", "sharding_strategy=ddp", "[1031]", 4, (uint64_t[]){16, 16, 16, 16});
    parts_expect("dp=3", "sharding_strategy=ddp", "[5]", 3, (uint64_t[]){11, 11, 10});
    parts_expect("dp=5", "sharding_strategy=ddp", "[5]", 5, (uint64_t[]){7, 7, 7, 7, 4});
}
END_TEST

START_TEST(step_parts_of_small_shards_may_be_empty)
{
    parts_expect("dp=9", "sharding_strategy=ddp", "[5]", 9,
                 (uint64_t[]){4, 4, 4, 4, 4, 4, 4, 4, 0});
}
END_TEST

START_TEST(step_part_of_a_shard_without_replicas_is_the_shard)
{
    static const char *const shape = "[5000]";

    for (int i = 0; i < HOST_N_STRATEGIES; i++) {
        struct hsdp_plan *plan;
        struct plan_part part;
        char settings[64];

        snprintf(settings, sizeof(settings), "sharding_strategy=%s", host_strategies[i]);
        plan = fixture_finished("dp=1", 0, settings, &shape, 1);
        part = plan_step_part(plan, 0);
        ck_assert_uint_eq(part.first_elem, 0);
        ck_assert_uint_eq(part.n_elems, plan->units[0].buffers[0].n_elems);
        plan_destroy(plan);
    }
}
END_TEST

/* Random meshes and strategies: ranks with the same step shard have parts that make it up. */
START_TEST(step_parts_of_replicas_make_up_their_shard)
{
    static const char *const shape = "[7001]";
    uint64_t state = (uint64_t)_i;
    char settings[64];
    char dims[64];

    fixture_random_dims(&state, dims, sizeof(dims));
    snprintf(settings, sizeof(settings), "sharding_strategy=%s replicate_dims=dp",
             host_strategies[_i % HOST_N_STRATEGIES]);
    for (uint32_t rank = 0, n_ranks = 1; rank < n_ranks; rank++) {
        struct hsdp_plan *plan = fixture_finished(dims, rank, settings, &shape, 1);
        const struct placement *place = &plan->classes[0].place;
        uint32_t replica_dims = place->reduced & ~place->cuts[HSDP_SHARD_STEP];
        uint64_t next = 0;

        n_ranks = plan->mesh->world_ranks;
        for (uint32_t i = 0; i < mesh_span(plan->mesh, replica_dims); i++) {
            uint32_t replica = mesh_peer(plan->mesh, replica_dims, rank, i);
            struct hsdp_plan *theirs = fixture_finished(dims, replica, settings, &shape, 1);
            struct plan_part part = plan_step_part(theirs, 0);

            ck_assert_uint_eq(part.first_elem, next);
            next += part.n_elems;
            plan_destroy(theirs);
        }
        ck_assert_uint_eq(next, plan->units[0].buffers[0].shard_elems[HSDP_SHARD_STEP]);
        plan_destroy(plan);
    }
}
END_TEST

/* ------------------------------------------------------------------------------------ traffic */

static double gradient(struct host_at at)
{
    return (double)(at.rank + 1) + (double)(at.elem % 17) * 0.25;
}

struct group_bytes {
    char name[64];
    uint64_t n_bytes;
};

/* Finds a group by name, or adds it. */
static struct group_bytes *group_of(struct group_bytes groups[MAX_GROUPS], int *n_groups,
                                    const char *name)
{
    int at = 0;

    while (at < *n_groups && strcmp(groups[at].name, name) != 0) {
        at++;
    }
    if (at == *n_groups) {
        ck_assert_int_lt(++*n_groups, MAX_GROUPS);
        groups[at].n_bytes = 0;
        snprintf(groups[at].name, sizeof(groups[at].name), "%s", name);
    }
    return &groups[at];
}

/* What the plan predicts for a step of one microbatch, by group. */
static int bytes_predict(const struct hsdp_plan *plan, struct group_bytes groups[MAX_GROUPS])
{
    int n_groups = 0;

    for (uint32_t c = 0; c < plan->n_classes; c++) {
        struct traffic_row rows[TRAFFIC_MAX_ROWS];
        uint32_t n_rows = plan_traffic(plan, c, rows);

        for (uint32_t r = 0; r < n_rows; r++) {
            char name[64];

            mesh_dims_text(plan->mesh, rows[r].dims, name, sizeof(name));
            group_of(groups, &n_groups, name)->n_bytes += rows[r].payload_bytes;
        }
    }
    return n_groups;
}

/* Every counter of traffic, against it. */
static void counters_expect(struct host *host, const struct group_bytes *groups, int n_groups)
{
    static const char prefix[] = "traffic.";
    int n_found = 0;
    const char *name;
    uint64_t value;

    for (uint64_t i = 0; host->api->diag->counter_name(host->job, i, &name, NULL) == HSDP_OK; i++) {
        uint64_t expected = 0;

        if (strncmp(name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        for (int g = 0; g < n_groups; g++) {
            if (strcmp(groups[g].name, name + strlen(prefix)) == 0) {
                expected = groups[g].n_bytes;
                n_found++;
            }
        }
        host_must(host, host->api->diag->counter(host->job, name, &value, &host->err));
        ck_assert_msg(value == expected, "%s: %s is %llu, the plan says %llu", host_settings, name,
                      (unsigned long long)value, (unsigned long long)expected);
    }
    ck_assert_int_eq(n_found, n_groups);
}

static const char *current_dims;

static void traffic_rank(uint32_t rank, void *shared)
{
    struct group_bytes groups[MAX_GROUPS];
    struct host host;
    int n_groups;

    (void)shared;
    host_open(&host, rank, current_dims, host_settings,
              "unit a: w[5]; unit b: x[2000,3] k[3]!; class expert(dp); unit e: y[1031]");
    n_groups = bytes_predict(host.plan, groups); /* the plugin is built from the structs here */
    host_forward(&host);
    host_backward(&host, HSDP_SCOPE_FULL, 0, gradient);
    host_step(&host, 0.0);
    host_must(&host, host_adamw(&host, 1e-2, 0.1));
    host_step_end(&host);
    counters_expect(&host, groups, n_groups);
    host_close(&host);
}

START_TEST(traffic_of_a_step_is_what_the_plan_says)
{
    static const struct {
        const char *dims;
        uint32_t n_ranks;
        const char *more;
    } meshes[] = {{"dp=5", 5, ""},
                  {"dp=6", 6, "shard_size=3"},
                  {"dp=2,ep=2", 4, "replicate_dims=dp"},
                  {"dp=4", 4, "shard_size=1"}};
    int mesh = _i / HOST_N_STRATEGIES / HOST_N_SCOPES;
    char more[128];

    current_dims = meshes[mesh].dims;
    snprintf(more, sizeof(more), "reduce_dtype=%s param_dtype=%s accumulation_scope=%s %s",
             _i % 2 == 0 ? "bf16" : "fp32", _i % 3 == 0 ? "bf16" : "fp32",
             host_scopes[_i / HOST_N_STRATEGIES % HOST_N_SCOPES], meshes[mesh].more);
    host_settings_set(_i % HOST_N_STRATEGIES, more);
    ranks_run(meshes[mesh].n_ranks, RANKS_LIMIT_MS, traffic_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------------------- large sums */

#define N_LARGE 2200003u

/* Without the ways of host.h, which take one element after another. */
static void large_pass(struct host *host)
{
    struct hsdp_tensor view = host_view(host, 0, HSDP_VIEW_GRAD);
    float *grads = (float *)((uint8_t *)view.base + view.byte_offset);

    host_pass_begin(host, HSDP_SCOPE_FULL);
    host_acquire(host, 0);
    for (uint32_t elem = 0; elem < N_LARGE; elem++) {
        grads[elem] = (float)(host->rank + elem % 17);
    }
    host_hand_over(host, 0);
    host_pass_end(host);
}

static void large_rank(uint32_t rank, void *shared)
{
    struct hsdp_segment segment;
    struct hsdp_tensor view;
    uint64_t n_segments;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit z: z[2200003]");
    large_pass(&host);
    large_pass(&host);
    host_step(&host, 0.0);
    host_must(&host, host.api->plan->segments(host.plan, 0, HSDP_SHARD_STEP, rank, &segment,
                                              sizeof(segment), 1, &n_segments, &host.err));
    host_must(&host,
              host.api->model->flat_view(host.model, 0, 0, HSDP_FLAT_GRAD, &view, &host.err));
    for (uint64_t i = 0; i < segment.n_elems; i++) {
        float found = ((float *)((uint8_t *)view.base + view.byte_offset))[i];
        float of_one_pass = 6.0f + 4.0f * (float)((segment.param_offset_elems + i) % 17);

        ck_assert(found == 2.0f * of_one_pass / 4.0f);
    }
    host_step_end(&host);
    host_close(&host);
}

/* What is larger than the caches is written around them; where lines are read as well, as here in
 * the second pass, only into the copies. */
START_TEST(sums_larger_than_the_caches_are_right)
{
    static const int strategies_of[] = {0, 4, 6}; /* ddp, hsdp, hfsdp */

    host_settings_set(strategies_of[_i], "shard_size=2 accumulation_scope=full");
    ranks_run(4, RANKS_LIMIT_MS, large_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("parts");
    TCase *tcase = tcase_create("parts");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, step_parts_are_as_equal_as_lines_allow);
    tcase_add_test(tcase, step_parts_of_small_shards_may_be_empty);
    tcase_add_test(tcase, step_part_of_a_shard_without_replicas_is_the_shard);
    tcase_add_loop_test(tcase, step_parts_of_replicas_make_up_their_shard, 0,
                        6 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, traffic_of_a_step_is_what_the_plan_says, 0,
                        4 * HOST_N_SCOPES * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sums_larger_than_the_caches_are_right, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
