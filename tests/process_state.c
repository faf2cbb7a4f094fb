/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has of its own, read back from the C library and the kernel. */
#include "process_state.h"

#include <check.h>
#include <fenv.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "ranks.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

/* --------------------------------------------------------------------------------------- state */

static void environment_write(FILE *out)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        fprintf(out, "environment %s\n", *entry);
    }
}

static void set_write(FILE *out, const sigset_t *set)
{
    for (int number = 1; number < NSIG; number++) {
        if (sigismember(set, number) == 1) {
            fprintf(out, " %d", number);
        }
    }
    fprintf(out, "\n");
}

static void signals_write(FILE *out)
{
    sigset_t blocked;
    stack_t stack;

    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;

        if (sigaction(number, NULL, &action) == 0) {
            fprintf(out, "signal %d: handler %" PRIxPTR ", flags %x, blocks", number,
                    (uintptr_t)action.sa_handler, (unsigned)action.sa_flags);
            set_write(out, &action.sa_mask);
        }
    }
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, NULL, &blocked), 0);
    fprintf(out, "blocked signals");
    set_write(out, &blocked);
    ck_assert_int_eq(sigaltstack(NULL, &stack), 0);
    fprintf(out, "signal stack %p, %zu bytes\n", stack.ss_sp, stack.ss_size);
}

/* What a thread has set for its arithmetic; not the sticky flags, which any sum may raise. */
static void arithmetic_write(FILE *out)
{
    fprintf(out, "rounding %d\n", fegetround());
#if defined(__SSE__)
    fprintf(out, "arithmetic %x\n", _mm_getcsr() & ~0x3fu);
#elif defined(__aarch64__)
    fprintf(out, "arithmetic %lx\n", (unsigned long)__builtin_aarch64_get_fpcr());
#endif
}

static void limits_write(FILE *out)
{
    static const int timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};

    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;

        ck_assert_int_eq(getrlimit((__rlimit_resource_t)i, &limit), 0);
        fprintf(out, "limit %d: %ju of %ju\n", i, (uintmax_t)limit.rlim_cur,
                (uintmax_t)limit.rlim_max);
    }
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        struct itimerval timer;

        ck_assert_int_eq(getitimer((__itimer_which_t)timers[i], &timer), 0);
        fprintf(out, "timer %zu: %s\n", i,
                timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0 ? "runs" : "off");
    }
}

static void scheduling_write(FILE *out)
{
    char name[16] = "";
    int signal_of_death = 0;
    cpu_set_t processors;

    prctl(PR_GET_NAME, name);
    prctl(PR_GET_PDEATHSIG, &signal_of_death);
    fprintf(out, "name %s, signal of the parent's death %d, dumpable %d, subreaper ", name,
            signal_of_death, prctl(PR_GET_DUMPABLE));
    prctl(PR_GET_CHILD_SUBREAPER, &signal_of_death);
    fprintf(out, "%d, slack %d\n", signal_of_death, prctl(PR_GET_TIMERSLACK));
    ck_assert_int_eq(sched_getaffinity(0, sizeof(processors), &processors), 0);
    fprintf(out, "processors %d, priority %d, policy %d\n", CPU_COUNT(&processors),
            getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
}

char *process_state(void)
{
    char *text = NULL;
    char folder[PATH_MAX];
    size_t n_bytes = 0;
    mode_t mask = umask(0);
    FILE *out;

    umask(mask);
    ck_assert_ptr_nonnull(getcwd(folder, sizeof(folder)));
    out = open_memstream(&text, &n_bytes);
    ck_assert_ptr_nonnull(out);
    environment_write(out);
    signals_write(out);
    fprintf(out, "working directory %s\numask %o\nlocale %s\n", folder, (unsigned)mask,
            setlocale(LC_ALL, NULL));
    arithmetic_write(out);
    limits_write(out);
    scheduling_write(out);
    fprintf(out, "descriptors %" PRIu32 ", threads %" PRIu32 "\n", ranks_n_descriptors(),
            ranks_n_threads());
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

const char *process_state_difference(const char *before, const char *after)
{
    static char line[512];
    const char *end;

    while (*before == *after && *before != '\0') {
        end = strchr(before, '\n') + 1;
        if (strncmp(before, after, (size_t)(end - before)) != 0) {
            break;
        }
        after += end - before;
        before = end;
    }
    if (*before == *after && *before == '\0') {
        return NULL;
    }
    snprintf(line, sizeof(line), "\"%.*s\" became \"%.*s\"", (int)strcspn(before, "\n"), before,
             (int)strcspn(after, "\n"), after);
    return line;
}

void process_state_expect(char *before)
{
    char *after = process_state();
    const char *difference = process_state_difference(before, after);

    ck_assert_msg(difference == NULL, "%s", difference);
    free(before);
    free(after);
}

static void *thread_end(void *argument)
{
    return argument;
}

void process_threads_settle(void)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, thread_end, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* ------------------------------------------------------------------------------------- capture */

void captured_begin(struct captured *ret)
{
    ck_assert_int_eq(fflush(NULL), 0);
    ret->file = memfd_create("captured", MFD_CLOEXEC);
    ck_assert_int_ge(ret->file, 0);
    for (int fd = 1; fd <= 2; fd++) {
        ret->saved[fd - 1] = dup(fd);
        ck_assert_int_ge(ret->saved[fd - 1], 0);
        ck_assert_int_eq(dup2(ret->file, fd), fd);
    }
}

uint64_t captured_end(struct captured *captured)
{
    struct stat file;

    ck_assert_int_eq(fflush(NULL), 0);
    for (int fd = 1; fd <= 2; fd++) {
        ck_assert_int_eq(dup2(captured->saved[fd - 1], fd), fd);
        close(captured->saved[fd - 1]);
    }
    ck_assert_int_eq(fstat(captured->file, &file), 0);
    close(captured->file);
    return (uint64_t)file.st_size;
}

/* ---------------------------------------------------------------------------------------- size */

static uint64_t n_lines(const char *path)
{
    FILE *in = fopen(path, "re");
    uint64_t n = 0;
    int c;

    ck_assert_ptr_nonnull(in);
    while ((c = fgetc(in)) != EOF) {
        n += c == '\n';
    }
    fclose(in);
    return n;
}

static uint64_t heap_bytes(void)
{
#if HAS_SANITIZER
    return 0;
#elif defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
#else
    struct mallinfo info = mallinfo();

    return (uint64_t)info.uordblks + (uint64_t)info.hblkhd;
#endif
}

static uint64_t resident_bytes(void)
{
    unsigned long n_pages = 0;
    FILE *in = fopen("/proc/self/statm", "re");

    ck_assert_ptr_nonnull(in);
    ck_assert_int_eq(fscanf(in, "%*u %lu", &n_pages), 1);
    fclose(in);
    return (uint64_t)n_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

struct process_size process_size(void)
{
    struct process_size size = {0};

    size.n_descriptors = ranks_n_descriptors();
    size.n_threads = ranks_n_threads();
    size.n_mappings = n_lines("/proc/self/maps");
    size.heap_bytes = heap_bytes();
    size.resident_bytes = resident_bytes();
    return size;
}

const char *process_size_growth(struct process_size before, struct process_size after)
{
    /* A sanitizer keeps what was freed, and has mappings of its own. */
    const uint64_t more = HAS_SANITIZER ? UINT64_C(1) << 40 : 0;
    const struct {
        const char *name;
        uint64_t before, after, slack;
    } rows[] = {
        {"descriptors", before.n_descriptors, after.n_descriptors, 0},
        {"threads", before.n_threads, after.n_threads, 0},
        {"mappings", before.n_mappings, after.n_mappings, 2 + more},
        {"bytes of the heap", before.heap_bytes, after.heap_bytes, 32768 + more},
        {"bytes in memory", before.resident_bytes, after.resident_bytes, 524288 + more},
    };
    static char text[128];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].after > rows[i].before + rows[i].slack) {
            snprintf(text, sizeof(text), "%" PRIu64 " %s became %" PRIu64, rows[i].before,
                     rows[i].name, rows[i].after);
            return text;
        }
    }
    return NULL;
}
