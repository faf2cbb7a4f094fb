/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter arguments: diagnostics. */

#include "arguments.h"

void diag_nulls(struct conform *conform)
{
    const struct hsdp_diag_ops *ops = conform->api->diag;
    struct arguments a;
    struct outputs *out = &a.out;

    arguments_open(&a, conform);
    arguments_refuse(&a, ops->report(NULL, "error", out->text, 64, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->report(a.job, NULL, out->text, 64, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->report(a.job, "error", NULL, 64, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->report(a.job, "error", out->text, 64, NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter(NULL, "steps", out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter(a.job, NULL, out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter(a.job, "steps", NULL, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter_name(NULL, 0, out->texts, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter_name(a.job, 0, NULL, a.err), HSDP_ERR_INVALID);
    arguments_close(&a);
}

void diag_names(struct conform *conform)
{
    static const char *const fixed[] = {"memory.parameters",
                                        "memory.gradients",
                                        "memory.optimizer",
                                        "memory.unsharded",
                                        "steps",
                                        "unshards",
                                        "reductions",
                                        "waits",
                                        "wait_ns"};
    const struct hsdp_diag_ops *ops = conform->api->diag;
    struct arguments a;
    struct outputs *out = &a.out;
    uint64_t n_names = 0;
    const char *name = NULL;

    arguments_open(&a, conform);
    arguments_refuse(&a, ops->report(a.job, "foo", out->text, 64, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->report(a.job, "", out->text, 64, out->longs, a.err),
                     HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter(a.job, "foo", out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter(a.job, "", out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter(a.job, "traffic.foo", out->longs, a.err), HSDP_ERR_INVALID);
    arguments_refuse(&a, ops->counter_name(a.job, UINT64_MAX, out->texts, a.err), HSDP_ERR_INVALID);
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        arguments_accept(&a, ops->counter(a.job, fixed[i], out->longs, a.err));
    }
    while (n_names < 10000 && ops->counter_name(a.job, n_names, &name, NULL) == HSDP_OK) {
        n_names++;
        arguments_accept(&a, ops->counter(a.job, name, out->longs, a.err));
    }
    conform_expect(conform, n_names >= sizeof(fixed) / sizeof(fixed[0]) && n_names < 10000,
                   "diag.counter_name: lists %llu counters; %zu are promised, and an end",
                   (unsigned long long)n_names, sizeof(fixed) / sizeof(fixed[0]));
    arguments_refuse_as(&a, "diag.counter_name past the last one",
                        ops->counter_name(a.job, n_names, out->texts, a.err), HSDP_ERR_INVALID);
    arguments_close(&a);
}
