/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: over which ranks each strategy cuts, and what divides. */
#include <stdio.h>

#include "planning.h"

#define MAX_RANKS 16u

/* Both selectors pick the same ranks of the plan's mesh. */
static void dims_expect(struct host *host, const char *what, const char *found,
                        const char *expected)
{
    const hsdp_mesh *mesh = NULL;
    uint32_t ranks[2][MAX_RANKS];
    uint64_t n_ranks[2] = {0, 0};

    host_must(host, host->api->plan->mesh(host->plan, &mesh, &host->err));
    for (int i = 0; i < 2; i++) {
        host_must(host, host->api->mesh->members(mesh, i == 0 ? found : expected, host->rank,
                                                 ranks[i], MAX_RANKS, &n_ranks[i], &host->err));
    }
    numbers_expect(n_ranks[0] == n_ranks[1] &&
                       memcmp(ranks[0], ranks[1], n_ranks[0] * sizeof(ranks[0][0])) == 0,
                   "%s is \"%s\", not \"%s\"", what, found, expected);
}

static struct hsdp_class_info class_of(struct host *host, uint32_t index)
{
    struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;

    host_must(host, host->api->plan->class_info(host->plan, index, &info, &host->err));
    return info;
}

/* ----------------------------------------------------------------------------------- the table */

/* What the table says: over nothing, over R, or over I. */
static const char rows_cut[HOST_N_STRATEGIES][4] = {"---", "--R", "-RR", "RRR",
                                                    "III", "-II", "IIR"};

struct mesh_case {
    const char *dims, *settings, *units;
    const char *reduced, *inner; /* R and I, of the last class */
};

static void cut_expect(struct host *host, const struct mesh_case *one, char cut, const char *what,
                       const char *found)
{
    dims_expect(host, what, found, cut == 'R' ? one->reduced : cut == 'I' ? one->inner : "");
}

static void table_expect(const struct conform *conform, const struct mesh_case *cases,
                         uint32_t n_cases)
{
    numbers_need_strategy();
    for (uint32_t i = 0; i < n_cases * HOST_N_STRATEGIES; i++) {
        const struct mesh_case *one = &cases[i / HOST_N_STRATEGIES];
        const char *strategy = host_strategies[i % HOST_N_STRATEGIES];
        const char *cuts = rows_cut[i % HOST_N_STRATEGIES];
        struct hsdp_class_info info;
        char settings[128];
        struct host host;

        if (!conform_has_strategy(conform, strategy)) {
            continue;
        }
        numbers_note("%s on %s, %s", strategy, one->dims, one->settings);
        snprintf(settings, sizeof(settings), "sharding_strategy=%s %s", strategy, one->settings);
        host_arrange(&host, 3, one->dims);
        host_plan(&host, settings, one->units);
        info = class_of(&host, host.n_classes - 1);
        numbers_expect(strcmp(info.strategy, strategy) == 0, "the strategy is \"%s\"",
                       info.strategy);
        dims_expect(&host, "reduce_dims", info.reduce_dims, one->reduced);
        dims_expect(&host, "replicated_dims", info.replicated_dims,
                    host.classes[host.n_classes - 1].over);
        cut_expect(&host, one, cuts[0], "param_dims", info.param_dims);
        cut_expect(&host, one, cuts[1], "grad_dims", info.grad_dims);
        cut_expect(&host, one, cuts[2], "step_dims", info.step_dims);
        host_leave(&host);
    }
}

#define DENSE  "unit a: w[97]"
#define EXPERT "unit a: w[97]; class expert(dp); unit e: x[97]"
#define NORMS  "class norms(dp,tp)(dp); unit a: w[97]"

void plan_rows(struct conform *conform)
{
    static const struct mesh_case cases[] = {
        {"dp=4", "shard_size=2", DENSE, "dp_replicate,dp_shard", "dp_shard"},
        {"dp=4", "shard_size=1", DENSE, "dp_replicate,dp_shard", ""},
        {"dp=2,cp=2", "", DENSE, "dp,cp", "cp"},
        {"pp=2,dp=2,cp=2,tp=2", "", DENSE, "dp,cp", "cp"},
        {"dp=4,cp=2", "shard_size=2", DENSE, "dp_replicate,dp_shard,cp", "dp_shard,cp"},
        {"dp=2,ep=2", "", EXPERT, "dp", ""},
        {"dp=4,ep=2", "shard_size=2", EXPERT, "dp_replicate,dp_shard", "dp_shard"},
        {"dp=2,tp=2", "", NORMS, "dp", ""},
    };

    numbers_begin(conform);
    table_expect(conform, cases, NUMBERS_N(cases));
}

void plan_replicate_dims(struct conform *conform)
{
    static const struct mesh_case cases[] = {
        {"dp=2,cp=2", "replicate_dims=cp", DENSE, "dp,cp", "dp"},
        {"dp=2,cp=2", "replicate_dims=dp,cp", DENSE, "dp,cp", ""},
        {"dp=4,cp=2", "shard_size=2 replicate_dims=dp", DENSE, "dp_replicate,dp_shard,cp", "cp"},
        {"dp=4,cp=2", "shard_size=2 replicate_dims=dp_shard", DENSE, "dp_replicate,dp_shard,cp",
         "dp_replicate,cp"},
        {"dp_replicate=2,dp_shard=2 data=dp_replicate,dp_shard", "replicate_dims=dp_replicate",
         DENSE, "dp_replicate,dp_shard", "dp_shard"},
    };

    numbers_begin(conform);
    table_expect(conform, cases, NUMBERS_N(cases));
}

/* ------------------------------------------------------------------------------------- divisors */

static void divisor_expect(struct host *host, uint32_t unit, uint32_t expected)
{
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

    host_must(host, host->api->plan->unit_info(host->plan, unit, &info, &host->err));
    numbers_expect(info.divisor == expected, "the divisor of unit %u is %u, not %u", unit,
                   info.divisor, expected);
    numbers_expect(class_of(host, info.class_index).divisor == expected,
                   "the divisor of its class is %u, not %u",
                   class_of(host, info.class_index).divisor, expected);
}

void plan_divisors(struct conform *conform)
{
    struct host host;

    numbers_begin(conform);
    host_arrange(&host, 0, "dp=2,cp=2,tp=2,ep=3");
    host_plan(&host, "",
              "unit a: w[5]; class expert(dp) gradient_divisor=7; unit b: x[5]; "
              "class norm(dp,tp) gradient_op=sum; unit c: y[5]");
    divisor_expect(&host, 0, 12);
    divisor_expect(&host, 1, 7);
    divisor_expect(&host, 2, 1);
    host_leave(&host);
    host_arrange(&host, 0, "dp=2,cp=2,tp=2 data=dp");
    host_plan(&host, "", "unit a: w[5]; class expert(cp); unit b: x[5]");
    divisor_expect(&host, 0, 2);
    divisor_expect(&host, 1, 2);
    host_leave(&host);
}

/* ---------------------------------------------------------------------------------------- split */

void plan_split(struct conform *conform)
{
    static const struct {
        const char *name;
        uint32_t n_ranks;
    } dims[] = {{"pp", 2}, {"dp_replicate", 2}, {"dp_shard", 3}, {"tp", 2}};
    static const uint32_t expected[] = {12, 14, 16}; /* of rank 14, at 1, 0, 1, 0 */
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    const hsdp_mesh *mesh = NULL;
    uint32_t ranks[6];
    uint64_t n_ranks = 0;
    struct host host;

    numbers_begin(conform);
    host_arrange(&host, 14, "pp=2,dp=6,tp=2");
    host_plan(&host, "sharding_strategy=hsdp shard_size=3", DENSE);
    host_must(&host, host.api->plan->mesh(host.plan, &mesh, &host.err));
    host_must(&host, host.api->mesh->info(mesh, &info, &host.err));
    numbers_expect(info.n_dims == 4 && info.world_ranks == 24 && info.n_data_ranks == 6 &&
                       info.rank == 14,
                   "the plan's mesh has %u dimensions, %u ranks, %u data ranks, rank %u",
                   info.n_dims, info.world_ranks, info.n_data_ranks, info.rank);
    for (uint32_t d = 0; d < 4; d++) {
        const char *name = "";
        uint32_t size = 0;

        host_must(&host, host.api->mesh->dim(mesh, d, &name, &size, &host.err));
        numbers_expect(strcmp(name, dims[d].name) == 0 && size == dims[d].n_ranks,
                       "dimension %u is \"%s\" of %u", d, name, size);
    }
    host_must(&host, host.api->mesh->members(mesh, "dp_shard", 14, ranks, 6, &n_ranks, &host.err));
    numbers_expect(n_ranks == 3 && memcmp(ranks, expected, sizeof(expected)) == 0,
                   "dp_shard has %u ranks from rank %u", (unsigned)n_ranks, ranks[0]);
    host_must(&host, host.api->mesh->members(mesh, "dp", 14, ranks, 6, &n_ranks, &host.err));
    numbers_expect(n_ranks == 6 && ranks[0] == 12 && ranks[5] == 22,
                   "\"dp\" has %u ranks from rank %u", (unsigned)n_ranks, ranks[0]);
    host_leave(&host);
}

/* There would be nine dimensions, whoever has asked for it. */
void plan_no_split(struct conform *conform)
{
    static const char *const rows[][2] = {{"shard_size", "1"}, {"sharding_strategy", "hsdp"}};

    numbers_begin(conform);
    conform_needs_plan(conform, "sharding_strategy=hsdp");
    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        const struct hsdp_settings settings = {&rows[i][0], &rows[i][1], 1};
        struct host host;

        numbers_note("%s=%s", rows[i][0], rows[i][1]);
        host_arrange(&host, 0, "a=1,b=1,c=1,d=1,e=1,f=1,g=1,dp=4");
        numbers_refused(&host, host.api->plan->create(host.mesh, &settings, &host.plan, &host.err),
                        HSDP_ERR_INVALID);
        host_leave(&host);
    }
}

/* The largest divisor of dp that is at most min(ranks per node, dp / 2), at least 1. */
void plan_default_split(struct conform *conform)
{
    static const char *const names[] = {"dp"};
    static const struct {
        int64_t dp;
        uint32_t node;
        const char *shard_size;
    } rows[] = {{8, 2, "2"}, {8, 4, "4"}, {8, 8, "4"}, {6, 4, "3"},
                {5, 8, "1"}, {4, 1, "1"}, {12, 5, "4"}};

    numbers_begin(conform);
    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
        const char *value = "";
        const char *source = "";
        struct host host;

        numbers_note("dp=%d, %u ranks a node", (int)rows[i].dp, rows[i].node);
        host_arrange(&host, 0, "dp=1");
        host.api->mesh->destroy(host.mesh);
        spec.dim_names = names;
        spec.dim_sizes = &rows[i].dp;
        spec.n_dims = 1;
        spec.ranks_per_node = rows[i].node;
        host_must(&host, host.api->mesh->create(&spec, &host.mesh, &host.err));
        host_plan(&host, "sharding_strategy=hsdp", DENSE);
        host_must(&host,
                  host.api->plan->setting(host.plan, "shard_size", &value, &source, &host.err));
        numbers_expect(strcmp(value, rows[i].shard_size) == 0,
                       "shard_size is \"%s\" from \"%s\", not %s", value, source,
                       rows[i].shard_size);
        host_leave(&host);
    }
}
