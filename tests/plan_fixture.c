/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes and plans in a line each, for the suites that need many. */
#include "plan_fixture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 16

/* "key=value key=value", taken apart in place. */
struct word_pairs {
    char text[512];
    char *keys[MAX_WORDS];
    char *values[MAX_WORDS];
    uint32_t n;
};

static void pairs_read(struct word_pairs *pairs, const char *text, const char *separators)
{
    char *rest = NULL;

    memset(pairs, 0, sizeof(*pairs));
    snprintf(pairs->text, sizeof(pairs->text), "%s", text);
    for (char *word = strtok_r(pairs->text, separators, &rest); word != NULL;
         word = strtok_r(NULL, separators, &rest)) {
        char *equals = strchr(word, '=');

        ck_assert_ptr_nonnull(equals);
        ck_assert_uint_lt(pairs->n, MAX_WORDS);
        *equals = '\0';
        pairs->keys[pairs->n] = word;
        pairs->values[pairs->n++] = equals + 1;
    }
}

static struct hsdp_settings pairs_settings(const struct word_pairs *pairs)
{
    return (struct hsdp_settings){(const char *const *)pairs->keys,
                                  (const char *const *)pairs->values, pairs->n};
}

struct hsdp_mesh *fixture_mesh(const char *dims, uint32_t rank)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *mesh = NULL;
    struct word_pairs pairs;
    int64_t sizes[MAX_WORDS];
    char data[256] = "";

    pairs_read(&pairs, dims, ",");
    for (uint32_t d = 0; d < pairs.n; d++) {
        sizes[d] = atoll(pairs.values[d]);
        if (islower((unsigned char)pairs.keys[d][0])) {
            strcat(strcat(data, data[0] == '\0' ? "" : ","), pairs.keys[d]);
        }
        for (char *c = pairs.keys[d]; *c != '\0'; c++) {
            *c = (char)tolower((unsigned char)*c);
        }
    }
    spec.dim_sizes = sizes;
    spec.dim_names = (const char *const *)pairs.keys;
    spec.n_dims = pairs.n;
    spec.rank = rank;
    spec.data_dims = data;
    ck_assert_msg(mesh_create(&spec, &mesh, &err) == HSDP_OK, "%s: %s", dims, err.message);
    return mesh;
}

void fixture_clear_environment(void)
{
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        char name[64] = "HSDP_";

        strncat(name, setting_defs[i].key, sizeof(name) - sizeof("HSDP_"));
        for (char *c = name; *c != '\0'; c++) {
            *c = (char)toupper((unsigned char)*c);
        }
        unsetenv(name);
    }
}

static int32_t plan_try(const char *dims, uint32_t rank, const char *settings,
                        struct hsdp_plan **ret_plan, struct hsdp_error *reterr)
{
    struct hsdp_mesh *mesh = fixture_mesh(dims, rank);
    struct hsdp_settings given;
    struct word_pairs pairs;
    int32_t status;

    fixture_clear_environment();
    pairs_read(&pairs, settings, " ");
    given = pairs_settings(&pairs);
    status = plan_create(mesh, &given, ret_plan, reterr);
    mesh_destroy(mesh);
    return status;
}

struct hsdp_plan *fixture_plan(const char *dims, uint32_t rank, const char *settings)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_plan *plan = NULL;

    ck_assert_msg(plan_try(dims, rank, settings, &plan, &err) == HSDP_OK, "%s, %s: %s", dims,
                  settings, err.message);
    return plan;
}

int32_t fixture_plan_refused(const char *dims, const char *settings, struct hsdp_error *reterr)
{
    struct hsdp_plan *plan = NULL;
    int32_t status = plan_try(dims, 0, settings, &plan, reterr);

    ck_assert_ptr_null(plan);
    return status;
}

uint32_t fixture_class(struct hsdp_plan *plan, const char *name, const char *settings)
{
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct word_pairs pairs;
    uint32_t class_index = 0;

    pairs_read(&pairs, settings, " ");
    spec.name = name;
    spec.settings = pairs_settings(&pairs);
    ck_assert_msg(plan_add_class(plan, &spec, &class_index, &err) == HSDP_OK, "%s: %s", name,
                  err.message);
    return class_index;
}

uint32_t fixture_unit(struct hsdp_plan *plan, const char *name)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t unit = 0;

    ck_assert_msg(plan_add_unit(plan, name, 0, &unit, &err) == HSDP_OK, "%s: %s", name,
                  err.message);
    return unit;
}

struct hsdp_param_spec fixture_param_spec(uint32_t unit, const char *name, const char *text,
                                          int64_t *shape)
{
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;

    spec.unit = unit;
    spec.name = name;
    spec.shape = shape;
    for (const char *c = text + 1; *c != ']' && *c != '\0';) {
        char *end;

        shape[spec.n_dims++] = strtoll(c, &end, 10);
        c = *end == ',' ? end + 1 : end;
    }
    return spec;
}

uint32_t fixture_param(struct hsdp_plan *plan, uint32_t unit, const char *name, const char *shape)
{
    int64_t sizes[HSDP_PARAM_MAX_DIMS];
    struct hsdp_param_spec spec = fixture_param_spec(unit, name, shape, sizes);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t param = 0;

    ck_assert_msg(plan_add_param(plan, &spec, &param, &err) == HSDP_OK, "%s: %s", name,
                  err.message);
    return param;
}

void fixture_finish(struct hsdp_plan *plan)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_msg(plan_finish(plan, &err) == HSDP_OK, "%s", err.message);
}

struct hsdp_plan *fixture_finished(const char *dims, uint32_t rank, const char *settings,
                                   const char *const *shapes, uint32_t n_shapes)
{
    struct hsdp_plan *plan = fixture_plan(dims, rank, settings);

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    for (uint32_t i = 0; i < n_shapes; i++) {
        char name[16];

        snprintf(name, sizeof(name), "p%u", i);
        fixture_param(plan, 0, name, shapes[i]);
    }
    fixture_finish(plan);
    return plan;
}

uint32_t fixture_random(uint64_t *state, uint32_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % n);
}

void fixture_random_dims(uint64_t *state, char *ret_text, uint64_t max_bytes)
{
    static const char *const names[] = {"PP", "dp", "cp", "ep"};
    uint32_t room = 64;
    uint64_t n_bytes = 0;

    for (uint32_t d = 0; d < 4; d++) {
        uint32_t size = 1 + fixture_random(state, room < 5 ? room : 5);

        room /= size;
        n_bytes += (uint64_t)snprintf(ret_text + n_bytes, max_bytes - n_bytes, "%s%s=%u",
                                      d == 0 ? "" : ",", names[d], size);
    }
}
