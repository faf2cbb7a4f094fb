/* SPDX-License-Identifier: Apache-2.0 */
/* Channel: the handshake and the frames, and all that must not pass them. */
#include <check.h>
#include <string.h>

#include "channel_pair.h"
#include "suite.h"

static struct pair pair;

static void pair_setup(void)
{
    pair_init(&pair, 3, 3);
}

static void pair_teardown(void)
{
    pair_fini(&pair);
}

static void pair_again(uint8_t client_token, uint8_t server_token)
{
    pair_fini(&pair);
    pair_init(&pair, client_token, server_token);
}

static void joined_expect(void)
{
    ck_assert(channel_is_joined(&pair.client));
    ck_assert(channel_is_joined(&pair.server));
    ck_assert_uint_eq(pair.client_log.n_joined, 1);
    ck_assert_uint_eq(pair.server_log.n_joined, 1);
}

/* Neither has let the other in. */
static void strangers_expect(void)
{
    ck_assert_uint_eq(pair.client_log.n_joined, 0);
    ck_assert_uint_eq(pair.server_log.n_joined, 0);
    ck_assert_uint_eq(pair.server_log.n_proved, 0);
}

/* ---------------------------------------------------------------------------------- handshake */

static const uint64_t cuts[] = {0, 1, 2, 7, 16, 50};

START_TEST(channel_feed_in_any_cuts_joins)
{
    pair_run(&pair, cuts[_i]);
    joined_expect();
    ck_assert_uint_eq(pair.server.who.rank, 77);
    ck_assert_uint_eq(pair.server.who.job[3], 5);
    ck_assert_uint_eq(pair.server_log.n_proved, 1);
}
END_TEST

START_TEST(channel_feed_without_tokens_joins)
{
    pair_again(0, 0);
    pair_run(&pair, 0);
    joined_expect();
}
END_TEST

struct refusal {
    uint8_t client_token;
    uint8_t server_token;
    enum channel_refusal why;
    const char *text;
};

static const struct refusal refusals[] = {
    {1, 2, CHANNEL_REFUSED_TOKEN, "it has another token"},
    {0, 2, CHANNEL_REFUSED_NO_TOKEN, "it has a token, this process has none"},
    {1, 0, CHANNEL_REFUSED_TOKEN_HERE, "it has no token, this process has one"},
};

START_TEST(channel_feed_other_tokens_are_refused_and_named)
{
    const struct refusal *row = &refusals[_i];
    char text[128];

    pair_again(row->client_token, row->server_token);
    pair_run(&pair, 0);
    strangers_expect();
    ck_assert_int_eq(pair.client.refusal, row->why);
    ck_assert_int_eq(pair.server.refusal, row->why);
    channel_refusal_text(pair.client.refusal, pair.client.other_version, text, sizeof(text));
    ck_assert_str_eq(text, row->text);
}
END_TEST

/* The flag of the hello alone, which is said in clear, opens nothing. */
START_TEST(channel_feed_claimed_token_is_refused)
{
    uint8_t bytes[256];
    uint64_t n_bytes;

    pair_again(0, 2);
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    bytes[CHANNEL_HEAD_BYTES + NET_JOB_BYTES + 4] |= 1;
    pair_feed(&pair.server, &pair.server_log, bytes, n_bytes, 0);
    pair_run(&pair, 0);
    strangers_expect();
    ck_assert_int_eq(pair.client.refusal, CHANNEL_REFUSED_TOKEN);
}
END_TEST

START_TEST(channel_feed_another_job_is_refused)
{
    pair.server.spec.self.job[15]++;
    pair_run(&pair, 0);
    strangers_expect();
    ck_assert_int_eq(pair.client.refusal, CHANNEL_REFUSED_JOB);
    ck_assert_int_eq(pair.server.refusal, CHANNEL_REFUSED_JOB);
}
END_TEST

START_TEST(channel_feed_full_server_says_so)
{
    pair.server.spec.is_full = true;
    pair_run(&pair, 0);
    strangers_expect();
    ck_assert_int_eq(pair.client.refusal, CHANNEL_REFUSED_FULL);
}
END_TEST

START_TEST(channel_feed_another_version_is_named_on_both_sides)
{
    uint8_t bytes[256];
    uint64_t n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    char text[128];

    bytes[8] = 9; /* a client of version 9; and its server, for the client of version 1 */
    pair_feed(&pair.server, &pair.server_log, bytes, n_bytes, 0);
    ck_assert_int_eq(pair.server.refusal, CHANNEL_REFUSED_VERSION);
    ck_assert_uint_eq(pair.server.other_version, 9);
    n_bytes = pair_take(&pair.server, bytes, sizeof(bytes));
    bytes[8] = 9;
    pair_feed(&pair.client, &pair.client_log, bytes, n_bytes, 1);
    strangers_expect();
    channel_refusal_text(pair.client.refusal, pair.client.other_version, text, sizeof(text));
    ck_assert_str_eq(text, "it speaks protocol 9, this process protocol 1");
}
END_TEST

START_TEST(channel_feed_replayed_client_is_refused)
{
    uint8_t hello[256];
    uint8_t proof[256];
    uint64_t n_hello = pair_take(&pair.client, hello, sizeof(hello));
    uint64_t n_proof;
    struct pair later;

    pair_feed(&pair.server, &pair.server_log, hello, n_hello, 0);
    pair_to_client(&pair, 0);
    n_proof = pair_take(&pair.client, proof, sizeof(proof));
    pair_feed(&pair.server, &pair.server_log, proof, n_proof, 0);
    ck_assert_uint_eq(pair.server_log.n_proved, 1);

    pair_init(&later, 3, 3); /* the same bytes, to the same server, once more */
    pair_feed(&later.server, &later.server_log, hello, n_hello, 0);
    pair_feed(&later.server, &later.server_log, proof, n_proof, 0);
    ck_assert_uint_eq(later.server_log.n_proved, 0);
    ck_assert_int_eq(later.server.refusal, CHANNEL_REFUSED_TOKEN);
    pair_fini(&later);
}
END_TEST

START_TEST(channel_feed_replayed_server_is_refused)
{
    uint8_t challenge[256];
    uint64_t n_bytes;
    struct pair later;

    pair_to_server(&pair, 0);
    n_bytes = pair_take(&pair.server, challenge, sizeof(challenge));
    pair_init(&later, 3, 3);
    pair_feed(&later.client, &later.client_log, challenge, n_bytes, 0);
    ck_assert_int_eq(later.client.refusal, CHANNEL_REFUSED_TOKEN);
    pair_fini(&later);
}
END_TEST

/* What one says, sent back to it: the hello, and the tag of the server as the client's. */
START_TEST(channel_feed_reflected_messages_are_refused)
{
    uint8_t bytes[256];
    uint64_t n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    uint8_t proof[CHANNEL_PROOF_BYTES] = {0};

    pair_feed(&pair.server, &pair.server_log, bytes, n_bytes, 0);
    pair_feed(&pair.client, &pair.client_log, bytes, n_bytes, 0);
    ck_assert_int_eq(pair.client.refusal, CHANNEL_REFUSED_STRANGER);

    n_bytes = pair_take(&pair.server, bytes, sizeof(bytes));
    ck_assert_uint_eq(n_bytes, CHANNEL_CHALLENGE_BYTES);
    memcpy(proof, bytes, CHANNEL_HEAD_BYTES);
    proof[12] = 3; /* a proof */
    memcpy(proof + CHANNEL_HEAD_BYTES, bytes + CHANNEL_HEAD_BYTES + CHANNEL_NONCE_BYTES,
           KEYS_TAG_BYTES);
    pair_feed(&pair.server, &pair.server_log, proof, sizeof(proof), 0);
    strangers_expect();
    ck_assert_int_eq(pair.server.refusal, CHANNEL_REFUSED_TOKEN);
}
END_TEST

/* One bit of any byte of the handshake and of both welcomes: somebody notices, nobody joins. */
START_TEST(channel_feed_altered_handshake_never_joins_both)
{
    uint8_t bytes[4096];
    uint64_t at = 0; /* of all bytes, in the order in which they go */
    bool is_altered = false;

    while (bytes_left(&pair.client.out) > 0 || bytes_left(&pair.server.out) > 0) {
        bool is_to_server = bytes_left(&pair.client.out) > 0;
        uint64_t n_bytes =
            pair_take(is_to_server ? &pair.client : &pair.server, bytes, sizeof(bytes));

        if (at <= (uint64_t)_i && (uint64_t)_i < at + n_bytes) {
            bytes[(uint64_t)_i - at] ^= 0x10;
            is_altered = true;
        }
        at += n_bytes;
        if (is_to_server) {
            pair_feed(&pair.server, &pair.server_log, bytes, n_bytes, 0);
        } else {
            pair_feed(&pair.client, &pair.client_log, bytes, n_bytes, 0);
        }
    }
    ck_assert(is_altered);
    ck_assert(!channel_is_joined(&pair.client) || !channel_is_joined(&pair.server));
}
END_TEST

/* As many as there are in an undisturbed handshake: see the test before the last of this suite. */
#define HANDSHAKE_BYTES                                                                            \
    (int)(CHANNEL_HELLO_BYTES + CHANNEL_CHALLENGE_BYTES + CHANNEL_PROOF_BYTES +                    \
          CHANNEL_STREAM_BYTES + 2 * CHANNEL_FRAME_BYTES)

START_TEST(channel_init_handshake_has_the_length_that_tests_expect)
{
    uint8_t bytes[4096];
    uint64_t n_bytes = 0;

    while (bytes_left(&pair.client.out) > 0) {
        uint64_t n = pair_take(&pair.client, bytes, sizeof(bytes));

        n_bytes += n;
        pair_feed(&pair.server, &pair.server_log, bytes, n, 0);
        n = pair_take(&pair.server, bytes, sizeof(bytes));
        n_bytes += n;
        pair_feed(&pair.client, &pair.client_log, bytes, n, 0);
    }
    joined_expect();
    ck_assert_int_eq((int)n_bytes, HANDSHAKE_BYTES);
}
END_TEST

/* ------------------------------------------------------------------------------------- frames */

START_TEST(channel_say_messages_arrive_in_any_cuts)
{
    uint8_t long_bytes[PAIR_MESSAGE];

    memset(long_bytes, 0xa5, sizeof(long_bytes));
    pair_run(&pair, 0);
    ck_assert(channel_say(&pair.client, 1, "abc", 3));
    ck_assert(channel_say_beat(&pair.client));
    ck_assert(channel_say(&pair.client, NET_KIND_LIMIT - 1, long_bytes, sizeof(long_bytes)));
    pair_to_server(&pair, cuts[_i]);
    ck_assert_uint_eq(pair.server_log.n_messages, 2);
    ck_assert_uint_eq(pair.server_log.n_beats, 1);
    ck_assert_uint_eq(pair.server_log.kind, NET_KIND_LIMIT - 1);
    ck_assert_uint_eq(pair.server_log.n_bytes, sizeof(long_bytes));
    ck_assert_mem_eq(pair.server_log.bytes, long_bytes, sizeof(long_bytes));
    ck_assert(channel_say(&pair.server, 2, NULL, 0));
    pair_to_client(&pair, cuts[_i]);
    ck_assert_uint_eq(pair.client_log.n_messages, 1);
}
END_TEST

START_TEST(channel_say_what_is_sent_hides_the_message)
{
    uint8_t bytes[256];
    uint64_t n_bytes;

    pair_run(&pair, 0);
    ck_assert(channel_say(&pair.client, 1, "a secret word", 13));
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    ck_assert_uint_eq(n_bytes, CHANNEL_FRAME_BYTES + 13);
    ck_assert_ptr_null(memmem(bytes, n_bytes, "secret", 6));
}
END_TEST

START_TEST(channel_say_farewell_closes)
{
    pair_run(&pair, 0);
    ck_assert(channel_say_farewell(&pair.server));
    pair_to_client(&pair, 0);
    ck_assert_int_eq(pair.client.end, NET_END_CLOSED);
    ck_assert_uint_eq(pair.client_log.n_messages, 0);
}
END_TEST

static void garbage_expect(const uint8_t *bytes, uint64_t n_bytes)
{
    pair_feed(&pair.server, &pair.server_log, bytes, n_bytes, 0);
    ck_assert_int_eq(pair.server.end, NET_END_GARBAGE);
    ck_assert_uint_eq(pair.server_log.n_messages, 0);
}

#define SHORT_FRAME (CHANNEL_FRAME_BYTES + 5u)

/* Any bit of a frame but those of its length, which may only make it wait for more. */
START_TEST(channel_feed_altered_frame_is_garbage)
{
    uint8_t bytes[256];
    uint64_t n_bytes;

    pair_run(&pair, 0);
    ck_assert(channel_say(&pair.client, 1, "hello", 5));
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    ck_assert_uint_eq(n_bytes, SHORT_FRAME);
    bytes[_i] ^= 0x01;
    garbage_expect(bytes, n_bytes);
}
END_TEST

START_TEST(channel_feed_altered_length_never_delivers)
{
    uint8_t bytes[1024];
    uint64_t n_bytes;

    pair_run(&pair, 0);
    for (uint32_t i = 0; i < 20; i++) {
        ck_assert(channel_say(&pair.client, 1, "hello", 5));
    }
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    bytes[0] ^= (uint8_t)(1 << _i);
    garbage_expect(bytes, n_bytes);
}
END_TEST

START_TEST(channel_feed_repeated_frame_is_garbage)
{
    uint8_t bytes[256];
    uint64_t n_bytes;

    pair_run(&pair, 0);
    ck_assert(channel_say_beat(&pair.client));
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    pair_feed(&pair.server, &pair.server_log, bytes, n_bytes, 0);
    ck_assert_uint_eq(pair.server_log.n_beats, 1);
    garbage_expect(bytes, n_bytes);
}
END_TEST

START_TEST(channel_feed_left_out_frame_is_garbage)
{
    uint8_t bytes[256];
    uint64_t n_bytes;

    pair_run(&pair, 0);
    ck_assert(channel_say_beat(&pair.client));
    pair_take(&pair.client, bytes, sizeof(bytes));
    ck_assert(channel_say(&pair.client, 1, "hello", 5));
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    garbage_expect(bytes, n_bytes);
}
END_TEST

START_TEST(channel_feed_own_frames_reflected_are_garbage)
{
    uint8_t bytes[256];
    uint64_t n_bytes;

    pair_run(&pair, 0);
    ck_assert(channel_say(&pair.server, 1, "hello", 5));
    n_bytes = pair_take(&pair.server, bytes, sizeof(bytes));
    garbage_expect(bytes, n_bytes);
}
END_TEST

/* Refused by its length alone: no memory is taken for what will not be accepted. */
START_TEST(channel_feed_too_long_a_frame_is_garbage_at_once)
{
    static const uint8_t lengths[][4] = {
        {0, 0, 0, 0}, {20, 0, 0, 0}, {0x42, 1, 0, 0}, {0xff, 0xff, 0xff, 0xff}};

    pair_run(&pair, 0);
    garbage_expect(lengths[_i], 4);
    ck_assert_uint_le(pair.server.frame.capacity_bytes, 512);
}
END_TEST

/* Messages of the one end longer than the other takes. */
START_TEST(channel_feed_longer_than_agreed_is_garbage)
{
    uint8_t content[PAIR_MESSAGE] = {0};
    uint8_t bytes[1024];
    uint64_t n_bytes;

    pair.server.spec.max_message_bytes = PAIR_MESSAGE - 1;
    pair_run(&pair, 0);
    ck_assert(channel_say(&pair.client, 1, content, PAIR_MESSAGE - 1));
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    pair_feed(&pair.server, &pair.server_log, bytes, n_bytes, 0);
    ck_assert_uint_eq(pair.server_log.n_messages, 1);
    pair.server_log.n_messages = 0;
    ck_assert(channel_say(&pair.client, 1, content, PAIR_MESSAGE));
    n_bytes = pair_take(&pair.client, bytes, sizeof(bytes));
    garbage_expect(bytes, n_bytes);
}
END_TEST

START_TEST(channel_fini_leaves_no_key)
{
    static const uint8_t zeros[256];

    pair_run(&pair, 0);
    ck_assert_mem_ne(&pair.server.incoming, zeros, sizeof(pair.server.incoming));
    ck_assert_mem_eq(&pair.server.stream_keys, zeros, sizeof(pair.server.stream_keys));
    pair_fini(&pair);
    ck_assert_mem_eq(&pair.server.incoming, zeros, sizeof(pair.server.incoming));
    ck_assert_mem_eq(&pair.server.outgoing, zeros, sizeof(pair.server.outgoing));
    ck_assert_mem_eq(pair.server_keys.server, zeros, sizeof(pair.server_keys.server));
}
END_TEST

static void handshake_tests(TCase *tcase)
{
    tcase_add_loop_test(tcase, channel_feed_in_any_cuts_joins, 0, N_OF(cuts));
    tcase_add_test(tcase, channel_feed_without_tokens_joins);
    tcase_add_loop_test(tcase, channel_feed_other_tokens_are_refused_and_named, 0, N_OF(refusals));
    tcase_add_test(tcase, channel_feed_claimed_token_is_refused);
    tcase_add_test(tcase, channel_feed_another_job_is_refused);
    tcase_add_test(tcase, channel_feed_full_server_says_so);
    tcase_add_test(tcase, channel_feed_another_version_is_named_on_both_sides);
    tcase_add_test(tcase, channel_feed_replayed_client_is_refused);
    tcase_add_test(tcase, channel_feed_replayed_server_is_refused);
    tcase_add_test(tcase, channel_feed_reflected_messages_are_refused);
    tcase_add_loop_test(tcase, channel_feed_altered_handshake_never_joins_both, 0, HANDSHAKE_BYTES);
    tcase_add_test(tcase, channel_init_handshake_has_the_length_that_tests_expect);
}

Suite *module_suite(void)
{
    Suite *suite = suite_create("net_channel");
    TCase *tcase = tcase_create("net_channel");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, pair_setup, pair_teardown);
    handshake_tests(tcase);
    tcase_add_loop_test(tcase, channel_say_messages_arrive_in_any_cuts, 0, N_OF(cuts));
    tcase_add_test(tcase, channel_say_what_is_sent_hides_the_message);
    tcase_add_test(tcase, channel_say_farewell_closes);
    tcase_add_loop_test(tcase, channel_feed_altered_frame_is_garbage, 4, (int)SHORT_FRAME);
    tcase_add_loop_test(tcase, channel_feed_altered_length_never_delivers, 0, 8);
    tcase_add_test(tcase, channel_feed_repeated_frame_is_garbage);
    tcase_add_test(tcase, channel_feed_left_out_frame_is_garbage);
    tcase_add_test(tcase, channel_feed_own_frames_reflected_are_garbage);
    tcase_add_loop_test(tcase, channel_feed_too_long_a_frame_is_garbage_at_once, 0, 4);
    tcase_add_test(tcase, channel_feed_longer_than_agreed_is_garbage);
    tcase_add_test(tcase, channel_fini_leaves_no_key);
    suite_add_tcase(suite, tcase);
    return suite;
}
