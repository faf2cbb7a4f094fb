/* SPDX-License-Identifier: Apache-2.0 */
/* What a check of the conformance kit is, and what it may use. */
#ifndef CONFORM_CONFORM_H
#define CONFORM_CONFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

/*
 * A check is one promise of the ABI. It runs as one process for each of its ranks, in the
 * environment that a launcher gives them, under a limit of time; so a plugin that crashes or hangs
 * fails the check, and not the kit. What a rank writes to stdout or stderr fails the check, too:
 * a plugin is silent. Since no other check shares the process, a chapter may keep in a static
 * variable what its callbacks need.
 *
 * A rank passes by returning. It fails by conform_fail(), whose sentence says what was promised and
 * what was found; where several do, the first in time is reported.
 */

#define CONFORM_MAX_RANKS    16u
#define CONFORM_LIMIT_MS     20000u /* of a check, unless it says otherwise */
#define CONFORM_SHARED_BYTES 65536u

/* What a rank of a check knows. */
struct conform {
    const char *plugin_path;    /* absolute */
    const struct hsdp_api *api; /* NULL where the check loads the plugin by itself */
    struct hsdp_error err;      /* to be handed to the calls of the two macros below, which prepare
                                   it, and look at what became of it */
    void *shared;               /* zeroed; all ranks of the check see it */
    uint64_t seed;              /* of everything random: the kit's --seed */
    uint32_t rank;
    uint32_t n_ranks;
    void *slot; /* the runner's own */

    /* Against what a call is held that answers HSDP_ERR_UNSUPPORTED; see conform_needs_plan(). */
    const struct claims *claims; /* what describe() says */
    const char *optional;        /* that the plan asks for, and may be refused; NULL = nothing */
    char strategy[32];           /* that a plan asks for; "" = there is none yet */
    bool is_joining;             /* a job has been asked for */
};

#define CONFORM_UNLOADED 1u /* the check loads the plugin by itself */

struct conform_check {
    const char *name;    /* a sentence: "a second connect is refused" */
    const char *promise; /* where it is promised: "job.h: connect" */
    void (*run)(struct conform *conform);
    uint32_t n_ranks;  /* processes; 0 = as many as the kit's -n says */
    uint32_t limit_ms; /* 0 = CONFORM_LIMIT_MS */
    uint32_t flags;    /* CONFORM_UNLOADED */
};

/* A chapter: what belongs together, in the order in which it runs. */
struct conform_chapter {
    const char *name;  /* one word, for --chapter */
    const char *title; /* a few words, for the table */
    const struct conform_check *checks;
    uint32_t n_checks;
};

/** Ends this rank: the check has failed. */
_Noreturn void conform_fail(struct conform *conform, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Ends this rank: the promise does not apply to this plugin, or cannot be checked here. */
_Noreturn void conform_skip(struct conform *conform, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * What describe() does not claim is skipped, and said in front of the call that would need it. What
 * it claims has to be there: HSDP_ERR_UNSUPPORTED then fails the check, unless the plan asks for
 * something that a header lets a plugin refuse: another dtype than fp32, verify, ties.
 */

/** A job is about to be made; device_place() of training/device.h says where it is. */
void conform_needs_transport(struct conform *conform);
/** A plan is, with these settings: "key=value key=value". It is a new one. */
void conform_needs_plan(struct conform *conform, const char *settings);
/** Something is about to be added to it: the settings of a class, or "tied_to". */
void conform_needs_part(struct conform *conform, const char *text);
/** An extension is about to be asked for. */
void conform_needs_extension(struct conform *conform, const char *name);

/** Something is promised of CPUs only, or can be seen on them only: this is about `what`. */
void conform_needs_cpu(struct conform *conform, const char *what);

/** Whether describe() lists a strategy; for checks that go on with others. */
bool conform_has_strategy(const struct conform *conform, const char *name);

/** Ends this rank: a call has answered HSDP_ERR_UNSUPPORTED. */
_Noreturn void conform_unsupported(struct conform *conform, const char *call, const char *sentence);

/** From here on this rank has to end by a signal, or by SIGKILL from a peer. */
void conform_expect_signal(struct conform *conform, int signal_number);

/** The process of a rank, for kill(); it waits until that one has begun. */
int32_t conform_process(struct conform *conform, uint32_t rank);

/** Waits until all ranks of the check that still run have come here. Without the plugin. */
void conform_meet(struct conform *conform);

/** Milliseconds of CLOCK_MONOTONIC. */
uint64_t conform_now_ms(void);
void conform_sleep_ms(uint32_t ms);

/** Something holds, else the check fails with a sentence. */
#define conform_expect(conform, condition, ...)                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            conform_fail((conform), __VA_ARGS__);                                                  \
        }                                                                                          \
    } while (0)

/** A call succeeds. */
#define conform_must(conform, call)                                                                \
    conform_check_ok((conform), #call, (conform_enter((conform), #call), (call)))

/** A call is refused with a status, and what the rules of errors say holds for the error. */
#define conform_must_refuse(conform, call, status)                                                 \
    conform_check_refused((conform), #call, (conform_enter((conform), #call), (call)), (status))

/**
 * A call begins: what hangs or crashes from here on is told by this text. The error is filled with
 * a pattern, so that one that is left alone can be told from one that is not.
 */
void conform_enter(struct conform *conform, const char *call);

/* What the macros above look at. `call` is only text, for sentences. */
void conform_check_ok(struct conform *conform, const char *call, int32_t found);
void conform_check_refused(struct conform *conform, const char *call, int32_t found,
                           int32_t expected);

/** "HSDP_ERR_INVALID (-1)"; of a number that is no status "7". The next four calls keep it. */
const char *conform_status_name(int32_t status);

/* ------------------------------------------------------------------------------------- chapters */

/*
 * A new check is a function and a row in the list of its chapter: its name, words of a header that
 * promise it, how many ranks. Files are named after their chapter or, in short, its subject. What
 * it is written with:
 *
 *     conform_must, conform_must_refuse, conform_expect   any check, as above
 *     arguments_refuse, arguments.h    a call made three times: an error, none, one too short
 *     numbers_..., numbers.h           planning to loading: the host of training/, with its model
 *     scene_..., scene.h               deadlines to hygiene: one small job, group and model
 *     conform_needs_..., above         in front of what describe() may not claim: it is skipped
 *
 * A wrong plugin that it catches is a row of tests/wrong.
 */

extern const struct conform_chapter conform_negotiation; /* entry, versions, tables, describe */
extern const struct conform_chapter conform_arguments; /* every function, every kind of argument */
extern const struct conform_chapter conform_planning;  /* meshes, selectors, settings, plans */
extern const struct conform_chapter conform_mathematics; /* strategies against a serial model */
extern const struct conform_chapter conform_collectives; /* groups of the host */
extern const struct conform_chapter conform_steps;       /* norm, clip, weight, publish, discard */
extern const struct conform_chapter conform_loading;     /* edits, import, export, sync, states */
extern const struct conform_chapter conform_deadlines;   /* waits end in time */
extern const struct conform_chapter conform_failures;    /* named on every rank, job over, abort */
extern const struct conform_chapter conform_views;       /* fixed addresses, read-only, zeroed */
extern const struct conform_chapter conform_hygiene;     /* nothing leaked, nothing touched */

#endif /* CONFORM_CONFORM_H */
