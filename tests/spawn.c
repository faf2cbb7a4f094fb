/* SPDX-License-Identifier: Apache-2.0 */
/* Running a shell script as a child with a hard limit. */
#include "spawn.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPAWN_LIMIT_S 30 /* a broken test only; far more than a slow machine needs */

static void spawn_pause(void)
{
    struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};

    nanosleep(&pause, NULL);
}

/* Whether the limit of a wait that began at start is reached. */
static bool limit_is_reached(time_t start)
{
    return time(NULL) - start > SPAWN_LIMIT_S;
}

static void child_run(const struct spawn *spawn, const char *script)
{
    int nothing = open("/dev/null", O_RDONLY);

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
    dup2(nothing, STDIN_FILENO);
    dup2(fileno(spawn->out_file), STDOUT_FILENO);
    dup2(fileno(spawn->err_file), STDERR_FILENO);
    if (nothing > STDERR_FILENO) {
        close(nothing);
    }
    close(fileno(spawn->out_file));
    close(fileno(spawn->err_file));
    putenv((char *)spawn->mark);
    execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    _exit(EXIT_FAILURE);
}

void spawn_start(struct spawn *spawn, const char *script)
{
    static int n_started;

    n_started++;
    snprintf(spawn->mark, sizeof(spawn->mark), "SPAWN_MARK=%d-%d-%lld.", (int)getpid(), n_started,
             (long long)time(NULL));
    spawn->out_file = tmpfile();
    spawn->err_file = tmpfile();
    ck_assert_ptr_nonnull(spawn->out_file);
    ck_assert_ptr_nonnull(spawn->err_file);
    /* writes append, as to a terminal: the child and its children share no offset with our reads */
    fcntl(fileno(spawn->out_file), F_SETFL, O_APPEND);
    fcntl(fileno(spawn->err_file), F_SETFL, O_APPEND);
    spawn->pid = fork();
    ck_assert_int_ge(spawn->pid, 0);
    if (spawn->pid == 0) {
        child_run(spawn, script);
    }
}

static void text_read(FILE *file, char *ret_text)
{
    ssize_t n = pread(fileno(file), ret_text, SPAWN_TEXT_BYTES - 1, 0);

    ck_assert_int_ge(n, 0);
    ret_text[n] = '\0';
}

static void texts_read(struct spawn *spawn)
{
    text_read(spawn->out_file, spawn->out);
    text_read(spawn->err_file, spawn->err);
}

int spawn_wait(struct spawn *spawn)
{
    time_t start = time(NULL);
    int end = 0;

    while (waitpid(spawn->pid, &end, WNOHANG) == 0) {
        if (limit_is_reached(start)) {
            kill(spawn->pid, SIGKILL);
            texts_read(spawn);
            ck_abort_msg("no end after %d s; out: %s; err: %s", SPAWN_LIMIT_S, spawn->out,
                         spawn->err);
        }
        spawn_pause();
    }
    texts_read(spawn);
    fclose(spawn->out_file);
    fclose(spawn->err_file);
    return WIFEXITED(end) ? WEXITSTATUS(end) : 128 + WTERMSIG(end);
}

int spawn_run(struct spawn *spawn, const char *script)
{
    int status;

    spawn_start(spawn, script);
    status = spawn_wait(spawn);
    spawn_expect_alive(spawn, 0);
    return status;
}

void spawn_expect(struct spawn *spawn, const char *text, int n)
{
    time_t start = time(NULL);

    do {
        texts_read(spawn);
        if (limit_is_reached(start)) {
            kill(spawn->pid, SIGKILL);
            ck_abort_msg("'%s' is not there %d times; out: %s; err: %s", text, n, spawn->out,
                         spawn->err);
        }
        spawn_pause();
    } while (text_count(spawn->out, text) < n);
}

static bool environment_has(const char *pid, const char *mark)
{
    char path[64];
    char *text;
    bool has_mark = false;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
    fd = open(path, O_RDONLY);
    text = malloc(SPAWN_TEXT_BYTES);
    if (fd >= 0 && text != NULL) {
        n = read(fd, text, SPAWN_TEXT_BYTES); /* nothing from a process that is dead */
        has_mark = n > 0 && memmem(text, (size_t)n, mark, strlen(mark)) != NULL;
    }
    free(text);
    if (fd >= 0) {
        close(fd);
    }
    return has_mark;
}

static int processes_count(const struct spawn *spawn)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int n_alive = 0;

    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL) {
        if (atoi(entry->d_name) > 0 && environment_has(entry->d_name, spawn->mark)) {
            n_alive++;
        }
    }
    closedir(folder);
    return n_alive;
}

void spawn_expect_alive(const struct spawn *spawn, int n)
{
    time_t start = time(NULL);
    int n_alive;

    while ((n_alive = processes_count(spawn)) != n) {
        ck_assert_msg(!limit_is_reached(start), "%d processes live, not %d", n_alive, n);
        spawn_pause();
    }
}

int text_count(const char *text, const char *part)
{
    int n = 0;

    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        n++;
    }
    return n;
}
