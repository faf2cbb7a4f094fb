/* SPDX-License-Identifier: Apache-2.0 */
/* One copy of the parameters a dtype and shard group: in the accounting and by the kernel's
 * figures. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS 4u
#define N_UNITS 3u

#define PAGE_BYTES      4096u /* the plugin runs with no others */
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

/* No padding: multiples of every cut. Frozen ones rest and are read like the others. */
#define N_ELEMS (UINT64_C(1) << 20) /* of each unit */
static const char units[] = "unit a: w[1048576]; unit b: x[524288] k[524288]!; unit c: y[1048576]";

/* What is there besides: counters, headers, rings; and a figure is rounded in each mapping. */
#define SLACK_BYTES (UINT64_C(128) << 10)

/* In the memory of all ranks and the test. */
struct figures {
    _Atomic uint32_t n_before;
    _Atomic uint32_t n_filled;
    _Atomic uint32_t n_read;
    _Atomic uint32_t n_measured;
    uint64_t before_bytes[N_RANKS];
    uint64_t after_bytes[N_RANKS];
    uint64_t param_bytes[N_RANKS];
    uint64_t master_bytes[N_RANKS];
    uint64_t master_resident_bytes[N_RANKS];
    uint32_t n_copies;   /* expected */
    uint32_t elem_bytes; /* of a parameter */
    bool has_masters;    /* apart from the parameters */
};

/* ---------------------------------------------------------------------------- kernel's figures */

/* One mapping of /proc/self/smaps. */
struct mapping {
    uint64_t begin, end;
    bool is_shared_file; /* of a job's ranks */
    uint64_t pss_bytes;
    uint64_t rss_bytes;
};

/* False at the end. Lines of the next mapping begin with its addresses. */
static bool mapping_read(FILE *file, struct mapping *ret)
{
    unsigned long long begin;
    unsigned long long end;
    char line[512];

    memset(ret, 0, sizeof(*ret));
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned long long n_kb;

        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) {
            ret->begin = begin;
            ret->end = end;
            ret->is_shared_file = strstr(line, "/memfd:hsdp") != NULL;
        } else if (sscanf(line, "Rss: %llu kB", &n_kb) == 1) {
            ret->rss_bytes = n_kb << 10;
        } else if (sscanf(line, "Pss: %llu kB", &n_kb) == 1) {
            ret->pss_bytes = n_kb << 10;
        } else if (strncmp(line, "VmFlags:", 8) == 0) { /* the last one */
            return true;
        }
    }
    return false;
}

static FILE *mappings_open(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");

    ck_assert_ptr_nonnull(file);
    return file;
}

/* This rank's share of what ranks share: a page that k mappings have counts 1/k in each. */
static uint64_t shared_bytes(void)
{
    FILE *file = mappings_open();
    struct mapping mapping;
    uint64_t n_bytes = 0;

    while (mapping_read(file, &mapping)) {
        n_bytes += mapping.is_shared_file ? mapping.pss_bytes : 0;
    }
    fclose(file);
    return n_bytes;
}

/* What is resident of the mapping that an address lies in. */
static uint64_t resident_bytes(const void *address)
{
    FILE *file = mappings_open();
    struct mapping mapping;
    uint64_t n_bytes = 0;

    while (mapping_read(file, &mapping)) {
        if ((uintptr_t)address >= mapping.begin && (uintptr_t)address < mapping.end) {
            n_bytes = mapping.rss_bytes;
        }
    }
    fclose(file);
    return n_bytes;
}

/* -------------------------------------------------------------------------------------- a run */

/* Writes all that this rank steps, where it lies: imports would go through memory of their own. */
static uint64_t masters_fill(struct host *host)
{
    struct hsdp_tensor master = {0};

    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    for (uint32_t unit = 0; unit < N_UNITS; unit++) {
        for (uint32_t buffer = 0; buffer < (unit == 1 ? 2 : 1); buffer++) {
            host_must(host, host->api->model->flat_view(host->model, unit, buffer, HSDP_FLAT_MASTER,
                                                        &master, &host->err));
            memset(master.base, 0x3c, (uint64_t)master.shape[0] * master.dtype_bits / 8);
        }
    }
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
    return resident_bytes(master.base);
}

/* Every page of every parameter, unsharded. */
static void params_read(struct host *host)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
        const uint8_t *bytes = (const uint8_t *)view.base + view.byte_offset;
        uint64_t n_bytes = host->params[param].n_elems * view.dtype_bits / 8;

        host_must(host, host_unshard(host, host->params[param].unit, HSDP_USE_FORWARD));
        for (uint64_t at = 0; at < n_bytes; at += PAGE_BYTES) {
            ck_assert_int_ne(bytes[at], 0);
        }
        host_must(host, host_release(host, host->params[param].unit));
    }
}

static void resident_rank(uint32_t rank, void *shared)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct figures *figures = shared;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, units);
    figures->before_bytes[rank] = shared_bytes();
    ranks_meet(&figures->n_before, N_RANKS);
    figures->master_resident_bytes[rank] = masters_fill(&host);
    ranks_meet(&figures->n_filled, N_RANKS);
    params_read(&host);
    ranks_meet(&figures->n_read, N_RANKS);
    figures->after_bytes[rank] = shared_bytes();
    host_must(&host, host.api->model->info(host.model, &info, &host.err));
    ck_assert_uint_eq(info.unsharded_bytes, 0);
    figures->param_bytes[rank] = info.param_bytes;
    figures->master_bytes[rank] = info.master_bytes;
    ranks_meet(&figures->n_measured, N_RANKS); /* nobody goes before all have looked */
    host_close(&host);
}

static uint64_t sum(const uint64_t values[N_RANKS])
{
    uint64_t total = 0;

    for (uint32_t rank = 0; rank < N_RANKS; rank++) {
        total += values[rank];
    }
    return total;
}

static void bytes_expect(const char *what, uint64_t found, uint64_t expected, uint64_t more)
{
    if (found + SLACK_BYTES < expected || found > expected + SLACK_BYTES + more) {
        ck_abort_msg("%s: %llu bytes, not %llu", what, (unsigned long long)found,
                     (unsigned long long)expected);
    }
}

static void figures_expect(const struct figures *figures)
{
    uint64_t whole_bytes = N_UNITS * N_ELEMS * figures->elem_bytes;
    uint64_t found_bytes = sum(figures->after_bytes) - sum(figures->before_bytes);

    bytes_expect("parameters of all ranks", found_bytes, figures->n_copies * whole_bytes, 0);
    bytes_expect("parameters in the accounting", sum(figures->param_bytes), found_bytes, 0);
    for (uint32_t rank = 0; rank < N_RANKS && figures->has_masters; rank++) {
        bytes_expect("masters of a rank", figures->master_resident_bytes[rank],
                     figures->master_bytes[rank], HUGE_PAGE_BYTES); /* the last one */
    }
}

static const struct {
    const char *strategy;
    uint32_t n_copies; /* on 4 ranks, 2 a shard group */
} rows[] = {{"ddp", 4}, {"zero1", 4}, {"fsdp", 1}, {"hsdp", 2}, {"hsdp_zero2", 4}, {"hfsdp", 2}};
#define N_ROWS ((int)(sizeof(rows) / sizeof(rows[0])))

/* Whether the kernel rounds shared memory up to huge pages by itself. */
static bool is_rounded_up(void)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "r");
    char line[128] = "";

    if (file == NULL) {
        return false;
    }
    if (fgets(line, sizeof(line), file) == NULL) {
        line[0] = '\0';
    }
    fclose(file);
    return strstr(line, "[always]") != NULL || strstr(line, "[within_size]") != NULL ||
           strstr(line, "[force]") != NULL;
}

/* ddp among them, which has as many copies as ranks: so the figures can tell. */
START_TEST(parameters_of_all_ranks_are_one_copy_a_shard_group)
{
    bool is_bf16 = _i % 2 == 1;
    int row = _i / 2;
    struct figures *figures = ranks_memory(sizeof(*figures));

    if (is_rounded_up()) {
        printf("check_resident: skipped, shared memory comes in huge pages here\n");
        return;
    }
    figures->n_copies = rows[row].n_copies;
    figures->elem_bytes = is_bf16 ? 2 : 4;
    figures->has_masters = is_bf16;
    snprintf(host_settings, sizeof(host_settings),
             "shard_size=2 accumulation_scope=full sharding_strategy=%s%s", rows[row].strategy,
             is_bf16 ? " param_dtype=bf16" : "");
    ranks_run(N_RANKS, RANKS_LIMIT_MS, resident_rank, figures);
    figures_expect(figures);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("resident");
    TCase *tcase = tcase_create("resident");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, parameters_of_all_ranks_are_one_copy_a_shard_group, 0, 2 * N_ROWS);
    suite_add_tcase(suite, tcase);
    return suite;
}
