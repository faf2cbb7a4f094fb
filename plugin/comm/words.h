/* SPDX-License-Identifier: Apache-2.0 */
/* Short texts in shared memory, word by word, so that they are read while they are written. */
#ifndef COMM_WORDS_H
#define COMM_WORDS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WORDS_MAX 8u

/*
 * Each word is stored with release and loaded with acquire: between two looks at a version they
 * cannot be taken for newer or older than it says. That is free on x86 and cheap elsewhere.
 */
static inline void word_store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static inline uint64_t word_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/** Writes a text, cut to n_words * 8 - 1 bytes; NULL is "". What lies behind its end stays. */
static inline void words_write(_Atomic uint64_t *words, size_t n_words, const char *text)
{
    uint64_t copy[WORDS_MAX];
    size_t n_bytes = text == NULL ? 0 : strnlen(text, n_words * sizeof(copy[0]) - 1);
    size_t n_used = n_bytes / sizeof(copy[0]) + 1;

    copy[n_used - 1] = 0;
    if (n_bytes > 0) {
        memcpy(copy, text, n_bytes);
    }
    for (size_t i = 0; i < n_used; i++) {
        word_store(&words[i], copy[i]);
    }
}

/** Reads one into n_words * 8 bytes; always ended by a NUL, and no character is cut in two. */
void words_read(const _Atomic uint64_t *words, size_t n_words, char *ret_text);

#endif /* COMM_WORDS_H */
