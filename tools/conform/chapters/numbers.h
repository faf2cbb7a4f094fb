/* SPDX-License-Identifier: Apache-2.0 */
/* What the chapters about numbers share: a training host that belongs to a check. */
#ifndef CONFORM_NUMBERS_H
#define CONFORM_NUMBERS_H

#include "conform.h"
#include "training/host.h"

/* How many rows a table has. */
#define NUMBERS_N(rows) ((uint32_t)(sizeof(rows) / sizeof((rows)[0])))

/** From here on, what a host of this process must not see fails this check. */
void numbers_begin(struct conform *conform);

/** What is being tried, for the sentence of a failure: "under hsdp, scope inner". */
void numbers_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Ends the check: a header lets a plugin refuse what it asks for. */
_Noreturn void numbers_skip(const char *why);

/** Something holds, else the check fails with a sentence, behind the note. */
#define numbers_expect(condition, ...)                                                             \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            host_fail(__VA_ARGS__);                                                                \
        }                                                                                          \
    } while (0)

/** A call is refused with this status. */
#define numbers_refused(host, call, expected) host_must_refuse((host), (call), (expected), "")

/* numbers_begin, and then as host_join and host_open. */
void numbers_join(struct conform *conform, struct host *host, const char *dims,
                  const char *settings);
void numbers_open(struct conform *conform, struct host *host, const char *dims,
                  const char *settings, const char *units);

/** Gives the model and the plan back; the job stays. */
void numbers_drop(struct host *host);

/* What is tried on one model after another: one for each strategy. */
struct numbers_trial {
    const char *dims;
    const char *settings; /* beside the strategy */
    const char *units;
    void (*run)(struct host *host);
};

/** Ends the check unless describe() lists a strategy of the table in plan.h. */
void numbers_need_strategy(void);

/** Joins, runs the trial under every row of that table that describe() lists, and closes. */
void numbers_try(struct conform *conform, const struct numbers_trial *trial);

/* The same on a job that was joined: for several trials in one check. */
void numbers_try_joined(struct host *host, const struct numbers_trial *trial);

/* Within a trial. */

/** Whether the trial that runs has this strategy. */
bool numbers_is_under(const char *strategy);

/** One microbatch of scope full, and a step; the result. */
struct hsdp_step_info numbers_step(struct host *host, host_value gradient);
/** Every element of a gradient within `slack`, relative to the number. */
void numbers_expect_grad(struct host *host, const char *param, double value, double slack);
/** A number, within `slack` relative to it. */
void numbers_expect_near(const char *what, double found, double expected, double slack);

/* Values of a gradient. */
double numbers_one(struct host_at at);         /* 1 */
double numbers_rank_plus_1(struct host_at at); /* 1, 2, 3, ... */
double numbers_small(struct host_at at);       /* whole, of any element; exact in every dtype */

#endif /* CONFORM_NUMBERS_H */
