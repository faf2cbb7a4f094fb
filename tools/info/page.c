/* SPDX-License-Identifier: Apache-2.0 */
/* Text on a terminal: lines are broken at spaces, and columns share the width. */
#include "page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GAP       2  /* spaces between columns */
#define LEAST     10 /* of a column that is narrowed */
#define MIN_WIDTH 60
#define MAX_WIDTH 120

void page_init(struct page *ret)
{
    const char *columns = getenv("COLUMNS");
    bool is_terminal = isatty(STDOUT_FILENO) == 1;
    struct winsize size;
    int width = columns == NULL ? 0 : atoi(columns);

    if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        width = size.ws_col;
    }
    width = width <= 0 ? 80 : width;
    ret->width = width < MIN_WIDTH ? MIN_WIDTH : width > MAX_WIDTH ? MAX_WIDTH : width;
    ret->is_bold = is_terminal && getenv("NO_COLOR") == NULL;
}

static bool byte_continues(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Characters of n bytes of UTF-8. */
static int text_width(const char *text, size_t n_bytes)
{
    int width = 0;

    for (size_t i = 0; i < n_bytes; i++) {
        width += byte_continues(text[i]) ? 0 : 1;
    }
    return width;
}

/* Prints n bytes; what a terminal would take for a command becomes '?'. */
static void text_print(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool is_c1 = byte == 0xc2 && i + 1 < n_bytes && (unsigned char)text[i + 1] < 0xa0;

        if (is_c1) {
            i++;
        }
        putchar(is_c1 || byte < ' ' || byte == 0x7f ? '?' : byte);
    }
}

/* Takes the next line from a text: as many words as fit, at least one character. */
static size_t line_take(const char *text, int width, size_t *ret_next)
{
    size_t n_bytes = strlen(text);
    size_t end = 0; /* behind the last word that fits */
    size_t at = 0;

    width = width < 1 ? 1 : width;
    while (at < n_bytes && (byte_continues(text[at]) || text_width(text, at) < width)) {
        at++;
        if (at == n_bytes || text[at] == ' ') {
            end = at;
        }
    }
    if (at < n_bytes && text[at] != ' ' && end == 0) {
        end = at; /* a word wider than the column is cut */
    }
    *ret_next = end + strspn(text + end, " ");
    return end;
}

void page_heading(const struct page *page, const char *text)
{
    printf("\n%s", page->is_bold ? "\033[1m" : "");
    text_print(text, strlen(text));
    printf("%s\n", page->is_bold ? "\033[0m" : "");
}

void page_paragraph(const struct page *page, int indent, int hang, const char *text)
{
    while (*text != '\0') {
        size_t next;
        size_t n_bytes = line_take(text, page->width - indent, &next);

        printf("%*s", indent, "");
        text_print(text, n_bytes);
        printf("\n");
        text += next;
        indent += hang;
        hang = 0;
    }
}

void page_line(int indent, const char *text)
{
    printf("%*s", indent, "");
    text_print(text, strlen(text));
    printf("\n");
}

static const char *cell_text(const json_t *row, int column)
{
    const char *text = json_string_value(json_array_get(row, (size_t)column));

    return text == NULL ? "" : text;
}

void columns_fit(const struct page *page, const json_t *rows, int indent, struct columns *ret)
{
    int total = indent - GAP;

    memset(ret, 0, sizeof(*ret));
    ret->indent = indent;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);

        for (int c = 0; c < (int)json_array_size(row) && c < PAGE_MAX_COLUMNS; c++) {
            int width = text_width(cell_text(row, c), strlen(cell_text(row, c)));

            ret->n = c + 1 > ret->n ? c + 1 : ret->n;
            ret->widths[c] = width > ret->widths[c] ? width : ret->widths[c];
        }
    }
    for (int c = 0; c < ret->n; c++) {
        total += ret->widths[c] + GAP;
    }
    while (total > page->width) {
        int widest = 0;

        for (int c = 1; c < ret->n; c++) {
            widest = ret->widths[c] >= ret->widths[widest] ? c : widest;
        }
        if (ret->widths[widest] <= LEAST) {
            return;
        }
        ret->widths[widest]--;
        total--;
    }
}

void columns_print(const struct columns *columns, const json_t *row)
{
    const char *rests[PAGE_MAX_COLUMNS];
    bool has_more = true;

    for (int c = 0; c < columns->n; c++) {
        rests[c] = cell_text(row, c);
    }
    while (has_more) {
        int pending =
            columns->indent; /* spaces before the next text, so that no line ends in them */

        has_more = false;
        for (int c = 0; c < columns->n; c++) {
            size_t next;
            size_t n_bytes = line_take(rests[c], columns->widths[c], &next);

            if (n_bytes > 0) {
                printf("%*s", pending, "");
                text_print(rests[c], n_bytes);
                pending = 0;
            }
            pending += columns->widths[c] - text_width(rests[c], n_bytes) + GAP;
            rests[c] += next;
            has_more = has_more || *rests[c] != '\0';
        }
        printf("\n");
    }
}

void table_print(const struct page *page, const json_t *rows, int indent)
{
    struct columns columns;

    columns_fit(page, rows, indent, &columns);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        columns_print(&columns, json_array_get(rows, i));
    }
}
