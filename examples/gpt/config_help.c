/* SPDX-License-Identifier: Apache-2.0 */
/* The help about the keys, with the plugin's defaults as the plugin itself describes them. */
#include <string.h>
#include <yaml.h>

#include "config.h"

/* The value of a key of a mapping; NULL if it is none, or has no such key. */
static yaml_node_t *member_find(yaml_document_t *document, yaml_node_t *mapping, const char *key)
{
    if (mapping == NULL || mapping->type != YAML_MAPPING_NODE) {
        return NULL;
    }
    for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name = yaml_document_get_node(document, pair->key);

        if (name->type == YAML_SCALAR_NODE &&
            strcmp((const char *)name->data.scalar.value, key) == 0) {
            return yaml_document_get_node(document, pair->value);
        }
    }
    return NULL;
}

/* The text of such a value, or NULL. */
static const char *text_find(yaml_document_t *document, yaml_node_t *mapping, const char *key)
{
    const yaml_node_t *node = member_find(document, mapping, key);

    return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
                                                          : NULL;
}

/* The default that a description gives for a setting, a value or a rule in words. */
static const char *default_find(yaml_document_t *document, const char *key)
{
    yaml_node_t *root = yaml_document_get_root_node(document);
    yaml_node_t *settings = member_find(document, root, "settings");

    if (settings == NULL || settings->type != YAML_SEQUENCE_NODE) {
        return "the plugin's";
    }
    for (yaml_node_item_t *item = settings->data.sequence.items.start;
         item < settings->data.sequence.items.top; item++) {
        yaml_node_t *setting = yaml_document_get_node(document, *item);
        const char *name = text_find(document, setting, "key");

        if (name != NULL && strcmp(name, key) == 0) {
            const char *value = text_find(document, setting, "default");
            const char *rule = text_find(document, setting, "default_rule");

            return value != NULL ? value : rule != NULL ? rule : "none";
        }
    }
    return "unknown to the plugin";
}

static void key_print(FILE *out, const struct config_key *key, yaml_document_t *document)
{
    const int is_plugins = key->type == CONFIG_JOB || key->type == CONFIG_PLAN;
    const char *value = is_plugins                  ? default_find(document, key->name)
                        : key->default_text != NULL ? key->default_text
                                                    : "derived";

    fprintf(out, "  %-26s %s", key->name, key->help);
    if (key->type == CONFIG_CHOICE) {
        fprintf(out, ": %s", key->choices);
    } else if (key->type == CONFIG_INTEGER || key->type == CONFIG_NUMBER) {
        fprintf(out, "; %.17g to %.17g", key->least, key->most);
    }
    fprintf(out, " [%s]\n", value[0] == '\0' ? "empty" : value);
}

/* JSON is YAML, so the parser of the configuration reads the description, too. */
void config_help(FILE *out, const char *description)
{
    const char *text = description == NULL ? "" : description;
    yaml_document_t document;
    yaml_parser_t parser;

    if (!yaml_parser_initialize(&parser)) {
        return;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    if (yaml_parser_load(&parser, &document)) {
        for (size_t i = 0; config_keys[i].name != NULL; i++) {
            key_print(out, &config_keys[i], &document);
        }
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
}
