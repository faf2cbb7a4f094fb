/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a measurement meet: a barrier, and the times at which each was where. */
#include "meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SPIN_NS  UINT64_C(2000000)
#define LIMIT_NS UINT64_C(100000000000) /* a rank that is later than that has failed */

void meeting_open(struct meeting *meeting)
{
    int fd = open(meeting->path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || ftruncate(fd, sizeof(struct meeting_page)) != 0) {
        fail("%s: %s", meeting->path, strerror(errno));
    }
    meeting->page =
        mmap(NULL, sizeof(struct meeting_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (meeting->page == MAP_FAILED) {
        fail("%s: %s", meeting->path, strerror(errno));
    }
    close(fd);
    meeting->ranks_per_core = (meeting->n_ranks + meeting->n_cores - 1) / meeting->n_cores;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Until the generation is another one, or for as long as it makes sense. */
static void generation_spin(struct meeting_page *page, uint32_t generation)
{
    uint64_t end_ns = clock_now_ns() + SPIN_NS;

    while (atomic_load(&page->generation) == generation && clock_now_ns() < end_ns) {
        pause_briefly();
    }
}

static void generation_sleep(struct meeting_page *page, uint32_t generation)
{
    const struct timespec second = {.tv_sec = 1};
    uint64_t end_ns = clock_now_ns() + LIMIT_NS;

    while (atomic_load(&page->generation) == generation) {
        syscall(SYS_futex, &page->generation, FUTEX_WAIT, generation, &second, NULL, 0);
        if (clock_now_ns() > end_ns) {
            fail("a rank has not come to the barrier");
        }
    }
}

void meeting_wait(const struct meeting *meeting)
{
    struct meeting_page *page = meeting->page;
    uint32_t generation = atomic_load(&page->generation);

    if (atomic_fetch_add(&page->n_arrived, 1) == meeting->n_ranks - 1) {
        atomic_store(&page->n_arrived, 0);
        atomic_fetch_add(&page->generation, 1);
        syscall(SYS_futex, &page->generation, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        return;
    }
    if (meeting->ranks_per_core == 1 && !contender.has_threads) {
        generation_spin(page, generation);
    }
    generation_sleep(page, generation);
}
