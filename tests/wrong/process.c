/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of hygiene: what is left behind in the process, or on the machine. */
#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wrong.h"

/* What is done when a job is made. */
static void (*act)(void);

static int32_t create_acting(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                             struct hsdp_error *reterr)
{
    act();
    return wrong.real->job->create(spec, ret_job, reterr);
}

static void at_create(void (*what)(void))
{
    act = what;
    wrong.job.create = create_acting;
}

static void print(void)
{
    puts("a job is made");
}

static void prints(void)
{
    at_create(print);
}

static void complain(void)
{
    fputs("a job is made\n", stderr);
}

static void complains(void)
{
    at_create(complain);
}

static void variable_set(void)
{
    setenv("WRONG_WORD", "1", 1);
}

static void sets_variable(void)
{
    at_create(variable_set);
}

static void handler(int number)
{
    (void)number;
}

static void handler_install(void)
{
    signal(SIGUSR1, handler);
}

static void installs_handler(void)
{
    at_create(handler_install);
}

static void mask_change(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void blocks_signal(void)
{
    at_create(mask_change);
}

static void rounding_change(void)
{
    fesetround(FE_TONEAREST);
}

static void rounds_its_own_way(void)
{
    at_create(rounding_change);
}

static void umask_change(void)
{
    umask(077);
}

static void changes_umask(void)
{
    at_create(umask_change);
}

/* The first rank leads its group already, and cannot do so. */
static void session_begin(void)
{
    setsid();
}

static void begins_session(void)
{
    at_create(session_begin);
}

/* As daemons do: nothing of it is left in the group of its rank. */
static void daemon_start(void)
{
    pid_t process = fork();

    if (process == 0) {
        setsid();
        while (fork() == 0) {
            pause();
        }
        _exit(0);
    }
    waitpid(process, NULL, 0);
}

static void leaves_daemon(void)
{
    at_create(daemon_start);
}

static int32_t describe_acting(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                               struct hsdp_error *reterr)
{
    mask_change();
    return wrong.real->describe(ret_text, max_bytes, ret_bytes, reterr);
}

static void blocks_signal_to_describe(void)
{
    wrong.api.describe = describe_acting;
}

static void *sleep_on(void *user)
{
    for (;;) {
        pause();
    }
    return user;
}

static void thread_start(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, sleep_on, NULL) == 0) {
        pthread_detach(thread);
    }
}

static void leaves_thread(void)
{
    at_create(thread_start);
}

static void descriptor_open(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)fd; /* never closed */
}

static void leaks_descriptor(void)
{
    at_create(descriptor_open);
}

static void memory_map(void)
{
    void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)memory; /* never unmapped */
}

static void leaks_mapping(void)
{
    at_create(memory_map);
}

static void file_make(void)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/left-by-a-job", folder == NULL ? "/nowhere" : folder);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    }
}

static void leaves_file(void)
{
    at_create(file_make);
}

static void stay(void)
{
    dlopen(getenv(WRONG_PLUGIN), RTLD_NOW | RTLD_NODELETE);
}

/* This object itself. */
static void stays_loaded(void)
{
    Dl_info info;

    if (dladdr((const void *)&act, &info) != 0) {
        dlopen(info.dli_fname, RTLD_NOW | RTLD_NODELETE);
    }
    at_create(stay);
}

static int32_t create_unnamed(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                              struct hsdp_error *reterr)
{
    struct hsdp_job_spec own = *spec;

    own.name = NULL;
    return wrong.real->job->create(&own, ret_job, reterr);
}

static void names_count_not(void)
{
    wrong.job.create = create_unnamed;
}

/* Lets anybody in. */
static int32_t wait_busy(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                         struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->ticket_wait(job, ticket, wait_ms, reterr);

    return status == HSDP_ERR_BUSY ? HSDP_OK : status;
}

static void second_thread_is_let_in(void)
{
    wrong.job.ticket_wait = wait_busy;
}

static int32_t status_forked(const hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status = wrong.real->job->status(job, reterr);

    return status == HSDP_ERR_FORKED ? HSDP_OK : status;
}

static void child_is_let_in(void)
{
    wrong.job.status = status_forked;
}

static const struct wrong_fault faults[] = {
    {"prints", "hygiene", "nothing is written to stdout or stderr", "writes to stdout", prints},
    {"complains", "hygiene", "nothing is written to stdout or stderr", "writes to stderr",
     complains},
    {"sets-a-variable", "hygiene", "the environment stays as it was",
     "sets an environment variable", sets_variable},
    {"installs-a-handler", "hygiene", "signal handlers stay as they were",
     "installs a signal handler", installs_handler},
    {"blocks-a-signal", "hygiene", "signal handlers stay as they were", "blocks a signal",
     blocks_signal},
    {"rounds-its-own-way", "hygiene", "the rounding mode stays as it was",
     "leaves another rounding mode", rounds_its_own_way},
    {"changes-umask", "hygiene", "folder, locale and limits stay as they were",
     "changes the file mode creation mask", changes_umask},
    {"begins-a-session", "hygiene", "folder, locale and limits stay as they were",
     "takes ranks out of their process group", begins_session},
    {"leaves-a-daemon", "hygiene", "folder, locale and limits stay as they were",
     "a process of a session of its own outlives its job", leaves_daemon},
    {"blocks-a-signal-to-describe", "hygiene", "signal handlers stay as they were",
     "describe() blocks a signal", blocks_signal_to_describe},
    {"leaves-a-thread", "hygiene", "no thread outlives the last job", "a thread outlives its job",
     leaves_thread},
    {"leaks-a-descriptor", "hygiene", "no descriptor is left open",
     "each job leaves a descriptor open", leaks_descriptor},
    {"leaks-a-mapping", "hygiene", "no mapping is left in each run", "each job leaves a mapping",
     leaks_mapping},
    {"leaves-a-file", "hygiene", "a run leaves no file", "each job leaves a file", leaves_file},
    {"leaves-a-file-when-killed", "hygiene", "a run that was killed leaves no file",
     "a file is there until somebody removes it", leaves_file},
    {"stays-loaded", "hygiene", "an unloaded plugin is gone", "the object cannot be unloaded",
     stays_loaded},
    {"names-count-not", "hygiene", "jobs of other names do not meet",
     "jobs meet whatever their names are", names_count_not},
    {"second-thread-is-let-in", "hygiene", "a second thread is told BUSY",
     "a second thread is let in", second_thread_is_let_in},
    {"child-is-let-in", "hygiene", "a child is told FORKED", "a child gets a job's status",
     child_is_let_in},
};

const struct wrong_faults wrong_process = WRONG_FAULTS(faults);
