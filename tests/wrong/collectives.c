/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the host's collectives. */
#include <stdbool.h>
#include <string.h>

#include "wrong.h"

/* What is changed of each collective that starts alone. */
static void (*start_change)(struct hsdp_coll_spec *spec, uint32_t n_ranks);
static bool is_only_the_first;

static int32_t start_changed(hsdp_group *group, const struct hsdp_coll_spec *specs,
                             uint64_t spec_bytes, uint64_t n_specs, void *stream,
                             uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct hsdp_coll_spec own;

    if (n_specs > 1 && is_only_the_first) {
        n_specs = 1;
    }
    if (start_change == NULL || n_specs != 1 || specs == NULL ||
        specs->struct_size != sizeof(own) ||
        wrong.real->group->info(group, &info, NULL) != HSDP_OK) {
        return wrong.real->group->start(group, specs, spec_bytes, n_specs, stream, ret_ticket,
                                        reterr);
    }
    own = *specs;
    start_change(&own, info.n_ranks);
    return wrong.real->group->start(group, &own, sizeof(own), 1, stream, ret_ticket, reterr);
}

void wrong_start(void (*change)(struct hsdp_coll_spec *spec, uint32_t n_ranks))
{
    start_change = change;
    wrong.group.start = start_changed;
}

static void root_change(struct hsdp_coll_spec *spec, uint32_t n_ranks)
{
    if (spec->kind == HSDP_COLL_BROADCAST) {
        spec->peer = (spec->peer + 1) % n_ranks;
    }
}

static void root_is_another(void)
{
    wrong_start(root_change);
}

static void mean_change(struct hsdp_coll_spec *spec, uint32_t n_ranks)
{
    (void)n_ranks;
    if (spec->reduce == HSDP_REDUCE_MEAN) {
        spec->reduce = HSDP_REDUCE_SUM;
    }
}

static void mean_is_a_sum(void)
{
    wrong_start(mean_change);
}

static void counts_change(struct hsdp_coll_spec *spec, uint32_t n_ranks)
{
    (void)n_ranks;
    spec->send_elems = NULL;
    spec->recv_elems = NULL;
}

static void uneven_counts_are_ignored(void)
{
    wrong_start(counts_change);
}

static void only_the_first_starts(void)
{
    is_only_the_first = true;
    wrong_start(NULL);
}

static int32_t members_reversed(const hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks,
                                struct hsdp_error *reterr)
{
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    int32_t status = wrong.real->group->members(group, ret_ranks, max_ranks, reterr);

    if (status == HSDP_OK && wrong.real->group->info(group, &info, NULL) == HSDP_OK) {
        for (uint32_t i = 0; i < info.n_ranks / 2; i++) {
            uint32_t rank = ret_ranks[i];

            ret_ranks[i] = ret_ranks[info.n_ranks - 1 - i];
            ret_ranks[info.n_ranks - 1 - i] = rank;
        }
    }
    return status;
}

static void members_are_reversed(void)
{
    wrong.group.members = members_reversed;
}

static int32_t info_uncounted(const hsdp_group *group, struct hsdp_group_info *ret_info,
                              struct hsdp_error *reterr)
{
    int32_t status = wrong.real->group->info(group, ret_info, reterr);

    if (status == HSDP_OK) {
        ret_info->n_bytes_sent = 0;
    }
    return status;
}

static void bytes_are_not_counted(void)
{
    wrong.group.info = info_uncounted;
}

static const struct wrong_fault faults[] = {
    {"root-is-another", "collectives", "broadcast from each root, also in place",
     "the root of a broadcast is the next rank", root_is_another},
    {"mean-is-a-sum", "collectives", "all_reduce of each dtype and reduction",
     "a mean is not divided", mean_is_a_sum},
    {"uneven-counts-are-ignored", "collectives", "uneven counts", "counts are taken to be equal",
     uneven_counts_are_ignored},
    {"only-the-first-starts", "collectives", "several collectives start in one call",
     "of several collectives the first starts", only_the_first_starts},
    {"members-are-reversed", "collectives", "members and index are those of the selector",
     "members are told in reverse order", members_are_reversed},
    {"bytes-are-not-counted", "collectives", "what is sent and received is counted",
     "bytes that were sent are not counted", bytes_are_not_counted},
};

const struct wrong_faults wrong_collectives = WRONG_FAULTS(faults);
