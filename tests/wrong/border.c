/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the border: versions, tables, sizes, texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrong.h"

static void accept_major(void)
{
    wrong.accepted_major = 2;
}

static void table_hole(void)
{
    wrong.job.phase_pop = NULL;
}

static void table_short(void)
{
    wrong.unit.struct_size -= sizeof(void *);
}

/* Writes all of the text, whatever room there is. */
static int32_t describe_past(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                             struct hsdp_error *reterr)
{
    uint64_t n_bytes = 0;
    char *text;

    wrong.real->describe(NULL, 0, &n_bytes, NULL);
    if (ret_text == NULL || max_bytes >= n_bytes) {
        return wrong.real->describe(ret_text, max_bytes, ret_bytes, reterr);
    }
    text = malloc(n_bytes);
    if (text != NULL) {
        wrong.real->describe(text, n_bytes, &n_bytes, NULL);
        memcpy(ret_text, text, n_bytes < max_bytes + 16 ? n_bytes : max_bytes + 16);
        free(text);
    }
    return wrong.real->describe(NULL, 0, ret_bytes, reterr);
}

static void describe_overruns(void)
{
    wrong.api.describe = describe_past;
}

/* Reads what its own struct has, however short the caller's is. */
static int32_t read_past(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh,
                         struct hsdp_error *reterr)
{
    unsigned char bytes[sizeof(*spec) + 16];

    if (spec != NULL) {
        const volatile unsigned char *from = (const unsigned char *)spec;

        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = from[i];
        }
        (void)bytes;
    }
    return wrong.real->mesh->create(spec, ret_mesh, reterr);
}

static void reads_past(void)
{
    wrong.mesh.create = read_past;
}

/* A newer field that it does not know is none of its business. */
static int32_t ignore_newer(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh,
                            struct hsdp_error *reterr)
{
    struct hsdp_mesh_spec own = HSDP_MESH_SPEC_INIT;

    if (spec != NULL && spec->struct_size > sizeof(own)) {
        memcpy(&own, spec, sizeof(own));
        own.struct_size = sizeof(own);
        spec = &own;
    }
    return wrong.real->mesh->create(spec, ret_mesh, reterr);
}

static void newer_fields(void)
{
    wrong.mesh.create = ignore_newer;
}

static int32_t write_success(const hsdp_job *job, struct hsdp_job_info *ret_info,
                             struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->info(job, ret_info, reterr);

    if (status == HSDP_OK && reterr != NULL) {
        reterr->status = HSDP_OK;
        reterr->message[0] = '\0';
    }
    return status;
}

static void error_on_success(void)
{
    wrong.job.info = write_success;
}

static int32_t say_nothing(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh,
                           struct hsdp_error *reterr)
{
    int32_t status = wrong.real->mesh->create(spec, ret_mesh, reterr);

    if (status < 0 && reterr != NULL && reterr->struct_size >= sizeof(*reterr)) {
        reterr->message[0] = '\0';
    }
    return status;
}

static void error_says_nothing(void)
{
    wrong.mesh.create = say_nothing;
}

static int32_t name_nothing(hsdp_plan *plan, const struct hsdp_param_spec *spec,
                            uint32_t *ret_param, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->plan->add_param(plan, spec, ret_param, reterr);

    if (status < 0 && reterr != NULL && reterr->struct_size >= sizeof(*reterr)) {
        snprintf(reterr->message, sizeof(reterr->message), "an argument is wrong");
    }
    return status;
}

static void error_names_nothing(void)
{
    wrong.plan.add_param = name_nothing;
}

/* Of settings only the first is looked at. */
static int32_t take_first(const hsdp_mesh *mesh, const struct hsdp_settings *settings,
                          hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    struct hsdp_settings first = {NULL, NULL, 0};

    if (settings != NULL) {
        first = *settings;
        first.n_settings = first.n_settings > 1 ? 1 : first.n_settings;
    }
    return wrong.real->plan->create(mesh, &first, ret_plan, reterr);
}

static void repeated_keys(void)
{
    wrong.plan.create = take_first;
}

static int32_t extend_any(const char *name, const void **ret_ops, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->extension(name, ret_ops, reterr);

    if (status == HSDP_ERR_UNSUPPORTED && ret_ops != NULL) {
        *ret_ops = NULL;
        return HSDP_OK;
    }
    return status;
}

static void extension_of_any_name(void)
{
    wrong.api.extension = extend_any;
}

static const struct wrong_fault faults[] = {
    {"accepts-major-2", "negotiation", "any other major version of the host is refused",
     "hosts of major version 2 are let in", accept_major},
    {"table-hole", "negotiation", "tables are as long as in ABI 1.0 and hold no NULL",
     "job.phase_pop is NULL", table_hole},
    {"table-short", "negotiation", "tables are as long as in ABI 1.0 and hold no NULL",
     "the table of units lacks its last function", table_short},
    {"describe-overruns", "negotiation", "describe tells its size and keeps to the buffer",
     "describe writes past max_bytes", describe_overruns},
    {"extension-of-any-name", "negotiation", "an extension that it does not know is refused",
     "every extension is there", extension_of_any_name},
    {"error-says-nothing", "arguments", "mesh: what no mesh can be is refused",
     "an error has no sentence", error_says_nothing},
    {"error-names-nothing", "arguments", "plan: ties that cannot be are refused",
     "a refused parameter is not named", error_names_nothing},
    {"repeated-keys", "arguments", "plan: settings that are no list of keys and values are refused",
     "a key may be given twice", repeated_keys},
    {"reads-past", "arguments", "structs: each known size is read to its end",
     "reads past struct_size", reads_past},
    {"newer-fields", "arguments", "structs: a newer field that is set is unsupported",
     "newer fields that are set are ignored", newer_fields},
    {"error-on-success", "failures", "a second abort changes nothing", "success clears the error",
     error_on_success},
};

const struct wrong_faults wrong_border = WRONG_FAULTS(faults);
