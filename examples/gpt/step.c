/* SPDX-License-Identifier: Apache-2.0 */
/* One step of training: microbatches, update; and the validation loss. */
#include "step.h"

#define ADAM_BETA1   0.9
#define ADAM_BETA2   0.95
#define ADAM_EPSILON 1e-8
#define MAX_HELD_OUT 256u /* samples of a validation loss */

/* This rank's samples of microbatch `index` of a step: its share of consecutive samples. */
static void samples_take(struct trainer *trainer, uint64_t step, uint32_t index)
{
    const struct config *config = trainer->config;
    const struct session *session = &trainer->session;
    const uint64_t first =
        (step - 1) * config->global_batch_size +
        ((uint64_t)index * session->world_ranks + session->rank) * config->micro_batch_size;

    for (uint64_t b = 0; b < config->micro_batch_size; b++) {
        dataset_sample(&trainer->dataset, first + b,
                       trainer->compute.inputs + b * config->sequence_length,
                       trainer->compute.targets + b * config->sequence_length);
    }
}

int step_accumulate(struct trainer *trainer, uint64_t step, double *ret_loss,
                    struct fault *ret_fault)
{
    struct session *session = &trainer->session;
    const uint32_t n_microbatches = session->n_microbatches;
    double sum = 0;
    int status;

    for (uint32_t i = 0; i < n_microbatches; i++) {
        const int32_t scope = i + 1 == n_microbatches ? HSDP_SCOPE_FULL : session->early_scope;

        samples_take(trainer, step, i);
        status = compute_forward(&trainer->compute, 1, ret_fault);
        if (status != 0) {
            return status;
        }
        sum += compute_loss(&trainer->compute, session->shape.n_batch);
        status = compute_backward(&trainer->compute, scope, ret_fault);
        if (status != 0) {
            return status;
        }
    }
    status = session_sum(session, &sum, 1, ret_fault);
    *ret_loss = sum / ((double)n_microbatches * session->world_ranks);
    return status;
}

/* One AdamW update; only matrices decay. */
static int optimizer_step(struct trainer *trainer, double learning_rate, struct fault *ret_fault)
{
    struct session *session = &trainer->session;
    const double rates[] = {learning_rate, learning_rate};
    double decays[] = {0, 0};
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_adamw_spec spec = HSDP_ADAMW_SPEC_INIT;

    decays[MODEL_GROUP_DECAY] = trainer->config->weight_decay;
    spec.stream = session->stream;
    spec.learning_rate = rates;
    spec.weight_decay = decays;
    spec.n_hyper_groups = 2;
    spec.beta1 = ADAM_BETA1;
    spec.beta2 = ADAM_BETA2;
    spec.epsilon = ADAM_EPSILON;
    if (session->adamw->step(session->model, &spec, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    return 0;
}

int step_apply(struct trainer *trainer, struct report_step *step, struct fault *ret_fault)
{
    struct session *session = &trainer->session;
    const struct hsdp_step_ops *ops = session->api->step;
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    int32_t ended;
    int status;

    spec.stream = session->stream;
    spec.max_norm = trainer->config->max_grad_norm;
    spec.gradient_scale = 1.0 / session->n_microbatches;
    laps_end(&session->laps, LAPS_COMPUTE);
    if (ops->begin(session->model, &spec, NULL, &error) != HSDP_OK ||
        ops->result(session->model, &result, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    step->gradient_norm = result.norm;
    if (result.is_nonfinite) {
        ended = ops->discard(session->model, session->stream, &error);
    } else {
        status = optimizer_step(trainer, step->learning_rate, ret_fault);
        if (status != 0) {
            return status;
        }
        ended = ops->end(session->model, session->stream, NULL, &error);
    }
    laps_end(&session->laps, LAPS_OPTIMIZER);
    return ended == HSDP_OK ? 0 : session_fault(session, &error, ret_fault);
}

/* Takes held-out samples first..first+micro_batch_size-1; how many of them exist. */
static uint32_t held_out_take(struct trainer *trainer, size_t first, size_t n_samples)
{
    const size_t length = trainer->config->sequence_length;
    uint32_t n_taken = 0;

    for (uint32_t b = 0; b < trainer->session.shape.n_batch; b++) {
        const int exists = first + b < n_samples;

        /* every rank computes equally many microbatches; what does not exist is not counted */
        dataset_held_out(&trainer->dataset, exists ? first + b : 0,
                         trainer->compute.inputs + b * length,
                         trainer->compute.targets + b * length);
        n_taken += exists ? 1 : 0;
    }
    return n_taken;
}

int step_validate(struct trainer *trainer, double *ret_loss, struct fault *ret_fault)
{
    struct session *session = &trainer->session;
    const size_t n_held_out = dataset_n_held_out(&trainer->dataset);
    const size_t n_samples = n_held_out < MAX_HELD_OUT ? n_held_out : MAX_HELD_OUT;
    const size_t per_round = (size_t)session->shape.n_batch * session->world_ranks;
    double sum = 0;
    int status;

    for (size_t round = 0; round * per_round < n_samples; round++) {
        const size_t first = round * per_round + (size_t)session->rank * session->shape.n_batch;
        const uint32_t n_taken = held_out_take(trainer, first, n_samples);

        status = compute_forward(&trainer->compute, 0, ret_fault);
        if (status != 0) {
            return status;
        }
        sum += compute_loss(&trainer->compute, n_taken) * n_taken;
    }
    status = session_sum(session, &sum, 1, ret_fault);
    *ret_loss = sum / (double)n_samples;
    return status;
}
