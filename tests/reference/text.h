/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of any length, written with fprintf: reports in JSON, and lines that ranks compare. */
#ifndef REFERENCE_TEXT_H
#define REFERENCE_TEXT_H

#include <stdio.h>

#include "error.h"

/*
 *     struct text text;
 *
 *     if (!text_open(&text)) ... no memory
 *     fprintf(text.file, "{\"ranks\":%u", n_ranks);
 *     return text_close(call, &text, ret_text, max_bytes, ret_bytes);
 */
struct text {
    FILE *file;
    char *chars;
    size_t n_bytes;
};

bool text_open(struct text *text);

/** Writes a string in quotes, as JSON wants it. */
void text_quote(FILE *file, const char *string);

/**
 * Ends the text and hands it to the host: all of it, or HSDP_ERR_BUFFER_TOO_SMALL. *ret_bytes is
 * the size needed in both cases. HSDP_ERR_NO_MEMORY if there was too little to write it, or to
 * open it.
 */
int32_t text_close(const struct call *call, struct text *text, char *ret_text, uint64_t max_bytes,
                   uint64_t *ret_bytes);

/** Ends the text and gives it to the caller, who frees it; NULL if there was too little memory. */
char *text_take(struct text *text);

#endif /* REFERENCE_TEXT_H */
