/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of any length: a stream into memory. */
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool text_open(struct text *text)
{
    memset(text, 0, sizeof(*text));
    text->file = open_memstream(&text->chars, &text->n_bytes);
    return text->file != NULL;
}

void text_quote(FILE *file, const char *string)
{
    fputc('"', file);
    for (const char *c = string; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if ((unsigned char)*c < 0x20) {
            fprintf(file, "\\u%04x", (unsigned)*c);
        } else {
            fputc(*c, file);
        }
    }
    fputc('"', file);
}

/* True if all that was written is in text->chars. */
static bool text_end(struct text *text)
{
    bool is_whole = text->file != NULL && ferror(text->file) == 0;

    if (text->file != NULL && fclose(text->file) != 0) {
        is_whole = false;
    }
    return is_whole;
}

int32_t text_close(const struct call *call, struct text *text, char *ret_text, uint64_t max_bytes,
                   uint64_t *ret_bytes)
{
    int32_t status = HSDP_OK;

    if (!text_end(text)) {
        free(text->chars);
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory for the text", call->name);
    }
    *ret_bytes = text->n_bytes + 1;
    if (max_bytes < *ret_bytes) {
        status = error_raise(call, HSDP_ERR_BUFFER_TOO_SMALL,
                             "%s: %" PRIu64 " bytes are needed, the buffer has %" PRIu64,
                             call->name, *ret_bytes, max_bytes);
    } else {
        memcpy(ret_text, text->chars, text->n_bytes + 1);
    }
    free(text->chars);
    return status;
}

char *text_take(struct text *text)
{
    if (text_end(text)) {
        return text->chars;
    }
    free(text->chars);
    return NULL;
}
