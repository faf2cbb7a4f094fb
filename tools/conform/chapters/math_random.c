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
