/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: what is drawn, all from one number. */
#ifndef CONFORM_RANDOM_CASE_H
#define CONFORM_RANDOM_CASE_H

#include "host.h"

#define RANDOM_MAX_RANKS   8u
#define RANDOM_MAX_BATCHES 4u
#define RANDOM_MAX_STEPS   3u
#define RANDOM_TEXT_BYTES  2048u
#define RANDOM_RUNS        2 /* of a case, under other strategies */

/* What a step does beside descending. */
enum random_step {
    RANDOM_STEP_PLAIN,
    RANDOM_STEP_DISCARD,
    RANDOM_STEP_NONFINITE, /* one element of one rank is infinite or NaN; discarded */
    RANDOM_STEP_COPY,      /* then every parameter is exported and imported again, from one rank */
    RANDOM_STEP_SYNC,      /* then all replicas but the first are spoilt, and synchronised */
};

/* What is drawn from. */
struct random_limits {
    uint32_t max_ranks; /* at most RANDOM_MAX_RANKS */
    int strategy;       /* of the first run: one of host_strategies; -1 = any */
    bool has_checks;    /* settings that say how it is checked, and by which kernels computed */
};

/*
 * A case: texts for host_open, and how the run goes. Both runs differ in strategies, and in the
 * split of dp where bits do not depend on it.
 */
struct random_case {
    uint64_t seed;
    uint64_t n_drawn; /* numbers so far */
    struct random_limits limits;
    char dims[96];
    uint32_t n_stages, stage_stride; /* ranks are rank / stride % n */
    char settings[RANDOM_RUNS][384];
    char units[RANDOM_RUNS][1280]; /* see random_case_units */
    uint32_t n_ranks;
    uint32_t n_batches; /* of a window; the last one has scope full */
    uint32_t n_steps;
    uint32_t n_slots;
    int32_t scopes[RANDOM_MAX_BATCHES];
    enum random_step steps[RANDOM_MAX_STEPS];
    uint32_t holders; /* stages, as a mask, that hold tied parameters; 0 = nothing is tied */
    bool is_tied[HOST_MAX_PARAMS]; /* over those stages */
    bool has_aliases;              /* names for parameters of other units */
    bool is_local;                 /* scope none is planned */
    bool is_exact;                 /* gradients of few bits, whose sums round nowhere */
    bool has_chunks;               /* some microbatches open two passes at once */
    bool has_absent;      /* ranks may leave units out of a pass; they may always skip them */
    bool has_late;        /* gradients by grad_add */
    bool has_weight;      /* every class sums, and ranks have token weights */
    bool is_plain_reduce; /* every class reduces over all that it is replicated over */
    bool promises_bits;   /* both runs have the same bits */
    double norm_p;
    double max_norm;
    double scale;
};

/** A number without pattern from a few others; the same on every rank that asks. */
uint64_t random_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/** Draws a case from a number. */
void random_case_draw(struct random_case *ret, uint64_t seed);
void random_case_draw_within(struct random_case *ret, uint64_t seed,
                             const struct random_limits *limits);

/** The stage of a rank: its number along pp. */
uint32_t random_stage(const struct random_case *random, uint32_t rank);
/** The rank on the first of the stages that hold a parameter, where this one holds it, too. */
uint32_t random_first_holder(const struct random_case *random, uint32_t param, uint32_t rank);

/**
 * Units as a rank plans them, into text. As drawn, '*' stands behind parameters that are tied over
 * stages, and '^' behind some that odd stages lay out in blocks, so that their slices are others.
 */
void random_case_units(const struct random_case *random, int run, uint32_t rank,
                       char ret_text[RANDOM_TEXT_BYTES]);

/** Writes what was drawn, in a few lines. */
void random_case_print(const struct random_case *random);

#endif /* CONFORM_RANDOM_CASE_H */
