/* SPDX-License-Identifier: Apache-2.0 */
/* A model's share of the job's reports and counters. */
#include "shard/model.h"

#include <string.h>

static void counter_move(struct hsdp_job *job, const char *name, uint64_t n_bytes, bool is_added)
{
    _Atomic uint64_t *counter = job_counter_register(job, name);

    if (counter == NULL) {
        return; /* no memory for a counter: the report goes without it */
    }
    if (is_added) {
        atomic_fetch_add_explicit(counter, n_bytes, memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(counter, n_bytes, memory_order_relaxed);
    }
}

void model_memory_count(struct hsdp_model *model, bool is_added)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;

    model_info(model, &info, NULL);
    counter_move(model->job, "memory.parameters", info.param_bytes + info.master_bytes, is_added);
    counter_move(model->job, "memory.gradients", info.grad_bytes + info.grad_slot_bytes, is_added);
    counter_move(model->job, "memory.optimizer", info.state_bytes, is_added);
    counter_move(model->job, "memory.unsharded", info.unsharded_bytes, is_added);
}

void model_state_count(struct hsdp_model *model, uint64_t n_bytes)
{
    counter_move(model->job, "memory.optimizer", n_bytes, true);
}

/* Each class's group: over whom its gradients are reduced, and how long an operation may take. */
static void ledger_write(const struct hsdp_model *model, struct text *text)
{
    const struct hsdp_plan *plan = model->plan;
    char source[96];

    job_timeout_source(model->job, source, sizeof(source));
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        uint32_t dims = plan->classes[c].place.reduced;

        json_open(text, NULL, '{');
        json_string(text, "name", plan->classes[c].reduce_dims);
        json_string(text, "class", plan->classes[c].name);
        json_open(text, "ranks", '[');
        for (uint32_t i = 0; i < mesh_span(plan->mesh, dims); i++) {
            json_uint(text, NULL, mesh_peer(plan->mesh, dims, plan->mesh->rank, i));
        }
        json_close(text, ']');
        json_uint(text, "timeout_ms", job_timeout_ms(model->job));
        json_string(text, "source", source);
        json_close(text, '}');
    }
}

void model_report_write(struct reporter *reporter, const char *what, struct text *text)
{
    struct hsdp_model *model =
        (struct hsdp_model *)((char *)reporter - offsetof(struct hsdp_model, reporter));
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;

    if (strcmp(what, "plan") == 0) {
        plan_write_json(model->plan, text, NULL);
        return;
    }
    if (strcmp(what, "ledger") == 0) {
        ledger_write(model, text);
        return;
    }
    if (strcmp(what, "memory") != 0) {
        return;
    }
    model_info(model, &info, NULL);
    json_open(text, NULL, '{');
    json_uint(text, "parameter_bytes", info.param_bytes);
    json_uint(text, "master_bytes", info.master_bytes);
    json_uint(text, "gradient_bytes", info.grad_bytes);
    json_uint(text, "gradient_slot_bytes", info.grad_slot_bytes);
    json_uint(text, "unsharded_bytes", info.unsharded_bytes);
    json_uint(text, "optimizer_bytes", info.state_bytes);
    json_close(text, '}');
}
