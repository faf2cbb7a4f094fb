/* SPDX-License-Identifier: Apache-2.0 */
/* A rank: its process made like one that a launcher starts, the plugin loaded, the check played. */
#include "rank.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "training/device.h"

#define STRANGERS_MS 500u

/* stdin is empty; the other two go where the runner looks into them. */
static void files_redirect(const int output_fds[2])
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        close(null_fd);
    }
    dup2(output_fds[0], STDOUT_FILENO);
    dup2(output_fds[1], STDERR_FILENO);
}

/* To crash is an answer here: it is told by its signal, and leaves nothing. */
static void crashes_prepare(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static const struct rlimit no_core = {0, 0};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        signal(signals[i], SIG_DFL); /* a sanitizer would make an exit of it */
    }
    setrlimit(RLIMIT_CORE, &no_core);
}

static void process_prepare(const struct runner *runner, uint32_t rank, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives a kit that was killed */
    if (getppid() != parent) {
        _exit(1); /* it was killed before that */
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what daemons leave behind comes to this rank */
    setpgid(0, runner->process_group);
    crashes_prepare();
    files_redirect(runner->ranks[rank].output_fds);
    environment_apply(&runner->environment, rank);
    for (uint32_t i = 0; i < runner->setup->n_settings; i++) {
        environment_set(runner->setup->settings[i]);
    }
}

static void device_fail(void *user, const char *sentence)
{
    conform_fail(user, "%s", sentence);
}

/* The driver is the one that the plugin is told of. */
static void device_prepare(struct conform *conform, const struct runner *runner)
{
    const char *library = getenv("HSDP_CUDA_LIBRARY");
    const struct device_use use = {
        .library = library == NULL ? "libcuda.so.1" : library,
        .ordinal = (int32_t)conform->rank,
        .fail = device_fail,
        .user = conform,
    };

    if (runner->setup->is_cuda) {
        device_use(&use);
    }
}

static void plugin_load(struct conform *conform)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;

    spec.path = conform->plugin_path;
    conform_enter(conform, "loading the plugin");
    conform_expect(conform, hsdp_plugin_load(&spec, &plugin, &err) == HSDP_OK,
                   "it cannot be loaded: %s", err.message);
    conform->api = hsdp_plugin_api(plugin); /* it stays loaded: what it has made may live on */
    conform_enter(conform, "");
}

/* Whether a process that this one has started, or that came to it, has left the group: those that
 * are still in it the runner finds. */
static bool stranger_lives(void)
{
    char path[64];
    bool lives = false;
    FILE *file;
    long process;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
    file = fopen(path, "re");
    while (file != NULL && !lives && fscanf(file, "%ld", &process) == 1) {
        lives = getpgid((pid_t)process) != getpgrp() &&
                waitpid((pid_t)process, NULL, WNOHANG) != (pid_t)process;
    }
    if (file != NULL) {
        fclose(file);
    }
    return lives;
}

/* Those that are about to end may do so for a moment longer. */
static void strangers_expect_none(struct conform *conform)
{
    uint64_t begin_ms = conform_now_ms();

    while (stranger_lives()) {
        conform_expect(conform, conform_now_ms() - begin_ms < STRANGERS_MS,
                       "its part was done, but a process that it has started goes on");
        conform_sleep_ms(1);
    }
}

void rank_play(const struct runner *runner, uint32_t rank, pid_t parent)
{
    struct slot_rank *own = &runner->slot->ranks[rank];
    struct conform conform = {
        .plugin_path = runner->setup->plugin_path,
        .shared = runner->slot->shared,
        .seed = runner->setup->seed,
        .rank = rank,
        .n_ranks = runner->n_ranks,
        .claims = runner->setup->claims,
        .slot = runner->slot,
    };

    process_prepare(runner, rank, parent);
    atomic_store(&own->process, (int32_t)getpid());
    device_prepare(&conform, runner);
    if ((runner->check->flags & CONFORM_UNLOADED) == 0) {
        plugin_load(&conform);
    }
    runner->check->run(&conform);
    strangers_expect_none(&conform);
    atomic_store(&own->has_returned, 1u);
    exit(0); /* not _exit: what the plugin left in a buffer is output, too */
}
