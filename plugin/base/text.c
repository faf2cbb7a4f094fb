/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, and JSON written into it. */
#include "base/text.h"

#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

uint64_t text_hash(uint64_t hash, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Of this thread and for the moment. Where there is no memory for it, the host's locale does. */
int text_format(char *ret_chars, size_t max_bytes, const char *format, va_list args)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = plain == (locale_t)0 ? (locale_t)0 : uselocale(plain);
    int n_bytes = vsnprintf(ret_chars, max_bytes, format, args);

    if (plain != (locale_t)0) {
        uselocale(before);
        freelocale(plain);
    }
    return n_bytes;
}

void text_fini(struct text *text)
{
    free(text->chars);
    memset(text, 0, sizeof(*text));
}

static bool text_reserve(struct text *text, uint64_t n_bytes)
{
    uint64_t wanted = text->n_bytes + n_bytes + 1;
    uint64_t capacity = text->capacity_bytes == 0 ? 256 : text->capacity_bytes;
    char *chars;

    if (text->is_failed) {
        return false;
    }
    while (capacity < wanted) {
        capacity *= 2;
    }
    if (capacity == text->capacity_bytes) {
        return true;
    }
    chars = realloc(text->chars, capacity);
    if (chars == NULL) {
        text->is_failed = true;
        return false;
    }
    text->chars = chars;
    text->capacity_bytes = capacity;
    return true;
}

void text_add(struct text *text, const char *format, ...)
{
    uint64_t room = text->capacity_bytes - text->n_bytes;
    va_list args;
    int n_bytes;

    va_start(args, format);
    n_bytes = text_format(room == 0 ? NULL : text->chars + text->n_bytes, room, format, args);
    va_end(args);
    if (n_bytes < 0 || !text_reserve(text, (uint64_t)n_bytes)) {
        text->is_failed = true;
        return;
    }
    if ((uint64_t)n_bytes >= room) { /* it was cut short */
        va_start(args, format);
        text_format(text->chars + text->n_bytes, (size_t)n_bytes + 1, format, args);
        va_end(args);
    }
    text->n_bytes += (uint64_t)n_bytes;
}

/* As they are: most of a large report is keys, commas and numbers. */
static void bytes_add(struct text *text, const char *bytes, size_t n_bytes)
{
    if (!text_reserve(text, n_bytes)) {
        return;
    }
    memcpy(text->chars + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    text->chars[text->n_bytes] = '\0';
}

/* How many characters from here on stand for themselves. */
static size_t plain_bytes(const char *text)
{
    size_t n = 0;

    while ((unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\') {
        n++;
    }
    return n;
}

static void string_add(struct text *text, const char *value)
{
    bytes_add(text, "\"", 1);
    for (const char *c = value; *c != '\0'; c++) {
        size_t n_plain = plain_bytes(c);

        if (n_plain > 0) {
            bytes_add(text, c, n_plain);
            c += n_plain - 1;
        } else if (*c == '"' || *c == '\\') {
            text_add(text, "\\%c", *c);
        } else {
            text_add(text, "\\u%04x", (unsigned)*c);
        }
    }
    bytes_add(text, "\"", 1);
}

/* Everything before a value: the comma after its predecessor, and the key. */
static void value_begin(struct text *text, const char *key)
{
    if (text->wants_comma) {
        bytes_add(text, ",", 1);
    }
    if (key != NULL) {
        string_add(text, key);
        bytes_add(text, ":", 1);
    }
    text->wants_comma = true;
}

void json_open(struct text *text, const char *key, char bracket)
{
    value_begin(text, key);
    bytes_add(text, &bracket, 1);
    text->wants_comma = false;
}

void json_close(struct text *text, char bracket)
{
    bytes_add(text, &bracket, 1);
    text->wants_comma = true;
}

void json_string(struct text *text, const char *key, const char *value)
{
    value_begin(text, key);
    string_add(text, value);
}

void json_uint(struct text *text, const char *key, uint64_t value)
{
    char digits[20]; /* of 2^64 - 1 */
    size_t first = sizeof(digits);

    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    value_begin(text, key);
    bytes_add(text, digits + first, sizeof(digits) - first);
}

void json_int(struct text *text, const char *key, int64_t value)
{
    value_begin(text, key);
    text_add(text, "%" PRId64, value);
}

void json_bool(struct text *text, const char *key, bool value)
{
    value_begin(text, key);
    bytes_add(text, value ? "true" : "false", value ? 4 : 5);
}

int32_t text_export(const struct text *text, char *ret_text, uint64_t max_bytes,
                    uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    if (text->is_failed) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "text: no memory for a report of over %" PRIu64 " bytes", text->n_bytes);
    }
    *ret_bytes = text->n_bytes + 1;
    if (max_bytes < *ret_bytes) {
        return error_set(reterr, HSDP_ERR_BUFFER_TOO_SMALL,
                         "text: %" PRIu64 " bytes are needed, the buffer has %" PRIu64, *ret_bytes,
                         max_bytes);
    }
    if (text->n_bytes == 0) {
        ret_text[0] = '\0';
        return HSDP_OK;
    }
    memcpy(ret_text, text->chars, text->n_bytes + 1);
    return HSDP_OK;
}
