/* SPDX-License-Identifier: Apache-2.0 */
/* Text on a terminal: paragraphs and tables that fit its width, without control characters. */
#ifndef INFO_PAGE_H
#define INFO_PAGE_H

#include <jansson.h>
#include <stdbool.h>

#define PAGE_MAX_COLUMNS 6

/** Where text goes, and how wide it may become. */
struct page {
    int width;
    bool is_bold; /* headings are bold: a terminal, and NO_COLOR is not set */
};

/** The width of the terminal, or COLUMNS, or 80; from 60 to 120. */
void page_init(struct page *ret);

/** A heading, with an empty line before it. */
void page_heading(const struct page *page, const char *text);

/** A paragraph of words, each line `indent` spaces in; those after the first `hang` more. */
void page_paragraph(const struct page *page, int indent, int hang, const char *text);

/** A line that is never broken, however long: a path, to be copied. */
void page_line(int indent, const char *text);

/** How wide the columns of a table become. */
struct columns {
    int n;
    int indent;
    int widths[PAGE_MAX_COLUMNS];
};

/** Finds the widths for `rows`, an array of arrays of texts; too wide columns will wrap. */
void columns_fit(const struct page *page, const json_t *rows, int indent, struct columns *ret);

/** One row; cells that do not fit take several lines. */
void columns_print(const struct columns *columns, const json_t *row);

/** All rows. */
void table_print(const struct page *page, const json_t *rows, int indent);

#endif /* INFO_PAGE_H */
