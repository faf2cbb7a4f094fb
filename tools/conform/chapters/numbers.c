/* SPDX-License-Identifier: Apache-2.0 */
/* What the chapters about numbers share: a training host that belongs to a check. */
#include "numbers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define TEXT_BYTES 900u

/* A process plays one rank of one check. */
static struct conform *playing;
static char note[900];
static const char *strategy = "";

void numbers_begin(struct conform *conform)
{
    playing = conform;
    note[0] = '\0';
}

void numbers_note(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(note, sizeof(note), format, list);
    va_end(list);
}

void numbers_skip(const char *why)
{
    conform_skip(playing, "%s", why);
}

/* ------------------------------------------------------------------- what the host asks for */

void host_fail(const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    conform_fail(playing, "%s%s%s", note, note[0] == '\0' ? "" : ": ", text);
}

void host_needs(enum host_need need, const char *text)
{
    switch (need) {
    case HOST_TRANSPORT:
        conform_needs_transport(playing);
        break;
    case HOST_PLAN:
        conform_needs_plan(playing, text);
        break;
    case HOST_PART:
        conform_needs_part(playing, text);
        break;
    case HOST_EXTENSION:
        conform_needs_extension(playing, text);
        break;
    }
}

void host_unsupported(const char *call, const char *sentence)
{
    char text[TEXT_BYTES + sizeof(note)];

    snprintf(text, sizeof(text), "%s%s%s", sentence, note[0] == '\0' ? "" : "; ", note);
    conform_unsupported(playing, call, text);
}

void host_enter(const char *call)
{
    conform_enter(playing, call);
}

const char *host_plugin_path(void)
{
    return playing->plugin_path;
}

/* ----------------------------------------------------------------------------- from end to end */

void numbers_join(struct conform *conform, struct host *host, const char *dims,
                  const char *settings)
{
    numbers_begin(conform);
    host_join(host, conform->rank, dims, settings);
}

void numbers_open(struct conform *conform, struct host *host, const char *dims,
                  const char *settings, const char *units)
{
    numbers_begin(conform);
    host_open(host, conform->rank, dims, settings, units);
}

void numbers_drop(struct host *host)
{
    host->api->model->destroy(host->model);
    host->api->plan->destroy(host->plan);
    host->model = NULL;
    host->plan = NULL;
}

void numbers_need_strategy(void)
{
    for (uint32_t row = 0; row < HOST_N_STRATEGIES; row++) {
        if (conform_has_strategy(playing, host_strategies[row])) {
            return;
        }
    }
    conform_needs_plan(playing, "");
}

void numbers_try_joined(struct host *host, const struct numbers_trial *trial)
{
    numbers_need_strategy();
    for (uint32_t row = 0; row < HOST_N_STRATEGIES; row++) {
        char settings[256];

        if (!conform_has_strategy(playing, host_strategies[row])) {
            continue;
        }
        strategy = host_strategies[row];
        snprintf(settings, sizeof(settings), "sharding_strategy=%s %s", strategy, trial->settings);
        numbers_note("under %s%s%s", strategy, trial->settings[0] == '\0' ? "" : ", ",
                     trial->settings);
        host_plan(host, settings, trial->units);
        host_model(host);
        trial->run(host);
        numbers_drop(host);
    }
    numbers_note("%s", "");
}

void numbers_try(struct conform *conform, const struct numbers_trial *trial)
{
    struct host host;

    numbers_join(conform, &host, trial->dims, trial->settings);
    numbers_try_joined(&host, trial);
    host_close(&host);
}

bool numbers_is_under(const char *name)
{
    return strcmp(strategy, name) == 0;
}

/* ------------------------------------------------------------------------------------- numbers */

struct hsdp_step_info numbers_step(struct host *host, host_value gradient)
{
    host_backward(host, HSDP_SCOPE_FULL, 0, gradient);
    return host_step(host, 0.0);
}

void numbers_expect_near(const char *what, double found, double expected, double slack)
{
    if (!(fabs(found - expected) <= slack * fabs(expected))) {
        host_fail("rank %u: %s is %.17g, not %.17g", playing->rank, what, found, expected);
    }
}

void numbers_expect_grad(struct host *host, const char *param, double value, double slack)
{
    uint32_t index = host_param(host, param);
    const float *values = host_export(host, index, HSDP_FLAT_GRAD);

    for (uint64_t elem = 0; elem < host->params[index].n_elems; elem++) {
        if (!(fabs((double)values[elem] - value) <= slack * fabs(value))) {
            host_fail("rank %u: the gradient of %s[%u] is %.9g, not %.9g", host->rank, param,
                      (unsigned)elem, (double)values[elem], value);
        }
    }
}

double numbers_one(struct host_at at)
{
    (void)at;
    return 1.0;
}

double numbers_rank_plus_1(struct host_at at)
{
    return 1.0 + at.rank;
}

double numbers_small(struct host_at at)
{
    return (double)((at.elem * 7 + at.param * 3 + at.rank) % 64) - 32.0;
}
