/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-conform: checks a plugin against what the headers promise. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chapters.h"
#include "conform.h"
#include "options.h"
#include "probe.h"
#include "report.h"
#include "runner.h"

/* A run: the checks that were chosen, in order, and those of them that are under way. */
struct kit {
    struct runner_setup setup;
    struct probe probe;
    struct report report;
    const struct report_form *form;
    struct report_item *items;
    size_t n_items;
    size_t n_started;
    size_t n_told;
    struct runner *runners;                     /* n_jobs of them */
    struct report_item *jobs[OPTIONS_MAX_JOBS]; /* what each runs; NULL = nothing */
    char *plugin_path;                          /* absolute, where there is such a file */
    const char *broken;                         /* why the plugin cannot be loaded; NULL = it can */
};

/* ----------------------------------------------------------------------------------- choosing */

static bool is_chosen(const struct options *options, const struct conform_chapter *chapter,
                      const struct conform_check *check)
{
    bool is_in = options->n_chapters == 0;
    bool is_named = options->n_checks == 0;

    for (uint32_t i = 0; i < options->n_chapters; i++) {
        is_in = is_in || strcmp(options->chapters[i], chapter->name) == 0;
    }
    for (uint32_t i = 0; i < options->n_checks; i++) {
        is_named = is_named || strstr(check->name, options->checks[i]) != NULL;
    }
    return is_in && is_named;
}

static size_t n_checks_in_all(void)
{
    size_t n = 0;

    for (uint32_t i = 0; i < chapters_n; i++) {
        n += chapters_all[i]->n_checks;
    }
    return n;
}

/* Names what was asked for: --check nowhere --chapter arguments. */
static void missing_complain(const struct options *options)
{
    char text[512] = "";
    size_t n_bytes = 0;

    for (uint32_t i = 0; i < options->n_checks && n_bytes < sizeof(text); i++) {
        n_bytes += (size_t)snprintf(text + n_bytes, sizeof(text) - n_bytes, "%s'%s'",
                                    i == 0 ? "" : " or ", options->checks[i]);
    }
    options_complain("no check%s has %s in its name; 'hsdp-conform --list' prints all",
                     options->n_chapters == 0 ? "" : " of these chapters", text);
}

static int items_choose(struct kit *kit, const struct options *options)
{
    kit->items = calloc(n_checks_in_all(), sizeof(*kit->items));
    if (kit->items == NULL) {
        options_complain("no memory for the list of checks");
        return CONFORM_EXIT_UNABLE;
    }
    for (uint32_t i = 0; i < chapters_n; i++) {
        const struct conform_chapter *chapter = chapters_all[i];

        for (uint32_t k = 0; k < chapter->n_checks; k++) {
            if (is_chosen(options, chapter, &chapter->checks[k])) {
                kit->items[kit->n_items].chapter = chapter;
                kit->items[kit->n_items++].check = &chapter->checks[k];
            }
        }
    }
    if (kit->n_items == 0) {
        missing_complain(options);
        return CONFORM_EXIT_UNABLE;
    }
    return CONFORM_EXIT_PASSED;
}

static int items_list(const struct kit *kit)
{
    for (size_t i = 0; i < kit->n_items; i++) {
        const struct report_item *item = &kit->items[i];

        printf("%s: %s (%s)\n", item->chapter->name, item->check->name, item->check->promise);
    }
    return CONFORM_EXIT_PASSED;
}

/* ------------------------------------------------------------------------------------ running */

/* In the order of the list, whichever ends first. */
static void done_tell(struct kit *kit)
{
    while (kit->n_told < kit->n_items && kit->items[kit->n_told].is_done) {
        kit->form->done(&kit->report, &kit->items[kit->n_told++]);
    }
}

static void unloadable_skip(struct kit *kit, struct report_item *item)
{
    item->result.status = RUNNER_SKIPPED;
    item->result.rank = RUNNER_NO_RANK;
    snprintf(item->result.message, sizeof(item->result.message), "%.*s",
             (int)sizeof(item->result.message) - 1, kit->broken);
    item->is_done = true;
}

static void job_start(struct kit *kit, uint32_t job)
{
    struct report_item *item = &kit->items[kit->n_started++];

    if (kit->broken != NULL && (item->check->flags & CONFORM_UNLOADED) == 0) {
        unloadable_skip(kit, item);
        return;
    }
    kit->form->started(&kit->report, item);
    if (runner_start(&kit->runners[job], &kit->setup, item->check)) {
        kit->jobs[job] = item;
        return;
    }
    item->result = kit->runners[job].result;
    item->is_done = true;
}

static void job_poll(struct kit *kit, uint32_t job)
{
    if (runner_poll(&kit->runners[job])) {
        kit->jobs[job]->result = kit->runners[job].result;
        kit->jobs[job]->is_done = true;
        kit->jobs[job] = NULL;
    }
}

static void items_run(struct kit *kit, uint32_t n_jobs)
{
    while (kit->n_told < kit->n_items) {
        for (uint32_t job = 0; job < n_jobs; job++) {
            if (kit->jobs[job] != NULL) {
                job_poll(kit, job);
            }
            if (kit->jobs[job] == NULL && kit->n_started < kit->n_items) {
                job_start(kit, job);
            }
        }
        done_tell(kit);
        conform_sleep_ms(1);
    }
}

/* Whoever has started the kit by exec may have children of its own. */
static bool has_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* What has been started and never ended, by whichever rank: nobody else would end it. */
static void strangers_end(void)
{
    char path[64];
    FILE *file;
    long process;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
    do {
        file = fopen(path, "re");
        while (file != NULL && fscanf(file, "%ld", &process) == 1) {
            kill((pid_t)process, SIGKILL);
        }
        if (file != NULL) {
            fclose(file);
        }
    } while (file != NULL && waitpid(-1, NULL, 0) > 0);
}

static int result_status(const struct kit *kit)
{
    struct report_counts counts = report_count(&kit->report, NULL);

    if (ferror(stdout) || fflush(stdout) != 0) {
        options_complain("cannot write to standard output");
        return CONFORM_EXIT_UNABLE;
    }
    return counts.n[RUNNER_FAILED] == 0 && kit->broken == NULL ? CONFORM_EXIT_PASSED
                                                               : CONFORM_EXIT_FAILED;
}

static int plugin_check(struct kit *kit, const struct options *options)
{
    static const struct report_form *const forms[] = {[OPTIONS_TABLE] = &report_table,
                                                      [OPTIONS_TAP] = &report_tap,
                                                      [OPTIONS_JSON] = &report_json};
    char reason[RUNNER_MESSAGE_BYTES];
    enum probe_answer answer;
    bool is_alone = !has_children();

    kit->plugin_path = realpath(options->plugin_path, NULL); /* checks may go elsewhere */
    kit->setup.plugin_path = kit->plugin_path == NULL ? options->plugin_path : kit->plugin_path;
    kit->setup.seed = options->seed;
    kit->setup.n_ranks = options->n_ranks;
    kit->setup.limit_ms = options->limit_ms;
    kit->setup.settings = options->settings;
    kit->setup.n_settings = options->n_settings;
    kit->setup.is_cuda = options->is_cuda;
    kit->report.options = options;
    kit->report.items = kit->items;
    kit->report.n_items = kit->n_items;
    kit->report.begin_ms = conform_now_ms();
    kit->form = forms[options->format];
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what ranks leave behind comes to us */
    answer = probe_plugin(&kit->setup, &kit->probe, reason, sizeof(reason));
    if (answer == PROBE_UNABLE) {
        return CONFORM_EXIT_UNABLE;
    }
    kit->report.plugin = kit->probe.plugin;
    kit->setup.claims = &kit->probe.claims;
    kit->broken = answer == PROBE_BREAKS ? reason : NULL;
    kit->runners = calloc(options->n_jobs, sizeof(*kit->runners));
    if (kit->runners == NULL) {
        options_complain("no memory for %u checks at a time", (unsigned)options->n_jobs);
        return CONFORM_EXIT_UNABLE;
    }
    kit->form->begin(&kit->report);
    items_run(kit, options->n_jobs);
    if (is_alone) {
        strangers_end();
    }
    kit->form->end(&kit->report);
    return result_status(kit);
}

/* What is opened later shall not be taken for standard input or output, where those are closed; to
 * write there stays an error. */
static void files_open(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

int main(int argc, char **argv)
{
    struct options options;
    struct kit kit = {0};
    int status;

    files_open();
    status = options_parse(&options, argc, argv);
    if (status >= 0) {
        return status;
    }
    status = items_choose(&kit, &options);
    if (status == CONFORM_EXIT_PASSED) {
        status = options.is_listing ? items_list(&kit) : plugin_check(&kit, &options);
    }
    free(kit.plugin_path);
    free(kit.runners);
    free(kit.items);
    return status;
}
