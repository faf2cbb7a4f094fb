/* SPDX-License-Identifier: Apache-2.0 */
/* Running code of others in a child: pipes, the limit of time, and what to say of its end. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_TOLD_BYTES (64u << 20)
#define KILL_WAIT_MS   2000 /* a process that a driver holds in the kernel does not end */

/* What goes before each fact in the pipe. */
struct frame {
    char name[96];
    uint64_t n_bytes;
};

#define FACT_STAGE "stage" /* what it does now */
#define FACT_DONE  "done"

/* ------------------------------------------------------------------------------------ the child */

static void bytes_write(int out, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;

    while (n_bytes > 0) {
        ssize_t n = write(out, at, n_bytes);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return; /* what was not told is missed by the parent */
        }
        at += n;
        n_bytes -= (size_t)n;
    }
}

void child_tell(int out, const char *name, const char *text)
{
    struct frame frame = {.n_bytes = strlen(text)};

    snprintf(frame.name, sizeof(frame.name), "%s", name);
    bytes_write(out, &frame, sizeof(frame));
    bytes_write(out, text, frame.n_bytes);
}

void child_begin(int out, const char *what)
{
    child_tell(out, FACT_STAGE, what);
}

/* Standard output is a pipe of the parent's, input is empty, and nothing is left behind. */
static void child_main(child_work *work, const void *arg, int out, int noise)
{
    struct rlimit no_core = {0, 0};
    int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGPIPE, SIG_DFL);
    dup2(empty, STDIN_FILENO);
    dup2(noise, STDOUT_FILENO);
    work(out, arg);
    fflush(stdout);
    child_tell(out, FACT_DONE, "");
    _exit(0); /* not exit: what others have registered there shall not run */
}

/* ----------------------------------------------------------------------------------- the parent */

struct watch {
    pid_t pid;
    int out; /* -1 = at its end */
    int noise;
    int64_t timeout_ms;
    int64_t start_ms;
    char *told;
    size_t n_told_bytes;
    struct child *child;
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void told_add(struct watch *w, const char *bytes, size_t n_bytes)
{
    char *longer = NULL;

    if (n_bytes <= MAX_TOLD_BYTES - w->n_told_bytes) {
        longer = realloc(w->told, w->n_told_bytes + n_bytes);
    }
    if (longer != NULL) {
        memcpy(longer + w->n_told_bytes, bytes, n_bytes);
        w->told = longer;
        w->n_told_bytes += n_bytes;
    }
}

static void noise_add(struct watch *w, const char *bytes, size_t n_bytes)
{
    struct child *child = w->child;
    size_t room = sizeof(child->noise) - 1 - strlen(child->noise);

    if (child->noise_bytes < sizeof(child->noise)) {
        memcpy(child->noise + strlen(child->noise), bytes, n_bytes < room ? n_bytes : room);
    }
    child->noise_bytes += n_bytes;
}

/* Reads what is there, but not for ever; at the end of a pipe it is closed. */
static void pipe_read(struct watch *w, int *fd, void (*add)(struct watch *, const char *, size_t))
{
    char bytes[65536];

    for (int i = 0; *fd >= 0 && i < 1024; i++) {
        ssize_t n = read(*fd, bytes, sizeof(bytes));

        if (n > 0) {
            add(w, bytes, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(*fd);
            *fd = -1;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

/* Whether it has ended, without taking its status: until then its number is its own. */
static bool child_has_ended(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* Waits for the end; false when time is over. */
static bool child_await(struct watch *w, int64_t until_ms)
{
    for (;;) {
        struct pollfd polls[2] = {{.fd = w->out, .events = POLLIN},
                                  {.fd = w->noise, .events = POLLIN}};
        bool has_ended = child_has_ended(w->pid);

        pipe_read(w, &w->out, told_add);
        pipe_read(w, &w->noise, noise_add);
        if (has_ended) {
            return true;
        }
        if (now_ms() >= until_ms) {
            return false;
        }
        poll(polls, 2, 10);
    }
}

static void facts_take(struct watch *w)
{
    size_t at = 0;
    struct frame frame;

    while (w->n_told_bytes - at >= sizeof(frame)) {
        memcpy(&frame, w->told + at, sizeof(frame));
        frame.name[sizeof(frame.name) - 1] = '\0';
        at += sizeof(frame);
        if (frame.n_bytes > w->n_told_bytes - at) {
            return; /* it ended in the middle of it */
        }
        json_object_set_new_nocheck(
            w->child->facts, frame.name,
            json_stringn_nocheck(w->told == NULL ? "" : w->told + at, (size_t)frame.n_bytes));
        at += (size_t)frame.n_bytes;
    }
}

static void end_tell(struct watch *w, bool is_in_time, int status)
{
    struct child *child = w->child;
    const char *stage = child_fact(child, FACT_STAGE);

    stage = stage == NULL ? "its start" : stage;
    if (!is_in_time) {
        snprintf(child->fault, sizeof(child->fault), "hangs in %s: killed after %lld s", stage,
                 (long long)(w->timeout_ms / 1000));
    } else if (WIFSIGNALED(status)) {
        snprintf(child->fault, sizeof(child->fault), "crashes in %s (signal %d, %s)", stage,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (child_fact(child, FACT_DONE) == NULL) {
        snprintf(child->fault, sizeof(child->fault), "ends the process in %s (exit status %d)",
                 stage, WEXITSTATUS(status));
    }
}

static void child_watch(struct watch *w)
{
    bool is_in_time = child_await(w, w->start_ms + w->timeout_ms);
    int status = 0;

    kill(-w->pid, SIGKILL); /* it, if it is late, and whatever it has started */
    kill(w->pid, SIGKILL);
    if (is_in_time || child_await(w, now_ms() + KILL_WAIT_MS)) {
        waitpid(w->pid, &status, 0);
    }
    facts_take(w);
    end_tell(w, is_in_time, status);
}

static void pipe_close(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
}

void child_run(child_work *work, const void *arg, int64_t timeout_ms, struct child *ret)
{
    int out[2] = {-1, -1};
    int noise[2] = {-1, -1};
    struct watch w = {.timeout_ms = timeout_ms, .start_ms = now_ms(), .child = ret};

    memset(ret, 0, sizeof(*ret));
    ret->facts = json_object();
    fflush(NULL); /* a child that calls exit() would write it a second time */
    if (ret->facts == NULL || pipe2(out, O_CLOEXEC) != 0 || pipe2(noise, O_CLOEXEC) != 0 ||
        (w.pid = fork()) < 0) {
        snprintf(ret->fault, sizeof(ret->fault), "cannot be asked: %s", strerror(errno));
        pipe_close(out);
        pipe_close(noise);
        return;
    }
    if (w.pid == 0) {
        child_main(work, arg, out[1], noise[1]);
    }
    setpgid(w.pid, w.pid); /* whoever comes first */
    close(out[1]);
    close(noise[1]);
    w.out = out[0];
    w.noise = noise[0];
    fcntl(w.out, F_SETFL, O_NONBLOCK);
    fcntl(w.noise, F_SETFL, O_NONBLOCK);
    child_watch(&w);
    out[1] = noise[1] = -1;
    out[0] = w.out;
    noise[0] = w.noise;
    pipe_close(out);
    pipe_close(noise);
    free(w.told);
}

void child_clear(struct child *child)
{
    json_decref(child->facts);
    child->facts = NULL;
}

const char *child_fact(const struct child *child, const char *name)
{
    return json_string_value(json_object_get(child->facts, name));
}
