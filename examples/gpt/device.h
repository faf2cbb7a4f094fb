/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device on which the plugin keeps the model: a stream, and copies on it. */
#ifndef GPT_DEVICE_H
#define GPT_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/*
 * This program computes on the host, and its model lies on the device: what a unit needs is copied
 * before it computes, and its gradients are copied back. A program whose kernels run on the device
 * hands the plugin the stream that they run on, and copies nothing. The driver is found at run
 * time, so that hsdp-gpt starts where there is none.
 */
struct device;

/* Opens device `ordinal` modulo their number; `library` is a soname or a path of the driver. */
int device_open(const char *library, uint32_t ordinal, struct device **ret_device,
                struct fault *ret_fault);
/* NULL is accepted. Whatever is on the stream has ended, or is given up. */
void device_close(struct device *device);

/* For the plugin: which device this is, and the stream on which copies are made. */
int32_t device_ordinal(const struct device *device);
void *device_stream(const struct device *device);

/* Memory of the host that the device reaches without a detour; and the device's own. It lives as
 * long as the device. */
int device_host_alloc(struct device *device, size_t n_bytes, void **ret_base,
                      struct fault *ret_fault);
int device_alloc(struct device *device, size_t n_bytes, void **ret_base, struct fault *ret_fault);

/* Enqueues a copy, either way. */
int device_copy(struct device *device, void *to, const void *from, size_t n_bytes,
                struct fault *ret_fault);
/* Notes where the stream is now; device_is_done is 1 once the device has come there, 0 before. */
int device_mark(struct device *device, struct fault *ret_fault);
int device_is_done(struct device *device, int *ret_is_done, struct fault *ret_fault);

#endif
