/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: the table of keys, and the values of one job, plan or class. */
#ifndef REFERENCE_SETTINGS_H
#define REFERENCE_SETTINGS_H

#include "error.h"

/* Where a key may be given. */
#define HOME_JOB   1u
#define HOME_PLAN  2u
#define HOME_CLASS 4u

enum key_type {
    KEY_WORD,     /* one of `words` */
    KEY_LIST,     /* some of `words`, with commas; "step:" takes a number */
    KEY_NUMBER,   /* least to most */
    KEY_SELECTOR, /* checked by the mesh that it is used on */
    KEY_PATH,     /* any text but an empty one */
};

struct key {
    const char *name;
    uint32_t homes;
    enum key_type type;
    const char *words; /* "a b c" */
    int64_t least;
    int64_t most;
    const char *initial; /* the default; NULL where the next says it */
    const char *rule;    /* in words, where it depends on others; else NULL */
    const char *meaning;
};

#define N_KEYS 24
extern const struct key keys[N_KEYS];

/* The values of one home. */
struct settings {
    uint32_t home;
    char *values[N_KEYS];        /* NULL = not set */
    const char *sources[N_KEYS]; /* literals */
};

/**
 * Reads what the host has given; then, for a class, what its plan has, else the environment and the
 * defaults. On failure *ret holds nothing. given and plan may be NULL.
 */
int32_t settings_read(const struct call *call, uint32_t home, const struct hsdp_settings *given,
                      const struct settings *plan, struct settings *ret);
void settings_free(struct settings *settings);

/** The value of a key of the table, NULL when it is not set. */
const char *settings_text(const struct settings *settings, const char *key);
/** The number of one that is set; 0 when it is not. */
int64_t settings_number(const struct settings *settings, const char *key);

/** Sets a key of the table. `source` is a literal: "derived from the mesh". */
int32_t settings_put(const struct call *call, struct settings *settings, const char *key,
                     const char *value, const char *source);
int32_t settings_put_number(const struct call *call, struct settings *settings, const char *key,
                            int64_t value, const char *source);

/** Reads back for the host; HSDP_ERR_INVALID lists the keys of this home. */
int32_t settings_tell(const struct call *call, const struct settings *settings, const char *key,
                      const char **ret_value, const char **ret_source);

/** Reads a whole number: digits with or without '-' before them, and nothing else. */
struct range {
    const char *name; /* for the sentence of an error: "RANK" */
    int64_t least;
    int64_t most;
};
int32_t number_read(const struct call *call, const struct range *range, const char *text,
                    int64_t *ret_number);

#endif /* REFERENCE_SETTINGS_H */
