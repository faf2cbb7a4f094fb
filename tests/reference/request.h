/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: what a rank asks of the server, the one form that all communication takes. */
#ifndef REFERENCE_REQUEST_H
#define REFERENCE_REQUEST_H

#include "hsdp/hsdp.h"
#include "packet.h"

/* The first and the last meeting of a job. */
#define KEY_CONNECT "connect"
#define KEY_CLOSE   "close"

/* What the server makes of the payloads once all members have come. */
enum combine {
    COMBINE_GATHER, /* all of them, one blob each, in the order of the members */
    COMBINE_REDUCE, /* one blob: their sum, mean, maximum or minimum */
};

/* Elements that can be reduced. */
enum element {
    ELEMENT_FP32,
    ELEMENT_FP64,
    ELEMENT_FP16,
    ELEMENT_BF16,
    ELEMENT_INT8,
    ELEMENT_INT16,
    ELEMENT_INT32,
    ELEMENT_INT64,
    ELEMENT_UINT8,
    ELEMENT_UINT16,
    ELEMENT_UINT32,
    ELEMENT_UINT64,
    N_ELEMENTS,
};

/*
 * Ranks that send the same key and the same members meet. What must be alike on all of them stands
 * in `alike`, as lines of text; the first that differs fails the job. A rank that cannot take part
 * says why: then nothing is done, and all members get that error.
 */
struct request {
    const char *key;
    const uint32_t *members; /* world ranks */
    uint32_t n_members;
    enum combine combine;
    enum element element; /* of COMBINE_REDUCE, as the next */
    int32_t reduce;       /* HSDP_REDUCE_* */
    const char *alike;
    const char *operation; /* these four are for errors */
    const char *group;
    const char *unit;
    uint64_t sequence;
    uint64_t timeout_ms;
    bool has_own_timeout; /* not the job's, which may change meanwhile */
    int32_t refusal;      /* a status; HSDP_OK = the rank takes part */
    const char *sentence;
    const void *payload;
    size_t payload_bytes;
};

/** Makes a packet the payload; one that is bad, for lack of memory, a refusal. */
void request_carry(struct request *request, const struct packet *payload);

void request_write(const struct request *request, struct packet *packet);
/** What it reads points into the packet, which is bad afterwards if it was no request. */
void request_read(struct packet *packet, struct request *ret);

/** Errors travel as they are. */
void error_write(const struct hsdp_error *error, struct packet *packet);
void error_read(struct packet *packet, struct hsdp_error *ret);

#endif /* REFERENCE_REQUEST_H */
