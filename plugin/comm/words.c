/* SPDX-License-Identifier: Apache-2.0 */
/* Words: reading short texts that others write meanwhile. */
#include "comm/words.h"

/* A name that was cut may end in the middle of a character: that one goes. */
static void character_trim(char *text)
{
    size_t n_bytes = strlen(text);
    size_t first = n_bytes;
    size_t length;

    while (first > 0 && n_bytes - first < 3 && ((unsigned char)text[first - 1] & 0xc0u) == 0x80u) {
        first--;
    }
    if (first == 0 || (unsigned char)text[first - 1] < 0xc0u) {
        return;
    }
    length = (unsigned char)text[first - 1] >= 0xf0u ? 4 : 2;
    length += (unsigned char)text[first - 1] >= 0xe0u && length == 2 ? 1 : 0;
    if (n_bytes - (first - 1) < length) {
        text[first - 1] = '\0';
    }
}

void words_read(const _Atomic uint64_t *words, size_t n_words, char *ret_text)
{
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word = word_load(&words[i]);

        memcpy(ret_text + i * sizeof(word), &word, sizeof(word));
    }
    ret_text[n_words * sizeof(uint64_t) - 1] = '\0';
    character_trim(ret_text);
}
