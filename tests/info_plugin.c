/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins that describe themselves, rightly or in one wrong way; check_info compiles one per KIND.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hsdp/hsdp.h"

#define OTHER          0 /* good, by somebody else: more members, none of the optional ones */
#define HANGS_LOADED   1
#define HANGS          2
#define CRASHES_LOADED 3
#define CRASHES        4
#define EXITS_LOADED   5
#define EXITS          6
#define PRINTS         7
#define NO_JSON        8
#define NO_OBJECT      9
#define LACKS          10 /* a member that has to be there */
#define WRONG_TYPE     11
#define ASKS_TOO_MUCH  12
#define REFUSES        13
#define CRASHES_AT_END 14
#define OTHER_NAME     15
#define LEAVES_CHILD   16 /* which keeps the pipes open */
#define CLOSES_ALL     17
#define ESCAPES        18 /* commands for a terminal in its texts */
#define CRASHES_IN_JOB 19
#define WRONG_ROW      20
#define SCREAMS        21 /* prints for ever */
#define GROWS          22 /* asks for more each time */
#define TWO_WAYS       23 /* of its transports two are usable */

#define SETTING                                                                                    \
    "{\"key\":\"depth\",\"homes\":[\"job\"],\"type\":\"integer\",\"min\":1,\"max\":9,"             \
    "\"default\":\"3\",\"meaning\":\"how deep\",\"color\":\"blue\"},"                              \
    "{\"key\":\"mode\",\"homes\":[\"plan\",\"planet\"],\"type\":\"mood\",\"choices\":[\"a\",7],"   \
    "\"meaning\":\"how\"},"                                                                        \
    "{\"key\":\"free\",\"homes\":[],\"type\":\"text\",\"meaning\":\"\"}"
#define BODY(name, strategies, end)                                                                \
    "{\"plugin_name\":\"" name "\",\"plugin_version\":\"7\",\"abi_major\":1,\"abi_minor\":0,"      \
    "\"strategies\":" strategies ",\"transports\":[{\"name\":\"pigeon\",\"usable\":true,"          \
    "\"speed\":3,\"libraries\":[7,{},{\"name\":\"libpigeon-nobody-has.so\",\"symbols\":7}]}],"     \
    "\"extensions\":[],\"settings\":[" SETTING "]" end

static const char *const descriptions[32] = {
    [OTHER] = BODY("other", "[{\"name\":\"one\"}]", ",\"weather\":[1,2]}"),
    [NO_JSON] = BODY("other", "[]", ""),
    [NO_OBJECT] = "[1]",
    [LACKS] = "{\"plugin_name\":\"other\",\"plugin_version\":\"7\",\"abi_major\":1,"
              "\"abi_minor\":0,\"strategies\":[],\"transports\":[],\"extensions\":[]}",
    [WRONG_TYPE] = BODY("other", "7", "}"),
    [TWO_WAYS] = "{\"plugin_name\":\"other\",\"plugin_version\":\"7\",\"abi_major\":1,"
                 "\"abi_minor\":0,\"strategies\":[],\"extensions\":[],\"transports\":["
                 "{\"name\":\"pigeon\",\"usable\":true},{\"name\":\"owl\",\"usable\":true},"
                 "{\"name\":\"swan\",\"usable\":false,\"reason\":\"it sings\"}],\"settings\":["
                 "{\"key\":\"backend\",\"homes\":[\"job\"],\"type\":\"choice\",\"default\":"
                 "\"auto\",\"choices\":[\"auto\"],\"meaning\":\"owls at night\"}]}",
    [OTHER_NAME] = BODY("another", "[]", "}"),
    [ESCAPES] = BODY("other", "[{\"name\":\"\\u001b[31mred\\u009b7m\"}]", "}"),
    [WRONG_ROW] = BODY("other", "[{\"name\":\"one\"},{\"aliases\":[]}]", "}"),
};

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr);

/* What a plugin does instead of describing itself. */
static void misbehave(void)
{
    switch (KIND) {
    case HANGS:
        for (;;) {
            pause();
        }
    case CRASHES:
        abort();
    case EXITS:
        exit(0);
    case PRINTS:
        printf("hello, I am here\nand here\n");
        break;
    case LEAVES_CHILD:
        if (fork() == 0) {
            sleep(600);
            _exit(0);
        }
        break;
    case CLOSES_ALL:
        for (int fd = 0; fd < 1000; fd++) {
            close(fd);
        }
        break;
    case SCREAMS:
        for (;;) {
            puts("again and again and again and again and again and again and again");
        }
    default:
        break;
    }
}

static int32_t describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                        struct hsdp_error *reterr)
{
    const char *text = descriptions[KIND] != NULL ? descriptions[KIND] : descriptions[OTHER];

    misbehave();
    if (KIND == REFUSES) {
        snprintf(reterr->message, sizeof(reterr->message), "has no words");
        return HSDP_ERR_UNSUPPORTED;
    }
    *ret_bytes = KIND == ASKS_TOO_MUCH ? UINT64_MAX
                 : KIND == GROWS       ? max_bytes + 10
                                       : strlen(text) + 1;
    if (max_bytes < *ret_bytes) {
        return HSDP_ERR_BUFFER_TOO_SMALL;
    }
    memcpy(ret_text, text, (size_t)*ret_bytes);
    return HSDP_OK;
}

static int32_t extension(const char *name, const void **ret_ops, struct hsdp_error *reterr)
{
    (void)name;
    (void)ret_ops;
    (void)reterr;
    return HSDP_ERR_UNSUPPORTED;
}

static int32_t job_create(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                          struct hsdp_error *reterr)
{
    (void)ret_job;
    (void)reterr;
    if (spec->world_ranks == 1) {
        abort();
    }
    return HSDP_ERR_UNSUPPORTED;
}

static int32_t job_setting(const hsdp_job *job_, const char *key, const char **ret_value,
                           const char **ret_source, struct hsdp_error *reterr)
{
    (void)job_;
    (void)key;
    (void)ret_value;
    (void)ret_source;
    (void)reterr;
    return HSDP_ERR_INVALID;
}

static void job_destroy(hsdp_job *job_)
{
    (void)job_;
}

static const struct hsdp_mesh_ops mesh = {.struct_size = sizeof(mesh)};
static const struct hsdp_job_ops job = {.struct_size = sizeof(job),
                                        .create = KIND == CRASHES_IN_JOB ? job_create : NULL,
                                        .setting = job_setting,
                                        .destroy = job_destroy};
static const struct hsdp_group_ops group = {.struct_size = sizeof(group)};
static const struct hsdp_plan_ops plan = {.struct_size = sizeof(plan)};
static const struct hsdp_model_ops model = {.struct_size = sizeof(model)};
static const struct hsdp_unit_ops unit = {.struct_size = sizeof(unit)};
static const struct hsdp_step_ops step = {.struct_size = sizeof(step)};
static const struct hsdp_diag_ops diag = {.struct_size = sizeof(diag)};

static const struct hsdp_api api = {
    .struct_size = sizeof(api),
    .abi_major = 1,
    .abi_minor = 0,
    .plugin_name = "other",
    .plugin_version = "7",
    .mesh = &mesh,
    .job = &job,
    .group = &group,
    .plan = &plan,
    .model = &model,
    .unit = &unit,
    .step = &step,
    .diag = &diag,
    .describe = describe,
    .extension = extension,
};

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr)
{
    (void)host_major;
    (void)host_minor;
    (void)reterr;
    *ret_api = &api;
    return HSDP_OK;
}

__attribute__((constructor)) static void at_load(void)
{
    while (KIND == HANGS_LOADED) {
        pause();
    }
    if (KIND == CRASHES_LOADED) {
        abort();
    }
    if (KIND == EXITS_LOADED) {
        exit(3);
    }
}

__attribute__((destructor)) static void at_unload(void)
{
    if (KIND == CRASHES_AT_END) {
        abort();
    }
}
