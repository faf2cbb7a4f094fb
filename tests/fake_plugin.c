/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins that are good or wrong in one way each; check_loader compiles one per value of FAKE. */
#include <stdio.h>

#include "hsdp/hsdp.h"

#define FAKE_GOOD        0
#define FAKE_NO_SYMBOL   1
#define FAKE_MAJOR_2     2 /* only the entry of another major version */
#define FAKE_REFUSES     3
#define FAKE_POSITIVE    4
#define FAKE_NO_TABLE    5
#define FAKE_HOLE        6
#define FAKE_SHORT_TABLE 7
#define FAKE_OTHER_TABLE 8
#define FAKE_UNDEFINED   9 /* cannot be linked */
#define FAKE_NEWER       10

#if FAKE == FAKE_NO_SYMBOL
#define hsdp_plugin_v1 something_else
#elif FAKE == FAKE_MAJOR_2
#define hsdp_plugin_v1 hsdp_plugin_v2
#endif

extern int symbol_that_nobody_has(void);

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr);

static int32_t fake_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                             struct hsdp_error *reterr)
{
    (void)ret_text;
    (void)max_bytes;
    (void)ret_bytes;
    (void)reterr;
    return HSDP_ERR_UNSUPPORTED;
}

static int32_t fake_extension(const char *name, const void **ret_ops, struct hsdp_error *reterr)
{
    (void)name;
    (void)ret_ops;
    (void)reterr;
#if FAKE == FAKE_UNDEFINED
    return symbol_that_nobody_has();
#else
    return HSDP_ERR_UNSUPPORTED;
#endif
}

static const struct hsdp_mesh_ops mesh = {.struct_size = sizeof(mesh)};
static const struct hsdp_job_ops job = {.struct_size = sizeof(job)};
static const struct hsdp_group_ops group = {.struct_size = sizeof(group)};
static const struct hsdp_plan_ops plan = {.struct_size = sizeof(plan)};
static const struct hsdp_model_ops model = {.struct_size = sizeof(model)};
static const struct hsdp_unit_ops unit = {.struct_size = sizeof(unit)};
static const struct hsdp_step_ops step = {.struct_size = sizeof(step)};
static const struct hsdp_diag_ops diag = {.struct_size = sizeof(diag)};

static const struct {
    struct hsdp_api api;
    const void *newer_member;
} table = {
    .api =
        {
            .struct_size = FAKE == FAKE_SHORT_TABLE ? 104
                           : FAKE == FAKE_NEWER     ? sizeof(table)
                                                    : sizeof(struct hsdp_api),
            .abi_major = FAKE == FAKE_OTHER_TABLE ? 2 : 1,
            .abi_minor = FAKE == FAKE_NEWER ? 7 : 0,
            .plugin_name = "fake",
            .plugin_version = "1",
            .mesh = &mesh,
            .job = &job,
            .group = &group,
            .plan = FAKE == FAKE_HOLE ? NULL : &plan,
            .model = &model,
            .unit = &unit,
            .step = &step,
            .diag = &diag,
            .describe = fake_describe,
            .extension = fake_extension,
        },
    .newer_member = &mesh,
};

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr)
{
    (void)host_minor;
    if (FAKE == FAKE_REFUSES || host_major != 1) {
        reterr->status = HSDP_ERR_VERSION;
        snprintf(reterr->message, sizeof(reterr->message), "fake 1 has ABI 7.3, not yours");
        return HSDP_ERR_VERSION;
    }
    *ret_api = FAKE == FAKE_NO_TABLE ? NULL : &table.api;
    return FAKE == FAKE_POSITIVE ? HSDP_PENDING : HSDP_OK;
}
