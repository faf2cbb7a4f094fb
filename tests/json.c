/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a text is JSON: the grammar of RFC 8259, without decoding. */
#include "json.h"

#include <stdbool.h>
#include <string.h>

/* Every reader moves *at behind what it has read; on false *at is where the fault is. */
static bool value_read(const char **at, int depth);

static void space_skip(const char **at)
{
    *at += strspn(*at, " \t\r\n");
}

static bool literal_read(const char **at, const char *literal)
{
    size_t n = strlen(literal);

    if (strncmp(*at, literal, n) != 0) {
        return false;
    }
    *at += n;
    return true;
}

static bool escape_read(const char **at)
{
    if (**at == 'u') {
        (*at)++;
        for (int i = 0; i < 4; i++, (*at)++) {
            if (**at == '\0' || strchr("0123456789abcdefABCDEF", **at) == NULL) {
                return false;
            }
        }
        return true;
    }
    if (**at == '\0' || strchr("\"\\/bfnrt", **at) == NULL) {
        return false;
    }
    (*at)++;
    return true;
}

static bool string_read(const char **at)
{
    if (!literal_read(at, "\"")) {
        return false;
    }
    while (**at != '"') {
        if ((unsigned char)**at < 0x20) {
            return false; /* the end, or a raw control character */
        }
        if (*(*at)++ == '\\' && !escape_read(at)) {
            return false;
        }
    }
    (*at)++;
    return true;
}

static bool digits_read(const char **at)
{
    size_t n = strspn(*at, "0123456789");

    *at += n;
    return n > 0;
}

static bool number_read(const char **at)
{
    literal_read(at, "-");
    if (!literal_read(at, "0") && !digits_read(at)) {
        return false;
    }
    if (literal_read(at, ".") && !digits_read(at)) {
        return false;
    }
    if (literal_read(at, "e") || literal_read(at, "E")) {
        if (!literal_read(at, "+")) {
            literal_read(at, "-");
        }
        return digits_read(at);
    }
    return true;
}

static bool member_read(const char **at, int depth, char close)
{
    space_skip(at);
    if (close == '}') {
        if (!string_read(at)) {
            return false;
        }
        space_skip(at);
        if (!literal_read(at, ":")) {
            return false;
        }
    }
    return value_read(at, depth + 1);
}

/* Behind the opening bracket: members up to `close`. */
static bool members_read(const char **at, int depth, char close)
{
    space_skip(at);
    if (**at == close) {
        (*at)++;
        return true;
    }
    do {
        if (!member_read(at, depth, close)) {
            return false;
        }
        space_skip(at);
    } while (literal_read(at, ","));
    if (**at != close) {
        return false;
    }
    (*at)++;
    return true;
}

static bool value_read(const char **at, int depth)
{
    space_skip(at);
    if (depth > 64) {
        return false;
    }
    if (literal_read(at, "{")) {
        return members_read(at, depth, '}');
    }
    if (literal_read(at, "[")) {
        return members_read(at, depth, ']');
    }
    if (**at == '"') {
        return string_read(at);
    }
    if (literal_read(at, "true") || literal_read(at, "false") || literal_read(at, "null")) {
        return true;
    }
    return number_read(at);
}

const char *json_fault(const char *text)
{
    const char *at = text;

    if (!value_read(&at, 0)) {
        return at;
    }
    space_skip(&at);
    return *at == '\0' ? NULL : at;
}
