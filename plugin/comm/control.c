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

uint64_t control_bytes(uint32_t n_ranks)
{
    return sizeof(struct control) + n_ranks * sizeof(struct control_rank);
}

int32_t control_map(int fd, uint32_t n_ranks, struct control **ret_control,
                    struct hsdp_error *reterr)
{
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *base = mmap(NULL, control_bytes(n_ranks), PROT_READ | PROT_WRITE, flags, fd, 0);

    if (base == MAP_FAILED) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "job: cannot map %" PRIu64 " bytes of control block: %s",
                         control_bytes(n_ranks), strerror(errno));
    }
    *ret_control = base;
    (*ret_control)->n_ranks = n_ranks; /* the same number from every rank */
    return HSDP_OK;
}

void control_unmap(struct control *control)
{
    if (control != NULL) {
        munmap(control, control_bytes((uint32_t)control->n_ranks));
    }
}

void control_ring(struct control *control, uint32_t rank)
{
    _Atomic uint32_t *bell = &control->ranks[rank].bell;

    atomic_fetch_add(bell, 1u);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void control_ring_all(struct control *control)
{
    for (uint32_t rank = 0; rank < control->n_ranks; rank++) {
        control_ring(control, rank);
    }
}

void control_sleep(struct control *control, uint32_t rank, uint32_t seen, int ms)
{
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000L};

    syscall(SYS_futex, &control->ranks[rank].bell, FUTEX_WAIT, seen, &limit, NULL, 0);
}
