/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: the one table of keys, reading them from host and environment, reading them back. */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include <stdint.h>

#include "hsdp/abi.h"

/* Where a key may be given; a key of both plan and class is the plan's default for its classes. */
#define SETTING_JOB   1u
#define SETTING_PLAN  2u
#define SETTING_CLASS 4u

enum setting_type {
    SETTING_CHOICE,   /* one of `choices` */
    SETTING_INTEGER,  /* min..max, decimal digits only */
    SETTING_SELECTOR, /* checked by the mesh that it is used on */
    SETTING_PATH,
    SETTING_LIST, /* comma-separated, each one of `choices` (a choice "step:N" takes a number) */
};

struct setting_def {
    const char *key;
    uint32_t homes; /* SETTING_* */
    enum setting_type type;
    const char *choices; /* "a b c" */
    int64_t min;
    int64_t max;
    const char *initial;       /* value when nobody gives one; NULL = derived, or none */
    const char *initial_words; /* the default, in words, where it is derived */
    const char *meaning;
};

/* The table, in the order of the documentation. */
#define SETTINGS_COUNT 24
extern const struct setting_def setting_defs[SETTINGS_COUNT];

/* One set of values. `source` is a literal: "host", "environment", "default", "plan", "derived …".
 */
struct settings {
    char *values[SETTINGS_COUNT]; /* NULL = not set; owned */
    const char *sources[SETTINGS_COUNT];
    uint32_t home; /* one SETTING_* */
};

/**
 * Reads what the host gave (NULL = nothing), then the environment (not for classes: the plan has
 * read it), then the defaults; for a class, `parent` is the plan's settings and fills the rest.
 * *ret is initialised here; on failure it holds nothing.
 *
 * Errors: HSDP_ERR_INVALID for an unknown key, one of another home, one given twice, a bad value.
 */
int32_t settings_init(struct settings *ret, uint32_t home, const struct hsdp_settings *given,
                      const struct settings *parent, struct hsdp_error *reterr);
void settings_fini(struct settings *settings);

/** Index of a key that exists (a literal of ours); asserts otherwise. */
uint32_t setting_index(const char *key);

/** The text of a key, NULL when not set. */
const char *settings_text(const struct settings *settings, const char *key);
/** The number of an integer key that is set. */
int64_t settings_integer(const struct settings *settings, const char *key);

/** Replaces a value after checking it; `source` is a literal. */
int32_t settings_put(struct settings *settings, const char *key, const char *value,
                     const char *source, struct hsdp_error *reterr);
int32_t settings_put_integer(struct settings *settings, const char *key, int64_t value,
                             const char *source, struct hsdp_error *reterr);

/** Reads back for the host: HSDP_ERR_INVALID lists the known keys of this home. */
int32_t settings_get(const struct settings *settings, const char *key, const char **ret_value,
                     const char **ret_source, struct hsdp_error *reterr);

/**
 * Parses a whole decimal integer, min..max, no sign but '-', no spaces, nothing behind it.
 *
 * Errors: HSDP_ERR_INVALID "KEY: \"TEXT\" is not a whole number from MIN to MAX".
 */
int32_t integer_parse(const char *key, const char *text, int64_t min, int64_t max,
                      int64_t *ret_value, struct hsdp_error *reterr);

#endif /* BASE_SETTINGS_H */
