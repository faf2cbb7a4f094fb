/* SPDX-License-Identifier: Apache-2.0 */
/* Net: how often connections beat, and in words how they end. */
#include "net/net.h"

#define BEAT_NS_OF_ONE   UINT64_C(100000) /* 10,000 beats a second at most, each way */
#define BEATS_OF_SILENCE 4u

uint64_t net_beat_ns(uint32_t n_peers, uint64_t silence_ns)
{
    uint64_t beat_ns = n_peers * BEAT_NS_OF_ONE;

    if (silence_ns != 0 && beat_ns > silence_ns / BEATS_OF_SILENCE) {
        beat_ns = silence_ns / BEATS_OF_SILENCE;
    }
    return beat_ns < NET_BEAT_NS ? NET_BEAT_NS : beat_ns;
}

const char *net_end_text(enum net_end why)
{
    switch (why) {
    case NET_END_NONE:
        return "the connection stands";
    case NET_END_CLOSED:
        return "it has said farewell";
    case NET_END_LOST:
        return "the connection ended";
    case NET_END_SILENT:
        return "it is silent";
    case NET_END_GARBAGE:
        return "what came is not what it sent";
    case NET_END_OVERFLOW:
        return "it does not read what is sent to it";
    case NET_END_MEMORY:
        return "no memory for its messages";
    }
    return "the connection ended somehow";
}
