/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop of hsdp-gpt. */
#include "trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "step.h"

/* What rank 0 prints about a finished step: its line if it is due, and what is out of the way. */
static void step_print(const struct trainer *trainer, const struct report_step *step)
{
    const uint64_t interval = trainer->config->log_interval;
    const struct tm now = report_clock();
    char line[REPORT_LINE_BYTES], note[REPORT_LINE_BYTES];

    if (step->step == 1 || step->step % interval == 0 || step->step == trainer->config->max_steps) {
        report_line(line, step, &now);
        if (trainer->is_terminal) {
            report_bar_clear(stdout);
        }
        puts(line);
    }
    if (!isfinite(step->gradient_norm)) {
        report_note(stdout, &now, "WARNING", "the gradients are not finite: the step was skipped");
    }
    if (step->has_validation) {
        snprintf(note, sizeof(note), "step %08ju/%08ju | validation-loss %.4f",
                 (uintmax_t)step->step, (uintmax_t)step->n_steps, step->validation_loss);
        report_note(stdout, &now, "INFO", note);
    }
    if (step->has_digest) {
        snprintf(note, sizeof(note), "step %08ju/%08ju | parameters-digest %016jx",
                 (uintmax_t)step->step, (uintmax_t)step->n_steps,
                 (uintmax_t)step->parameters_digest);
        report_note(stdout, &now, "INFO", note);
    }
    if (trainer->is_terminal) {
        report_bar(stdout, step->step, step->n_steps);
    }
}

/* What rank 0 prints and logs about a finished step. */
static int step_report(struct trainer *trainer, const struct report_step *step,
                       struct fault *ret_fault)
{
    step_print(trainer, step);
    if (trainer->log != NULL && report_json(trainer->log, step) != 0) {
        return fault_set(ret_fault, FAULT_RUN, "the JSON log cannot be written: %s",
                         strerror(errno));
    }
    return 0;
}

/* How long the step has taken, and on what; on this rank. */
static void step_clock(const struct laps *laps, double n_tokens, struct report_step *step)
{
    step->seconds = laps_total(laps);
    step->compute_seconds = laps->seconds[LAPS_COMPUTE];
    step->communication_seconds = laps->seconds[LAPS_COMMUNICATION];
    step->optimizer_seconds = laps->seconds[LAPS_OPTIMIZER];
    step->tokens_per_second = n_tokens / step->seconds;
}

static int step_run(struct trainer *trainer, uint64_t number, struct fault *ret_fault)
{
    const struct config *config = trainer->config;
    const double n_tokens = (double)config->global_batch_size * (double)config->sequence_length;
    struct report_step step = {.step = number, .n_steps = config->schedule_steps};
    int status;

    laps_begin(&trainer->session.laps);
    step.learning_rate = schedule_rate(&trainer->schedule, number);
    status = step_accumulate(trainer, number, &step.loss, ret_fault);
    if (status == 0) {
        status = step_apply(trainer, &step, ret_fault);
    }
    step_clock(&trainer->session.laps, n_tokens, &step);
    if (status == 0 && config->validation_interval != 0 &&
        (number % config->validation_interval == 0 || number == config->max_steps)) {
        step.has_validation = 1;
        status = step_validate(trainer, &step.validation_loss, ret_fault);
    }
    if (status == 0 && trainer->session.rank == 0) {
        status = metrics_read(&trainer->metrics, &trainer->session, &step, ret_fault);
    }
    if (status == 0 && number == config->max_steps) {
        step.has_digest = 1;
        status = session_digest(&trainer->session, &step.parameters_digest, ret_fault);
    }
    if (status == 0 && trainer->session.rank == 0) {
        status = step_report(trainer, &step, ret_fault);
    }
    return status;
}

/* What a setting of the plan has become. */
static const char *setting_text(const struct session *session, const char *key)
{
    const char *value, *source;

    return session->api->plan->setting(session->plan, key, &value, &source, NULL) == HSDP_OK &&
                   value != NULL && value[0] != '\0'
               ? value
               : "none";
}

/* The line before the first step. */
static void header_print(const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    struct hsdp_class_info class_info = HSDP_CLASS_INFO_INIT;
    struct hsdp_job_info job_info = HSDP_JOB_INFO_INIT;
    const struct tm now = report_clock();
    char text[2 * CONFIG_TEXT_BYTES];
    uint64_t n_elems = 0;

    for (uint32_t unit = 0; unit < session->n_units; unit++) {
        for (uint32_t i = 0; i < session->units[unit].n_params; i++) {
            n_elems += model_param_elems(&session->units[unit].table[i]);
        }
    }
    if (session->api->plan->class_info(session->plan, 0, &class_info, NULL) != HSDP_OK ||
        session->api->job->info(session->job, &job_info, NULL) != HSDP_OK) {
        return;
    }
    snprintf(text, sizeof(text),
             "%s %s | sharding-strategy %s | ranks %u | shard-size %s | param-dtype %s"
             " | accumulation-scope %s | slots %s | backend %s | parameters %ju | dataset %s",
             session->api->plugin_name, session->api->plugin_version, class_info.strategy,
             session->world_ranks, setting_text(session, "shard_size"),
             setting_text(session, "param_dtype"), setting_text(session, "accumulation_scope"),
             setting_text(session, "slots"), job_info.backend, (uintmax_t)n_elems,
             trainer->config->dataset);
    report_note(stdout, &now, "INFO", text);
}

static int log_open(struct trainer *trainer, const char *log_path, struct fault *ret_fault)
{
    trainer->is_terminal = isatty(STDOUT_FILENO);
    if (log_path == NULL || trainer->session.rank != 0) {
        return 0;
    }
    trainer->log = fopen(log_path, "we");
    if (trainer->log == NULL) {
        return fault_set(ret_fault, FAULT_CONFIG, "--log-json %s: cannot be written: %s", log_path,
                         strerror(errno));
    }
    return 0;
}

/* Makes a failure of one rank the end of all, before any of them waits for it in a step. */
static int start_agree(struct trainer *trainer, int own_status, struct fault *ret_fault)
{
    struct session *session = &trainer->session;
    double n_failed = own_status == 0 ? 0 : 1;
    struct fault later;
    int status = session_sum(session, &n_failed, 1, &later);

    if (own_status == 0 && status != 0) {
        *ret_fault = later;
        return status;
    }
    if (n_failed != 0) {
        session_farewell(session, &later); /* so that no rank takes another's end for a loss */
    }
    if (own_status == 0 && n_failed != 0) {
        return fault_set(ret_fault, FAULT_CONFIG, "%.0f of %u ranks cannot start and say why",
                         n_failed, session->world_ranks);
    }
    session->is_set_up = own_status == 0;
    return own_status;
}

/* Meets the other ranks; what can fail on one rank alone is agreed upon. */
static int ranks_meet(struct trainer *trainer, const char *log_path, struct fault *ret_fault)
{
    int status = session_connect(&trainer->session, ret_fault);

    if (status != 0) {
        return status;
    }
    status = log_open(trainer, log_path, ret_fault);
    if (status == 0) {
        status = compute_init(&trainer->compute, &trainer->session, ret_fault);
    }
    return start_agree(trainer, status, ret_fault);
}

/* Everything before the first step. What the user can get wrong comes before the ranks meet. */
static int trainer_init(struct trainer *trainer, const struct config *config, const char *log_path,
                        struct fault *ret_fault)
{
    const struct dataset_spec data = {.path = config->dataset,
                                      .sequence_length = config->sequence_length,
                                      .seed = config->seed,
                                      .needs_validation = config->validation_interval != 0};
    int status;

    trainer->config = config;
    trainer->schedule = (struct schedule){.peak = config->learning_rate,
                                          .least = config->min_learning_rate,
                                          .n_warmup_steps = config->warmup_steps,
                                          .n_steps = config->schedule_steps};
    openblas_set_num_threads((int)config->blas_threads);
    status = dataset_load(&trainer->dataset, &data, ret_fault);
    if (status == 0) {
        status = session_check(&trainer->session, config, ret_fault);
    }
    return status == 0 ? ranks_meet(trainer, log_path, ret_fault) : status;
}

static void trainer_fini(struct trainer *trainer)
{
    compute_fini(&trainer->compute);
    session_close(&trainer->session);
    dataset_fini(&trainer->dataset);
    if (trainer->log != NULL) {
        fclose(trainer->log);
    }
}

int trainer_run(const struct config *config, const char *log_path, struct fault *ret_fault)
{
    struct trainer *trainer = calloc(1, sizeof(*trainer));
    int status;

    if (trainer == NULL) {
        return fault_set(ret_fault, FAULT_RUN, "no memory to start");
    }
    status = trainer_init(trainer, config, log_path, ret_fault);
    if (status == 0 && trainer->session.rank == 0) {
        header_print(trainer);
    }
    for (uint64_t step = 1; status == 0 && step <= config->max_steps; step++) {
        status = step_run(trainer, step, ret_fault);
    }
    if (status == 0) {
        status = session_farewell(&trainer->session, ret_fault);
    } else {
        session_abort(&trainer->session, ret_fault);
    }
    if (trainer->is_terminal && trainer->session.rank == 0) {
        putchar('\n');
    }
    trainer_fini(trainer);
    free(trainer);
    return status;
}
