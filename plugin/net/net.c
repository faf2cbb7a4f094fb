/* SPDX-License-Identifier: Apache-2.0 */
/* Net: how connections end, in words. */
#include "net/net.h"

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
