/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: gradients, and the passes that bring them. */
#include "random_pass.h"

#include <math.h>

/* What a number is drawn for. */
enum purpose {
    FOR_WEIGHT = 1,
    FOR_GRADIENT,
    FOR_LATE,
    FOR_UNIT,
    FOR_PARAM,
    FOR_IDLE,
    FOR_CHUNK,
    FOR_USE,
    FOR_ORDER,
    FOR_TOKENS,
    FOR_NONFINITE,
};

static const struct random_case *drawn;
static const struct host *owner;
static uint32_t families[HOST_MAX_UNITS];                 /* likewise */
static uint32_t twins[HOST_MAX_PARAMS][RANDOM_MAX_RANKS]; /* see random_values_set */

static uint64_t mixed(enum purpose purpose, uint64_t a, uint64_t b, uint64_t c)
{
    return random_mix(drawn->seed, (uint64_t)purpose << 32 | a, b, c);
}

static uint32_t batch_step(uint32_t batch)
{
    return batch / drawn->n_batches;
}

/* ------------------------------------------------------------------------------------- values */

/* Units with names for parameters of each other are in a window, a pass and a chunk together: so
 * what a name adds comes before the reduction that it is for. */
static void families_find(const struct host *host)
{
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        families[unit] = unit;
    }
    for (uint32_t param = 0; param < host->n_params; param++) { /* names come behind storages */
        const struct host_param *p = &host->params[param];
        uint32_t family = families[p->unit];
        uint32_t other = families[host->params[p->storage].unit];

        for (uint32_t unit = 0; unit < host->n_units; unit++) {
            families[unit] = families[unit] == family ? other : families[unit];
        }
    }
}

/*
 * Ranks over which a parameter is replicated but not reduced have equal gradients: they have those
 * of their twin, the first of them.
 */
void random_values_set(const struct random_case *random, const struct host *host)
{
    drawn = random;
    owner = host;
    families_find(host);
    for (uint32_t param = 0; param < host->n_params; param++) {
        for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
            twins[param][rank] =
                rank - (host_reducer(host, param, rank) - host_holder(host, param, rank));
        }
    }
}

/* -1 to 1: of any bits, or of so few that 256 of them add up exactly in fp32. */
static double unit_value(uint64_t bits, bool is_exact)
{
    return is_exact ? (double)((int64_t)(bits >> 11 & 127u) - 64) / 64.0
                    : (double)(bits >> 11) * 0x1p-52 - 1.0;
}

double random_weight(struct host_at at)
{
    at.rank = random_first_holder(drawn, at.param, at.rank);
    return (double)(mixed(FOR_WEIGHT, at.rank, at.param, at.elem) >> 11) * 0x1p-52 - 1.0;
}

/* A unit that is in a window at all is in its last pass, which has scope full. */
static bool unit_has_pass(uint32_t batch, uint32_t unit)
{
    uint32_t family = families[unit];
    bool is_last = batch % drawn->n_batches == drawn->n_batches - 1;
    bool is_left_out = mixed(FOR_UNIT, 1, batch_step(batch), family) % 10 == 0;

    return !is_left_out && (is_last || mixed(FOR_UNIT, 2, batch, family) % 8 != 0);
}

uint32_t random_holder(uint32_t param, uint32_t rank)
{
    return random_first_holder(drawn, param, rank);
}

bool random_has_pass(uint32_t batch, uint32_t param)
{
    return unit_has_pass(batch, owner->params[param].unit);
}

/* A rank that does nothing at all in a microbatch. */
static bool is_idle(uint32_t rank, uint32_t batch)
{
    return drawn->has_absent && mixed(FOR_IDLE, rank, batch, 0) % 8 == 0;
}

/* No gradient of a unit: the rank hands over zeros, skips the unit, or leaves it out. */
static bool unit_is_zero(uint32_t twin, uint32_t batch, uint32_t unit)
{
    return is_idle(twin, batch) || mixed(FOR_UNIT, 3 + twin, batch, unit) % 6 == 0;
}

/* No gradient of one parameter: where the engine fills with zeros, nothing is written. */
static bool param_is_zero(uint32_t twin, uint32_t batch, uint32_t param)
{
    return unit_is_zero(twin, batch, owner->params[param].unit) ||
           mixed(FOR_PARAM, twin, batch, param) % 8 == 0;
}

/* One element of the step's last microbatch; 0 = it is as usual. */
static double nonfinite_value(struct host_at at)
{
    static const double values[] = {INFINITY, -INFINITY, NAN};
    uint32_t step = batch_step(at.microbatch);

    if (drawn->steps[step] != RANDOM_STEP_NONFINITE || at.elem != 0 || at.param != 0 ||
        at.rank != 0 || at.microbatch % drawn->n_batches != drawn->n_batches - 1) {
        return 0.0;
    }
    return values[mixed(FOR_NONFINITE, step, 0, 0) % 3];
}

double random_gradient(struct host_at at)
{
    uint32_t twin = twins[at.param][at.rank];

    if (param_is_zero(twin, at.microbatch, at.param)) {
        return 0.0;
    }
    at.rank = twin;
    if (nonfinite_value(at) != 0.0) {
        return nonfinite_value(at);
    }
    return unit_value(mixed(FOR_GRADIENT, twin * 64u + at.microbatch, at.param, at.elem),
                      drawn->is_exact || drawn->has_aliases);
}

/* Some parameters get a constant from elsewhere, which every dtype holds. */
double random_late(struct host_at at)
{
    uint64_t bits = mixed(FOR_LATE, twins[at.param][at.rank], at.microbatch, at.param);

    return drawn->has_late && bits % 4 == 0 ? (double)((int64_t)(bits >> 16 & 63u) - 32) / 64.0
                                            : 0.0;
}

double random_tokens(uint32_t rank, uint32_t step)
{
    uint32_t stride = 1;
    uint32_t data_rank = 0;

    for (uint32_t d = owner->n_dims; d-- > 0;) {
        data_rank += owner->dims[d].is_data ? rank / stride % owner->dims[d].size * stride : 0;
        stride *= owner->dims[d].size;
    }
    return (double)(mixed(FOR_TOKENS, data_rank, step, 0) % 7u);
}

/* --------------------------------------------------------------------------------------- passes */

/* Where one unit of a pass is. */
enum stage { STAGE_WAITING, STAGE_LIVE, STAGE_DONE };

struct walk_unit {
    uint32_t unit;
    uint32_t position; /* among all trainable units, in the order of reduction */
    enum stage stage;
};

struct walk {
    struct walk_unit units[HOST_MAX_UNITS];
    uint32_t n_units;
    uint32_t turn;       /* all before it are done */
    uint32_t n_gathered; /* units that are or were unsharded for all of their uses, in order, */
    uint32_t n_released; /* and those that no longer are */
    uint64_t pass;
    uint32_t batch;
    bool is_chunk; /* another pass is open */
};

static uint32_t param_slot(struct host *host, uint32_t unit)
{
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

    host_must(host, host->api->plan->unit_info(host->plan, unit, &info, &host->err));
    return info.param_slot;
}

/* A chunk of the model, 0 or 1, that each unit belongs to in a microbatch. */
static uint32_t unit_chunk(uint32_t batch, uint32_t unit)
{
    bool is_split = drawn->has_chunks && mixed(FOR_CHUNK, batch, 0, 0) % 2 == 0;

    return is_split ? (uint32_t)(mixed(FOR_CHUNK, batch, 1, families[unit]) % 2) : 0;
}

static void walk_init(struct walk *walk, struct host *host, uint32_t batch, uint32_t chunk)
{
    uint32_t position = 0;
    uint32_t units[HOST_MAX_UNITS];

    memset(walk, 0, sizeof(*walk));
    walk->batch = batch;
    for (uint32_t unit = host->n_units; unit-- > 0;) {
        if (!host_is_trainable(host, unit)) {
            continue;
        }
        if (unit_has_pass(batch, unit) && unit_chunk(batch, unit) == chunk) {
            units[walk->n_units] = unit;
            walk->units[walk->n_units++] = (struct walk_unit){unit, position, STAGE_WAITING};
        }
        position++;
    }
    host_must(host, host_backward_begin(host, units, walk->n_units,
                                        drawn->scopes[batch % drawn->n_batches], &walk->pass));
}

/* The memory of units that are `slots` or more apart may be the same. */
static bool is_free_beside(const struct walk *walk, struct host *host,
                           const struct walk_unit *wanted)
{
    uint32_t slot = param_slot(host, wanted->unit);

    for (uint32_t i = 0; i < walk->n_units; i++) {
        const struct walk_unit *other = &walk->units[i];
        uint32_t gap = wanted->position > other->position ? wanted->position - other->position
                                                          : other->position - wanted->position;

        if (other->stage == STAGE_LIVE &&
            (gap >= drawn->n_slots ||
             (slot != HSDP_NO_SLOT && param_slot(host, other->unit) == slot))) {
            return false;
        }
    }
    return true;
}

/* Whether a unit of a pass that is alone may be unsharded for backward now. */
static bool walk_may_acquire(const struct walk *walk, struct host *host, uint32_t index)
{
    const struct walk_unit *wanted = &walk->units[index];

    return wanted->position - walk->units[walk->turn].position < drawn->n_slots &&
           is_free_beside(walk, host, wanted);
}

static void late_add(struct host *host, uint32_t unit, uint32_t batch)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const struct host_param *p = &host->params[param];
        double value = random_late((struct host_at){host->rank, batch, param, 0});

        if (p->unit == unit && p->storage == param && !p->is_frozen && value != 0.0) {
            host_grad_add(host, p->name, value, host_dtypes[(param + batch) % 3]);
        }
    }
}

static void unit_acquire(struct host *host, uint32_t unit, uint32_t batch)
{
    int32_t use = mixed(FOR_USE, host->rank, batch, unit) % 2 == 0 ? HSDP_USE_BACKWARD
                                                                   : HSDP_USE_BACKWARD_SET;

    host_must(host, host_unshard(host, unit, use));
    for (uint32_t param = 0; param < host->n_params; param++) {
        const struct host_param *p = &host->params[param];
        struct host_at at = {host->rank, batch, param, 0};
        struct hsdp_tensor view;

        if (p->unit != unit || p->is_frozen ||
            (p->storage != param && !host_is_alias(host, param)) ||
            (use == HSDP_USE_BACKWARD && param_is_zero(twins[param][host->rank], batch, param))) {
            continue;
        }
        view = host_view(host, param, HSDP_VIEW_GRAD);
        for (; at.elem < p->n_elems; at.elem++) {
            host_write(&view, at.elem, random_gradient(at));
        }
    }
}

/* Whether a rank has no gradient of a unit and says so by skipping it. */
static bool unit_is_skipped(const struct host *host, uint32_t unit, uint32_t batch)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (host->params[param].unit == unit &&
            !unit_is_zero(twins[param][host->rank], batch, unit)) {
            return false;
        }
    }
    return mixed(FOR_USE, host->rank, batch, 100 + unit) % 3 != 0;
}

/* Leaving units out holds up those behind, so the others must be fewer than slots. */
static bool unit_is_left_out(const struct walk *walk, const struct host *host, uint32_t index)
{
    uint32_t unit = walk->units[index].unit;

    if (walk->is_chunk || !drawn->has_absent || device_is_used()) {
        return false;
    }
    return is_idle(host->rank, walk->batch) ||
           (unit_is_skipped(host, unit, walk->batch) &&
            walk->units[walk->n_units - 1].position - walk->units[index].position <
                drawn->n_slots &&
            mixed(FOR_USE, host->rank, walk->batch, 200 + unit) % 2 == 0);
}

static void walk_done(struct walk *walk, uint32_t index)
{
    walk->units[index].stage = STAGE_DONE;
    while (walk->turn < walk->n_units && walk->units[walk->turn].stage == STAGE_DONE) {
        walk->turn++;
    }
}

static void unit_hand_over(struct walk *walk, struct host *host, uint32_t index)
{
    host->pass = walk->pass;
    late_add(host, walk->units[index].unit, walk->batch);
    host_hand_over(host, walk->units[index].unit);
    walk_done(walk, index);
}

static void unit_skip(struct walk *walk, struct host *host, uint32_t index)
{
    host->pass = walk->pass;
    late_add(host, walk->units[index].unit, walk->batch);
    host_must(host, host_skip(host, walk->units[index].unit));
    walk_done(walk, index);
}

/*
 * All ranks unshard the units of a pass in one order, and release them in one: then each may use
 * them in an order of its own. A unit goes before another one comes that may lie in its memory.
 */
static bool is_apart(struct host *host, const struct walk_unit *first,
                     const struct walk_unit *second)
{
    uint32_t slot = param_slot(host, second->unit);

    return (first->position > second->position ||
            second->position - first->position < drawn->n_slots) &&
           (slot == HSDP_NO_SLOT || param_slot(host, first->unit) != slot);
}

static bool walk_release(struct walk *walk, struct host *host, uint32_t n_units, bool is_over)
{
    while (walk->n_released < n_units) {
        uint32_t index = walk->n_released;

        if (!is_over && walk->units[index].stage != STAGE_DONE &&
            !unit_is_left_out(walk, host, index)) {
            return false;
        }
        host_must(host, host_release(host, walk->units[index].unit));
        walk->n_released++;
    }
    return true;
}

static void walk_gather(struct walk *walk, struct host *host, bool is_over)
{
    while (walk->n_gathered < walk->n_units) {
        const struct walk_unit *next = &walk->units[walk->n_gathered];
        uint32_t n_before = walk->n_released;

        for (uint32_t i = walk->n_released; i < walk->n_gathered; i++) {
            n_before = is_apart(host, &walk->units[i], next) ? n_before : i + 1;
        }
        if (!walk_release(walk, host, n_before, is_over)) {
            return;
        }
        host_must(host, host_unshard(host, next->unit, HSDP_USE_FORWARD));
        walk->n_gathered++;
    }
}

/* Acquires, hands over or skips one unit, if that may be now. */
static bool walk_step(struct walk *walk, struct host *host, uint32_t index)
{
    struct walk_unit *u = &walk->units[index];

    if (u->stage == STAGE_DONE || unit_is_left_out(walk, host, index)) {
        return false;
    }
    if (u->stage == STAGE_LIVE) {
        unit_hand_over(walk, host, index);
        return true;
    }
    if (unit_is_skipped(host, u->unit, walk->batch)) {
        unit_skip(walk, host, index);
        return true;
    }
    walk_gather(walk, host, false);
    if (index >= walk->n_gathered || !walk_may_acquire(walk, host, index)) {
        return false;
    }
    unit_acquire(host, u->unit, walk->batch);
    u->stage = STAGE_LIVE;
    return true;
}

/* On a device ranks interleave what they unshard and what they hand over alike: one by one. */
static void walk_in_line(struct walk *walk, struct host *host)
{
    for (uint32_t index = 0; index < walk->n_units; index++) {
        walk_gather(walk, host, false);
        if (unit_is_skipped(host, walk->units[index].unit, walk->batch)) {
            unit_skip(walk, host, index);
        } else {
            unit_acquire(host, walk->units[index].unit, walk->batch);
            unit_hand_over(walk, host, index);
        }
    }
}

/* One pass: steps in an order of this rank's own, then the rest in order. */
static void walk_run(struct walk *walk, struct host *host)
{
    bool is_moving = !device_is_used();

    if (device_is_used()) {
        walk_in_line(walk, host);
    }
    for (uint32_t i = 0; i < 16 && is_moving && walk->n_units > 0; i++) {
        uint64_t bits = mixed(FOR_ORDER, host->rank, walk->batch, i) >> 8;

        walk_step(walk, host, (uint32_t)(bits % walk->n_units));
    }
    while (is_moving) {
        is_moving = false;
        for (uint32_t i = 0; i < walk->n_units; i++) {
            is_moving = walk_step(walk, host, i) || is_moving;
        }
    }
    walk_gather(walk, host, true);
    walk_release(walk, host, walk->n_gathered, true);
}

static void chunk_release(const struct walk_unit *held, struct host *host)
{
    if (held != NULL) {
        host_must(host, host_release(host, held->unit));
    }
}

/*
 * Two passes: all ranks take their units in one sequence, since the same memory may serve both; a
 * rank may acquire the next unit before it hands over the last one, where they have room.
 */
static void chunks_run(struct walk walks[2], struct host *host)
{
    const struct walk_unit *held = NULL; /* the last one taken: unsharded on all ranks */
    struct walk *live = NULL; /* the pass of the unit that is acquired, and not handed over */
    uint32_t live_index = 0;
    uint32_t next[2] = {0, 0};

    while (next[0] < walks[0].n_units || next[1] < walks[1].n_units) {
        uint32_t n_taken = next[0] + next[1];
        uint32_t w = (uint32_t)(mixed(FOR_ORDER, RANDOM_MAX_RANKS, walks[0].batch, n_taken) % 2);
        struct walk *walk = &walks[next[w] < walks[w].n_units ? w : 1 - w];
        uint32_t index = next[walk == walks ? 0 : 1]++;
        const struct walk_unit *taken = &walk->units[index];
        bool is_beside =
            held == NULL || (is_apart(host, held, taken) && is_apart(host, taken, held));
        bool is_skipped = unit_is_skipped(host, taken->unit, walk->batch);
        bool is_late = mixed(FOR_ORDER, host->rank, walk->batch, 100 + n_taken) % 2 == 0;

        if (live != NULL && (is_skipped || is_late || !is_beside || device_is_used())) {
            unit_hand_over(live, host, live_index);
            live = NULL;
        }
        if (!is_beside) {
            chunk_release(held, host);
        }
        host_must(host, host_unshard(host, taken->unit, HSDP_USE_FORWARD));
        if (is_skipped) {
            unit_skip(walk, host, index);
        } else {
            unit_acquire(host, taken->unit, walk->batch);
            walk->units[index].stage = STAGE_LIVE;
            if (live != NULL) {
                unit_hand_over(live, host, live_index);
            }
            live = walk;
            live_index = index;
        }
        if (is_beside) {
            chunk_release(held, host);
        }
        held = taken;
    }
    if (live != NULL) {
        unit_hand_over(live, host, live_index);
    }
    chunk_release(held, host);
}

/* Closes a pass; what was left out may still have late gradients. */
static void walk_end(struct walk *walk, struct host *host)
{
    for (uint32_t i = 0; i < walk->n_units; i++) {
        host_expect(walk->units[i].stage != STAGE_LIVE);
        if (walk->units[i].stage == STAGE_WAITING) {
            host_expect(unit_is_left_out(walk, host, i));
            late_add(host, walk->units[i].unit, walk->batch);
        }
    }
    host_must(host, host_backward_end(host, walk->pass));
}

void random_backward(struct host *host, uint32_t batch)
{
    struct walk walks[2];
    uint32_t n_walks = 1;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        n_walks = unit_chunk(batch, unit) == 1 ? 2 : n_walks;
    }
    for (uint32_t w = 0; w < n_walks; w++) {
        walk_init(&walks[w], host, batch, w);
        walks[w].is_chunk = n_walks == 2;
    }
    if (n_walks == 2) {
        chunks_run(walks, host);
    } else {
        walk_run(&walks[0], host);
    }
    for (uint32_t w = 0; w < n_walks; w++) {
        walk_end(&walks[w], host);
    }
}
