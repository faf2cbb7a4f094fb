/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, and JSON written into it. Running out of memory is remembered until the end. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hsdp/abi.h"

struct text {
    char *chars;      /* NUL-terminated once anything was added; owned */
    uint64_t n_bytes; /* without the NUL */
    uint64_t capacity_bytes;
    bool is_failed;   /* memory ran out: what follows is dropped */
    bool wants_comma; /* JSON: a value precedes at this level */
};

#define TEXT_INIT                                                                                  \
    {                                                                                              \
        0                                                                                          \
    }

/** As vsnprintf, but numbers have a point in them, whatever locale the host has set. */
int text_format(char *ret_chars, size_t max_bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

void text_fini(struct text *text);
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define TEXT_HASH_BASIS UINT64_C(0xcbf29ce484222325)

/** Goes on with a hash (FNV-1a) by the bytes of a text, without its NUL. */
uint64_t text_hash(uint64_t hash, const char *text);

/* JSON: commas are placed by these calls; key is NULL inside arrays and at the top. */
void json_open(struct text *text, const char *key, char bracket); /* '{' or '[' */
void json_close(struct text *text, char bracket);                 /* '}' or ']' */
void json_string(struct text *text, const char *key, const char *value);
void json_uint(struct text *text, const char *key, uint64_t value);
void json_int(struct text *text, const char *key, int64_t value);
void json_bool(struct text *text, const char *key, bool value);

/**
 * Hands a text to a caller: copies it with its NUL if it fits, and sets *ret_bytes to the size
 * needed.
 *
 * Errors: HSDP_ERR_BUFFER_TOO_SMALL with *ret_bytes set; HSDP_ERR_NO_MEMORY if the text failed.
 */
int32_t text_export(const struct text *text, char *ret_text, uint64_t max_bytes,
                    uint64_t *ret_bytes, struct hsdp_error *reterr);

#endif /* BASE_TEXT_H */
