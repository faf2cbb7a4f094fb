/* SPDX-License-Identifier: Apache-2.0 */
/* The doubles of the CUDA driver and of NCCL: what they share with each other and with tests. */
#ifndef DOUBLES_DOUBLE_H
#define DOUBLES_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda.h"

/*
 * libcuda.so.1 of this folder exports these beside the driver's own functions; libnccl.so.2 links
 * with it, and tests find them with dlsym.
 *
 * Memory of the device is a range of addresses that nobody can touch: a host that dereferences one
 * faults. Behind it lies the same memory at another address, its shadow, which work on streams
 * uses.
 */

/** What work on a stream does to memory. */
struct double_access {
    const void *address; /* of the device, or pinned */
    uint64_t n_bytes;
    uint32_t is_write;
    uint32_t reserved;
};

/** Where the bytes really are; ends the process with a sentence if they are no allocation's. */
void *double_shadow(const void *address, uint64_t n_bytes);

/** A stream has so many pieces of work, the one that runs included; one more waits for room. */
#define DOUBLE_QUEUE_PIECES 64u

/**
 * Enqueues work on a stream of the current context, behind all that is there. name and accesses are
 * copied. The race detector holds the accesses against what other streams and the host do that
 * neither an event nor the stream orders. work runs on the stream's thread, or discard, where there
 * is one, instead: the context has failed. When the process ends neither does. Both may call
 * double_shadow, and may wait, but not enqueue. An error leaves arg with the caller.
 */
cu_result double_enqueue(cu_stream stream, const char *name, void (*work)(void *arg), void *arg,
                         void (*discard)(void *arg), const struct double_access *accesses,
                         uint32_t n_accesses);

/**
 * Races found so far in this process; the first one's sentence goes to stderr as it is found.
 * HSDP_DOUBLE_RACES, read by cuInit: off = none are looked for, fatal = the first ends the process.
 */
uint64_t double_n_races(void);

/** Tells the race detector what it cannot see: that the host reads or writes pinned memory. */
void double_host_access(const void *address, uint64_t n_bytes, bool is_write);

/**
 * Makes a stream say that it is captured, or no longer. While it does it refuses work and queries,
 * which a driver would put into the host's graph, or refuse.
 */
cu_result double_capture(cu_stream stream, bool is_captured);

/** A kernel as the double runs it: the source of the devices' kernels, compiled for the host. */
struct double_kernel {
    const char *symbol;
    size_t args_bytes;
    /* args have addresses of the device; the kernel's source translates them by double_shadow. */
    void (*run)(const void *args, uint32_t n_blocks, uint32_t n_threads);
    /* What it will touch; at most max_accesses. */
    uint32_t (*accesses)(const void *args, struct double_access *ret, uint32_t max_accesses);
};

#define DOUBLE_MAX_ACCESSES 72u
extern const struct double_kernel double_kernels[];
extern const uint32_t double_n_kernels;

/*
 * HSDP_DOUBLE_DEVICES is the number of devices (8), HSDP_DOUBLE_MEMORY_MIB the memory that this
 * process has of each (1024).
 */

/**
 * A fault of HSDP_DOUBLE_FAULTS, a list of NAME or NAME=NUMBER separated by commas, with
 * NAME@RANK or NAME@RANK=NUMBER for one rank (HSDP_DOUBLE_RANK, else RANK); read each time.
 * False = not switched on. Without a number it is 1.
 *
 *     libcuda   alloc_fails=N      the N-th allocation, of the device or pinned, and all after
 *                                  it, say out of memory
 *               slow_stream=US     each piece of work takes so much longer
 *               no_device          cuInit says CUDA_ERROR_NO_DEVICE
 *               old_driver=V       cuDriverGetVersion says V (12040 = 12.4)
 *               launch_fails=N     the N-th kernel, and all work after it, fails (719)
 *     libnccl   init_hangs         a communicator never comes about
 *               init_blocks        and the call does not return, although it should
 *               calls_block=N      from the N-th collective on the same
 *               peer_absent=N      from the N-th collective on this rank's work never begins
 *               async_error=N      after N collectives ncclCommGetAsyncError says remote error
 *               abort_hangs        ncclCommAbort never returns
 *               version=V          ncclGetVersion says V (21700 = 2.17.0)
 *               duplicate_gpu      as with two ranks on one device
 */
bool double_fault(const char *name, int64_t *ret_number);

#endif /* DOUBLES_DOUBLE_H */
