/* SPDX-License-Identifier: Apache-2.0 */
/* Mathematics: random cases of training, each against training by one process without sharding. */
#include <inttypes.h>
#include <stdio.h>

#include "mathematics.h"
#include "numbers.h"
#include "training/random_train.h"

/*
 * The n-th case of a check is drawn from the kit's seed plus n. So a case that fails is the first
 * one of a run with the seed that it prints.
 */
#define N_CASES 40u

static struct random_case drawn;

/* Case by case on the ranks that it has; the others wait for those that they are in. */
static void cases_run(struct conform *conform, int strategy, const char *check)
{
    struct random_limits limits = {RANDOM_MAX_RANKS, strategy, false};

    limits.max_ranks = conform->n_ranks < RANDOM_MAX_RANKS ? conform->n_ranks : RANDOM_MAX_RANKS;
    numbers_begin(conform);
    for (uint64_t i = 0; i < N_CASES; i++) {
        uint64_t seed = conform->seed + i;
        char name[48];
        struct host host;

        random_case_draw_within(&drawn, random_mix(seed, (uint64_t)strategy, 1, 1), &limits);
        if (conform->rank >= drawn.n_ranks) {
            continue;
        }
        numbers_note("seed %" PRIu64 " (alone: --seed %" PRIu64 " --check \"%s\"), mesh %s, %s, %s",
                     seed, seed, check, drawn.dims, drawn.settings[0], drawn.units[0]);
        snprintf(name, sizeof(name), "case-%" PRIu64, seed);
        host_join_as(&host, conform->rank, drawn.dims, drawn.settings[0], name);
        random_train(&drawn, 0, &host, NULL);
        host_close(&host);
    }
}

void math_random_ddp(struct conform *conform)
{
    cases_run(conform, 0, "random cases under ddp");
}

void math_random_zero1(struct conform *conform)
{
    cases_run(conform, 1, "random cases under zero1");
}

void math_random_zero2(struct conform *conform)
{
    cases_run(conform, 2, "random cases under zero2");
}

void math_random_fsdp(struct conform *conform)
{
    cases_run(conform, 3, "random cases under fsdp");
}

void math_random_hsdp(struct conform *conform)
{
    cases_run(conform, 4, "random cases under hsdp");
}

void math_random_hsdp_zero2(struct conform *conform)
{
    cases_run(conform, 5, "random cases under hsdp_zero2");
}

void math_random_hfsdp(struct conform *conform)
{
    cases_run(conform, 6, "random cases under hfsdp");
}

/* ------------------------------------------------------------------- what nobody has promised */

/* Values whose sums round: in another order they have other bits. */
static double rounding(struct host_at at)
{
    return (double)(random_mix(at.rank, at.param, at.elem, 5) >> 11) * 0x1p-52 - 1.0;
}

static void bits_note(struct host *host, uint64_t *ret_digest)
{
    const float *values;

    numbers_step(host, rounding);
    values = host_export(host, 0, HSDP_FLAT_GRAD);
    *ret_digest = 0;
    for (uint64_t elem = 0; elem < host->params[0].n_elems; elem++) {
        uint32_t bits;

        memcpy(&bits, &values[elem], sizeof(bits));
        *ret_digest = random_mix(*ret_digest, bits, elem, 0);
    }
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_same_bits(struct conform *conform)
{
    uint64_t digests[HOST_N_STRATEGIES];
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    for (uint32_t row = 0; row < HOST_N_STRATEGIES; row++) {
        char settings[64];

        snprintf(settings, sizeof(settings), "sharding_strategy=%s shard_size=2",
                 host_strategies[row]);
        host_plan(&host, settings, "unit a: w[4099]");
        host_model(&host);
        bits_note(&host, &digests[row]);
        numbers_drop(&host);
    }
    host_close(&host);
    for (uint32_t row = 1; row < HOST_N_STRATEGIES; row++) {
        if (digests[row] != digests[0]) {
            conform_skip(conform, "not promised: gradients under %s have other bits than under %s",
                         host_strategies[row], host_strategies[0]);
        }
    }
}
