/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: which elements of this rank's step shards the hyper groups update. */
#include "shard/runs.h"

#include <stdlib.h>

#include "base/error.h"

static int32_t memory_refuse(struct hsdp_error *reterr)
{
    return error_set(reterr, HSDP_ERR_NO_MEMORY, "adamw.step: no memory for its parameters");
}

static int32_t runs_reserve(struct runs *runs, uint64_t n_more, struct hsdp_error *reterr)
{
    uint64_t max_runs =
        runs->max_runs * 2 > runs->n_runs + n_more ? runs->max_runs * 2 : runs->n_runs + n_more;
    struct run *list;

    if (runs->n_runs + n_more <= runs->max_runs) {
        return HSDP_OK;
    }
    list = realloc(runs->list, max_runs * sizeof(*list));
    if (list == NULL) {
        return memory_refuse(reterr);
    }
    runs->list = list;
    runs->max_runs = max_runs;
    return HSDP_OK;
}

static int32_t unit_add(struct runs *runs, const struct hsdp_model *model, uint32_t unit,
                        struct hsdp_error *reterr)
{
    struct hsdp_segment *segments = NULL;
    uint64_t n_segments = 0;
    int32_t status =
        model_step_segments(model, unit, model->plan->mesh->rank, &segments, &n_segments, reterr);

    if (status == HSDP_OK) {
        status = runs_reserve(runs, n_segments, reterr);
    }
    for (uint64_t i = 0; status == HSDP_OK && i < n_segments; i++) {
        const struct hsdp_segment *segment = &segments[i];

        if (segment->buffer == 0) { /* the trainable one */
            runs->list[runs->n_runs++] = (struct run){
                .first_elem = segment->shard_offset_elems,
                .n_elems = segment->n_elems,
                .hyper_group = model->plan->params[segment->param].hyper_group,
            };
        }
    }
    free(segments);
    return status;
}

int32_t runs_init(struct runs *ret, const struct hsdp_model *model, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    int32_t status = HSDP_OK;

    ret->unit_first = calloc(plan->n_units + UINT64_C(1), sizeof(*ret->unit_first));
    if (ret->unit_first == NULL) {
        return memory_refuse(reterr);
    }
    for (uint32_t unit = 0; status == HSDP_OK && unit < plan->n_units; unit++) {
        if (plan_is_trainable(plan, unit)) {
            status = unit_add(ret, model, unit, reterr);
        }
        ret->unit_first[unit + 1] = ret->n_runs;
    }
    return status;
}

void runs_fini(struct runs *runs)
{
    free(runs->list);
    free(runs->unit_first);
}

struct run runs_next(const struct runs *runs, uint64_t *at, uint64_t end, const bool *is_joined)
{
    struct run run = runs->list[(*at)++];

    while (*at < end && runs->list[*at].hyper_group == run.hyper_group &&
           is_joined[run.hyper_group]) {
        const struct run *next = &runs->list[(*at)++];

        run.n_elems = next->first_elem + next->n_elems - run.first_elem;
    }
    return run;
}
