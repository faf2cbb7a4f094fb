/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a plugin can be loaded at all, and who it is; asked in a process of its own. */
#ifndef CONFORM_PROBE_H
#define CONFORM_PROBE_H

#include "claims.h"
#include "report.h"
#include "runner.h"

enum probe_answer {
    PROBE_LOADS,
    PROBE_BREAKS, /* it crashes, hangs, or answers the loader with an error */
    PROBE_UNABLE, /* there is no plugin to check, and the user has been told why */
};

/* What is known of a plugin before any check. */
struct probe {
    struct report_plugin plugin;
    struct claims claims; /* not read where describe() fails, crashes or hangs */
};

/** ret_reason is one sentence for PROBE_BREAKS, as long as a message. */
enum probe_answer probe_plugin(const struct runner_setup *setup, struct probe *ret,
                               char *ret_reason, size_t max_bytes);

#endif /* CONFORM_PROBE_H */
