/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a CUDA device, for a host whose views lie there: read and written by copies. */
#ifndef CONFORM_DEVICE_H
#define CONFORM_DEVICE_H

#include <stdbool.h>

#include "hsdp/hsdp.h"

/*
 * A process that has called device_use() has its jobs on a device. Views lie there, where the host
 * can touch nothing: it works on a copy of a view, which is made when it first looks behind a call
 * of the plugin, and goes back, where it was changed, before the next one. Copies are made on the
 * default stream, which is the stream that this host hands to the plugin, and have ended when they
 * return. The driver is found at run time.
 */
struct device_use {
    const char *library; /* soname or path of the driver; borrowed for ever */
    int32_t ordinal;
    void (*fail)(void *user, const char *sentence); /* does not return */
    void *user;
};

/** From here on the jobs of this process are on a device; nothing is loaded yet. */
void device_use(const struct device_use *use);
bool device_is_used(void);
/** Of a process that plays another rank than it has begun as: before its device is opened. */
void device_set_ordinal(int32_t ordinal);

/** Opens the device, the first time; false says in ret_reason why there is none. */
bool device_open(char *ret_reason, uint64_t max_bytes);
/** Where a job is: on the device that is used, or on the CPU. */
void device_place(struct hsdp_job_spec *spec);

/**
 * The first byte of a view as this host may touch it: its own address, or that of the copy, until
 * the next call of the plugin.
 */
void *device_window(const struct hsdp_tensor *view, bool is_written);
/** What was written to copies goes to the device, and they are forgotten: a call follows. */
void device_flush(void);

/**
 * Collectives with tensors in memory of the device, in place of those of the host's memory, with
 * what that holds; on a CPU the very same. They live until device_land().
 */
const struct hsdp_coll_spec *device_specs(const struct hsdp_coll_spec *specs, uint64_t spec_bytes,
                                          uint64_t n_specs);
/** A tensor of the host's memory where the job's device is, on a CPU the same; until device_land().
 */
const struct hsdp_tensor *device_tensor(const struct hsdp_tensor *tensor);
/** Brings back what they have written, once their tickets are done. */
void device_land(void);

#endif /* CONFORM_DEVICE_H */
