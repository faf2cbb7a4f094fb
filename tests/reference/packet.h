/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: numbers, texts and bytes in one piece of memory, as they are sent. */
#ifndef REFERENCE_PACKET_H
#define REFERENCE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Written with put, read with get in the same order. Zeroed memory is an empty packet. What does
 * not fit, or is not there, makes the packet bad, which is asked once, at the end. All of it is
 * aligned to 8 bytes, and both ends are on one machine.
 */
struct packet {
    unsigned char *bytes;
    size_t n_bytes;
    size_t capacity;
    size_t at; /* what get reads next */
    bool is_bad;
};

void packet_put_number(struct packet *packet, uint64_t number);
void packet_put_blob(struct packet *packet, const void *bytes, size_t n_bytes);
void packet_put_text(struct packet *packet, const char *text);

/** Appends a blob without content; returns where it goes, NULL if there is no memory. */
void *packet_put_room(struct packet *packet, size_t n_bytes);

uint64_t packet_get_number(struct packet *packet);
/** Points into the packet. A bad packet gives a blob of no bytes, and the empty text. */
const void *packet_get_blob(struct packet *packet, size_t *ret_n_bytes);
const char *packet_get_text(struct packet *packet);
/** A blob that is a packet itself. Not to be freed. */
struct packet packet_get_part(struct packet *packet);

/** Makes room for n_bytes to be received; false if there is no memory. */
bool packet_reserve(struct packet *packet, size_t n_bytes);

void packet_free(struct packet *packet);

#endif /* REFERENCE_PACKET_H */
