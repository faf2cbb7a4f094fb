/* SPDX-License-Identifier: Apache-2.0 */
/* Time: the monotonic clock, so that jumps of the wall clock change nothing. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_NS_PER_MS UINT64_C(1000000)

/** Now, nanoseconds of CLOCK_MONOTONIC. */
uint64_t clock_now_ns(void);

/** What is added to a reading of CLOCK_MONOTONIC to make it one of the wall clock, now. */
int64_t clock_wall_offset_ns(void);

/** now + ms, saturating; UINT64_MAX is "never". */
uint64_t clock_deadline_ns(uint64_t ms);

/** Milliseconds from now to a deadline, rounded up; 0 when it has passed, at most max_ms. */
int clock_left_ms(uint64_t deadline_ns, int max_ms);

#endif /* BASE_CLOCK_H */
