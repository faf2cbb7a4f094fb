/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: lengths before contents, everything padded to 8 bytes. */
#include "packet.h"

#include <stdlib.h>
#include <string.h>

static size_t padded(size_t n_bytes)
{
    return (n_bytes + 7) & ~(size_t)7;
}

bool packet_reserve(struct packet *packet, size_t n_bytes)
{
    size_t capacity = packet->capacity == 0 ? 256 : packet->capacity;
    unsigned char *bytes;

    while (capacity < n_bytes) {
        capacity *= 2;
    }
    if (capacity != packet->capacity) {
        bytes = realloc(packet->bytes, capacity);
        if (bytes == NULL) {
            packet->is_bad = true;
            return false;
        }
        packet->bytes = bytes;
        packet->capacity = capacity;
    }
    return true;
}

void packet_put_number(struct packet *packet, uint64_t number)
{
    if (packet_reserve(packet, packet->n_bytes + sizeof(number))) {
        memcpy(packet->bytes + packet->n_bytes, &number, sizeof(number));
        packet->n_bytes += sizeof(number);
    }
}

void *packet_put_room(struct packet *packet, size_t n_bytes)
{
    unsigned char *room;

    packet_put_number(packet, n_bytes);
    if (packet->is_bad || !packet_reserve(packet, packet->n_bytes + padded(n_bytes))) {
        return NULL;
    }
    room = packet->bytes + packet->n_bytes;
    memset(room + n_bytes, 0, padded(n_bytes) - n_bytes);
    packet->n_bytes += padded(n_bytes);
    return room;
}

void packet_put_blob(struct packet *packet, const void *bytes, size_t n_bytes)
{
    void *room = packet_put_room(packet, n_bytes);

    if (room != NULL && n_bytes > 0) {
        memcpy(room, bytes, n_bytes);
    }
}

void packet_put_text(struct packet *packet, const char *text)
{
    packet_put_blob(packet, text, strlen(text) + 1);
}

uint64_t packet_get_number(struct packet *packet)
{
    uint64_t number = 0;

    if (packet->is_bad || packet->n_bytes - packet->at < sizeof(number)) {
        packet->is_bad = true;
        return 0;
    }
    memcpy(&number, packet->bytes + packet->at, sizeof(number));
    packet->at += sizeof(number);
    return number;
}

const void *packet_get_blob(struct packet *packet, size_t *ret_n_bytes)
{
    uint64_t n_bytes = packet_get_number(packet);
    const void *blob;

    *ret_n_bytes = 0;
    if (packet->is_bad || n_bytes > packet->n_bytes - packet->at) {
        packet->is_bad = true;
        return "";
    }
    blob = packet->bytes + packet->at;
    packet->at += padded((size_t)n_bytes);
    *ret_n_bytes = (size_t)n_bytes;
    return blob;
}

const char *packet_get_text(struct packet *packet)
{
    size_t n_bytes;
    const char *text = packet_get_blob(packet, &n_bytes);

    if (n_bytes == 0 || text[n_bytes - 1] != '\0') {
        packet->is_bad = true;
        return "";
    }
    return text;
}

struct packet packet_get_part(struct packet *packet)
{
    size_t n_bytes;
    const void *blob = packet_get_blob(packet, &n_bytes);

    return (struct packet){.bytes = (unsigned char *)blob, .n_bytes = n_bytes};
}

void packet_free(struct packet *packet)
{
    free(packet->bytes);
    *packet = (struct packet){0};
}
