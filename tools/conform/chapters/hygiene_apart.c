/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter hygiene: a second thread, a child, and ranks that live apart from the machine's files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hygiene.h"

/* ------------------------------------------------------------------------------ second thread */

struct busy {
    const struct hsdp_api *api;
    hsdp_job *job;
    _Atomic uint32_t *is_over;
    int32_t found; /* by the second thread */
    int32_t status;
    int32_t counted;
};

static void *busy_thread(void *user)
{
    struct busy *busy = user;
    uint64_t since_ms = conform_now_ms();
    uint64_t steps = 0;

    do {
        conform_sleep_ms(10);
        busy->found = busy->api->job->ticket_wait(busy->job, 0, 0, NULL);
    } while (busy->found == HSDP_OK && conform_now_ms() - since_ms < 5000);
    busy->status = busy->api->job->status(busy->job, NULL);
    busy->counted = busy->api->diag->counter(busy->job, "steps", &steps, NULL);
    atomic_store(busy->is_over, 1u);
    return NULL;
}

/* Rank 0 waits in a barrier, which rank 1 joins once a second thread has asked. */
void hygiene_busy_run(struct conform *conform)
{
    struct scene_spec spec = {.settings = SCENE_PATIENT};
    struct busy busy = {.api = conform->api, .is_over = conform->shared};
    pthread_t thread;
    struct scene scene;

    scene_join(&scene, conform, &spec);
    scene_model(&scene, "");
    scene_gather(&scene);
    busy.job = scene.job;
    if (conform->rank == 1) {
        while (atomic_load(busy.is_over) == 0) {
            conform_sleep_ms(5);
        }
    } else if (pthread_create(&thread, NULL, busy_thread, &busy) != 0) {
        conform_skip(conform, "there is no thread to be had");
    }
    conform_must(conform, scene_wait(&scene, scene_barrier(&scene, 0)));
    if (conform->rank == 0) {
        pthread_join(thread, NULL);
        conform_expect(conform, busy.found == HSDP_ERR_BUSY, "a second thread is answered %s",
                       conform_status_name(busy.found));
        conform_expect(conform, busy.status == HSDP_OK && busy.counted == HSDP_OK,
                       "status and counter answer %s and %s to a second thread",
                       conform_status_name(busy.status), conform_status_name(busy.counted));
    }
    scene_close(&scene);
}

/* ----------------------------------------------------------------------------------------- fork */

static void child_play(struct scene *scene)
{
    const struct hsdp_job_ops *job = scene->api->job;
    struct conform *conform = scene->conform;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    uint64_t steps = 0;

    conform_must_refuse(conform, job->ticket_wait(scene->job, 0, 0, &conform->err),
                        HSDP_ERR_FORKED);
    conform_must_refuse(conform, job->status(scene->job, &conform->err), HSDP_ERR_FORKED);
    conform_must_refuse(conform, job->info(scene->job, &info, &conform->err), HSDP_ERR_FORKED);
    conform_must_refuse(conform, job->close(scene->job, &conform->err), HSDP_ERR_FORKED);
    conform_must_refuse(conform, job->abort(scene->job, "by a child", &conform->err),
                        HSDP_ERR_FORKED);
    conform_must_refuse(conform,
                        scene->api->diag->counter(scene->job, "steps", &steps, &conform->err),
                        HSDP_ERR_FORKED);
    conform_must_refuse(conform, scene->api->group->connect(scene->job, &conform->err),
                        HSDP_ERR_FORKED);
    conform_must_refuse(conform, scene->api->model->edit_begin(scene->model, NULL, &conform->err),
                        HSDP_ERR_FORKED);
    scene_drop(scene);
    _exit(0);
}

static int child_await(pid_t child)
{
    int status = -1;

    while (waitpid(child, &status, 0) != child && errno == EINTR) {
    }
    return status;
}

/* One that fails has said so by itself. */
static void child_expect(struct conform *conform, int status)
{
    conform_expect(conform, WIFEXITED(status) && WEXITSTATUS(status) == 0,
                   "a child ends with status %d", status);
}

void hygiene_fork_run(struct conform *conform)
{
    struct scene_spec spec = {.settings = SCENE_PATIENT};
    struct scene scene;
    pid_t child;

    scene_join(&scene, conform, &spec);
    scene_gather(&scene);
    scene_model(&scene, "");
    scene_load(&scene, 2.0f);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_play(&scene);
    }
    conform_expect(conform, child > 0, "no child: %s", strerror(errno));
    child_expect(conform, child_await(child));
    conform_must(conform, scene_wait(&scene, scene_barrier(&scene, 0)));
    scene_expect_param(&scene, SCENE_X, 2.0f);
    scene_backward(&scene, 1.0f);
    scene_step(&scene);
    scene_expect_param(&scene, SCENE_X, 1.0f);
    scene_close(&scene);
}

/* ---------------------------------------------------------------------------------------- files */

void hygiene_folder_make(struct conform *conform, struct hygiene_folder *ret)
{
    const char *parent = getenv("TMPDIR");

    snprintf(ret->path, sizeof(ret->path), "%.96s/conform-XXXXXX",
             parent == NULL || parent[0] == '\0' ? P_tmpdir : parent);
    if (mkdtemp(ret->path) == NULL) {
        conform_skip(conform, "no folder %s: %s", ret->path, strerror(errno));
    }
}

static void line_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, text, strlen(text)) < 0) {
            errno = 0; /* what follows from it is seen at the mounts */
        }
        close(fd);
    }
}

/* A /dev/shm of its own, so that what is found in it comes from this check. */
static bool shm_isolate(void)
{
    char map[64];
    unsigned user = (unsigned)geteuid();

    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
            return false;
        }
        snprintf(map, sizeof(map), "%u %u 1", user, user);
        line_write("/proc/self/setgroups", "deny");
        line_write("/proc/self/uid_map", map);
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
}

/* Empties a folder; tells of one thing that was in it. */
static bool folder_clear(const char *folder, char ret_name[256])
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    bool is_empty = true;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            is_empty = false;
            snprintf(ret_name, 256, "%s", entry->d_name);
            if (unlinkat(dirfd(dir), entry->d_name, 0) != 0) {
                unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
            }
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return is_empty;
}

/* One of two ranks, in a process of its own. */
static void apart_play(struct conform *conform, uint32_t rank, bool is_waiting)
{
    struct scene_spec spec = {.settings = SCENE_PATIENT, .rank = rank, .n_ranks = 2};
    _Atomic uint32_t *n_there = conform->shared;
    struct scene scene;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    device_set_ordinal((int32_t)rank);
    hygiene_load(conform, conform->plugin_path);
    if (!is_waiting) {
        hygiene_train(conform, &spec);
        _exit(0);
    }
    scene_join(&scene, conform, &spec);
    scene_gather(&scene);
    scene_model(&scene, "");
    scene_load(&scene, 1.0f);
    scene_backward(&scene, 1.0f);
    atomic_fetch_add(n_there, 1u);
    for (;;) {
        conform_sleep_ms(1000);
    }
}

/* Kills both ranks once they have a model; whether they came to it. */
static bool apart_kill(struct conform *conform, const pid_t children[2])
{
    _Atomic uint32_t *n_there = conform->shared;
    uint64_t since_ms = conform_now_ms();

    while (atomic_load(n_there) < 2 && conform_now_ms() - since_ms < 10000) {
        conform_sleep_ms(5);
    }
    kill(children[0], SIGKILL);
    kill(children[1], SIGKILL);
    return atomic_load(n_there) == 2;
}

/* Two ranks that see a folder, and a /dev/shm, which are empty before and have to be after. */
static void apart_run(struct conform *conform, bool is_killed)
{
    struct hygiene_folder folder;
    char name[256];
    pid_t children[2];
    int statuses[2];
    bool has_shm, was_there, is_empty;

    hygiene_folder_make(conform, &folder);
    has_shm = shm_isolate();
    setenv("TMPDIR", folder.path, 1);
    conform_expect(conform, chdir(folder.path) == 0, "no folder %s", folder.path);
    for (uint32_t rank = 0; rank < 2; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            apart_play(conform, rank, is_killed);
        }
        conform_expect(conform, children[rank] > 0, "no child: %s", strerror(errno));
    }
    was_there = !is_killed || apart_kill(conform, children);
    statuses[0] = child_await(children[0]);
    statuses[1] = child_await(children[1]);
    is_empty = folder_clear(folder.path, name);
    rmdir(folder.path);
    conform_expect(conform, was_there, "two ranks do not come to a model");
    for (int i = 0; i < 2 && !is_killed; i++) {
        child_expect(conform, statuses[i]);
    }
    conform_expect(conform, is_empty, "%s is left in the current folder", name);
    conform_expect(conform, !has_shm || folder_clear("/dev/shm", name), "%s is left in /dev/shm",
                   name);
}

void hygiene_files_run(struct conform *conform)
{
    apart_run(conform, false);
}

void hygiene_killed_run(struct conform *conform)
{
    apart_run(conform, true);
}
