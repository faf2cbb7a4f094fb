/* SPDX-License-Identifier: Apache-2.0 */
/* Running a check: its ranks as processes, watched until each has ended. */
#ifndef CONFORM_RUNNER_H
#define CONFORM_RUNNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "conform.h"
#include "environment.h"
#include "slot.h"

#define RUNNER_NO_RANK       UINT32_MAX
#define RUNNER_MESSAGE_BYTES 3072u

enum runner_status { RUNNER_PASSED, RUNNER_FAILED, RUNNER_SKIPPED };

struct runner_result {
    enum runner_status status;
    uint32_t rank;    /* who said it; RUNNER_NO_RANK = none */
    uint32_t n_ranks; /* that played */
    uint64_t ms;
    char message[RUNNER_MESSAGE_BYTES]; /* "" where the check has passed */
};

/* What all checks of a run have in common. */
struct runner_setup {
    const char *plugin_path;
    const struct claims *claims; /* what describe() says */
    uint64_t seed;
    uint32_t n_ranks;
    uint32_t limit_ms; /* 0 = the check's own */
    uint32_t n_settings;
    const char *const *settings; /* KEY=VALUE: what HSDP_KEY says to every rank */
    bool is_cuda;                /* jobs are on devices */
    void *ret_shared; /* gets the first bytes of what the ranks have shared; NULL = nobody asks */
    size_t ret_shared_bytes;
};

struct runner_rank {
    pid_t process; /* 0 = ended and collected */
    int wait_status;
    int output_fds[2]; /* what it wrote to stdout and stderr */
};

/* One check that runs. */
struct runner {
    const struct conform_check *check;
    const struct runner_setup *setup;
    struct slot *slot;
    struct runner_rank ranks[CONFORM_MAX_RANKS];
    struct environment environment;
    uint32_t n_ranks;
    pid_t process_group; /* of the ranks and of all that they start */
    uint64_t begin_ms;
    uint64_t deadline_ms;
    bool is_ending;        /* it is decided, and the ranks that are left are being killed */
    uint64_t strangers_ms; /* when all ranks had ended, but not what they had started; 0 = never */
    struct runner_result result;
};

/** Starts the ranks of a check; false when the machine cannot, and ret->result says why. */
bool runner_start(struct runner *ret, const struct runner_setup *setup,
                  const struct conform_check *check);

/** Looks after them; true once all have ended, and ret->result is whole. Then it needs no end. */
bool runner_poll(struct runner *runner);

/** What a plugin says is one line of text, whatever it holds: control characters become '?'. */
void runner_plain(char *text);

#endif /* CONFORM_RUNNER_H */
