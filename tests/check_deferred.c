/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred initialisation: a model larger than the machine's memory, of which ranks fill a part. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#if defined(__SANITIZE_THREAD__)
#define HAS_FEW_ADDRESSES 1 /* it keeps most of them for itself */
#else
#define HAS_FEW_ADDRESSES 0
#endif

#define N_RANKS  4u
#define N_UNITS  4u
#define N_FILLED 1000u /* elements at the front of each rank's part of each unit */

/* Far below a rank's share, and above what a process of this suite has anyway. */
#define RESIDENT_MAX_KB (512u * 1024u)

static char units[256];

/* Elements of one unit: parameters alone are the machine's memory, and at least 64 GiB. */
static uint64_t unit_elems(void)
{
    uint64_t n_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    n_bytes = n_bytes < UINT64_C(64) << 30 ? UINT64_C(64) << 30 : n_bytes;
    return n_bytes / sizeof(float) / N_UNITS;
}

/* Why this machine does not let a process have so many addresses; NULL where it does. */
static const char *limit_find(void)
{
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    struct rlimit limit;
    int mode = 0;

    if (file != NULL) {
        if (fscanf(file, "%d", &mode) != 1) {
            mode = 0;
        }
        fclose(file);
    }
    if (HAS_FEW_ADDRESSES) {
        return "ThreadSanitizer leaves too few addresses";
    }
    if (mode == 2) {
        return "vm.overcommit_memory is 2";
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        return "the address space is limited (ulimit -v)";
    }
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        return "the size of files is limited (ulimit -f)";
    }
    return NULL;
}

static unsigned long resident_kb(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long n_kb = 0;
    char line[256];

    ck_assert_ptr_nonnull(file);
    while (n_kb == 0 && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "VmRSS: %lu", &n_kb);
    }
    fclose(file);
    return n_kb;
}

/* What stands at an element, whoever fills it. */
static float value_at(uint32_t unit, uint64_t elem)
{
    return (float)(unit * 100000 + elem % 4099);
}

/* The run of elements that a rank steps of a unit. */
static struct hsdp_segment part_of(struct host *host, uint32_t unit, uint32_t rank)
{
    struct hsdp_segment segment;
    uint64_t n_segments;

    host_must(host, host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, rank, &segment,
                                              sizeof(segment), 1, &n_segments, &host->err));
    ck_assert_uint_eq(n_segments, 1);
    return segment;
}

static void part_fill(struct host *host, uint32_t unit)
{
    struct hsdp_segment part = part_of(host, unit, host->rank);
    struct hsdp_tensor master;

    host_must(host, host->api->model->flat_view(host->model, unit, 0, HSDP_FLAT_MASTER, &master,
                                                &host->err));
    for (uint64_t i = 0; i < N_FILLED; i++) {
        host_write(&master, part.shard_offset_elems + i,
                   (double)value_at(unit, part.param_offset_elems + i));
    }
}

/* Of all ranks' parts, and zero behind them. */
static void unit_expect(struct host *host, uint32_t unit)
{
    struct hsdp_tensor view = host_view(host, unit, HSDP_VIEW_PARAM);

    host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
    for (uint32_t rank = 0; rank < N_RANKS; rank++) {
        uint64_t first = part_of(host, unit, rank).param_offset_elems;

        for (uint64_t elem = first; elem < first + N_FILLED; elem++) {
            host_expect_number(host, "value", elem, host_read(&view, elem),
                               (double)value_at(unit, elem));
        }
        host_expect_number(host, "value", first + N_FILLED, host_read(&view, first + N_FILLED),
                           0.0);
    }
    host_must(host, host_release(host, unit));
}

static void deferred_rank(uint32_t rank, void *shared)
{
    struct host host;
    uint32_t state;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, units);
    host_must(&host,
              host.api->model->state_create(host.model, "momentum", "fp32", &state, &host.err));
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    for (uint32_t unit = 0; unit < N_UNITS; unit++) {
        part_fill(&host, unit);
    }
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    for (uint32_t unit = 0; unit < N_UNITS; unit++) {
        unit_expect(&host, unit);
    }
    ck_assert_uint_lt(resident_kb(), RESIDENT_MAX_KB);
    host_close(&host);
}

START_TEST(model_larger_than_memory_takes_what_is_filled)
{
    static const char *const more[] = {"", "accumulation_scope=full slots=1",
                                       "verify=access accumulation_scope=inner"};
    const char *limit = limit_find();
    uint64_t n_elems = unit_elems();

    if (limit != NULL) {
        printf("model_larger_than_memory_takes_what_is_filled: skipped, %s\n", limit);
        return;
    }
    snprintf(units, sizeof(units),
             "unit a: w[%llu]; unit b: x[%llu]; unit c: y[%llu]; unit d: z[%llu]",
             (unsigned long long)n_elems, (unsigned long long)n_elems, (unsigned long long)n_elems,
             (unsigned long long)n_elems);
    host_settings_set(_i / 3 == 0 ? 3 : 4, more[_i % 3]); /* fsdp, hsdp */
    ranks_run(N_RANKS, RANKS_LIMIT_MS, deferred_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("deferred");
    TCase *tcase = tcase_create("deferred");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, model_larger_than_memory_takes_what_is_filled, 0, 6);
    suite_add_tcase(suite, tcase);
    return suite;
}
