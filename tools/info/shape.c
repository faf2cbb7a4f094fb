/* SPDX-License-Identifier: Apache-2.0 */
/* The members of describe(), as a table: in which list, of which type, whether they must be. */
#include "shape.h"

#include <stdio.h>
#include <string.h>

static const struct member {
    const char *list; /* NULL = the description itself, else each object of that list */
    const char *name;
    json_type type;
    bool is_needed;
} members[] = {
    {NULL, "plugin_name", JSON_STRING, true},
    {NULL, "plugin_version", JSON_STRING, true},
    {NULL, "abi_major", JSON_INTEGER, true},
    {NULL, "abi_minor", JSON_INTEGER, true},
    {NULL, "strategies", JSON_ARRAY, true},
    {NULL, "transports", JSON_ARRAY, true},
    {NULL, "extensions", JSON_ARRAY, true},
    {NULL, "settings", JSON_ARRAY, true},
    {NULL, "cpu_paths", JSON_ARRAY, false},
    {"strategies", "name", JSON_STRING, true},
    {"strategies", "aliases", JSON_ARRAY, false},
    {"strategies", "parameters_sharded_over", JSON_STRING, false},
    {"strategies", "gradients_sharded_over", JSON_STRING, false},
    {"strategies", "optimizer_sharded_over", JSON_STRING, false},
    {"transports", "name", JSON_STRING, true},
    {"transports", "usable", JSON_TRUE, true}, /* or false */
    {"transports", "reason", JSON_STRING, false},
    {"transports", "libraries", JSON_ARRAY, false},
    {"cpu_paths", "name", JSON_STRING, true},
    {"cpu_paths", "usable", JSON_TRUE, true},
    {"cpu_paths", "reason", JSON_STRING, false},
    {"settings", "key", JSON_STRING, true},
    {"settings", "homes", JSON_ARRAY, true},
    {"settings", "type", JSON_STRING, true},
    {"settings", "choices", JSON_ARRAY, false},
    {"settings", "min", JSON_INTEGER, false},
    {"settings", "max", JSON_INTEGER, false},
    {"settings", "default", JSON_STRING, false},
    {"settings", "default_rule", JSON_STRING, false},
    {"settings", "meaning", JSON_STRING, true},
};

static const char *type_name(json_type type)
{
    switch (type) {
    case JSON_STRING:
        return "text";
    case JSON_INTEGER:
        return "whole number";
    case JSON_ARRAY:
        return "list";
    default:
        return "true or false";
    }
}

/* What is wrong with a member, "" if nothing is. */
static bool member_check(const json_t *object, const struct member *member, char *ret_what,
                         size_t max_bytes)
{
    const json_t *value = json_object_get(object, member->name);
    bool is_boolean = value != NULL && json_is_boolean(value);

    if (value == NULL && !member->is_needed) {
        return true;
    }
    if (value == NULL) {
        snprintf(ret_what, max_bytes, "has no \"%s\"", member->name);
        return false;
    }
    if (member->type == JSON_TRUE ? is_boolean : json_typeof(value) == member->type) {
        return true;
    }
    snprintf(ret_what, max_bytes, "has a \"%s\" that is no %s", member->name,
             type_name(member->type));
    return false;
}

static bool list_check(const json_t *list, const struct member *member, char *ret_why,
                       size_t max_bytes)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        char what[96] = "is no object";

        if (!json_is_object(object) || !member_check(object, member, what, sizeof(what))) {
            snprintf(ret_why, max_bytes, "%s[%zu] %s", member->list, i, what);
            return false;
        }
    }
    return true;
}

bool shape_check(const json_t *description, char *ret_why, size_t max_bytes)
{
    if (!json_is_object(description)) {
        snprintf(ret_why, max_bytes, "is no object");
        return false;
    }
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const struct member *member = &members[i];

        if (member->list == NULL ? !member_check(description, member, ret_why, max_bytes)
                                 : !list_check(json_object_get(description, member->list), member,
                                               ret_why, max_bytes)) {
            return false;
        }
    }
    return true;
}
