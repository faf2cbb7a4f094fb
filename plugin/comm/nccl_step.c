/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: the step's collective, whose result stays on the device until it is asked for. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_store.h"
#include "comm/numbers.h"

/* Those that all have brought; this rank's own behind them is what is sent. */
static struct nccl_step_record *own_record(const struct store *store,
                                           struct nccl_step_record *records)
{
    return records + store->n_world;
}

/* The norm has been added up on the device, by what came before this on the stream. */
static int32_t record_complete(struct nccl_step *step, struct hsdp_error *reterr)
{
    struct store *store = step->store;
    struct nccl_step_record *record = own_record(store, step->device);
    cu_stream stream = store->gpu->reduce_stream;
    const struct gpu_norm *norm = job_space(store->job)->norm;
    int32_t status = gpu_copy(store->gpu, record, own_record(store, step->host), sizeof(*record),
                              stream, reterr);

    if (status == HSDP_OK) {
        status = gpu_copy(store->gpu, &record->part.norm, norm, sizeof(*norm), stream, reterr);
    }
    return status;
}

static int32_t records_gather(struct nccl_step *step, struct hsdp_error *reterr)
{
    struct store *store = step->store;
    const struct nccl_step_record *record = own_record(store, step->device);

    if (store->n_world == 1) {
        return gpu_copy(store->gpu, step->device, record, sizeof(*record),
                        store->gpu->reduce_stream, reterr);
    }
    return nccl_all_gather(&step->task, nccl_world(store->engine), record, step->device,
                           sizeof(*record), NCCL_UINT8, reterr);
}

/*
 * All gathers are over before a rank takes part, so behind the step any parameter may be written:
 * it is a barrier of the job, as over shared memory.
 */
int32_t nccl_step_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct nccl_step *step = (struct nccl_step *)task;
    struct store *store = step->store;
    cu_stream stream = store->gpu->reduce_stream;
    int32_t status = nccl_readers_follow(store, reterr);

    if (status == HSDP_OK) {
        status = record_complete(step, reterr);
    }
    if (status == HSDP_OK) {
        status = records_gather(step, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_launch(store->gpu, GPU_STEP, &step->args, 1, stream, reterr);
    }
    return status == HSDP_OK ? gpu_copy(store->gpu, step->host, step->device,
                                        store->n_world * sizeof(*step->host), stream, reterr)
                             : status;
}

int32_t nccl_step_start(struct store *store, const struct step_words *mine,
                        struct hsdp_error *reterr)
{
    struct nccl_step *step = &store->step;
    struct nccl_step_record *record = own_record(store, step->host);
    int32_t status = nccl_task_await(&step->task, reterr); /* the last one's record is sent */

    if (status != HSDP_OK) {
        return status;
    }
    memset(record, 0, sizeof(*record));
    record->words = *mine;
    record->part.weight = mine->weight;
    step->args.view = store->factor;
    step->args.parts = step->device;
    step->args.stride_bytes = sizeof(*record);
    step->args.n_parts = store->n_world;
    step->args.p = mine->numbers[STEP_NORM_P];
    step->args.max_norm = mine->numbers[STEP_MAX_NORM];
    step->args.scale = mine->numbers[STEP_GRADIENT_SCALE];
    step->args.has_weight = mine->numbers[STEP_HAS_WEIGHT] != 0.0;
    step->task.stream = store->gpu->reduce_stream;
    step->task.run = nccl_step_run;
    step->task.label.operation = "step";
    step->task.label.sequence = ++store->n_steps - store->first_step;
    step->task.label.n_bytes = sizeof(*record);
    step->task.groups[0] = nccl_world(store->engine);
    step->task.n_groups = store->n_world == 1 ? 0 : 1;
    status = nccl_task_submit(&step->task, NULL, reterr);
    /* What the optimizer puts on the stream comes behind it. */
    return status == HSDP_OK ? nccl_task_await_issue(&step->task, reterr) : status;
}

const struct wait *nccl_step_blocker(const struct store *store)
{
    const struct nccl_task *task = &store->step.task;
    uint64_t state = atomic_load(&task->state);

    return state == NCCL_TASK_QUEUED || state == NCCL_TASK_ISSUED ? &task->label : NULL;
}

/* What was added up on a rank's device, beside what it was on its host. */
static void words_complete(const struct nccl_step_record *record, struct step_words *ret)
{
    struct norm_sum sum = {.n_inf = record->part.norm.n_inf, .n_nan = record->part.norm.n_nan};

    *ret = record->words;
    memcpy(sum.limbs, record->part.norm.limbs, sizeof(sum.limbs));
    norm_sum_normalize(&sum);
    norm_sum_merge(&ret->sum, &sum);
    if (record->part.norm.max_bits > ret->max_bits) {
        ret->max_bits = record->part.norm.max_bits;
    }
}

static const struct step_words *words_of(void *user, uint32_t rank)
{
    return &((const struct store *)user)->step.words[rank];
}

int32_t nccl_step_words(struct store *store, struct step_words *ret_all, struct hsdp_error *reterr)
{
    const struct numbers_source source = {store->plan, words_of, store};

    for (uint32_t rank = 0; rank < store->n_world; rank++) {
        words_complete(&store->step.host[rank], &store->step.words[rank]);
    }
    return numbers_merge(&source, ret_all, reterr);
}
