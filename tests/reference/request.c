/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as packets. */
#include "request.h"

#include <string.h>

void request_carry(struct request *request, const struct packet *payload)
{
    request->payload = payload->bytes != NULL ? payload->bytes : (const unsigned char *)"";
    request->payload_bytes = payload->n_bytes;
    if (payload->is_bad && request->refusal == HSDP_OK) {
        request->refusal = HSDP_ERR_NO_MEMORY;
        request->sentence = "no memory";
    }
}

void request_write(const struct request *request, struct packet *packet)
{
    packet_put_text(packet, request->key);
    packet_put_blob(packet, request->members, request->n_members * sizeof(uint32_t));
    packet_put_number(packet, request->combine);
    packet_put_number(packet, request->element);
    packet_put_number(packet, (uint64_t)request->reduce);
    packet_put_text(packet, request->alike);
    packet_put_text(packet, request->operation);
    packet_put_text(packet, request->group);
    packet_put_text(packet, request->unit);
    packet_put_number(packet, request->sequence);
    packet_put_number(packet, request->timeout_ms);
    packet_put_number(packet, (uint64_t)request->refusal);
    packet_put_text(packet, request->sentence);
    packet_put_blob(packet, request->payload, request->payload_bytes);
}

void request_read(struct packet *packet, struct request *ret)
{
    size_t n_bytes;

    ret->key = packet_get_text(packet);
    ret->members = packet_get_blob(packet, &n_bytes);
    ret->n_members = (uint32_t)(n_bytes / sizeof(uint32_t));
    ret->combine = (enum combine)packet_get_number(packet);
    ret->element = (enum element)packet_get_number(packet);
    ret->reduce = (int32_t)packet_get_number(packet);
    ret->alike = packet_get_text(packet);
    ret->operation = packet_get_text(packet);
    ret->group = packet_get_text(packet);
    ret->unit = packet_get_text(packet);
    ret->sequence = packet_get_number(packet);
    ret->timeout_ms = packet_get_number(packet);
    ret->refusal = (int32_t)packet_get_number(packet);
    ret->sentence = packet_get_text(packet);
    ret->payload = packet_get_blob(packet, &ret->payload_bytes);
}

void error_write(const struct hsdp_error *error, struct packet *packet)
{
    packet_put_blob(packet, error, sizeof(*error));
}

void error_read(struct packet *packet, struct hsdp_error *ret)
{
    size_t n_bytes;
    const void *bytes = packet_get_blob(packet, &n_bytes);

    *ret = (struct hsdp_error)HSDP_ERROR_INIT;
    if (n_bytes == sizeof(*ret)) {
        memcpy(ret, bytes, n_bytes);
    }
}
