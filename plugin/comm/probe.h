/* SPDX-License-Identifier: Apache-2.0 */
/* Probes: tests see in which order shared memory is used and who waits for whom, and disturb it. */
#ifndef COMM_PROBE_H
#define COMM_PROBE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/job.h"

/*
 * A job has a probe only where a test gave it one, before it made a model. Without one each point
 * costs a branch; none lies in a loop over elements. A probe is called on the thread of the call
 * and before what it is told of, so that it may also delay that.
 */

/* What is read or written. Most of it lies in the regions of comm/shm_store.h. */
enum probe_area {
    PROBE_PARAMS,       /* parameters: hosts read them; AdamW and publishing write peers' */
    PROBE_MASTER,       /* the step shard: the parameters themselves where it is stepped in place */
    PROBE_FLAT,         /* a step shard of anything, in an import, an export or a sync */
    PROBE_GRADS,        /* reduced gradients; replicas write each other's */
    PROBE_SLOT,         /* a gradient slot, by its owner */
    PROBE_LOCAL,        /* local sums, by their owner */
    PROBE_LATE,         /* late sums, by their owner */
    PROBE_LATE_VALUES,  /* what came outside of the slot, private */
    PROBE_CONTRIBUTION, /* slot, local or late sums, by who sums them up */
    PROBE_SOURCE,       /* which of these it is */
    PROBE_INNER,        /* inner sums */
    PROBE_STEP_WORDS,
    PROBE_OFFER_WORDS, /* tag and size */
    PROBE_OFFERED,     /* what an offer copies from */
    PROBE_STAGE,
    PROBE_TIED,    /* elements tied over stages, where their holders read them */
    PROBE_MAILBOX, /* of job_exchange */
    PROBE_N_AREAS,
};

/* Which wait of the protocol a condition belongs to; shm_store.h says what each is for. */
enum probe_wait {
    PROBE_WAIT_NONE,       /* none of these: groups, farewells */
    PROBE_WAIT_STEP,       /* step_arrived, in a step's collective */
    PROBE_WAIT_PUBLISHED,  /* epoch, in an unshard */
    PROBE_WAIT_SLOT,       /* consumed, before a slot is acquired */
    PROBE_WAIT_SOURCE,     /* consumed, before a rank contributes */
    PROBE_WAIT_INNER,      /* arrived */
    PROBE_WAIT_RESTING,    /* outer_consumed, before an inner sum is written */
    PROBE_WAIT_OUTER,      /* outer_arrived */
    PROBE_WAIT_SHARED,     /* outer_consumed or consumed, before step sums are whole */
    PROBE_WAIT_OFFER,      /* offer_arrived */
    PROBE_WAIT_OFFER_READ, /* offer_consumed */
    PROBE_WAIT_EXCHANGE,   /* job_exchange: the barrier of an edit */
    PROBE_WAIT_TIES,       /* ties_arrived */
    PROBE_WAIT_TIES_READ,  /* ties_consumed, before tied elements are written */
    PROBE_N_WAITS,
};

/* Reductions go on inside of any call, at any time between being handed over and being awaited. */
enum probe_reduction {
    PROBE_HANDED_OVER,
    PROBE_ENTERED, /* what comes until it is left is done by the reduction */
    PROBE_LEFT,
    PROBE_DONE,         /* and left */
    PROBE_AWAITED_SLOT, /* the host's thread has seen that it has read the slot, to acquire it; */
    PROBE_AWAITED_LAST, /* that it is done, before the unit is handed over again, */
    PROBE_AWAITED_STEP, /* and before a step */
    PROBE_AWAITED_TURN, /* the other way around: it sees what the host's thread has done until its
                           turn came, behind other units of its pass */
    PROBE_N_REDUCTIONS,
};

#define PROBE_NO_UNIT UINT32_MAX

struct probe_access {
    enum probe_area area;
    bool is_write;
    uint32_t unit;
    const void *base;
    uint64_t n_bytes;
};

struct probe {
    void (*access)(struct probe *probe, const struct probe_access *access);
    void (*raise)(struct probe *probe, const _Atomic uint64_t *counter, uint64_t value);
    /* Conditions are about to be waited for. A target made 0 is met at once: the wait is gone. */
    void (*expect)(struct probe *probe, struct wait_entry *entries, uint32_t n_entries);
    void (*met)(struct probe *probe, const struct wait_entry *entries, uint32_t n_entries);
    void (*reduction)(struct probe *probe, uint32_t unit, enum probe_reduction what);
};

static inline void probe_access(struct probe *probe, const struct probe_access *access)
{
    if (access->n_bytes > 0) {
        probe->access(probe, access);
    }
}

static inline void probe_read(struct probe *probe, enum probe_area area, uint32_t unit,
                              const void *base, uint64_t n_bytes)
{
    if (probe != NULL) {
        probe_access(probe, &(struct probe_access){area, false, unit, base, n_bytes});
    }
}

static inline void probe_write(struct probe *probe, enum probe_area area, uint32_t unit,
                               const void *base, uint64_t n_bytes)
{
    if (probe != NULL) {
        probe_access(probe, &(struct probe_access){area, true, unit, base, n_bytes});
    }
}

static inline void probe_raise(struct probe *probe, const _Atomic uint64_t *counter, uint64_t value)
{
    if (probe != NULL) {
        probe->raise(probe, counter, value);
    }
}

static inline void probe_expect(struct probe *probe, struct wait_entry *entries, uint32_t n_entries)
{
    if (probe != NULL) {
        probe->expect(probe, entries, n_entries);
    }
}

static inline void probe_met(struct probe *probe, const struct wait *wait)
{
    if (probe != NULL) {
        probe->met(probe, wait->entries, wait->n_entries);
    }
}

static inline void probe_reduction(struct probe *probe, uint32_t unit, enum probe_reduction what)
{
    if (probe != NULL) {
        probe->reduction(probe, unit, what);
    }
}

#endif /* COMM_PROBE_H */
