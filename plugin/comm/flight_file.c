/* SPDX-License-Identifier: Apache-2.0 */
/* Flight files: written beside their name and moved there, so that none is ever half there. */
#include "comm/flight_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/job_internal.h"
#include "comm/verdict.h"

#define MAX_RECORDS UINT64_C(10000) /* of a file: some megabytes, and some milliseconds */
#define MAX_MS      1000u           /* for the files of others: the failed call waits for them */

enum { FILES_NONE, FILES_BEGUN, FILES_WRITTEN, FILES_TOLD };

/* ------------------------------------------------------------------------------- content */

static void position_write(const struct control *control, uint32_t index, struct text *text)
{
    struct position_view view;

    position_read(&control->ranks[index].position, clock_now_ns(), &view);
    json_open(text, "position", '{');
    json_string(text, "where", view.is_waiting ? "waits" : view.is_inside ? "inside" : "outside");
    json_string(text, "call", view.call);
    json_string(text, "phase", view.phase);
    if (view.is_waiting) {
        json_string(text, "operation", view.operation);
        json_string(text, "group", view.group);
        json_string(text, "unit", view.unit);
        json_uint(text, "sequence", view.sequence);
        json_uint(text, "since_ns", view.since_ns);
        json_open(text, "waits_for", '[');
        for (uint32_t i = 0; i < control->n_ranks && i < LAUNCH_MAX_RANKS; i++) {
            if (i != index && (view.missing >> i & 1u) != 0) {
                json_uint(text, NULL, control->ranks[i].rank);
            }
        }
        json_close(text, ']');
    }
    json_close(text, '}');
}

/* NULL until this rank has its place in it. */
static struct control *control_of(const struct hsdp_job *job)
{
    return atomic_load(&job->is_recording) != 0 ? atomic_load(&job->control) : NULL;
}

static void rank_write(const struct hsdp_job *job, struct control *control, uint32_t index,
                       uint64_t max_records, struct text *text)
{
    struct flight flight = {.ring = NULL};

    json_uint(text, "rank", control == NULL ? job->launch.rank : control->ranks[index].rank);
    json_uint(text, "now_ns", clock_now_ns());
    if (control != NULL) {
        flight = control_flight(control, index);
        position_write(control, index, text);
    }
    flight_write(&flight, max_records, text);
}

/* Of what control_of has answered. */
static uint32_t own_index(const struct hsdp_job *job, const struct control *control)
{
    return control == NULL ? 0 : job->node_index;
}

void flight_own_write(const struct hsdp_job *job, uint64_t max_records, struct text *text)
{
    struct control *control = control_of(job);

    rank_write(job, control, own_index(job, control), max_records, text);
}

/* How it is with a rank is read by whoever writes, who may be another one. */
static void content_write(struct hsdp_job *job, struct control *control, uint32_t index,
                          const char *state, struct text *text)
{
    char hostname[256] = "";
    char identity[20];

    gethostname(hostname, sizeof(hostname) - 1);
    snprintf(identity, sizeof(identity), "%016" PRIx64,
             text_hash(TEXT_HASH_BASIS, job->identity == NULL ? "" : job->identity));
    json_open(text, NULL, '{');
    json_string(text, "format", "hsdp-flight");
    json_uint(text, "version", 1);
    json_string(text, "job", job->name);
    json_string(text, "identity", identity);
    json_string(text, "host", hostname);
    json_uint(text, "world_ranks", job->launch.world_ranks);
    json_uint(text, "written_by", job->launch.rank);
    json_string(text, "state", state);
    json_int(text, "wall_offset_ns", clock_wall_offset_ns());
    json_open(text, "failure", '{');
    report_failure(job, text);
    json_close(text, '}');
    json_open(text, "groups", '[');
    if (index == own_index(job, control)) {
        report_groups(job, text);
    }
    json_close(text, ']');
    rank_write(job, control, index, MAX_RECORDS, text);
    json_close(text, '}');
    text_add(text, "\n");
}

/* ---------------------------------------------------------------------------------- files */

/* A job's name may hold anything; that of a file may not. */
static void name_write(const struct hsdp_job *job, uint32_t rank, char *ret_name, size_t max_bytes)
{
    char name[JOB_NAME_MAX + 1];

    snprintf(name, sizeof(name), "%s", job->name);
    for (char *c = name; *c != '\0'; c++) {
        bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                        (*c >= '0' && *c <= '9') || *c == '-' || *c == '_' || *c == '.';

        *c = is_plain ? *c : '_';
    }
    snprintf(ret_name, max_bytes, "flight-%s-%" PRIu32 ".json", name, rank);
}

static bool bytes_write(int fd, const char *bytes, uint64_t n_bytes)
{
    while (n_bytes > 0) {
        ssize_t n = write(fd, bytes, n_bytes);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        bytes += n < 0 ? 0 : n;
        n_bytes -= n < 0 ? 0 : (uint64_t)n;
    }
    return true;
}

/* False with errno. */
static bool file_put(int dir, const char *name, const struct text *text)
{
    char beside[160];
    bool is_whole;
    int saved;
    int fd;

    snprintf(beside, sizeof(beside), ".%s.%ld", name, (long)getpid());
    unlinkat(dir, beside, 0); /* of a process with this number that was killed over it */
    fd = openat(dir, beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return false;
    }
    is_whole = bytes_write(fd, text->chars, text->n_bytes);
    saved = errno;
    if (close(fd) != 0 && is_whole) {
        is_whole = false;
        saved = errno;
    }
    if (is_whole && renameat(dir, beside, dir, name) == 0) {
        return true;
    }
    saved = is_whole ? errno : saved;
    unlinkat(dir, beside, 0);
    errno = saved;
    return false;
}

/* The last one; for flight_files_tell. */
static void trouble_keep(struct hsdp_job *job, const char *what, const char *name,
                         const char *reason)
{
    snprintf(job->files_trouble, sizeof(job->files_trouble), "flight: %s \"%.100s\"%s%s", what,
             name, reason[0] == '\0' ? "" : ": ", reason);
}

static void rank_put(struct hsdp_job *job, int dir, struct control *control, uint32_t index,
                     const char *state)
{
    uint32_t rank = control == NULL ? job->launch.rank : control->ranks[index].rank;
    struct text text = TEXT_INIT;
    char name[128];

    content_write(job, control, index, state, &text);
    name_write(job, rank, name, sizeof(name));
    if (text.is_failed) {
        trouble_keep(job, "no memory for", name, "");
    } else if (!file_put(dir, name, &text)) {
        trouble_keep(job, "cannot write", name, strerror(errno));
    } else if (control != NULL) {
        atomic_store(&control->ranks[index].has_written, 1u);
    }
    text_fini(&text);
}

/* Only the first rank that can speaks for those that cannot. */
static void others_put(struct hsdp_job *job, int dir, struct control *control)
{
    uint64_t deadline_ns = clock_deadline_ns(MAX_MS);

    for (uint32_t index = 0; index < job->node_index; index++) {
        if (verdict_state(job, index) == NULL) {
            return;
        }
    }
    for (uint32_t index = 0; index < control->n_ranks && clock_now_ns() < deadline_ns; index++) {
        const char *state = index == job->node_index ? NULL : verdict_state(job, index);

        if (state != NULL && atomic_load(&control->ranks[index].has_written) == 0) {
            rank_put(job, dir, control, index, state);
        }
    }
}

static void files_write(struct hsdp_job *job, const char *path)
{
    struct control *control = control_of(job);
    int dir;

    mkdir(path, 0700); /* the last part of it, if it is not there */
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        trouble_keep(job, "cannot open", path, strerror(errno));
        return;
    }
    rank_put(job, dir, control, own_index(job, control), "alive");
    if (control != NULL) {
        others_put(job, dir, control);
    }
    close(dir);
}

void flight_files_write(struct hsdp_job *job)
{
    const char *path = settings_text(&job->settings, "flight_dir");
    uint64_t deadline_ns;
    uint32_t expected = FILES_NONE;

    if (path == NULL || *job->alive == 0) {
        return;
    }
    if (atomic_compare_exchange_strong(&job->files_state, &expected, FILES_BEGUN)) {
        files_write(job, path);
        atomic_store(&job->files_state, FILES_WRITTEN);
        return;
    }
    deadline_ns = clock_deadline_ns(MAX_MS);
    while (atomic_load(&job->files_state) == FILES_BEGUN && clock_now_ns() < deadline_ns) {
        usleep(200);
    }
}

void flight_files_tell(struct hsdp_job *job)
{
    uint32_t expected = FILES_WRITTEN;

    if (atomic_compare_exchange_strong(&job->files_state, &expected, FILES_TOLD) &&
        job->files_trouble[0] != '\0') {
        job_log(job, HSDP_LOG_WARNING, "%s", job->files_trouble);
    }
}
