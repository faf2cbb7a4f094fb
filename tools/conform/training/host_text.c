/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a host: dimensions, settings, units; and the plan that is built from them. */
#include "host_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------- dimensions */

/* True when a selector of dimensions has this one. */
static bool selector_has(const char *selector, const char *dim)
{
    size_t n = strlen(dim);

    while (*selector != '\0') {
        size_t n_word = strcspn(selector, ",");

        if (n_word == n && strncmp(selector, dim, n) == 0) {
            return true;
        }
        selector += n_word + (selector[n_word] == ',');
    }
    return false;
}

void host_dims_read(struct host *host, const char *text)
{
    const char *data = strstr(text, " data=");
    char copy[128];
    char *rest = NULL;

    host_expect(strlen(text) < sizeof(copy));
    snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(text, " "), text);
    data = data == NULL ? "dp,cp,ep" : data + strlen(" data=");
    host->n_ranks = 1;
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        struct host_dim *dim = &host->dims[host->n_dims++];

        host_expect(sscanf(word, "%31[^=]=%" SCNu32, dim->name, &dim->size) == 2);
        dim->is_data = selector_has(data, dim->name);
        host->n_ranks *= dim->size;
    }
}

/* --------------------------------------------------------------------------------- settings */

static bool key_is_of_job(const char *key)
{
    return strstr(key, "timeout") != NULL || strstr(key, "peer_silence") != NULL ||
           strcmp(key, "backend") == 0 || strcmp(key, "flight_records") == 0 ||
           strcmp(key, "cpu_path") == 0;
}

void host_settings_read(struct host_settings *ret, const char *text, bool is_of_job)
{
    char *rest = NULL;

    memset(ret, 0, sizeof(*ret));
    host_expect(strlen(text) < sizeof(ret->text));
    strcpy(ret->text, text);
    for (char *word = strtok_r(ret->text, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');

        if (value == NULL) {
            host_fail("setting \"%s\" has no value", word);
        }
        *value++ = '\0';
        if (key_is_of_job(word) == is_of_job) {
            host_expect(ret->settings.n_settings < HOST_MAX_SETTINGS);
            ret->keys[ret->settings.n_settings] = word;
            ret->values[ret->settings.n_settings++] = value;
        }
    }
    ret->settings.keys = ret->keys;
    ret->settings.values = ret->values;
}

/* ---------------------------------------------------------------------------------- classes */

/* The data dimensions as a selector: over them a class is replicated unless it says otherwise. */
void host_data_dims(const struct host *host, char *ret_text)
{
    ret_text[0] = '\0';
    for (uint32_t d = 0; d < host->n_dims; d++) {
        if (host->dims[d].is_data) {
            strcat(ret_text, ret_text[0] == '\0' ? "" : ",");
            strcat(ret_text, host->dims[d].name);
        }
    }
}

/* "expert(dp,cp) key=value": the dimensions and the settings may be missing. */
static void class_add(struct host *host, char *text)
{
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    struct host_class *row = &host->classes[host->n_classes];
    struct host_settings settings;
    size_t n_name = strcspn(text, "( ");
    uint32_t index;

    host_expect(host->n_classes < HOST_MAX_CLASSES);
    snprintf(row->name, sizeof(row->name), "%.*s", (int)n_name, text);
    host_data_dims(host, row->over);
    spec.name = row->name;
    text += n_name;
    if (text[0] == '(') {
        snprintf(row->over, sizeof(row->over), "%.*s", (int)strcspn(text + 1, ")"), text + 1);
        spec.replicated_over = row->over;
        text = strchr(text, ')') + 1;
    }
    strcpy(row->reduced, row->over);
    if (text[0] == '(') {
        snprintf(row->reduced, sizeof(row->reduced), "%.*s", (int)strcspn(text + 1, ")"), text + 1);
        spec.reduced_over = row->reduced;
        text = strchr(text, ')') + 1;
    }
    host_settings_read(&settings, text, false);
    spec.settings = settings.settings;
    host_needs(HOST_PART, text);
    host_must(host, host->api->plan->add_class(host->plan, &spec, &index, &host->err));
    host_expect(index == host->n_classes);
    host->n_classes++;
}

/* ------------------------------------------------------------------------------------ units */

static void shape_read(struct host_param *param, const char *text)
{
    param->n_elems = 1;
    while (*text != ']') {
        char *end;

        param->shape[param->n_dims] = strtoll(text, &end, 10);
        param->n_elems *= (uint64_t)param->shape[param->n_dims++];
        text = *end == ',' ? end + 1 : end;
    }
}

/* What stands behind the shape: "!", "=emb", "@1", "/16", "~pp[0,1]"; also "!=emb~pp[0,1]". */
static void suffix_read(struct host *host, struct host_param *param, const char *text)
{
    char name[HOST_NAME_BYTES];

    switch (text[0]) {
    case '!':
        param->is_frozen = true;
        suffix_read(host, param, text + 1);
        break;
    case '=':
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(text + 1, "~"), text + 1);
        param->tied_to = host_param(host, name);
        param->storage = host->params[param->tied_to].storage;
        suffix_read(host, param, text + 1 + strlen(name));
        break;
    case '@':
        param->hyper_group = (uint32_t)atoi(text + 1);
        suffix_read(host, param, text + strcspn(text, "~"));
        break;
    case '/':
        param->block_elems = (uint64_t)atoll(text + 1);
        suffix_read(host, param, text + strcspn(text, "~"));
        break;
    case '~':
        snprintf(param->tied_over, sizeof(param->tied_over), "%s", text + 1);
        break;
    default:
        if (text[0] != '\0') {
            host_fail("no parameter ends in \"%s\"", text);
        }
    }
}

static void param_add(struct host *host, uint32_t unit, const char *text)
{
    struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
    struct host_param *param = &host->params[host->n_params];
    uint32_t index;

    host_expect(host->n_params < HOST_MAX_PARAMS);
    memset(param, 0, sizeof(*param));
    snprintf(param->name, sizeof(param->name), "%.*s", (int)strcspn(text, "["), text);
    param->unit = unit;
    param->storage = host->n_params;
    param->tied_to = host->n_params;
    shape_read(param, strchr(text, '[') + 1);
    suffix_read(host, param, strchr(text, ']') + 1);
    spec.name = param->name;
    spec.shape = param->shape;
    spec.n_dims = param->n_dims;
    spec.unit = unit;
    spec.tied_to = param->tied_to == host->n_params ? NULL : host->params[param->tied_to].name;
    spec.tied_over = param->tied_over[0] == '\0' ? NULL : param->tied_over;
    spec.block_elems = param->block_elems;
    spec.hyper_group = param->hyper_group;
    spec.flags = param->is_frozen ? HSDP_PARAM_FROZEN : 0;
    if (spec.tied_to != NULL || spec.tied_over != NULL) {
        host_needs(HOST_PART, "tied_to");
    }
    host_must(host, host->api->plan->add_param(host->plan, &spec, &index, &host->err));
    host_expect(index == host->n_params);
    host->n_params++;
}

/* "a: w[4,2] b[4]!" */
static void unit_add(struct host *host, char *text)
{
    size_t n_name = strcspn(text, ":");
    char *rest = NULL;
    char *name = host->units[host->n_units];
    uint32_t unit;

    if (host->n_classes == 0) {
        char dense[] = "dense";

        class_add(host, dense);
    }
    host_expect(host->n_units < HOST_MAX_UNITS);
    snprintf(name, HOST_NAME_BYTES, "%.*s", (int)n_name, text);
    host_must(host,
              host->api->plan->add_unit(host->plan, name, host->n_classes - 1, &unit, &host->err));
    host_expect(unit == host->n_units);
    host->unit_classes[host->n_units++] = host->n_classes - 1;
    for (char *word = strtok_r(text + n_name + 1, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        param_add(host, unit, word);
    }
}

void host_units_add(struct host *host, const char *text)
{
    char copy[1024];
    char *rest = NULL;

    host->n_classes = host->n_units = host->n_params = 0; /* of an earlier plan */
    host_expect(strlen(text) < sizeof(copy));
    strcpy(copy, text);
    for (char *part = strtok_r(copy, ";", &rest); part != NULL; part = strtok_r(NULL, ";", &rest)) {
        part += strspn(part, " ");
        if (part[0] == '\0') {
            continue; /* behind the last one */
        }
        if (strncmp(part, "class ", 6) == 0) {
            class_add(host, part + 6);
        } else {
            if (strncmp(part, "unit ", 5) != 0) {
                host_fail("\"%s\" is no class and no unit", part);
            }
            unit_add(host, part + 5);
        }
    }
}

/* ------------------------------------------------------------------------------------ names */

uint32_t host_unit(const struct host *host, const char *name)
{
    uint32_t unit = 0;

    while (unit < host->n_units && strcmp(host->units[unit], name) != 0) {
        unit++;
    }
    if (unit == host->n_units) {
        host_fail("there is no unit \"%s\"", name);
    }
    return unit;
}

uint32_t host_param(const struct host *host, const char *name)
{
    uint32_t param = 0;

    while (param < host->n_params && strcmp(host->params[param].name, name) != 0) {
        param++;
    }
    if (param == host->n_params) {
        host_fail("there is no parameter \"%s\"", name);
    }
    return param;
}

bool host_is_trainable(const struct host *host, uint32_t unit)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (host->params[param].unit == unit && !host->params[param].is_frozen) {
            return true;
        }
    }
    return false;
}

bool host_is_stepped(const struct host *host, uint32_t unit)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (host->params[param].unit == unit && !host->params[param].is_frozen &&
            host->params[param].storage == param) {
            return true;
        }
    }
    return false;
}

bool host_is_alias(const struct host *host, uint32_t param)
{
    return host->params[host->params[param].storage].unit != host->params[param].unit;
}

/* The rank with coordinate 0 in the selected dimensions, and that of `rank` in the others. */
static uint32_t first_rank(const struct host *host, const char *selector, uint32_t rank)
{
    uint32_t stride = 1;
    uint32_t first = 0;

    for (uint32_t d = host->n_dims; d-- > 0;) { /* the last dimension varies fastest */
        if (!selector_has(selector, host->dims[d].name)) {
            first += rank / stride % host->dims[d].size * stride;
        }
        stride *= host->dims[d].size;
    }
    return first;
}

static const struct host_class *class_of(const struct host *host, uint32_t param)
{
    return &host->classes[host->unit_classes[host->params[param].unit]];
}

uint32_t host_holder(const struct host *host, uint32_t param, uint32_t rank)
{
    return first_rank(host, class_of(host, param)->over, rank);
}

uint32_t host_reducer(const struct host *host, uint32_t param, uint32_t rank)
{
    return first_rank(host, class_of(host, param)->reduced, rank);
}
