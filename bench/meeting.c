/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a measurement meet: a barrier, and the times at which each was where. */
#include "meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "contender.h"

#define SPIN_NS  UINT64_C(2000000)
#define LIMIT_NS UINT64_C(100000000000) /* a rank that is later than that has failed */

struct meeting *meeting_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *base;

    if (fd < 0 || ftruncate(fd, sizeof(struct meeting)) != 0) {
        fail("%s: %s", path, strerror(errno));
    }
    base = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        fail("%s: %s", path, strerror(errno));
    }
    close(fd);
    return base;
}

static bool has_core_each(uint32_t n_ranks)
{
    static int n_cores; /* 0 = not counted yet */
    cpu_set_t cores;

    if (n_cores == 0) {
        n_cores = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
        /* One that is bound to a core shares it with nobody. */
        n_cores = n_cores == 1 ? (int)n_ranks : n_cores;
    }
    return n_ranks <= (uint32_t)n_cores;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Until the generation is another one, or for as long as it makes sense. */
static void generation_spin(struct meeting *meeting, uint32_t generation)
{
    uint64_t end_ns = clock_now_ns() + SPIN_NS;

    while (atomic_load(&meeting->generation) == generation && clock_now_ns() < end_ns) {
        pause_briefly();
    }
}

static void generation_sleep(struct meeting *meeting, uint32_t generation)
{
    const struct timespec second = {.tv_sec = 1};
    uint64_t end_ns = clock_now_ns() + LIMIT_NS;

    while (atomic_load(&meeting->generation) == generation) {
        syscall(SYS_futex, &meeting->generation, FUTEX_WAIT, generation, &second, NULL, 0);
        if (clock_now_ns() > end_ns) {
            fail("a rank has not come to the barrier");
        }
    }
}

void meeting_wait(struct meeting *meeting, uint32_t n_ranks)
{
    uint32_t generation = atomic_load(&meeting->generation);

    if (atomic_fetch_add(&meeting->n_arrived, 1) == n_ranks - 1) {
        atomic_store(&meeting->n_arrived, 0);
        atomic_fetch_add(&meeting->generation, 1);
        syscall(SYS_futex, &meeting->generation, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        return;
    }
    if (has_core_each(n_ranks)) {
        generation_spin(meeting, generation);
    }
    generation_sleep(meeting, generation);
}
