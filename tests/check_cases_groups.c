/* SPDX-License-Identifier: Apache-2.0 */
/* Case D7: one timeout reaches every group, also derived ones, and its ledger says so. */
#include <inttypes.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS    4u
#define ABSENT     3u
#define TIMEOUT_MS 2000u

static const char *const selectors[] = {"dp", "ep", "dp,ep"};

/* What the four ranks share. */
struct case_shared {
    int row;
    _Atomic uint32_t n_done;
};

/* The ledger has this group with the timeout of the job. */
static void ledger_expect(struct host *host, const char *selector)
{
    static char text[16384];
    char part[64];
    const char *found;
    uint64_t n_bytes;

    host_must(host, host->api->diag->report(host->job, "ledger", text, sizeof(text), &n_bytes,
                                            &host->err));
    snprintf(part, sizeof(part), "\"%s\"", selector);
    found = strstr(text, part);
    ck_assert_msg(found != NULL, "no group %s in %s", selector, text);
    snprintf(part, sizeof(part), "\"timeout_ms\":%u", TIMEOUT_MS);
    found = strstr(found, "\"timeout_ms\"");
    ck_assert_msg(found != NULL && strncmp(found, part, strlen(part)) == 0, "not %s in %s", part,
                  text);
}

static hsdp_group *group_open(struct host *host, const char *selector)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    hsdp_group *group = NULL;

    spec.selector = selector;
    host_must(host, host->api->group->create(host->job, host->mesh, &spec, &group, &host->err));
    host_must(host, host->api->group->connect(host->job, &host->err));
    return group;
}

/* Those who share a group with the absent rank, that rank itself among them. */
static bool is_member(hsdp_group *group, struct host *host)
{
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    uint32_t members[N_RANKS];
    bool is_found = false;

    host_must(host, host->api->group->info(group, &info, &host->err));
    ck_assert_uint_eq(info.timeout_ms, TIMEOUT_MS);
    host_must(host, host->api->group->members(group, members, N_RANKS, &host->err));
    for (uint32_t i = 0; i < info.n_ranks; i++) {
        is_found = is_found || members[i] == ABSENT;
    }
    return is_found;
}

/* A barrier that the absent rank does not come to. */
static void timeout_expect(struct host *host, hsdp_group *group)
{
    struct hsdp_coll_spec barrier = HSDP_COLL_SPEC_INIT;
    uint64_t start_ms = ranks_now_ms();
    uint64_t ticket;

    barrier.kind = HSDP_COLL_BARRIER;
    host_must(host, host->api->group->start(group, &barrier, sizeof(barrier), 1, NULL, &ticket,
                                            &host->err));
    host_must_refuse(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err),
                     HSDP_ERR_TIMEOUT, "rank 3");
    ck_assert_uint_ge(ranks_now_ms() - start_ms, TIMEOUT_MS - 500);
    ck_assert_uint_le(ranks_now_ms() - start_ms, TIMEOUT_MS + 8000);
    ck_assert_uint_eq(host->err.n_missing_ranks, 1);
    ck_assert_uint_eq(host->err.missing_ranks[0], ABSENT);
}

static void member_rank(uint32_t rank, void *user)
{
    struct case_shared *shared = user;
    const char *selector = selectors[shared->row];
    hsdp_group *group;
    struct host host;

    host_join(&host, rank, "dp=2,ep=2", "nccl_timeout_seconds=2 heartbeat_timeout_seconds=60");
    group = group_open(&host, selector);
    ledger_expect(&host, selector);
    if (rank != ABSENT && is_member(group, &host)) {
        timeout_expect(&host, group);
    }
    ranks_meet(&shared->n_done, N_RANKS);
    host.api->group->destroy(group);
    host_leave(&host);
}

/* Case D7 of tests/cases/README.md. */
START_TEST(timeout_of_the_job_is_that_of_every_group)
{
    struct case_shared *shared = ranks_memory(sizeof(*shared));

    shared->row = _i;
    ranks_run(N_RANKS, RANKS_LIMIT_MS, member_rank, shared);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("cases_groups");
    TCase *tcase = tcase_create("groups");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, timeout_of_the_job_is_that_of_every_group, 0, N_OF(selectors));
    suite_add_tcase(suite, tcase);
    return suite;
}
