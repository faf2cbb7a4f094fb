/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets through the ABI: who waits for another rank, and who only asks. */
#include <check.h>
#include <stdatomic.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* Two ranks hold half of this parameter each. */
#define UNITS "unit u: w[2048]"

static double value_one(struct host_at at)
{
    (void)at;
    return 1;
}

/* Trains up to the point at which this rank has only to write its half. */
static void rank_train(struct host *host, uint32_t rank)
{
    host_open(host, rank, "dp=2", "sharding_strategy=fsdp", UNITS);
    host_load(host, value_one);
    host_backward(host, HSDP_SCOPE_FULL, 0, value_one);
    host_step(host, 0);
}

/* Writes 1 - 0.5 * 1 and publishes it. */
static void rank_publish(struct host *host)
{
    host_descend(host, 0.5, 1);
    host_must(host, host->api->step->end(host->model, NULL, NULL, &host->err));
}

static void expect_trained(struct host *host)
{
    struct hsdp_tensor view;
    const float *weights;

    host_must(host,
              host->api->model->param_view(host->model, 0, HSDP_VIEW_PARAM, &view, &host->err));
    weights = (const float *)((const char *)view.base + view.byte_offset);
    for (int i = 0; i < 2048; i++) {
        ck_assert_float_eq(weights[i], 0.5f);
    }
    host_must(host, host->api->unit->release(host->model, 0, NULL, &host->err));
}

static void rank_unshards_without_ticket(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    rank_train(&host, rank);
    if (rank == 1) {
        ranks_sleep_ms(200); /* rank 0 is long past its own end by then */
    }
    rank_publish(&host);
    host_must(&host,
              host.api->unit->unshard(host.model, 0, HSDP_USE_FORWARD, NULL, NULL, &host.err));
    expect_trained(&host);
    host_close(&host);
}

START_TEST(unshard_without_ticket_waits_for_the_other_rank)
{
    ranks_run(2, RANKS_LIMIT_MS, rank_unshards_without_ticket, NULL);
}
END_TEST

/* Rank 1 publishes only after rank 0 has asked: so rank 0 may not wait before that. */
static void rank_asks(uint32_t rank, void *shared)
{
    _Atomic uint32_t *has_asked = shared;
    struct host host;
    uint64_t ticket = 0;

    rank_train(&host, rank);
    while (rank == 1 && atomic_load(has_asked) == 0) {
        ranks_sleep_ms(1);
    }
    rank_publish(&host);
    host_must(&host,
              host.api->unit->unshard(host.model, 0, HSDP_USE_FORWARD, NULL, &ticket, &host.err));
    if (rank == 0) {
        ck_assert_int_eq(host.api->job->ticket_wait(host.job, ticket, 0, &host.err), HSDP_PENDING);
        ck_assert_int_eq(host.api->job->ticket_wait(host.job, ticket, 20, &host.err), HSDP_PENDING);
        atomic_store(has_asked, 1);
    }
    host_must(&host, host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &host.err));
    expect_trained(&host);
    host_close(&host);
}

START_TEST(unshard_with_ticket_is_pending_until_the_other_rank_has_published)
{
    ranks_run(2, RANKS_LIMIT_MS, rank_asks, ranks_memory(sizeof(_Atomic uint32_t)));
}
END_TEST

static void rank_orders(uint32_t rank, void *shared)
{
    struct host host;
    uint64_t ticket = 0;

    (void)shared;
    rank_train(&host, rank);
    if (rank == 1) {
        ranks_sleep_ms(200);
    }
    rank_publish(&host);
    host_must(&host,
              host.api->unit->unshard(host.model, 0, HSDP_USE_FORWARD, NULL, &ticket, &host.err));
    host_must(&host, host.api->job->ticket_order(host.job, ticket, NULL, &host.err));
    expect_trained(&host);
    host_close(&host);
}

START_TEST(ticket_order_on_a_cpu_waits)
{
    ranks_run(2, RANKS_LIMIT_MS, rank_orders, NULL);
}
END_TEST

START_TEST(ticket_never_handed_out_is_invalid)
{
    struct host host;

    ranks_environment_clear();
    host_open(&host, 0, "dp=1", "sharding_strategy=fsdp", UNITS);
    host_must(&host, host.api->job->ticket_wait(host.job, 0, UINT64_MAX, &host.err));
    ck_assert_int_eq(host.api->job->ticket_wait(host.job, UINT64_MAX, 0, &host.err),
                     HSDP_ERR_INVALID);
    ck_assert_int_eq(host.api->job->ticket_order(host.job, 1u << 20, NULL, &host.err),
                     HSDP_ERR_INVALID);
    host_close(&host);
}
END_TEST

/* Rank 1 hands nothing over, so the reduction of rank 0 is open when its model goes. */
static void rank_destroys(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_done = shared;
    struct host host;
    uint64_t ticket = 0;

    host_open(&host, rank, "dp=2", "sharding_strategy=fsdp", UNITS);
    host_load(&host, value_one);
    if (rank == 0) {
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        host_acquire(&host, 0);
        host_fill(&host, 0, 0, value_one);
        host_must(&host,
                  host.api->unit->reduce(host.model, host.pass, 0, NULL, &ticket, &host.err));
        host.api->model->destroy(host.model);
        host.model = NULL;
        host_must_refuse(&host, host.api->job->ticket_wait(host.job, ticket, 0, &host.err),
                         HSDP_ERR_STATE, "its model or group was destroyed");
        host_must(&host, host.api->job->ticket_wait(host.job, ticket - 1, 0, &host.err));
    }
    ranks_meet(n_done, 2);
    host_leave(&host);
}

START_TEST(ticket_of_a_model_that_was_destroyed_is_an_error)
{
    ranks_run(2, RANKS_LIMIT_MS, rank_destroys, ranks_memory(sizeof(uint32_t)));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_ticket");
    TCase *all = tcase_create("ticket");

    tcase_set_timeout(all, 60); /* beyond the limit of the ranks */
    tcase_add_test(all, unshard_without_ticket_waits_for_the_other_rank);
    tcase_add_test(all, unshard_with_ticket_is_pending_until_the_other_rank_has_published);
    tcase_add_test(all, ticket_order_on_a_cpu_waits);
    tcase_add_test(all, ticket_never_handed_out_is_invalid);
    tcase_add_test(all, ticket_of_a_model_that_was_destroyed_is_an_error);
    suite_add_tcase(suite, all);
    return suite;
}
