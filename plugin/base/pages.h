/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: memory of one's own, and touching memory before it is needed. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Zero-filled memory of this process alone, which takes up room once it is touched: in huge pages
 * where it is large and the system offers them. NULL: errno says why. Given back with munmap.
 */
void *pages_map(uint64_t n_bytes);

/**
 * Touches every page of a range, so that none is missing when it is used: a page at a time takes
 * longer, and where there is no memory for one ends the process with a signal. Is_written: as if
 * bytes were written, else read. The bytes stay as they are.
 *
 * 0, or an errno: the range is not there as a whole.
 */
int pages_populate(const void *base, uint64_t n_bytes, bool is_written);

#endif /* BASE_PAGES_H */
