/* SPDX-License-Identifier: Apache-2.0 */
/* The control block: mapping it, and the bells. */
#include "comm/control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

static uint64_t board_offset(uint32_t n_ranks)
{
    return sizeof(struct control) + (uint64_t)n_ranks * sizeof(struct control_rank);
}

static uint64_t flights_offset(uint32_t n_ranks, uint32_t world_ranks)
{
    uint64_t end = board_offset(n_ranks) + 2 * (uint64_t)world_ranks * sizeof(struct mailbox);

    return (end + CONTROL_LINE_BYTES - 1) / CONTROL_LINE_BYTES * CONTROL_LINE_BYTES;
}

uint64_t control_bytes(const struct control_size *size)
{
    return flights_offset(size->n_ranks, size->world_ranks) +
           size->n_ranks * flight_ring_bytes(size->n_records);
}

struct flight control_flight(struct control *control, uint32_t index)
{
    uint64_t offset = flights_offset(control->n_ranks, control->world_ranks) +
                      index * flight_ring_bytes(control->n_records);
    struct flight flight = {.max_records = control->n_records};

    flight.ring = (struct flight_ring *)(void *)((uint8_t *)control + offset);
    return flight;
}

int32_t control_map(int fd, const struct control_size *size, struct control **ret_control,
                    struct hsdp_error *reterr)
{
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    uint64_t n_bytes = control_bytes(size);
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

    if (base == MAP_FAILED) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "job: cannot map %" PRIu64 " bytes of control block: %s", n_bytes,
                         strerror(errno));
    }
    *ret_control = base;
    (*ret_control)->n_ranks = size->n_ranks;
    (*ret_control)->world_ranks = size->world_ranks;
    (*ret_control)->n_records = size->n_records;
    return HSDP_OK;
}

void control_unmap(struct control *control)
{
    if (control != NULL) {
        struct control_size size = {.n_ranks = control->n_ranks,
                                    .world_ranks = control->world_ranks,
                                    .n_records = control->n_records};

        munmap(control, control_bytes(&size));
    }
}

struct mailbox *control_mailbox(struct control *control, uint64_t exchange, uint32_t rank)
{
    struct mailbox *board =
        (struct mailbox *)(void *)((uint8_t *)control + board_offset(control->n_ranks));

    return &board[exchange % 2 * control->world_ranks + rank];
}

void control_ring(struct control *control, uint32_t index)
{
    _Atomic uint32_t *bell = &control->ranks[index].bell;

    atomic_fetch_add(bell, 1u);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void control_ring_all(struct control *control)
{
    for (uint32_t index = 0; index < control->n_ranks; index++) {
        control_ring(control, index);
    }
}

void control_sleep(struct control *control, uint32_t index, uint32_t seen, int ms)
{
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000L};

    syscall(SYS_futex, &control->ranks[index].bell, FUTEX_WAIT, seen, &limit, NULL, 0);
}
