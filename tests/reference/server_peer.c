/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of the server: what is sent to them waits here until their sockets take it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server_internal.h"

void peer_send(struct peer *peer, struct frame frame, const struct packet *packet)
{
    struct outgoing **last = &peer->outgoing;
    struct outgoing *outgoing;
    size_t n_body = packet != NULL ? packet->n_bytes : 0;

    outgoing = malloc(sizeof(*outgoing) + sizeof(frame) + n_body);
    if (outgoing == NULL) {
        shutdown(peer->fd, SHUT_RDWR); /* it learns that it has lost rank 0 */
        return;
    }
    frame.n_bytes = n_body;
    *outgoing = (struct outgoing){.n_bytes = sizeof(frame) + n_body};
    memcpy(outgoing->bytes, &frame, sizeof(frame));
    if (n_body > 0) {
        memcpy(outgoing->bytes + sizeof(frame), packet->bytes, n_body);
    }
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = outgoing;
    peer_flush(peer);
}

void peer_flush(struct peer *peer)
{
    while (peer->outgoing != NULL) {
        struct outgoing *first = peer->outgoing;
        ssize_t n = send(peer->fd, first->bytes + first->n_sent, first->n_bytes - first->n_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n >= 0) {
            first->n_sent += (size_t)n;
        }
        if (n < 0 || first->n_sent == first->n_bytes) { /* who is gone gets nothing */
            peer->outgoing = first->next;
            free(first);
        }
    }
}

void peer_destroy(struct peer *peer)
{
    while (peer->outgoing != NULL) {
        struct outgoing *first = peer->outgoing;

        peer->outgoing = first->next;
        free(first);
    }
    close(peer->fd);
    if (peer->watch_fd >= 0) {
        close(peer->watch_fd);
    }
    packet_free(&peer->inbox.packet);
    free(peer);
}
