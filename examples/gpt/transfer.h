/* SPDX-License-Identifier: Apache-2.0 */
/* Between the host, which computes, and the device, where the model lies. */
#ifndef GPT_TRANSFER_H
#define GPT_TRANSFER_H

#include "session.h"

/*
 * Copies are made behind all that is on the session's stream, by way of session->stage. They wait
 * for that, but no longer than the job is alive: a peer that is gone holds up nobody.
 */
int transfer_fetch(struct session *session, const void *from, size_t n_bytes,
                   struct fault *ret_fault);
int transfer_send(struct session *session, void *to, size_t n_bytes, struct fault *ret_fault);

/* convert_load and convert_store of a view, wherever it lies. */
int transfer_load(struct session *session, float *out, const struct hsdp_tensor *view,
                  size_t n_elems, struct fault *ret_fault);
int transfer_store(struct session *session, const struct hsdp_tensor *view, size_t offset,
                   const float *inp, size_t n_elems, struct fault *ret_fault);

#endif
