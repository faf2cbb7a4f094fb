/* SPDX-License-Identifier: Apache-2.0 */
/* Time: the monotonic clock. */
#include "base/clock.h"

#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u * CLOCK_NS_PER_MS + (uint64_t)now.tv_nsec;
}

int64_t clock_wall_offset_ns(void)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * 1000 * (int64_t)CLOCK_NS_PER_MS + wall.tv_nsec -
           (int64_t)clock_now_ns();
}

uint64_t clock_deadline_ns(uint64_t ms)
{
    uint64_t now = clock_now_ns();

    if (ms > (UINT64_MAX - now) / CLOCK_NS_PER_MS) {
        return UINT64_MAX;
    }
    return now + ms * CLOCK_NS_PER_MS;
}

int clock_left_ms(uint64_t deadline_ns, int max_ms)
{
    uint64_t now = clock_now_ns();
    uint64_t left_ms;

    if (deadline_ns <= now) {
        return 0;
    }
    left_ms = (deadline_ns - now - 1) / CLOCK_NS_PER_MS + 1;
    return left_ms > (uint64_t)max_ms ? max_ms : (int)left_ms;
}
