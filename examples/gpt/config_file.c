/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the YAML file of the configuration, event by event, so that each fault has its line. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

/* One file being read. */
struct reader {
    yaml_parser_t parser;
    const char *path;
    struct config *config;
    struct fault *fault;
    char key[CONFIG_TEXT_BYTES]; /* the key whose value comes next; "" = a key comes next */
    size_t key_line;             /* from 1 */
    int depth;                   /* 0 outside of the mapping, 1 inside */
    size_t n_keys;
};

static int fault_at(struct reader *reader, const yaml_mark_t *mark, const char *what)
{
    return fault_set(reader->fault, FAULT_CONFIG, "%s:%zu: %s", reader->path, mark->line + 1, what);
}

/* The sentence about text that is not YAML. */
static int fault_syntax(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *problem = parser->problem == NULL ? "the text ends early" : parser->problem;

    if (parser->error == YAML_MEMORY_ERROR) {
        return fault_set(reader->fault, FAULT_RUN, "%s: no memory to read it", reader->path);
    }
    if (parser->error == YAML_READER_ERROR) {
        return fault_set(reader->fault, FAULT_CONFIG,
                         "%s: byte %zu: %s; the file must be YAML text in UTF-8", reader->path,
                         parser->problem_offset, problem);
    }
    return fault_set(reader->fault, FAULT_CONFIG,
                     "%s:%zu: not YAML: %s; lines of \"key: value\" are allowed", reader->path,
                     parser->problem_mark.line + 1, problem);
}

/* A scalar is a key, or the value of the key before it. */
static int scalar_take(struct reader *reader, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    char where[CONFIG_TEXT_BYTES];
    int status;

    if (strlen(text) != event->data.scalar.length) {
        return fault_at(reader, &event->start_mark, "a value holds a NUL byte");
    }
    if (reader->depth == 0) {
        return fault_at(reader, &event->start_mark,
                        "the file must hold lines of \"key: value\", this is a single value");
    }
    if (reader->key[0] == '\0') {
        if (text[0] == '\0' || strlen(text) >= sizeof(reader->key)) {
            return fault_at(reader, &event->start_mark, "a key is empty or too long");
        }
        strcpy(reader->key, text);
        reader->key_line = event->start_mark.line + 1;
        return 0;
    }
    snprintf(where, sizeof(where), "%.900s:%zu", reader->path, reader->key_line);
    status = config_set(reader->config, reader->key, text, where, 0, reader->fault);
    reader->key[0] = '\0';
    reader->n_keys++;
    return status;
}

static int event_take(struct reader *reader, const yaml_event_t *event)
{
    char what[2 * CONFIG_TEXT_BYTES];

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return scalar_take(reader, event);
    case YAML_MAPPING_START_EVENT:
        if (reader->depth == 0 && reader->n_keys == 0) {
            reader->depth = 1;
            return 0;
        }
        break;
    case YAML_MAPPING_END_EVENT:
        reader->depth = 0;
        return 0;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_ALIAS_EVENT:
        break;
    default:
        return 0;
    }
    if (reader->key[0] == '\0') {
        return fault_at(reader, &event->start_mark,
                        "one mapping of keys to plain values is allowed, no list, no second one");
    }
    snprintf(what, sizeof(what),
             "%.64s: a list, a mapping or an alias is not allowed; one plain value is",
             reader->key);
    return fault_at(reader, &event->start_mark, what);
}

static int events_read(struct reader *reader)
{
    for (;;) {
        yaml_event_t event;

        if (!yaml_parser_parse(&reader->parser, &event)) {
            return fault_syntax(reader);
        }
        const int is_end = event.type == YAML_STREAM_END_EVENT;
        const int status = event_take(reader, &event);

        yaml_event_delete(&event);
        if (status != 0 || is_end) {
            return status;
        }
    }
}

int config_load(struct config *config, const char *path, struct fault *ret_fault)
{
    struct reader reader = {.path = path, .config = config, .fault = ret_fault};
    FILE *file = fopen(path, "rb");
    int status;

    if (file == NULL) {
        return fault_set(ret_fault, FAULT_PLACE, "%s: cannot be read: %s", path, strerror(errno));
    }
    if (!yaml_parser_initialize(&reader.parser)) {
        fclose(file);
        return fault_set(ret_fault, FAULT_RUN, "%s: no memory to read it", path);
    }
    yaml_parser_set_input_file(&reader.parser, file);
    status = events_read(&reader);
    if (ferror(file)) {
        status = fault_set(ret_fault, FAULT_PLACE, "%s: cannot be read: %s", path, strerror(errno));
    }
    if (status == 0 && reader.n_keys == 0) {
        status = fault_set(ret_fault, FAULT_CONFIG,
                           "%s: the file holds no key; lines of \"key: value\" are wanted", path);
    }
    yaml_parser_delete(&reader.parser);
    fclose(file);
    return status;
}
