/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: the memory that ranks share, its bells and its lanes. */
#include "doubles/nccl_wire.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "doubles/nccl_double.h"

/* Lanes begin on a page. */
static uint64_t seats_bytes(uint32_t n_ranks)
{
    uint64_t n_bytes = n_ranks * sizeof(struct wire_seat);

    return (n_bytes + 4095) / 4096 * 4096;
}

static uint64_t wire_bytes(uint32_t n_ranks)
{
    return seats_bytes(n_ranks) + (uint64_t)n_ranks * n_ranks * sizeof(struct wire_lane);
}

int wire_create(uint32_t n_ranks)
{
    int fd = memfd_create("nccl-double", MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)wire_bytes(n_ranks)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool wire_map(struct wire *ret, int fd, uint32_t n_ranks, uint32_t rank)
{
    uint64_t n_bytes = wire_bytes(n_ranks);
    unsigned char *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    close(fd);
    if (memory == MAP_FAILED) {
        return false;
    }
    *ret = (struct wire){
        .seats = (struct wire_seat *)(void *)memory,
        .lanes = (struct wire_lane *)(void *)(memory + seats_bytes(n_ranks)),
        .n_bytes = n_bytes,
        .n_ranks = n_ranks,
        .rank = rank,
    };
    return true;
}

void wire_unmap(struct wire *wire)
{
    if (wire->seats != NULL) {
        munmap(wire->seats, wire->n_bytes);
        wire->seats = NULL;
    }
}

/* --------------------------------------------------------------------------------- bells */

uint32_t wire_bell(const struct wire *wire)
{
    return atomic_load(&wire->seats[wire->rank].bell);
}

/* What is looked for may change without a bell: a parent may stop. */
void wire_sleep(const struct wire *wire, uint32_t bell)
{
    const struct timespec limit = {0, 50000000};
    struct wire_seat *seat = &wire->seats[wire->rank];

    atomic_fetch_add(&seat->n_sleepers, 1);
    if (atomic_load(&seat->bell) == bell) {
        syscall(SYS_futex, &seat->bell, FUTEX_WAIT, bell, &limit, NULL, 0);
    }
    atomic_fetch_sub(&seat->n_sleepers, 1);
}

void wire_ring(const struct wire *wire, uint32_t rank)
{
    struct wire_seat *seat = &wire->seats[rank];

    atomic_fetch_add(&seat->bell, 1);
    if (atomic_load(&seat->n_sleepers) > 0) {
        syscall(SYS_futex, &seat->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void wire_ring_all(const struct wire *wire)
{
    for (uint32_t rank = 0; rank < wire->n_ranks; rank++) {
        wire_ring(wire, rank);
    }
}

/* --------------------------------------------------------------------------------- lanes */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool transfer_send(const struct wire *wire, struct transfer *transfer)
{
    struct wire_lane *lane = &wire->lanes[wire->rank * wire->n_ranks + transfer->peer];
    uint64_t n_pushed = atomic_load(&lane->n_pushed);
    uint64_t n_before = transfer->n_moved;

    while (transfer->n_moved < transfer->n_bytes &&
           n_pushed - atomic_load(&lane->n_popped) < WIRE_SLOTS) {
        uint64_t n_bytes = least(transfer->n_bytes - transfer->n_moved, WIRE_SLOT_BYTES);

        memcpy(lane->data[n_pushed % WIRE_SLOTS], transfer->data + transfer->n_moved, n_bytes);
        lane->slots[n_pushed % WIRE_SLOTS] = (struct wire_slot){transfer->note, n_bytes};
        atomic_store(&lane->n_pushed, ++n_pushed);
        transfer->n_moved += n_bytes;
    }
    if (transfer->n_moved == n_before) {
        return false;
    }
    wire_ring(wire, transfer->peer);
    return true;
}

static bool notes_agree(const struct wire_note *a, const struct wire_note *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->n_bytes == b->n_bytes && a->sequence == b->sequence;
}

/* It waits for ever, as devices do that wait for different things. */
static void transfer_wonder(const struct wire *wire, struct transfer *transfer,
                            const struct wire_note *note)
{
    if (transfer->is_odd) {
        return;
    }
    transfer->is_odd = true;
    nccl_debug("rank %u waits for ever: it is in %s %llu of %llu bytes, dtype %d, op %d, root %u; "
               "rank %u is in %s %llu of %llu bytes, dtype %d, op %d, root %u",
               wire->rank, operation_name(transfer->note.kind),
               (unsigned long long)transfer->note.sequence,
               (unsigned long long)transfer->note.n_bytes, transfer->note.dtype, transfer->note.op,
               transfer->note.root, transfer->peer, operation_name(note->kind),
               (unsigned long long)note->sequence, (unsigned long long)note->n_bytes, note->dtype,
               note->op, note->root);
}

static void slot_take(struct transfer *transfer, const unsigned char *data, uint64_t n_bytes)
{
    if (transfer->reduction == NULL) {
        memcpy(transfer->data + transfer->n_moved, data, n_bytes);
        return;
    }
    reduction_combine(transfer->reduction, transfer->data + transfer->n_moved, data,
                      transfer->own + transfer->n_moved,
                      n_bytes / dtype_size(transfer->reduction->dtype));
}

static bool transfer_recv(const struct wire *wire, struct transfer *transfer)
{
    struct wire_lane *lane = &wire->lanes[transfer->peer * wire->n_ranks + wire->rank];
    uint64_t n_popped = atomic_load(&lane->n_popped);
    uint64_t n_before = transfer->n_moved;

    while (transfer->n_moved < transfer->n_bytes && atomic_load(&lane->n_pushed) > n_popped) {
        const struct wire_slot *slot = &lane->slots[n_popped % WIRE_SLOTS];

        if (!notes_agree(&slot->note, &transfer->note)) {
            transfer_wonder(wire, transfer, &slot->note);
            break;
        }
        slot_take(transfer, lane->data[n_popped % WIRE_SLOTS], slot->n_bytes);
        transfer->n_moved += slot->n_bytes;
        atomic_store(&lane->n_popped, ++n_popped);
    }
    if (transfer->n_moved == n_before) {
        return false;
    }
    wire_ring(wire, transfer->peer);
    return true;
}

bool transfer_step(const struct wire *wire, struct transfer *transfer)
{
    if (transfer->n_moved == transfer->n_bytes ||
        (transfer->after != NULL && transfer->after->n_moved < transfer->after->n_bytes)) {
        return false;
    }
    return transfer->is_send ? transfer_send(wire, transfer) : transfer_recv(wire, transfer);
}
