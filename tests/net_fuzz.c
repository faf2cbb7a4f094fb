/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzzer does with one input. */
#include "net_fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "channel_pair.h"

#define HELD_BYTES   1024u
#define FRAME_MEMORY 1024u /* of a frame of PAIR_MESSAGE, and of its content */

/* The input, taken from its beginning; zeros after its end. */
struct input {
    const uint8_t *bytes;
    uint64_t n_left;
};

/* One direction: what its end has said. */
struct side {
    struct channel *from;
    struct channel *to;
    struct pair_log *log;     /* of to */
    uint8_t held[HELD_BYTES]; /* the last bytes that were carried, for repeating them */
    uint64_t n_held;
    struct bytes spoken; /* all that its end has ever sent */
    uint64_t n_fed;
    uint32_t n_said; /* messages */
    bool is_altered; /* what arrived is not what was sent; by chance an alteration may be none */
};

static uint8_t input_byte(struct input *input)
{
    if (input->n_left == 0) {
        return 0;
    }
    input->n_left--;
    return *input->bytes++;
}

static uint64_t side_take(struct side *side, uint8_t *ret_bytes)
{
    uint64_t n_bytes = pair_take(side->from, ret_bytes, HELD_BYTES);
    uint8_t *room = bytes_reserve(&side->spoken, n_bytes);

    pair_expect(room != NULL);
    memcpy(room, ret_bytes, n_bytes);
    side->spoken.end += n_bytes;
    return n_bytes;
}

static void side_feed(struct side *side, const uint8_t *bytes, uint64_t n_bytes, uint8_t cut)
{
    for (uint64_t i = 0; i < n_bytes; i++, side->n_fed++) {
        if (side->n_fed >= side->spoken.end || side->spoken.memory[side->n_fed] != bytes[i]) {
            side->is_altered = true;
        }
    }
    pair_feed(side->to, side->log, bytes, n_bytes, cut);
    pair_expect(side->to->frame.capacity_bytes <= FRAME_MEMORY);
    pair_expect(side->to->plain.capacity_bytes <= FRAME_MEMORY);
}

static void side_carry(struct side *side, uint8_t cut)
{
    uint8_t bytes[HELD_BYTES];
    uint64_t n_bytes = side_take(side, bytes);

    if (n_bytes > 0) {
        memcpy(side->held, bytes, n_bytes);
        side->n_held = n_bytes;
        side_feed(side, bytes, n_bytes, cut);
    }
}

/* One byte is another, or the end is missing, or something stands in front. */
static void side_carry_altered(struct side *side, struct input *input)
{
    uint8_t bytes[HELD_BYTES];
    uint64_t n_bytes = side_take(side, bytes);
    uint8_t way = input_byte(input);
    uint64_t at = input_byte(input) | (uint64_t)(way >> 2) << 8;

    if (n_bytes == 0) {
        return;
    }
    at %= n_bytes;
    if (way % 4 == 0) {
        n_bytes = at;
    } else {
        bytes[at] ^= (uint8_t)(1u << input_byte(input) % 8);
    }
    side_feed(side, bytes, n_bytes, input_byte(input));
}

static void side_feed_input(struct side *side, struct input *input)
{
    uint8_t bytes[256];
    uint64_t n_bytes = input_byte(input);

    for (uint64_t i = 0; i < n_bytes; i++) {
        bytes[i] = input_byte(input);
    }
    side_feed(side, bytes, n_bytes, input_byte(input));
}

static void side_repeat(struct side *side, struct input *input)
{
    side_feed(side, side->held, side->n_held, input_byte(input));
}

static void side_say(struct side *side, struct input *input)
{
    uint8_t content[PAIR_MESSAGE];
    uint64_t n_bytes = input_byte(input);

    if (!channel_is_joined(side->from) || bytes_left(&side->from->out) > HELD_BYTES / 2) {
        return;
    }
    memset(content, 0x5a, n_bytes);
    pair_expect(channel_say(side->from, input_byte(input), content, n_bytes));
    side->n_said++;
}

/* What has arrived was said: as many at most, and with the content that all have. */
static void side_check(const struct side *side)
{
    pair_expect(side->log->n_messages <= side->n_said);
    pair_expect(side->log->n_messages == 0 || side->log->n_bytes == 0 ||
                side->log->bytes[0] == 0x5a);
}

/* Once its bytes were altered a side neither joins nor hears a message any more. */
static void operation_run(struct side *side, struct input *input)
{
    uint32_t n_joined = side->log->n_joined;
    uint32_t n_messages = side->log->n_messages;
    bool was_altered = side->is_altered;
    uint8_t operation = input_byte(input);

    switch (operation % 8) {
    case 0:
        side_carry_altered(side, input);
        break;
    case 1:
        side_feed_input(side, input);
        break;
    case 2:
        side_repeat(side, input);
        break;
    case 3:
    case 4:
        side_say(side, input);
        break;
    default:
        side_carry(side, input_byte(input));
        break;
    }
    side_check(side);
    pair_expect(!was_altered ||
                (side->log->n_joined == n_joined && side->log->n_messages == n_messages));
}

void net_fuzz_run(const uint8_t *bytes, uint64_t n_bytes)
{
    struct input input = {bytes, n_bytes};
    struct side *sides = calloc(2, sizeof(*sides));
    struct pair *pair = malloc(sizeof(*pair));
    uint8_t first = input_byte(&input);

    pair_expect(sides != NULL && pair != NULL);
    pair_init(pair, first & 1, first >> 1 & 1);
    sides[0] = (struct side){.from = &pair->client, .to = &pair->server, .log = &pair->server_log};
    sides[1] = (struct side){.from = &pair->server, .to = &pair->client, .log = &pair->client_log};
    while (input.n_left > 0) {
        operation_run(&sides[input_byte(&input) & 1], &input);
    }
    pair_expect((first & 1) == (first >> 1 & 1) || pair->client_log.n_joined == 0);
    pair_expect((first & 1) == (first >> 1 & 1) || pair->server_log.n_joined == 0);
    pair_fini(pair);
    bytes_fini(&sides[0].spoken);
    bytes_fini(&sides[1].spoken);
    free(pair);
    free(sides);
}
